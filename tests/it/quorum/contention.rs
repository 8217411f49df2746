//! Many clients want one lock: votes are split, and never for ever.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::deployment::{Masters, connected};
use crate::support::Spy;

const TURNS: usize = 50;
/// For 20 clients with 50 turns each, on a slow machine.
const BOUND: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_contenders_split_no_vote_for_ever() {
    contenders_take_their_turns(2).await;
    contenders_take_their_turns(5).await;
    contenders_take_their_turns(20).await;
}

async fn contenders_take_their_turns(count: usize) {
    let masters = Masters::start(3).await;
    let clients = (0..count).map(|n| connected(masters.builder().name(format!("c{n}"))));
    let clients = join_all(clients).await;
    let spy = Spy::on(&masters.0[0]).await;
    let began_at = Instant::now();
    let contenders = clients.iter().cloned().map(|client| {
        tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..TURNS {
                let guard = client.mutex("n").lock().await.expect("its turn comes");
                tokens.push(guard.token());
                assert!(guard.is_held());
                guard.unlock().await.expect("held");
            }
            tokens
        })
    });
    let turns = tokio::time::timeout(BOUND, join_all(contenders)).await;
    let took = began_at.elapsed();
    let turns = turns.unwrap_or_else(|_| panic!("{count} contenders are not through in {BOUND:?}"));
    let mut tokens: Vec<u64> =
        turns.into_iter().flat_map(|turns| turns.expect("no panic")).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), count * TURNS, "a token was given twice");
    masters.nothing_left(&clients.iter().collect::<Vec<_>>()).await;

    let turns = (count * TURNS) as f64;
    let raises: u64 = clients.iter().map(|client| client.stats().second_round_trips).sum();
    println!(
        "{count} contenders on 3 nodes: {turns} turns in {took:?}, {:.2} asks and {:.3} raised tokens a turn",
        spy.count("lock_acquire") as f64 / turns,
        raises as f64 / turns,
    );
}
