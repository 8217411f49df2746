//! How long a hold is made to last: what its levels and its extensions ask of the server, and when it is renewed.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, LossReason, Mutex, Owner};
use redis::Value;

use crate::{
    checks::{LIMIT, connect, nothing_left, setup_with_proxy, soon},
    support::{Run, Server, Spy, eventually},
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// What a level asks for.
type Terms = fn(&Mutex) -> Mutex;

/// A client of a server that knows the scripts: each request is sent once.
async fn known(server: &Server) -> Client {
    let client = connect(server).await;
    let guard = client.mutex("before").lock().await.expect("free");
    guard.extend(HOUR).await.expect("held");
    guard.unlock().await.expect("held");
    client
}

/// The renewals that a server was asked for, without those that only write the hold count.
fn renewals(spy: &Spy) -> Vec<Run> {
    let lengthens = |run: &Run| run.script == "lock_renew" && run.ttl_ms() > 0;
    spy.runs().into_iter().filter(lengthens).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_asked_about_a_nested_acquisition_that_the_hold_outlasts_anyway() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let terms: [(&str, Terms, Terms); 4] = [
        ("fixed in fixed", |n| n.with_lease(HOUR), |n| n.with_lease(HOUR / 2)),
        ("fixed in watched", |n| n.with_ttl(30_000 * MS), |n| n.with_lease(HOUR)),
        ("watched in watched", |n| n.with_ttl(30_000 * MS), |n| n.with_ttl(20_000 * MS)),
        ("the same", |n| n.with_ttl(30_000 * MS), |n| n.with_ttl(30_000 * MS)),
    ];
    for (what, outer, inner) in terms {
        let lock = client.mutex("n").owned_by(&Owner::new());
        let outer = soon(what, outer(&lock).lock()).await.expect("free");
        proxy.black_hole(true);
        let nested = inner(&lock).lock().await;
        assert!(nested.is_ok(), "{what}: it waited for an answer: {nested:?}");
        proxy.black_hole(false);
        drop((nested, outer));
        nothing_left(&server, &client).await;
    }
}

/// A third of the fixed lease would be longer than the whole TTL, and a crash would keep the lock for as long as the
/// fixed lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_lock_nested_late_in_a_fixed_lease_is_renewed_by_its_own_ttl() {
    const TTL: Duration = Duration::from_millis(900);
    let server = Server::start().await;
    let client = known(&server).await;
    let lock = client.mutex("n").owned_by(&Owner::new());
    let outer = lock.with_lease(3000 * MS).lock().await.expect("free");
    eventually(LIMIT, "it ends soon", async || outer.remaining() < 400 * MS).await;
    let spy = Spy::on(&server).await;
    let inner = lock.with_ttl(TTL).lock().await.expect("its own");
    // Longer than both.
    tokio::time::sleep(TTL + 400 * MS).await;
    assert!(inner.is_held() && outer.is_held(), "it was not renewed in time");
    let asked: Vec<u64> = renewals(&spy).iter().map(Run::ttl_ms).collect();
    assert!(asked.len() > 1 && asked.iter().all(|asked| *asked == 900), "{asked:?}");
    drop((inner, outer));
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_longer_ttl_was_nested_the_lock_is_renewed_by_that() {
    let server = Server::start().await;
    let client = known(&server).await;
    let spy = Spy::on(&server).await;
    let lock = client.mutex("n").owned_by(&Owner::new());
    let outer = lock.with_ttl(1500 * MS).lock().await.expect("free");
    let nested_at = Instant::now();
    let inner = lock.with_ttl(3000 * MS).lock().await.expect("its own");
    for count in 2..=3 {
        eventually(LIMIT, "it is renewed", async || renewals(&spy).len() >= count).await;
        let (after, least) = (nested_at.elapsed(), 1000 * MS * (count as u32 - 1));
        assert!(after >= least, "renewed after {after:?}, not {least:?}: {:?}", spy.runs());
    }
    let asked: Vec<u64> = renewals(&spy).iter().map(Run::ttl_ms).collect();
    assert!(asked.iter().all(|asked| *asked == 3000), "{asked:?}");
    drop(inner);
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// How late a renewal may come is tested in `terms.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_renewal_comes_before_a_third_of_the_ttl_is_over() {
    const TTL: Duration = Duration::from_millis(1800);
    let server = Server::start().await;
    let client = known(&server).await;
    let spy = Spy::on(&server).await;
    let began_at = Instant::now();
    let guard = client.mutex("n").with_ttl(TTL).lock().await.expect("free");
    for count in 1..=3 {
        eventually(LIMIT, "it is renewed", async || renewals(&spy).len() >= count).await;
        let (after, least) = (began_at.elapsed(), TTL / 3 * count as u32);
        assert!(after >= least, "renewal {count} after {after:?}, not {least:?}");
    }
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The server made it longer in time, but the task was not run before the old end: what has ended stays ended.
#[tokio::test]
async fn an_extension_whose_answer_is_read_after_the_end_comes_too_late() {
    let server = Server::start().await;
    let client = known(&server).await;
    let guard = client.mutex("n").with_lease(600 * MS).lock().await.expect("free");
    let mut extension = Box::pin(guard.extend(HOUR));
    assert!(futures_util::poll!(&mut extension).is_pending());
    let is_longer =
        async || matches!(server.command(&["PTTL", "n"]).await, Value::Int(1_000_000..));
    eventually(LIMIT, "it is longer at the server", is_longer).await;
    // The answer comes in.
    tokio::time::sleep(20 * MS).await;
    // The executor does something else.
    std::thread::sleep(guard.remaining() + 5 * MS);
    let answer = extension.await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Ended, .. })), "{answer:?}");
    assert!(!guard.is_held());
    drop(guard);
    nothing_left(&server, &client).await;
}
