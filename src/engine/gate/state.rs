//! The state of a gate, and what can be decided about it without asking anybody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::hold::{Hold, Parting, Turn};
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::engine::kind::Refusal;
use crate::engine::lease::{Lease, Standing};
use crate::error::Fault;
use crate::key::Holder;
use crate::owner::{Owner, Place};

#[derive(Default)]
pub(super) struct State {
    pub(super) seat: Seat,
    /// Lost holds with guards still around.
    pub(super) dead: Vec<Arc<Hold>>,
    /// By arrival.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    pub(super) arrivals: u64,
    /// How many asks have begun, and the number of the last that was refused.
    pub(super) asks: u64,
    pub(super) refused_ask: u64,
    /// The driver task runs.
    pub(super) driven: bool,
    pub(super) aftermath: Aftermath,
    /// Others heard of the last release whose answer is known.
    pub(super) in_company: bool,
    pub(super) refusal: Option<Box<SeenRefusal>>,
    /// The last lease that was given back here: until the servers answer again, it is all that is known.
    pub(super) last: Option<Last>,
    pub(super) trouble: Option<Box<Trouble>>,
    /// Tokens that the last lease used.
    pub(super) tokens_used: u64,
    /// Until when clients of another library are taken to want the lock, too.
    pub(super) mixed_until: Timestamp,
    /// Taken out of the client's list: it is not to be used any more.
    pub(super) retired: bool,
}

#[derive(Default)]
pub(super) enum Seat {
    #[default]
    Free,
    Asking,
    Held(Arc<Hold>),
}

/// What the last release of this client left.
#[derive(Clone, Copy, Default)]
pub(super) enum Aftermath {
    #[default]
    Nothing,
    /// Its answer is not there yet.
    Pending { number: u64 },
    /// Others heard of it and come before us, if we ask before `until`.
    Others { others: u32, until: Timestamp },
}

/// The servers gave no usable answer.
#[derive(Clone)]
pub(super) struct Trouble {
    pub(super) since: Timestamp,
    pub(super) fault: Fault,
}

pub(super) struct SeenRefusal {
    pub(super) refusal: Refusal,
    pub(super) at: Timestamp,
}

/// A lease that was given back here.
pub(super) struct Last {
    holder: Holder,
    owner: Option<Owner>,
    /// When it was given back.
    pub(super) at: Timestamp,
}

impl Last {
    pub(super) fn as_refusal(&self) -> Refusal {
        Refusal {
            holder: self.holder.clone(),
            owner: self.owner.clone(),
            remaining: Some(Duration::ZERO),
            subscribers: 0,
        }
    }
}

pub(super) struct Waiter {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    pub(super) place: Place,
    pub(super) joined_at: Timestamp,
    /// It waits until it gets the lock, or until the servers have been away for too long.
    pub(super) for_ever: bool,
    pub(super) turn: Turn,
}

impl State {
    /// Moves a lost hold out of the way, and sends its release.
    pub(super) fn bury(&mut self, now: Timestamp) -> Option<Parting> {
        let Seat::Held(hold) = &self.seat else {
            return None;
        };
        let newly_lost = match hold.lease.expire(now) {
            Standing::Ours => return None,
            Standing::Lost { newly, .. } => newly,
        };
        let hold = hold.clone();
        self.tokens_used = 0;
        if hold.depth() > 0 {
            self.dead.push(hold.clone());
        }
        Some(Parting { newly_lost, ..self.release(&hold.lease, now) })
    }

    /// Sends the release of a lease, and frees the seat behind it.
    pub(super) fn release(&mut self, lease: &Arc<Lease>, now: Timestamp) -> Parting {
        let release = lease.release();
        let owner = match &self.seat {
            Seat::Held(hold) => Some(hold.owner.clone()),
            Seat::Free | Seat::Asking => None,
        };
        self.last = Some(Last { holder: Holder::new(lease.id.0.clone()), owner, at: now });
        self.arrivals += 1;
        self.aftermath = Aftermath::Pending { number: self.arrivals };
        self.seat = Seat::Free;
        Parting { lease: lease.clone(), release, number: self.arrivals, newly_lost: None }
    }

    pub(super) fn forget_old_aftermath(&mut self, now: Timestamp) {
        if matches!(self.aftermath, Aftermath::Others { until, .. } if until <= now) {
            self.aftermath = Aftermath::Nothing;
        }
    }

    /// Whether the servers may be asked behind the last release: its answer is there, or is not waited for
    /// because nobody heard of the one before. A newcomer is passed over once at most.
    pub(super) fn may_ask(&self) -> bool {
        match self.aftermath {
            Aftermath::Nothing => true,
            Aftermath::Pending { .. } => !self.in_company,
            Aftermath::Others { .. } => false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.seat, Seat::Free)
            && matches!(self.aftermath, Aftermath::Nothing)
            && self.dead.is_empty()
            && self.waiters.is_empty()
            && !self.driven
    }

    /// Whether anything is held, asked for, or given back.
    pub(super) fn is_busy(&self) -> bool {
        let seated = match &self.seat {
            Seat::Free => false,
            Seat::Asking => true,
            Seat::Held(hold) => !hold.lease.is_over(),
        };
        seated || matches!(self.aftermath, Aftermath::Pending { .. }) || !self.waiters.is_empty()
    }

    /// For how long a lease may pass from one waiter here to the next, of at most `window`. Clients of another
    /// library take turns one by one, and would get one turn in a window: beside them we do the same.
    pub(super) fn window(&self, window: Duration, now: Timestamp) -> Duration {
        if now < self.mixed_until { Duration::ZERO } else { window }
    }

    /// Another holds the lock. Whether by this library is remembered for a while.
    pub(super) fn met(&mut self, refusal: &Refusal, now: Timestamp) {
        if refusal.holder.client().is_none() {
            self.mixed_until = now.plus(MEMORY);
        }
    }

    /// How many tokens an acquire takes with `others` waiting behind it: as many as the hand-offs it may serve.
    pub(super) fn block(&self, terms: Terms, others: usize, window: Duration) -> u64 {
        let others = others as u64;
        if others == 0 || matches!(terms.lease, LeaseTerms::Fixed(_)) {
            return 1;
        }
        let most = (window.as_micros() as u64).max(1);
        (1 + others).max(2 * self.tokens_used).min(most)
    }

    /// The servers answered.
    pub(super) fn answered(&mut self) {
        self.trouble = None;
        self.refusal = None;
    }
}

/// How long a holder of another library is remembered.
const MEMORY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(after: Duration) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(9) + after)
    }

    fn refused_by(holder: &str) -> Refusal {
        let holder = Holder::new(holder);
        Refusal { holder, owner: None, remaining: None, subscribers: 0 }
    }

    #[test]
    fn an_acquire_takes_a_token_for_each_hand_off_that_may_follow() {
        let watched = Terms::of(LeaseTerms::Watched(Duration::from_secs(30)));
        let fixed = Terms::of(LeaseTerms::Fixed(Duration::from_secs(30)));
        let block = |tokens_used, terms, others, window| {
            State { tokens_used, ..State::default() }.block(terms, others, window)
        };
        assert_eq!(block(9, watched, 0, 20 * MS), 1, "nobody is behind it");
        assert_eq!(block(9, fixed, 3, 20 * MS), 1, "it is not handed on");
        assert_eq!(block(0, watched, 3, 20 * MS), 4, "those who wait");
        assert_eq!(block(9, watched, 3, 20 * MS), 18, "twice what the last one used");
        assert_eq!(block(9, watched, 3, Duration::from_micros(7)), 7, "one in a microsecond");
        assert_eq!(block(9, watched, 3, Duration::ZERO), 1);
    }

    #[test]
    fn an_answer_ends_the_trouble_and_what_was_known_before() {
        let trouble = Trouble { since: at(MS), fault: Fault::Closed };
        let refusal = SeenRefusal { refusal: refused_by("a"), at: at(MS) };
        let mut state = State {
            trouble: Some(Box::new(trouble)),
            refusal: Some(Box::new(refusal)),
            ..State::default()
        };
        state.answered();
        assert!(state.trouble.is_none() && state.refusal.is_none());
    }

    #[test]
    fn a_holder_of_another_library_is_remembered_for_a_while() {
        let mut state = State::default();
        state.met(&refused_by("client:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30"), at(MS));
        assert_eq!(state.window(20 * MS, at(2 * MS)), 20 * MS, "it is one of ours");
        state.met(&refused_by("0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30:17"), at(MS));
        assert_eq!(state.window(20 * MS, at(MEMORY)), Duration::ZERO);
        assert_eq!(state.window(20 * MS, at(MEMORY + MS)), 20 * MS);
    }

    #[test]
    fn the_servers_are_not_asked_before_those_who_heard_of_a_release() {
        let others = Aftermath::Others { others: 1, until: at(MS) };
        for (aftermath, in_company, may_ask) in [
            (Aftermath::Nothing, false, true),
            (Aftermath::Nothing, true, true),
            (Aftermath::Pending { number: 1 }, false, true),
            (Aftermath::Pending { number: 1 }, true, false),
            (others, false, false),
            (others, true, false),
        ] {
            let state = State { aftermath, in_company, ..State::default() };
            assert_eq!(state.may_ask(), may_ask, "{in_company}");
        }
    }
}
