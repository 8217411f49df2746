//! `try`, `wait`, `inspect` and `watch`: they look, and take nothing.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::slice;
use std::time::{Duration, SystemTime};

use leasehold::{Blocked, Client, Error, LockStatus};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::args::{Names, Servers, WaitFor};
use crate::exit::{self, Failure};
use crate::graph::{self, Edge, Graph};
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
    let mut seen: HashMap<String, Seen> = HashMap::new();
    // Locks of which the last look did not count.
    let mut doubted = HashSet::new();
    let mut looks = Looks::new(&client, names, servers);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(exit::no_signals)?;
    let code = 'watching: loop {
        let look = async {
            ticks.tick().await;
            let mut all = Vec::new();
            for lock in looks.next().await?.unwrap_or_default() {
                // Without the right to that, the rest is shown.
                let blocked = client.blocked([&*lock.name]).await.unwrap_or_default();
                let circles = Graph::of(&[], &blocked).circles();
                all.push(Seen { lock, blocked, circles });
            }
            Ok::<_, Failure>(all)
        };
        let all = tokio::select! {
            all = look => all?,
            _ = interrupts.recv() => break exit::of_signal(Signal::SIGINT as i32),
        };
        let doubted_before = mem::take(&mut doubted);
        for now in all {
            let name = now.lock.name.to_string();
            let before = seen.get(&name);
            // Servers that stop answering within a look tell of nobody who waits. Then the next look fails, or shows them again.
            let is_doubtful = before.is_some_and(|before| before.saw_waits_that_are_gone(&now));
            if is_doubtful && !doubted_before.contains(&name) {
                doubted.insert(name);
                continue;
            }
            if before.is_none_or(|before| changed(before, &now)) && !now.show(servers.json) {
                break 'watching exit::of_signal(Signal::SIGPIPE as i32);
            }
            seen.insert(name, now);
        }
    };
    client.shutdown().await;
    Ok(code)
}

/// What `watch` has seen of a lock.
struct Seen {
    lock: LockStatus,
    /// What its holders wait for, and those who hold that, and so on, as they have noted it.
    blocked: Vec<Blocked>,
    /// The deadlocks among these.
    circles: Vec<Vec<Edge>>,
}

impl Seen {
    /// Returns what its own holders wait for.
    fn waits(&self) -> impl Iterator<Item = &Blocked> {
        self.blocked.iter().filter(|part| part.holds == self.lock.name)
    }

    fn saw_waits_that_are_gone(&self, now: &Self) -> bool {
        let noted = |seen: &Self| -> HashSet<_> {
            // The owner is left out: that of another process equals no other.
            let key = |part: &Blocked| (part.holds.clone(), part.token, part.waits_for.clone());
            seen.blocked.iter().map(key).collect()
        };
        !noted(self).is_subset(&noted(now))
    }

    /// Returns true if it was written.
    fn show(&self, json: bool) -> bool {
        if json {
            return text::json(slice::from_ref(&self.lock), &self.blocked);
        }
        let circles = self.circles.iter().map(|circle| graph::told(circle) + "\n");
        let lines: String = [line(self) + "\n"].into_iter().chain(circles).collect();
        text::write(format_args!("{lines}"))
    }
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
pub async fn status(client: &Client, name: &str) -> Result<(LockStatus, bool), Failure> {
    match client.mutex(name).status().await {
        Err(Error::WrongType { .. }) => match client.rw_lock(name).status().await {
            // The library advises to delete what nobody uses. This may be a semaphore in use.
            Err(Error::WrongType { lock, .. }) => Err(Failure::new(
                exit::DATA,
                format!(
                    "{lock:?} is neither a mutex nor a read-write lock: leasehold list shows semaphores"
                ),
            )),
            status => Ok((status?, true)),
        },
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

fn changed(before: &Seen, now: &Seen) -> bool {
    let what = |seen: &Seen| {
        let waits: Vec<_> = seen.waits().map(|part| (part.token, part.waits_for.clone())).collect();
        let lock = &seen.lock;
        (
            waits,
            seen.circles.clone(),
            lock.holder.clone(),
            lock.readers.clone(),
            lock.hold_count,
            lock.last_token,
            lock.waiting_clients,
        )
    };
    what(before) != what(now)
}

fn line(seen: &Seen) -> String {
    let lock = &seen.lock;
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let name = text::printable(&lock.name);
    let waiting = match lock.waiting_clients {
        0 => String::new(),
        clients => format!(", {clients} waiting"),
    };
    match text::holders(lock) {
        Some(holders) => {
            let token = lock.last_token.map(|token| format!(", token {token}")).unwrap_or_default();
            let waits: Vec<_> = seen.waits().map(|part| text::printable(&part.waits_for)).collect();
            let waits = match waits.is_empty() {
                true => String::new(),
                false => format!(", which waits for {}", waits.join(", ")),
            };
            format!("{at} {name} held by {holders}{waits}{token}{waiting}")
        }
        None => format!("{at} {name} free{waiting}"),
    }
}
