//! The command connection of a node, as its users see it: up, down, and what was sent on it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;

use super::handshake::{fields, info_command};
use super::mailbox::Epoch;
use super::past::Past;
use super::wire;
use crate::clock::{Clock, Timestamp};
use crate::error::Fault;
use crate::key::LeaseId;
use crate::script::{Call, Reply};
use crate::secret::Secrets;

/// Which connection of a node, counted from the first.
pub(crate) type Generation = u64;

/// Whether there is a connection, and what is owed on the next one.
pub(super) struct Link {
    pub(super) state: LinkState,
    /// Releases that no server has confirmed.
    pub(super) owed: BTreeMap<LeaseId, PendingRelease>,
}

pub(super) enum LinkState {
    Up(Connection),
    Down(Fault),
}

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) commands: MultiplexedConnection,
    /// What no answer may show.
    pub(super) secrets: Secrets,
    pub(super) generation: Generation,
    /// The server may still run what was written to older connections of this client.
    pub(super) haunted: bool,
    pub(super) made_at: Timestamp,
    /// Which run of the server this is, counted from the first that was met.
    pub(super) run: u64,
    /// From when on its grants count.
    pub(super) counts_from: Timestamp,
    /// The past that this rests on; `None`: it rests on none.
    pub(super) past: Option<Arc<Past>>,
}

/// A release that must reach the server.
pub(crate) struct PendingRelease {
    pub(crate) call: Call,
    /// The one connection that the lease's acquires were sent on: a release behind them there is the last
    /// word. `None`: there were several.
    pub(crate) acquired_on: Option<Generation>,
    /// How long the lease would last if its acquire ran now.
    pub(crate) ttl: Duration,
    /// When the lease is over at the server in any case that a client can know of.
    pub(crate) until: Timestamp,
    /// How often it was put off since its last connection was made.
    pub(crate) repeats: u32,
    /// Told the answer to its first sending, if there was none yet: only that one says whether the lease was there.
    pub(crate) first: Option<oneshot::Sender<Reply>>,
}

/// A release under way, and who is told the answer.
pub(super) struct Sending {
    pub(super) sent: Sent,
    pub(super) first: Option<oneshot::Sender<Reply>>,
}

impl PendingRelease {
    /// How long to wait before it is sent again: longer each time, and not past its end. Where it was answered
    /// only what is late in the network matters; where it was refused, a lock is held in vain.
    pub(super) fn pause(&mut self, clock: &Clock, now: Timestamp, answered: bool) -> Duration {
        let most = if answered { self.ttl / 4 } else { LONGEST_REFUSED };
        let pause = clock.back_off(FIRST_REPEAT + self.repeats, most);
        self.repeats += 1;
        match self.until.since(now) {
            Duration::ZERO => pause,
            left => pause.min(left + Duration::from_millis(1)),
        }
    }

    pub(super) fn send(&mut self, connection: &Connection, with_body: bool) -> Sending {
        Sending { sent: connection.send(&self.call, with_body), first: self.first.take() }
    }
}

impl Connection {
    /// Whether a release of a lease of `ttl` that is answered at `now` has nothing of an older connection behind it.
    ///
    /// What is later than a TTL is not waited for: the release is repeated for that long.
    pub(super) fn is_alone(&self, now: Timestamp, ttl: Duration) -> bool {
        !self.haunted || now > self.made_at.plus(ttl)
    }

    pub(super) fn send(&self, call: &Call, with_body: bool) -> Sent {
        self.send_command(wire::command(call, with_body))
    }

    /// Sends a call that is to grant something. Behind it the server is asked whether it is what it was when it was
    /// met: a demotion need not break a connection.
    pub(super) fn send_vote(&self, call: &Call, with_body: bool) -> Sent {
        let granting = self.send(call, with_body);
        let Some(past) = self.past.clone() else { return granting };
        let asking = self.send_command(info_command("replication"));
        let reply = async move {
            let reply = granting.await?;
            match past.goes_on_in(&Past::read(&fields(&asking.await?))) {
                true => Ok(reply),
                false => Err(Fault::Replaced),
            }
        };
        Sent::start(self, Box::pin(unconstrained(reply)))
    }

    pub(super) fn send_command(&self, command: Cmd) -> Sent {
        let mut commands = self.commands.clone();
        let secrets = self.secrets.clone();
        let reply =
            async move { wire::reply(commands.send_packed_command(&command).await, &secrets) };
        Sent::start(self, Box::pin(unconstrained(reply)))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Reply, Fault>> + Send>>;

/// A command whose place on the wire is fixed, and its reply to come.
///
/// The order on the wire is the order of the first polls, so the first poll is made here and now.
/// Dropping it may or may not stop the command.
pub(crate) struct Sent {
    reply: Answering,
    pub(crate) generation: Generation,
    /// Which run of the server answers it.
    pub(crate) run: u64,
    /// From when on a grant of this server counts.
    pub(crate) counts_from: Timestamp,
    /// The mailbox's subscription just before it was sent; `None`: letters were missed then.
    pub(crate) epoch: Option<Epoch>,
}

impl Sent {
    fn start(connection: &Connection, mut reply: Answering) -> Self {
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(early) = reply.as_mut().poll(&mut nobody) {
            reply = Box::pin(std::future::ready(early));
        }
        let Connection { generation, run, counts_from, .. } = *connection;
        Self { reply, generation, run, counts_from, epoch: None }
    }
}

#[cfg(test)]
impl Sent {
    /// What is never answered.
    pub(crate) fn in_vain(generation: Generation, run: u64, counts_from: Timestamp) -> Self {
        let reply = Box::pin(std::future::pending());
        Self { reply, generation, run, counts_from, epoch: None }
    }

    pub(crate) fn answered(generation: Generation, run: u64, answer: Result<Reply, Fault>) -> Self {
        let (reply, counts_from) = (Box::pin(std::future::ready(answer)), Timestamp::default());
        Self { reply, generation, run, counts_from, epoch: None }
    }
}

impl Future for Sent {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.reply.as_mut().poll(cx)
    }
}

impl LinkState {
    pub(super) fn connection(&self) -> Result<&Connection, Fault> {
        match self {
            Self::Up(connection) => Ok(connection),
            Self::Down(fault) => Err(fault.clone()),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }
}

/// The first pauses before a release is sent again are up to 20 ms times two to the power of this.
const FIRST_REPEAT: u32 = 3;
const LONGEST_REFUSED: Duration = Duration::from_secs(1);
