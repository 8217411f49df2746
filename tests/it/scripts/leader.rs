//! `leader_proclaim.lua` and `leader_status.lua`

use super::bench::{Bench, CHANNEL as LOCK_CHANNEL, Call, NAME, TOKEN, acquire, release};
use crate::support::lua;

const LEADER: &str = "leasehold_leader:{orders}";
const CHANNEL: &str = "leasehold_leader__channel:{orders}";

fn proclaim(id: &str, term: u64, number: u64, value: &str) -> Call {
    let (term, number) = (term.to_string(), number.to_string());
    let args = [id, &term, &number, "PUBLISH", CHANNEL, "300000", value];
    Call::new(lua::LEADER_PROCLAIM, &[NAME, LEADER], &args)
}

/// The release of a lease of an election.
fn resign(id: &str) -> Call {
    let args = [id, LOCK_CHANNEL, "PUBLISH", "0", "86400000", "", "", LEADER, CHANNEL];
    Call::new(lua::LOCK_RELEASE, &[NAME, TOKEN], &args)
}

/// A forced unlock, of a lock whose holder may lead.
fn force(id: &str) -> Call {
    let age = if id.is_empty() { "" } else { "0" };
    let args = [id, "PUBLISH", LOCK_CHANNEL, age, "86400000", LEADER, CHANNEL];
    Call::new(lua::FORCE_UNLOCK, &[NAME, TOKEN], &args)
}

fn status() -> Call {
    Call::new(lua::LEADER_STATUS, &[NAME, LEADER], &[])
}

/// What is said, which ends by itself.
async fn said(bench: &mut Bench) -> String {
    let said = bench.ask(&format!("GET {LEADER}")).await;
    if said != "nil" {
        assert_eq!(bench.ask(&format!("PTTL {LEADER}")).await, "300s");
    }
    said
}

#[tokio::test]
async fn only_the_holder_of_the_lock_is_heard() {
    let mut bench = Bench::start().await;
    let mut observer = bench.subscriber_of(CHANNEL).await;
    bench.expect_twice(&proclaim("a", 7, 1, "x"), ["0"; 2], "none").await;
    assert_eq!(said(&mut bench).await, "nil");
    assert!(bench.messages(&mut observer).await.is_empty());
    bench.acquired(&acquire("a")).await;
    bench.expect_twice(&proclaim("b", 7, 1, "x"), ["0"; 2], "[a, 1] 30s").await;
    assert_eq!(said(&mut bench).await, "nil");
    bench.expect_twice(&proclaim("a", 7, 1, "x y "), ["1"; 2], "[a, 1] 30s").await;
    assert_eq!(said(&mut bench).await, "a 7 1 x y ");
    assert_eq!(bench.messages(&mut observer).await, ["7", "7"]);
    bench.expect(&release("a"), "1", "none").await;
    bench.expect(&proclaim("a", 7, 2, "late"), "0", "none").await;
    assert_eq!(said(&mut bench).await, "a 7 1 x y ");
}

#[tokio::test]
async fn what_comes_late_replaces_nothing_newer() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    let mut observer = bench.subscriber_of(CHANNEL).await;
    for (call, reply, then) in [
        (proclaim("a", 7, 2, "new"), "1", "a 7 2 new"),
        (proclaim("a", 7, 1, "old"), "1", "a 7 2 new"),
        // The lease was handed on: another leader, with the next term.
        (proclaim("a", 8, 1, "next"), "1", "a 8 1 next"),
        (proclaim("a", 7, 3, "late"), "0", "a 8 1 next"),
        (proclaim("a", 8, 10, "more"), "1", "a 8 10 more"),
    ] {
        bench.expect(&call, reply, "[a, 1] 30s").await;
        assert_eq!(said(&mut bench).await, then, "after {call:?}");
    }
    assert_eq!(bench.messages(&mut observer).await, ["7", "8", "8"]);
    bench.expect(&release("a"), "1", "none").await;
    bench.acquired(&acquire("b")).await;
    bench.expect(&proclaim("b", 9, 1, ""), "1", "[b, 1] 30s").await;
    assert_eq!(said(&mut bench).await, "b 9 1 ");
}

#[tokio::test]
async fn the_release_of_a_leader_deletes_what_it_said_and_tells_those_who_observe() {
    for ends in [resign("a"), force(""), force("a")] {
        let mut bench = Bench::start().await;
        let mut observer = bench.subscriber_of(CHANNEL).await;
        bench.acquired(&acquire("a")).await;
        // It has said nothing: there is nothing to tell.
        bench.run(&ends).await.expect("the script runs");
        assert!(bench.messages(&mut observer).await.is_empty(), "{ends:?}");
        bench.acquired(&acquire("a")).await;
        bench.expect(&proclaim("a", 7, 1, "x"), "1", "[a, 1] 30s").await;
        // The lease was handed on.
        bench.expect(&proclaim("a", 8, 1, "y"), "1", "[a, 1] 30s").await;
        for other in [(resign("b"), "0"), (force("b"), "0")] {
            bench.expect(&other.0, other.1, "[a, 1] 30s").await;
            assert_eq!(said(&mut bench).await, "a 8 1 y", "after {other:?}");
        }
        assert_eq!(bench.messages(&mut observer).await, ["7", "8"]);
        bench.run(&ends).await.expect("the script runs");
        assert_eq!(said(&mut bench).await, "nil", "after {ends:?}");
        assert_eq!(bench.messages(&mut observer).await, ["0"], "{ends:?}");
        assert_eq!(bench.state().await, "none");
    }
}

/// The lease is over, and another leads or nobody does.
#[tokio::test]
async fn a_release_that_comes_late_deletes_only_what_its_leader_said() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.expect(&proclaim("a", 7, 1, "x"), "1", "[a, 1] 30s").await;
    bench.command(&format!("DEL {NAME}")).await;
    let mut observer = bench.subscriber_of(CHANNEL).await;
    bench.expect_twice(&resign("a"), ["0"; 2], "none").await;
    assert_eq!(said(&mut bench).await, "nil");
    bench.acquired(&acquire("b")).await;
    bench.expect(&proclaim("b", 9, 1, "z"), "1", "[b, 1] 30s").await;
    bench.expect(&resign("a"), "0", "[b, 1] 30s").await;
    assert_eq!(said(&mut bench).await, "b 9 1 z");
    assert_eq!(bench.messages(&mut observer).await, ["0", "9"]);
}

/// A user without rights on what leaders say frees the lock all the same.
#[tokio::test]
async fn whoever_may_not_delete_what_was_said_frees_the_lock_all_the_same() {
    for (ends, reply) in [(resign("a"), "1"), (force(""), "1")] {
        let mut bench = Bench::start().await;
        bench.acquired(&acquire("a")).await;
        bench.expect(&proclaim("a", 7, 1, "x"), "1", "[a, 1] 30s").await;
        let rules = [&format!("~{NAME}")[..], "~leasehold_token:*", "+@all", "&*"];
        let answered = bench.run_as(&rules, &ends).await;
        assert_eq!(super::bench::answer(answered), reply);
        assert_eq!(bench.state().await, "none");
        assert_eq!(said(&mut bench).await, "a 7 1 x");
    }
}

#[tokio::test]
async fn the_status_has_the_holder_and_what_was_said() {
    let mut bench = Bench::start().await;
    bench.expect_twice(&status(), ["[-2, nil, nil]"; 2], "none").await;
    bench.acquired(&acquire("a")).await;
    bench.expect(&status(), "[30s, a, nil]", "[a, 1] 30s").await;
    bench.expect(&proclaim("a", 7, 1, "x y"), "1", "[a, 1] 30s").await;
    bench.expect_twice(&status(), ["[30s, a, a 7 1 x y]"; 2], "[a, 1] 30s").await;
    bench.expect(&release("a"), "1", "none").await;
    bench.expect(&status(), "[-2, nil, a 7 1 x y]", "none").await;
}

#[tokio::test]
async fn a_user_who_may_not_publish_is_heard_all_the_same() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    let call = proclaim("a", 7, 1, "x");
    let reply = bench.run_as(&["~*", "+@all", "resetchannels"], &call).await;
    assert_eq!(super::bench::answer(reply), "1");
    assert_eq!(said(&mut bench).await, "a 7 1 x");
}

#[tokio::test]
async fn keys_of_other_types_are_told() {
    let mut bench = Bench::start().await;
    bench.command(&format!("SET {NAME} text")).await;
    bench.expect(&proclaim("a", 7, 1, "x"), "WRONGTYPE", "string").await;
    bench.expect(&status(), "WRONGTYPE", "string").await;
    bench.command(&format!("DEL {NAME}")).await;
    bench.server.keeps(LEADER);
    bench.command(&format!("LPUSH {LEADER} x")).await;
    bench.expect(&proclaim("a", 7, 1, "x"), "WRONGTYPE", "none").await;
    bench.expect(&status(), "WRONGTYPE", "none").await;
    bench.command(&format!("DEL {LEADER}")).await;
    bench.command(&format!("HSET {NAME} mode write b:write 1")).await;
    bench.command(&format!("PEXPIRE {NAME} 30000")).await;
    bench.expect(&status(), "WRONGTYPE", "[mode, write, b:write, 1] 30s").await;
}
