//! Takes a lock again in code that runs under it: by owner, by scope, and inside `run`.

use std::error::Error;

use leasehold::{Client, Owner};

/// Needs the account's lock, and is also called by code that already holds it.
async fn withdraw(client: &Client) -> Result<u32, leasehold::Error> {
    let guard = client.mutex("example:account:7").lock().await?;
    println!("  withdraw: level {}, token {}", guard.hold_count(), guard.token());
    Ok(guard.hold_count())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let account = client.mutex("example:account:7");

    println!("in the body of `run`, which re-enters its own lock");
    let level = account.run(async |_| withdraw(&client).await).await??;
    assert_eq!(level, 2);

    println!("in a scope: every lock taken inside belongs to the request");
    let transfer = async {
        let _outer = account.lock().await?;
        withdraw(&client).await
    };
    assert_eq!(Owner::named("req-17").scope(transfer).await?, 2);

    println!("by a named owner, without a scope; guards may be dropped in any order");
    let me = client.owner();
    let outer = account.owned_by(&me).lock().await?;
    let inner = account.owned_by(&me).lock().await?;
    assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    drop(outer);
    inner.unlock().await?;
    client.shutdown().await;
    Ok(())
}
