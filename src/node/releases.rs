//! Releases that must reach the server, on this connection or on a later one, so that no acquire stays without an end
//! (invariant 5).

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::commands::Generation;
use super::link::Link;
use super::pending::{FirstWord, Next, Sending};
use super::shared::Shared;
use super::wire::Form;
use crate::error::Fault;
use crate::key::LeaseId;
use crate::script::Reply;

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
        let Link { state, pending, .. } = &mut *link;
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
        let Link { state, pending, .. } = &mut *link;
        let Some(release) = pending.get_mut(&id) else { return };
        let Ok(connection) = state.connection() else {
            // It is sent again on the next connection.
            if answer.is_err_and(|fault| !fault.may_have_run()) {
                release.first = first;
            }
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
            (Err(fault), first) if !fault.may_have_run() && !matches!(next, Next::Done) => {
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
                // A place in a queue that was not left yet may get its turn meanwhile.
                self.put_off(id, answer.is_ok() && !form.one_key);
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
