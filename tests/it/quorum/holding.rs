//! Taking, keeping and giving back.

use super::deployment::Masters;
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
