//! A file that many processes read and one of them renews now and then, under a read-write lock: no reader sees half of it.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use leasehold::{Client, RwLock};

/// Reads both parts of the file. Other readers do so at the same time.
async fn read(lock: &RwLock, file: &Path) -> Result<(String, u64), Box<dyn Error>> {
    let guard = lock.read().await?;
    let text = std::fs::read_to_string(file)?;
    // The token names the version that was read: it grows with each writer.
    let version = guard.token();
    guard.unlock().await?;
    Ok((text, version))
}

/// Writes the file in two steps, and returns its version. Meanwhile nobody reads.
async fn refresh(lock: &RwLock, file: &Path, number: u32) -> Result<u64, Box<dyn Error>> {
    let guard = lock.write().await?;
    std::fs::write(file, format!("{number} "))?;
    tokio::time::sleep(Duration::from_millis(5)).await; // another service answers
    std::fs::write(file, format!("{number} {number}"))?;
    // Go on as a reader: nobody can write before the check.
    let guard = guard.downgrade().await?;
    assert_eq!(std::fs::read_to_string(file)?, format!("{number} {number}"));
    let version = guard.token();
    guard.unlock().await?;
    Ok(version)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let (one, other) = (Client::connect(&url).await?, Client::connect(&url).await?);
    let file = std::env::temp_dir().join(format!("leasehold-cache-{}", std::process::id()));
    let (writer, reader) = (one.rw_lock("example:cache"), other.rw_lock("example:cache"));
    let mut newest = refresh(&writer, &file, 0).await?;

    for number in 1..=10 {
        let (read, refreshed) = tokio::join!(read(&reader, &file), refresh(&writer, &file, number));
        let (text, version) = read?;
        let (left, right) = text.split_once(' ').expect("two parts");
        assert_eq!(left, right, "a reader saw half of a refresh");
        assert!(version >= newest, "a reader saw an older version");
        newest = refreshed?;
    }
    println!("the last version is {newest}");
    std::fs::remove_file(&file)?;
    one.shutdown().await;
    other.shutdown().await;
    Ok(())
}
