//! Spawned tasks that share their parent's locks, and concurrent branches that must not share them.

use std::error::Error;

use leasehold::{Client, Owner};
use tokio::task::JoinHandle;

/// Spawns a task that belongs to the owner of the current scope.
fn spawn_owned<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match Owner::current() {
        Some(owner) => tokio::spawn(owner.scope(future)),
        None => tokio::spawn(future),
    }
}

/// Tries to take the account's lock, and returns the level at which it is then held.
async fn level(client: Client) -> Result<Option<u32>, leasehold::Error> {
    let guard = client.mutex("example:account:7").try_lock().await?;
    Ok(guard.map(|guard| guard.hold_count()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;

    let request = async {
        let guard = client.mutex("example:account:7").lock().await?;
        let stranger = tokio::spawn(level(client.clone())).await.expect("no panic")?;
        let ours = spawn_owned(level(client.clone())).await.expect("no panic")?;
        guard.unlock().await?;
        Ok::<_, leasehold::Error>((stranger, ours))
    };
    let (stranger, ours) = Owner::named("req-17").scope(request).await?;
    println!("a plain task: {stranger:?}; a task of the same owner: {ours:?}");
    assert_eq!((stranger, ours), (None, Some(2)));

    // Branches of a `join!` have the same owner, so both get the lock at once. With an owner each, only one does.
    let both_at_once = async |own: bool| {
        let branch = || async {
            let enter = async {
                let guard = client.mutex("example:account:7").try_lock().await?;
                tokio::task::yield_now().await;
                let is_in = guard.is_some();
                // Neither branch drops its guard before the other has tried.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                Ok::<_, leasehold::Error>(is_in)
            };
            if own { Owner::new().scope(enter).await } else { enter.await }
        };
        let (one, other) = tokio::join!(branch(), branch());
        Ok::<_, leasehold::Error>(one? && other?)
    };
    let same = Owner::named("req-18").scope(both_at_once(false)).await?;
    let apart = Owner::named("req-19").scope(both_at_once(true)).await?;
    println!("both branches get the lock with one owner: {same}; with an owner each: {apart}");
    assert_eq!((same, apart), (true, false));
    client.shutdown().await;
    Ok(())
}
