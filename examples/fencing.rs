//! Fences a write: the resource refuses a token lower than the highest that it has seen.
//!
//! A process can be stopped between `is_held()` and its write, and no lock can help that. The resource
//! can. In SQL, with a column `token BIGINT NOT NULL DEFAULT 0` beside the data:
//!
//! ```sql
//! UPDATE stock SET amount = $1, token = $2 WHERE item = $3 AND token <= $2;  -- 0 rows: too late
//! ```

use leasehold::{Client, Guard};

/// Writes to a hash, unless somebody with a higher token wrote to it before. Whether it was written.
const WRITE: &str = "
    if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then return 0 end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])
    return 1";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let data = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
    let write = async |guard: &Guard, amount: u32| -> redis::RedisResult<bool> {
        let script = redis::Script::new(WRITE);
        let mut call = script.key("example:stock:data");
        call.arg(guard.token()).arg(amount).invoke_async(&mut data.clone()).await
    };

    let stock = Client::connect(&url).await?.mutex("example:stock");
    let slow = stock.lock().await?;
    assert!(write(&slow, 10).await?);
    // While `slow` believes that it holds the lock, another gets it: here by force.
    Client::connect(&url).await?.mutex("example:stock").force_unlock().await?;
    let next = Client::connect(&url).await?.mutex("example:stock").lock().await?;
    assert!(write(&next, 9).await?);
    println!("token {} wrote", next.token());
    assert!(!write(&slow, 8).await?, "the late write was not refused");
    println!("token {} came late and was refused, is_held: {}", slow.token(), slow.is_held());
    Ok(next.unlock().await?)
}
