//! What is refused, given up or dropped leaves nothing behind, on any master.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{Client, Error};
use tokio::runtime::Builder;

use super::deployment::{MS, Masters, connected, failures, names_just, trusting};
use crate::{
    cancellation::{USES, drop_after},
    checks::{LIMIT, exists},
    support::{Server, Twister, eventually},
};

/// A hold of somebody else's, on one server.
async fn hold_by_hand(server: &Server, name: &str) {
    server.command(&["HSET", name, "somebody", "1"]).await;
    server.command(&["PEXPIRE", name, "25000"]).await;
}

/// Two refuse; the third grants, and is heard of late, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_after_the_refusal_is_given_back() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder()).await;
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    for kind in ["late", "held back", "lost", "stopped", "cut"] {
        let lock = client.mutex(kind);
        for server in &masters.0[..2] {
            hold_by_hand(server, kind).await;
        }
        let (way, server) = (&ways.0[2], &masters.0[2]);
        match kind {
            "late" => way.delay_replies(300 * MS),
            "held back" | "cut" => way.hold_replies(),
            "lost" => way.drop_replies(true),
            _ => server.pause(),
        }
        let refused = lock.try_lock().await;
        assert!(matches!(refused, Ok(None)), "{kind}: {refused:?}");
        match kind {
            "late" => way.delay_replies(Duration::ZERO),
            "held back" => way.release_replies(),
            "lost" => way.drop_replies(false),
            "cut" => {
                way.cut();
                way.release_replies();
            }
            _ => server.resume(),
        }
        // Far below its TTL.
        let idle = async || client.stats().releases_pending == 0;
        eventually(LIMIT, "nothing is owed", idle).await;
        assert!(!exists(server, kind).await, "{kind}: it was granted and is still there");
        assert_eq!(masters.which_have(kind).await, [0, 1]);
    }
}

/// Masters that grant, and answer what is asked behind the grant with this refusal, as many of them as are told to.
async fn refusing_behind_a_yes(
    masters: &Masters,
    refusal: &str,
    how_many: &Arc<AtomicUsize>,
) -> (Client, Vec<Twister>) {
    let mut twisters = Vec::new();
    for (index, master) in masters.0.iter().enumerate() {
        let (how_many, refusal) = (how_many.clone(), refusal.to_owned());
        let twist = move |words: &[String]| {
            let is_behind = words.get(1).is_some_and(|key| key == "leasehold_masters");
            (is_behind && index < how_many.load(Ordering::SeqCst)).then(|| refusal.clone())
        };
        twisters.push(Twister::start(master.port(), twist).await);
    }
    let urls: Vec<String> = twisters.iter().map(Twister::url).collect();
    let client = connected(trusting(&urls).response_timeout(500 * MS)).await;
    (client, twisters)
}

/// A yes behind which a master is busy does not count, and does not stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_busy_behind_its_yes_gives_no_vote_and_keeps_nothing() {
    let masters = Masters::start(3).await;
    let how_many = Arc::new(AtomicUsize::new(0));
    let busy = "BUSY Redis is busy running a script.";
    let (client, _twisters) = refusing_behind_a_yes(&masters, busy, &how_many).await;
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    for (count, is_granted) in [(1, true), (2, false), (3, false), (0, true)] {
        how_many.store(count, Ordering::SeqCst);
        let answer = client.mutex("n").try_lock().await;
        match (answer, is_granted) {
            (Ok(Some(guard)), true) => guard.unlock().await.expect("held"),
            (Err(error @ Error::Unavailable { .. }), false) => {
                assert!(error.to_string().contains("BUSY"), "{error}");
            }
            (answer, _) => panic!("{count} are busy: {answer:?}"),
        }
        masters.nothing_left(&[&client]).await;
        if count > 0 {
            how_many.store(0, Ordering::SeqCst);
            let guard = client.mutex("n").lock_with_timeout(LIMIT).await.expect("free");
            guard.unlock().await.expect("held");
        }
    }
}

/// The list cannot be written or read behind the yes: then nothing is compared, and the yes is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_refuses_its_list_behind_its_yes_gives_its_vote() {
    for refusal in [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOREPLICAS Not enough good replicas to write.",
    ] {
        let masters = Masters::start(3).await;
        let how_many = Arc::new(AtomicUsize::new(0));
        let (client, _twisters) = refusing_behind_a_yes(&masters, refusal, &how_many).await;
        for count in [1, 3] {
            how_many.store(count, Ordering::SeqCst);
            let guard = client.mutex("n").try_lock().await.expect("an answer").expect("free");
            guard.unlock().await.expect("held");
            masters.nothing_left(&[&client]).await;
        }
    }
}

/// Without a majority what a minority granted is given back, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_finds_no_majority_leaves_nothing_on_those_that_granted() {
    let masters = Masters::start(5).await;
    let client = connected(masters.builder().response_timeout(200 * MS)).await;
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    for server in &masters.0[..3] {
        server.pause();
    }
    for _ in 0..3 {
        names_just(client.mutex("n").try_lock().await, &masters.urls()[..3]);
        for server in &masters.0[3..] {
            let gone = async || !exists(server, "n").await;
            eventually(LIMIT, "those that granted have nothing", gone).await;
        }
    }
    // Now the others run what they were sent.
    for server in &masters.0[..3] {
        server.resume();
    }
    masters.nothing_left(&[&client]).await;
}

/// The answers were there in time, but the task was not run: with too little left, a grant is none.
#[tokio::test]
async fn a_grant_that_is_seen_too_late_is_given_back() {
    let tasks = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let tasks = tasks.expect("a runtime for the client");
    let masters = Masters::start(3).await;
    let builder = masters.builder().ttl(1500 * MS).min_validity(700 * MS);
    let client = connected(builder.runtime(tasks.handle().clone())).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;

    let lock = client.mutex("n");
    let mut nobody = Context::from_waker(Waker::noop());
    let attempt = loop {
        let mut attempt = Box::pin(lock.try_lock());
        match attempt.as_mut().poll(&mut nobody) {
            Poll::Pending => break attempt,
            // On a busy machine the answers may be there before the first poll is over.
            Poll::Ready(granted) => drop(granted),
        }
        masters.nothing_left(&[&client]).await;
    };
    // The executor does something else; the lease is still good when it comes back.
    std::thread::sleep(900 * MS);
    let told = failures(attempt.await);
    assert_eq!(told.len(), 3, "{told:?}");
    masters.nothing_left(&[&client]).await;
    tasks.shutdown_background();
}

/// Polled as often as can be, and dropped: with answers that come one after the other, alone and against another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_at_any_poll_leaves_nothing_on_any_node() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder()).await;
    let rival = masters.client().await;
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    for (way, late) in ways.0.iter().zip([1, 3, 6]) {
        way.delay_replies(late * MS);
    }
    let mut drops = 0;
    for rivalry in [false, true] {
        for (what, make) in USES {
            let name = format!("{what}-{rivalry}");
            for steps in 0.. {
                let other = if rivalry {
                    Some(rival.mutex(name.as_str()).lock().await.expect("it is given back"))
                } else {
                    None
                };
                let release = tokio::spawn(async move {
                    tokio::time::sleep(4 * MS).await;
                    drop(other);
                });
                let ended = drop_after(make(client.mutex(name.as_str())), steps).await;
                release.await.expect("no panic");
                if let Some(answer) = ended {
                    let fine = matches!(answer, Ok(()) | Err(Error::Timeout { .. }));
                    assert!(fine, "{what}: {answer:?}");
                    break;
                }
                drops += 1;
                assert!(steps < 400, "{what} does not end");
            }
            let lock = client.mutex(name.as_str());
            let guard = lock.lock_with_timeout(LIMIT).await.expect("the next one gets in");
            guard.unlock().await.expect("held");
        }
    }
    println!("dropped {drops} times");
    assert!(drops > 60, "dropped only {drops} times");
    ways.0.iter().for_each(|way| way.delay_replies(Duration::ZERO));
    masters.nothing_left(&[&client, &rival]).await;
}
