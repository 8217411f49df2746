//! What is known of a lease, and what can be decided about it without asking anybody.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms, drift};
use crate::engine::quorum::{Foothold, Renewal};
use crate::engine::round::PerNode;
use crate::error::{Fault, LossReason};
use crate::owner::Owner;

pub(super) struct State {
    pub(super) phase: Phase,
    /// Never moves back (invariant 2).
    pub(super) deadline: Timestamp,
    /// What every renewal asks for.
    pub(super) ttl: Duration,
    /// What the servers confirmed last: less than the TTL until the first renewal, if it was granted by message.
    pub(super) lasts: Duration,
    /// The longest end that was ever asked of the servers, confirmed or not.
    pub(super) ends_by: Timestamp,
    pub(super) watched: bool,
    /// Nothing is renewed after it: the latest of what those want who use it.
    pub(super) renew_until: Timestamp,
    pub(super) levels: SmallVec<[Level; 1]>,
    pub(super) next_level: u64,
    /// It stays locked until then, also when its last user leaves before.
    pub(super) keep_until: Timestamp,
    pub(super) renew_at: Timestamp,
    pub(super) renewing: bool,
    /// A server may have forgotten it then, and has not confirmed it by an answer to what was sent since.
    pub(super) doubted_at: Option<Timestamp>,
    /// When the servers are asked about a lease in doubt that is not renewed.
    pub(super) ask_at: Timestamp,
    /// What each node has of it, as far as is known, and when to look for answers that were not waited for.
    pub(super) footholds: PerNode<Foothold>,
    pub(super) look_at: Timestamp,
    /// A majority said at its last answer that it is ours.
    pub(super) confirmed: bool,
    /// The hold count: as it should be, as the servers have it, and whether an update is on its way.
    pub(super) count: u32,
    pub(super) count_written: u32,
    pub(super) count_in_flight: bool,
    pub(super) next_token: u64,
    pub(super) block_end: u64,
    pub(super) block: u64,
    /// Who uses it now, and with which token.
    pub(super) user: Option<(Owner, u64)>,
    /// What is to be told once the mutex is free.
    pub(super) news: Vec<News>,
}

/// One guard that uses a lease. Several do if they are nested, or share the lease.
#[derive(Clone, Copy)]
pub(super) struct Level {
    number: u64,
    /// Until when it wants the lease renewed.
    until: Timestamp,
}

/// What happened to a lease, as a line of the log.
pub(super) enum News {
    RenewalFailed { fault: Fault, remaining: Duration },
    PutBack { node: Arc<str> },
    Reclaimed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Held,
    Lost(LossReason),
    Released,
}

impl State {
    /// Ends it if its time is over; why, if that is news.
    pub(super) fn expire(&mut self, now: Timestamp) -> Option<LossReason> {
        if self.phase != Phase::Held || now < self.deadline {
            return None;
        }
        let reason = if self.watched && self.renew_until > now {
            LossReason::NotRenewed
        } else {
            LossReason::Ended
        };
        self.phase = Phase::Lost(reason);
        Some(reason)
    }

    /// The next moment at which something happens of itself.
    pub(super) fn next_at(&self) -> Timestamp {
        let renew_at = if self.renews() { self.renew_at } else { Timestamp::NEVER };
        let ask_at = if self.asks() { self.ask_at } else { Timestamp::NEVER };
        renew_at.min(ask_at).min(self.deadline).min(self.look_at)
    }

    /// Adds one that uses it, and wants it renewed until then. Returns its number.
    pub(super) fn enter(&mut self, until: Timestamp) -> u64 {
        self.next_level += 1;
        self.levels.push(Level { number: self.next_level, until });
        self.next_level
    }

    /// Changes until when one wants it renewed.
    pub(super) fn limit(&mut self, number: u64, until: Timestamp) {
        let own = self.levels.iter_mut().filter(|level| level.number == number);
        own.for_each(|level| level.until = until);
    }

    /// Returns until when it is renewed for one that is offered it at `now`, and may not look at it any more.
    pub(super) fn end_of_offer(&self, terms: Terms, now: Timestamp) -> Timestamp {
        end_of_hold(terms, now).min(now.plus(self.ttl / 3 + Duration::from_millis(1)))
    }

    /// Takes out one that uses it no more. What it wanted ends with it.
    pub(super) fn leave(&mut self, number: u64) {
        self.levels.retain(|level| level.number != number);
        self.settle();
    }

    /// Until when one wants it renewed.
    pub(super) fn until(&self, number: u64) -> Option<Timestamp> {
        self.levels.iter().find(|level| level.number == number).map(|level| level.until)
    }

    /// Renews it for as long as any of those wants who use it; when the next event is, if that has changed.
    pub(super) fn settle(&mut self) -> Option<Timestamp> {
        let renew_until = self.levels.iter().map(|level| level.until).max()?;
        let before = self.next_at();
        self.renew_until = renew_until;
        let next_at = self.next_at();
        (before != next_at).then_some(next_at)
    }

    /// Whether there is a renewal to come that is not on its way.
    pub(super) fn renews(&self) -> bool {
        self.watched && !self.renewing && self.renew_at < self.renew_until
    }

    /// Whether the servers are still to be asked about it, since it is in doubt, and no renewal will tell.
    pub(super) fn asks(&self) -> bool {
        self.doubted_at.is_some() && !self.renewing && !self.count_in_flight && !self.renews()
    }

    /// Whether it is in doubt for a reason that is newer than the request that was answered.
    pub(super) fn is_doubted_since(&self, answered: &Renewal) -> bool {
        self.doubted_at.is_some_and(|at| answered.sent_at() < at)
    }

    /// The servers answered that they have it.
    pub(super) fn believe(&mut self, answered: &Renewal) {
        if !self.is_doubted_since(answered) {
            self.doubted_at = None;
        }
        self.confirmed = true;
        self.count_written = answered.count;
    }

    /// A renewal that was answered "held": counted from before it was sent (invariant 2).
    pub(super) fn confirm(&mut self, renewal: &Renewal) {
        let sent_at = renewal.sent_at();
        self.deadline = self.deadline.max(sent_at.plus(renewal.ttl).minus(drift(renewal.ttl)));
        self.lasts = self.lasts.max(renewal.ttl).min(self.ttl);
        self.believe(renewal);
        // One that was lengthened by less than its TTL is renewed sooner.
        self.renew_at = sent_at.plus(self.ttl.min(renewal.ttl) / 3);
    }

    /// For how long it is put back where it is missing: for no longer than it lasts elsewhere, unless it is renewed.
    pub(super) fn rest(&self, now: Timestamp) -> Duration {
        if self.watched && now < self.renew_until {
            return self.ttl;
        }
        let rest = self.deadline.since(now);
        rest + drift(rest)
    }

    /// The servers were asked at `at` to keep it for `ttl` from then on.
    pub(super) fn asked_for(&mut self, ttl: Duration, at: Timestamp) {
        self.ends_by = self.ends_by.max(at.plus(ttl));
    }

    /// Returns true if a next hold may use it as it is, as far as that depends on the lease.
    pub(super) fn may_pass(&self, now: Timestamp) -> bool {
        self.watched
            && self.phase == Phase::Held
            && self.deadline.since(now) > self.lasts / 2
            && self.ends_by.since(now) <= self.ttl
            && self.keep_until <= now
    }

    /// Returns true if its block has a token for one more hold.
    pub(super) fn has_token(&self) -> bool {
        self.next_token <= self.block_end
    }

    pub(super) fn take_token(&mut self) -> Option<u64> {
        // An acquire for a shared lease takes no tokens: all who use it have the last one that was taken before.
        if self.block == 0 {
            return Some(self.block_end);
        }
        if self.next_token > self.block_end {
            return None;
        }
        self.next_token += 1;
        Some(self.next_token - 1)
    }
}

/// Returns how long after its beginning a lease is renewed first. One that was granted for a short time, by message, is
/// renewed soon, but not before a short hold is likely over.
pub(super) fn first_renewal(lasts: Duration, ttl: Duration) -> Duration {
    if lasts < ttl { FIRST_RENEWAL.min(lasts / 3) } else { ttl / 3 }
}

/// Returns until when a hold that began then wants its lease renewed: one with a fixed lease does not.
pub(super) fn end_of_hold(terms: Terms, began_at: Timestamp) -> Timestamp {
    match terms.lease {
        LeaseTerms::Watched(_) => {
            terms.max_hold.map_or(Timestamp::NEVER, |max_hold| began_at.plus(max_hold))
        }
        LeaseTerms::Fixed(_) => Timestamp::default(),
    }
}

pub(super) fn look_by(footholds: &[Foothold], patience: Duration) -> Timestamp {
    footholds
        .iter()
        .filter_map(|foothold| foothold.look_by(patience))
        .min()
        .unwrap_or(Timestamp::NEVER)
}

const FIRST_RENEWAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
