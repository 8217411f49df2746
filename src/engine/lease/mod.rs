//! A lease as it is known here: until when it is ours, and what was asked of the servers about it.
//!
//! | phase      | becomes                | when                                                             |
//! |------------|------------------------|------------------------------------------------------------------|
//! | `Held`     | `Lost`                 | its deadline passes, a server says it is gone, or the client ends |
//! | `Held`     | `Released`             | its last user leaves                                             |
//! | the others | nothing (invariant 3)  |                                                                  |
//!
//! What is decided about a lease and the request that follows from it are one step under its mutex: nothing
//! is renewed or counted behind its release.

mod levels;
mod reclaiming;
mod renewing;
mod state;
mod together;
mod writing;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use renewing::Due;
use state::{News, Phase, State, end_of_hold, first_renewal, look_by};
pub(crate) use together::{Company, SOON, Together};
pub(crate) use writing::Unconfirmed;

use super::kind::{Kind, Ticket};
use super::quorum::{Grant, Quorum, Release};
use crate::clock::{Clock, Timestamp};
use crate::config::{LeaseTerms, Terms};
use crate::error::LossReason;
use crate::events::{self, Use};
use crate::key::LeaseId;
use crate::owner::Owner;

/// A grant with an end.
pub(crate) struct Lease {
    ticket: Ticket,
    pub(crate) kind: Arc<dyn Kind>,
    /// A time before the servers granted it.
    pub(crate) acquired_at: Timestamp,
    /// When the time began in which it may be handed on.
    pub(crate) passes_from: Timestamp,
    /// It was asked for by a fair handle: it passes to nobody.
    pub(crate) fair: bool,
    /// The last token before its own, if it is known.
    before: Option<u64>,
    quorum: Arc<Quorum>,
    clock: Clock,
    state: Mutex<State>,
    /// Where it stands in the watchdog's schedule, whose mutex guards it.
    pub(crate) place: Place,
    /// Cancelled when the lease is lost; made for the first who asks.
    lost: OnceLock<CancellationToken>,
    /// Wakes those who wait until the client holds nothing.
    left: Arc<Notify>,
}

/// A moment that is guarded from elsewhere: nanoseconds on the client's clock, 0 for none.
#[derive(Default)]
pub(crate) struct Place(AtomicU64);

impl Place {
    pub(crate) fn set(&self, at: Option<Timestamp>) {
        self.0.store(at.map_or(0, Timestamp::nanos), Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Option<Timestamp> {
        match self.0.swap(0, Ordering::Relaxed) {
            0 => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }
}

/// Whether a lease is ours.
pub(crate) enum Standing {
    Ours,
    /// `newly`: it was found out just now, and nobody was told yet.
    Lost {
        reason: LossReason,
        newly: Option<LossReason>,
    },
}

impl Lease {
    pub(crate) fn new(
        grant: Grant,
        terms: Terms,
        kind: Arc<dyn Kind>,
        quorum: Arc<Quorum>,
        clock: Clock,
        left: Arc<Notify>,
    ) -> Self {
        let watched = matches!(terms.lease, LeaseTerms::Watched(_));
        let patience = quorum.patience(grant.ttl);
        quorum.events().lease_began();
        Self {
            ticket: grant.ticket,
            kind,
            acquired_at: grant.began_at,
            passes_from: grant.passes_from,
            fair: terms.fair,
            before: grant.before,
            quorum,
            clock,
            state: Mutex::new(State {
                phase: Phase::Held,
                deadline: grant.deadline,
                ttl: grant.ttl,
                lasts: grant.lasts,
                ends_by: grant.ends_by,
                watched,
                renew_until: end_of_hold(terms, grant.began_at),
                levels: SmallVec::new(),
                next_level: 0,
                renew_at: grant.began_at.plus(first_renewal(grant.lasts, grant.ttl)),
                renewing: false,
                doubted_at: None,
                ask_at: Timestamp::default(),
                look_at: look_by(&grant.footholds, patience),
                footholds: grant.footholds,
                confirmed: true,
                keep_until: Timestamp::default(),
                count: 1,
                count_written: 1,
                count_in_flight: false,
                next_token: (grant.block_end + 1).saturating_sub(grant.block),
                block_end: grant.block_end,
                block: grant.block,
                user: None,
                news: Vec::new(),
            }),
            place: Place::default(),
            lost: OnceLock::new(),
            left,
        }
    }

    pub(crate) fn id(&self) -> &LeaseId {
        &self.ticket.id
    }

    /// Whether it is ours at `now`; from its deadline on it is lost. Tells nobody.
    pub(crate) fn expire(&self, now: Timestamp) -> Standing {
        let mut state = self.state.lock();
        let newly = state.expire(now);
        if newly.is_some() {
            self.quorum.events().lease_ended();
        }
        match state.phase {
            Phase::Lost(reason) => Standing::Lost { reason, newly },
            Phase::Held | Phase::Released => Standing::Ours,
        }
    }

    /// Whether it is ours at `now`; from its deadline on it is lost.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), LossReason> {
        match self.expire(now) {
            Standing::Ours => Ok(()),
            Standing::Lost { reason, newly } => {
                if newly.is_some() {
                    self.tell(reason);
                }
                Err(reason)
            }
        }
    }

    /// Why it was lost, if that is known.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        match self.state.lock().phase {
            Phase::Lost(reason) => Some(reason),
            Phase::Held | Phase::Released => None,
        }
    }

    /// How long until its deadline, whatever has become of it.
    pub(crate) fn time_left(&self, now: Timestamp) -> Duration {
        self.state.lock().deadline.since(now)
    }

    /// How long it is ours still if nothing renews it.
    pub(crate) fn remaining(&self, now: Timestamp) -> Duration {
        let state = self.state.lock();
        match state.phase {
            Phase::Held => state.deadline.since(now),
            _ => Duration::ZERO,
        }
    }

    /// Returns which part of its time is left to a lease that is renewed; `None` for another.
    pub(crate) fn part_left(&self, now: Timestamp) -> Option<f64> {
        let state = self.state.lock();
        let is_renewed = state.watched && state.phase == Phase::Held && now < state.renew_until;
        is_renewed.then(|| state.deadline.since(now).as_secs_f64() / state.lasts.as_secs_f64())
    }

    /// Ends it as lost, unless it has ended before.
    pub(crate) fn lose(&self, reason: LossReason) {
        let mut state = self.state.lock();
        if state.phase == Phase::Held {
            state.phase = Phase::Lost(reason);
            drop(state);
            self.quorum.events().lease_ended();
            self.tell(reason);
        }
    }

    /// Returns true if it is renewed for as long as nothing happens.
    pub(crate) fn lasts(&self) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Held && state.watched && state.renew_until == Timestamp::NEVER
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().phase != Phase::Held
    }

    /// Cancelled when the lease is lost, or nobody is left to notice it.
    pub(crate) fn lost(&self) -> &CancellationToken {
        let token = self.lost.get_or_init(CancellationToken::new);
        // Made first, asked then; `wake` takes the same mutex before it looks for the token: one sees the other.
        let state = self.state.lock();
        if matches!(state.phase, Phase::Lost(_)) || self.clock.is_stopped() {
            drop(state);
            token.cancel();
        }
        token
    }

    /// Wakes those who wait for the loss.
    pub(crate) fn tell(&self, reason: LossReason) {
        self.wake();
        let user = self.state.lock().user.clone();
        self.quorum.events().lock_lost(self.used(&user), reason, self.clock.now());
    }

    /// Says who uses it from now on.
    pub(crate) fn used_by(&self, owner: &Owner, token: u64) {
        self.state.lock().user = Some((owner.clone(), token));
    }

    fn used<'a>(&'a self, user: &'a Option<(Owner, u64)>) -> Use<'a> {
        Use {
            lock: self.kind.name(),
            lease: self.id(),
            owner: user.as_ref().map(|(owner, _)| owner),
            token: user.as_ref().map_or(0, |(_, token)| *token),
        }
    }

    /// Emits what has happened under the mutex, once that is free.
    fn tell_news(&self, mut state: MutexGuard<'_, State>) {
        let news = std::mem::take(&mut state.news);
        if news.is_empty() {
            return;
        }
        let user = state.user.clone();
        drop(state);
        let events = self.quorum.events();
        for news in news {
            match news {
                News::RenewalFailed { fault, remaining } => {
                    let now = self.clock.now();
                    events.renewal_failed(self.used(&user), &fault, remaining, now);
                }
                News::Reclaimed => events.lock_reclaimed(self.used(&user)),
                News::PutBack { node } => {
                    events::lease_put_back(&node, self.kind.name(), self.id());
                }
            }
        }
    }

    /// Wakes those who wait for the loss, also where nobody is left to notice it.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        if let Some(token) = self.lost.get() {
            token.cancel();
        }
        self.left.notify_waiters();
    }

    /// Its next token, if the block has one left.
    pub(crate) fn take_token(&self) -> Option<u64> {
        self.state.lock().take_token()
    }

    /// Returns the last token that was given out before `token`, which is one of its own, if that is known.
    pub(crate) fn token_before(&self, token: u64) -> Option<u64> {
        let state = self.state.lock();
        let first = (state.block_end + 1).saturating_sub(state.block);
        if token > first { Some(token - 1) } else { self.before }
    }

    /// How many tokens were used.
    pub(crate) fn tokens_used(&self) -> u64 {
        let state = self.state.lock();
        state.block - (state.block_end + 1).saturating_sub(state.next_token)
    }

    /// Lets the next hold, on `terms`, use this lease as it is: the hold's token, if that can be.
    ///
    /// Only while it is young and far from its end, so that a hold in another process waits for one
    /// window at most, and the new hold begins with time enough. Not once it was extended: the new hold asked
    /// for no longer lease than its own, and would outlast a crash of this process by what the last one asked for.
    pub(crate) fn hand_off(&self, now: Timestamp, terms: Terms, window: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        let fits = terms.lease == LeaseTerms::Watched(state.ttl) && terms.min_hold.is_zero();
        if fits && state.may_pass(now) && now.since(self.passes_from) < window {
            return state.take_token();
        }
        None
    }

    /// Returns true if a next hold could use it as it is, on the terms that suit it.
    pub(crate) fn may_pass(&self, now: Timestamp, window: Duration) -> bool {
        let state = self.state.lock();
        now.since(self.passes_from) < window && state.may_pass(now) && state.has_token()
    }

    /// Returns true if it was granted for less long than it was asked for, by message, and was not renewed yet.
    pub(crate) fn is_short(&self) -> bool {
        let state = self.state.lock();
        state.lasts < state.ttl
    }

    /// Returns true if it is ours for long enough that one more may begin to use it.
    pub(crate) fn has_time(&self, now: Timestamp) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Held && state.deadline.since(now) > state.lasts / 2
    }

    /// Keeps the lock taken until `at` at least, whatever becomes of its users.
    pub(crate) fn keep_until(&self, at: Timestamp) {
        let mut state = self.state.lock();
        state.keep_until = state.keep_until.max(at);
    }

    /// Until when the lock stays taken, whatever becomes of its users.
    pub(crate) fn kept_until(&self) -> Timestamp {
        self.state.lock().keep_until
    }

    /// Ends it for its users. Its release is still to come.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Held {
            state.phase = Phase::Released;
            self.quorum.events().lease_ended();
        }
    }

    /// Ends it and sends its release. A lost lease is released as well as may be.
    pub(crate) fn release(&self) -> Release {
        let mut state = self.state.lock();
        if state.phase == Phase::Held {
            state.phase = Phase::Released;
            self.quorum.events().lease_ended();
        }
        if matches!(state.phase, Phase::Lost(_)) {
            self.kind.lost(&self.ticket.id);
        }
        // It is owed for as long as anything that was asked for may keep the lock.
        let now = self.clock.now();
        let lasts = state.ends_by.since(now).max(state.ttl);
        let keep = state.keep_until.since(now);
        self.quorum.release(&self.kind, self.ticket.clone(), lasts, keep, &state.footholds)
    }

    /// When the watchdog has to look at it next; `None` once it is over.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        let state = self.state.lock();
        (state.phase == Phase::Held).then(|| state.next_at())
    }

    /// How long an answer about it is waited for: the longer, the longer it is ours.
    pub(crate) fn patience(&self, now: Timestamp) -> Duration {
        let state = self.state.lock();
        self.quorum.patience(state.ttl.max(state.deadline.since(now)))
    }
}

#[cfg(test)]
pub(crate) mod tests;
