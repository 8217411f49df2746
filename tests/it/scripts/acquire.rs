//! `lock_acquire.lua`

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::bench::{
    Bench, CHANNEL, Call, NAME, TOKEN, acquire, answer, force_unlock, release, renew,
};
use crate::support::lua;

#[tokio::test]
async fn a_free_lock_is_taken_and_a_held_one_refused() {
    let mut bench = Bench::start().await;
    let a = acquire("a");
    bench.expect_twice(&a, ["token"; 2], "[a, 1] 30s").await;
    let b = acquire("b").ttl_ms(300_000);
    bench.expect_twice(&b, ["[0, 30s, a, 0]"; 2], "[a, 1] 30s").await;
    bench.expect(&release("a"), "1", "none").await;
    bench.expect_twice(&b, ["token"; 2], "[b, 1] 300s").await;
    bench.expect(&a, "[0, 300s, b, 0]", "[b, 1] 300s").await;
}

#[tokio::test]
async fn a_refusal_counts_the_subscribers() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    let first = bench.subscriber().await;
    bench.expect(&acquire("b"), "[0, 30s, a, 1]", "[a, 1] 30s").await;
    let second = bench.subscriber().await;
    bench.expect(&acquire("b"), "[0, 30s, a, 2]", "[a, 1] 30s").await;
    drop((first, second));
}

#[tokio::test]
async fn a_lock_is_free_again_when_its_time_is_over() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a").ttl_ms(10)).await;
    let limit = Duration::from_secs(10);
    let mut connection = bench.server.raw().await;
    crate::support::eventually(limit, "the lease ends", async || {
        let left: i64 = redis::cmd("PTTL").arg(NAME).query_async(&mut connection).await.unwrap();
        left == -2
    })
    .await;
    bench.expect(&acquire("b"), "token", "[b, 1] 30s").await;
}

#[tokio::test]
async fn an_acquire_counts_one_hold_however_often_it_is_sent() {
    let mut bench = Bench::start().await;
    bench.expect_twice(&acquire("a"), ["token"; 2], "[a, 1] 30s").await;
    bench.expect(&renew("a", 2, 0), "1", "[a, 2] 30s").await;
    bench.expect_twice(&acquire("a"), ["token"; 2], "[a, 1] 30s").await;
}

#[tokio::test]
async fn a_repeated_acquire_lengthens_the_lease_and_takes_no_token() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&acquire("a").block(5)).await;
    let again = bench.acquired(&acquire("a").block(5).ttl_ms(300_000)).await;
    assert_eq!(again, end);
    assert_eq!(bench.counter(TOKEN).await, end);
    assert_eq!(bench.state().await, "[a, 1] 300s");
}

/// A request that was held up may run when the lease was made longer, and nobody reads its answer.
#[tokio::test]
async fn a_repeated_acquire_makes_no_lease_shorter() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.expect(&renew("a", 1, 300_000), "1", "[a, 1] 300s").await;
    bench.expect(&acquire("a"), "token", "[a, 1] 300s").await;
    bench.command(&format!("DEL {TOKEN}")).await;
    bench.expect(&acquire("a"), "token", "[a, 1] 300s").await;
}

#[tokio::test]
async fn a_zero_byte_does_not_end_the_name_of_a_channel() {
    let mut bench = Bench::start().await;
    let ask = |id| Call::new(lua::LOCK_ACQUIRE, &["a\0b", TOKEN], &[id, "30000"]);
    bench.acquired(&ask("x")).await;
    let _listens_elsewhere = bench.subscriber_of("redisson_lock__channel:{a").await;
    let _listens = bench.subscriber_of("redisson_lock__channel:{a\0b}").await;
    assert_eq!(answer(bench.run(&ask("y")).await), "[0, 30s, x, 1]");
}

#[tokio::test]
async fn tokens_strictly_increase() {
    let mut bench = Bench::start().await;
    let mut last = 0;
    for turn in 0..500 {
        let id = format!("lease-{turn}");
        let end = bench.acquired(&acquire(&id)).await;
        assert!(end > last, "{end} follows {last}");
        assert!(end < 1 << 53);
        assert_eq!(bench.counter(TOKEN).await, end, "the counter keeps every digit");
        last = end;
        bench.run(&release(&id)).await.expect("the script runs");
    }
}

#[tokio::test]
async fn a_block_follows_the_servers_time_in_microseconds() {
    let mut bench = Bench::start().await;
    let before = now_us();
    let end = bench.acquired(&acquire("a").block(1_000_000)).await;
    // Server and test read one clock, and both cut off what is below a microsecond.
    assert!(
        (before..=now_us()).contains(&(end - 1_000_000)),
        "{end} does not end a block from now"
    );
}

#[tokio::test]
async fn what_is_not_said_is_as_usual() {
    let mut bench = Bench::start().await;
    let shortest = |id| Call::new(lua::LOCK_ACQUIRE, &[NAME, TOKEN], &[id, "30000"]);
    let before = now_us();
    let end = bench.acquired(&shortest("a")).await;
    assert!((before..=now_us()).contains(&(end - 1)), "{end} is a block of one from now");
    assert_eq!(bench.state().await, "[a, 1] 30s");
    assert_eq!(bench.counter(TOKEN).await, end);
    let kept = bench.number(&format!("PTTL {TOKEN}")).await;
    assert!((86_340_000..=86_400_000).contains(&kept), "a day, not {kept} ms");
    let subscriber = bench.subscriber().await;
    bench.expect(&shortest("b"), "[0, 30s, a, 1]", "[a, 1] 30s").await;
    let release = Call::new(lua::LOCK_RELEASE, &[NAME, TOKEN], &["a", CHANNEL]);
    bench.expect_twice(&release, ["2", "0"], "none").await;
    drop(subscriber);
}

#[tokio::test]
async fn a_name_with_a_tag_of_its_own_has_the_channel_of_that_name() {
    let mut bench = Bench::start().await;
    let name = "a{b}c";
    let acquire = |id| Call::new(lua::LOCK_ACQUIRE, &[name, TOKEN], &[id, "30000"]);
    bench.server.keeps(name);
    bench.acquired(&acquire("a")).await;
    let subscriber = bench.subscriber_of("redisson_lock__channel:a{b}c").await;
    assert_eq!(answer(bench.run(&acquire("b")).await), "[0, 30s, a, 1]");
    drop(subscriber);
}

#[tokio::test]
async fn a_block_belongs_to_one_lease() {
    let mut bench = Bench::start().await;
    let ahead = now_us() + 3_600_000_000;
    bench.command(&format!("SET {TOKEN} {ahead}")).await;
    let first = bench.acquired(&acquire("a").block(1000)).await;
    assert_eq!(first, ahead + 1000);
    bench.run(&release("a")).await.expect("the script runs");
    let second = bench.acquired(&acquire("b").block(7)).await;
    assert_eq!(second, first + 7);
}

#[tokio::test]
async fn a_counter_ahead_of_the_clock_goes_on_from_where_it_is() {
    for (retention_ms, kept) in [(0, "-1"), (86_400_000, "1d")] {
        let mut bench = Bench::start().await;
        let ahead = now_us() + 3_600_000_000;
        bench.command(&format!("SET {TOKEN} {ahead}")).await;
        let call = acquire("a").retention_ms(retention_ms);
        assert_eq!(bench.acquired(&call).await, ahead + 1);
        assert_eq!(bench.acquired(&call).await, ahead + 1, "sent again");
        assert_eq!(bench.counter(TOKEN).await, ahead + 1);
        assert_eq!(bench.ask(&format!("PTTL {TOKEN}")).await, kept, "for as long as any other");
    }
}

#[tokio::test]
async fn a_counter_behind_the_clock_catches_up() {
    let mut bench = Bench::start().await;
    let before = now_us();
    bench.command(&format!("SET {TOKEN} 3")).await;
    assert!(bench.acquired(&acquire("a")).await > before);
}

#[tokio::test]
async fn a_lost_counter_does_not_repeat_tokens() {
    let mut bench = Bench::start().await;
    let first = bench.acquired(&acquire("a")).await;
    bench.run(&release("a")).await.expect("the script runs");
    bench.command(&format!("DEL {TOKEN}")).await;
    let second = bench.acquired(&acquire("b")).await;
    assert!(second > first);

    // Lost while the lock is held: a repeated send takes new tokens, and keeps the lock.
    bench.command(&format!("DEL {TOKEN}")).await;
    let third = bench.acquired(&acquire("b").ttl_ms(300_000)).await;
    assert!(third > second);
    assert_eq!(bench.counter(TOKEN).await, third);
    assert_eq!(bench.state().await, "[b, 1] 300s");
}

#[tokio::test]
async fn the_counter_is_kept_for_its_retention() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a").retention_ms(300_000)).await;
    assert_eq!(bench.ask(&format!("PTTL {TOKEN}")).await, "300s");
    bench.run(&release("a")).await.expect("the script runs");
    assert_eq!(bench.ask(&format!("PTTL {TOKEN}")).await, "300s", "it outlives the lock");

    bench.acquired(&acquire("b").retention_ms(86_400_000)).await;
    assert_eq!(bench.ask(&format!("PTTL {TOKEN}")).await, "1d", "it starts anew with each lease");
    bench.run(&release("b")).await.expect("the script runs");

    bench.acquired(&acquire("c").retention_ms(0)).await;
    assert_eq!(bench.ask(&format!("PTTL {TOKEN}")).await, "-1", "zero is for ever");
}

#[tokio::test]
async fn a_refusal_takes_no_tokens() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&acquire("a")).await;
    bench.expect(&acquire("b").block(1000), "[0, 30s, a, 0]", "[a, 1] 30s").await;
    assert_eq!(bench.counter(TOKEN).await, end);
}

#[tokio::test]
async fn a_lock_without_an_end_is_refused_as_such() {
    let mut bench = Bench::start().await;
    bench.command(&format!("HSET {NAME} left-by-hand 1")).await;
    bench.expect(&acquire("a"), "[0, -1, left-by-hand, 0]", "[left-by-hand, 1] -1").await;
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays() {
    let mut bench = Bench::start().await;
    for (line, kind) in [("SET orders x", "string"), ("RPUSH orders x", "list")] {
        bench.command("DEL orders").await;
        bench.command(line).await;
        bench.expect(&acquire("a"), "WRONGTYPE", kind).await;
        assert_eq!(bench.ask(&format!("EXISTS {TOKEN}")).await, "0");
    }
}

#[tokio::test]
async fn a_counter_of_another_type_leaves_no_lock() {
    let mut bench = Bench::start().await;
    bench.command(&format!("RPUSH {TOKEN} x")).await;
    bench.expect(&acquire("a"), "WRONGTYPE", "none").await;
}

#[tokio::test]
async fn an_acquire_that_lacks_a_right_leaves_no_lock() {
    let mut bench = Bench::start().await;
    for lacking in ["exists", "set", "time", "hset", "pexpire"] {
        let without = format!("-{lacking}");
        let rules = ["~*", "&*", "+@all", without.as_str()];
        let reply = bench.run_as(&rules, &acquire("a")).await;
        assert_eq!(answer(reply), "NOPERM", "without {lacking}");
        assert_eq!(bench.state().await, "none", "without {lacking}");
    }
    // And it is free for others.
    bench.expect(&acquire("b"), "token", "[b, 1] 30s").await;
}

#[tokio::test]
async fn a_server_out_of_memory_refuses_acquires_and_lets_holders_go_on() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.command("CONFIG SET maxmemory-policy noeviction").await;
    bench.command("CONFIG SET maxmemory 1").await;

    bench.expect(&acquire("b"), "[0, 30s, a, 0]", "[a, 1] 30s").await;
    bench.expect_twice(&renew("a", 1, 300_000), ["1"; 2], "[a, 1] 300s").await;
    // A count is refused where nothing else is written: the lease goes on all the same.
    bench.expect_twice(&renew("a", 2, 0), ["1"; 2], "[a, 1] 300s").await;
    bench.expect_twice(&release("a"), ["1", "0"], "none").await;
    bench.expect(&acquire("b"), "OOM", "none").await;

    bench.command("CONFIG SET maxmemory 0").await;
    bench.expect(&acquire("b"), "token", "[b, 1] 30s").await;
    bench.command("CONFIG SET maxmemory 1").await;
    bench.expect(&acquire("b").ttl_ms(300_000), "token", "[b, 1] 300s").await;
    bench.expect(&force_unlock(), "1", "none").await;
}

/// This machine's time, which is the server's.
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    i64::try_from(since.as_micros()).expect("the time fits")
}
