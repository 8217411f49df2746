//! A majority keeps a lock; a master that misses it gets it again, unless it was taken away there on purpose.

use std::time::Duration;

use leasehold::{
    Error, Guard, LossReason,
    NodeState::{Down, Up},
    Owner,
};

use super::deployment::{MS, Masters, all_up, connected, states_become};
use crate::{
    checks::{LIMIT, exists, soon},
    support::{Outage, Spy, eventually},
};

const TTL: Duration = Duration::from_millis(2400);

/// Waits until the deadline has moved on as often.
async fn renewed(guard: &Guard, times: u32) {
    let (mut before, mut renewals) = (guard.remaining(), 0);
    while renewals < times {
        tokio::time::sleep(MS).await;
        if !guard.is_held() {
            panic!("after {renewals} renewals: {:?}", guard.extend(TTL).await);
        }
        let left = guard.remaining();
        renewals += u32::from(left > before);
        before = left;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_keeps_a_lock_through_a_dead_and_a_hanging_node() {
    let masters = Masters::start(5).await;
    let client = connected(masters.builder().ttl(TTL)).await;
    let guard = client.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2, 3, 4]).await;
    masters.0[0].kill();
    masters.0[1].pause();
    // Longer than the TTL.
    renewed(&guard, 4).await;
    masters.0[1].resume();
    guard.unlock().await.expect("held");
    masters.0[0].restart().await;
    masters.nothing_left(&[&client]).await;
}

/// One of three still has it: another may have had the majority of the others.
#[tokio::test]
async fn an_unlock_that_only_a_minority_confirms_is_a_loss() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder()).await;
    for kept in 0..3 {
        let guard = client.mutex("n").lock().await.expect("free");
        masters.are_held("n", &[0, 1, 2]).await;
        for index in (0..3).filter(|index| *index != kept) {
            masters.0[index].command(&["DEL", "n"]).await;
        }
        let answer = guard.unlock().await;
        assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
        masters.nothing_left(&[&client]).await;
    }
}

/// A key that holds something else by now has the lease no more than one that is gone.
#[tokio::test]
async fn an_unlock_that_finds_one_key_overwritten_and_one_gone_is_a_loss() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder()).await;
    for kept in 0..3 {
        let guard = client.mutex("n").lock().await.expect("free");
        masters.are_held("n", &[0, 1, 2]).await;
        // Its answers come behind those to the acquire, and the extension looks at these: all are known to have had it.
        client.check().await.expect("all answer");
        guard.extend(30_000 * MS).await.expect("held");
        let (overwritten, gone) = (&masters.0[(kept + 1) % 3], &masters.0[(kept + 2) % 3]);
        overwritten.command(&["SET", "n", "x"]).await;
        gone.command(&["DEL", "n"]).await;
        let answer = guard.unlock().await;
        assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
        overwritten.command(&["DEL", "n"]).await;
        masters.nothing_left(&[&client]).await;
    }
}

/// A majority whose keys hold something else by now has no lease any more.
#[tokio::test]
async fn keys_that_were_overwritten_on_a_majority_are_told_at_the_next_renewal() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(Duration::from_secs(6))).await;
    let guard = client.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    for server in &masters.0[..2] {
        server.command(&["SET", "n", "x"]).await;
    }
    assert_eq!(soon("it is told", guard.lost()).await, LossReason::Gone);
}

/// The deadline counts from before the renewal was sent, not from when its majority was complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_is_worth_no_more_than_from_its_sending() {
    const LATE: Duration = Duration::from_millis(250);
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(TTL)).await;
    for way in &ways.0[1..] {
        way.delay_replies(LATE);
    }
    let guard = client.mutex("n").lock().await.expect("free");
    let most = TTL - LATE - TTL / 100 - 2 * MS;
    let (mut before, mut renewals) = (guard.remaining(), 0);
    while renewals < 2 {
        let left = guard.remaining();
        assert!(left > Duration::ZERO && left <= most, "{left:?} left of {most:?}");
        renewals += u32::from(left > before);
        before = left;
        tokio::time::sleep(MS).await;
    }
    guard.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_for_longer_than_the_ttl_gets_the_lease_again() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(TTL)).await;
    let test = async |outage: &Outage<'_>| {
        let guard = client.mutex("n").lock().await.expect("free");
        masters.are_held("n", &[0, 1, 2]).await;
        outage.begins();
        masters.are_held("n", &[0, 1]).await;
        renewed(&guard, 1).await;
        outage.ends().await;
        all_up(&client).await;
        masters.are_held("n", &[0, 1, 2]).await;
        // It is relied upon like the others.
        ways.0[0].black_hole(true);
        renewed(&guard, 4).await;
        guard.unlock().await.expect("held");
        ways.0[0].black_hole(false);
        masters.nothing_left(&[&client]).await;
    };
    Outage::silent([&ways.0[2]]).twice(test).await;
}

/// With its counter at the end of the lease's tokens, so that the next token is above them on any majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_empty_gets_the_lease_and_its_counter_again() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(TTL)).await;
    // Far ahead of what a server would begin with.
    let ahead = 1_u64 << 52;
    for server in &masters.0 {
        server.command(&["SET", "leasehold_token:{n}", &ahead.to_string(), "PX", "600000"]).await;
    }
    let guard = client.mutex("n").lock().await.expect("free");
    assert!(guard.token() > ahead);
    // Slow, and without any script: nobody waits for its answers.
    masters.0[2].kill();
    ways.0[2].delay_replies(50 * MS);
    masters.0[2].restart().await;
    masters.are_held("n", &[0, 1, 2]).await;
    let counters = masters.counters("n").await;
    assert!(counters[2] >= Some(guard.token()), "{counters:?} below {}", guard.token());
    let token = guard.token();
    guard.unlock().await.expect("held");
    ways.close(&[0], true);
    let guard = client.mutex("n").lock_with_timeout(LIMIT).await.expect("two of three");
    assert!(guard.token() > token);
    guard.unlock().await.expect("held");
}

/// Somebody deleted the key there: it stays away for as long as the lease would have lasted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cleared_on_purpose_is_left_alone_for_a_ttl() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(TTL)).await;
    let guard = client.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    renewed(&guard, 1).await;
    let spy = Spy::on(&masters.0[2]).await;
    let cleared_at = std::time::Instant::now();
    masters.0[2].command(&["DEL", "n"]).await;
    while cleared_at.elapsed() < TTL * 2 / 3 {
        assert!(!exists(&masters.0[2], "n").await, "back after {:?}", cleared_at.elapsed());
        tokio::time::sleep(10 * MS).await;
    }
    assert!(guard.is_held() && spy.count("lock_renew") > 0);
    assert_eq!(spy.count("lock_acquire"), 0);
    // After that it is a node that misses the lease.
    masters.are_held("n", &[0, 1, 2]).await;
    assert!(cleared_at.elapsed() >= TTL * 2 / 3);
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

/// The answer to the acquire was late and never read: that to a count, which came behind it, stands for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cleared_behind_a_late_count_is_left_alone_for_a_ttl() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(TTL)).await;
    let owner = Owner::new();
    let lock = client.mutex("before").owned_by(&owner);
    let known = (lock.lock().await.expect("free"), lock.lock().await.expect("held"));
    for server in &masters.0 {
        let counted = async || server.command(&["HVALS", "before"]).await == count(2);
        eventually(LIMIT, "the count is two", counted).await;
    }
    drop(known);
    ways.0[2].hold_replies();
    let lock = client.mutex("n").owned_by(&owner);
    let guard = lock.lock().await.expect("two of three");
    let nested = lock.lock().await.expect("held");
    for server in &masters.0 {
        let counted = async || server.command(&["HVALS", "n"]).await == count(2);
        eventually(LIMIT, "the count is two", counted).await;
    }
    ways.0[2].release_replies();
    let spy = Spy::on(&masters.0[2]).await;
    // Its answers come behind those that were held.
    client.check().await.expect("all answer");
    // Looks at what came late.
    let deeper = lock.lock().await.expect("held");
    let counted = async || masters.0[2].command(&["HVALS", "n"]).await == count(3);
    eventually(LIMIT, "the count is three", counted).await;
    let cleared_at = std::time::Instant::now();
    masters.0[2].command(&["DEL", "n"]).await;
    while cleared_at.elapsed() < TTL * 2 / 3 {
        assert!(!exists(&masters.0[2], "n").await, "back after {:?}", cleared_at.elapsed());
        tokio::time::sleep(10 * MS).await;
    }
    assert!(guard.is_held() && spy.count("lock_renew") > 1);
    assert_eq!(spy.count("lock_acquire"), 0);
    drop((nested, deeper));
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

fn count(count: u32) -> redis::Value {
    redis::Value::Array(vec![redis::Value::BulkString(count.to_string().into_bytes())])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_unlock_is_told_to_the_holder() {
    for down in [None, Some(1)] {
        let masters = Masters::start(3).await;
        let client = connected(masters.builder().ttl(TTL)).await;
        let other = masters.client().await;
        let guard = client.mutex("n").lock().await.expect("free");
        masters.are_held("n", &[0, 1, 2]).await;
        if let Some(index) = down {
            masters.0[index].kill();
        }
        assert!(other.mutex("n").force_unlock().await.expect("a majority answers"));
        let told = tokio::time::timeout(2 * TTL, guard.lost()).await;
        told.expect("at the next renewal");
        assert!(!guard.is_held());
        let answer = guard.unlock().await;
        let gone = LossReason::Gone;
        assert!(
            matches!(answer, Err(Error::Lost { reason, .. }) if reason == gone),
            "{down:?}: {answer:?}"
        );
        let guard = other.mutex("n").lock_with_timeout(LIMIT).await.expect("free");
        guard.unlock().await.expect("held");
    }
}

/// The extension puts the lease back on a node that was away when it was granted; the unlock follows at once,
/// while the node goes on, or loses its connection or its replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_after_an_unlock_that_comes_right_after_a_heal() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    // Longer than anything here waits: what is gone was released.
    let client = connected(ways.builder().ttl(60_000 * MS)).await;
    // The node that was away answers the extension in time.
    ways.0[..2].iter().for_each(|way| way.delay_replies(40 * MS));
    let (mut healed, mut round) = (0, 0);
    // On a busy machine, a node may answer the extension too late to be healed.
    while round < 12 || healed <= 4 {
        assert!(round < 60, "it was put back {healed} times only");
        ways.close(&[2], true);
        states_become(&client, &[Up, Up, Down]).await;
        let guard = client.mutex("n").lock().await.expect("two of three");
        ways.close(&[2], false);
        all_up(&client).await;
        assert_eq!(masters.which_have("n").await, [0, 1]);
        let spy = Spy::on(&masters.0[2]).await;
        guard.extend(60_000 * MS).await.expect("two of three");
        match round % 3 {
            1 => ways.0[2].cut(),
            2 => ways.0[2].drop_replies(true),
            _ => {}
        }
        drop(guard);
        ways.0[2].drop_replies(false);
        masters.nothing_left(&[&client]).await;
        healed += usize::from(spy.count("lock_acquire") > 0);
        all_up(&client).await;
        round += 1;
    }
    println!("put back {healed} times in {round} rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_hold_ends_with_a_node_away() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(900 * MS)).await;
    let lock = client.mutex("n").with_max_hold(1_500 * MS);
    let began_at = std::time::Instant::now();
    let guard = lock.lock().await.expect("free");
    masters.0[0].kill();
    soon("it is told", guard.lost()).await;
    let took = began_at.elapsed();
    assert!(took > 1_400 * MS && took < masters.0[1].widened(3_000 * MS), "{took:?}");
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Ended, .. })), "{answer:?}");
    lock.lock().await.expect("free again").unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_reaches_all_nodes_and_needs_a_majority() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().response_timeout(300 * MS)).await;
    let guard = client.mutex("n").with_lease(1500 * MS).lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    guard.extend(20_000 * MS).await.expect("held");
    assert!(guard.remaining() > 15_000 * MS);
    for server in &masters.0 {
        let longer =
            async || matches!(server.command(&["PTTL", "n"]).await, redis::Value::Int(15_000..));
        eventually(LIMIT, "it is longer there", longer).await;
    }
    masters.0[0].kill();
    guard.extend(25_000 * MS).await.expect("two of three");
    masters.0[1].kill();
    let before = guard.remaining();
    let answer = guard.extend(29_000 * MS).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    assert!(guard.is_held() && guard.remaining() <= before, "it stays as it was");
}

/// It was away at the grant, and its answer to the extension comes when two have given theirs: nobody asks it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_answers_an_extension_late_has_the_lease_for_as_long_as_the_others() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder()).await;
    ways.close(&[2], true);
    states_become(&client, &[Up, Up, Down]).await;
    let lock = client.mutex("n").with_lease(3000 * MS);
    let guard = lock.lock().await.expect("two of three");
    ways.close(&[2], false);
    all_up(&client).await;
    ways.0[2].delay_replies(100 * MS);
    guard.extend(60_000 * MS).await.expect("two of three");
    let is_longer =
        async || matches!(masters.0[2].command(&["PTTL", "n"]).await, redis::Value::Int(30_000..));
    eventually(LIMIT, "it is put back", is_longer).await;
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hold_count_reaches_all_nodes() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(TTL)).await;
    let lock = client.mutex("n").owned_by(&Owner::new());
    let guard = lock.lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    let field = guard.holder().as_str().to_owned();
    let counts = async |wanted: &str| {
        for server in &masters.0 {
            let what = format!("{wanted} on {}", server.port());
            let has = async || {
                let count = server.command(&["HGET", "n", &field]).await;
                redis::from_redis_value::<Option<String>>(count).expect("text").as_deref()
                    == Some(wanted)
            };
            eventually(LIMIT, &what, has).await;
        }
    };
    counts("1").await;
    let nested: Vec<Guard> = (0..4).map(|_| guard.reenter().expect("held")).collect();
    counts("5").await;
    // One that was away learns of it with the next renewal.
    ways.0[1].black_hole(true);
    drop(nested);
    let inner = guard.reenter().expect("held");
    ways.0[1].black_hole(false);
    counts("2").await;
    assert_eq!((inner.hold_count(), inner.token()), (2, guard.token()));
    drop(guard);
    counts("1").await;
    inner.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}
