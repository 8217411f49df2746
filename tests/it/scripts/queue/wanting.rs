//! The first in the queue tells the holder that it waits.

use super::*;
use crate::support::lua;

/// A holder whose id ends with the number of its mailbox.
const HOLDER: &str = "h:01234567-89ab-4def-c123-456789abcdef";
const MAILBOX: &str = "leasehold_mailbox:h:c123456789abcdef";

#[tokio::test]
async fn only_the_first_in_the_queue_tells_the_holder_each_time_that_it_asks() {
    let mut bench = Bench::start().await;
    let mut holder = bench.subscriber_of(MAILBOX).await;
    let _waiters = [listen(&bench, "b").await, listen(&bench, "c").await];
    bench.acquired(&ask(HOLDER)).await;
    let wanted = [format!("wanted {HOLDER}")];
    for (call, tells) in [
        (try_once("b:1"), false),
        (ask("b:1"), true),
        (ask("c:1"), false),
        (ask("b:1"), true),
        (try_once("c:2"), false),
        (leave("b:1"), false),
        (ask("c:1"), true),
        (ask(HOLDER), false),
    ] {
        bench.run(&call).await.expect("the script runs");
        let told = bench.messages(&mut holder).await;
        assert_eq!(told, wanted[..usize::from(tells)], "{call:?}");
    }
    bench.run(&leave(HOLDER)).await.expect("the script runs");
    assert!(bench.messages(&mut holder).await.is_empty());
}

#[tokio::test]
async fn a_holder_whose_id_names_no_mailbox_is_told_nothing() {
    let mut bench = Bench::start().await;
    let mut holder = bench.subscriber_of(MAILBOX).await;
    let _waiter = listen(&bench, "b").await;
    for id in [
        "h:01234567-89ab-4def-8123-456789abcdef",
        "h:01234567-89ab-4def-c123-456789abcdef:7",
        "01234567-89ab-4def-c123-456789abcdef:7",
        "h:1",
    ] {
        bench.acquired(&ask(id)).await;
        bench.run(&ask("b:1")).await.expect("the script runs");
        assert!(bench.messages(&mut holder).await.is_empty(), "{id}");
        bench.command("FLUSHALL").await;
    }
    // Who may not tell waits all the same.
    bench.acquired(&ask(HOLDER)).await;
    let rules = ["~*", "+@all", "resetchannels", "&leasehold_mailbox:b:*"];
    bench.run_as(&rules, &ask("b:1")).await.expect("the script runs");
    assert_eq!(queued(&mut bench).await, "b:1");
    assert!(bench.messages(&mut holder).await.is_empty());
}

#[tokio::test]
async fn a_look_finds_who_waits_in_the_queue_or_on_the_channel() {
    let mut bench = Bench::start().await;
    let look = Call::new(lua::WAITING_LOOK, &[QUEUE], &[CHANNEL, "NUMSUB"]);
    let without_queue = Call::new(lua::WAITING_LOOK, &[], &[CHANNEL, "NUMSUB"]);
    bench.acquired(&ask("a:1")).await;
    bench.expect(&look, "0", "[a:1, 1] 30s").await;
    let _mailboxes = line(&mut bench, ["b", "c"]).await;
    bench.expect(&look, "1", "[a:1, 1] 30s").await;
    bench.expect(&without_queue, "0", "[a:1, 1] 30s").await;
    let _listener = bench.subscriber().await;
    bench.expect(&look, "2", "[a:1, 1] 30s").await;
    bench.expect(&without_queue, "1", "[a:1, 1] 30s").await;
}
