//! A limit on how many requests all processes together send to a service: so many at once, and so many per window.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use leasehold::{Client, Semaphore};

/// What the other service allows: so many requests at once, and so many in any window.
const AT_ONCE: u32 = 2;
const PER_WINDOW: u32 = 5;
const WINDOW: Duration = Duration::from_millis(500);

/// The limits, which all processes share by their names.
struct Limits {
    at_once: Semaphore,
    rate: Semaphore,
}

impl Limits {
    fn new(client: &Client) -> Self {
        Self {
            at_once: client.semaphore("example:rate_limit:at-once").with_permits(AT_ONCE),
            // A permit of the rate is never given back: it comes back when its lease ends.
            rate: client
                .semaphore("example:rate_limit:rate")
                .with_permits(PER_WINDOW)
                .with_lease(WINDOW),
        }
    }

    /// Runs a request when the limits allow it. If the process crashes, its permits come back by themselves.
    async fn send<T>(&self, request: impl Future<Output = T>) -> Result<T, leasehold::Error> {
        let permit = self.at_once.acquire().await?;
        self.rate.acquire().await?.spend();
        let answer = permit.run_until_lost(request).await?;
        permit.release().await?;
        Ok(answer)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // They stand for two processes.
    let clients = [Client::connect(&url).await?, Client::connect(&url).await?];
    let limits = clients.each_ref().map(Limits::new);
    let (running, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let request = async || {
        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        running.fetch_sub(1, SeqCst);
    };

    let began_at = Instant::now();
    let requests = (0..3 * PER_WINDOW as usize).map(|number| limits[number % 2].send(request()));
    futures_util::future::try_join_all(requests).await?;
    let took = began_at.elapsed();
    println!("{} requests took {took:?}, {} at once", 3 * PER_WINDOW, most.load(SeqCst));
    assert!(took >= 2 * WINDOW, "more than {PER_WINDOW} in a window");
    assert!(most.load(SeqCst) <= AT_ONCE, "more than {AT_ONCE} at once");
    for client in clients {
        client.shutdown().await;
    }
    Ok(())
}
