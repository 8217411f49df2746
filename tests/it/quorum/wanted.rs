//! Over several masters nobody tells a holder that its lock is wanted: it looks.

use std::time::Instant;

use super::deployment::{MS, Masters};
use crate::checks::soon;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_finds_who_waits_at_the_masters() {
    let masters = Masters::start(3).await;
    let [here, elsewhere] = [masters.client().await, masters.client().await];
    let (lock, other) = (here.mutex("n"), elsewhere.mutex("n"));
    for _ in 0..2 {
        // It has waited for the lock itself, and what it listened to then does not count.
        let before = other.lock().await.expect("free");
        let waits = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await.expect("free in the end") }
        });
        tokio::time::sleep(100 * MS).await;
        before.unlock().await.expect("held");
        let guard = soon("the lock", waits).await.expect("no panic");
        assert!(!guard.is_wanted());
        tokio::time::sleep(1000 * MS).await;
        assert!(!guard.is_wanted(), "nobody waits");

        let began_at = Instant::now();
        let waits = tokio::spawn({
            let other = other.clone();
            async move { other.lock().await.expect("free in the end") }
        });
        soon("it is wanted", guard.wanted()).await;
        let took = began_at.elapsed();
        assert!(took < masters.widened(1000 * MS), "known after {took:?}");
        guard.unlock().await.expect("held");
        soon("the other", waits).await.expect("no panic").unlock().await.expect("held");
    }
    masters.nothing_left(&[&here, &elsewhere]).await;
}
