//! Waits until enough replicas of a server have what it granted (`WAIT`).
//!
//! `WAIT` blocks its connection, so a command connection that waits for a dead replica would delay the renewals and
//! releases of all locks. A node that must wait therefore has a second connection to the same server. Replicas receive
//! a server's writes in the order in which it made them, so a write on the second connection that follows an answer on
//! the first is behind everything that the answer tells of. One `WAIT` serves all answers that came before it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use super::link::Commands;
use crate::error::Fault;
use crate::key;
use crate::script::Reply;

/// The second connection, for as long as the command connection that it belongs to.
pub(super) struct Witness {
    commands: Commands,
    synced: Synced,
    /// How many answers were to be confirmed so far.
    asked: AtomicU64,
    /// Held by the caller that waits on behalf of all. It is dropped with that caller, and another one takes its place.
    latest: Mutex<Latest>,
}

/// How many replicas must have a grant, and how long the server waits for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synced {
    pub(super) replicas: u32,
    pub(super) within: Duration,
}

/// The latest answer to `WAIT`.
#[derive(Default)]
struct Latest {
    /// It speaks for so many of the answers that were to be confirmed.
    covers: u64,
    replicas: u32,
}

impl Witness {
    pub(super) fn new(commands: Commands, synced: Synced) -> Self {
        Self { commands, synced, asked: AtomicU64::new(0), latest: Mutex::default() }
    }

    /// Returns a reply once enough replicas have what it says was written.
    pub(super) async fn confirmed(&self, reply: Reply, name: &str) -> Result<Reply, Fault> {
        if reply.is_yes() {
            self.confirm(name).await?;
        }
        Ok(reply)
    }

    /// Waits until enough replicas have everything that the server wrote before this was called. `name` is the lock's.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    async fn confirm(&self, name: &str) -> Result<(), Fault> {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut latest = self.latest.lock().await;
        if latest.covers < mine {
            // Those that are counted here had their answers, so this write is behind theirs.
            let covers = self.asked.load(Ordering::SeqCst);
            let replicas = self.wait(name).await?;
            *latest = Latest { covers, replicas };
        }
        let Synced { replicas: wanted, within } = self.synced;
        if latest.replicas >= wanted {
            return Ok(());
        }
        Err(Fault::NotSynced { acked: latest.replicas, wanted, within })
    }

    /// Writes something, and returns the number of replicas that have it in time.
    async fn wait(&self, name: &str) -> Result<u32, Fault> {
        // `WAIT` counts only what its own connection wrote. The key is in the lock's slot, and gone at once.
        let mut write = redis::cmd("SET");
        write.arg(&*key::witness_key(name)).arg(1).arg("PX").arg(1);
        let write = self.commands.send(write);
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.synced.replicas).arg(self.synced.within.as_millis().max(1) as u64);
        let wait = self.commands.send(wait);
        let reply = match write.await {
            Ok(_) => wait.await?,
            // The lock's slot has just moved, and with it what the call wrote. It did run, so this must not look as if it
            // had not.
            Err(fault) if fault.is_elsewhere() => return Ok(0),
            Err(fault) => return Err(fault),
        };
        let replicas = reply.number().and_then(|replicas| u32::try_from(replicas).ok());
        replicas.ok_or_else(|| Fault::Unexpected(format!("{reply:?}").into()))
    }
}
