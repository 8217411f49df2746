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
