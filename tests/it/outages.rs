//! How long those who wait bear with servers that are away: each for itself, and each outage for itself.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard, Mutex};
use tokio::task::JoinHandle;

use crate::{
    checks::{LIMIT, connect, nothing_left, setup_with_proxy, soon},
    support::{Outage, Proxy, Server, eventually, resume, waiting},
};

const MS: Duration = Duration::from_millis(1);
const RESPONSE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_millis(3500);

async fn set() -> (Server, Proxy, Client) {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(RESPONSE);
    let client = builder.unavailable_after(PATIENCE).connect().await.expect("connected");
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    (server, proxy, client)
}

/// Nobody gets through to the server, which goes on.
fn cut_off(proxy: &Proxy) {
    proxy.refuse(true);
    proxy.cut();
}

async fn waiters(client: &Client, count: usize) {
    let what = format!("{count} wait");
    eventually(LIMIT, &what, async || client.stats().waiters == count).await;
}

async fn got(waiting: JoinHandle<Result<Guard, Error>>) -> Guard {
    let answer = soon("it ends", waiting).await;
    answer.expect("no panic").expect("its turn comes")
}

/// Short outages, further apart than anybody's patience: none of them is held against those who wait through all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_that_is_over_is_not_added_to_the_next() {
    let (server, proxy, client) = set().await;
    let lock = client.mutex("n");
    cut_off(&proxy);
    let mut queue = Vec::new();
    for place in 1..=3 {
        queue.push(tokio::spawn(lock.lock()));
        // The first has asked in vain by the time it stands in the queue.
        waiters(&client, place).await;
    }
    proxy.refuse(false);
    let mut last: Option<JoinHandle<_>> = None;
    for (turn, waiting) in queue.into_iter().enumerate() {
        let guard = got(waiting).await;
        if let Some(unlocking) = last.take() {
            let _: Result<Result<(), Error>, _> = unlocking.await;
        }
        if turn == 2 {
            guard.unlock().await.expect("held");
            break;
        }
        // The servers are well for longer than that.
        tokio::time::sleep(PATIENCE + 200 * MS).await;
        cut_off(&proxy);
        last = Some(tokio::spawn(guard.unlock()));
        // Some asks are in vain: that is what is tested.
        tokio::time::sleep(4 * RESPONSE).await;
        assert_eq!(client.stats().waiters, 2 - turn, "those who wait wait on");
        proxy.refuse(false);
    }
    nothing_left(&server, &client).await;
}

/// Who comes late in an outage waits for as long as who came at its beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_in_an_outage_bears_with_it_for_as_long_as_others() {
    let (server, proxy, client) = set().await;
    let test = async |outage: &Outage<'_>| {
        outage.begins();
        let wait = async |lock: Mutex| {
            let began_at = Instant::now();
            let answer = soon("it ends", lock.lock()).await;
            assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
            began_at.elapsed()
        };
        let came = |after: Duration| {
            let lock = client.mutex("n");
            async move {
                tokio::time::sleep(after).await;
                wait(lock).await
            }
        };
        let waits = tokio::join!(came(Duration::ZERO), came(PATIENCE / 2), came(PATIENCE * 4 / 5));
        for took in [waits.0, waits.1, waits.2] {
            // Found out when an ask fails, and asks are half a second apart at most.
            let most = server.widened(PATIENCE + RESPONSE + 600 * MS);
            assert!(took >= PATIENCE && took <= most, "{took:?} of {PATIENCE:?}");
        }
        outage.ends().await;
        nothing_left(&server, &client).await;
    };
    Outage::cut_off([&proxy]).twice(test).await;
}

/// Who had the lock before the outage may have given it back since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_with_a_limit_that_ends_in_an_outage_is_told_of_that() {
    let (server, proxy, client) = set().await;
    let (lock, other) = (client.mutex("n"), connect(&server).await);
    let test = async |outage: &Outage<'_>| {
        let theirs = other.mutex("n").lock().await.expect("free");
        let first = tokio::spawn(lock.lock());
        let queued = async || waiting(&server, "n").await == 1;
        eventually(LIMIT, "it is in the queue", queued).await;
        lock.is_locked().await.expect("an answer behind that to its ask");
        outage.begins();
        // Who tries has the one that waits ask.
        let in_vain = async || lock.try_lock().await.is_err();
        eventually(LIMIT, "an ask was in vain", in_vain).await;
        let late = lock.try_lock_for(50 * MS).await;
        assert!(matches!(late, Err(Error::Unavailable { .. })), "{late:?}");
        outage.ends().await;
        theirs.unlock().await.expect("held");
        got(first).await.unlock().await.expect("held");
        nothing_left(&server, &client).await;
    };
    Outage::cut_off([&proxy]).twice(test).await;
}

/// One of them waits by a fair handle, and so asks the server in vain. The other one does not, and neither needs an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_holder_of_its_own_process_bears_with_any_outage() {
    const PATIENCE: Duration = Duration::from_secs(1);
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(RESPONSE);
    let client = builder.unavailable_after(PATIENCE).connect().await.expect("connected");
    let turn = |lock: Mutex| tokio::spawn(async move { lock.lock().await?.unlock().await });
    let test = async |outage: &Outage<'_>| {
        let held = client.mutex("n").lock().await.expect("free");
        outage.begins();
        let turns = [turn(client.mutex("n")), turn(client.fair_mutex("n"))];
        waiters(&client, 2).await;
        // Found out when an ask fails, and asks are half a second apart at most.
        tokio::time::sleep(PATIENCE + RESPONSE + 600 * MS).await;
        assert_eq!(client.stats().waiters, 2, "those who wait wait on");
        outage.ends().await;
        let queued = async || waiting(&server, "n").await == 1;
        eventually(LIMIT, "the fair one is in the queue", queued).await;
        client.mutex("n").is_locked().await.expect("an answer behind that to its ask");
        held.unlock().await.expect("held");
        for turn in turns {
            soon("its turn", turn).await.expect("no panic").expect("its turn comes");
        }
        nothing_left(&server, &client).await;
    };
    Outage::cut_off([&proxy]).twice(test).await;
}

/// Only a waiter of a fair handle asked during the outage, and gave up. That says nothing of one that did not ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_that_is_over_ends_no_wait_behind_a_holder_of_the_same_process() {
    let (server, proxy, client) = set().await;
    let test = async |outage: &Outage<'_>| {
        let held = client.mutex("n").lock().await.expect("free");
        let waiting = tokio::spawn(client.mutex("n").lock());
        waiters(&client, 1).await;
        outage.begins();
        let tried = client.fair_mutex("n").try_lock_for(3 * RESPONSE).await;
        assert!(!matches!(tried, Ok(Some(_))), "it is held");
        outage.ends().await;
        let answers = async || client.mutex("n").is_locked().await.is_ok();
        eventually(LIMIT, "the server is reached again", answers).await;
        tokio::time::sleep(PATIENCE + 100 * MS).await;
        held.unlock().await.expect("held");
        got(waiting).await.unlock().await.expect("held");
        nothing_left(&server, &client).await;
    };
    Outage::cut_off([&proxy]).twice(test).await;
}

/// The process does nothing for longer than a response may take, while its calls are answered. Their answers are read before
/// their time is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process_that_stood_still_reads_the_answers_that_came_meanwhile() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(RESPONSE);
    let client = builder.connect().await.expect("connected");
    let held = client.mutex("held").lock().await.expect("free");
    server.pause();
    let asking = tokio::spawn({
        let (status, lock) = (client.mutex("held"), client.mutex("free"));
        async move { tokio::join!(status.status(), lock.lock(), held.unlock()) }
    });
    // They are on their way by then, and would be answered.
    tokio::time::sleep(RESPONSE / 4).await;
    let pid = server.pid();
    let standing = tokio::spawn(async move {
        resume(pid);
        std::thread::sleep(3 * RESPONSE);
    });
    standing.await.expect("no panic");
    let (status, locked, unlocked) = soon("they are answered", asking).await.expect("no panic");
    status.expect("it was answered");
    unlocked.expect("it was held");
    locked.expect("it was free").unlock().await.expect("it is held");
}
