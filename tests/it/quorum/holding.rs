//! Taking, keeping and giving back.

use std::time::Instant;

use super::deployment::{MS, Masters};
use crate::checks::{LIMIT, client_is_idle};
use crate::support::eventually;

#[tokio::test]
async fn a_lock_is_held_on_all_masters_and_freed_on_all() {
    for count in [3, 4, 5] {
        let masters = Masters::start(count).await;
        let client = masters.client().await;
        let mut last_token = 0;
        for _ in 0..3 {
            let guard = client.mutex("orders").lock().await.expect("free");
            assert!(guard.token() > last_token);
            last_token = guard.token();
            let everywhere = async || masters.having("orders").await == count;
            eventually(LIMIT, "the lock is on every master", everywhere).await;
            guard.unlock().await.expect("held");
        }
        let nowhere = async || masters.having("orders").await == 0;
        eventually(LIMIT, "the lock is on no master", nowhere).await;
        client_is_idle(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_min_hold_is_kept_on_a_majority_of_masters() {
    let masters = Masters::start(3).await;
    let (here, elsewhere) = (masters.client().await, masters.client().await);
    let job = here.mutex("job").with_min_hold(1_000 * MS);
    let began_at = Instant::now();
    job.lock().await.expect("free").unlock().await.expect("held");
    let attempt = elsewhere.mutex("job").try_lock().await.expect("asked");
    assert!(attempt.is_none() || began_at.elapsed() >= 1_000 * MS);
    for server in &masters.0 {
        // An unlock waits for a majority.
        let is_short = async || {
            let left = server.command(&["PTTL", "job"]).await;
            redis::from_redis_value::<i64>(left).expect("a number") <= 1_000
        };
        eventually(LIMIT, "it is kept for the rest of the shortest hold", is_short).await;
    }
    let _next = elsewhere.mutex("job").lock_with_timeout(LIMIT).await.expect("free in the end");
    assert!(began_at.elapsed() >= 1_000 * MS, "free after {:?}", began_at.elapsed());
}
