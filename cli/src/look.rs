//! `try`, `wait`, `inspect` and `watch`: they look, and take nothing.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use leasehold::{Blocked, Client, Error, LockStatus};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::args::{Names, Servers, WaitFor};
use crate::exit::{self, Failure};
use crate::text;

/// How often `wait` and `watch` look.
const PERIOD: Duration = Duration::from_millis(250);
/// For how long `wait` goes on without an answer, as `lock()` does by default.
const PATIENCE: Duration = Duration::from_secs(10);

pub async fn try_all(names: &Names, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let locks = statuses(&client, &names.names).await?;
    client.shutdown().await;
    show_busy(&locks, servers);
    Ok(if locks.iter().all(is_free) { 0 } else { exit::BUSY })
}

pub async fn wait(wait: &WaitFor, servers: &Servers) -> Result<u8, Failure> {
    let until = wait.wait.and_then(|wait| Instant::now().checked_add(wait));
    let client = servers.connect(None).await?;
    let mut looks = Looks::new(&client, &wait.names, servers);
    let code = loop {
        let locks = looks.next().await?;
        if matches!(&locks, Ok(locks) if locks.iter().all(is_free)) {
            break 0;
        }
        let is_over = until.is_some_and(|until| Instant::now() >= until);
        match locks {
            Ok(locks) if is_over => {
                show_busy(&locks, servers);
                break exit::BUSY;
            }
            Err(failure) if is_over || looks.silent_for() >= PATIENCE => return Err(failure),
            _ => {}
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
    let blocked = client.blocked(locks.iter().map(|lock| &*lock.name)).await;
    client.shutdown().await;
    if let Err(error) = &blocked
        && !servers.quiet
    {
        tell!("leasehold: what the holders wait for is not known: {error}");
    }
    let blocked = blocked.unwrap_or_default();
    match servers.json {
        true => _ = text::json(&locks, &blocked),
        false => text::all_details(&locks, &blocked),
    }
    Ok(0)
}

pub async fn watch(names: &Names, servers: &Servers) -> Result<u8, Failure> {
    let client = servers.connect(None).await?;
    let mut seen: HashMap<String, (LockStatus, Vec<Blocked>)> = HashMap::new();
    let mut looks = Looks::new(&client, names, servers);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupts = signal(SignalKind::interrupt())
        .map_err(|error| Failure::new(exit::SOFTWARE, format!("no signals: {error}")))?;
    let code = 'watching: loop {
        let look = async {
            ticks.tick().await;
            looks.next().await
        };
        let locks = tokio::select! {
            locks = look => locks?,
            _ = interrupts.recv() => break exit::of_signal(Signal::SIGINT as i32),
        };
        for lock in locks.unwrap_or_default() {
            // Without the right to that, the rest is shown.
            let blocked = client.blocked([&*lock.name]).await;
            let before = || seen.get(&*lock.name).map(|(_, blocked)| blocked.clone());
            let mut blocked = match blocked {
                // What it was is not known to have changed.
                Err(Error::Unavailable { .. }) => before().unwrap_or_default(),
                blocked => blocked.unwrap_or_default(),
            };
            blocked.retain(|part| part.holds == lock.name);
            let now = (lock, blocked);
            if seen.get(&*now.0.name).is_none_or(|before| changed(before, &now)) {
                let is_read = match servers.json {
                    true => text::json(std::slice::from_ref(&now.0), &now.1),
                    false => text::write(format_args!("{}", line(&now.0, &now.1))),
                };
                if !is_read {
                    break 'watching exit::of_signal(Signal::SIGPIPE as i32);
                }
            }
            seen.insert(now.0.name.to_string(), now);
        }
    };
    client.shutdown().await;
    Ok(code)
}

/// Looks that are repeated. Servers that do not answer for a while do not end them.
struct Looks<'a> {
    client: &'a Client,
    names: &'a Names,
    servers: &'a Servers,
    /// Since when no look has succeeded.
    silent_since: Option<Instant>,
}

impl<'a> Looks<'a> {
    fn new(client: &'a Client, names: &'a Names, servers: &'a Servers) -> Self {
        Self { client, names, servers, silent_since: None }
    }

    /// Looks once. The inner failure is one that may pass; the first in a row is told.
    async fn next(&mut self) -> Result<Result<Vec<LockStatus>, Failure>, Failure> {
        let began_at = Instant::now();
        match statuses(self.client, &self.names.names).await {
            Err(failure) if failure.code == exit::UNAVAILABLE => {
                if self.silent_since.is_none() && !self.servers.quiet {
                    tell!("leasehold: {failure}; looking again");
                }
                self.silent_since.get_or_insert(began_at);
                Ok(Err(failure))
            }
            locks => {
                self.silent_since = None;
                locks.map(Ok)
            }
        }
    }

    fn silent_for(&self) -> Duration {
        self.silent_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

async fn statuses(client: &Client, names: &[String]) -> Result<Vec<LockStatus>, Failure> {
    let mut locks = Vec::new();
    for name in names {
        locks.push(status(client, name).await?.0);
    }
    Ok(locks)
}

/// Returns the status of a lock, and whether it is a read-write lock.
pub async fn status(client: &Client, name: &str) -> Result<(LockStatus, bool), Error> {
    match client.mutex(name).status().await {
        Err(Error::WrongType { .. }) => Ok((client.rw_lock(name).status().await?, true)),
        status => Ok((status?, false)),
    }
}

fn is_free(lock: &LockStatus) -> bool {
    lock.holder.is_none()
}

fn show_busy(locks: &[LockStatus], servers: &Servers) {
    if servers.json {
        text::json(locks, &[]);
        return;
    }
    if servers.quiet {
        return;
    }
    for lock in locks {
        if let Some(holders) = text::holders(lock) {
            tell!("leasehold: lock {:?} is held by {holders}", lock.name);
        }
    }
}

fn changed(before: &(LockStatus, Vec<Blocked>), now: &(LockStatus, Vec<Blocked>)) -> bool {
    let what = |(lock, blocked): &(LockStatus, Vec<Blocked>)| {
        let waits: Vec<_> =
            blocked.iter().map(|part| (part.token, part.waits_for.clone())).collect();
        (
            waits,
            lock.holder.clone(),
            lock.readers.clone(),
            lock.hold_count,
            lock.last_token,
            lock.waiting_clients,
        )
    };
    what(before) != what(now)
}

fn line(lock: &LockStatus, blocked: &[Blocked]) -> String {
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let name = text::printable(&lock.name);
    let waiting = match lock.waiting_clients {
        0 => String::new(),
        clients => format!(", {clients} waiting"),
    };
    match text::holders(lock) {
        Some(holders) => {
            let token = lock.last_token.map(|token| format!(", token {token}")).unwrap_or_default();
            let waits: Vec<_> =
                blocked.iter().map(|part| text::printable(&part.waits_for)).collect();
            let waits = match waits.is_empty() {
                true => String::new(),
                false => format!(", which waits for {}", waits.join(", ")),
            };
            format!("{at} {name} held by {holders}{waits}{token}{waiting}")
        }
        None => format!("{at} {name} free{waiting}"),
    }
}
