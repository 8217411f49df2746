//! Who is in the queue, and where.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::Value;

use super::{QUEUE, ask, entry, line, listen, look, queued, try_once};
use crate::scripts::{
    bench::{Bench, Call, acquire, release},
    rw::{self, WRITE},
};
use crate::support::lua;

#[tokio::test]
async fn who_is_refused_with_an_entry_waits_in_the_order_of_arrival() {
    let mut bench = Bench::start().await;
    bench.acquired(&ask("a:1")).await;
    let held = "[a:1, 1] 30s";
    bench.expect(&ask("c:1"), "[0, 30s, a:1, 0, 0, token, []]", held).await;
    bench.expect(&ask("b:1"), "[0, 30s, a:1, 0, 1, token, []]", held).await;
    bench.expect(&ask("d:1"), "[0, 30s, a:1, 0, 2, token, []]", held).await;
    assert_eq!(queued(&mut bench).await, "c:1 b:1 d:1");
}

#[tokio::test]
async fn who_asks_twice_waits_once_and_keeps_the_place() {
    let mut bench = Bench::start().await;
    let _mailboxes = line(&mut bench, ["b", "c"]).await;
    let arrival = bench.command(&format!("ZRANGE {QUEUE} 0 -1 WITHSCORES")).await;
    let held = "[a:1, 1] 30s";
    bench.expect_twice(&ask("b:1"), ["[0, 30s, a:1, 0, 0, token, []]"; 2], held).await;
    bench.expect_twice(&ask("c:1"), ["[0, 30s, a:1, 0, 1, token, []]"; 2], held).await;
    assert_eq!(bench.command(&format!("ZRANGE {QUEUE} 0 -1 WITHSCORES")).await, arrival);
}

#[tokio::test]
async fn an_arrival_is_the_servers_time_in_microseconds() {
    let mut bench = Bench::start().await;
    let before = now_us();
    let _mailboxes = line(&mut bench, ["b"]).await;
    let arrival = bench.server.command(&["ZSCORE", QUEUE, &entry("b:1")]).await;
    let arrival: f64 = redis::from_redis_value(arrival).expect("a number");
    assert!((before..=now_us()).contains(&arrival), "{arrival} is not from {before} to now");
}

#[tokio::test]
async fn who_comes_after_the_clock_was_set_back_is_still_the_last() {
    let mut bench = Bench::start().await;
    bench.acquired(&ask("a:1")).await;
    let ahead = 1_900_000_000_000_000_i64;
    bench.server.command(&["ZADD", QUEUE, &ahead.to_string(), &entry("b:1")]).await;
    bench.run(&ask("c:1")).await.expect("the script runs");
    bench.run(&ask("d:1")).await.expect("the script runs");
    let arrivals = bench.command(&format!("ZRANGE {QUEUE} 0 -1 WITHSCORES")).await;
    let arrivals: Vec<(String, f64)> = redis::from_redis_value(arrivals).expect("pairs");
    let expected = ["b:1", "c:1", "d:1"].map(entry).into_iter().zip(0..);
    let expected: Vec<_> = expected.map(|(entry, n)| (entry, (ahead + n) as f64)).collect();
    assert_eq!(arrivals, expected);
}

#[tokio::test]
async fn who_has_no_entry_is_refused_and_does_not_wait() {
    let mut bench = Bench::start().await;
    let _mailboxes = line(&mut bench, ["b"]).await;
    let held = "[a:1, 1] 30s";
    bench.expect_twice(&try_once("c:1"), ["[0, 30s, a:1, 0, -1, token, []]"; 2], held).await;
    assert_eq!(queued(&mut bench).await, "b:1");
}

#[tokio::test]
async fn a_refusal_and_a_status_list_the_first_that_wait() {
    let mut bench = Bench::start().await;
    let _mailboxes = line(&mut bench, ["b", "c", "d"]).await;
    let held = "[a:1, 1] 30s";
    let show = |count: &str| acquire("d:1").entry(&entry("d:1")).and(QUEUE, &[count]);
    let [b, c, d] = ["b:1", "c:1", "d:1"].map(|id| format!("{}, token", entry(id)));
    let refused = format!("[0, 30s, a:1, 0, 2, token, [{b}, {c}]]");
    bench.expect(&show("2"), &refused, held).await;
    let all = format!("[{b}, {c}, {d}]");
    bench.expect(&show("9"), &format!("[0, 30s, a:1, 0, 2, token, {all}]"), held).await;

    bench.expect(&look(9), &format!("[30s, a:1, 1, token, 0, token, {all}]"), held).await;
    bench.expect(&look(1), &format!("[30s, a:1, 1, token, 0, token, [{b}]]"), held).await;
    bench.expect(&look(0), "[30s, a:1, 1, token, 0, token, []]", held).await;
}

#[tokio::test]
async fn a_status_shows_the_arrivals_and_the_time_exactly() {
    let mut bench = Bench::start().await;
    let before = now_us() as i64;
    let _mailboxes = line(&mut bench, ["b"]).await;
    let Ok(Value::Array(status)) = bench.run(&look(1)).await else { panic!("not a list") };
    let [.., Value::Int(now), Value::Array(waiting)] = &status[..] else { panic!("{status:?}") };
    let [_, Value::BulkString(since)] = &waiting[..] else { panic!("{waiting:?}") };
    let since: i64 = String::from_utf8_lossy(since).parse().expect("whole microseconds");
    assert!(before <= since && since < *now && *now <= now_us() as i64, "{since} {now}");
}

/// In all scripts that queue. Who waits asks again and again, and it may be that nobody else comes.
#[tokio::test]
async fn a_queue_ends_a_minute_after_the_last_ask() {
    let write = |id: &str, entry: &str| rw::ask_as(id, WRITE, entry, "30000");
    let acquire = |id: &str, entry: &str| {
        let keys = ["api", "{api}:timeout", "permits"];
        let args = [id, "1", "30000", "PUBLISH", "channel", "1", entry, "0", "NUMSUB"];
        Call::new(lua::PERMIT_ACQUIRE, &keys, &args)
    };
    let pop = |id: &str, entry: &str| {
        let keys = ["jobs", "lent", "workers", "contents", "dead"];
        Call::new(lua::ITEM_POP, &keys, &[id, "1", "30000", entry, "0"])
    };
    let (own, writers) = (entry("b:1"), rw::entry("b:1", WRITE));
    // The queue, who is there before, who waits, and who does not.
    let kinds = [
        (QUEUE, try_once("a:1"), ask("b:1"), try_once("c:1")),
        (rw::QUEUE, write("a:1", ""), write("b:1", &writers), write("c:1", "")),
        ("permits", acquire("a:1", ""), acquire("b:1", &own), acquire("c:1", "")),
        ("workers", pop("a:1", ""), pop("b:1", &own), pop("c:1", "")),
    ];
    for (queue, first, waits, passes) in kinds {
        let mut bench = Bench::start().await;
        let _mailbox = listen(&bench, "b").await;
        let left = format!("PTTL {queue}");
        bench.run(&first).await.expect("the script runs");
        bench.run(&waits).await.expect("the script runs");
        assert_eq!(bench.ask(&left).await, "60s", "{waits:?}");
        bench.command(&format!("PEXPIRE {queue} 5000")).await;
        bench.run(&passes).await.expect("the script runs");
        assert_eq!(bench.ask(&left).await, "5s", "it does not wait: {passes:?}");
        bench.run(&waits).await.expect("the script runs");
        assert_eq!(bench.ask(&left).await, "60s", "once more: {waits:?}");
    }
}

#[tokio::test]
async fn who_holds_the_lock_is_not_in_the_queue() {
    let mut bench = Bench::start().await;
    let _mailbox = listen(&bench, "a").await;
    bench.expect_twice(&ask("a:1"), ["token"; 2], "[a:1, 1] 30s").await;
    assert_eq!(queued(&mut bench).await, "");
}

/// Over several servers the scripts get no key of a queue.
#[tokio::test]
async fn without_its_key_a_queue_is_left_alone() {
    let mut bench = Bench::start().await;
    let [_mailbox] = line(&mut bench, ["b"]).await;
    let mut listener = bench.subscriber().await;
    bench.expect(&acquire("c:1"), "[0, 30s, a:1, 1]", "[a:1, 1] 30s").await;
    bench.expect(&release("a:1"), "2", "none").await;
    assert_eq!(bench.messages(&mut listener).await, ["0"]);
    bench.expect(&acquire("c:1"), "token", "[c:1, 1] 30s").await;
    assert_eq!(queued(&mut bench).await, "b:1");
}

/// This machine's time, which is the server's.
fn now_us() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    since.as_micros() as f64
}
