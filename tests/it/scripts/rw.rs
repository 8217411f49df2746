//! The scripts of the read-write lock: `rw_*.lua` and `read_renew.lua`.
//!
//! As in `queue.rs`, the clients are `a`, `b`, `c`, each with one lease; `a:1` reads and `a:1:write` writes. To the scripts these
//! are ids of ours, with an end that is not shown.

use super::bench::{
    Bench, Call, NAME, OURS, Subscriber, TOKEN, acquire, answer, crowd_of_the_gone, number_text,
    renew,
};
use crate::support::lua;

pub(super) const QUEUE: &str = "leasehold_rw_queue:{orders}";
const CHANNEL: &str = "redisson_rwlock:{orders}";
const NONCE: &str = "0123456789abcdef";
pub(super) const READ: &str = "read";
pub(super) const WRITE: &str = "write";

pub(super) fn entry(id: &str, side: &str) -> String {
    format!("30000 {} {NONCE} {id}{OURS}", u8::from(side == WRITE))
}

fn ours(id: &str) -> String {
    format!("{id}{OURS}")
}

fn call(script: &'static str, args: &[&str]) -> Call {
    Call::new(script, &[NAME, TOKEN, QUEUE], args)
}

pub(super) fn ask_as(id: &str, side: &str, entry: &str, ttl_ms: &str) -> Call {
    let block = if side == WRITE { "1" } else { "0" };
    let more = [entry, "0", "NUMSUB", side, "PUBLISH"];
    let first = [&*ours(id), "1", ttl_ms, block, "0", "1", CHANNEL];
    call(lua::RW_ACQUIRE, &[&first[..], &more[..]].concat())
}

/// An acquire that queues.
fn ask(id: &str, side: &str) -> Call {
    ask_as(id, side, &entry(id, side), "30000")
}

/// An acquire that does not queue.
fn try_once(id: &str, side: &str) -> Call {
    ask_as(id, side, "", "30000")
}

fn downgrade(id: &str, from: &str) -> Call {
    downgrade_as(id, from, "30000")
}

pub(super) fn downgrade_as(id: &str, from: &str, ttl_ms: &str) -> Call {
    let (id, from) = (&*ours(id), &*ours(from));
    let args = [id, "1", ttl_ms, "0", "0", "1", CHANNEL, "", "0", "NUMSUB", READ, "PUBLISH", from];
    call(lua::RW_ACQUIRE, &args)
}

pub(super) fn leave_as(id: &str, side: &str, granted: &str) -> Call {
    let args = [&*ours(id), "PUBLISH", CHANNEL, side, "0", &entry(id, side), granted];
    call(lua::RW_RELEASE, &args)
}

fn leave_later(id: &str, side: &str, keep_ms: &str) -> Call {
    let args = [&*ours(id), "PUBLISH", CHANNEL, side, "0", &entry(id, side), "0", keep_ms];
    call(lua::RW_RELEASE, &args)
}

pub(super) fn leave(id: &str, side: &str) -> Call {
    leave_as(id, side, "0")
}

pub(super) fn renew_reader(id: &str, ttl_ms: u32) -> Call {
    Call::new(lua::READ_RENEW, &[NAME], &[&ours(id), &ttl_ms.to_string()])
}

/// Of this lease.
fn force(id: &str, age_us: &str) -> Call {
    force_as(&ours(id), age_us)
}

fn force_as(id: &str, age_us: &str) -> Call {
    call(lua::RW_FORCE_UNLOCK, &[id, "PUBLISH", CHANNEL, age_us, "0"])
}

/// Of whoever has the lock.
fn force_all() -> Call {
    force_as("", "")
}

fn reclaim(id: &str, side: &str, first: i64, last: i64) -> Call {
    reclaim_queued(id, side, first, last, "")
}

/// Of a lease that had that entry in the queue.
fn reclaim_queued(id: &str, side: &str, first: i64, last: i64, entry: &str) -> Call {
    let (first, last) = (first.to_string(), last.to_string());
    call(lua::RW_RECLAIM, &[&ours(id), "1", "30000", &first, &last, "0", entry, side])
}

fn end_key(id: &str) -> String {
    end_of_level(&ours(id), 1)
}

fn end_of_level(id: &str, level: u32) -> String {
    format!("{{{NAME}}}:{id}:rwlock_timeout:{level}")
}

pub(super) async fn listen(bench: &Bench, client: &str) -> Subscriber {
    bench.subscriber_of(&format!("leasehold_mailbox:{client}:{NONCE}")).await
}

/// What a client was told since it was asked last.
async fn told(bench: &mut Bench, mailbox: &mut Subscriber) -> Vec<String> {
    let messages = bench.messages(mailbox).await;
    let shown = |word: &str| word.parse().map_or_else(|_| word.replace(OURS, ""), number_text);
    messages
        .iter()
        .map(|message| message.split(' ').map(shown).collect::<Vec<_>>().join(" "))
        .collect()
}

async fn queued(bench: &mut Bench) -> String {
    let entries = bench.command(&format!("ZRANGE {QUEUE} 0 -1")).await;
    let entries: Vec<String> = redis::from_redis_value(entries).expect("a list of entries");
    let ids = entries.iter().map(|entry| entry.rsplit(' ').next().expect("an id"));
    ids.map(|id| id.replace(OURS, "")).collect::<Vec<_>>().join(" ")
}

/// Has them ask in this order. Returns their mailboxes.
async fn line<const N: usize>(bench: &mut Bench, asking: [(&str, &str); N]) -> [Subscriber; N] {
    let mut mailboxes = Vec::new();
    for (id, side) in asking {
        mailboxes.push(listen(bench, &id[..1]).await);
        bench.run(&ask(id, side)).await.expect("the script runs");
    }
    mailboxes.try_into().unwrap_or_else(|_| unreachable!("one for each"))
}

#[tokio::test]
async fn readers_share_what_a_writer_has_alone() {
    let mut bench = Bench::start().await;
    bench.expect_twice(&try_once("a:1", READ), ["[1, token]"; 2], "[mode, read, a:1, 1] 30s").await;
    let two = "[mode, read, a:1, 1, b:1, 1] 30s";
    bench.expect_twice(&try_once("b:1", READ), ["[1, token]"; 2], two).await;
    bench.expect(&try_once("c:1", WRITE), "[0, 30s, a:1, 0, -1, token, []]", two).await;
    bench.expect_twice(&leave("a:1", READ), ["[1, 0]", "[0, 0]"], "[mode, read, b:1, 1] 30s").await;
    bench.expect_twice(&leave("b:1", READ), ["[1, 0]", "[0, 0]"], "none").await;
    let writing = "[mode, write, c:1:write, 1] 30s";
    // A confirmation does not know what was before.
    let replies = ["[1, token, token]", "[1, token]"];
    bench.expect_twice(&try_once("c:1", WRITE), replies, writing).await;
    for side in [READ, WRITE] {
        bench.expect(&try_once("a:1", side), "[0, 30s, c:1, 0, -1, token, []]", writing).await;
    }
    bench.expect_twice(&leave("c:1", WRITE), ["[1, 0]", "[0, 0]"], "none").await;
    assert_eq!(bench.ask("KEYS *").await, format!("[{TOKEN}]"), "nothing else is left");
}

#[tokio::test]
async fn a_reader_has_the_token_of_the_last_writer() {
    let mut bench = Bench::start().await;
    let first = bench.acquired(&try_once("a:1", READ)).await;
    assert_eq!(bench.counter(TOKEN).await, first, "it begins the counter");
    bench.run(&leave("a:1", READ)).await.expect("the script runs");
    let mut last = first;
    for turn in 0..20 {
        let id = format!("a:{turn}");
        let written = bench.acquired(&try_once(&id, WRITE)).await;
        assert!(written > last, "{written} follows {last}");
        assert_eq!(bench.acquired(&downgrade("b:1", &id)).await, written);
        assert_eq!(bench.acquired(&try_once("c:1", READ)).await, written);
        for reader in ["b:1", "c:1"] {
            bench.run(&leave(reader, READ)).await.expect("the script runs");
        }
        last = written;
    }
}

#[tokio::test]
async fn a_writer_is_told_the_last_token_before_its_own() {
    let mut bench = Bench::start().await;
    let mut mailbox = listen(&bench, "b").await;
    bench.expect(&try_once("a:0", WRITE), "[1, token]", "[mode, write, a:0:write, 1] 30s").await;
    bench.run(&leave("a:0", WRITE)).await.expect("the script runs");
    for turn in 1..5 {
        let read = bench.acquired(&try_once("c:1", READ)).await;
        bench.run(&leave("c:1", READ)).await.expect("the script runs");
        // By a reply, and by a message.
        let id = format!("a:{turn}");
        let reply = bench.run(&try_once(&id, WRITE)).await.expect("the script runs");
        let (_, written, before): (u32, i64, i64) = redis::from_redis_value(reply).expect("three");
        assert_eq!(before, read, "nobody wrote in between");
        let waits = format!("b:{turn}");
        bench.run(&ask(&waits, WRITE)).await.expect("the script runs");
        bench.run(&leave(&id, WRITE)).await.expect("the script runs");
        let letters = bench.messages(&mut mailbox).await;
        let letter = letters.last().expect("it was told");
        assert!(letter.starts_with(&format!("grant {waits}{OURS} ")), "{letter}");
        assert!(letter.ends_with(&format!(" {written}")), "{letter} after {written}");
        bench.run(&leave(&waits, WRITE)).await.expect("the script runs");
    }
    bench.command(&format!("DEL {TOKEN}")).await;
    bench.expect(&try_once("a:9", WRITE), "[1, token]", "[mode, write, a:9:write, 1] 30s").await;
}

#[tokio::test]
async fn a_release_lets_in_the_next_writer_or_all_readers_before_it() {
    let mut bench = Bench::start().await;
    let order = [("a:1", READ), ("b:1", WRITE), ("c:1", READ), ("d:1", READ), ("e:1", WRITE)];
    let [_a, mut b, mut c, mut d, mut e] = line(&mut bench, order).await;
    let reading = "[mode, read, a:1, 1] 30s";
    bench.expect(&try_once("f:1", READ), "[0, 30s, b:1, 0, -1, token, []]", reading).await;
    assert_eq!(queued(&mut bench).await, "b:1 c:1 d:1 e:1");
    bench.expect(&leave("a:1", READ), "[1, 0]", "[mode, write, b:1:write, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token token"]);
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"]);
    bench.expect(&ask("b:1", WRITE), "[1, token]", "[mode, write, b:1:write, 1] 30s").await;
    let both = "[mode, read, c:1, 1, d:1, 1] 2s";
    bench.expect(&leave_as("b:1", WRITE, "1"), "[1, 0]", both).await;
    assert_eq!(told(&mut bench, &mut c).await, ["grant c:1 token 2s token"]);
    assert_eq!(told(&mut bench, &mut d).await, ["grant d:1 token 2s token"]);
    assert_eq!(told(&mut bench, &mut e).await.len(), 1, "it is the next");
    bench.expect(&leave("c:1", READ), "[1, 0]", "[mode, read, d:1, 1] 2s").await;
    bench.expect(&leave("d:1", READ), "[1, 0]", "[mode, write, e:1:write, 1] 2s").await;
    let told = told(&mut bench, &mut e).await;
    assert_eq!(told.last().expect("told"), "grant e:1 token 2s token token");
    bench.expect(&leave("e:1", WRITE), "[1, 0]", "none").await;
}

#[tokio::test]
async fn readers_come_in_when_the_writer_before_them_leaves_the_queue() {
    let mut bench = Bench::start().await;
    let order = [("a:1", READ), ("b:1", WRITE), ("c:1", READ)];
    let [_a, b, mut c] = line(&mut bench, order).await;
    let both = "[mode, read, a:1, 1, c:1, 1] 30s";
    bench.expect_twice(&leave("b:1", WRITE), ["[0, 0]"; 2], both).await;
    assert_eq!(told(&mut bench, &mut c).await, ["grant c:1 token 2s token"]);
    drop(b);
}

#[tokio::test]
async fn a_release_that_keeps_a_part_shortens_its_time_and_never_lengthens_it() {
    let mut bench = Bench::start().await;
    bench.run(&try_once("a:1", WRITE)).await.expect("the script runs");
    let [mut b] = line(&mut bench, [("b:1", READ)]).await;
    let writing = |time| format!("[mode, write, a:1:write, 1] {time}");
    bench.expect_twice(&leave_later("a:2", WRITE, "1000"), ["[0, 0]"; 2], &writing("30s")).await;
    bench.expect_twice(&leave_later("a:1", WRITE, "40000"), ["[1, 0]"; 2], &writing("30s")).await;
    assert_eq!(told(&mut bench, &mut b).await.last().expect("told"), "next b:1 30s a:1");
    bench.expect_twice(&leave_later("a:1", WRITE, "5000"), ["[1, 0]"; 2], &writing("5s")).await;
    assert_eq!(told(&mut bench, &mut b).await.last().expect("told"), "next b:1 5s a:1");
    bench.expect_twice(&leave_later("a:1", WRITE, "20000"), ["[1, 0]"; 2], &writing("5s")).await;
    let reading = "[mode, read, b:1, 1] 2s";
    bench.expect(&leave_later("a:1", WRITE, "0"), "[1, 0]", reading).await;

    // The hash lasts for as long as the last of several readers.
    bench.run(&try_once("c:1", READ)).await.expect("the script runs");
    let both = "[mode, read, b:1, 1, c:1, 1] 30s";
    bench.expect_twice(&leave_later("c:1", READ, "5000"), ["[1, 0]"; 2], both).await;
    assert_eq!(bench.ask(&format!("PTTL {}", end_key("c:1"))).await, "5s");
    bench.expect_twice(&leave_later("c:1", READ, "9000"), ["[1, 0]"; 2], both).await;
    assert_eq!(bench.ask(&format!("PTTL {}", end_key("c:1"))).await, "5s");
    let alone = "[mode, read, c:1, 1] 30s";
    bench.expect(&leave("b:1", READ), "[1, 0]", alone).await;
    let kept = "[mode, read, c:1, 1] 2s";
    bench.expect_twice(&leave_later("c:1", READ, "2000"), ["[1, 0]"; 2], kept).await;

    // Whose time is over keeps nothing.
    bench.command(&format!("DEL {}", end_key("c:1"))).await;
    bench.expect_twice(&leave_later("c:1", READ, "4000"), ["[1, 0]", "[0, 0]"], "none").await;
}

#[tokio::test]
async fn a_client_that_is_gone_keeps_nobody_out() {
    let mut bench = Bench::start().await;
    let order = [("a:1", READ), ("b:1", WRITE), ("c:1", READ)];
    let [_a, b, c] = line(&mut bench, order).await;
    drop((b, c));
    let limit = crate::checks::LIMIT;
    crate::support::eventually(limit, "the server knows", async || {
        bench.ask("PUBSUB CHANNELS leasehold_mailbox:[bc]:*").await == "[]"
    })
    .await;
    let both = "[mode, read, a:1, 1, d:1, 1] 30s";
    bench.expect(&ask("d:1", READ), "[1, token]", both).await;
    assert_eq!(queued(&mut bench).await, "");
}

#[tokio::test]
async fn a_downgrade_keeps_writers_out_and_lets_readers_in() {
    let mut bench = Bench::start().await;
    let order = [("a:1", WRITE), ("b:1", READ), ("c:1", WRITE)];
    let [_a, mut b, mut c] = line(&mut bench, order).await;
    let both = "[mode, read, a:2, 1, b:1, 1] 30s";
    bench.expect_twice(&downgrade("a:2", "a:1"), ["[1, token]"; 2], both).await;
    assert_eq!(told(&mut bench, &mut b).await.last().expect("told"), "grant b:1 token 2s token");
    assert_eq!(told(&mut bench, &mut c).await.len(), 1);
    bench.expect(&leave("a:1", WRITE), "[0, 0]", both).await;
    for reader in ["a:2", "b:1"] {
        bench.run(&leave(reader, READ)).await.expect("the script runs");
    }
    let writing = "[mode, write, c:1:write, 1] 2s";
    assert_eq!(bench.state().await, writing);
    let late = bench.run(&downgrade("a:3", "a:1")).await;
    assert_eq!(answer(late), "[0, 2s, c:1, 0, -1, token, []]", "its writer is gone");
    assert_eq!(bench.state().await, writing);
}

#[tokio::test]
async fn a_reader_whose_end_has_come_is_gone() {
    let mut bench = Bench::start().await;
    bench.acquired(&try_once("a:1", READ)).await;
    bench.acquired(&try_once("b:1", READ)).await;
    bench.command(&format!("DEL {}", end_key("a:1"))).await;
    let both = "[mode, read, a:1, 1, b:1, 1] 30s";
    bench.expect(&renew_reader("a:1", 30_000), "0", both).await;
    bench.expect(&try_once("c:1", WRITE), "[0, 30s, b:1, 0, -1, token, []]", both).await;
    // Its release frees the lock: nobody else reads.
    bench.expect(&leave("b:1", READ), "[1, 0]", "none").await;
    bench.acquired(&try_once("a:1", READ)).await;
    bench.command(&format!("DEL {}", end_key("a:1"))).await;
    let writing = "[mode, write, c:1:write, 1] 30s";
    bench.expect(&try_once("c:1", WRITE), "[1, token, token]", writing).await;
}

#[tokio::test]
async fn a_renewal_lengthens_the_reader_and_the_lock_and_shortens_nothing() {
    let mut bench = Bench::start().await;
    bench.acquired(&ask_as("a:1", READ, "", "2000")).await;
    bench.expect(&renew_reader("a:1", 30_000), "1", "[mode, read, a:1, 1] 30s").await;
    assert_eq!(bench.ask(&format!("PTTL {}", end_key("a:1"))).await, "30s");
    for ttl_ms in [0, 2_000] {
        bench.expect(&renew_reader("a:1", ttl_ms), "1", "[mode, read, a:1, 1] 30s").await;
        assert_eq!(bench.ask(&format!("PTTL {}", end_key("a:1"))).await, "30s");
    }
    bench.acquired(&ask_as("b:1", READ, "", "2000")).await;
    bench.run(&leave("a:1", READ)).await.expect("the script runs");
    bench.expect(&renew_reader("a:1", 300_000), "0", "[mode, read, b:1, 1] 30s").await;
    bench.run(&leave("b:1", READ)).await.expect("the script runs");
    bench.acquired(&try_once("c:1", WRITE)).await;
    let long = "[mode, write, c:1:write, 2] 300s";
    bench.expect(&renew(&format!("c:1{OURS}:write"), 2, 300_000), "1", long).await;
}

#[tokio::test]
async fn a_reader_never_outlasts_the_lock() {
    let mut bench = Bench::start().await;
    bench.acquired(&ask_as("a:1", READ, "", "300000")).await;
    bench.expect(&try_once("b:1", READ), "[1, token]", "[mode, read, a:1, 1, b:1, 1] 300s").await;
    bench.run(&leave("a:1", READ)).await.expect("the script runs");
    assert_eq!(bench.ask(&format!("PTTL {}", end_key("b:1"))).await, "30s");
}

#[tokio::test]
async fn a_release_tells_redissons_waiters_and_leaves_every_second_turn_to_them() {
    let mut bench = Bench::start().await;
    let mut java = bench.subscriber_of(CHANNEL).await;
    bench.acquired(&try_once("a:1", READ)).await;
    bench.expect(&leave("a:1", READ), "[1, 1]", "none").await;
    bench.acquired(&try_once("a:1", WRITE)).await;
    bench.expect(&leave("a:1", WRITE), "[1, 1]", "none").await;
    assert_eq!(bench.messages(&mut java).await, ["0", "1"]);
    let [_a, mut b, _c] = line(&mut bench, [("a:1", WRITE), ("b:1", WRITE), ("c:1", READ)]).await;
    bench.expect(&leave("a:1", WRITE), "[1, 0]", "[mode, write, b:1:write, 1] 2s").await;
    assert!(bench.messages(&mut java).await.is_empty(), "a writer has it");
    bench.expect(&leave_as("b:1", WRITE, "1"), "[1, 1]", "none").await;
    assert_eq!(bench.messages(&mut java).await, ["1"]);
    // A newcomer does not end the moment in which the lock is open.
    bench.expect(&ask("d:1", READ), "[0, 0, c:1, 1, 1, token, []]", "none").await;
    bench.expect(&ask("c:1", READ), "[1, token]", "[mode, read, c:1, 1] 30s").await;
    assert_eq!(told(&mut bench, &mut b).await.len(), 1);
}

/// Who listens may be a writer of Redisson, which gets in only if all readers end.
#[tokio::test]
async fn while_somebody_listens_readers_join_readers_in_one_of_six_seconds() {
    let mut bench = Bench::start().await;
    let mut java = bench.subscriber_of(CHANNEL).await;
    bench.acquired(&try_once("a:1", READ)).await;
    let one = "[mode, read, a:1, 1] 30s";
    at_second(&mut bench, 0).await;
    bench.expect(&try_once("b:1", READ), "[0, 2s, a:1, 1, -1, token, []]", one).await;
    let out = ["[0, 2s, a:1, 1, 0, token, []]"; 2];
    let [mut b, mut c] = [listen(&bench, "b").await, listen(&bench, "c").await];
    bench.expect_twice(&ask("b:1", READ), out, one).await;
    bench.expect(&ask("c:1", READ), "[0, 30s, b:1, 1, 1, token, []]", one).await;
    // The next one is not let in either, but told when to ask.
    bench.expect(&leave("b:1", READ), "[0, 0]", one).await;
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s a:1"]);
    bench.expect(&ask("b:1", READ), "[0, 30s, c:1, 1, 1, token, []]", one).await;
    assert!(bench.messages(&mut java).await.is_empty());
    // The turn for which they stayed out is open.
    bench.expect(&leave("a:1", READ), "[1, 1]", "none").await;
    assert_eq!(bench.messages(&mut java).await, ["0"]);
    assert_eq!(told(&mut bench, &mut c).await, ["free c:1"]);
    // For a moment it is for those who listen. If nobody took it, they come in together.
    bench.command(&format!("SET {NEXT} {CHANNEL} PX 2000")).await;
    bench.expect(&ask("c:1", READ), &format!("[0, 2s, {CHANNEL}, 1, 0, token, []]"), "none").await;
    bench.command(&format!("DEL {NEXT}")).await;
    let both = "[mode, read, c:1, 1, b:1, 1] 30s";
    bench.expect(&ask("c:1", READ), "[1, token]", both).await;
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
    let first = "[0, 2s, c:1, 1, -1, token, []]";
    let reply = answer(bench.run(&try_once("d:1", READ)).await);
    assert!([first, "[0, 2s, b:1, 1, -1, token, []]"].contains(&&*reply), "{reply}");

    at_second(&mut bench, 5).await;
    bench
        .expect(&try_once("d:1", READ), "[1, token]", "[mode, read, c:1, 1, b:1, 1, d:1, 1] 30s")
        .await;
    drop(java);
    let counted = format!("PUBSUB NUMSUB {CHANNEL}");
    let nobody = format!("[{CHANNEL}, 0]");
    let limit = crate::checks::LIMIT;
    let is_gone = async || bench.ask(&counted).await == nobody;
    crate::support::eventually(limit, "nobody listens", is_gone).await;
    at_second(&mut bench, 0).await;
    bench.acquired(&try_once("e:1", READ)).await;
}

/// Who listens may be busy, or far away; and if it does not come, the readers wait no longer than that.
#[tokio::test]
async fn the_turn_for_which_a_reader_stayed_out_is_open_for_a_tenth_of_a_second() {
    let mut bench = Bench::start().await;
    let _java = bench.subscriber_of(CHANNEL).await;
    bench.acquired(&try_once("a:1", READ)).await;
    let _b = listen(&bench, "b").await;
    at_second(&mut bench, 0).await;
    bench.run(&ask("b:1", READ)).await.expect("the script runs");
    let left = bench.number_after(&leave("a:1", READ), &format!("PTTL {NEXT}")).await;
    assert!((11..=100).contains(&left), "{left} ms");
}

/// Its other readers would keep that writer out all the same.
#[tokio::test]
async fn while_somebody_listens_readers_join_those_of_redisson() {
    let mut bench = Bench::start().await;
    let _java = bench.subscriber_of(CHANNEL).await;
    bench.command(&format!("HSET {NAME} mode read java:1 1")).await;
    bench.command(&format!("PEXPIRE {NAME} 30000")).await;
    at_second(&mut bench, 0).await;
    bench.acquired(&ask("a:1", READ)).await;
}

/// Waits for that second of every six, by the server's clock.
async fn at_second(bench: &mut Bench, second: u64) {
    let limit = crate::checks::LIMIT;
    let is_there = async || {
        let time = bench.command("TIME").await;
        let (seconds, _): (u64, u64) = redis::from_redis_value(time).expect("a time");
        seconds % 6 == second
    };
    crate::support::eventually(limit, "that second comes", is_there).await;
}

/// The turn that is left to Redisson is begun for somebody who lives: who is gone would not end it.
#[tokio::test]
async fn a_release_that_leaves_the_lock_to_redisson_tells_the_first_that_lives() {
    // Readers that wait for a reader stay out, which is a reason, too.
    for (leaves, granted, waits) in [(WRITE, "1", WRITE), (WRITE, "1", READ), (READ, "0", READ)] {
        let mut bench = Bench::start().await;
        bench.acquired(&try_once("a:1", WRITE)).await;
        let _java = bench.subscriber_of(CHANNEL).await;
        let waiting = [("b:1", waits), ("c:1", waits), ("d:1", WRITE)];
        let [b, mut c, mut d] = line(&mut bench, waiting).await;
        if leaves == READ {
            bench.command(&format!("DEL {NAME}")).await;
            bench.command(&format!("HSET {NAME} mode read {} 1", ours("a:1"))).await;
            bench.command(&format!("PEXPIRE {NAME} 30000")).await;
        }
        drop(b);
        gone(&mut bench, "b").await;
        bench.expect(&leave_as("a:1", leaves, granted), "[1, 1, 1]", "none").await;
        assert_eq!(told(&mut bench, &mut c).await, ["free c:1"]);
        assert!(told(&mut bench, &mut d).await.is_empty());
    }
}

/// Nobody else listens for a release of Redisson.
#[tokio::test]
async fn who_asks_behind_redisson_and_a_first_that_is_gone_finds_who_has_to_listen() {
    for (asks, place) in [(ask("c:1", WRITE), 0), (ask("d:1", WRITE), 1)] {
        for mode in [READ, WRITE] {
            let mut bench = Bench::start().await;
            bench.acquired(&try_once("a:1", WRITE)).await;
            let [b, mut c, _d] =
                line(&mut bench, [("b:1", WRITE), ("c:1", WRITE), ("d:1", WRITE)]).await;
            bench.command(&format!("DEL {NAME}")).await;
            let field = if mode == WRITE { format!("{JAVA}:write") } else { JAVA.to_owned() };
            bench.command(&format!("HSET {NAME} mode {mode} {field} 1")).await;
            bench.command(&format!("PEXPIRE {NAME} 30000")).await;
            drop(b);
            gone(&mut bench, "b").await;
            bench.run(&try_once("e:1", WRITE)).await.expect("the script runs");
            assert_eq!(
                queued(&mut bench).await,
                "b:1 c:1 d:1",
                "who has just come looks at nobody"
            );
            let refused = format!("[0, 30s, {JAVA}, 0, {place}, token, []]");
            for is_news in [place != 0, false] {
                bench.expect(&asks, &refused, &format!("[mode, {mode}, {field}, 1] 30s")).await;
                let told = told(&mut bench, &mut c).await;
                let next = format!("next c:1 30s {JAVA}");
                assert_eq!(told, if is_news { vec![next] } else { vec![] }, "{asks:?}");
            }
        }
    }
}

/// That moment is for those who live: the lock may be free for nobody else.
#[tokio::test]
async fn a_newcomer_passes_over_a_first_that_is_gone_also_beside_those_on_the_channel() {
    for side in [READ, WRITE] {
        let mut bench = Bench::start().await;
        bench.acquired(&try_once("a:1", WRITE)).await;
        let [b, mut c] = line(&mut bench, [("b:1", WRITE), ("c:1", READ)]).await;
        let _java = bench.subscriber_of(CHANNEL).await;
        bench.command(&format!("DEL {NAME}")).await;
        drop(b);
        gone(&mut bench, "b").await;
        for told_of in [&["free c:1"][..], &[]] {
            bench.expect(&try_once("d:1", side), "[0, 0, c:1, 1, -1, token, []]", "none").await;
            assert_eq!(told(&mut bench, &mut c).await, told_of, "it is told once");
        }
        drop(c);
        gone(&mut bench, "c").await;
        bench.run(&try_once("d:1", side)).await.expect("the script runs");
        assert_eq!(bench.number(&format!("EXISTS {NAME}")).await, 1, "it has the lock");
        assert_eq!(queued(&mut bench).await, "");
    }
}

/// Thousands of those who are gone cost one run no more than hundreds do, and nobody waits for the rest of them.
#[tokio::test]
async fn a_run_passes_over_so_many_at_most_and_whoever_asks_next_takes_the_lock() {
    for side in [READ, WRITE] {
        let mut bench = Bench::start().await;
        bench.acquired(&try_once("a:1", WRITE)).await;
        crowd_of_the_gone(&mut bench, QUEUE, &entry("gone:", WRITE), 1800).await;
        let left = format!("ZCARD {QUEUE}");
        bench.run(&leave("a:1", WRITE)).await.expect("the script runs");
        assert_eq!(bench.number(&left).await, 1300);
        bench.run(&ask("e:1", side)).await.expect("the script runs");
        assert_eq!(bench.number(&format!("EXISTS {NAME}")).await, 1, "it has the lock");
        assert_eq!(bench.number(&left).await, 800, "without an entry of its own");
    }
}

/// Waits until nobody listens to this client's mailbox.
async fn gone(bench: &mut Bench, client: &str) {
    let count = format!("PUBSUB NUMSUB leasehold_mailbox:{client}:{NONCE}");
    let limit = std::time::Duration::from_secs(10);
    crate::support::eventually(limit, "nobody listens", async || {
        bench.ask(&count).await.ends_with(", 0]")
    })
    .await;
}

/// They come in unheard, and their releases are heard on the channel only.
#[tokio::test]
async fn a_release_beside_readers_of_redisson_tells_the_first_to_listen() {
    tells_the_first_to_listen(|reader| leave(reader, READ)).await;
}

#[tokio::test]
async fn a_forced_unlock_beside_readers_of_redisson_tells_the_first_to_listen() {
    tells_the_first_to_listen(|reader| force(reader, "0")).await;
}

async fn tells_the_first_to_listen(ends: impl Fn(&str) -> Call) {
    let mut bench = Bench::start().await;
    for reader in ["a:1", "c:1"] {
        bench.acquired(&try_once(reader, READ)).await;
    }
    let [mut writer] = line(&mut bench, [("b:1", WRITE)]).await;
    bench.run(&ends("c:1")).await.expect("the script runs");
    assert!(told(&mut bench, &mut writer).await.is_empty(), "ours tells when it leaves");
    java_reads(&mut bench, &[30_000]).await;
    bench.run(&ends("a:1")).await.expect("the script runs");
    assert_eq!(told(&mut bench, &mut writer).await, [format!("next b:1 30s {JAVA}")]);
}

const JAVA: &str = "01234567-89ab-4def-8123-456789abcdef:7";

/// A thread of Redisson comes to the readers. Each of its levels has an end, or none any more.
async fn java_reads(bench: &mut Bench, levels_ms: &[u32]) {
    bench.command(&format!("HSET {NAME} mode read {JAVA} {}", levels_ms.len())).await;
    for (level, ms) in (1..).zip(levels_ms) {
        if *ms > 0 {
            bench.command(&format!("SET {} 1 PX {ms}", end_of_level(JAVA, level))).await;
        }
    }
    bench.command(&format!("PEXPIRE {NAME} 30000")).await;
}

/// Whichever of them comes first.
#[tokio::test]
async fn a_status_ends_with_the_last_of_the_readers() {
    for (first, second) in [("300000", "13500"), ("13500", "300000")] {
        let mut bench = Bench::start().await;
        bench.acquired(&ask_as("a:1", READ, "", first)).await;
        bench.acquired(&ask_as("b:1", READ, "", second)).await;
        let status = call(lua::RW_STATUS, &[CHANNEL, "0", "NUMSUB"]);
        let shown = "[300s, a:1, 1, token, 0, [a:1, b:1], token, []]";
        bench.expect(&status, shown, "[mode, read, a:1, 1, b:1, 1] 300s").await;
    }
}

/// Some of its versions lengthen the hash, and not the ends of its readers.
#[tokio::test]
async fn a_reader_of_redisson_without_an_end_reads_while_the_hash_has_it() {
    for levels_ms in [&[0][..], &[0, 0], &[0, 30_000], &[30_000, 0]] {
        let mut bench = Bench::start().await;
        java_reads(&mut bench, levels_ms).await;
        let count = levels_ms.len();
        let alone = format!("[mode, read, {JAVA}, {count}] 30s");
        let refusal = format!("[0, 30s, {JAVA}, 0, -1, token, []]");
        bench.expect_twice(&try_once("a:1", WRITE), [&*refusal; 2], &alone).await;
        let status = call(lua::RW_STATUS, &[CHANNEL, "0", "NUMSUB"]);
        let shown = format!("[30s, {JAVA}, {count}, nil, 0, [{JAVA}], token, []]");
        bench.expect(&status, &shown, &alone).await;
        // Nor does a reader of ours that comes and goes end it, or one that is put back.
        let both = format!("[mode, read, {JAVA}, {count}, a:1, 1] 30s");
        bench.expect(&try_once("a:1", READ), "[1, token]", &both).await;
        bench.expect(&leave("a:1", READ), "[1, 0]", &alone).await;
        bench.expect(&reclaim("a:1", WRITE, 1, 1), "0", &alone).await;
        bench.command(&format!("PEXPIRE {NAME} 1")).await;
        let is_over = async || bench.ask(&format!("EXISTS {NAME}")).await == "0";
        crate::support::eventually(crate::checks::LIMIT, "the hash ends", is_over).await;
        bench.run(&try_once("a:1", WRITE)).await.expect("the script runs");
        assert_eq!(bench.state().await, "[mode, write, a:1:write, 1] 30s");
    }
}

/// Whichever of its levels have an end still.
#[tokio::test]
async fn a_writer_whose_counter_has_ended_is_only_as_old_as_that_is_kept() {
    let mut bench = Bench::start().await;
    let force =
        |age_us| call(lua::RW_FORCE_UNLOCK, &[&ours("a"), "PUBLISH", CHANNEL, age_us, "60000"]);
    bench.run(&try_once("a", WRITE)).await.expect("the script runs");
    bench.command(&format!("DEL {TOKEN}")).await;
    assert_eq!(answer(bench.run(&force("60000001")).await), "0");
    assert_eq!(answer(bench.run(&force("60000000")).await), "1");
}

#[tokio::test]
async fn a_forced_unlock_ends_all_levels_of_a_reader_of_redisson() {
    for levels_ms in [&[30_000, 30_000][..], &[0, 30_000], &[30_000, 0], &[0, 0], &[0]] {
        for other in [false, true] {
            let mut bench = Bench::start().await;
            java_reads(&mut bench, levels_ms).await;
            let mut left = "none";
            if other {
                bench.acquired(&try_once("a:1", READ)).await;
                left = "[mode, read, a:1, 1] 30s";
            }
            bench.expect_twice(&force_as(JAVA, "0"), ["1", "0"], left).await;
            assert_eq!(bench.ask(&format!("KEYS *{JAVA}*")).await, "[]", "{levels_ms:?}");
        }
    }
}

/// Of few readers all are looked at, of many only some.
#[tokio::test]
async fn of_many_readers_no_live_one_is_taken_for_gone() {
    for (gone, live) in [(3, 1), (7, 1), (8, 1), (300, 1), (300, 3), (2, 300), (40, 40)] {
        let mut bench = Bench::start().await;
        for reader in 0..gone + live {
            bench.acquired(&try_once(&format!("a:{reader:x}"), READ)).await;
        }
        for reader in 0..gone {
            bench.command(&format!("DEL {}", end_key(&format!("a:{reader:x}")))).await;
        }
        for reader in gone..gone + live {
            let refusal = answer(bench.run(&try_once("b:1", WRITE)).await);
            assert!(refusal.starts_with("[0, 30s, a:"), "{refusal} beside {gone} and {live}");
            let leave = leave(&format!("a:{reader:x}"), READ);
            assert_eq!(answer(bench.run(&leave).await), "[1, 0]");
        }
        assert_eq!(bench.state().await, "none", "the last of {live} leaves {gone} that are gone");
    }
}

#[tokio::test]
async fn a_forced_unlock_ends_one_or_all() {
    let mut bench = Bench::start().await;
    for reader in ["a:1", "b:1", "c:1"] {
        bench.acquired(&try_once(reader, READ)).await;
    }
    let two = "[mode, read, b:1, 1, c:1, 1] 30s";
    bench.expect_twice(&force("a:1", "0"), ["1", "0"], two).await;
    bench.expect_twice(&force_all(), ["1", "0"], "none").await;
    assert_eq!(bench.ask("KEYS *").await, format!("[{TOKEN}]"));
    bench.acquired(&try_once("a:1", WRITE)).await;
    bench.expect(&force("b:1", "0"), "0", "[mode, write, a:1:write, 1] 30s").await;
    bench.expect(&force("a:1", "60000000"), "0", "[mode, write, a:1:write, 1] 30s").await;
    bench.expect(&force("a:1", "0"), "1", "none").await;
}

#[tokio::test]
async fn a_lease_is_put_back_unless_another_holds_the_lock() {
    let mut bench = Bench::start().await;
    let written = bench.acquired(&try_once("a:1", WRITE)).await;
    let writing = "[mode, write, a:1:write, 1] 30s";
    bench.expect(&reclaim("b:1", WRITE, written - 1, written - 1), "0", writing).await;
    bench.expect(&reclaim("b:1", READ, written - 1, written - 1), "0", writing).await;
    bench.expect_twice(&reclaim("a:1", WRITE, written, written), ["1"; 2], writing).await;
    bench.command("FLUSHALL").await;
    bench.expect_twice(&reclaim("a:1", WRITE, written, written), ["1"; 2], writing).await;
    assert_eq!(bench.counter(TOKEN).await, written);
    bench.command("FLUSHALL").await;
    let reading = "[mode, read, a:1, 1] 30s";
    bench.expect_twice(&reclaim("a:1", READ, written, written), ["1"; 2], reading).await;
    let both = "[mode, read, a:1, 1, b:1, 1] 30s";
    bench.expect_twice(&reclaim("b:1", READ, written, written), ["1"; 2], both).await;
    bench.expect(&try_once("c:1", WRITE), "[0, 30s, a:1, 0, -1, token, []]", both).await;
}

/// The grant that took it out of the queue was lost, too. Who is refused keeps its place.
#[tokio::test]
async fn a_lease_that_is_put_back_leaves_the_queue() {
    for side in [READ, WRITE] {
        let mut bench = Bench::start().await;
        let order = [("a:1", WRITE), ("b:1", side), ("c:1", WRITE)];
        let _mailboxes = line(&mut bench, order).await;
        let written = bench.counter(TOKEN).await;
        let put_back = |first: i64| reclaim_queued("b:1", side, first, first, &entry("b:1", side));
        let writing = "[mode, write, a:1:write, 1] 30s";
        bench.expect(&put_back(written - 1), "0", writing).await;
        assert_eq!(queued(&mut bench).await, "b:1 c:1");
        let field = if side == READ { "b:1" } else { "b:1:write" };
        let held = format!("[mode, {side}, {field}, 1] 30s");
        bench.expect_twice(&put_back(written + 1), ["1"; 2], &held).await;
        assert_eq!(queued(&mut bench).await, "c:1");
    }
}

/// A reader has the token of the writer before it. So the same counter tells a reader that this writer was over, and the writer
/// nothing about readers.
#[tokio::test]
async fn a_reader_is_put_back_over_the_writer_before_it_and_no_writer_over_its_readers() {
    let mut bench = Bench::start().await;
    let reading = "[mode, read, b:1, 1] 30s";
    let written = bench.acquired(&try_once("a:1", WRITE)).await;
    // The server has lost the release of the writer, and the grant to the reader.
    bench.expect_twice(&reclaim("b:1", READ, written, written), ["1"; 2], reading).await;
    bench.expect(&leave("b:1", READ), "[1, 0]", "none").await;

    let written = bench.acquired(&try_once("a:1", WRITE)).await;
    // The writer does not know of this.
    bench.expect(&force_all(), "1", "none").await;
    assert_eq!(bench.acquired(&try_once("b:1", READ)).await, written);
    bench.expect(&reclaim("a:1", WRITE, written, written), "0", reading).await;
}

#[tokio::test]
async fn a_full_server_ends_renews_and_downgrades_what_is_held() {
    let mut bench = Bench::start().await;
    bench.acquired(&try_once("a:1", READ)).await;
    bench.acquired(&try_once("b:1", READ)).await;
    bench.command("CONFIG SET maxmemory 1").await;
    let both = "[mode, read, a:1, 1, b:1, 1] 300s";
    bench.expect(&renew_reader("a:1", 300_000), "1", both).await;
    bench.expect(&try_once("c:1", READ), "OOM", both).await;
    bench.expect(&leave("a:1", READ), "[1, 0]", "[mode, read, b:1, 1] 300s").await;
    bench.expect(&leave("b:1", READ), "[1, 0]", "none").await;
    bench.command("CONFIG SET maxmemory 0").await;
    bench.acquired(&try_once("a:1", WRITE)).await;
    bench.command("CONFIG SET maxmemory 1").await;
    bench.expect(&downgrade("a:2", "a:1"), "[1, token]", "[mode, read, a:2, 1] 30s").await;
    bench.expect(&leave("a:2", READ), "[1, 0]", "none").await;
}

#[tokio::test]
async fn a_key_of_another_kind_is_left_as_it_is() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a:1")).await;
    let locked = "[a:1, 1] 30s";
    let status = call(lua::RW_STATUS, &[CHANNEL, "0", "NUMSUB"]);
    let calls = [try_once("b:1", READ), try_once("b:1", WRITE), force_all(), status];
    for refused in &calls {
        bench.expect(refused, "WRONGTYPE", locked).await;
    }
    bench.expect(&leave("b:1", READ), "[0, 0]", locked).await;
    bench.command(&format!("DEL {NAME}")).await;
    bench.acquired(&try_once("a:1", READ)).await;
    let reading = "[mode, read, a:1, 1] 30s";
    bench.expect(&acquire("b:1"), "WRONGTYPE", reading).await;
    bench.expect(&super::bench::force_unlock(), "WRONGTYPE", reading).await;
    bench.expect(&super::bench::status(), "WRONGTYPE", reading).await;
    bench.command(&format!("DEL {NAME} {}", end_key("a:1"))).await;
    bench.command(&format!("SET {NAME} x")).await;
    for refused in &calls {
        bench.expect(refused, "WRONGTYPE", "string").await;
    }
}

const NEXT: &str = "leasehold_next:{orders}";

/// An acquire as one of several servers gets it. If it `waits`, it reserves the lock.
fn ask_one_of_several(id: &str, side: &str, waits: bool) -> Call {
    let block = if side == WRITE { "1" } else { "0" };
    let id = &*ours(id);
    let entry = if waits { id } else { "" };
    let args = [id, "1", "30000", block, "0", "1", CHANNEL, entry, "0", "NUMSUB", side, "PUBLISH"];
    Call::new(lua::RW_ACQUIRE, &[NAME, TOKEN], &args)
}

fn leave_one_of_several(id: &str, side: &str, withdraws: bool) -> Call {
    let id = &*ours(id);
    let entry = if withdraws { id } else { "" };
    let args = [id, "PUBLISH", CHANNEL, side, "0", entry, "0"];
    Call::new(lua::RW_RELEASE, &[NAME, TOKEN], &args)
}

#[tokio::test]
async fn over_several_servers_a_refused_writer_keeps_new_readers_out_until_it_leaves() {
    let mut bench = Bench::start().await;
    let reading = "[mode, read, a:1, 1] 30s";
    bench.expect(&ask_one_of_several("a:1", READ, false), "[1, token]", reading).await;
    let [once, waits] = [false, true].map(|waits| ask_one_of_several("b:1", WRITE, waits));
    bench.expect(&once, "[0, 30s, a:1, 0]", reading).await;
    assert_eq!(bench.ask(&format!("EXISTS {NEXT}")).await, "0", "it does not wait");
    bench.expect_twice(&waits, ["[0, 30s, a:1, 0]"; 2], reading).await;
    assert_eq!(bench.ask(&format!("GET {NEXT}")).await, "b:1");
    let left = bench.number_after(&waits, &format!("PTTL {NEXT}")).await;
    assert!((4000..=5000).contains(&left), "{left} ms");

    let newcomer = ask_one_of_several("c:1", READ, false);
    let refused = bench.run(&newcomer).await.expect("the script runs");
    let [held, pttl, by, _]: [redis::Value; 4] =
        redis::from_redis_value(refused).expect("a refusal");
    assert_eq!(held, redis::Value::Int(0));
    assert!(matches!(pttl, redis::Value::Int(1..=5000)), "{pttl:?}");
    let by = redis::from_redis_value::<String>(by).expect("an id");
    assert_eq!(by, ours("b:1"), "the writer is named");
    // Who reads already goes on.
    bench.expect(&ask_one_of_several("a:1", READ, false), "[1, token]", reading).await;

    let mut channel = bench.subscriber_of(CHANNEL).await;
    bench.expect(&leave_one_of_several("b:1", WRITE, false), "[0, 0]", reading).await;
    bench.expect(&leave_one_of_several("b:0", WRITE, true), "[0, 0]", reading).await;
    assert_eq!(bench.ask(&format!("GET {NEXT}")).await, "b:1", "it waits still");
    bench.messages(&mut channel).await;
    let leave = leave_one_of_several("b:1", WRITE, true);
    bench.expect_twice(&leave, ["[0, 0]"; 2], reading).await;
    assert_eq!(bench.messages(&mut channel).await, ["1"], "readers are told, once");
    let both = "[mode, read, a:1, 1, c:1, 1] 30s";
    bench.expect(&newcomer, "[1, token]", both).await;
}

#[tokio::test]
async fn over_several_servers_a_writer_that_gets_the_lock_ends_the_reservation() {
    let mut bench = Bench::start().await;
    bench.acquired(&ask_one_of_several("a:1", READ, false)).await;
    for id in ["b:1", "c:1"] {
        bench.run(&ask_one_of_several(id, WRITE, true)).await.expect("the script runs");
        assert_eq!(bench.ask(&format!("GET {NEXT}")).await, id, "the one that was refused last");
    }
    bench.run(&leave_one_of_several("a:1", READ, true)).await.expect("the script runs");
    bench.acquired(&ask_one_of_several("d:1", WRITE, false)).await;
    let reserved = format!("EXISTS {NEXT}");
    assert_eq!(bench.ask(&reserved).await, "0");
    // Two writers that take turns would keep all readers out.
    bench.run(&ask_one_of_several("b:2", WRITE, true)).await.expect("the script runs");
    assert_eq!(bench.ask(&reserved).await, "0", "it is refused by a writer");
    // Of the writer that has the lock nobody is told that it is free.
    bench.server.command(&["SET", NEXT, &ours("c:1"), "PX", "5000"]).await;
    let mut channel = bench.subscriber_of(CHANNEL).await;
    bench.run(&leave_one_of_several("c:1", WRITE, true)).await.expect("the script runs");
    assert!(bench.messages(&mut channel).await.is_empty());
    assert_eq!(bench.ask(&reserved).await, "0");
    drop(channel);
    // A reader that takes the writer's place needs no leave.
    let [id, from] = ["d:2", "d:1"].map(ours);
    let args =
        [&*id, "1", "30000", "0", "0", "1", CHANNEL, "", "0", "NUMSUB", READ, "PUBLISH", &from];
    let downgrade = Call::new(lua::RW_ACQUIRE, &[NAME, TOKEN], &args);
    bench.expect(&downgrade, "[1, token]", "[mode, read, d:2, 1] 30s").await;
    bench.run(&ask_one_of_several("b:3", WRITE, true)).await.expect("the script runs");
    assert_eq!(bench.ask(&format!("GET {NEXT}")).await, "b:3", "it is refused by a reader");
}

/// With several readers it is one of them.
#[tokio::test]
async fn the_first_in_the_queue_tells_a_holder_that_it_waits() {
    const HOLDER: &str = "h:01234567-89ab-4def-c123-456789abcdef";
    let holder = |side: &str| {
        let block = if side == WRITE { "1" } else { "0" };
        let args =
            [HOLDER, "1", "30000", block, "0", "1", CHANNEL, "", "0", "NUMSUB", side, "PUBLISH"];
        call(lua::RW_ACQUIRE, &args)
    };
    for (held, wants) in [(WRITE, READ), (WRITE, WRITE), (READ, WRITE)] {
        let mut bench = Bench::start().await;
        let mut mailbox = bench.subscriber_of("leasehold_mailbox:h:c123456789abcdef").await;
        let _waiters = [listen(&bench, "b").await, listen(&bench, "c").await];
        bench.run(&holder(held)).await.expect("the script runs");
        let calls = [
            (try_once("b:1", wants), false),
            (ask("b:1", wants), true),
            (ask("c:1", WRITE), false),
            (ask("b:1", wants), true),
        ];
        for (call, tells) in calls {
            bench.run(&call).await.expect("the script runs");
            let told = bench.messages(&mut mailbox).await;
            let wanted = [format!("wanted {HOLDER}")];
            assert_eq!(told, wanted[..usize::from(tells)], "{call:?} while it is held to {held}");
        }
    }
}
