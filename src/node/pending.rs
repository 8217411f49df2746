//! A release that must reach its server, and what an answer means for it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::oneshot;

use super::commands::Generation;
use super::connection::{Connection, Sent};
use super::wire::Form;
use crate::clock::{Clock, Timestamp};
use crate::error::Fault;
use crate::key::LeaseId;
use crate::script::{Call, Reply};

/// The releases that are pending, by the leases that they end.
pub(super) type Pending = BTreeMap<LeaseId, PendingRelease>;

/// A release that must reach the server.
pub(crate) struct PendingRelease {
    pub(crate) call: Call,
    /// The only connection on which the lease's acquires were sent. A release sent after them on that connection is the
    /// last word. `None`: there were several connections.
    pub(crate) acquired_on: Option<Generation>,
    /// How long the lease would last if its acquire ran now.
    pub(crate) ttl: Duration,
    /// The time when the lease is over at the server in every case that a client can know of.
    pub(crate) until: Timestamp,
    /// How often it was put off since its last connection was made.
    pub(crate) repeats: u32,
    /// Receives the reply to the first sending, if that did not come yet: only that one says whether the lease was
    /// there.
    pub(crate) first: Option<oneshot::Sender<FirstWord>>,
    /// The lease may stand in the server's queue, where it outlives its own time.
    pub(crate) queued: bool,
    /// What is different in a cluster.
    pub(crate) detour: Detour,
}

/// The reply to the first sending of a release, and where it came from.
pub(crate) struct FirstWord {
    pub(crate) reply: Reply,
    /// The connection that it came on.
    pub(crate) on: Generation,
    /// The number of the server's run.
    pub(crate) run: u64,
}

/// How a release got to a node of a cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detour {
    /// Acquires of the lease may have been sent to other nodes.
    pub(crate) from_elsewhere: bool,
    /// The slot is still on its way to this node.
    pub(crate) asking: bool,
    /// It is sent with one key first: the node that the slot goes to has refused it with several.
    pub(crate) one_key: bool,
    /// How often it was redirected without a pause.
    pub(crate) hops: u8,
}

/// A release on its way, and who receives the reply.
pub(super) struct Sending {
    pub(super) sent: Sent,
    pub(super) form: Form,
    pub(super) first: Option<oneshot::Sender<FirstWord>>,
}

/// What to do about a release after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// Send it in another form, at once.
    Send(Form),
    /// Send it to another node of the cluster.
    Redirect,
    /// Send it again after a pause.
    Repeat,
}

impl PendingRelease {
    /// The form in which it is sent first.
    pub(super) fn form(&self) -> Form {
        let Detour { asking, one_key, .. } = self.detour;
        Form { asking, one_key, ..Form::PLAIN }
    }

    pub(super) fn send(&mut self, connection: &Connection, form: Form) -> Sending {
        Sending { sent: connection.send(&self.call, form), form, first: self.first.take() }
    }

    /// There is a new connection: the lease's acquire may have run until now.
    pub(super) fn renew(&mut self, now: Timestamp) {
        self.until = self.until.max(now.plus(self.ttl));
        self.repeats = 0;
    }

    /// `is_last_word`: no acquire of the lease can run after what was answered.
    pub(super) fn next(
        &self,
        answer: &Result<Reply, Fault>,
        form: Form,
        is_last_word: bool,
        now: Timestamp,
    ) -> Next {
        let is_over = now > self.until;
        // Nothing is left of it anywhere from then on, so nobody is asked for ever.
        let is_past = now > if self.queued { self.until.plus(QUEUE_LIFE) } else { self.until };
        // The slot is being moved, and some of the keys are elsewhere.
        let lacks_keys =
            |fault: &Fault| fault.is_try_again() && !form.one_key && self.call.works_with_one_key();
        // Redis 6.2 redirects a release already if one of its keys is not there. So the lock may still be where it came from,
        // and it would seem to be lost here.
        let is_elsewhere = |fault: &Fault| {
            matches!(fault, Fault::Moved(_) | Fault::Ask(_)) || (form.asking && lacks_keys(fault))
        };
        match answer {
            Err(Fault::NoScript) if !form.whole => Next::Send(Form { whole: true, ..form }),
            Err(fault) if is_elsewhere(fault) && self.detour.hops < MOST_HOPS && !is_past => {
                Next::Redirect
            }
            // With one key it frees the lock. It stays pending, because it may have to leave the queue, too.
            Err(fault) if lacks_keys(fault) && !form.asking => {
                Next::Send(Form { one_key: true, ..form })
            }
            // A lease that held the lock was in no queue.
            Ok(reply) if form.one_key && !reply.is_yes() && !is_past => Next::Repeat,
            Err(Fault::WrongType | Fault::Closed) => Next::Done,
            Ok(_) if is_last_word || is_over => Next::Done,
            // The right may come back, or the slot arrive.
            Err(_) if self.queued && !is_past => Next::Repeat,
            Err(Fault::Denied { .. }) => Next::Done,
            // The lease is over, and a server that still refuses may refuse for ever.
            Err(fault) if is_over && fault.is_answer() => Next::Done,
            _ => Next::Repeat,
        }
    }

    /// Returns the pause before it is sent again: longer each time, and not past its end. If it was answered, it is
    /// repeated only because of delays in the network; if it was refused, the lock is blocked meanwhile.
    pub(super) fn pause(&mut self, clock: &Clock, now: Timestamp, answered: bool) -> Duration {
        let most = if answered { self.ttl / 4 } else { LONGEST_PAUSE_AFTER_REFUSAL };
        let pause = clock.back_off(FIRST_REPEAT + self.repeats, most);
        self.repeats += 1;
        self.detour.hops = 0;
        self.detour.one_key = false;
        match self.until.since(now) {
            Duration::ZERO => pause,
            left => pause.min(left + Duration::from_millis(1)),
        }
    }
}

/// How often a release is redirected before it pauses.
const MOST_HOPS: u8 = 5;
/// The first pauses before a release is sent again are up to 20 ms times two to the power of this.
const FIRST_REPEAT: u32 = 3;
const LONGEST_PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// For how long a queue is kept after the last ask; the scripts say so.
const QUEUE_LIFE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
