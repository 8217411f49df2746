//! A critical section under several locks, which are taken in one order and by one deadline.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use leasehold::{Client, Guard};

/// Takes the locks of all names within `limit`, or none of them.
async fn lock_all(
    client: &Client,
    names: &[&str],
    limit: Duration,
) -> Result<Vec<Guard>, leasehold::Error> {
    // Sorted and without duplicates: all callers take the locks in the same order, so no two of them can wait for each
    // other.
    let names: BTreeSet<&str> = names.iter().copied().collect();
    let deadline = Instant::now() + limit;
    let mut guards = Vec::new();
    for name in names {
        let left = deadline.saturating_duration_since(Instant::now());
        // An error drops the guards taken so far, which releases their locks.
        guards.push(client.mutex(name).lock_with_timeout(left).await?);
    }
    Ok(guards)
}

/// Returns as soon as one of the locks is lost.
async fn any_lost(guards: &[Guard]) {
    select_all(guards.iter().map(Guard::lost)).await;
}

async fn transfer(
    client: &Client,
    (from, from_balance): (&str, &AtomicI64),
    (to, to_balance): (&str, &AtomicI64),
) -> Result<(), Box<dyn Error>> {
    let guards = lock_all(client, &[from, to], Duration::from_secs(10)).await?;
    let work = async {
        let (before, after) = (from_balance.load(SeqCst) - 1, to_balance.load(SeqCst) + 1);
        tokio::task::yield_now().await;
        from_balance.store(before, SeqCst);
        to_balance.store(after, SeqCst);
    };
    tokio::select! {
        () = work => {}
        () = any_lost(&guards) => return Err("a lock was lost during the transfer".into()),
    }
    for guard in guards {
        guard.unlock().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let (a, b) = (AtomicI64::new(100), AtomicI64::new(100));
    let (account_a, account_b) = (("example:account:a", &a), ("example:account:b", &b));

    // Transfers run in both directions at once: locking in the order of the arguments would soon deadlock.
    let one_way = async {
        for _ in 0..TRANSFERS {
            transfer(&client, account_a, account_b).await?;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let other_way = async {
        for _ in 0..TRANSFERS {
            transfer(&client, account_b, account_a).await?;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::try_join!(one_way, other_way)?;
    let balances = (a.load(SeqCst), b.load(SeqCst));
    println!("{} transfers; balances {balances:?}", 2 * TRANSFERS);
    client.shutdown().await;
    assert_eq!(balances, (100, 100), "a transfer was lost");
    Ok(())
}

const TRANSFERS: usize = 50;
