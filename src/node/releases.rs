//! Releases that must reach the server, on this connection or on a later one, so that no acquire stays without an end
//! (invariant 5).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::link::{Connection, Generation, Link, Sent};
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
    pub(crate) first: Option<oneshot::Sender<Reply>>,
}

/// A release on its way, and who receives the reply.
pub(super) struct Sending {
    pub(super) sent: Sent,
    pub(super) first: Option<oneshot::Sender<Reply>>,
}

/// What to do about a release after an answer.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Done,
    /// Send it with the script's text, which the server does not have.
    SendWhole,
    /// Send it again after a pause.
    Repeat,
}

impl PendingRelease {
    pub(super) fn send(&mut self, connection: &Connection, with_body: bool) -> Sending {
        Sending { sent: connection.send(&self.call, with_body), first: self.first.take() }
    }

    /// There is a new connection: the lease's acquire may have run until now.
    pub(super) fn renew(&mut self, now: Timestamp) {
        self.until = self.until.max(now.plus(self.ttl));
        self.repeats = 0;
    }

    /// `is_last_word`: no acquire of the lease can run after what was answered.
    fn next(&self, answer: &Result<Reply, Fault>, is_last_word: bool, now: Timestamp) -> Next {
        let is_over = now > self.until;
        match answer {
            Err(Fault::NoScript) => Next::SendWhole,
            Err(Fault::Denied { .. } | Fault::WrongType | Fault::Closed) => Next::Done,
            Ok(_) if is_last_word || is_over => Next::Done,
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
        generation: Generation,
        answer: Result<Reply, Fault>,
        first: Option<oneshot::Sender<Reply>>,
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
                Waited::Answer { id, generation, answer, first } => {
                    self.answered(id, generation, answer, first);
                }
                Waited::Pause { id } => self.send_again(id, false),
            },
            Some((id, sending)) = self.left.recv() => self.await_answer(id, sending),
            else => std::future::pending().await,
        }
    }

    /// The connection is gone: all pending releases will be sent on the next one.
    pub(super) fn disconnected(&mut self) {
        self.waits.clear();
    }

    pub(super) fn await_answer(&mut self, id: LeaseId, Sending { mut sent, first }: Sending) {
        let shared = self.shared.clone();
        self.waits.push(Box::pin(async move {
            let (generation, began_at) = (sent.generation, shared.endpoint.clock.now());
            let answer = shared.answer(&mut sent, shared.endpoint.response_timeout).await;
            // A node that is slower than the majority is measured only here.
            if shared.servers.is_some() && answer.is_ok() {
                shared.note_round_trip(shared.endpoint.clock.now().since(began_at));
            }
            Waited::Answer { id, generation, answer, first }
        }));
    }

    fn send_again(&mut self, id: LeaseId, with_body: bool) {
        let mut link = self.shared.link.lock();
        let Link { state, pending } = &mut *link;
        if let (Some(release), Ok(connection)) = (pending.get_mut(&id), state.connection()) {
            let sending = release.send(connection, with_body);
            drop(link);
            self.await_answer(id, sending);
        }
    }

    fn answered(
        &mut self,
        id: LeaseId,
        generation: Generation,
        answer: Result<Reply, Fault>,
        first: Option<oneshot::Sender<Reply>>,
    ) {
        let mut link = self.shared.link.lock();
        let Link { state, pending } = &mut *link;
        let (Some(release), Ok(connection)) = (pending.get_mut(&id), state.connection()) else {
            return;
        };
        match (&answer, first) {
            // Sent before the release stops being pending, because an unlock looks for the reply then. This wakes
            // nobody, and the unlock may be gone.
            (Ok(reply), Some(first)) => drop(first.send(reply.clone())),
            // It did not run, so the next sending is the first.
            (Err(Fault::NoScript), first) => release.first = first,
            _ => {}
        }
        let clock = &self.shared.endpoint.clock;
        let now = clock.now();
        let is_last_word = Some(generation) == release.acquired_on
            || (generation == connection.generation && connection.is_alone(now, release.ttl));
        match release.next(&answer, is_last_word, now) {
            Next::Done => {
                pending.remove(&id);
                drop(link);
                self.shared.released.notify_waiters();
            }
            Next::SendWhole => {
                drop(link);
                self.send_again(id, true);
            }
            Next::Repeat => {
                let pause = release.pause(clock, now, answer.is_ok());
                drop(link);
                let pause = clock.sleep(pause);
                self.waits.push(Box::pin(async move {
                    pause.await;
                    Waited::Pause { id }
                }));
            }
        }
    }
}

/// The first pauses before a release is sent again are up to 20 ms times two to the power of this.
const FIRST_REPEAT: u32 = 3;
const LONGEST_PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Cause;
    use crate::script::LOCK_RELEASE;

    fn release(until: Timestamp) -> PendingRelease {
        let call = Call { script: &LOCK_RELEASE, keys: Vec::new(), args: Vec::new() };
        let ttl = Duration::from_secs(1);
        PendingRelease { call, acquired_on: None, ttl, until, repeats: 7, first: None }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_release_is_repeated_until_nothing_can_run_after_it() {
        let refused = || Err(Fault::Refused(Cause::new("busy", None)));
        let denied = || Err(Fault::Denied { what: "evalsha".into(), message: "no".into() });
        let silent = || Err(Fault::NoAnswer(Duration::ZERO));
        let release = release(at(10));
        for (answer, is_last_word, now, next) in [
            (Ok(Reply::Nil), true, at(1), Next::Done),
            (Ok(Reply::Nil), false, at(10), Next::Repeat),
            (Ok(Reply::Nil), false, at(11), Next::Done),
            (refused(), true, at(10), Next::Repeat),
            (refused(), false, at(11), Next::Done),
            (silent(), true, at(11), Next::Repeat),
            (denied(), false, at(1), Next::Done),
            (Err(Fault::NoScript), true, at(11), Next::SendWhole),
        ] {
            let is = release.next(&answer, is_last_word, now);
            assert_eq!(is, next, "{answer:?} {is_last_word} {now:?}");
        }
    }

    #[test]
    fn a_new_connection_gives_the_acquire_another_ttl() {
        for (until, now, renewed) in [(10, 1, 10), (10, 9, 10), (10, 10, 11), (10, 20, 21)] {
            let mut release = release(at(until));
            release.renew(at(now));
            assert_eq!((release.until, release.repeats), (at(renewed), 0), "{until} {now}");
        }
    }
}
