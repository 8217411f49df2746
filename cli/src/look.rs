//! `try`, `wait`, `inspect` and `watch`: they look, and take nothing.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use leasehold::{Client, LockStatus};
use tokio::time::{Instant, interval, sleep};

use crate::args::{Names, Servers, WaitFor};
use crate::exit::{self, Failure};
use crate::text;

/// How often `wait` and `watch` look.
const PERIOD: Duration = Duration::from_millis(250);

pub async fn try_all(names: &Names, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let locks = statuses(&client, &names.names).await?;
    client.shutdown().await;
    show_busy(&locks, servers);
    Ok(if locks.iter().all(is_free) { 0 } else { exit::BUSY })
}

pub async fn wait(wait: &WaitFor, servers: &Servers) -> Result<u8, Failure> {
    let until = wait.wait.map(|wait| Instant::now() + wait);
    let client = servers.connect(None).await?;
    let code = loop {
        let locks = statuses(&client, &wait.names.names).await?;
        if locks.iter().all(is_free) {
            break 0;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            show_busy(&locks, servers);
            break exit::BUSY;
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        sleep(left.map_or(PERIOD, |left| left.min(PERIOD))).await;
    };
    client.shutdown().await;
    Ok(code)
}

pub async fn inspect(names: &Names, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let locks = statuses(&client, &names.names).await?;
    client.shutdown().await;
    match servers.json {
        true => text::json(&locks),
        false => locks.iter().for_each(text::details),
    }
    Ok(0)
}

pub async fn watch(names: &Names, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let mut seen: HashMap<String, LockStatus> = HashMap::new();
    let mut looks = interval(PERIOD);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = tokio::signal::ctrl_c() => break,
        }
        for lock in statuses(&client, &names.names).await? {
            let before = seen.get(&*lock.name);
            if before.is_none_or(|before| changed(before, &lock)) {
                match servers.json {
                    true => text::json(std::slice::from_ref(&lock)),
                    false => println!("{}", line(&lock)),
                }
            }
            seen.insert(lock.name.to_string(), lock);
        }
    }
    client.shutdown().await;
    Ok(exit::of_signal(nix::sys::signal::Signal::SIGINT as i32))
}

async fn statuses(client: &Client, names: &[String]) -> Result<Vec<LockStatus>, Failure> {
    let mut locks = Vec::new();
    for name in names {
        locks.push(client.mutex(name).status().await?);
    }
    Ok(locks)
}

fn is_free(lock: &LockStatus) -> bool {
    lock.holder.is_none()
}

fn show_busy(locks: &[LockStatus], servers: &Servers) {
    if servers.json {
        return text::json(locks);
    }
    if servers.quiet {
        return;
    }
    for lock in locks {
        if let Some(holders) = text::holders(lock) {
            eprintln!("leasehold: lock {:?} is held by {holders}", lock.name);
        }
    }
}

fn changed(before: &LockStatus, now: &LockStatus) -> bool {
    let what = |lock: &LockStatus| {
        (
            lock.holder.clone(),
            lock.readers.clone(),
            lock.hold_count,
            lock.last_token,
            lock.waiting_clients,
        )
    };
    what(before) != what(now)
}

fn line(lock: &LockStatus) -> String {
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let name = text::printable(&lock.name);
    let waiting = match lock.waiting_clients {
        0 => String::new(),
        clients => format!(", {clients} waiting"),
    };
    match text::holders(lock) {
        Some(holders) => {
            let token = lock.last_token.map(|token| format!(", token {token}")).unwrap_or_default();
            format!("{at} {name} held by {holders}{token}{waiting}")
        }
        None => format!("{at} {name} free{waiting}"),
    }
}
