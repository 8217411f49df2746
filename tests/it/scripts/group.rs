//! `group_notify.lua` and `group_status.lua`

use super::bench::{Bench, Call, answer};
use crate::support::lua;

/// The names that are kept are fewer here, which is an argument of the script.
#[tokio::test]
async fn of_too_many_names_the_oldest_are_forgotten_and_that_is_told() {
    let mut bench = Bench::start().await;
    let notify = |names: &[&str]| {
        let args = [&["60000", "PUBLISH", "c", "3"], names].concat();
        Call::new(lua::GROUP_NOTIFY, &["g"], &args)
    };
    let mut numbers = Vec::new();
    for names in [&["a", "b"][..], &["c"], &["a"], &["d", "e"]] {
        let reply = bench.run(&notify(names)).await.expect("it runs");
        let (number, _): (u64, u64) = redis::from_redis_value(reply).expect("two numbers");
        assert!(numbers.last().is_none_or(|last| *last < number));
        numbers.push(number);
    }
    assert_eq!(bench.ask("ZRANGE g 0 -1").await, "[, a, d, e]");
    for (seen, missed, names) in [
        (numbers[0] - 1, 1, &["a", "d", "e"][..]),
        (numbers[0], 1, &["a", "d", "e"]),
        (numbers[1], 0, &["a", "d", "e"]),
        (numbers[2], 0, &["d", "e"]),
        (numbers[3] + 1, 1, &[]),
    ] {
        let status = Call::new(lua::GROUP_STATUS, &["g"], &[&seen.to_string(), "60000"]);
        let reply = bench.run(&status).await.expect("it runs");
        let reply: (u64, i64, Vec<String>) = redis::from_redis_value(reply).expect("a state");
        assert_eq!(reply, (numbers[3], missed, names.iter().map(ToString::to_string).collect()));
    }
}

/// A listener that was away gets the last signal of each name, also after one that was refused half-way.
#[tokio::test]
async fn a_signal_that_is_refused_leaves_the_one_before() {
    let mut bench = Bench::start().await;
    let notify = Call::new(lua::GROUP_NOTIFY, &["g"], &["60000", "PUBLISH", "c", "3", "a", "b"]);
    bench.run(&notify).await.expect("it runs");
    let before = bench.command("ZRANGE g 0 -1 WITHSCORES").await;
    let refused = bench.run_as(&["~*", "&*", "+@all", "-zadd"], &notify).await;
    assert_eq!(answer(refused), "NOPERM");
    assert_eq!(bench.command("ZRANGE g 0 -1 WITHSCORES").await, before);
}
