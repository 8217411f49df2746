//! `grace_mark.lua`

use super::bench::{Bench, Call};
use crate::support::lua;

const KEY: &str = "leasehold_mark";

fn meet(run: &str, history: &str) -> Call {
    Call::new(lua::GRACE_MARK, &[KEY], &[run, history])
}

/// For how many microseconds this run with this history has been known.
async fn age(bench: &mut Bench, run: &str, history: &str) -> i64 {
    let reply = bench.run(&meet(run, history)).await.expect("two times");
    let (since, now): (i64, i64) = redis::from_redis_value(reply).expect("two times");
    assert!(mark(bench).await.ends_with(&format!(" {since}")), "the same for all");
    now - since
}

async fn mark(bench: &mut Bench) -> String {
    let mark = bench.command(&format!("GET {KEY}")).await;
    redis::from_redis_value(mark).expect("text")
}

/// The server's clock in microseconds.
async fn time(bench: &mut Bench) -> i64 {
    let time = bench.command("TIME").await;
    let (seconds, micros): (i64, i64) = redis::from_redis_value(time).expect("two numbers");
    seconds * 1_000_000 + micros
}

#[tokio::test]
async fn the_first_leaves_it_and_others_learn_its_age() {
    let mut bench = Bench::start().await;
    let before = time(&mut bench).await;
    assert_eq!(age(&mut bench, "a", "h").await, 0);
    let left = mark(&mut bench).await;
    for _ in 0..3 {
        let known_for = age(&mut bench, "a", "h").await;
        assert!((1..=time(&mut bench).await - before).contains(&known_for), "{known_for}");
    }
    assert_eq!(mark(&mut bench).await, left, "it stays as it is");
    bench.command(&format!("SET {KEY} odd")).await;
    assert_eq!(age(&mut bench, "a", "h").await, 0);
    assert_eq!(bench.ask(&format!("PTTL {KEY}")).await, "-1", "it does not end");
}

#[tokio::test]
async fn a_mark_of_another_run_or_another_history_is_set_anew() {
    let mut bench = Bench::start().await;
    for (run, history) in [("a", "h"), ("b", "h"), ("b", "i"), ("a", "i"), ("a", "ih"), ("ai", "h")]
    {
        assert_eq!(age(&mut bench, run, history).await, 0, "{run} {history}");
        assert!(mark(&mut bench).await.starts_with(&format!("{run} {history} ")));
        assert!(age(&mut bench, run, history).await > 0);
    }
}

/// It would otherwise be young until the clock has caught up.
#[tokio::test]
async fn a_mark_of_the_future_is_set_anew() {
    let mut bench = Bench::start().await;
    let ahead = time(&mut bench).await + 3_600_000_000;
    let mut set = redis::cmd("SET");
    set.arg(KEY).arg(format!("a h {ahead}"));
    let mut connection = bench.server.raw().await;
    set.query_async::<()>(&mut connection).await.expect("set");
    assert_eq!(age(&mut bench, "a", "h").await, 0);
    assert!((1..3_000_000_000).contains(&age(&mut bench, "a", "h").await));
}

#[tokio::test]
async fn who_may_not_write_it_gets_an_error_and_who_may_not_read_it_too() {
    let mut bench = Bench::start().await;
    for rules in [&["~*", "+eval", "+time", "+get"][..], &["~other", "+@all"]] {
        assert!(bench.run_as(rules, &meet("a", "h")).await.is_err(), "{rules:?}");
        assert_eq!(bench.ask("DBSIZE").await, "0");
    }
    bench.command(&format!("HSET {KEY} f v")).await;
    bench.expect(&meet("a", "h"), "WRONGTYPE", "none").await;
}

fn with_slots(history: &str, slots: &str) -> Call {
    Call::new(lua::GRACE_MARK, &[KEY], &["a", history, slots])
}

/// For how many microseconds clients have known the server, and each range of its slots.
async fn ages(bench: &mut Bench, call: &Call) -> (i64, Vec<(i64, i64, i64)>) {
    let reply = bench.run(call).await.expect("numbers");
    let numbers: Vec<i64> = redis::from_redis_value(reply).expect("numbers");
    let [since, now, ranges @ ..] = &*numbers else { panic!("{numbers:?}") };
    let ranges = ranges.chunks_exact(3).map(|range| (range[0], range[1], now - range[2]));
    (now - since, ranges.collect())
}

#[tokio::test]
async fn a_slot_that_comes_is_young_and_one_that_stays_is_not() {
    let mut bench = Bench::start().await;
    let (age, ranges) = ages(&mut bench, &with_slots("h", "0-9 20-29")).await;
    assert_eq!((age, ranges), (0, vec![(0, 9, 0), (20, 29, 0)]));
    let left = mark(&mut bench).await;
    let (age, ranges) = ages(&mut bench, &with_slots("h", "0-9 20-29")).await;
    assert!(age > 0 && ranges == [(0, 9, age), (20, 29, age)], "{age} {ranges:?}");
    assert_eq!(mark(&mut bench).await, left, "it stays as it is");
    let (age, ranges) = ages(&mut bench, &with_slots("h", "5-21 16383-16383")).await;
    assert_eq!(ranges, [(5, 9, age), (10, 19, 0), (20, 21, age), (16383, 16383, 0)]);
    let (age, ranges) = ages(&mut bench, &with_slots("h", "0-19")).await;
    let [(0, 4, 0), (5, 9, five), (10, 19, ten)] = ranges[..] else { panic!("{ranges:?}") };
    assert!(five == age && 0 < ten && ten < age, "{ranges:?} at {age}");
    assert_eq!(ages(&mut bench, &with_slots("h", "")).await.1, []);
    assert_eq!(ages(&mut bench, &with_slots("h", "5-5")).await.1, [(5, 5, 0)], "it was away");
    let (age, ranges) = ages(&mut bench, &with_slots("i", "5-5")).await;
    assert_eq!((age, ranges), (0, vec![(5, 5, 0)]), "another history");
}

/// The server's clock was set back past the arrival of its slots.
#[tokio::test]
async fn a_slot_of_the_future_is_young_once_only() {
    const HOUR: i64 = 3_600_000_000;
    let mut bench = Bench::start().await;
    let now = time(&mut bench).await;
    let mark = format!("a h {} 0-9@{}", now - HOUR, now + HOUR);
    bench.server.command(&["SET", KEY, &mark]).await;
    let (age, ranges) = ages(&mut bench, &with_slots("h", "0-9")).await;
    assert!(age >= HOUR && ranges == [(0, 9, 0)], "{age} {ranges:?}");
    let (_, ranges) = ages(&mut bench, &with_slots("h", "0-9")).await;
    let [(0, 9, age)] = ranges[..] else { panic!("{ranges:?}") };
    assert!((1..HOUR).contains(&age), "{age}");
}
