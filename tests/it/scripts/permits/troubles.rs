//! A server that is full, or refuses something, and keys that are no semaphore.

use super::{HOLDERS, NAME, Pool, lease, resize, status};
use crate::scripts::bench::answer;

#[tokio::test]
async fn a_full_server_refuses_an_acquire_with_nothing_changed() {
    let mut pool = Pool::of(5).await;
    pool.fill().await;
    for call in [lease("a", 2).ask(), lease("a", 2).try_once(), resize("set", 9)] {
        pool.expect(&call, "OOM", "5+0").await;
    }
    let mut unmade = Pool::unmade().await;
    unmade.fill().await;
    unmade.expect(&lease("a", 2).of(5).ask(), "OOM", "nil+0").await;
}

#[tokio::test]
async fn a_full_server_renews_gives_back_confirms_and_serves_the_queue() {
    let (mut pool, [(b, mut mailbox), (_, mut c)]) = Pool::line(3, [("b", 2), ("c", 2)]).await;
    pool.fill().await;
    let a = lease("a", 3);
    let before = pool.ends(&a).await[0];
    pool.expect(&a.renew(60_000), "1", "0+3").await;
    assert!(pool.ends(&a).await[0] > before);
    pool.expect(&a.ask(), "[1, 3]", "0+3").await;
    pool.expect(&a.release(), "[1, 0]", "1+2").await;
    assert_eq!(pool.told(&mut mailbox).await, ["grant b .. .. 2"]);
    assert_eq!(pool.told(&mut c).await, ["next c .. b"]);
    pool.expect(&b.ask(), "[1, 2]", "1+2").await;
    pool.expect(&b.release_with(0, "1", ""), "[1, 0]", "1+0").await;
}

#[tokio::test]
async fn a_full_server_keeps_out_what_is_spent() {
    let (mut pool, a) = (Pool::of(1).await, lease("a", 1));
    pool.run(&a.ask()).await;
    pool.fill().await;
    let before = pool.ends(&a).await[0];
    pool.expect(&a.release_with(60_000, "", ""), "[1, 0]", "0+1").await;
    assert!(pool.ends(&a).await[0] > before);
}

/// Another client has taken one of them back, since it had ended: the lease is lost, and nothing of it is forgotten.
#[tokio::test]
async fn a_part_of_a_lease_is_not_forgotten_but_given_back() {
    let (mut pool, a) = (Pool::of(2).await, lease("a", 2));
    pool.run(&a.ask()).await;
    pool.bench.command(&format!("ZREM {HOLDERS} {}:1", a.id)).await;
    pool.bench.command(&format!("INCR {NAME}")).await;
    pool.expect_twice(&a.release_with(0, "1", ""), ["[0, 0]"; 2], "2+0").await;
}

#[tokio::test]
async fn a_full_server_has_ended_permits_come_back_to_the_first_in_the_queue() {
    let (mut pool, [(b, mut mailbox)]) = Pool::line(1, [("b", 1)]).await;
    pool.end(&lease("a", 1)).await;
    pool.fill().await;
    pool.expect(&b.ask(), "[1, 1]", "0+1").await;
    assert!(pool.told(&mut mailbox).await.is_empty());
}

#[tokio::test]
async fn a_full_server_queues_nobody_and_says_so() {
    let mut pool = Pool::of(1).await;
    pool.run(&lease("a", 1).ask()).await;
    pool.fill().await;
    let refused = "[0, 30s, a, 0, -1, token, [], 0]";
    pool.expect_twice(&lease("b", 1).ask(), [refused; 2], "0+1").await;
}

/// Half-way: what is left is lowered before a permit is written, and raised after one was removed, which is undone if it fails.
#[tokio::test]
async fn a_script_that_ends_half_way_makes_no_permit_and_loses_none() {
    let a = lease("a", 2);
    let without = |right: &str| ["~*", "&*", "+@all", right].map(str::to_owned);
    for (call, right, with_it) in [
        (a.ask(), "-set", "3+2"),
        (a.ask(), "-zadd", "3+2"),
        (a.release(), "-zrem", "5+0"),
        (a.release(), "-set", "5+0"),
        (lease("b", 1).ask(), "-zadd", "2+3"),
        (lease("b", 1).reclaim(), "-zadd", "2+3"),
        (lease("b", 1).reclaim(), "-set", "2+3"),
    ] {
        let mut pool = Pool::of(5).await;
        pool.run(&a.ask()).await;
        let rules = without(right);
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let reply = answer(pool.bench.run_as(&rules, &call).await);
        let confirms = reply == "[1, 2]";
        assert!(reply == "NOPERM" || confirms, "{call:?} {right}: {reply}");
        assert_eq!(pool.state().await, "3+2", "{call:?} {right}");
        pool.run(&call).await;
        assert_eq!(pool.state().await, with_it, "{call:?} again, with {right}");
    }
}

#[tokio::test]
async fn a_grant_that_cannot_be_told_is_taken_back_and_goes_to_the_next() {
    let (mut pool, [(b, mut mailbox), (_, mut c)]) = Pool::line(1, [("b", 1), ("c", 1)]).await;
    let rules = ["~*", "resetchannels", "&leasehold_mailbox:c:*", "+@all"];
    let reply = answer(pool.bench.run_as(&rules, &lease("a", 1).release()).await);
    assert_eq!((reply.as_str(), pool.state().await.as_str()), ("[1, 0]", "0+1"));
    assert!(pool.told(&mut mailbox).await.is_empty() && pool.ends(&b).await.is_empty());
    assert_eq!(pool.told(&mut c).await, ["grant c .. .. 1"]);
    assert_eq!(pool.queued().await, "");
}

#[tokio::test]
async fn a_key_that_is_no_semaphore_is_left_as_it_is() {
    for (make, key) in [
        (format!("HSET {NAME} a 1"), NAME),
        (format!("SET {NAME} abc"), NAME),
        // What Lua takes for a number, and Redis and Redisson do not.
        (format!("SET {NAME} inf"), NAME),
        (format!("SET {NAME} 0x10"), NAME),
        (format!("SET {NAME} 2.5"), NAME),
        (format!("SET {NAME} 1e3"), NAME),
        (format!("SET {HOLDERS} abc"), HOLDERS),
    ] {
        let mut pool = Pool::unmade().await;
        pool.bench.command(&make).await;
        let before = pool.bench.ask(&format!("TYPE {key}")).await;
        let a = lease("a", 1).of(3);
        let calls = [a.ask(), a.try_once(), a.release(), a.reclaim(), resize("set", 3), status()];
        for call in calls {
            assert_eq!(pool.run(&call).await, "WRONGTYPE", "{make}: {call:?}");
        }
        assert_eq!(pool.bench.ask(&format!("TYPE {key}")).await, before);
        assert_eq!(pool.bench.ask("DBSIZE").await, "1", "{make}");
    }
}

/// What the scripts run.
const COMMANDS: [&str; 11] = [
    "get", "pexpire", "pttl", "publish", "pubsub", "set", "time", "zadd", "zrange", "zrank", "zrem",
];

/// Nothing that a script has written is taken back by itself when a command behind it is refused.
#[tokio::test]
async fn whatever_right_is_taken_no_permit_is_made_or_lost() {
    let (a, b, c) = (lease("a", 2), lease("b", 1), lease("c", 4));
    let calls = [
        a.ask(),
        b.ask(),
        b.try_once(),
        c.ask(),
        a.renew(60_000),
        a.release(),
        a.release_granted(),
        a.release().and_arg("9"),
        a.release_with(1000, "", ""),
        b.release(),
        b.reclaim(),
        resize("add", 0),
    ];
    let mut pool = Pool::unmade().await;
    let _mailbox = pool.listen("c").await;
    for ended in [false, true] {
        for waits in [false, true] {
            for call in &calls {
                for command in COMMANDS {
                    pool.bench.command("FLUSHALL").await;
                    pool.run(&resize("set", 5)).await;
                    pool.run(&a.ask()).await;
                    if waits {
                        pool.run(&c.ask()).await;
                    }
                    if ended {
                        pool.end(&a).await;
                    }
                    let right = format!("-{command}");
                    let without = pool.bench.run_as(&["~*", "&*", "+@all", &right], call).await;
                    let told = format!("{call:?} without {command}, {ended} {waits}: {without:?}");
                    assert_eq!(permits(&mut pool).await, 5, "{told}");
                    pool.run(call).await;
                    assert_eq!(permits(&mut pool).await, 5, "again, after {told}");
                }
            }
        }
    }
}

/// Those that are left, and those that are out.
async fn permits(pool: &mut Pool) -> i64 {
    pool.bench.number(&format!("GET {NAME}")).await
        + pool.bench.number(&format!("ZCARD {HOLDERS}")).await
}
