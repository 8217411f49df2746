//! Caches in several processes, from which an entry is removed wherever it has changed.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Client, SignalGroup};

/// Where the prices come from; a database, say.
type Source = Arc<Mutex<HashMap<String, u32>>>;

/// What one process has read of it.
#[derive(Clone, Default)]
struct Cache {
    prices: Arc<Mutex<HashMap<String, u32>>>,
}

impl Cache {
    /// Removes what others change, forever. `seen` is from before the first entry was read.
    async fn keep_up_to_date(
        &self,
        group: SignalGroup,
        mut seen: u64,
    ) -> Result<(), leasehold::Error> {
        loop {
            let changes = match group.changed(seen).await {
                // Nothing is missed: it goes on from the same number.
                Err(error) if error.is_retryable() => continue,
                changes => changes?,
            };
            let mut prices = self.prices.lock().unwrap_or_else(PoisonError::into_inner);
            if changes.missed {
                prices.clear(); // the server knows no more which ones
            }
            for name in &changes.names {
                prices.remove(&**name);
            }
            seen = changes.number;
        }
    }

    fn price(&self, source: &Source, name: &str) -> Option<u32> {
        let mut prices = self.prices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(price) = prices.get(name) {
            return Some(*price);
        }
        let price = *source.lock().unwrap_or_else(PoisonError::into_inner).get(name)?;
        prices.insert(name.to_owned(), price);
        Some(price)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let (reader, writer) = (Client::connect(&url).await?, Client::connect(&url).await?);
    let source = Source::default();
    let prices = writer.signal_group("example:prices");
    let write = async |name: &str, price: u32| {
        source.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), price);
        // After the write: who reads again gets the new price.
        prices.notify([name]).await
    };

    let cache = Cache::default();
    let group = reader.signal_group("example:prices");
    let seen = group.seen().await?;
    let keeping = tokio::spawn({
        let cache = cache.clone();
        async move { cache.keep_up_to_date(group, seen).await }
    });
    for price in 1..=20 {
        write("apples", price).await?;
        // Within the time of a message, or 4 s later at most if that is lost.
        while cache.price(&source, "apples") != Some(price) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    println!("the cache has followed 20 changes");
    keeping.abort();
    reader.shutdown().await;
    writer.shutdown().await;
    Ok(())
}
