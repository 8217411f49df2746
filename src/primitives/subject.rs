//! What is asked about one name on one server, and waiting until the answer changes. Latches and signals are subjects.
//!
//! A waiter looks, and looks again when the channel speaks, when it was subscribed again, when what was seen ends by
//! itself, and after 2 to 4 s in any case (`engine/watch.rs`). So a message only makes it faster, and nothing is undone when a
//! waiter goes away.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::asking::{ask, check_name, record_outcome, unexpected};
use crate::clock::{Clock, Timestamp};
use crate::counts::Counts;
use crate::engine::gate::Engine;
use crate::engine::quorum::Quorum;
use crate::engine::watch::{Unanswered, Watch};
use crate::error::{Error, Fault};
use crate::events;
use crate::key::LockKind;
use crate::node::Source;
use crate::script::{Arg, Call, Reply};

/// A name, and the channel on which its changes are told. Clones are the same.
#[derive(Clone)]
pub(super) struct Subject {
    engine: Arc<Engine>,
    pub(super) name: Arc<str>,
    channel: Arc<str>,
    sort: Sort,
}

/// What errors and traced lines say of a kind of subject.
#[derive(Clone, Copy)]
pub(super) struct Sort {
    pub(super) kind: LockKind,
    /// Why it cannot be on several servers.
    pub(super) why_one_server: &'static str,
}

/// An answer of the server.
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// Before the question was sent.
    pub(super) sent_at: Timestamp,
    /// After the answer came.
    pub(super) answered_at: Timestamp,
    pub(super) source: Source,
}

/// What comes of an answer for one who waits.
pub(super) enum Look<T> {
    Over(T),
    /// It goes on for so long at most if nothing happens. The text says what is waited for.
    Wait(Option<Duration>, String),
}

impl Subject {
    pub(super) fn new(engine: &Arc<Engine>, name: Arc<str>, channel: Arc<str>, sort: Sort) -> Self {
        Self { engine: engine.clone(), name, channel, sort }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    /// Returns the command that publishes on the channel, and the channel.
    pub(super) fn publish(&self) -> [Arg; 2] {
        let verb = if self.engine.fleet.is_sharded() { "SPUBLISH" } else { "PUBLISH" };
        [Arg::Word(verb), Arg::Text(self.channel.clone())]
    }

    /// Asks the server. The call is sent once.
    pub(super) async fn ask(&self, call: Call) -> Result<Answer, Error> {
        self.check()?;
        let answers = ask(&self.engine, &self.name, call, |replies| !replies.is_empty()).await?;
        Ok(Answer {
            sent_at: answers.sent_at,
            answered_at: self.clock().now(),
            source: answers.source,
            reply: answers.replies.into_iter().next().expect("BUG: answers are there"),
        })
    }

    /// Asks the server once, like [`ask`](Self::ask), and reads what it says.
    pub(super) async fn read<T>(
        &self,
        call: Call,
        read: impl Fn(&Reply) -> Option<T>,
    ) -> Result<T, Error> {
        let reply = self.ask(call).await?.reply;
        read(&reply).ok_or_else(|| self.unexpected(&reply))
    }

    /// Asks the server until its number is not `seen` any more, for at most `timeout`. `read` reads the number, and what came
    /// with it.
    pub(super) async fn wait_for_another<T>(
        &self,
        seen: u64,
        timeout: Duration,
        caller: &'static Location<'static>,
        call: Call,
        read: impl Fn(&Reply) -> Option<(u64, T)>,
    ) -> Result<T, Error> {
        let look = |answer: Answer| match read(&answer.reply) {
            None => Err(self.unexpected(&answer.reply)),
            Some((number, _)) if number == seen => {
                Ok(Look::Wait(None, format!("its number is {seen}")))
            }
            Some((_, output)) => Ok(Look::Over(output)),
        };
        self.wait(timeout, caller, call, look).await
    }

    /// Asks the server until `look` is satisfied, for at most `timeout`. Zero means one look.
    pub(super) async fn wait<T>(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
        call: Call,
        look: impl FnMut(Answer) -> Result<Look<T>, Error>,
    ) -> Result<T, Error> {
        let began_at = self.clock().now();
        let span = tracing::debug_span!(
            target: events::LOCK,
            "wait",
            what = %self.sort.kind,
            name = &*self.name,
            at = %caller,
            wait_us = Empty,
            outcome = Empty,
        );
        let waiting = async {
            self.check()?;
            let _open = OpenWait::begin(&self.engine.events.counts);
            tokio::select! {
                biased;
                () = self.engine.closed() => Err(self.engine.ended().await),
                end = self.look_on(timeout, call, look) => end,
            }
        };
        let end = waiting.instrument(span.clone()).await;
        if !span.is_disabled() {
            record(&span, end.as_ref().err(), self.clock().now().since(began_at));
        }
        end
    }

    async fn look_on<T>(
        &self,
        timeout: Duration,
        call: Call,
        mut look: impl FnMut(Answer) -> Result<Look<T>, Error>,
    ) -> Result<T, Error> {
        let clock = self.clock();
        let began_at = clock.now();
        // What the last answer said, if the last question was answered.
        let mut state = None;
        let looking = async {
            let mut watch = Watch::new(self.quorum(), self.channel.clone(), clock.clone());
            let mut unanswered = Unanswered::default();
            loop {
                let asked_at = clock.now();
                match self.ask(call.clone()).await {
                    Ok(answer) => {
                        unanswered = Unanswered::default();
                        let (lasts, seen) = match look(answer)? {
                            Look::Over(output) => return Ok(Some(output)),
                            Look::Wait(lasts, seen) => (lasts, seen),
                        };
                        state = Some(seen);
                        if timeout.is_zero() {
                            return Ok(None);
                        }
                        watch.may_have_changed(lasts).await;
                    }
                    Err(error @ Error::Unavailable { .. }) => {
                        state = None;
                        let config = &self.engine.config;
                        if timeout.is_zero() || unanswered.is_long(asked_at, clock.now(), config) {
                            return Err(error);
                        }
                        watch.may_answer().await;
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        // One look has the time of an answer.
        let until = if timeout.is_zero() { Timestamp::NEVER } else { began_at.plus(timeout) };
        if let Some(output) = clock.until(until, looking).await.transpose()?.flatten() {
            return Ok(output);
        }
        if clock.is_stopped() {
            return Err(Error::closed(clock));
        }
        let waited = clock.now().since(began_at);
        Err(match state {
            Some(state) => Error::StillWaiting {
                kind: self.sort.kind,
                name: self.name.clone(),
                state: state.into(),
                waited,
            },
            None => self.quorum().error(Some(&self.name), Fault::NoAnswer(waited)),
        })
    }

    pub(super) fn unexpected(&self, reply: &Reply) -> Error {
        unexpected(&self.engine, &self.name, reply)
    }

    fn quorum(&self) -> Arc<Quorum> {
        self.engine.quorum_of(&self.name)
    }

    /// Checks what every call needs.
    fn check(&self) -> Result<(), Error> {
        check_name(&self.engine, &self.name)?;
        let problem = self.engine.fleet.channel_problem(&self.name, &self.channel);
        Error::check_name(&self.name, problem)?;
        if self.engine.config.deployment.is_quorum() {
            let Sort { kind, why_one_server: why } = self.sort;
            return Err(Error::SingleServerOnly { kind, why: why.into() });
        }
        Ok(())
    }
}

/// A wait that goes on, as long as this is there.
struct OpenWait<'a>(&'a Counts);

impl<'a> OpenWait<'a> {
    fn begin(counts: &'a Counts) -> Self {
        counts.open_waits.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        self.0.open_waits.fetch_sub(1, Relaxed);
    }
}

fn record(span: &Span, error: Option<&Error>, waited: Duration) {
    span.record("wait_us", waited.as_micros() as u64);
    record_outcome(span, "over", error);
}
