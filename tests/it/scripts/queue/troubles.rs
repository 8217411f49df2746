//! The queue on a server that refuses something, and with what others left at its key.

use redis::Value;

use super::{NONCE, QUEUE, ask, force, leave, leave_granted, line, listen, queued, told, try_once};
use crate::scripts::{
    bench::{Bench, Call, NAME, TOKEN, answer, crowd_of_the_gone},
    rw::{self, WRITE},
};
use crate::support::lua;

async fn fill(bench: &mut Bench) {
    bench.command("CONFIG SET maxmemory-policy noeviction").await;
    bench.command("CONFIG SET maxmemory 1").await;
}

#[tokio::test]
async fn a_full_server_queues_nobody_and_says_so() {
    let mut bench = Bench::start().await;
    bench.acquired(&ask("a:1")).await;
    fill(&mut bench).await;
    let refused = "[0, 30s, a:1, 0, -1, token, []]";
    bench.expect_twice(&ask("b:1"), [refused; 2], "[a:1, 1] 30s").await;
    assert_eq!(bench.ask(&format!("EXISTS {QUEUE}")).await, "0");
}

#[tokio::test]
async fn a_full_server_grants_and_tells_only_what_it_wrote() {
    let freeing = [leave("a:1"), force()].map(|call| (call, "EXISTS orders"));
    let finding = [try_once("d:1"), ask("d:1")].map(|call| (call, "DEL orders"));
    for (call, before) in freeing.into_iter().chain(finding) {
        let mut bench = Bench::start().await;
        let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
        bench.command(before).await;
        fill(&mut bench).await;
        bench.run(&call).await.expect("the script runs");
        assert_eq!(bench.state().await, "[b:1, 1] 2s");
        assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
        assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"]);
        assert_eq!(queued(&mut bench).await, "c:1");
    }
}

#[tokio::test]
async fn the_first_takes_a_free_lock_on_a_full_server_also_beside_those_on_the_channel() {
    let mut bench = Bench::start().await;
    let [_b, mut c] = line(&mut bench, ["b", "c"]).await;
    let _redisson = bench.subscriber().await;
    bench.command(&format!("DEL {NAME}")).await;
    fill(&mut bench).await;
    bench.expect(&ask("b:1"), "token", "[b:1, 1] 30s").await;
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 30s b:1"]);
}

#[tokio::test]
async fn who_may_not_use_a_key_changes_nothing_and_tells_nothing() {
    for allowed in ["~orders ~leasehold_token:*", "~orders ~leasehold_queue:*"] {
        let mut bench = Bench::start().await;
        let [mut b] = line(&mut bench, ["b"]).await;
        let rules: Vec<&str> = allowed.split(' ').chain(["&*", "+@all"]).collect();
        for call in [ask("c:1"), try_once("c:1"), leave("a:1"), leave("b:1"), force()] {
            let reply = bench.run_as(&rules, &call).await.expect_err("it is refused").to_string();
            assert!(reply.to_lowercase().contains("no permissions to access"), "{reply}");
            assert_eq!(bench.state().await, "[a:1, 1] 30s", "{call:?}");
            assert_eq!(queued(&mut bench).await, "b:1", "{call:?}");
            assert!(told(&mut bench, &mut b).await.is_empty(), "{call:?}");
        }
    }
}

#[tokio::test]
async fn a_grant_that_could_not_be_written_is_not_told() {
    for lacking in ["time", "set", "hset", "pexpire"] {
        let mut bench = Bench::start().await;
        let [mut b] = line(&mut bench, ["b"]).await;
        let without = format!("-{lacking}");
        let reply = bench.run_as(&["~*", "&*", "+@all", &without], &leave("a:1")).await;
        assert_eq!(answer(reply), "NOPERM", "without {lacking}");
        assert_eq!(bench.state().await, "none", "without {lacking}");
        assert!(told(&mut bench, &mut b).await.is_empty(), "without {lacking}");
        // It is in no queue any more until it asks again, and then it gets the lock.
        bench.expect(&ask("b:1"), "token", "[b:1, 1] 30s").await;
    }
}

#[tokio::test]
async fn a_mailbox_that_a_user_may_not_write_to_is_passed_over() {
    let mut bench = Bench::start().await;
    let [mut b, mut c, mut d] = line(&mut bench, ["b", "c", "d"]).await;
    let rules = ["~*", "resetchannels", "&leasehold_mailbox:c:*", "+@all"];
    assert_eq!(answer(bench.run_as(&rules, &leave("a:1")).await), "1");
    assert_eq!(bench.state().await, "[c:1, 1] 2s");
    assert_eq!(queued(&mut bench).await, "d:1");
    assert!(told(&mut bench, &mut b).await.is_empty());
    // The second message makes up for the first, which came before the grant to `b` was refused.
    let letters = ["next c:1 2s b:1", "grant c:1 token 2s token"];
    assert_eq!(told(&mut bench, &mut c).await, letters);
    assert!(told(&mut bench, &mut d).await.is_empty(), "its timers remain");
}

#[tokio::test]
async fn a_lock_whose_grants_all_are_refused_is_free() {
    for rules in [&["~*", "resetchannels", "+@all"][..], &["~*", "&*", "+@all", "-publish"]] {
        for call in [leave("a:1"), leave_granted("a:1")] {
            let mut bench = Bench::start().await;
            let [mut b, _c] = line(&mut bench, ["b", "c"]).await;
            assert_eq!(answer(bench.run_as(rules, &call).await), "1", "{rules:?}");
            assert_eq!(bench.state().await, "none", "{rules:?}");
            assert!(told(&mut bench, &mut b).await.is_empty());
            bench.acquired(&ask("b:1")).await;
        }
    }
}

/// The server does nothing else meanwhile.
#[tokio::test]
async fn a_run_passes_over_five_hundred_at_most_that_a_user_may_not_write_to() {
    let entry = |id: &str| format!("30000 1 {NONCE} {id}");
    let permits = ["api", "holders", "permits"];
    let permit = |script, args: &[&str]| Call::new(script, &permits, args);
    let taken = permit(
        lua::PERMIT_ACQUIRE,
        &["a:1", "1", "30000", "PUBLISH", "channel", "1", "", "0", "NUMSUB"],
    );
    let given =
        permit(lua::PERMIT_RELEASE, &["a:1", "1", "0", "PUBLISH", "channel", "", "", "", "1"]);
    let items = ["jobs", "lent", "workers", "contents", "dead"];
    let kinds = [
        (QUEUE, ask("a:1"), leave("a:1")),
        (rw::QUEUE, rw::ask_as("a:1", WRITE, "", "30000"), rw::leave("a:1", WRITE)),
        ("permits", taken, given),
        (
            "workers",
            Call::new("return 1", &[], &[]),
            Call::new(lua::ITEM_PUSH, &items, &["0", "1"]),
        ),
    ];
    for (queue, first, frees) in kinds {
        let mut bench = Bench::start().await;
        let _mailbox = listen(&bench, "b").await;
        bench.run(&first).await.expect("the script runs");
        crowd_of_the_gone(&mut bench, queue, &entry("b:"), 600).await;
        bench.run_as(&["~*", "+@all", "resetchannels"], &frees).await.expect("the script runs");
        let left = bench.command(&format!("ZCARD {queue}")).await;
        assert_eq!(left, Value::Int(100), "{frees:?}");
    }
}

#[tokio::test]
async fn an_entry_that_is_none_of_ours_is_passed_over() {
    let mut bench = Bench::start().await;
    bench.acquired(&ask("a:1")).await;
    let by_hand = ["", "x", "30000 1 b:1", "soon 1 0 b:1", "30000 1 xyz b:1", "30000 1 0 b"];
    for (arrival, entry) in (0..).zip(by_hand) {
        bench.server.command(&["ZADD", QUEUE, &arrival.to_string(), entry]).await;
    }
    let mut b = listen(&bench, "b").await;
    let place = format!("[0, 30s, a:1, 0, {}, token, []]", by_hand.len());
    bench.expect(&ask("b:1"), &place, "[a:1, 1] 30s").await;
    bench.expect(&leave("a:1"), "[1, 6]", "[b:1, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
    assert_eq!(queued(&mut bench).await, "");
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays() {
    let mut bench = Bench::start().await;
    bench.server.keeps(QUEUE);
    bench.acquired(&ask("a:1")).await;
    bench.command(&format!("SET {QUEUE} x")).await;
    bench.expect(&ask("b:1"), "WRONGTYPE", "[a:1, 1] 30s").await;
    bench.expect(&leave("b:1"), "WRONGTYPE", "[a:1, 1] 30s").await;
    // The lock is freed first.
    bench.expect(&leave("a:1"), "WRONGTYPE", "none").await;
    bench.expect(&ask("a:1"), "WRONGTYPE", "none").await;
    assert_eq!(bench.ask(&format!("TYPE {QUEUE}")).await, "string");
}

/// Such a hash is made by hand, and the lock is held for as long as anything is in it.
#[tokio::test]
async fn a_lock_with_another_field_is_not_granted_when_one_is_taken_out() {
    let mut bench = Bench::start().await;
    let [mut b] = line(&mut bench, ["b"]).await;
    bench.command(&format!("HSET {NAME} by-hand 1")).await;
    let mut listener = bench.subscriber().await;
    bench.expect(&leave("a:1"), "1", "[by-hand, 1] 30s").await;
    assert!(told(&mut bench, &mut b).await.is_empty());
    assert!(bench.messages(&mut listener).await.is_empty());
    assert_eq!(queued(&mut bench).await, "b:1");
}

#[tokio::test]
async fn a_lost_counter_repeats_no_token_for_a_grant() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&ask("a:1")).await;
    let _b = listen(&bench, "b").await;
    bench.run(&ask("b:1")).await.expect("the script runs");
    bench.command(&format!("DEL {TOKEN}")).await;
    bench.run(&leave("a:1")).await.expect("the script runs");
    assert!(bench.counter(TOKEN).await > end);
    assert_eq!(bench.state().await, "[b:1, 1] 2s");
}
