//! One acquisition of several locks: all of them, or none.
//!
//! All that are missing are tried at once. If one of them is refused, those that come before it are kept, those that come
//! after it are given back, and it is waited for. Behind a client of another library, which knows no such order, none is kept. The
//! order is the same in every process: while one lock is waited for, only locks that come before it are held. So in no circle of
//! such acquisitions can each wait for the next. Each wait ends with one lock more than the last one, unless a lock is lost.

use std::panic::Location;
use std::time::Duration;

use futures_util::future::join_all;

use super::handle::Handle;
use crate::clock::{Clock, Timestamp};
use crate::engine::acquire::InVain;
use crate::engine::gate::Until;
use crate::error::Error;
use crate::guard::Guard;
use crate::owner::Owner;

/// Several locks that one caller takes. Dropping it gives back what it has.
pub(super) struct Together {
    /// In the order that all processes share.
    parts: Vec<Part>,
    clock: Clock,
    began_at: Timestamp,
    until: Until,
    caller: &'static Location<'static>,
    /// The last refusal, and when the servers answered last.
    refused: Option<(Error, Timestamp)>,
    /// How often, and since when, the terms of what is held were not confirmed.
    unconfirmed: InVain,
}

struct Part {
    handle: Handle,
    owner: Owner,
    guard: Option<Guard>,
    /// Why the last try was in vain, if it has ended.
    refused: Option<Error>,
}

impl Together {
    /// Begins to take the locks of `handles`, which are in the order that all processes share, and determines their owner.
    pub(super) fn begin(
        handles: Vec<Handle>,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> Result<Self, Error> {
        let Some(first) = handles.first() else {
            return Err(Error::argument("a multi lock needs the name of one lock at least"));
        };
        handles.iter().try_for_each(Handle::check_part)?;
        let clock = first.clock().clone();
        let began_at = clock.now();
        let own = Owner::single();
        let part = |handle: Handle| {
            let owner = handle.owner_or(&own);
            Part { owner, handle, guard: None, refused: None }
        };
        let parts = handles.into_iter().map(part).collect();
        let until = Until::within(timeout, began_at);
        let unconfirmed = InVain::default();
        Ok(Self { parts, clock, began_at, until, caller, refused: None, unconfirmed })
    }

    pub(super) fn waited(&self) -> Duration {
        self.clock.now().since(self.began_at)
    }

    /// Takes all locks, and returns their guards in the same order.
    pub(super) async fn take(&mut self) -> Result<Vec<Guard>, Error> {
        loop {
            self.drop_what_was_lost();
            match self.try_missing().await? {
                Some((refused, why)) => self.wait_for(refused, why).await?,
                None if self.settle().await? => return Ok(self.complete()),
                None => {}
            }
        }
    }

    /// Tries all that are missing at once. Returns the first that was refused, and why.
    async fn try_missing(&mut self) -> Result<Option<(usize, Error)>, Error> {
        let (until, caller, tried_at) = (self.end(), self.caller, self.clock.now());
        let goes_on = self.holds_some();
        let missing = self.parts.iter_mut().filter(|part| part.guard.is_none());
        let tries = join_all(missing.map(|part| part.try_once(caller, goes_on)));
        if self.clock.until(until, tries).await.is_none() {
            let error = self.in_vain(tried_at);
            return Err(self.after_all(error));
        }
        let mut refused = None;
        for (number, part) in self.parts.iter_mut().enumerate() {
            match part.refused.take() {
                None => {}
                // A server that does not answer may do so soon: that is waited for, too.
                Some(error) if error.is_retryable() => {
                    refused.get_or_insert((number, error));
                }
                Some(error) => return Err(error),
            }
        }
        Ok(refused)
    }

    /// Waits for the lock that was refused, with nothing but what comes before it; with nothing, if a client of another library
    /// has it. That one shares no order with us, and may wait for what we have.
    async fn wait_for(&mut self, refused: usize, why: Error) -> Result<(), Error> {
        if self.until == Until::Once || self.end() <= self.clock.now() {
            return Err(self.after_all(why));
        }
        let is_foreign = why.holder().is_some_and(|holder| holder.client().is_none());
        let kept = if is_foreign { 0 } else { refused };
        for part in &mut self.parts[kept..] {
            part.guard = None;
        }
        if why.is_timeout() {
            self.refused = Some((why, self.clock.now()));
        }
        let goes_on = self.holds_some();
        let taken = self.parts[refused].take(self.until, self.caller, goes_on).await;
        taken.map_err(|error| self.after_all(error))?;
        if let Some((_, answered_at)) = &mut self.refused {
            *answered_at = self.clock.now();
        }
        Ok(())
    }

    /// Makes the terms of all locks true. Returns false if one of them was lost meanwhile, or was not confirmed and may be yet.
    async fn settle(&mut self) -> Result<bool, Error> {
        let until = self.end();
        let settled = join_all(self.parts.iter().map(|part| part.settle(until))).await;
        let failed = settled.into_iter().filter_map(Result::err).filter(|error| !error.is_lost());
        // What will not pass is told first.
        let Some(error) = failed.min_by_key(Error::is_retryable) else {
            self.unconfirmed = InVain::default();
            return Ok(self.parts.iter().all(Part::is_held));
        };
        let patience = self.parts[0].handle.config().unavailable_after;
        if !self.unconfirmed.goes_on(self.until, &error, patience, self.clock.now()) {
            return Err(error);
        }
        self.unconfirmed.pause(&self.clock, until).await;
        Ok(false)
    }

    /// This comes last, so that an acquisition that is dropped at the last moment keeps nobody out.
    fn complete(&mut self) -> Vec<Guard> {
        let complete = |part: &mut Part| {
            let guard = part.guard.take().expect("BUG: all are held");
            part.handle.keep(&guard);
            guard
        };
        self.parts.iter_mut().map(complete).collect()
    }

    /// Returns true if the client holds something for it: a drain waits for that, and so for all of this.
    fn holds_some(&self) -> bool {
        self.parts.iter().any(Part::is_held)
    }

    fn drop_what_was_lost(&mut self) {
        for lost in self.parts.iter_mut().filter(|part| !part.is_held()) {
            lost.guard = None;
        }
    }

    /// Returns the end of the waiting. One attempt has its own.
    fn end(&self) -> Timestamp {
        match self.until {
            Until::At(at) => at,
            Until::Ever | Until::Once => Timestamp::NEVER,
        }
    }

    /// Returns why there was no answer in time: what one of them was told, or else what is known of one. What was given back here
    /// before `since` is no reason.
    fn in_vain(&mut self, since: Timestamp) -> Error {
        if self.clock.is_stopped() {
            return Error::closed(&self.clock);
        }
        if let Some(error) = self.parts.iter_mut().find_map(|part| part.refused.take()) {
            return error;
        }
        let missing = self.parts.iter().find(|part| part.guard.is_none());
        let missing = missing.expect("BUG: one was missing");
        missing.handle.in_vain(&missing.owner, since, self.began_at)
    }

    /// Returns the error with the time that the whole acquisition took. If servers that have just answered do not do so once
    /// more before the wait ends, it was too short for their answer: then the last refusal is the reason.
    fn after_all(&mut self, mut error: Error) -> Error {
        let patience = self.parts[0].handle.config().response_timeout;
        if matches!(error, Error::Unavailable { .. })
            && self.end() <= self.clock.now()
            && let Some((refusal, answered_at)) = self.refused.take()
            && self.clock.now() < answered_at.plus(patience)
        {
            error = refusal;
        }
        if let Error::Timeout { waited, .. } = &mut error {
            *waited = self.waited();
        }
        error
    }
}

impl Part {
    async fn take(
        &mut self,
        until: Until,
        caller: &'static Location<'static>,
        goes_on: bool,
    ) -> Result<(), Error> {
        self.guard = Some(self.handle.take_part(&self.owner, until, caller, goes_on).await?);
        Ok(())
    }

    async fn try_once(&mut self, caller: &'static Location<'static>, goes_on: bool) {
        self.refused = None;
        self.refused = self.take(Until::Once, caller, goes_on).await.err();
    }

    async fn settle(&self, until: Timestamp) -> Result<(), Error> {
        match &self.guard {
            Some(guard) => self.handle.settle(guard, until).await,
            None => Ok(()),
        }
    }

    fn is_held(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_held)
    }
}
