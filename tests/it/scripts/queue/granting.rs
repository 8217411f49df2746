//! How a free lock gets to the first in the queue.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{
    NONCE, QUEUE, ask, entry, force, force_if, leave, leave_granted, line, listen, queued, told,
    try_once,
};
use crate::scripts::bench::{Bench, NAME, TOKEN, acquire, crowd_of_the_gone};

#[tokio::test]
async fn a_release_grants_the_lock_to_the_first_and_tells_the_next() {
    let mut bench = Bench::start().await;
    let [mut b, mut c, mut d] = line(&mut bench, ["b", "c", "d"]).await;
    bench.expect(&leave("a:1"), "1", "[b:1, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"]);
    assert!(told(&mut bench, &mut d).await.is_empty());
    assert_eq!(queued(&mut bench).await, "c:1 d:1");

    bench.expect(&leave_granted("b:1"), "1", "[c:1, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut c).await, ["grant c:1 token 2s token"]);
    assert_eq!(told(&mut bench, &mut d).await, ["next d:1 2s c:1"]);
    bench.expect(&leave_granted("c:1"), "1", "[d:1, 1] 2s").await;
    bench.expect(&leave_granted("d:1"), "1", "none").await;
    assert!(told(&mut bench, &mut b).await.is_empty());
    assert_eq!(bench.ask(&format!("EXISTS {QUEUE}")).await, "0");
}

#[tokio::test]
async fn a_grant_names_its_time_its_length_and_its_last_token() {
    for (ttl_ms, granted_ms) in [(500, 500), (2_000, 2_000), (2_001, 2_000), (30_000, 2_000)] {
        let mut bench = Bench::start().await;
        bench.acquired(&ask("a:1")).await;
        let mut b = listen(&bench, "b").await;
        let entry = format!("{ttl_ms} 7 {NONCE} b:1");
        bench.run(&acquire("b:1").entry(&entry).and(QUEUE, &[])).await.expect("the script runs");
        let before = now_us();
        bench.expect(&leave("a:1"), "1", "[b:1, 1] 2s").await;
        let left = bench.command(&format!("PTTL {NAME}")).await;
        let left: i64 = redis::from_redis_value(left).expect("a number");
        assert!(left <= granted_ms, "{left} ms are left of {granted_ms}");
        let messages = bench.messages(&mut b).await;
        let words: Vec<&str> = messages[0].split(' ').collect();
        let ["grant", "b:1", server_us, ms, block_end] = words[..] else { panic!("{messages:?}") };
        let [server_us, ms, block_end] =
            [server_us, ms, block_end].map(|word| word.parse::<i64>().expect("a number"));
        assert!((before..=now_us()).contains(&server_us), "{server_us}");
        assert_eq!((ms, block_end), (granted_ms, server_us + 7));
        assert_eq!(bench.counter(TOKEN).await, block_end);
    }
}

#[tokio::test]
async fn a_granted_lease_is_confirmed_at_full_length_and_takes_no_other_token() {
    let mut bench = Bench::start().await;
    let [_b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.run(&leave("a:1")).await.expect("the script runs");
    let end = bench.counter(TOKEN).await;
    bench.expect_twice(&ask("b:1"), ["token"; 2], "[b:1, 1] 30s").await;
    assert_eq!(bench.acquired(&ask("b:1")).await, end);
    assert_eq!(queued(&mut bench).await, "c:1");
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"], "once");
}

#[tokio::test]
async fn tokens_increase_over_grants() {
    let mut bench = Bench::start().await;
    let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.run(&leave("a:1")).await.expect("the script runs");
    let mut last = 0;
    for turn in 0..20 {
        let (holder, mailbox) = if turn % 2 == 0 { ("b:1", &mut b) } else { ("c:1", &mut c) };
        let messages = bench.messages(mailbox).await;
        let grant = messages.last().expect("it is told");
        assert!(grant.starts_with(&format!("grant {holder} ")), "{messages:?}");
        let token = grant.rsplit(' ').next().expect("a token");
        let token: i64 = token.parse().expect("a number");
        assert!(token > last, "{token} follows {last}");
        assert_eq!(bench.counter(TOKEN).await, token);
        last = token;
        bench.run(&leave_granted(holder)).await.expect("the script runs");
        bench.run(&ask(holder)).await.expect("the script runs");
    }
}

#[tokio::test]
async fn the_first_takes_a_free_lock_at_full_length_and_the_next_is_told() {
    let mut bench = Bench::start().await;
    let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.command(&format!("DEL {NAME}")).await;
    bench.expect(&ask("b:1"), "token", "[b:1, 1] 30s").await;
    assert_eq!(queued(&mut bench).await, "c:1");
    assert!(told(&mut bench, &mut b).await.is_empty(), "the answer says it");
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 30s b:1"]);
}

#[tokio::test]
async fn any_other_who_finds_the_lock_free_has_it_granted_to_the_first() {
    for (call, place) in [(ask("d:1"), "1"), (ask("c:1"), "0"), (try_once("d:1"), "-1")] {
        let mut bench = Bench::start().await;
        let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
        bench.command(&format!("DEL {NAME}")).await;
        let refused = format!("[0, 2s, b:1, 0, {place}, token, []]");
        bench.expect(&call, &refused, "[b:1, 1] 2s").await;
        assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
        assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"]);
    }
}

#[tokio::test]
async fn a_forced_unlock_grants_the_lock_to_the_first() {
    for call in [force(), force_if("a:1")] {
        let mut bench = Bench::start().await;
        let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
        let mut listener = bench.subscriber().await;
        bench.expect(&force_if("b:1"), "0", "[a:1, 1] 30s").await;
        bench.expect(&call, "1", "[b:1, 1] 2s").await;
        assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
        assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"]);
        assert!(bench.messages(&mut listener).await.is_empty(), "nothing is free");
    }
}

#[tokio::test]
async fn a_free_lock_that_nobody_waits_for_is_told_on_its_channel() {
    for call in [leave("a:1"), leave_granted("a:1"), force(), force_if("a:1")] {
        let mut bench = Bench::start().await;
        bench.acquired(&ask("a:1")).await;
        let mut listener = bench.subscriber().await;
        bench.run(&call).await.expect("the script runs");
        assert_eq!(bench.state().await, "none");
        assert_eq!(bench.messages(&mut listener).await, ["0"]);
    }
}

#[tokio::test]
async fn who_is_gone_is_passed_over_also_if_a_monitor_listens_to_all_mailboxes() {
    let mut bench = Bench::start().await;
    let client = redis::Client::open(bench.server.url()).expect("the address is valid");
    let mut monitor = client.get_async_pubsub().await.expect("the server accepts");
    monitor.psubscribe("leasehold_mailbox:*").await.expect("the server subscribes");

    let [b, mut c, d, mut e] = line(&mut bench, ["b", "c", "d", "e"]).await;
    drop((b, d));
    gone(&mut bench, ["b", "d"]).await;
    bench.expect(&leave("a:1"), "[1, 2]", "[c:1, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut c).await, ["grant c:1 token 2s token"]);
    assert_eq!(told(&mut bench, &mut e).await, ["next e:1 2s c:1"]);
    assert_eq!(queued(&mut bench).await, "e:1");
}

#[tokio::test]
async fn where_all_who_wait_are_gone_the_lock_is_free_for_who_asks() {
    for call in [ask("e:1"), try_once("e:1"), ask("d:1")] {
        let mut bench = Bench::start().await;
        drop(line(&mut bench, ["b", "c", "d"]).await);
        gone(&mut bench, ["b", "c", "d"]).await;
        bench.command(&format!("DEL {NAME}")).await;
        bench.acquired(&call).await;
        assert_eq!(queued(&mut bench).await, "");
    }
    let mut bench = Bench::start().await;
    drop(line(&mut bench, ["b", "c"]).await);
    gone(&mut bench, ["b", "c"]).await;
    let mut listener = bench.subscriber().await;
    bench.expect(&leave("a:1"), "[2, 2]", "none").await;
    assert_eq!(bench.messages(&mut listener).await, ["0"]);
}

/// A lock that is free although somebody waits is free for a moment, in which those on its channel may take it.
#[tokio::test]
async fn a_newcomer_does_not_end_the_moment_of_those_who_listen_on_the_channel() {
    for (newcomer, queue) in [(ask("e:1"), "b:1 c:1 e:1"), (try_once("e:1"), "b:1 c:1")] {
        let mut bench = Bench::start().await;
        let [mut b, _c] = line(&mut bench, ["b", "c"]).await;
        let _redisson = bench.subscriber().await;
        bench.command(&format!("DEL {NAME}")).await;
        let refusal = bench.run(&newcomer).await.expect("the script runs");
        let redis::Value::Array(refusal) = refusal else { panic!("{refusal:?}") };
        assert_eq!(refusal[2], redis::Value::BulkString(b"b:1".to_vec()), "the first is named");
        assert_eq!(queued(&mut bench).await, queue);
        assert!(told(&mut bench, &mut b).await.is_empty());
        bench.acquired(&ask("b:1")).await;
    }
}

/// That moment is for those who live: the lock may be free for nobody else.
#[tokio::test]
async fn a_newcomer_passes_over_a_first_that_is_gone_also_beside_those_on_the_channel() {
    for (newcomer, queue) in [(ask("e:1"), "c:1 e:1"), (try_once("e:1"), "c:1")] {
        let mut bench = Bench::start().await;
        let [b, mut c] = line(&mut bench, ["b", "c"]).await;
        let _redisson = bench.subscriber().await;
        bench.command(&format!("DEL {NAME}")).await;
        drop(b);
        gone(&mut bench, ["b"]).await;
        let refusal = bench.run(&newcomer).await.expect("the script runs");
        let redis::Value::Array(refusal) = refusal else { panic!("{refusal:?}") };
        assert_eq!(refusal[2], redis::Value::BulkString(b"c:1".to_vec()), "who lives is named");
        assert_eq!(queued(&mut bench).await, queue);
        assert_eq!(told(&mut bench, &mut c).await, ["free c:1"], "nobody else told it");
        // It is told once: a moment that begins anew with each newcomer would never end.
        bench.run(&try_once("f:1")).await.expect("the script runs");
        assert!(told(&mut bench, &mut c).await.is_empty());

        drop(c);
        gone(&mut bench, ["c"]).await;
        bench.acquired(&newcomer).await;
        assert_eq!(queued(&mut bench).await, "");
    }
}

/// Thousands of those who are gone cost one run no more than hundreds do, and nobody waits for the rest of them.
#[tokio::test]
async fn a_run_passes_over_so_many_at_most_and_whoever_asks_next_takes_the_lock() {
    let left = format!("ZCARD {QUEUE}");
    for call in [ask("e:1"), try_once("e:1")] {
        let mut bench = Bench::start().await;
        bench.acquired(&ask("a:1")).await;
        crowd_of_the_gone(&mut bench, QUEUE, &entry("gone:"), 1800).await;
        bench.run(&leave("a:1")).await.expect("the script runs");
        assert_eq!(bench.number(&left).await, 1300);
        bench.acquired(&call).await;
        assert_eq!(bench.number(&left).await, 800, "without an entry of its own");
        bench.run(&leave("e:1")).await.expect("the script runs");
        assert_eq!(bench.number(&left).await, 300);
        let _redisson = bench.subscriber().await;
        bench.acquired(&call).await;
        assert_eq!(bench.number(&left).await, 0);
        bench.expect(&leave("e:1"), "2", "none").await;
    }
}

/// Waits until nobody listens to these mailboxes.
pub(super) async fn gone<const N: usize>(bench: &mut Bench, clients: [&str; N]) {
    for client in clients {
        let mailbox = super::mailbox(client);
        let none = format!("[{mailbox}, 0]");
        let limit = std::time::Duration::from_secs(10);
        crate::support::eventually(limit, "nobody listens", async || {
            bench.ask(&format!("PUBSUB NUMSUB {mailbox}")).await == none
        })
        .await;
    }
}

/// This machine's time, which is the server's.
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    i64::try_from(since.as_micros()).expect("the time fits")
}
