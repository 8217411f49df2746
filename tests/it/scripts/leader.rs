//! `leader_proclaim.lua` and `leader_status.lua`

use super::bench::{Bench, Call, NAME, acquire, release};
use crate::support::lua;

const LEADER: &str = "leasehold_leader:{orders}";
const CHANNEL: &str = "leasehold_leader__channel:{orders}";

fn proclaim(id: &str, term: u64, number: u64, value: &str) -> Call {
    let (term, number) = (term.to_string(), number.to_string());
    let args = [id, &term, &number, "PUBLISH", CHANNEL, "300000", value];
    Call::new(lua::LEADER_PROCLAIM, &[NAME, LEADER], &args)
}

fn take_back(id: &str, term: u64) -> Call {
    proclaim(id, term, 0, "")
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
    bench.expect(&release("a"), "[1, 0]", "none").await;
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
    bench.expect(&release("a"), "[1, 0]", "none").await;
    bench.acquired(&acquire("b")).await;
    bench.expect(&proclaim("b", 9, 1, ""), "1", "[b, 1] 30s").await;
    assert_eq!(said(&mut bench).await, "b 9 1 ");
}

#[tokio::test]
async fn a_leader_takes_back_only_what_it_said_in_its_term() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.expect(&proclaim("a", 7, 1, "x"), "1", "[a, 1] 30s").await;
    let mut observer = bench.subscriber_of(CHANNEL).await;
    for other in [take_back("b", 7), take_back("a", 6), take_back("a", 8)] {
        bench.expect_twice(&other, ["0"; 2], "[a, 1] 30s").await;
        assert_eq!(said(&mut bench).await, "a 7 1 x", "after {other:?}");
    }
    assert!(bench.messages(&mut observer).await.is_empty());
    bench.expect_twice(&take_back("a", 7), ["1", "0"], "[a, 1] 30s").await;
    assert_eq!(said(&mut bench).await, "nil");
    assert_eq!(bench.messages(&mut observer).await, ["7"]);
    // Also when another one leads by now.
    bench.expect(&proclaim("a", 7, 2, "x"), "1", "[a, 1] 30s").await;
    bench.expect(&release("a"), "[1, 0]", "none").await;
    bench.expect(&take_back("a", 7), "1", "none").await;
    assert_eq!(said(&mut bench).await, "nil");
}

#[tokio::test]
async fn the_status_has_the_holder_and_what_was_said() {
    let mut bench = Bench::start().await;
    bench.expect_twice(&status(), ["[-2, nil, nil]"; 2], "none").await;
    bench.acquired(&acquire("a")).await;
    bench.expect(&status(), "[30s, a, nil]", "[a, 1] 30s").await;
    bench.expect(&proclaim("a", 7, 1, "x y"), "1", "[a, 1] 30s").await;
    bench.expect_twice(&status(), ["[30s, a, a 7 1 x y]"; 2], "[a, 1] 30s").await;
    bench.expect(&release("a"), "[1, 0]", "none").await;
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
    bench.command(&format!("LPUSH {LEADER} x")).await;
    bench.expect(&proclaim("a", 7, 1, "x"), "WRONGTYPE", "none").await;
    bench.expect(&status(), "WRONGTYPE", "none").await;
}
