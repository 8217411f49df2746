//! Waits until enough replicas of a server have what it granted (`WAIT`).
//!
//! `WAIT` blocks its connection, so a command connection that waits for a dead replica would delay the renewals and
//! releases of all locks. A node that must wait therefore has a second connection to the same server. Replicas receive
//! a server's writes in the order in which it made them, so a write on the second connection that follows an answer on
//! the first is behind everything that the answer tells of. One `WAIT` serves all answers that came before it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::commands::Commands;
use super::silence::late_after;
use super::wire::Form;
use crate::clock::{Clock, Timestamp};
use crate::error::{Cause, Fault};
use crate::key;
use crate::script::{Arg, Call, Reply, SYNCED};

/// The second connection, for as long as the command connection that it belongs to.
pub(super) struct Witness {
    commands: Commands,
    clock: Clock,
    /// For how long the server may be silent.
    patience: Duration,
    synced: Synced,
    waits: Mutex<Waits>,
}

/// How many replicas must have a grant, and how long the server waits for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synced {
    pub(super) replicas: u32,
    pub(super) within: Duration,
}

/// What was asked of the replicas so far.
#[derive(Default)]
struct Waits {
    /// How many answers were to be confirmed.
    asked: u64,
    latest: Option<Wait>,
}

/// One `WAIT`, on behalf of all whose answers came before it. Any of them drives it, so that nobody depends on a future that its
/// user does not poll.
#[derive(Clone)]
struct Wait {
    /// It speaks for so many of the answers that were to be confirmed.
    covers: u64,
    began_at: Timestamp,
    replicas: Shared<BoxFuture<'static, Result<u32, Fault>>>,
}

impl Witness {
    pub(super) fn new(
        commands: Commands,
        clock: Clock,
        patience: Duration,
        synced: Synced,
    ) -> Self {
        Self { commands, clock, patience, synced, waits: Mutex::default() }
    }

    /// Returns a reply once enough replicas have what it says was written.
    pub(super) async fn confirmed(&self, reply: Reply, name: &str) -> Result<Reply, Fault> {
        if reply.is_yes() {
            self.confirm(name).await.map_err(Fault::behind_a_call)?;
        }
        Ok(reply)
    }

    /// Waits until enough replicas have everything that the server wrote before this was called. `name` is the lock's.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    async fn confirm(&self, name: &str) -> Result<(), Fault> {
        let mine = {
            let mut waits = self.waits.lock();
            waits.asked += 1;
            waits.asked
        };
        loop {
            let wait = self.latest_for(mine, name);
            let replicas = self.answer(&wait).await;
            if wait.covers >= mine || matches!(replicas, Err(Fault::Broken(_))) {
                return self.judge(replicas?);
            }
        }
    }

    /// Returns the answer to a `WAIT`. If the server is silent, the connection counts as broken, and with it the command
    /// connection, which may well be answered.
    async fn answer(&self, wait: &Wait) -> Result<u32, Fault> {
        let grace = late_after(self.patience);
        // Nobody may have driven it lately: an answer that is there is read first.
        let mut until = wait.began_at.plus(self.patience).max(self.clock.now().plus(grace));
        loop {
            if let Some(replicas) = self.clock.until(until, wait.replicas.clone()).await {
                return replicas;
            }
            let now = self.clock.now();
            if now.since(until) < grace {
                let silence = "the connection that waits for replicas is silent";
                return Err(Fault::Broken(Cause::new(silence, None)));
            }
            // This process had no time to look at the clock, and none to read answers either.
            until = now.plus(grace);
        }
    }

    /// Returns the `WAIT` that speaks for the answer `mine`, or the one that must end first. There is one at a time.
    fn latest_for(&self, mine: u64, name: &str) -> Wait {
        let mut waits = self.waits.lock();
        let latest = waits.latest.clone();
        let of_use = |wait: &Wait| wait.covers >= mine || wait.replicas.peek().is_none();
        latest.filter(of_use).unwrap_or_else(|| {
            // Those that are counted here had their answers, so this write is behind theirs.
            let covers = waits.asked;
            let (began_at, replicas) = (self.clock.now(), self.wait(name).boxed().shared());
            let wait = Wait { covers, began_at, replicas };
            waits.latest = Some(wait.clone());
            wait
        })
    }

    fn judge(&self, acked: u32) -> Result<(), Fault> {
        let Synced { replicas: wanted, within } = self.synced;
        if acked >= wanted { Ok(()) } else { Err(Fault::NotSynced { acked, wanted, within }) }
    }

    /// Writes something, and returns the number of replicas that have it in time.
    fn wait(&self, name: &str) -> impl Future<Output = Result<u32, Fault>> + Send + use<> {
        let (commands, synced, name) = (self.commands.clone(), self.synced, Arc::from(name));
        // The key is in the lock's slot, and gone at once.
        let first = written(&commands, synced, key::witness_key(&name), "", Form::WHOLE);
        async move {
            match first.await {
                // The slot is being moved: the server that it leaves takes no new key there, and the other one nothing that is not
                // asked for. The lock itself is at one of them.
                Err(fault) if fault.is_elsewhere() => {}
                replicas => return replicas,
            }
            let form = Form { asking: true, ..Form::WHOLE };
            match written(&commands, synced, name, "own", form).await {
                // It has just moved, and with it what the call wrote.
                Err(fault) if fault.is_elsewhere() => Ok(0),
                replicas => replicas,
            }
        }
    }
}

/// Writes to a key, and asks how many replicas have that: `WAIT` counts only what its own connection wrote.
fn written(
    commands: &Commands,
    synced: Synced,
    key: Arc<str>,
    which: &'static str,
    form: Form,
) -> impl Future<Output = Result<u32, Fault>> + Send + use<> {
    let write = Call { script: &SYNCED, keys: vec![key], args: vec![Arg::Word(which)] };
    let write = commands.call(&write, form);
    let mut wait = redis::cmd("WAIT");
    wait.arg(synced.replicas).arg(synced.within.as_millis().max(1) as u64);
    let wait = commands.send(wait);
    async move {
        if write.await?.number() != Some(1) {
            return Ok(0);
        }
        let reply = wait.await?;
        let replicas = reply.number().and_then(|replicas| u32::try_from(replicas).ok());
        replicas.ok_or_else(|| Fault::Unexpected(format!("{reply:?}").into()))
    }
}
