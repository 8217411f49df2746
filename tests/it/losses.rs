//! A lost hold is reported in three ways: by `lost()`, by `run` and by `unlock`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use leasehold::{Client, Error, Guard, LossReason, Mutex, NodeState};
use tokio::task::JoinHandle;

use crate::{
    checks::{AT_ONCE, LIMIT, connect, exists, nothing_left, setup, setup_with_proxy, soon},
    support::{Outage, Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

/// Three holds that are about to be lost, one for each way to learn of it.
struct Doomed {
    /// Waits for `lost()`.
    waiting: JoinHandle<(LossReason, Instant)>,
    /// Runs a body that ends only if it is cancelled.
    running: JoinHandle<(Result<(), Error>, Instant)>,
    body_dropped: Arc<AtomicBool>,
    guards: [Guard; 2],
}

impl Doomed {
    const NAMES: [&str; 3] = ["waits", "runs", "unlocks"];

    async fn hold(client: &Client, terms: impl Fn(Mutex) -> Mutex) -> Self {
        let [waits, runs, unlocks] = Self::NAMES.map(|name| terms(client.mutex(name)));
        let waiting = waits.lock().await.expect("free");
        let body_dropped = Arc::new(AtomicBool::new(false));
        let running = runs.run({
            let dropped = SetOnDrop(body_dropped.clone());
            async move |_: &Guard| {
                let _dropped = dropped;
                std::future::pending::<()>().await;
            }
        });
        let running = tokio::spawn(async move { (running.await, Instant::now()) });
        eventually(LIMIT, "the body runs", async || client.holds().len() == 2).await;
        let unlocking = unlocks.lock().await.expect("free");
        let lost = waiting.lost();
        Self {
            waiting: tokio::spawn(async move { (lost.await, Instant::now()) }),
            running,
            body_dropped,
            guards: [waiting, unlocking],
        }
    }

    fn all_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
            && !self.waiting.is_finished()
            && !self.running.is_finished()
    }

    /// Waits until all three are told, for this reason; when the first and the last was.
    async fn told(self, expected: LossReason) -> (Instant, Instant) {
        let waiting = soon("lost() ends", self.waiting).await;
        let (reason, waiting_told_at) = waiting.expect("no panic");
        assert_eq!(reason, expected);
        let running = soon("run ends", self.running).await;
        let (answer, running_told_at) = running.expect("no panic");
        let Err(Error::Lost { reason, lock, .. }) = answer else { panic!("not lost: {answer:?}") };
        assert_eq!((reason, &*lock), (expected, "runs"));
        assert!(self.body_dropped.load(Ordering::SeqCst), "the body is cancelled");
        for guard in self.guards {
            let name = guard.name().to_owned();
            // Each of the locks was lost by itself, one perhaps a moment after the others.
            soon("it is lost as well", guard.lost()).await;
            assert!(!guard.is_held() && guard.remaining().is_zero());
            assert!(matches!(guard.reenter(), Err(Error::Lost { .. })));
            let answer = soon("no hang", guard.unlock()).await;
            let Err(Error::Lost { reason, lock, .. }) = answer else {
                panic!("not lost: {answer:?}")
            };
            assert_eq!((reason, &*lock), (expected, &*name));
        }
        (waiting_told_at.min(running_told_at), waiting_told_at.max(running_told_at))
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_server_paused_for_longer_than_the_ttl_is_told_at_the_deadline() {
    let (server, [client]) = setup().await;
    let doomed = Doomed::hold(&client, |lock| lock.with_ttl(600 * MS)).await;
    server.pause();
    let paused_at = Instant::now();
    let remaining: Vec<_> = client.holds().iter().map(|hold| hold.remaining).collect();
    let (first_end, last_end) =
        (*remaining.iter().min().expect("three"), *remaining.iter().max().expect("three"));
    let (first, last) = doomed.told(LossReason::NotRenewed).await;
    // A renewal that was answered just before the pause may have been taken in after it.
    let latest = last_end.max(600 * MS);
    assert!(first >= paused_at + first_end - 5 * MS, "{:?}", first - paused_at);
    assert!(last <= paused_at + server.widened(latest + 50 * MS), "{:?}", last - paused_at);
    server.resume();
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_lock_force_unlocked_by_another_client_is_told_at_the_next_renewal() {
    let (server, [client, other]) = setup().await;
    let doomed = Doomed::hold(&client, |lock| lock.with_ttl(900 * MS)).await;
    for name in Doomed::NAMES {
        assert!(other.mutex(name).force_unlock().await.expect("an answer"));
    }
    let freed_at = Instant::now();
    let taken = other.mutex("waits").try_lock().await.expect("an answer").expect("free");
    let (_, last) = doomed.told(LossReason::Gone).await;
    assert!(last - freed_at < server.widened(350 * MS), "{:?}", last - freed_at);
    assert!(taken.is_held() && exists(&server, "waits").await, "the new hold is another's");
    taken.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_lock_force_unlocked_by_the_same_client_is_told_at_once() {
    let (server, [client]) = setup().await;
    let doomed = Doomed::hold(&client, |lock| lock).await;
    for name in Doomed::NAMES {
        assert!(client.mutex(name).force_unlock().await.expect("an answer"));
    }
    let freed_at = Instant::now();
    let (_, last) = doomed.told(LossReason::Gone).await;
    assert!(last.saturating_duration_since(freed_at) < server.widened(100 * MS));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_deleted_key_is_told_at_the_next_renewal() {
    let (server, [client]) = setup().await;
    let doomed = Doomed::hold(&client, |lock| lock.with_ttl(900 * MS)).await;
    server.command(&["DEL", "waits", "runs", "unlocks"]).await;
    let deleted_at = Instant::now();
    let (_, last) = doomed.told(LossReason::Gone).await;
    assert!(last - deleted_at < server.widened(350 * MS), "{:?}", last - deleted_at);
    nothing_left(&server, &client).await;
}

/// Whatever takes the key's place: the lease is not there any more, and the key may be free again before the deadline.
#[tokio::test]
async fn a_key_that_was_overwritten_is_told_at_the_next_renewal() {
    // A third of this is a renewal; the deadline is told as another reason.
    const TTL: Duration = Duration::from_secs(6);
    let (server, [client]) = setup().await;
    let guard = client.mutex("mutex").with_ttl(TTL).lock().await.expect("free");
    let rw = client.rw_lock("rw").with_ttl(TTL);
    let reading = rw.read().await.expect("free");
    let writing = client.rw_lock("written").with_ttl(TTL).write().await.expect("free");
    let semaphore = client.semaphore("permits").with_permits(1).with_ttl(TTL);
    let permit = semaphore.acquire().await.expect("free");
    for key in ["mutex", "rw", "written", "{permits}:timeout"] {
        server.command(&["SET", key, "x"]).await;
    }
    let (mutex, read) = (guard.lost(), reading.lost());
    let (written, permits) = (writing.lost(), permit.lost());
    let told = async { tokio::join!(mutex, read, written, permits) };
    let (mutex, read, written, permits) = soon("all are told", told).await;
    assert_eq!([mutex, read, written, permits], [LossReason::Gone; 4]);
    assert!(guard.unlock().await.expect_err("it is lost").is_lost());
    server.command(&["DEL", "mutex", "rw", "written", "permits", "{permits}:timeout"]).await;
    drop((reading, writing, permit));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_unlock_of_a_deleted_key_is_lost_although_nobody_knew_yet() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").lock().await.expect("free");
    server.command(&["DEL", "n"]).await;
    assert!(guard.is_held(), "by all that is known here");
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    nothing_left(&server, &client).await;
}

/// The release could not be sent before: its first answer, on the next connection, says that the lease was gone.
#[tokio::test]
async fn an_unlock_without_a_connection_tells_of_what_happened_meanwhile() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let other = connect(&server).await;
    for taken in [false, true] {
        let test = async |outage: &Outage<'_>| {
            let lock = client.mutex("n").with_lease(Duration::from_secs(20));
            let guard = lock.lock().await.expect("free");
            outage.begins();
            let down = async || client.nodes()[0].state == NodeState::Down;
            eventually(LIMIT, "the connection is lost", down).await;
            let theirs = if taken {
                server.command(&["DEL", "n"]).await;
                Some(other.mutex("n").try_lock().await.expect("an answer").expect("free"))
            } else {
                None
            };
            let unlock = tokio::spawn(guard.unlock());
            let owed = async || client.stats().releases_pending == 1;
            eventually(LIMIT, "the release is owed", owed).await;
            outage.ends().await;
            let answer = unlock.await.expect("no panic");
            match theirs {
                Some(theirs) => {
                    assert!(
                        matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })),
                        "{answer:?}"
                    );
                    assert!(theirs.is_held());
                    theirs.unlock().await.expect("held");
                }
                None => answer.expect("it was held until then"),
            }
            nothing_left(&server, &client).await;
        };
        Outage::cut_off([&proxy]).twice(test).await;
    }
}

#[tokio::test]
async fn the_end_of_a_fixed_lease_is_told_when_it_comes() {
    let (server, [client]) = setup().await;
    let began_at = Instant::now();
    let doomed = Doomed::hold(&client, |lock| lock.with_lease(400 * MS)).await;
    let held_at = Instant::now();
    let (first, last) = doomed.told(LossReason::Ended).await;
    // The lease less what is given up for drift: 1 % and 2 ms.
    assert!(first >= began_at + 394 * MS, "{:?}", first - began_at);
    assert!(last <= held_at + server.widened(444 * MS), "{:?}", last - held_at);
    nothing_left(&server, &client).await;
}

/// The watchdog has no turn before: whoever comes next takes the hold out of its way.
#[tokio::test]
async fn a_loss_that_the_next_call_finds_is_told() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.with_lease(200 * MS).lock().await.expect("free");
    let lost = guard.lost();
    std::thread::sleep(guard.remaining() + 5 * MS);
    let next = lock.lock().await.expect("its time is over");
    assert_eq!(lost.now_or_never(), Some(LossReason::Ended), "who waits for it is told");
    assert_eq!(client.stats().lost, 1);
    drop((guard, next));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn the_end_of_the_longest_hold_is_told_within_a_ttl_of_it() {
    let (server, [client]) = setup().await;
    let began_at = Instant::now();
    let terms = |lock: Mutex| lock.with_ttl(900 * MS).with_max_hold(1_500 * MS);
    let doomed = Doomed::hold(&client, terms).await;
    let held_at = Instant::now();
    let (first, last) = doomed.told(LossReason::Ended).await;
    assert!(first >= began_at + 1_500 * MS, "{:?}", first - began_at);
    assert!(last <= held_at + server.widened(2_450 * MS), "{:?}", last - held_at);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_shutdown_is_told_at_once() {
    let (server, [client]) = setup().await;
    let doomed = Doomed::hold(&client, |lock| lock).await;
    assert!(doomed.all_held());
    let began_at = Instant::now();
    client.shutdown().await;
    let (_, last) = doomed.told(LossReason::Shutdown).await;
    assert!(last - began_at < AT_ONCE, "{:?}", last - began_at);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_hold_that_ended_in_order_is_never_lost() {
    let (_server, [client]) = setup().await;
    let guard = client.mutex("n").with_lease(150 * MS).lock().await.expect("free");
    let lost = guard.lost();
    guard.unlock().await.expect("held");
    client.shutdown().await;
    // Past the lease's end: what is tested is that nothing is told.
    assert!(tokio::time::timeout(300 * MS, lost).await.is_err());
}

#[tokio::test]
async fn a_loss_behind_a_hand_off_is_no_loss_of_the_hold_before() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).handoff_window(1000 * MS);
    let [client, other] = [builder.connect().await.expect("connected"), connect(&server).await];
    let lock = client.mutex("n");
    let held = other.mutex("n").lock().await.expect("free");
    let waiting = [(); 2].map(|()| tokio::spawn(lock.lock()));
    eventually(LIMIT, "they wait", async || client.stats().waiters == 2).await;
    held.unlock().await.expect("held");
    let [first, second] = waiting;
    let first = soon("its turn", first).await.expect("no panic").expect("granted");
    let (id, lost) = (first.holder(), first.lost());
    first.unlock().await.expect("held");
    let second = soon("its turn", second).await.expect("no panic").expect("handed on");
    assert_eq!(second.holder(), id, "it has the same lease");
    assert!(lock.force_unlock().await.expect("an answer"));
    soon("it is told", second.lost()).await;
    assert!(lost.now_or_never().is_none(), "it was given back in order");
    drop(second);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn work_under_a_guard_is_cancelled_by_the_loss_and_not_before() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").with_lease(300 * MS).lock().await.expect("free");
    let output = guard.run_until_lost(async { 42 }).await.expect("held");
    assert_eq!(output, 42);
    let answer = guard.run_until_lost(std::future::pending::<()>()).await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Ended, .. })), "{answer:?}");
    let answer = guard.run_until_lost(async { 42 }).await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    drop(guard);
    nothing_left(&server, &client).await;
}
