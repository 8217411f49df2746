//! Taking permits, renewing them and giving them back, with nobody waiting.

use super::{Call, HOLDERS, JAVA_DIGITS, Lease, NAME, Pool, lease, resize, resize_of, status};

#[tokio::test]
async fn permits_are_taken_as_long_as_there_are_enough() {
    let mut pool = Pool::of(5).await;
    pool.expect(&lease("a", 3).try_once(), "[1, 3]", "2+3").await;
    pool.expect(&lease("b", 3).try_once(), "[0, 30s, a, 0, -1, token, [], 2]", "2+3").await;
    pool.expect(&lease("c", 2).try_once(), "[1, 2]", "0+5").await;
    pool.expect(&lease("b", 1).try_once(), "[0, 30s, a, 0, -1, token, [], 0]", "0+5").await;
    assert_eq!(pool.queued().await, "", "who tries once does not queue");
}

#[tokio::test]
async fn an_acquire_that_runs_twice_takes_once_and_ends_later() {
    let mut pool = Pool::of(5).await;
    let a = lease("a", 3);
    pool.expect_twice(&a.ask(), ["[1, 3]"; 2], "2+3").await;
    pool.end(&a).await;
    pool.expect(&a.ask(), "[1, 3]", "2+3").await;
    let now = pool.ends(&a).await;
    assert!(now.iter().all(|end| *end > 1_000), "all of them last again: {now:?}");
}

/// It may come behind an extension.
#[tokio::test]
async fn a_request_that_runs_again_makes_no_lease_shorter() {
    let mut pool = Pool::of(5).await;
    let a = lease("a", 2);
    pool.run(&a.ask()).await;
    pool.run(&a.renew(60_000)).await;
    let before = pool.ends(&a).await;
    for (call, reply) in [(a.ask(), "[1, 2]"), (a.reclaim(), "1")] {
        pool.expect(&call, reply, "3+2").await;
        assert_eq!(pool.ends(&a).await, before, "after {call:?}");
    }
}

#[tokio::test]
async fn a_semaphore_is_made_once_with_what_is_out_already_counted() {
    let mut pool = Pool::unmade().await;
    let unmade = "[0, -1, unknown, 0, -1, token, [], ]";
    pool.expect(&lease("a", 1).try_once(), unmade, "nil+0").await;
    pool.expect(&lease("a", 2).of(3).try_once(), "[1, 2]", "1+2").await;
    pool.expect(&lease("b", 1).of(9).try_once(), "[1, 1]", "0+3").await;
    pool.expect(&lease("c", 1).of(9).try_once(), "[0, 30s, unknown, 0, -1, token, [], 0]", "0+3")
        .await;
    pool.bench.command(&format!("DEL {NAME}")).await;
    pool.expect(&lease("a", 2).release(), "[1, 0]", "nil+1").await;
    pool.expect(&lease("c", 1).of(3).try_once(), "[1, 1]", "1+2").await;
}

#[tokio::test]
async fn a_release_that_runs_twice_gives_back_once() {
    let mut pool = Pool::of(5).await;
    let a = lease("a", 3);
    pool.run(&a.ask()).await;
    pool.expect_twice(&a.release(), ["[1, 0]", "[0, 0]"], "5+0").await;
    pool.expect(&lease("b", 1).release(), "[0, 0]", "5+0").await;
}

/// Redisson takes ended permits back one by one.
#[tokio::test]
async fn a_lease_with_a_part_of_its_permits_is_lost_and_gives_that_part_back() {
    for again in [false, true] {
        let mut pool = Pool::of(5).await;
        let a = lease("a", 3);
        pool.run(&a.ask()).await;
        pool.bench.command(&format!("ZREM {HOLDERS} {}:2", a.id)).await;
        pool.bench.command(&format!("INCR {NAME}")).await;
        pool.expect(&a.renew(30_000), "0", "3+2").await;
        if again {
            pool.expect(&a.try_once(), "[1, 3]", "2+3").await;
        } else {
            pool.expect(&a.release(), "[0, 0]", "5+0").await;
        }
    }
}

#[tokio::test]
async fn a_renewal_makes_nothing_and_ends_nothing_sooner() {
    let mut pool = Pool::of(5).await;
    let a = lease("a", 2);
    pool.expect(&a.renew(30_000), "0", "5+0").await;
    pool.run(&a.ask()).await;
    let before = pool.ends(&a).await;
    pool.expect_twice(&a.renew(10), ["1"; 2], "3+2").await;
    assert_eq!(pool.ends(&a).await, before);
    pool.expect(&a.renew(0), "1", "3+2").await;
    assert_eq!(pool.ends(&a).await, before);
    pool.expect(&a.renew(60_000), "1", "3+2").await;
    let after = pool.ends(&a).await;
    assert!(after.iter().zip(&before).all(|(after, before)| after >= &(before + 30_000)));
    pool.run(&a.release()).await;
    pool.expect(&a.renew(30_000), "0", "5+0").await;
}

#[tokio::test]
async fn ended_permits_come_back_with_the_next_that_asks() {
    let mut pool = Pool::of(3).await;
    let (a, b) = (lease("a", 2), lease("b", 1));
    pool.run(&a.ask()).await;
    pool.run(&b.ask()).await;
    pool.end(&a).await;
    pool.expect(&lease("c", 1).try_once(), "[1, 1]", "1+2").await;
    pool.expect(&a.renew(30_000), "0", "1+2").await;
    pool.expect(&a.release(), "[0, 0]", "1+2").await;
    pool.end(&b).await;
    pool.expect(&lease("c", 1).release(), "[1, 0]", "3+0").await;
}

/// Times are the server's, in milliseconds.
#[tokio::test]
async fn a_permit_is_out_until_its_end_has_come() {
    let mut pool = Pool::of(1).await;
    for _ in 0..20 {
        let a = Lease { ttl_ms: 40, ..lease("a", 1) };
        pool.run(&a.ask()).await;
        let ends = pool.ends(&a).await[0];
        while !pool.run(&lease("b", 1).try_once()).await.starts_with("[1, ") {}
        let time = pool.bench.command("TIME").await;
        let (seconds, us): (u64, u64) = redis::from_redis_value(time).expect("a time");
        let now = seconds * 1_000 + us / 1_000;
        assert!(now >= ends, "it was given out {} ms too early", ends - now);
        pool.run(&lease("b", 1).release()).await;
    }
}

#[tokio::test]
async fn what_a_sweep_gave_back_is_announced_and_of_no_permits_only_that_the_last_is_back() {
    let mut pool = Pool::of(3).await;
    let mut java = pool.bench.subscriber_of(super::CHANNEL).await;
    let a = lease("a", 3);
    pool.run(&a.ask()).await;
    pool.end(&a).await;
    pool.expect(&lease("b", 1).try_once(), "[1, 1]", "2+1").await;
    assert_eq!(pool.told(&mut java).await, ["2"]);
    pool.expect(&lease("b", 1).release(), "[1, 1]", "3+0").await;
    assert_eq!(pool.told(&mut java).await, ["3"]);
    pool.run(&lease("c", 3).ask()).await;
    pool.run(&super::resize("set", 1)).await;
    pool.run(&lease("c", 3).release()).await;
    pool.run(&lease("a", 1).try_once()).await;
    pool.run(&super::resize("set", 0)).await;
    pool.expect(&lease("a", 1).release(), "[1, 1]", "0+0").await;
    assert_eq!(pool.told(&mut java).await, ["1", "0"], "one of three, and none");
    pool.run(&super::resize("set", 3)).await;
    for client in ["a", "b"] {
        pool.run(&lease(client, 1).try_once()).await;
    }
    pool.run(&super::resize("set", 0)).await;
    pool.told(&mut java).await;
    pool.expect(&lease("a", 1).release(), "[1, 0]", "-1+1").await;
    assert!(pool.told(&mut java).await.is_empty(), "another is out");
}

#[tokio::test]
async fn forgotten_permits_do_not_come_back_and_spent_ones_do_at_their_end() {
    let mut pool = Pool::of(5).await;
    let (a, b) = (lease("a", 2), lease("b", 2));
    pool.run(&a.ask()).await;
    pool.expect_twice(&a.release_with(0, "1", ""), ["[1, 0]", "[0, 0]"], "3+0").await;
    pool.run(&b.ask()).await;
    let before = pool.ends(&b).await;
    pool.expect_twice(&b.release_with(1, "", ""), ["[1, 0]"; 2], "1+2").await;
    assert_eq!(pool.ends(&b).await, before, "no end comes sooner");
    pool.expect(&b.release_with(60_000, "", ""), "[1, 0]", "1+2").await;
    let later = pool.ends(&b).await;
    assert!(later.iter().zip(&before).all(|(later, before)| *later > before + 20_000));
    pool.end(&b).await;
    pool.expect(&lease("c", 3).try_once(), "[1, 3]", "0+3").await;
}

#[tokio::test]
async fn a_reclaim_puts_back_what_is_missing_even_below_none() {
    let mut pool = Pool::of(2).await;
    let (a, b) = (lease("a", 2), lease("b", 2));
    pool.expect_twice(&a.reclaim(), ["1"; 2], "0+2").await;
    // Its release, and the grant that followed it, are lost.
    pool.expect_twice(&b.reclaim(), ["1"; 2], "-2+4").await;
    pool.end(&a).await;
    pool.expect(&lease("c", 1).try_once(), "[0, 30s, b, 0, -1, token, [], 0]", "0+2").await;
    let mut empty = Pool::unmade().await;
    empty.expect(&a.reclaim(), "1", "nil+2").await;
    empty.expect(&b.clone().of(5).reclaim(), "1", "1+4").await;
    empty.expect(&a.release(), "[1, 0]", "3+2").await;
}

/// The grant that took it out of the queue was lost, too.
#[tokio::test]
async fn a_reclaim_takes_its_own_entry_out_of_the_queue() {
    let (mut pool, [(b, _b), _c]) = Pool::line(1, [("b", 1), ("c", 1)]).await;
    assert_eq!(pool.queued().await, "b c");
    for _ in 0..2 {
        pool.expect(&b.reclaim(), "1", "-1+2").await;
        assert_eq!(pool.queued().await, "c");
    }
}

/// As after a failover: one was granted a permit by message and has not used it yet, and the one that had it before put it back.
#[tokio::test]
async fn a_permit_that_has_ended_is_not_confirmed_while_another_has_it() {
    let mut pool = Pool::of(1).await;
    let (granted, holds) = (lease("w", 1), lease("h", 1));
    pool.expect(&granted.ask(), "[1, 1]", "0+1").await;
    pool.expect(&holds.reclaim(), "1", "-1+2").await;
    pool.end(&granted).await;
    pool.expect(&granted.try_once(), "[0, 30s, h, 0, -1, token, [], 0]", "0+1").await;
    // What nobody else has is confirmed.
    pool.end(&holds).await;
    pool.expect(&holds.try_once(), "[1, 1]", "0+1").await;
}

/// As above, and nothing has ended yet.
#[tokio::test]
async fn a_permit_that_lasts_is_confirmed_only_while_there_are_enough() {
    let mut pool = Pool::of(2).await;
    let (kept, holds) = (lease("a", 1), lease("h", 1));
    let granted = Lease { ttl_ms: 13_500, ..lease("w", 1) };
    pool.expect(&kept.ask(), "[1, 1]", "1+1").await;
    pool.expect(&granted.ask(), "[1, 1]", "0+2").await;
    pool.expect(&holds.reclaim(), "1", "-1+3").await;
    let refused = "[0, 13.5s, w, 0, -1, token, [], -1]";
    pool.expect_twice(&granted.ask(), [refused; 2], "-1+3").await;
    assert_eq!(pool.queued().await, "", "it has no place before it has ended");
    // What has ended makes up for what was put back.
    pool.end(&kept).await;
    pool.expect(&granted.ask(), "[1, 1]", "-1+3").await;
}

#[tokio::test]
async fn a_status_shows_the_permits_of_everybody_and_changes_nothing() {
    let mut pool = Pool::of(6).await;
    assert_eq!(pool.run(&status()).await, "[6, 0, 0, token, [], []]");
    let (a, b) = (lease("a", 2), lease("b", 1));
    pool.run(&a.ask()).await;
    pool.run(&b.ask()).await;
    pool.java_holds("922337203685477").await;
    pool.end(&b).await;
    let shown = format!("[3, 3, 0, token, [a, 2, 30s, {JAVA_DIGITS}, 1, -1], []]");
    pool.expect(&status(), &shown, "2+4").await;
    // What a status shows can be taken back.
    let mut java = lease("java", 1);
    java.id = JAVA_DIGITS.to_owned();
    pool.expect_twice(&java.release(), ["[1, 0]", "[0, 0]"], "4+2").await;
    let mut unmade = Pool::unmade().await;
    assert_eq!(unmade.run(&status()).await, "[, 0, 0, token, [], []]");
}

/// The count alone was evicted, or deleted by hand: what is out is counted by everybody who makes it anew.
#[tokio::test]
async fn permits_that_are_out_are_counted_when_the_count_is_gone() {
    let makers: [(Call, &str, &str); 4] = [
        (lease("c", 1).of(5).try_once(), "[1, 1]", "1+4"),
        (lease("c", 1).of(5).reclaim(), "1", "1+4"),
        (resize_of("add", 1, 5), "[3, 3]", "3+3"),
        (resize("set", 5), "[2, 3]", "2+3"),
    ];
    for (call, reply, state) in makers {
        let mut pool = Pool::of(5).await;
        pool.run(&lease("a", 3).ask()).await;
        pool.bench.command(&format!("DEL {NAME}")).await;
        pool.expect(&lease("b", 1).try_once(), "[0, 30s, a, 0, -1, token, [], ]", "nil+3").await;
        pool.expect(&call, reply, state).await;
    }
    // A release makes nothing: who makes the semaphore later counts what is out then.
    let mut pool = Pool::of(5).await;
    let (a, b) = (lease("a", 2), lease("b", 2));
    pool.run(&a.ask()).await;
    pool.run(&b.ask()).await;
    pool.bench.command(&format!("DEL {NAME}")).await;
    pool.expect(&a.release(), "[1, 0]", "nil+2").await;
    pool.expect(&lease("c", 3).of(5).try_once(), "[1, 3]", "0+5").await;
}

#[tokio::test]
async fn a_status_counts_all_permits_of_each_holder() {
    let mut pool = Pool::of(3000).await;
    for (client, weight) in [("a", 500), ("b", 600), ("c", 700)] {
        pool.run(&lease(client, weight).ask()).await;
    }
    let holders = pool.bench.run(&status()).await.expect("the script runs");
    let holders = holders.into_sequence().expect("a list").swap_remove(4);
    let holders: Vec<(String, u32, i64)> = redis::from_redis_value(holders).expect("holders");
    let short = |(name, permits, _): &(String, u32, i64)| format!("{}{permits}", &name[..1]);
    assert_eq!(holders.iter().map(short).collect::<Vec<_>>(), ["a500", "b600", "c700"]);
    // Whoever forces a holder may know of fewer.
    let forced = lease("b", 550).release().and_arg("1000");
    for (call, reply, left) in [(&forced, "[1, 0]", 1800), (&forced, "[0, 0]", 1800)] {
        assert_eq!(pool.run(call).await, reply);
        assert_eq!(pool.bench.number(&format!("GET {NAME}")).await, left);
    }
    let held_more = lease("a", 501).release().and_arg("1000");
    assert_eq!(pool.run(&held_more).await, "[0, 0]");
    assert_eq!(pool.bench.number(&format!("GET {NAME}")).await, 2300);
}

#[tokio::test]
async fn a_semaphore_of_redisson_that_ends_takes_its_permits_along() {
    let mut pool = Pool::of(2).await;
    pool.bench.command(&format!("PEXPIRE {NAME} 60000")).await;
    pool.expect(&lease("a", 1).try_once(), "[1, 1]", "1+1").await;
    assert_eq!(pool.bench.ask(&format!("PTTL {HOLDERS}")).await, "60s");
    let left = format!("PTTL {NAME}");
    assert_eq!(pool.bench.ask(&left).await, "60s", "counting keeps its end");
    pool.expect(&lease("a", 1).release(), "[1, 0]", "2+0").await;
    assert_eq!(pool.bench.ask(&left).await, "60s", "so does what comes back");
}

/// Java's `addPermits` and `drainPermits` take the end away from the count alone.
#[tokio::test]
async fn where_a_semaphore_of_redisson_has_lost_its_end_permits_last() {
    let mut pool = Pool::of(2).await;
    pool.bench.command(&format!("PEXPIRE {NAME} 60000")).await;
    pool.expect(&lease("a", 1).try_once(), "[1, 1]", "1+1").await;
    pool.bench.command(&format!("SET {NAME} 1")).await;
    pool.expect(&lease("b", 1).try_once(), "[1, 1]", "0+2").await;
    let left = pool.bench.number(&format!("PTTL {HOLDERS}")).await;
    assert!(left > 86_400_000, "they end in {left} ms");
}
