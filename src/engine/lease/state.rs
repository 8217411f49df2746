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
    pub(super) next_level: u32,
    /// It stays locked until then, also when its last user leaves before.
    pub(super) keep_until: Timestamp,
    pub(super) renew_at: Timestamp,
    pub(super) renewing: bool,
    /// Another renewal follows at once if the one on its way has no usable answer.
    pub(super) hurried: bool,
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
    number: u32,
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
        renew_at.min(self.deadline).min(self.look_at)
    }

    /// Adds one that uses it, and wants it renewed until then. Returns its number.
    pub(super) fn enter(&mut self, until: Timestamp) -> u32 {
        self.next_level += 1;
        self.levels.push(Level { number: self.next_level, until });
        self.next_level
    }

    /// Changes until when one wants it renewed.
    pub(super) fn limit(&mut self, number: u32, until: Timestamp) {
        let own = self.levels.iter_mut().filter(|level| level.number == number);
        own.for_each(|level| level.until = until);
    }

    /// Returns until when it is renewed for one that is offered it at `now`, and may not look at it any more.
    pub(super) fn end_of_offer(&self, terms: Terms, now: Timestamp) -> Timestamp {
        end_of_hold(terms, now).min(now.plus(self.ttl / 3 + Duration::from_millis(1)))
    }

    /// Takes out one that uses it no more. What it wanted ends with it.
    pub(super) fn leave(&mut self, number: u32) {
        self.levels.retain(|level| level.number != number);
        self.settle();
    }

    /// Until when one wants it renewed.
    pub(super) fn until(&self, number: u32) -> Option<Timestamp> {
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

    /// A renewal that was answered "held": counted from before it was sent (invariant 2).
    pub(super) fn confirm(&mut self, renewal: &Renewal) {
        let sent_at = renewal.sent_at();
        self.deadline = self.deadline.max(sent_at.plus(renewal.ttl).minus(drift(renewal.ttl)));
        self.lasts = self.lasts.max(renewal.ttl).min(self.ttl);
        // One that was lengthened by less than its TTL is renewed sooner.
        self.renew_at = sent_at.plus(self.ttl.min(renewal.ttl) / 3);
        self.confirmed = true;
        self.count_written = renewal.count;
        self.hurried = false;
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
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    /// It is ours until 30 000, and renewed at 10 000.
    fn state() -> State {
        State {
            phase: Phase::Held,
            deadline: at(30_000),
            ttl: TTL,
            lasts: TTL,
            ends_by: at(31_000),
            watched: true,
            renew_until: Timestamp::NEVER,
            levels: SmallVec::from_buf([Level { number: 0, until: Timestamp::NEVER }]),
            next_level: 0,
            keep_until: Timestamp::default(),
            renew_at: at(10_000),
            renewing: false,
            hurried: false,
            footholds: PerNode::new(),
            look_at: Timestamp::NEVER,
            confirmed: true,
            count: 1,
            count_written: 1,
            count_in_flight: false,
            next_token: 5,
            block_end: 6,
            block: 2,
            user: None,
            news: Vec::new(),
        }
    }

    #[test]
    fn it_is_lost_at_its_deadline_and_only_once() {
        let mut one = state();
        assert_eq!((one.expire(at(29_999)), one.phase), (None, Phase::Held));
        assert_eq!(one.expire(at(30_000)), Some(LossReason::NotRenewed));
        assert_eq!(one.phase, Phase::Lost(LossReason::NotRenewed));
        assert_eq!(one.expire(at(30_000)), None, "that is no news");
        let mut released = State { phase: Phase::Released, ..state() };
        assert_eq!((released.expire(at(99_000)), released.phase), (None, Phase::Released));
    }

    #[test]
    fn one_that_nothing_renews_any_more_ends() {
        for (watched, renew_until, reason) in [
            (true, at(30_001), LossReason::NotRenewed),
            (true, at(30_000), LossReason::Ended),
            (false, Timestamp::NEVER, LossReason::Ended),
        ] {
            let mut one = State { watched, renew_until, ..state() };
            assert_eq!(one.expire(at(30_000)), Some(reason));
        }
    }

    #[test]
    fn the_next_event_is_a_renewal_the_deadline_or_a_late_answer() {
        assert_eq!(state().next_at(), at(10_000));
        assert_eq!(State { renewing: true, ..state() }.next_at(), at(30_000));
        assert_eq!(State { watched: false, ..state() }.next_at(), at(30_000));
        assert_eq!(State { look_at: at(9000), ..state() }.next_at(), at(9000));
        let last = |renew_until| State { renew_until, ..state() };
        assert_eq!(last(at(10_000)).next_at(), at(30_000));
        assert_eq!(last(at(10_001)).next_at(), at(10_000));
    }

    #[test]
    fn another_limit_tells_when_to_look_and_the_same_one_does_not() {
        let mut one = state();
        let mut limit = |until| {
            one.limit(0, until);
            (one.settle(), one.renew_until)
        };
        assert_eq!(limit(Timestamp::NEVER), (None, Timestamp::NEVER));
        assert_eq!(limit(at(5000)), (Some(at(30_000)), at(5000)));
        assert_eq!(limit(at(5000)), (None, at(5000)));
        assert_eq!(limit(Timestamp::NEVER), (Some(at(10_000)), Timestamp::NEVER));
    }

    #[test]
    fn it_is_renewed_for_as_long_as_any_wants_who_uses_it() {
        let mut one = state();
        one.limit(0, at(5000));
        let [longer, shorter] = [at(9000), at(2000)].map(|until| one.enter(until));
        one.settle();
        assert_eq!((one.renew_until, one.until(longer)), (at(9000), Some(at(9000))));
        one.leave(longer);
        assert_eq!((one.renew_until, one.until(longer)), (at(5000), None));
        one.leave(longer);
        assert_eq!(one.levels.len(), 2, "it had left");
        one.leave(0);
        assert_eq!(one.renew_until, at(2000));
        one.leave(shorter);
        assert!(one.levels.is_empty() && one.until(shorter).is_none());
    }

    #[test]
    fn what_the_last_one_wanted_stays_until_the_next_comes() {
        let mut one = state();
        one.leave(0);
        assert_eq!(one.renew_until, Timestamp::NEVER);
        let next = one.enter(at(5000));
        assert_eq!((one.settle(), one.renew_until), (Some(at(30_000)), at(5000)));
        one.limit(next + 1, at(9000));
        assert_eq!(one.settle(), None, "nobody has that number");
    }

    #[test]
    fn the_longest_end_that_was_asked_for_stays() {
        let mut one = state();
        one.asked_for(TTL, at(500));
        assert_eq!(one.ends_by, at(31_000));
        one.asked_for(TTL, at(2000));
        assert_eq!(one.ends_by, at(32_000));
    }

    #[test]
    fn tokens_are_taken_until_the_block_is_empty_and_a_shared_lease_takes_none() {
        let mut one = state();
        assert_eq!(
            [one.take_token(), one.take_token(), one.take_token()],
            [Some(5), Some(6), None]
        );
        let mut shared = State { block: 0, next_token: 7, ..state() };
        assert_eq!([shared.take_token(), shared.take_token()], [Some(6), Some(6)]);
    }

    #[tokio::test]
    async fn a_confirmation_is_counted_from_its_sending_and_takes_nothing_away() {
        let late = Renewal::answered(at(9000), 3, TTL);
        let mut one = State { confirmed: false, hurried: true, lasts: TTL / 10, ..state() };
        one.confirm(&late);
        let deadline = at(39_000).minus(drift(TTL));
        assert_eq!((one.deadline, one.lasts, one.renew_at), (deadline, TTL, at(19_000)));
        assert_eq!((one.confirmed, one.hurried, one.count_written), (true, false, 3));
        one.confirm(&Renewal::answered(at(9500), 2, TTL / 10));
        assert_eq!((one.deadline, one.lasts), (deadline, TTL), "a shorter one");
        one.confirm(&Renewal::answered(at(10_000), 2, TTL * 2));
        assert_eq!((one.ttl, one.lasts), (TTL, TTL), "a longer one, which is not asked for again");
        assert_eq!(one.deadline, at(70_000).minus(drift(TTL * 2)));
        one.confirm(&Renewal::answered(at(11_000), 2, TTL / 10));
        assert_eq!(one.renew_at, at(12_000), "it was lengthened by little");
    }

    #[test]
    fn a_short_first_grant_is_renewed_soon() {
        assert_eq!(first_renewal(TTL, TTL), TTL / 3);
        assert_eq!(first_renewal(TTL - Duration::from_millis(1), TTL), FIRST_RENEWAL);
        assert_eq!(first_renewal(FIRST_RENEWAL, TTL), FIRST_RENEWAL / 3);
    }

    #[test]
    fn a_hold_without_a_limit_never_ends() {
        let watched = Terms::of(LeaseTerms::Watched(TTL));
        assert_eq!(end_of_hold(watched, at(1000)), Timestamp::NEVER);
        let limited = Terms { max_hold: Some(TTL), ..watched };
        assert_eq!(end_of_hold(limited, at(1000)), at(31_000));
        let fixed = Terms { lease: LeaseTerms::Fixed(TTL), ..limited };
        assert_eq!(end_of_hold(fixed, at(1000)), Timestamp::default());
    }
}
