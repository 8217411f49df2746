//! `item_take.lua`, and `item_pop.lua` behind it.

use super::bench::{Bench, Call, answer};
use crate::support::lua;

fn pop(id: &str) -> Call {
    let keys = ["n", "lent", "queue", "contents", "dead"];
    Call::new(lua::ITEM_POP, &keys, &[id, "21", "60000", "", "0"])
}

/// A request may cross a message that lends its delivery an item, or run twice.
#[tokio::test]
async fn a_pop_that_runs_again_confirms_its_delivery_and_takes_nothing_more() {
    let mut bench = Bench::start().await;
    bench.command("RPUSH n one two").await;
    let first = bench.run(&pop("a:1")).await.expect("the script runs");
    let again = bench.run(&pop("a:1")).await.expect("the script runs");
    assert_eq!(first, again);
    assert_eq!(bench.ask("LRANGE n 0 -1").await, "[two]");
    assert_eq!(bench.ask("ZRANGE lent 0 -1").await, "[a:1]");
}

/// The half in the score of the one before is its own: a client that has been silent.
#[tokio::test]
async fn who_comes_behind_a_clock_that_was_set_back_has_a_whole_score() {
    let mut bench = Bench::start().await;
    bench.server.keeps("queue");
    let _waits = bench.subscriber_of("leasehold_mailbox:b:1").await;
    let before = "60000 21 1 b:1";
    let add = Call::new(
        "redis.call('ZADD', KEYS[1], '4e15', ARGV[1]) redis.call('ZINCRBY', KEYS[1], '0.5', ARGV[1])",
        &["queue"],
        &[before],
    );
    bench.run(&add).await.expect("the script runs");
    let own = "60000 21 1 a:1";
    bench
        .run(&Call::new(lua::ITEM_POP, &KEYS, &["a:1", "21", "60000", own, "0"]))
        .await
        .expect("the script runs");
    let score = Call::new(
        "return tostring(redis.call('ZSCORE', KEYS[1], ARGV[1]) % 1 == 0)",
        &["queue"],
        &[own],
    );
    assert_eq!(answer(bench.run(&score).await), "true");
}

const KEYS: [&str; 5] = ["n", "lent", "queue", "contents", "dead"];
/// What the scripts run.
const COMMANDS: [&str; 16] = [
    "hdel", "hget", "hset", "lindex", "llen", "lpop", "pexpire", "publish", "pubsub", "rpop",
    "rpush", "time", "zadd", "zrange", "zrank", "zrem",
];

/// In how many places the item is: among the new ones, lent or due, dead.
async fn places(bench: &mut Bench) -> usize {
    let mut found = Vec::new();
    for all in ["LRANGE n 0 -1", "LRANGE dead 0 -1"] {
        let all = bench.command(all).await;
        found.extend(redis::from_redis_value::<Vec<String>>(all).expect("texts"));
    }
    let lent = bench.command("ZRANGE lent 0 -1").await;
    for member in redis::from_redis_value::<Vec<String>>(lent).expect("texts") {
        let content = bench.command(&format!("HGET contents {member}")).await;
        found.extend(redis::from_redis_value::<Option<String>>(content).expect("a text"));
    }
    found.iter().filter(|text| text.rsplit(':').next() == Some("p")).count()
}

/// Nothing that a script has written is taken back by itself when a command behind it is refused.
#[tokio::test]
async fn whatever_right_is_taken_an_item_is_in_one_place() {
    let settle =
        |outcome: &'static str| Call::new(lua::ITEM_SETTLE, &KEYS, &["a:1", outcome, "0", "", "5"]);
    let lent = "HSET contents a:1 1\u{a0}5:p";
    let ready: [(&str, &[&str], Call); 11] = [
        ("a pop", &["RPUSH n p"], pop("a:1")),
        (
            "a pop of what is due",
            &["HSET contents due:x 1\u{a0}5:p", "ZADD lent 1 due:x"],
            pop("a:1"),
        ),
        (
            "a pop of what nobody wants",
            &["HSET contents due:x 10\u{a0}5:p", "ZADD lent 1 due:x"],
            pop("a:1"),
        ),
        (
            "a pop behind another",
            &["RPUSH n p", "ZADD queue 1 60000\u{a0}21\u{a0}1\u{a0}b:2"],
            pop("a:1"),
        ),
        (
            "a push",
            &["ZADD queue 1 60000\u{a0}21\u{a0}1\u{a0}b:2"],
            Call::new(lua::ITEM_PUSH, &KEYS, &["0", "p"]),
        ),
        ("an ack", &[lent, "ZADD lent 99999999999999 a:1"], settle("ack")),
        ("a retry", &[lent, "ZADD lent 99999999999999 a:1"], settle("retry")),
        (
            "an undo",
            &[lent, "ZADD lent 99999999999999 a:1", "ZADD queue 1 60000\u{a0}21\u{a0}1\u{a0}b:2"],
            settle("undo"),
        ),
        ("a rejection", &[lent, "ZADD lent 99999999999999 a:1"], settle("reject")),
        (
            "an ack before another",
            &[lent, "ZADD lent 99999999999999 a:1", "ZADD queue 1 60000\u{a0}21\u{a0}1\u{a0}b:2"],
            settle("ack"),
        ),
        ("a redrive", &["RPUSH dead p"], Call::new(lua::ITEM_REDRIVE, &KEYS, &["9"])),
    ];
    let mut bench = Bench::start().await;
    bench.server.keeps("");
    let _waiter = bench.subscriber_of("leasehold_mailbox:b:1").await;
    for (what, state, call) in &ready {
        for command in COMMANDS {
            bench.command("FLUSHALL").await;
            for line in *state {
                let words: Vec<String> =
                    line.split(' ').map(|word| word.replace('\u{a0}', " ")).collect();
                bench.server.command(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
            }
            let right = format!("-{command}");
            let without = bench.run_as(&["~*", "&*", "+@all", &right], call).await;
            let (added, ends) = (*what == "a push", what.starts_with("an ack"));
            let may_be = |places: usize, done: bool| match (added, ends) {
                (true, false) => places == usize::from(done),
                (false, true) => places == usize::from(!done),
                _ => places == 1,
            };
            let left = places(&mut bench).await;
            assert!(
                may_be(left, without.is_ok()) || (ends && left == 0),
                "{what} without {command}: it is in {left} places after {without:?}"
            );
            let with = bench.run(call).await;
            let left = places(&mut bench).await;
            let pushed_twice = added && without.is_ok();
            assert!(
                may_be(left, true) || pushed_twice,
                "{what} again, with {command}: it is in {left} places after {with:?}"
            );
        }
    }
}

/// What is lent without an item would count as one until its end.
#[tokio::test]
async fn who_may_not_write_down_what_it_is_lent_leaves_nothing() {
    let mut bench = Bench::start().await;
    bench.command("RPUSH n one").await;
    let without = bench.run_as(&["~*", "&*", "+@all", "-hset"], &pop("a:1")).await;
    assert_eq!(answer(without), "NOPERM");
    assert_eq!(bench.ask("LRANGE n 0 -1").await, "[one]");
    assert_eq!(bench.ask("ZCARD lent").await, "0");
}

/// A request that was held up is lent another item under the id of one that was given back.
#[tokio::test]
async fn an_item_that_is_due_stays_though_another_is_given_back_under_its_name() {
    let mut bench = Bench::start().await;
    bench.command("RPUSH n one two").await;
    bench.run(&pop("a:1")).await.expect("it runs");
    let content = bench.ask("HGET contents a:1").await;
    let at = content.split([' ', ':']).nth(1).expect("a time").to_owned();
    let retry = Call::new(lua::ITEM_SETTLE, &KEYS, &["a:1", "retry", "60000", "", &at]);
    assert_eq!(answer(bench.run(&retry).await), "[1]");
    bench.run(&pop("a:1")).await.expect("it runs late");
    assert_eq!(answer(bench.run(&retry).await), "[0]");
    let all = bench.command("HVALS contents").await;
    let all: Vec<String> = redis::from_redis_value(all).expect("texts");
    let mut payloads: Vec<_> = all.iter().filter_map(|text| text.rsplit(':').next()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, ["one", "two"]);
    let next = bench.run(&pop("b:1")).await.expect("the second is due at once");
    assert!(answer(Ok(next)).contains("two"));
    assert_eq!(bench.ask("ZCARD lent").await, "2");
}

/// Each of them would cost the item one of its deliveries, and two seconds.
#[tokio::test]
async fn an_item_that_a_stopped_worker_did_not_heed_goes_to_who_asks() {
    let mut bench = Bench::start().await;
    let _stopped = [
        bench.subscriber_of("leasehold_mailbox:b:1").await,
        bench.subscriber_of("leasehold_mailbox:c:1").await,
    ];
    let mut queued = vec!["b:1", "c:1", "b:2", "c:2"];
    for (place, id) in queued.iter().enumerate() {
        let (place, entry) = (place.to_string(), format!("60000 7 1 {id}"));
        bench.server.command(&["ZADD", "queue", &place, &entry]).await;
    }
    let push = Call::new(lua::ITEM_PUSH, &KEYS, &["0", "p"]);
    bench.run(&push).await.expect("the script runs");
    assert_eq!(bench.ask("ZRANGE lent 0 -1").await, "[b:1]");
    queued.remove(0);
    let end: f64 = bench.ask("ZSCORE lent b:1").await.parse().expect("a number");
    assert_eq!(end % 1.0, 0.5, "nobody has renewed it");
    let time = bench.command("TIME").await;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time).expect("a time");
    let latest = (seconds * 1000 + micros / 1000 + 2002) as f64;
    assert!(end < latest, "for two seconds at most, whatever it asked for: {end} {latest}");
    bench.command("ZADD lent XX 1.5 b:1").await;
    // A new one goes by message all the same.
    bench.run(&push).await.expect("the script runs");
    assert_eq!(bench.ask("ZRANGE lent 0 -1").await, "[b:1, c:1]");
    queued.remove(0);
    let own = "60000 7 1 a:1";
    let asked = Call::new(lua::ITEM_POP, &KEYS, &["a:1", "7", "60000", own, "0"]);
    let reply = bench.run(&asked).await.expect("the script runs");
    let (lent, _, id, content): (i64, i64, String, String) =
        redis::from_redis_value(reply).expect("a delivery");
    assert_eq!((lent, &*id), (1, "a:1"));
    assert!(content.starts_with("2 ") && content.ends_with(":p"), "{content}");
    let waits = bench.command("ZRANGE queue 0 -1").await;
    let waits: Vec<String> = redis::from_redis_value(waits).expect("entries");
    let expected = queued.iter().map(|id| format!("60000 7 1 {id}"));
    assert!(waits.iter().eq(&expected.collect::<Vec<_>>()), "nobody else was told: {waits:?}");
    assert_eq!(bench.ask("ZRANGE lent 0 -1").await, "[c:1, a:1]");
}

/// To copy them keeps the server from all others.
#[tokio::test]
async fn a_redrive_of_large_items_moves_few_of_them_at_once() {
    let mut bench = Bench::start().await;
    let mut connection = bench.server.raw().await;
    for _ in 0..3 {
        let mut push = redis::cmd("RPUSH");
        push.arg("dead")
            .arg(vec![b'x'; 9 << 20])
            .query_async::<()>(&mut connection)
            .await
            .expect("pushed");
    }
    for (moved, left) in [(2, 1), (1, 0), (0, 0)] {
        let redrive = Call::new(lua::ITEM_REDRIVE, &KEYS, &["1000"]);
        assert_eq!(answer(bench.run(&redrive).await), moved.to_string());
        assert_eq!(bench.number("LLEN dead").await, left);
    }
    assert_eq!(bench.number("LLEN n").await, 3);
}
