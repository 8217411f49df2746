//! Fencing in SQL: the table refuses a write whose token is lower than the highest it has seen.
//!
//! The statement is the same for PostgreSQL, where the column must be a BIGINT.

use std::error::Error;

use leasehold::{Client, Guard};
use rusqlite::{Connection, params};

const TABLE: &str = "
    CREATE TABLE stock (item TEXT PRIMARY KEY, amount INTEGER NOT NULL, token BIGINT NOT NULL)";

const WRITE: &str = "
    INSERT INTO stock (item, amount, token) VALUES (?1, ?2, ?3)
    ON CONFLICT (item) DO UPDATE SET amount = excluded.amount, token = excluded.token
    WHERE stock.token <= excluded.token";

/// Sets an item's amount. Returns false, and writes nothing, if a later holder has written already.
fn write(db: &Connection, guard: &Guard, amount: u32) -> rusqlite::Result<bool> {
    // A token is below 2^53, so it always fits.
    let token = i64::try_from(guard.token()).expect("a token is below 2^53");
    Ok(db.execute(WRITE, params!["apple", amount, token])? == 1)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let (one, other) = (Client::connect(&url).await?, Client::connect(&url).await?);
    let db = Connection::open_in_memory()?;
    db.execute(TABLE, [])?;

    let slow = one.mutex("example:stock").lock().await?;
    assert!(write(&db, &slow, 10)?);
    assert!(write(&db, &slow, 11)?, "the same holder may write again");

    // The slow holder loses the lock, here by force, and does not know it yet.
    other.mutex("example:stock").force_unlock().await?;
    let next = other.mutex("example:stock").lock().await?;
    assert!(write(&db, &next, 9)?);
    println!("the holder with token {} wrote 9", next.token());

    assert!(!write(&db, &slow, 12)?, "a late write was not refused");
    println!("token {} is refused, although is_held() returns {}", slow.token(), slow.is_held());
    let amount: u32 = db.query_row("SELECT amount FROM stock", [], |row| row.get(0))?;
    assert_eq!(amount, 9);
    next.unlock().await?;
    one.shutdown().await;
    other.shutdown().await;
    Ok(())
}
