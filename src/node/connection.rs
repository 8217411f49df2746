//! A connection that is in use: what is sent on it, and which of its answers count.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::commands::{Commands, Generation, InFlight};
use super::info::{fields, info_command};
use super::mailbox::Epoch;
use super::masters::Listed;
use super::past::Past;
use super::silence::Silence;
use super::wire::{Effect, Form};
use super::witness::Witness;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::script::{Call, Reply};

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

    fn sent(&self, reply: InFlight) -> Sent {
        let Self { generation, run, counts_from, .. } = *self;
        Sent { reply, generation, run, counts_from, epoch: None }
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
        let reply = InFlight::start(std::future::pending());
        Self { reply, generation, run, counts_from, epoch: None }
    }

    pub(crate) fn answered(generation: Generation, run: u64, answer: Result<Reply, Fault>) -> Self {
        let reply = InFlight::start(std::future::ready(answer));
        Self { reply, generation, run, counts_from: Timestamp::default(), epoch: None }
    }
}
