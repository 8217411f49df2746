//! Releases that must reach the server, on this connection or on a later one, so that no acquire stays without an end
//! (invariant 5).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::link::{Connection, Form, Generation, Link, Sent};
use super::shared::Shared;
use crate::clock::{Clock, Timestamp};
use crate::error::Fault;
use crate::key::LeaseId;
use crate::script::{Call, Reply};

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
enum Next {
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
        Form { asking: self.detour.asking, ..Form::PLAIN }
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
    fn next(
        &self,
        answer: &Result<Reply, Fault>,
        form: Form,
        is_last_word: bool,
        now: Timestamp,
    ) -> Next {
        let is_over = now > self.until;
        // Nothing is left of it anywhere from then on, so nobody is asked for ever.
        let is_past = now > if self.queued { self.until.plus(QUEUE_LIFE) } else { self.until };
        match answer {
            Err(Fault::NoScript) if !form.whole => Next::Send(Form { whole: true, ..form }),
            Err(Fault::Moved(_) | Fault::Ask(_)) if self.detour.hops < MOST_HOPS && !is_past => {
                Next::Redirect
            }
            // The slot is being moved, and some of the keys are elsewhere. With one key it frees the lock. It stays
            // pending, because it may have to leave the queue, too.
            Err(fault)
                if fault.is_try_again() && !form.one_key && self.call.works_with_one_key() =>
            {
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
    fn pause(&mut self, clock: &Clock, now: Timestamp, answered: bool) -> Duration {
        let most = if answered { self.ttl / 4 } else { LONGEST_PAUSE_AFTER_REFUSAL };
        let pause = clock.back_off(FIRST_REPEAT + self.repeats, most);
        self.repeats += 1;
        self.detour.hops = 0;
        match self.until.since(now) {
            Duration::ZERO => pause,
            left => pause.min(left + Duration::from_millis(1)),
        }
    }
}

/// Waits for the answers to pending releases, and repeats them until nothing can run after them.
pub(super) struct Releases {
    shared: Arc<Shared>,
    /// Releases that others have sent and left.
    left: mpsc::UnboundedReceiver<(LeaseId, Sending)>,
    waits: FuturesUnordered<Pin<Box<dyn Future<Output = Waited> + Send>>>,
}

enum Waited {
    Answer {
        id: LeaseId,
        /// The connection, and the run of its server.
        generation: Generation,
        run: u64,
        form: Form,
        answer: Result<Reply, Fault>,
        first: Option<oneshot::Sender<FirstWord>>,
    },
    /// The pause is over.
    Pause { id: LeaseId },
}

impl Releases {
    pub(super) fn new(
        shared: Arc<Shared>,
        left: mpsc::UnboundedReceiver<(LeaseId, Sending)>,
    ) -> Self {
        Self { shared, left, waits: FuturesUnordered::new() }
    }

    /// Processes the next answer, or the next release that somebody left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn step(&mut self) {
        tokio::select! {
            biased;
            Some(waited) = self.waits.next() => match waited {
                Waited::Answer { id, generation, run, form, answer, first } => {
                    self.answered(id, (generation, run), form, answer, first);
                }
                Waited::Pause { id } => self.send_again(id, None),
            },
            Some((id, sending)) = self.left.recv() => self.await_answer(id, sending),
            else => std::future::pending().await,
        }
    }

    /// The connection is gone: all pending releases will be sent on the next one.
    pub(super) fn disconnected(&mut self) {
        self.waits.clear();
    }

    pub(super) fn await_answer(&mut self, id: LeaseId, sending: Sending) {
        let Sending { mut sent, form, first } = sending;
        let shared = self.shared.clone();
        self.waits.push(Box::pin(async move {
            let (generation, run) = (sent.generation, sent.run);
            let began_at = shared.endpoint.clock.now();
            let answer = shared.answer(&mut sent, shared.endpoint.response_timeout).await;
            // A node that is slower than the majority is measured only here.
            if shared.servers.is_some() && answer.is_ok() {
                shared.note_round_trip(shared.endpoint.clock.now().since(began_at));
            }
            Waited::Answer { id, generation, run, form, answer, first }
        }));
    }

    /// Sends a pending release again, in `form` or else in its first one.
    fn send_again(&mut self, id: LeaseId, form: Option<Form>) {
        let mut link = self.shared.link.lock();
        let Link { state, pending } = &mut *link;
        if let (Some(release), Ok(connection)) = (pending.get_mut(&id), state.connection()) {
            if self.shared.holds_back().is_some() {
                drop(link);
                return self.put_off(id, false);
            }
            let form = form.unwrap_or(release.form());
            let sending = release.send(connection, form);
            drop(link);
            self.await_answer(id, sending);
        }
    }

    fn answered(
        &mut self,
        id: LeaseId,
        (generation, run): (Generation, u64),
        form: Form,
        answer: Result<Reply, Fault>,
        first: Option<oneshot::Sender<FirstWord>>,
    ) {
        let mut link = self.shared.link.lock();
        let Link { state, pending } = &mut *link;
        let (Some(release), Ok(connection)) = (pending.get_mut(&id), state.connection()) else {
            return;
        };
        let clock = &self.shared.endpoint.clock;
        let now = clock.now();
        let alone = connection.is_alone(now, release.ttl) && !release.detour.from_elsewhere;
        let is_last_word = Some(generation) == release.acquired_on
            || (generation == connection.generation && alone);
        // Nobody hears the mailbox of a client that is gone, so its places are passed over.
        release.queued &= !self.shared.closing.is_cancelled();
        let next = release.next(&answer, form, is_last_word, now);
        match (&answer, first) {
            // Sent before the release stops being pending, because an unlock looks for the reply then. This wakes
            // nobody, and the unlock may be gone.
            (Ok(reply), Some(first)) => {
                let _ = first.send(FirstWord { reply: reply.clone(), on: generation, run });
            }
            // It did not run, so the next sending is the first.
            (Err(_), first) if matches!(next, Next::Send(_) | Next::Redirect) => {
                release.first = first;
            }
            _ => {}
        }
        match next {
            Next::Done => {
                pending.remove(&id);
                drop(link);
                self.shared.released.notify_waiters();
            }
            Next::Send(form) => {
                drop(link);
                self.send_again(id, Some(form));
            }
            Next::Redirect => {
                drop(link);
                if let Err(fault) = &answer
                    && !self.shared.redirect(&id, fault)
                {
                    self.put_off(id, false);
                }
            }
            Next::Repeat => {
                drop(link);
                self.put_off(id, answer.is_ok());
            }
        }
    }

    /// Has a pending release sent again after a pause.
    fn put_off(&mut self, id: LeaseId, was_answered: bool) {
        let clock = &self.shared.endpoint.clock;
        let mut link = self.shared.link.lock();
        let Some(release) = link.pending.get_mut(&id) else { return };
        let pause = clock.sleep(release.pause(clock, clock.now(), was_answered));
        drop(link);
        self.waits.push(Box::pin(async move {
            pause.await;
            Waited::Pause { id }
        }));
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
