//! Our scripts on data that Redisson left, and Redisson's on ours.
//!
//! Redisson's side is written anew here from a description of its wire format: keys, arguments, replies and messages
//! are those of `RedissonLock` and `RedissonFencedLock` 4.7; the first tests hold it to replies of the original.

use redis::Value;

use super::bench::{
    Bench, CHANNEL, Call, NAME, TOKEN, acquire, answer, force_unlock, force_unlock_if, release,
    renew, status,
};

// Java's owner is `client uuid:thread id`.
const A: &str = "8c4dc58a-7bd1-4d2f-9e53-0b2a4ac4b3a7:1";
const B: &str = "e3d8b0f1-23fa-4d35-a1e3-5c1d6a9b1f02:47";
const TOKEN_KEY: &str = "redisson_lock_token:{orders}";

mod java {
    use super::{CHANNEL, Call, NAME, TOKEN_KEY};

    pub(super) fn acquire(owner: &str, lease_ms: u32) -> Call {
        Call::new(ACQUIRE, &[NAME], &[&lease_ms.to_string(), owner])
    }

    /// `lock` and `tryLock` of the fenced lock.
    pub(super) fn fenced_acquire(owner: &str) -> Call {
        Call::new(FENCED_ACQUIRE, &[NAME, TOKEN_KEY], &["30000", owner])
    }

    /// `lockAndGetToken` and its like.
    pub(super) fn token_acquire(owner: &str) -> Call {
        Call::new(TOKEN_ACQUIRE, &[NAME, TOKEN_KEY], &["30000", owner])
    }

    pub(super) fn release(owner: &str, request: &str) -> Call {
        let latch = latch(request);
        Call::new(RELEASE, &[NAME, CHANNEL, &latch], &["0", "30000", owner, "PUBLISH", "13500"])
    }

    pub(super) fn latch(request: &str) -> String {
        format!("redisson_unlock_latch:{{{NAME}}}:{request}")
    }

    pub(super) fn force_unlock() -> Call {
        Call::new(FORCE_UNLOCK, &[NAME, CHANNEL], &["0", "PUBLISH"])
    }

    /// The watchdog's batch: each key with its owner.
    pub(super) fn renew(held: &[(&str, &str)]) -> Call {
        let (keys, owners): (Vec<_>, Vec<_>) = held.iter().copied().unzip();
        Call::new(RENEW, &keys, &[&["30000"], &owners[..]].concat())
    }

    const ACQUIRE: &str = "
        local free = redis.call('EXISTS', KEYS[1]) == 0
        if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
          redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
          redis.call('PEXPIRE', KEYS[1], ARGV[1])
          return nil
        end
        return redis.call('PTTL', KEYS[1])";

    const FENCED_ACQUIRE: &str = "
        local free = redis.call('EXISTS', KEYS[1]) == 0
        if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
          redis.call('INCR', KEYS[2])
          redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
          redis.call('PEXPIRE', KEYS[1], ARGV[1])
          return nil
        end
        return redis.call('PTTL', KEYS[1])";

    const TOKEN_ACQUIRE: &str = "
        local free = redis.call('EXISTS', KEYS[1]) == 0
        if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
          local token = redis.call('INCR', KEYS[2])
          redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
          redis.call('PEXPIRE', KEYS[1], ARGV[1])
          return {-1, token}
        end
        return {redis.call('PTTL', KEYS[1]), -1}";

    const RELEASE: &str = "
        local before = redis.call('GET', KEYS[3])
        if before then
          return tonumber(before)
        end
        if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
          return nil
        end
        if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
          redis.call('PEXPIRE', KEYS[1], ARGV[2])
          redis.call('SET', KEYS[3], 0, 'PX', ARGV[5])
          return 0
        end
        redis.call('DEL', KEYS[1])
        redis.call(ARGV[4], KEYS[2], ARGV[1])
        redis.call('SET', KEYS[3], 1, 'PX', ARGV[5])
        return 1";

    const FORCE_UNLOCK: &str = "
        if redis.call('DEL', KEYS[1]) == 1 then
          redis.call(ARGV[2], KEYS[2], ARGV[1])
          return 1
        end
        return 0";

    const RENEW: &str = "
        local renewed = {}
        for index, key in ipairs(KEYS) do
          local held = redis.call('HEXISTS', key, ARGV[index + 1])
          if held == 1 then
            redis.call('PEXPIRE', key, ARGV[1])
          end
          renewed[index] = held
        end
        return renewed";
}

#[tokio::test]
async fn java_answers_as_the_original_does() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    let held_once = format!("[{A}, 1] 30s");
    bench.expect(&java::acquire(A, 30_000), "nil", &held_once).await;
    bench.expect(&java::acquire(B, 30_000), "30s", &held_once).await;
    bench.expect(&java::acquire(A, 5_000), "nil", &format!("[{A}, 2] 5s")).await;
    bench.expect(&java::release(B, "r0"), "nil", &format!("[{A}, 2] 5s")).await;
    assert_eq!(bench.ask(&format!("EXISTS {}", java::latch("r0"))).await, "0");

    bench.expect_twice(&java::release(A, "r1"), ["0"; 2], &held_once).await;
    assert_eq!(bench.ask(&format!("GET {}", java::latch("r1"))).await, "0");
    assert_eq!(bench.ask(&format!("PTTL {}", java::latch("r1"))).await, "13.5s");
    assert!(bench.messages(&mut subscriber).await.is_empty());

    bench.expect_twice(&java::release(A, "r2"), ["1"; 2], "none").await;
    assert_eq!(bench.ask(&format!("GET {}", java::latch("r2"))).await, "1");
    bench.expect(&java::release(A, "r3"), "nil", "none").await;
    assert_eq!(bench.messages(&mut subscriber).await, ["0"]);
}

#[tokio::test]
async fn javas_fenced_lock_answers_as_the_original_does() {
    let mut bench = Bench::start().await;
    bench.expect(&java::token_acquire(A), "[-1, 1]", &format!("[{A}, 1] 30s")).await;
    bench.expect(&java::token_acquire(A), "[-1, 2]", &format!("[{A}, 2] 30s")).await;
    bench.expect(&java::token_acquire(B), "[30s, -1]", &format!("[{A}, 2] 30s")).await;
    bench.expect(&java::fenced_acquire(A), "nil", &format!("[{A}, 3] 30s")).await;
    assert_eq!(bench.ask(&format!("GET {TOKEN_KEY}")).await, "3");
    assert_eq!(bench.ask(&format!("PTTL {TOKEN_KEY}")).await, "-1");
}

#[tokio::test]
async fn javas_renewal_answers_as_the_original_does() {
    let mut bench = Bench::start().await;
    bench.command(&format!("HSET k1 {A} 1")).await;
    bench.command(&format!("HSET k3 {A} 1")).await;
    let batch = java::renew(&[("k1", A), ("k2", A), ("k3", A)]);
    assert_eq!(answer(bench.run(&batch).await), "[1, 0, 1]");
    assert_eq!(bench.ask("PTTL k1").await, "30s");
    assert_eq!(bench.ask("EXISTS k2").await, "0");
}

#[tokio::test]
async fn what_java_holds_is_held_for_us() {
    let mut bench = Bench::start().await;
    for _ in 0..2 {
        bench.run(&java::acquire(A, 30_000)).await.expect("the script runs");
    }
    let held_twice = format!("[{A}, 2] 30s");
    bench.expect_twice(&acquire("b"), [&*format!("[0, 30s, {A}, 0]"); 2], &held_twice).await;
    bench.expect_twice(&renew("b", 1, 300_000), ["0"; 2], &held_twice).await;
    bench.expect_twice(&release("b"), ["0"; 2], &held_twice).await;
    bench.expect_twice(&force_unlock_if("b"), ["0"; 2], &held_twice).await;
    let told = format!("[30s, {A}, 2, nil, 0]");
    bench.expect_twice(&status(), [&*told; 2], &held_twice).await;
    assert_eq!(bench.ask(&format!("EXISTS {TOKEN}")).await, "0", "a refusal takes no token");
}

#[tokio::test]
async fn what_java_releases_is_ours_to_take_and_its_message_reaches_us() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    for _ in 0..2 {
        bench.run(&java::acquire(A, 30_000)).await.expect("the script runs");
    }
    bench.expect(&java::release(A, "r1"), "0", &format!("[{A}, 1] 30s")).await;
    bench.expect(&acquire("b"), &format!("[0, 30s, {A}, 1]"), &format!("[{A}, 1] 30s")).await;
    assert!(bench.messages(&mut subscriber).await.is_empty());

    bench.expect(&java::release(A, "r2"), "1", "none").await;
    assert_eq!(bench.messages(&mut subscriber).await, ["0"]);
    bench.expect_twice(&acquire("b"), ["token"; 2], "[b, 1] 30s").await;
}

#[tokio::test]
async fn what_we_hold_is_held_for_java() {
    let mut bench = Bench::start().await;
    bench.acquired_deep("ours", 2).await;
    let ours = "[ours, 2] 30s";
    bench.expect_twice(&java::acquire(A, 5_000), ["30s"; 2], ours).await;
    bench.expect_twice(&java::fenced_acquire(A), ["30s"; 2], ours).await;
    bench.expect_twice(&java::token_acquire(A), ["[30s, -1]"; 2], ours).await;
    bench.expect(&java::release(A, "r1"), "nil", ours).await;
    bench.expect(&java::renew(&[(NAME, A)]), "[0]", ours).await;
    bench.expect(&renew("ours", 1, 300_000), "1", "[ours, 1] 300s").await;
    bench.expect(&java::acquire(A, 5_000), "300s", "[ours, 1] 300s").await;
}

#[tokio::test]
async fn what_we_release_is_javas_to_take_and_our_message_reaches_it() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    bench.acquired_deep("ours", 2).await;
    bench.expect(&release("ours"), "2", "none").await;
    let told = bench.messages(&mut subscriber).await;
    // Java reads each message with `Long.valueOf`, and throws on anything else.
    let told: Vec<i64> = told.iter().map(|message| message.parse().unwrap()).collect();
    assert_eq!(told, [0]);

    let javas = format!("[{A}, 1] 30s");
    bench.expect(&java::acquire(A, 30_000), "nil", &javas).await;
    bench.expect(&release("ours"), "0", &javas).await;
    bench.expect(&renew("ours", 1, 300_000), "0", &javas).await;
}

#[tokio::test]
async fn a_forced_unlock_by_java_ends_our_hold() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    bench.acquired(&acquire("ours")).await;
    bench.expect_twice(&java::force_unlock(), ["1", "0"], "none").await;
    assert_eq!(bench.messages(&mut subscriber).await, ["0"]);
    bench.expect(&renew("ours", 1, 30_000), "0", "none").await;
    bench.expect(&release("ours"), "0", "none").await;
}

#[tokio::test]
async fn a_forced_unlock_by_us_ends_javas_hold() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    for call in [force_unlock(), force_unlock_if(A)] {
        bench.run(&java::acquire(A, 30_000)).await.expect("the script runs");
        bench.expect_twice(&call, ["1", "0"], "none").await;
        assert_eq!(bench.messages(&mut subscriber).await, ["0"]);
        bench.expect(&java::renew(&[(NAME, A)]), "[0]", "none").await;
        bench.expect(&java::release(A, "r1"), "nil", "none").await;
    }
}

#[tokio::test]
async fn a_hash_without_an_end_is_held_for_both() {
    let mut bench = Bench::start().await;
    bench.command(&format!("HSET {NAME} {A} 1")).await;
    let state = format!("[{A}, 1] -1");
    bench.expect(&java::acquire(B, 30_000), "-1", &state).await;
    // Java's client takes this for "acquired": ours must never leave such a hash.
    bench.expect(&java::token_acquire(B), "[-1, -1]", &state).await;
    bench.expect(&acquire("ours"), &format!("[0, -1, {A}, 0]"), &state).await;
}

#[tokio::test]
async fn tokens_increase_across_both_where_they_share_the_counter() {
    let mut bench = Bench::start().await;
    let mut last = 0;
    for turn in 0..3 {
        let reply = bench.run(&java::token_acquire(A)).await.expect("the script runs");
        assert_eq!(reply, Value::Array(vec![Value::Int(-1), Value::Int(last + 1)]));
        assert_eq!(bench.counter(TOKEN_KEY).await, last + 1);
        let request = format!("r{turn}");
        bench.run(&java::release(A, &request)).await.expect("the script runs");

        let call = acquire("ours").block(3).retention_ms(0).with_token_key(TOKEN_KEY);
        let end = bench.acquired(&call).await;
        assert!(end - 2 > last + 1, "our first token, {}, is above Java's {}", end - 2, last + 1);
        assert_eq!(bench.acquired(&call).await, end, "sent again");
        assert_eq!(bench.ask(&format!("PTTL {TOKEN_KEY}")).await, "-1");
        bench.run(&release("ours")).await.expect("the script runs");
        last = end;
    }
}

#[tokio::test]
async fn our_tokens_increase_across_a_hold_of_javas() {
    let mut bench = Bench::start().await;
    let first = bench.acquired(&acquire("ours")).await;
    bench.run(&release("ours")).await.expect("the script runs");
    bench.run(&java::acquire(A, 30_000)).await.expect("the script runs");
    bench.run(&java::release(A, "r1")).await.expect("the script runs");
    assert_eq!(bench.counter(TOKEN).await, first, "the plain lock knows no counter");
    assert!(bench.acquired(&acquire("ours again")).await > first);
}
