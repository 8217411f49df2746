//! A read-write lock over several masters: readers and writers each need a majority.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::{
    Client, Error,
    NodeState::{Down, Up},
    Owner, RwLock,
};

use super::deployment::{MS, Masters, connected, states_become};
use crate::{
    cancellation::drop_after,
    checks::{LIMIT, soon},
    support::Spy,
};

/// Readers of two clients, and a writer of a third.
async fn readers_share_and_a_writer_is_alone(clients: &[Client; 3]) {
    let [one, other, third] = clients.each_ref().map(|client| client.rw_lock("n"));
    let reading =
        [one.read().await.expect("free"), soon("shared", other.read()).await.expect("shared")];
    assert!(reading.iter().all(|guard| guard.is_held()));
    assert!(third.try_write().await.expect("refused").is_none());
    let error = third.write_with_timeout(300 * MS).await.expect_err("others read");
    let Error::Timeout { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert!(reading.iter().any(|guard| guard.holder() == *holder), "{error}");
    let token = reading.iter().map(|guard| guard.token()).max().expect("two");
    for guard in reading {
        guard.unlock().await.expect("held");
    }
    let writing = soon("the writer", third.write()).await.expect("free");
    assert!(writing.token() > token && writing.is_held());
    assert!(one.try_read().await.expect("refused").is_none());
    assert!(other.try_write().await.expect("refused").is_none());
    let token = writing.token();
    writing.unlock().await.expect("held");
    let reading = soon("a reader", one.read()).await.expect("free");
    assert!(reading.token() >= token && reading.is_held());
    reading.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_hold_a_majority_together_and_a_writer_alone() {
    for nodes in [3, 5] {
        let masters = Masters::start(nodes).await;
        let clients = [masters.client().await, masters.client().await, masters.client().await];
        readers_share_and_a_writer_is_alone(&clients).await;
        masters.nothing_left(&clients.each_ref()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_keeps_a_part_until_its_min_hold_is_over() {
    const MIN_HOLD: Duration = Duration::from_millis(600);
    let masters = Masters::start(3).await;
    let clients = [masters.client().await, masters.client().await];
    let [here, elsewhere] = clients.each_ref();
    let job = here.rw_lock("n").with_min_hold(MIN_HOLD);
    for writes in [true, false] {
        let began_at = Instant::now();
        match writes {
            true => job.write().await.expect("free").unlock().await.expect("held"),
            false => job.read().await.expect("free").unlock().await.expect("held"),
        }
        let next = soon("a writer", elsewhere.rw_lock("n").write()).await.expect("in the end");
        let after = began_at.elapsed();
        assert!(after >= MIN_HOLD, "writes: {writes}; free after {after:?}");
        next.unlock().await.expect("held");
    }
    masters.nothing_left(&clients.each_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_away_is_not_needed() {
    let masters = Masters::start(3).await;
    let clients = [masters.client().await, masters.client().await, masters.client().await];
    masters.0[1].kill();
    readers_share_and_a_writer_is_alone(&clients).await;
}

/// Each client reaches two of three masters, and no two of them the same.
async fn split(masters: &Masters) -> ([Client; 3], [super::deployment::Ways; 3]) {
    let ways = [masters.ways().await, masters.ways().await, masters.ways().await];
    let mut clients = Vec::new();
    for (without, ways) in ways.iter().enumerate() {
        let client = connected(ways.builder()).await;
        ways.close(&[without], true);
        let states = [0, 1, 2].map(|node| if node == without { Down } else { Up });
        states_become(&client, &states).await;
        clients.push(client);
    }
    (clients.try_into().unwrap_or_else(|_| unreachable!("three")), ways)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn majorities_that_share_one_master_exclude_each_other() {
    let masters = Masters::start(3).await;
    let (clients, _ways) = split(&masters).await;
    readers_share_and_a_writer_is_alone(&clients).await;
    let [a, b, c] = clients;
    readers_share_and_a_writer_is_alone(&[b, c, a]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_readers_and_writers_keep_their_order_over_changing_majorities() {
    let masters = Masters::start(3).await;
    let (clients, _ways) = split(&masters).await;
    let (mut written, mut read) = (0, 0);
    for round in 0..60_usize {
        if round % 7 == 3 {
            let ahead = (written.max(read) + 1000 * (round as u64 + 1)).to_string();
            let counter = ["SET", "leasehold_token:{n}", &ahead, "PX", "600000"];
            masters.0[round % 3].command(&counter).await;
        }
        let lock = clients[(round * round + round / 4) % 3].rw_lock("n");
        if round % 2 == 0 {
            let guard = lock.write_with_timeout(LIMIT).await.expect("a majority");
            assert!(guard.token() > written.max(read), "round {round}: {guard:?}");
            written = guard.token();
            guard.unlock().await.expect("held");
        } else {
            let guard = lock.read_with_timeout(LIMIT).await.expect("a majority");
            assert!(guard.token() >= written, "round {round}: {guard:?}");
            read = guard.token();
            guard.unlock().await.expect("held");
        }
    }
    let raises: u64 = clients.iter().map(|client| client.stats().second_round_trips).sum();
    assert!(raises > 0, "counters that differ must be lifted");
}

/// Only one master had the reader's token when it was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_readers_token_is_on_a_majority() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let ahead = 9_000_000_000_000_000_u64 / 2;
    masters.0[0].command(&["SET", "leasehold_token:{n}", &ahead.to_string(), "PX", "600000"]).await;
    let ways = masters.ways().await;
    let reader = connected(ways.builder()).await;
    ways.close(&[2], true);
    states_become(&reader, &[Up, Up, Down]).await;
    let reading = reader.rw_lock("n").read().await.expect("two of three");
    assert_eq!(reading.token(), ahead);
    assert_eq!(masters.counters("n").await[..2], [Some(ahead), Some(ahead)]);
    reading.unlock().await.expect("held");
    let ways = masters.ways().await;
    let writer = connected(ways.builder()).await;
    ways.close(&[0], true);
    states_become(&writer, &[Down, Up, Up]).await;
    let writing = soon("the writer", writer.rw_lock("n").write()).await.expect("two of three");
    assert!(writing.token() > ahead, "{writing:?}");
    writing.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_lost_it_gets_it_back_and_lets_nobody_in() {
    const TTL: Duration = Duration::from_millis(1200);
    let masters = Masters::start(3).await;
    let (client, other) = (masters.client().await, masters.client().await);
    let (lock, theirs) = (client.rw_lock("n").with_ttl(TTL), other.rw_lock("n"));
    for writes in [false, true] {
        let (writing, reading) = match writes {
            true => (Some(lock.write().await.expect("free")), None),
            false => (None, Some(lock.read().await.expect("free"))),
        };
        masters.are_held("n", &[0, 1, 2]).await;
        // As if it had forgotten: by force it would stay away until its lease would have ended.
        for key in crate::checks::lock_keys(&masters.0[2]).await {
            masters.0[2].command(&["DEL", &key]).await;
        }
        assert!(theirs.try_write().await.expect("refused").is_none());
        assert_eq!(theirs.try_read().await.expect("an answer").is_some(), !writes);
        masters.are_held("n", &[0, 1, 2]).await;
        if let Some(guard) = writing {
            assert!(guard.is_held());
            guard.release().await.expect("held");
        }
        if let Some(guard) = reading {
            assert!(guard.is_held());
            guard.release().await.expect("held");
        }
        masters.nothing_left(&[&client, &other]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_lets_readers_in_and_no_writer() {
    let masters = Masters::start(3).await;
    let [a, b, c] = [masters.client().await, masters.client().await, masters.client().await];
    let writing = a.rw_lock("n").write().await.expect("free");
    let token = writing.token();
    let reader = tokio::spawn({
        let lock = b.rw_lock("n");
        async move { lock.read().await }
    });
    waits(&b).await;
    let reading = writing.downgrade().await.expect("held");
    assert!(reading.token() >= token && reading.is_held());
    let beside = soon("the reader", reader).await.expect("no panic").expect("shared");
    assert!(c.rw_lock("n").try_write().await.expect("refused").is_none());
    reading.unlock().await.expect("held");
    assert!(c.rw_lock("n").try_write().await.expect("refused").is_none());
    let token = beside.token();
    beside.unlock().await.expect("held");
    let writing = soon("the writer", c.rw_lock("n").write()).await.expect("free");
    assert!(writing.token() > token);
    writing.unlock().await.expect("held");
    masters.nothing_left(&[&a, &b, &c]).await;
}

/// The masters that the writer has are too few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_without_a_majority_is_a_loss() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let writing = client.rw_lock("n").write().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    for server in &masters.0[..2] {
        server.command(&["DEL", "n"]).await;
    }
    let error = writing.downgrade().await.expect_err("one of three");
    assert!(error.is_lost(), "{error:?}");
    masters.nothing_left(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_nests_on_both_sides() {
    let masters = Masters::start(3).await;
    let (client, other) = (masters.client().await, masters.client().await);
    let lock = client.rw_lock("n").owned_by(&Owner::new());
    let writing = lock.write().await.expect("free");
    let reading = lock.read().await.expect("nested");
    assert_eq!((reading.token(), reading.hold_count()), (writing.token(), 2));
    drop(writing);
    assert!(other.rw_lock("n").try_read().await.expect("refused").is_none());
    drop(reading);
    let reading = soon("free", lock.read()).await.expect("free");
    let nested = lock.read().await.expect("nested");
    assert_eq!((nested.token(), nested.hold_count()), (reading.token(), 2));
    let error = soon("the answer", lock.write()).await;
    assert!(matches!(error, Err(Error::SelfWait { .. })), "{error:?}");
    drop((reading, nested));
    masters.nothing_left(&[&client, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_client_share_one_lease() {
    let masters = Masters::start(3).await;
    for window in [Duration::from_secs(1), Duration::ZERO] {
        let client = connected(masters.builder().handoff_window(window)).await;
        let lock = client.rw_lock("n");
        let first = lock.read().await.expect("free");
        let spy = Spy::on(&masters.0[0]).await;
        let mut guards = Vec::new();
        for _ in 0..20 {
            guards.push(soon("shared", lock.read()).await.expect("shared"));
        }
        let same = |guard: &leasehold::ReadGuard| guard.holder() == first.holder();
        assert!(guards.iter().all(|guard| guard.is_held() && same(guard)));
        if !window.is_zero() {
            // One for each window that may have passed.
            assert!(spy.count("rw_acquire") <= 5, "{} asks", spy.count("rw_acquire"));
        }
        first.unlock().await.expect("held");
        assert!(masters.client().await.rw_lock("n").try_write().await.expect("refused").is_none());
        drop(guards);
        masters.nothing_left(&[&client]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_lists_readers_and_force_ends_them() {
    let masters = Masters::start(3).await;
    let (a, b) = (masters.client().await, masters.client().await);
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let (first, second) = (one.read().await.expect("free"), other.read().await.expect("shared"));
    let mut readers = [first.holder(), second.holder()];
    readers.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    masters.are_held("n", &[0, 1, 2]).await;
    // A vote that came to nothing makes nobody a reader.
    let id = "0:00000000-0000-4000-8000-000000000000";
    masters.0[2].command(&["HSET", "n", id, "1"]).await;
    masters.0[2]
        .command(&["SET", &format!("{{n}}:{id}:rwlock_timeout:1"), "1", "PX", "9000"])
        .await;
    let status = one.status().await.expect("answered");
    assert_eq!((&status.readers[..], status.holder.as_ref()), (&readers[..], readers.first()));
    assert!(one.force_unlock_if(&first.holder()).await.expect("answered"));
    assert!(!first.is_held() && second.is_held());
    assert_eq!(one.status().await.expect("answered").readers, [second.holder()]);
    assert!(other.force_unlock().await.expect("answered"));
    assert!(!second.is_held());
    assert!(one.status().await.expect("answered").holder.is_none());
    drop((first, second));
    masters.nothing_left(&[&a, &b]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_beside_a_writer() {
    const CLIENTS: usize = 4;
    let masters = Masters::start(3).await;
    let clients = join_all((0..CLIENTS).map(|_| masters.client())).await;
    let inside = Arc::new(AtomicI64::new(0));
    let version = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for (number, client) in clients.iter().cycle().take(3 * CLIENTS).enumerate() {
        let (lock, inside, version) = (client.rw_lock("n"), inside.clone(), version.clone());
        tasks.push(tokio::spawn(async move {
            for turn in 0..12 {
                one_turn(&lock, number + turn, &inside, &version).await;
            }
        }));
    }
    for task in tasks {
        soon("all turns", task).await.expect("no task fails");
    }
    masters.nothing_left(&clients.iter().collect::<Vec<_>>()).await;
}

async fn one_turn(lock: &RwLock, turn: usize, inside: &AtomicI64, version: &AtomicU64) {
    if !turn.is_multiple_of(4) {
        let guard = lock.read().await.expect("its turn comes");
        assert!(inside.fetch_add(1, SeqCst) >= 0, "no writer is beside a reader");
        assert!(version.load(SeqCst) <= guard.token());
        tokio::task::yield_now().await;
        assert!(guard.is_held());
        assert!(inside.fetch_sub(1, SeqCst) > 0, "no writer is beside a reader");
        return;
    }
    let guard = lock.write().await.expect("its turn comes");
    assert_eq!(inside.swap(-1000, SeqCst), 0, "a writer is alone");
    assert!(version.swap(guard.token(), SeqCst) < guard.token());
    tokio::task::yield_now().await;
    assert!(guard.is_held());
    assert_eq!(inside.swap(0, SeqCst), -1000, "a writer is alone");
    match turn % 3 {
        0 => drop(guard.downgrade().await.expect("held")),
        1 => guard.unlock().await.expect("held"),
        _ => drop(guard),
    }
}

/// Whatever is dropped, nothing stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_use_survives_a_drop_after_every_poll() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    ways.0.iter().for_each(|way| way.delay_replies(MS));
    let (client, other) = (connected(ways.builder()).await, masters.client().await);
    let lock = client.rw_lock("n");
    for held in [false, true] {
        for which in 0..3 {
            for steps in 0.. {
                let reading = match held {
                    true => Some(other.rw_lock("n").read().await.expect("free")),
                    false => None,
                };
                let used = drop_after(
                    async {
                        match which {
                            0 => drop(lock.read_with_timeout(40 * MS).await),
                            1 => drop(lock.write_with_timeout(40 * MS).await),
                            _ => {
                                if let Ok(Some(guard)) = lock.try_write().await {
                                    drop(guard.downgrade().await);
                                }
                            }
                        }
                    },
                    steps,
                )
                .await;
                drop(reading);
                masters.nothing_left(&[&client]).await;
                if used.is_some() {
                    break;
                }
            }
        }
    }
}

/// Waits until a task of this client waits for a lock.
async fn waits(client: &Client) {
    crate::support::eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
}
