//! How a worker takes an item from a queue.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::delivery::Delivery;
use super::items::{Content, Item};
use super::queue::Queue;
use crate::clock::Timestamp;
use crate::engine::acquire;
use crate::engine::gate::{Request, Until};
use crate::engine::kind::Wanted;
use crate::error::Error;
use crate::events;
use crate::guard::Guard;
use crate::key::LockKind;
use crate::owner::Owner;

impl Queue {
    /// Takes an item, or fails with a timeout if the time was over first.
    pub(super) async fn take(
        &self,
        until: Until,
        caller: &'static Location<'static>,
    ) -> Result<Delivery, Error> {
        self.check()?;
        self.engine.config.check_terms(&self.terms)?;
        let began_at = self.now();
        let span = span(self.name(), caller);
        loop {
            let item = Arc::new(Item::new(self.items.clone()));
            let wanted = Wanted { side: item.clone(), terms: self.terms };
            let owner = Owner::single();
            let request = Request::new(owner, wanted, until, began_at, caller);
            let request = Request { patient: true, ..request };
            let acquired = acquire::acquire(&self.engine, &request).instrument(span.clone()).await;
            span.record("wait_us", self.now().since(began_at).as_micros() as u64);
            let guard = match acquired {
                Ok(acquired) => Guard::new(acquired.entry),
                // One run takes away 100 items at most that were delivered too often. There may be others behind them.
                Err(Error::Timeout { remaining: Some(Duration::ZERO), .. })
                    if until == Until::Once =>
                {
                    continue;
                }
                Err(Error::Timeout { waiting, .. }) => {
                    span.record("outcome", "none");
                    return Err(self.in_vain(item.why_in_vain(waiting.len()), began_at));
                }
                Err(error) => {
                    span.record("outcome", tracing::field::display(&error));
                    return Err(error);
                }
            };
            let content = match item.content_of(guard.holder().text()) {
                Some(content) => Some(content),
                None => match self.read_within(until, &item, &guard).await {
                    None if self.engine.clock.is_stopped() => {
                        return Err(Error::closed(&self.engine.clock));
                    }
                    // It goes to another one.
                    None => {
                        span.record("outcome", "none");
                        let why = "an item came too late to be read".to_owned();
                        return Err(self.in_vain(why, began_at));
                    }
                    // Who cannot read it waits on, for as long as it may.
                    Some(Err(Error::Unavailable { .. })) if until != Until::Once => None,
                    Some(content) => content?,
                },
            };
            // Otherwise it was lost on the way, or goes to another one.
            if let Some(content) = content {
                span.record("outcome", "lent");
                return Ok(Delivery::new(guard, item, content));
            }
        }
    }

    /// Reads the content of a delivery whose grant did not bring it along; `None` if the time was over first.
    async fn read_within(
        &self,
        until: Until,
        item: &Arc<Item>,
        guard: &Guard,
    ) -> Option<Result<Option<Content>, Error>> {
        let read = self.read(item, guard);
        match until {
            Until::At(at) => self.engine.clock.until(at, read).await,
            Until::Once | Until::Ever => Some(read.await),
        }
    }

    /// Reads the content of a delivery whose grant did not bring it along; `None` if it is lent no more.
    async fn read(&self, item: &Arc<Item>, guard: &Guard) -> Result<Option<Content>, Error> {
        let call = item.read(guard.holder().text().clone(), self.terms.ttl());
        self.ask(call, Item::read_content).await
    }

    fn in_vain(&self, state: String, began_at: Timestamp) -> Error {
        Error::StillWaiting {
            kind: LockKind::Queue,
            name: self.items.name().clone(),
            state: state.into(),
            waited: self.now().since(began_at),
        }
    }
}

/// The span of a pop.
fn span(queue: &str, caller: &Location<'_>) -> Span {
    tracing::debug_span!(
        target: events::LOCK,
        "pop",
        queue,
        at = %caller,
        wait_us = Empty,
        outcome = Empty,
    )
}
