//! `lock_status.lua`

use super::bench::{Bench, CHANNEL, Call, NAME, TOKEN, acquire, release, status};
use crate::support::lua;

#[tokio::test]
async fn the_status_tells_who_holds_the_lock() {
    let mut bench = Bench::start().await;
    bench.expect_twice(&status(), ["[-2, nil, nil, nil, 0]"; 2], "none").await;
    let end = bench.acquired_deep("a", 2).await;
    bench.expect_twice(&status(), ["[30s, a, 2, token, 0]"; 2], "[a, 2] 30s").await;
    let subscriber = bench.subscriber().await;
    bench.expect(&status(), "[30s, a, 2, token, 1]", "[a, 2] 30s").await;
    bench.run(&release("a")).await.expect("the script runs");
    bench.expect(&status(), "[-2, nil, nil, token, 1]", "none").await;
    drop(subscriber);

    type Status = (i64, Option<String>, Option<i64>, i64, i64);
    let reply = bench.run(&status()).await.expect("the script runs");
    let (_, _, _, last, _): Status = redis::from_redis_value(reply).expect("the documented form");
    assert_eq!(last, end, "the token is told with all its digits");
}

#[tokio::test]
async fn the_status_of_a_lock_without_an_end_or_a_counter_is_told() {
    let mut bench = Bench::start().await;
    bench.command(&format!("HSET {NAME} left-by-hand 1")).await;
    bench.expect(&status(), "[-1, left-by-hand, 1, nil, 0]", "[left-by-hand, 1] -1").await;
}

#[tokio::test]
async fn the_status_of_a_key_of_another_type_is_an_error() {
    let mut bench = Bench::start().await;
    bench.command(&format!("SET {NAME} x")).await;
    bench.expect(&status(), "WRONGTYPE", "string").await;
}

#[tokio::test]
async fn the_status_is_read_without_a_right_to_write() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    let rules = ["~*", "&*", "+@all", "-@write"];
    let reply = bench.run_as(&rules, &status()).await.expect("nothing is written");
    let fields: Vec<redis::Value> = redis::from_redis_value(reply).expect("a list");
    assert_eq!(fields.len(), 5);
    assert_eq!(bench.ask(&format!("PUBSUB NUMSUB {CHANNEL}")).await, format!("[{CHANNEL}, 0]"));
    assert!(bench.counter(TOKEN).await > 0);
}

#[tokio::test]
async fn the_status_by_the_name_alone_tells_who_holds_the_lock() {
    let mut bench = Bench::start().await;
    let by_name = Call::new(lua::LOCK_STATUS, &[NAME], &[CHANNEL, "1000"]);
    bench.expect_twice(&by_name, ["[-2, nil, nil, nil, 0]"; 2], "none").await;
    bench.acquired_deep("a", 2).await;
    bench.expect_twice(&by_name, ["[30s, a, 2, nil, 0]"; 2], "[a, 2] 30s").await;
}

#[tokio::test]
async fn a_lock_is_freed_by_its_name_alone_unless_its_age_matters() {
    let mut bench = Bench::start().await;
    let by_name =
        |id, age| Call::new(lua::FORCE_UNLOCK, &[NAME], &[id, "PUBLISH", CHANNEL, age, "0"]);
    bench.acquired(&acquire("a")).await;
    let refused = bench.run(&by_name("a", "1")).await.expect_err("the counter is not named");
    assert_eq!(refused.kind(), redis::ServerErrorKind::TryAgain.into(), "{refused}");
    assert_eq!(bench.state().await, "[a, 1] 30s");
    bench.expect_twice(&by_name("b", "0"), ["0"; 2], "[a, 1] 30s").await;
    bench.expect_twice(&by_name("a", "0"), ["1", "0"], "none").await;
    bench.acquired(&acquire("a")).await;
    let mut subscriber = bench.subscriber().await;
    bench.expect_twice(&by_name("", ""), ["1", "0"], "none").await;
    assert_eq!(bench.messages(&mut subscriber).await, ["0"]);
}
