//! A critical section under two locks, which are taken together: a transfer from one account to another.

use std::error::Error;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use leasehold::Client;

async fn transfer(
    client: &Client,
    (from, from_balance): (&str, &AtomicI64),
    (to, to_balance): (&str, &AtomicI64),
) -> Result<(), leasehold::Error> {
    // Both or none, whatever the order of the names. The timeout error tells which of them was held, and by whom.
    let guard = client.multi_lock([from, to]).lock_with_timeout(Duration::from_secs(10)).await?;
    for (account, token) in guard.tokens() {
        // A database would be sent each account's token with the write to that account.
        assert!(token > 0 && [from, to].contains(&account));
    }
    let work = async {
        let (before, after) = (from_balance.load(SeqCst) - 1, to_balance.load(SeqCst) + 1);
        tokio::task::yield_now().await;
        from_balance.store(before, SeqCst);
        to_balance.store(after, SeqCst);
    };
    guard.run_until_lost(work).await?; // stops when one of the two is lost
    guard.unlock().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let (a, b) = (AtomicI64::new(100), AtomicI64::new(100));
    let (account_a, account_b) = (("example:account:a", &a), ("example:account:b", &b));

    // Transfers run in both directions at once: taking one lock after the other, in the order of the arguments, would soon
    // deadlock.
    let one_way = async {
        for _ in 0..TRANSFERS {
            transfer(&client, account_a, account_b).await?;
        }
        Ok::<_, leasehold::Error>(())
    };
    let other_way = async {
        for _ in 0..TRANSFERS {
            transfer(&client, account_b, account_a).await?;
        }
        Ok::<_, leasehold::Error>(())
    };
    tokio::try_join!(one_way, other_way)?;
    let balances = (a.load(SeqCst), b.load(SeqCst));
    println!("{} transfers; balances {balances:?}", 2 * TRANSFERS);
    client.shutdown().await;
    assert_eq!(balances, (100, 100), "a transfer was lost");
    Ok(())
}

const TRANSFERS: usize = 50;
