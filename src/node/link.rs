//! The command connection of a node: whether there is one, and what was sent on it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::task::coop::unconstrained;

use super::handshake::{fields, info_command};
use super::mailbox::Epoch;
use super::masters::Listed;
use super::past::Past;
use super::releases::PendingRelease;
use super::shared::Silence;
use super::wire;
use super::witness::Witness;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::key::LeaseId;
use crate::script::{Call, Reply};
use crate::secret::Secrets;

/// The number of a connection of a node; the first has 1. In a cluster no two connections of a client have the same: the
/// upper half is the number of the node.
pub(crate) type Generation = u64;

/// The form in which a call is sent. It depends on the answers to earlier sendings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// With the script's text, because the server does not know its hash.
    pub(crate) whole: bool,
    pub(crate) effect: Effect,
    /// After ASKING, because the slot is still on its way to the server.
    pub(crate) asking: bool,
    /// With the first of its keys only, because the server does not have all of them.
    pub(crate) one_key: bool,
}

impl Form {
    pub(crate) const WHOLE: Self = Self { whole: true, ..Self::PLAIN };
    pub(crate) const DURABLE: Self = Self { effect: Effect::Renewal, ..Self::PLAIN };
    pub(crate) const VOTE: Self = Self { effect: Effect::Grant, ..Self::PLAIN };
    pub(crate) const PLAIN: Self =
        Self { whole: false, effect: Effect::None, asking: false, one_key: false };
}

/// What a call may do that counts only under a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effect {
    #[default]
    None,
    /// It lengthens what was granted: that counts once enough replicas have it.
    Renewal,
    /// It may grant something: that counts once enough replicas have it, and if the server still has the data that it had
    /// when the client met it.
    Grant,
}

/// The connection, and what must be sent on it or on a later one.
pub(super) struct Link {
    pub(super) state: LinkState,
    /// Releases that the server has not confirmed for good.
    pub(super) pending: BTreeMap<LeaseId, PendingRelease>,
}

pub(super) enum LinkState {
    Up(Connection),
    /// There is no connection, for this reason.
    Down(Fault),
    /// The supervisor is gone, so there will never be a connection again.
    Ended,
}

impl LinkState {
    pub(super) fn connection(&self) -> Result<&Connection, Fault> {
        match self {
            Self::Up(connection) => Ok(connection),
            Self::Down(fault) => Err(fault.clone()),
            Self::Ended => Err(Fault::Closed),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }
}

/// A connection that is in use.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) commands: Commands,
    pub(super) generation: Generation,
    /// The server may still run commands of older connections of this client.
    pub(super) older_may_run: bool,
    pub(super) made_at: Timestamp,
    /// The number of the server's run; the first run that the client met has 1.
    pub(super) run: u64,
    /// The time from which on its grants count.
    pub(super) counts_from: Timestamp,
    /// The past on which `counts_from` depends, if it does.
    pub(super) past: Option<Arc<Past>>,
    /// Waits for the replicas, if grants count only once replicas have them.
    pub(super) witness: Option<Arc<Witness>>,
    /// The list of the masters that the server is one of, if grants count only while that is in use.
    pub(super) listed: Option<Arc<Listed>>,
    /// Told of answers that count only later.
    pub(super) silence: Arc<Silence>,
    /// True once the client has left this server for another; `None` if it never does.
    pub(super) left: Option<Arc<AtomicBool>>,
}

impl Connection {
    /// Returns true if a release of a lease of `ttl` that is answered at `now` cannot be followed by a command of an
    /// older connection.
    ///
    /// Commands that come later than a TTL are not expected: the release is repeated for that long.
    pub(super) fn is_alone(&self, now: Timestamp, ttl: Duration) -> bool {
        !self.older_may_run || now > self.made_at.plus(ttl)
    }

    pub(super) fn send(&self, call: &Call, form: Form) -> Sent {
        let sent = self.commands.call(call, form);
        match form.effect {
            Effect::None => self.sent(sent),
            Effect::Renewal => self.durable(sent, call),
            Effect::Grant => self.vote(sent, call),
        }
    }

    /// A call whose success counts only once enough replicas have what it wrote.
    fn durable(&self, answer: InFlight, call: &Call) -> Sent {
        let Some(witness) = self.witness.clone() else { return self.sent(answer) };
        let (name, silence) = (call.keys[0].clone(), self.silence.clone());
        self.sent(InFlight::start(async move {
            let reply = answer.await?;
            // The server is not silent while its replicas are.
            silence.heard();
            witness.confirmed(reply, &name).await
        }))
    }

    /// A call that may grant something. After it, the server is asked whether it is still the master that the client met,
    /// because a demotion need not break the connection; and whether it is used with the same masters.
    fn vote(&self, granting: InFlight, call: &Call) -> Sent {
        if self.past.is_none() && self.left.is_none() && self.listed.is_none() {
            return self.durable(granting, call);
        }
        let asking =
            self.past.clone().map(|past| (past, self.commands.send(info_command("replication"))));
        let now = self.silence.now();
        let generation = self.generation;
        let listing = self.listed.as_ref().map(|it| it.ask(&self.commands, generation, now));
        let (left, witness, name) = (self.left.clone(), self.witness.clone(), call.keys[0].clone());
        let silence = self.silence.clone();
        self.sent(InFlight::start(async move {
            let reply = granting.await?;
            silence.heard();
            let goes_on = match asking {
                Some((past, asking)) => {
                    let info = asking.await.map_err(Fault::behind_a_call)?;
                    past.goes_on_in(&Past::read(&fields(&info)))
                }
                None => true,
            };
            if !goes_on {
                return Err(Fault::Replaced);
            }
            if let Some(asked) = listing {
                asked.check().await.map_err(Fault::behind_a_call)?;
            }
            let reply = match witness {
                Some(witness) => witness.confirmed(reply, &name).await?,
                None => reply,
            };
            let is_left = left.is_some_and(|left| left.load(Ordering::Acquire));
            if is_left { Err(Fault::Replaced) } else { Ok(reply) }
        }))
    }

    /// The client leaves the server: grants that are still to come do not count.
    pub(super) fn leave(&self) {
        if let Some(left) = &self.left {
            left.store(true, Ordering::Release);
        }
    }

    fn sent(&self, reply: InFlight) -> Sent {
        let Self { generation, run, counts_from, .. } = *self;
        Sent { reply, generation, run, counts_from, epoch: None }
    }
}

/// Sends commands on one connection, in the order of the calls.
#[derive(Clone)]
pub(super) struct Commands {
    connection: MultiplexedConnection,
    /// What no answer may show.
    secrets: Secrets,
}

impl Commands {
    pub(super) fn new(connection: MultiplexedConnection, secrets: Secrets) -> Self {
        Self { connection, secrets }
    }

    pub(super) fn call(&self, call: &Call, form: Form) -> InFlight {
        let command = wire::command(call, form);
        if form.asking { self.send_asking(command) } else { self.send(command) }
    }

    /// Sends ASKING and a command in one write: a command of another task in between would be the one that it is for.
    fn send_asking(&self, command: Cmd) -> InFlight {
        let mut connection = self.connection.clone();
        let secrets = self.secrets.clone();
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().add_command(command);
        InFlight::start(async move {
            let mut answers = connection.send_packed_commands(&both, 1, 1).await;
            let answer = answers.as_mut().map(|values| values.pop().unwrap_or(Value::Nil));
            wire::reply(answer.map_err(|error| error.clone()), &secrets)
        })
    }

    pub(super) fn send(&self, command: Cmd) -> InFlight {
        let mut connection = self.connection.clone();
        let secrets = self.secrets.clone();
        InFlight::start(async move {
            wire::reply(connection.send_packed_command(&command).await, &secrets)
        })
    }
}

/// The reply to a command whose place on the wire is fixed. Dropping it may or may not stop the command.
pub(super) struct InFlight(Pin<Box<dyn Future<Output = Result<Reply, Fault>> + Send>>);

impl InFlight {
    /// The order on the wire is the order of the first polls, so `reply` is polled here for the first time.
    fn start(reply: impl Future<Output = Result<Reply, Fault>> + Send + 'static) -> Self {
        let mut reply: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(unconstrained(reply));
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(early) = reply.as_mut().poll(&mut nobody) {
            reply = Box::pin(std::future::ready(early));
        }
        Self(reply)
    }
}

impl Future for InFlight {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// A call that was sent, and its reply to come. Dropping it may or may not stop the call.
pub(crate) struct Sent {
    reply: InFlight,
    pub(crate) generation: Generation,
    /// The number of the server's run that answers it.
    pub(crate) run: u64,
    /// The time from which on a grant of this server counts.
    pub(crate) counts_from: Timestamp,
    /// The mailbox's subscription just before the call was sent, or `None` if letters were missed then.
    pub(crate) epoch: Option<Epoch>,
}

impl Future for Sent {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(cx)
    }
}

#[cfg(test)]
impl Sent {
    /// A call that is never answered.
    pub(crate) fn in_vain(generation: Generation, run: u64, counts_from: Timestamp) -> Self {
        let reply = InFlight(Box::pin(std::future::pending()));
        Self { reply, generation, run, counts_from, epoch: None }
    }

    pub(crate) fn answered(generation: Generation, run: u64, answer: Result<Reply, Fault>) -> Self {
        let reply = InFlight(Box::pin(std::future::ready(answer)));
        Self { reply, generation, run, counts_from: Timestamp::default(), epoch: None }
    }
}
