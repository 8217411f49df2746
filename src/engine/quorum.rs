//! The three requests about a lease, put to the servers: acquire, renew, release.
//!
//! One server is a quorum of one: a single call, no tally. More masters would be asked in the same three
//! places and counted here; nothing outside this file knows how many there are.
//!
//! * An acquire that was sent ends in a grant or in a release behind it (invariant 5): [`Attempt`] and
//!   [`Release`] see to it when they are dropped half-way.
//! * A time is read before its request is sent (invariant 2).

use std::sync::Arc;
use std::time::Duration;

use super::primitive::{Answer, Primitive, Released};
use crate::clock::{Clock, Timestamp};
use crate::config::drift;
use crate::error::{Error, Fault};
use crate::key::LeaseId;
use crate::node::{Generation, Node, Owed, Sent, Subscription};
use crate::script::Reply;

/// The servers of a client.
pub(crate) struct Quorum {
    node: Node,
    clock: Clock,
}

impl Quorum {
    pub(crate) fn new(node: Node, clock: Clock) -> Self {
        Self { node, clock }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// What a fault means to the caller that asked about `lock`.
    pub(crate) fn error(&self, lock: &Arc<str>, fault: Fault) -> Error {
        Error::from_fault(self.node.address(), Some(lock), fault)
    }

    pub(crate) fn subscribe(&self, primitive: &dyn Primitive) -> Subscription {
        self.node.subscribe(primitive.channel())
    }

    /// Waits until a majority can be asked.
    pub(crate) async fn up(&self, until: Timestamp) -> Result<(), Fault> {
        self.node.up(until).await
    }

    /// Sends an acquire.
    pub(crate) fn attempt(
        self: &Arc<Self>,
        primitive: &Arc<dyn Primitive>,
        id: LeaseId,
        ttl: Duration,
        block: u64,
    ) -> Result<Attempt, Fault> {
        let call = primitive.acquire(&id, ttl, block);
        let sent_at = self.clock.now();
        let sent = self.node.send(&call)?;
        Ok(Attempt {
            undo: Undo {
                quorum: self.clone(),
                primitive: primitive.clone(),
                id,
                ttl,
                acquired_on: sent.generation,
                armed: true,
            },
            call,
            sent_at,
            sent,
        })
    }

    /// Sends a renewal, to a lease that is known to be held.
    pub(crate) fn renew(
        &self,
        primitive: &dyn Primitive,
        id: &LeaseId,
        count: u32,
        ttl: Duration,
    ) -> Result<Renewal, Fault> {
        let call = primitive.renew(id, count, ttl);
        let sent_at = self.clock.now();
        let sent = self.node.send(&call)?;
        Ok(Renewal { call, count, ttl, sent_at, sent })
    }

    /// Whether the lease is held still; a fault where that is not known.
    pub(crate) async fn renewed(
        &self,
        primitive: &dyn Primitive,
        renewal: &mut Renewal,
        within: Duration,
    ) -> Result<bool, Fault> {
        let reply = self.node.answer(&mut renewal.sent, within).await?;
        read(reply, |reply| primitive.read_renew(reply))
    }

    /// Sends a renewal again, whole, after the server did not know its script. The time of its first sending
    /// stays: that is the earlier one.
    pub(crate) fn renew_again(&self, renewal: &mut Renewal) -> Result<(), Fault> {
        renewal.sent = self.node.send_whole(&renewal.call)?;
        Ok(())
    }

    /// Sends a release.
    pub(crate) fn release(
        self: &Arc<Self>,
        primitive: &Arc<dyn Primitive>,
        id: LeaseId,
        ttl: Duration,
        acquired_on: Generation,
    ) -> Release {
        let call = primitive.release(&id);
        Release {
            sent: self.node.send(&call).map_err(Some),
            undo: Undo {
                quorum: self.clone(),
                primitive: primitive.clone(),
                id,
                ttl,
                acquired_on,
                armed: true,
            },
        }
    }
}

/// A release that is owed unless it is disarmed.
struct Undo {
    quorum: Arc<Quorum>,
    primitive: Arc<dyn Primitive>,
    id: LeaseId,
    ttl: Duration,
    acquired_on: Generation,
    armed: bool,
}

impl Undo {
    fn owe(&mut self, sent: Option<Sent>) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        let owed = Owed {
            call: self.primitive.release(&self.id),
            acquired_on: self.acquired_on,
            ttl: self.ttl,
            until: self.quorum.clock.now().plus(self.ttl),
        };
        self.quorum.node.owe(self.id.clone(), owed, sent);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.owe(None);
    }
}

/// An acquire on its way. Dropped before a grant is taken from it, it is released.
pub(crate) struct Attempt {
    sent: Sent,
    call: crate::script::Call,
    sent_at: Timestamp,
    undo: Undo,
}

/// What an [`Attempt`] came to.
pub(crate) enum Outcome {
    Granted(Grant),
    Refused(super::primitive::Refusal),
}

/// A lease as the servers gave it. Whoever takes it must see to its release.
pub(crate) struct Grant {
    pub(crate) id: LeaseId,
    pub(crate) ttl: Duration,
    pub(crate) sent_at: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) block_end: u64,
    pub(crate) acquired_on: Generation,
}

impl Attempt {
    /// The servers' answer, waited for until `until`.
    ///
    /// Dropping the future is dropping the attempt: the release goes out behind the acquire.
    pub(crate) async fn outcome(mut self, until: Timestamp) -> Result<Outcome, Fault> {
        let quorum = self.undo.quorum.clone();
        let within = until.since(self.sent_at);
        let mut reply = quorum.node.answer(&mut self.sent, within).await;
        if matches!(reply, Err(Fault::NoScript)) {
            // It did not run. Only this future sends again, so only while somebody wants the lock.
            self.sent_at = quorum.clock.now();
            self.sent = quorum.node.send_whole(&self.call)?;
            self.undo.acquired_on = self.sent.generation;
            reply = quorum.node.answer(&mut self.sent, until.since(self.sent_at)).await;
        }
        let answer =
            reply.and_then(|reply| read(reply, |reply| self.undo.primitive.read_acquire(reply)));
        let now = quorum.clock.now();
        match answer {
            Ok(Answer::Granted { block_end }) => {
                let deadline = self.sent_at.plus(self.undo.ttl).minus(drift(self.undo.ttl));
                if deadline <= now {
                    return Err(Fault::NoAnswer(within));
                }
                quorum.node.note_round_trip(now.since(self.sent_at));
                self.undo.armed = false;
                Ok(Outcome::Granted(Grant {
                    id: self.undo.id.clone(),
                    ttl: self.undo.ttl,
                    sent_at: self.sent_at,
                    deadline,
                    block_end,
                    acquired_on: self.undo.acquired_on,
                }))
            }
            Ok(Answer::Refused(refusal)) => {
                quorum.node.note_round_trip(now.since(self.sent_at));
                self.undo.armed = false;
                Ok(Outcome::Refused(refusal))
            }
            Err(fault) => {
                self.undo.armed = fault.may_have_run();
                Err(fault)
            }
        }
    }
}

/// A renewal on its way.
pub(crate) struct Renewal {
    sent: Sent,
    call: crate::script::Call,
    pub(crate) count: u32,
    pub(crate) ttl: Duration,
    pub(crate) sent_at: Timestamp,
}

/// A release on its way. Dropped before its answer it goes on by itself: it stays owed.
pub(crate) struct Release {
    /// `Err(None)` when the answer was taken.
    sent: Result<Sent, Option<Fault>>,
    undo: Undo,
}

impl Release {
    /// The servers' answer. Without one within the time the release stays owed.
    pub(crate) async fn answer(mut self, within: Duration) -> Result<Released, Fault> {
        let quorum = self.undo.quorum.clone();
        let until = quorum.clock.now().plus(within);
        let fault = match self.first_answer(within).await {
            Ok(released) => {
                self.undo.armed = false;
                return Ok(released);
            }
            Err(fault) => fault,
        };
        let id = self.undo.id.clone();
        drop(self);
        if fault.may_pass() && quorum.node.settled(&id, until).await {
            // The first sending went out before the lease's end: whether that one or a later one freed
            // the lock makes no difference.
            return Ok(Released { held: true, receivers: 0 });
        }
        Err(fault)
    }

    async fn first_answer(&mut self, within: Duration) -> Result<Released, Fault> {
        let node = &self.undo.quorum.node;
        let sent = match &mut self.sent {
            Ok(sent) => sent,
            Err(fault) => return Err(fault.take().unwrap_or(Fault::Closed)),
        };
        let mut reply = node.answer(sent, within).await;
        if matches!(reply, Err(Fault::NoScript)) {
            match node.send_whole(&self.undo.primitive.release(&self.undo.id)) {
                Ok(again) => {
                    *sent = again;
                    reply = node.answer(sent, within).await;
                }
                Err(fault) => reply = Err(fault),
            }
        }
        if !matches!(reply, Err(Fault::NoAnswer(_))) {
            // It is answered: not to be polled, nor waited for, any more.
            self.sent = Err(None);
        }
        read(reply?, |reply| self.undo.primitive.read_release(reply))
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        // The sending goes along: dropped here it might never reach the wire.
        let sent = std::mem::replace(&mut self.sent, Err(None)).ok();
        self.undo.owe(sent);
    }
}

fn read<T>(reply: Reply, reader: impl FnOnce(&Reply) -> Option<T>) -> Result<T, Fault> {
    reader(&reply).ok_or_else(|| Fault::Unexpected(format!("{reply:?}").into()))
}
