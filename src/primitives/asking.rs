//! Asks the servers about what has a name, of whatever kind it is.

use std::sync::Arc;

use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use crate::counts::count;
use crate::engine::gate::{Engine, Service};
use crate::engine::quorum::Answers;
use crate::error::{Error, Fault};
use crate::events;
use crate::key;
use crate::script::{Call, Reply};

/// Asks the servers about what is called `name`, unless the client was shut down.
pub(super) async fn ask(
    engine: &Arc<Engine>,
    name: &Arc<str>,
    call: Call,
    enough: impl Fn(&[&Reply]) -> bool,
) -> Result<Answers, Error> {
    check_name(engine, name)?;
    engine.check_service(Service::Draining)?;
    let quorum = engine.quorum_of(name);
    let began_at = engine.clock.now();
    let span = span(name, call.script.name);
    count(&engine.events.counts.requests);
    let asked = quorum.ask(call, enough).instrument(span.clone()).await;
    let asked = asked.map_err(|fault| quorum.error(Some(name), fault));
    if asked.is_err() {
        count(&engine.events.counts.requests_failed);
    }
    if !span.is_disabled() {
        span.record("took_us", engine.clock.now().since(began_at).as_micros() as u64);
        record_outcome(&span, "answered", asked.as_ref().err());
    }
    asked
}

/// Records in a span how it ended: `good` without an error.
pub(super) fn record_outcome(span: &Span, good: &'static str, error: Option<&Error>) {
    match error {
        None => span.record("outcome", good),
        Some(error) => span.record("outcome", display(error)),
    };
}

/// The span of a request that is no acquisition, renewal or release.
fn span(name: &str, script: &str) -> Span {
    tracing::debug_span!(
        target: events::LOCK,
        "request",
        name,
        script,
        took_us = Empty,
        outcome = Empty,
    )
}

/// Asks the one server that has what is called `name`.
pub(super) async fn ask_one<T>(
    engine: &Arc<Engine>,
    name: &Arc<str>,
    call: Call,
    read: impl Fn(&Reply) -> Option<T>,
) -> Result<T, Error> {
    let answers = ask(engine, name, call, |replies| !replies.is_empty()).await?;
    let reply = answers.replies.first().expect("BUG: answers are there");
    read(reply).ok_or_else(|| unexpected(engine, name, reply))
}

/// Returns the error for a reply that is not understood.
pub(super) fn unexpected(engine: &Engine, name: &Arc<str>, reply: &Reply) -> Error {
    let fault = Fault::Unexpected(format!("{reply:?}").into());
    engine.quorum_of(name).error(Some(name), fault)
}

/// Fails if nothing can have that name here.
pub(super) fn check_name(engine: &Engine, name: &str) -> Result<(), Error> {
    Error::check_name(name, key::lock_name_problem(name))?;
    Error::check_name(name, engine.fleet.name_problem(name))
}
