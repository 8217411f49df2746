//! `list`: all locks on the servers, or those that somebody waits for.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::SystemTime;

use leasehold::{ListedLock, LockKind};
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::args::{List, Servers};
use crate::exit::Failure;
use crate::text::{SCHEMA, ago, printable, short};

/// A list that takes longer says how far it is, if somebody looks.
const LONG: Duration = Duration::from_secs(1);

pub async fn list(list: &List, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let mut listing = match list.contended {
        true => client.contended(),
        false => client.list(&list.prefix),
    };
    if list.fast {
        listing = listing.fast();
    }
    let shows_progress = !servers.quiet && !servers.json && stderr().is_terminal();
    let prefix = format!("{}{}", servers.name_prefix.as_deref().unwrap_or_default(), list.prefix);
    let (mut locks, mut told) = (Vec::new(), Instant::now());
    let end = loop {
        match listing.next().await {
            Ok(Some(lock)) if lock.name.starts_with(&prefix) => locks.push(lock),
            Ok(Some(_)) => (),
            Ok(None) => break Ok(0),
            Err(error) => break Err(Failure::from(error)),
        }
        if shows_progress && told.elapsed() >= LONG {
            told = Instant::now();
            let percent = (listing.progress() * 100.0) as u32;
            eprint!("\r\x1b[Kleasehold: {percent} % of the keys, {} locks", locks.len());
        }
    };
    if shows_progress {
        eprint!("\r\x1b[K");
    }
    client.shutdown().await;
    sort(&mut locks);
    let text = match servers.json {
        true => {
            format!("{}\n", json!({"schema": SCHEMA, "complete": end.is_ok(), "locks": locks}))
        }
        false => table(&locks, SystemTime::now()),
    };
    // Who reads it may have seen enough.
    let _ = stdout().write_all(text.as_bytes());
    end
}

/// Those that most wait for come first, then those that are held for longest.
fn sort(locks: &mut [ListedLock]) {
    locks.sort_by(|one, other| {
        let key = |lock: &ListedLock| {
            (std::cmp::Reverse(lock.waiting_clients), lock.since.is_none(), lock.since)
        };
        key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
    });
}

fn table(locks: &[ListedLock], now: SystemTime) -> String {
    let head = ["LOCK", "KIND", "HOLDER", "COUNT", "SINCE", "TTL", "TOKEN", "WAITING"];
    let rows = locks.iter().map(|lock| row(lock, now));
    let rows: Vec<[String; 8]> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn row(lock: &ListedLock, now: SystemTime) -> [String; 8] {
    let unknown = || "-".to_owned();
    let holder = match &lock.holders[..] {
        [] => unknown(),
        [holder] => holder.to_string(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    };
    let ttl = match lock.remaining {
        Some(remaining) => short(remaining),
        None if lock.is_held() => "never".to_owned(),
        None => unknown(),
    };
    [
        printable(&lock.name),
        kind(lock).to_owned(),
        holder,
        lock.count.to_string(),
        lock.since.map_or_else(unknown, |since| ago(since, now)),
        ttl,
        lock.last_token.map_or_else(unknown, |token| token.to_string()),
        lock.waiting_clients.to_string(),
    ]
}

fn kind(lock: &ListedLock) -> &'static str {
    match lock.kind {
        LockKind::Mutex => "mutex",
        LockKind::RwLock if lock.shared => "read",
        LockKind::RwLock if lock.is_held() => "write",
        LockKind::RwLock => "rw",
        LockKind::Semaphore => "semaphore",
        _ => "other",
    }
}
