//! `list_page.lua` and `waited_channels.lua`

use std::collections::BTreeSet;

use super::bench::{Bench, Call, answer};
use crate::support::lua;

const OURS: &str = "billing-7:f81d4fae-7dec-41d0-a765-00a0c91e6bf1";
const JAVAS: &str = "f81d4fae-7dec-41d0-a765-00a0c91e6bf1:42";

fn page(cursor: &str, count: u32, pattern: &str, of: &str) -> Call {
    Call::new(lua::LIST_PAGE, &[], &[cursor, &count.to_string(), pattern, of])
}

/// All that the pages name, from the first to the last: "key kind". Also how many pages there were, and the highest number of keys
/// that one told.
async fn all(bench: &mut Bench, count: u32, pattern: &str, of: &str) -> (Vec<String>, u32, i64) {
    let (mut cursor, mut found, mut pages, mut size) =
        ("0".to_owned(), BTreeSet::new(), 0, i64::MIN);
    loop {
        let reply = bench.run(&page(&cursor, count, pattern, of)).await.expect("it runs");
        let (next, keys, took_us, pairs): (String, i64, i64, Vec<String>) =
            redis::from_redis_value(reply).expect("a page");
        assert!((0..10_000_000).contains(&took_us), "{took_us}");
        found.extend(pairs.chunks(2).map(|pair| pair.join(" ")));
        pages += 1;
        size = size.max(keys);
        cursor = next;
        if cursor == "0" {
            return (found.into_iter().collect(), pages, size);
        }
    }
}

async fn keys(bench: &mut Bench) {
    for (key, fields) in [
        ("a", format!("{OURS} 1")),
        ("java", format!("{JAVAS} 2")),
        ("a:rw", format!("mode read {OURS} 1")),
        ("a:odd", "name x".to_owned()),
        ("a:near", format!("{OURS}0 1")),
        ("a:dark", "mode dark name x".to_owned()),
    ] {
        bench.command(&format!("HSET {key} {fields}")).await;
        bench.server.keeps(key);
    }
    bench.command("SET a:text x").await;
    bench.server.keeps("a:text");
    bench.command("ZADD leasehold_queue:{a} 1 x").await;
    bench.server.keeps("leasehold_queue:{a}");
}

#[tokio::test]
async fn a_page_names_locks_and_leaves_out_what_is_none() {
    let mut bench = Bench::start().await;
    keys(&mut bench).await;
    let (found, _, size) = all(&mut bench, 1000, "*", "hash").await;
    assert_eq!(found, ["a lock", "a:rw rw", "java lock"]);
    assert_eq!(size, 8, "all keys count");
    let (found, ..) = all(&mut bench, 1000, "a:*", "hash").await;
    assert_eq!(found, ["a:rw rw"]);
    let (found, ..) = all(&mut bench, 1000, "leasehold_*queue:*", "zset").await;
    assert_eq!(found, ["leasehold_queue:{a} any"]);
    assert_eq!(bench.ask("DBSIZE").await, "8", "it changes nothing");
}

#[tokio::test]
async fn pages_lead_through_all_keys() {
    let mut bench = Bench::start().await;
    bench.server.keeps("n:");
    for number in 0..100 {
        bench.command(&format!("HSET n:{number} {OURS} 1")).await;
    }
    let (found, pages, _) = all(&mut bench, 10, "*", "hash").await;
    assert_eq!(found.len(), 100);
    assert!((4..=20).contains(&pages), "{pages} pages of ten keys, more or less");
}

#[tokio::test]
async fn a_user_sees_only_locks_that_it_may_read_and_the_number_of_keys_only_if_it_may() {
    let mut bench = Bench::start().await;
    keys(&mut bench).await;
    let commands = ["+eval", "+scan", "+hlen", "+hget", "+hrandfield", "+time"];
    let rules = [&["~a*", "-@all"], &commands[..]].concat();
    let reply = bench.run_as(&rules, &page("0", 1000, "*", "hash")).await.expect("it runs");
    let (_, size, _, found): (String, i64, i64, Vec<String>) =
        redis::from_redis_value(reply).expect("a page");
    assert_eq!(size, -1);
    let found: BTreeSet<_> = found.chunks(2).map(|pair| pair.join(" ")).collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a lock", "a:rw rw"]);
    let without: Vec<_> = rules.iter().copied().filter(|right| *right != "+scan").collect();
    let refused = bench.run_as(&without, &page("0", 1000, "*", "hash")).await;
    assert_eq!(answer(refused), "NOPERM");
}

#[tokio::test]
async fn channels_are_named_that_fit_one_of_the_patterns() {
    let mut bench = Bench::start().await;
    let mut subscribers = Vec::new();
    for channel in ["redisson_lock__channel:{a}", "redisson_sc:{s}", "news"] {
        subscribers.push(bench.subscriber_of(channel).await);
    }
    let channels = Call::new(
        lua::WAITED_CHANNELS,
        &[],
        &["CHANNELS", "redisson_lock__channel:*", "redisson_rwlock:*", "redisson_sc:*"],
    );
    let found = answer(bench.run(&channels).await);
    assert_eq!(found, "[redisson_lock__channel:{a}, redisson_sc:{s}]");
}
