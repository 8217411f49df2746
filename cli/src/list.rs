//! `list`: all locks on the servers, or those that somebody waits for.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::SystemTime;

use leasehold::{Blocked, Client, ListedLock, LockKind};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, timeout};

use crate::args::{List, Servers};
use crate::exit::Failure;
use crate::graph::{self, Graph};
use crate::text::{self, BOLD, PLAIN, RED, SCHEMA, YELLOW, ago, printable, short};

/// A list that takes longer says how far it is, if somebody looks.
const LONG: Duration = Duration::from_millis(500);
/// So many names are shown of the locks that somebody waits for.
const MOST_SHOWN: usize = 3;
/// Of so many locks the notes of their holders are read.
const MOST_NOTED: usize = 200;

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
    let prefix = format!("{}{}", servers.prefix(), list.prefix);
    let (mut locks, mut patience, mut before) = (Vec::new(), LONG, 0.0);
    let mut told = Instant::now();
    let end = loop {
        match timeout(patience, listing.next()).await {
            Ok(Ok(Some(lock))) if lock.name.starts_with(&prefix) => locks.push(lock),
            Ok(Ok(Some(_))) => (),
            Ok(Ok(None)) => break Ok(0),
            Ok(Err(error)) => break Err(Failure::from(error)),
            Err(_) => {
                // What was on its way is asked again: that must not be all that happens.
                let progress = listing.progress();
                patience = if progress > before { patience } else { patience * 2 };
                before = progress;
            }
        }
        if shows_progress && told.elapsed() >= LONG {
            told = Instant::now();
            let percent = (listing.progress() * 100.0) as u32;
            let _ = write!(
                stderr(),
                "\r\x1b[Kleasehold: {percent} % of the keys, {} locks",
                locks.len()
            );
        }
    };
    if shows_progress {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    sort(&mut locks);
    let blocked = blocked(&client, &locks).await;
    client.shutdown().await;
    let text = match (list.dot, servers.json) {
        (true, _) => graph::dot(&locks),
        (false, true) => format!("{}\n", json(&locks, &blocked, end.is_ok())),
        (false, false) => table(&locks, &blocked, SystemTime::now(), text::has_colours(&stdout())),
    };
    text::write(format_args!("{text}"));
    end
}

/// Those with the most waiters come first, then those held longest: first of these are those of which nobody knows any more since when
/// they are held, and last are semaphores, of which that is never known.
pub fn sort(locks: &mut [ListedLock]) {
    locks.sort_by(|one, other| {
        let key = |lock: &ListedLock| {
            let never_known = lock.kind == LockKind::Semaphore;
            (std::cmp::Reverse(lock.waiting_clients), !lock.is_held(), never_known, lock.since)
        };
        key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
    });
}

/// Returns what those wait for who hold these locks, as they have noted it; of the first, if there are many. What cannot be read is
/// left out: the names of the clients say something, too.
pub async fn blocked(client: &Client, locks: &[ListedLock]) -> Vec<Blocked> {
    let held = locks.iter().filter(|lock| lock.is_held()).take(MOST_NOTED);
    client.blocked(held.map(|lock| &*lock.name)).await.unwrap_or_default()
}

pub fn json(locks: &[ListedLock], blocked: &[Blocked], is_complete: bool) -> Value {
    let graph = Graph::of(locks, blocked);
    let mut shown = json!(locks);
    for (lock, shown) in locks.iter().zip(shown.as_array_mut().into_iter().flatten()) {
        shown["waits_for"] = json!(graph.waits_for(&lock.name));
    }
    json!({
        "schema": SCHEMA,
        "complete": is_complete,
        "locks": shown,
        "blocked": blocked,
        "suspected_deadlocks": graph.circles(),
    })
}

/// In characters.
const WIDEST: usize = 64;
const HEAD: [&str; 9] =
    ["LOCK", "KIND", "HOLDER", "COUNT", "SINCE", "TTL", "TOKEN", "WAITING", "WAITS-FOR"];

fn table(locks: &[ListedLock], blocked: &[Blocked], now: SystemTime, has_colours: bool) -> String {
    let graph = Graph::of(locks, blocked);
    let rows = locks.iter().map(|lock| row(lock, &graph, now));
    let rows: Vec<_> = [HEAD.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |(index, row): (usize, &[String; 9])| {
        // A longer cell moves those behind it in its own row, and not in all others.
        let widths = widths.iter().map(|width| (*width).min(WIDEST));
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ").trim_end().to_owned();
        let is_waited_for = index > 0 && locks[index - 1].waiting_clients > 0;
        match has_colours {
            true if index == 0 => format!("{BOLD}{line}{PLAIN}\n"),
            true if is_waited_for => format!("{YELLOW}{line}{PLAIN}\n"),
            _ => format!("{line}\n"),
        }
    };
    let circles = graph.circles().into_iter().map(|circle| match has_colours {
        true => format!("{RED}{}{PLAIN}\n", graph::told(&circle)),
        false => format!("{}\n", graph::told(&circle)),
    });
    rows.iter().enumerate().map(line).chain(circles).collect()
}

fn row(lock: &ListedLock, graph: &Graph, now: SystemTime) -> [String; 9] {
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
        printable(&some_of(&graph.waits_for(&lock.name))),
    ]
}

/// The first of some names, and how many more there are.
fn some_of(names: &[&str]) -> String {
    match names.len() {
        ..=MOST_SHOWN => names.join(","),
        all => format!("{} and {} more", names[..MOST_SHOWN].join(","), all - MOST_SHOWN),
    }
}

pub fn kind(lock: &ListedLock) -> &'static str {
    match lock.kind {
        LockKind::Mutex => "mutex",
        LockKind::RwLock if lock.shared => "read",
        LockKind::RwLock if lock.is_held() => "write",
        LockKind::RwLock => "rw",
        LockKind::Semaphore => "semaphore",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_the_first_are_shown() {
        assert_eq!(some_of(&[]), "");
        assert_eq!(some_of(&["a", "b", "c"]), "a,b,c");
        assert_eq!(some_of(&["a", "b", "c", "d", "e"]), "a,b,c and 2 more");
    }
}
