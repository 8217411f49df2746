//! Threads of Java's with a red lock and tasks and threads of ours draw turns from one total.

use std::time::{Duration, Instant};

use leasehold_testkit::java::{Java, Version};

use super::{TTL, start_three, urls};
use crate::{
    stampede::{Made, Process, Record, Tokens},
    with_each_redisson,
};

with_each_redisson!(nothing_is_lost_in_a_stampede);

async fn nothing_is_lost_in_a_stampede(version: Version) {
    const TOTAL: u64 = 1_000;
    /// What either side makes at least: the other cannot keep it out.
    const EACH: u64 = TOTAL / 100;
    let servers = start_three().await;
    let urls = urls(&servers);
    let record = Record::in_folder(servers[0].dir(), TOTAL);
    let java = Java::connect_to_all(version, &urls, TTL, "red").await;
    let rust = Process::start(&urls.join(","), &record, (2, 2), Tokens::OfTheirOwn);
    // A virtual machine that has not done it before takes a second for its first turns.
    let alone = Record::in_folder(servers[1].dir(), 40);
    let warmed_up = Made::parse(&java.text("a", &alone.command("red", 4, 1)).await);
    alone.check(&[warmed_up]);
    let began_at = Instant::now();
    let asked = java.ask("a", &record.command("red", 4, 1));
    let told = rust.take_part(2);
    let made = [Made::parse(&asked.await.value()), told.await.expect("no panic")];
    println!("{version:?}: {TOTAL} turns in {:?}: {made:?}", began_at.elapsed());
    record.check(&made);
    assert!(made.iter().all(|made| made.turns >= EACH), "one of them was kept out: {made:?}");
    assert!(began_at.elapsed() < Duration::from_secs(60), "they stood in each other's way");
}
