//! `item_take.lua`, and `item_pop.lua` behind it.

use super::bench::{Bench, Call};
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
