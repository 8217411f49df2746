//! The state of a gate, and what can be decided about it without asking anybody.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::effects::{Effects, Evicted};
use super::hold::{Answer, Hold, PendingRelease};
use super::seat::Seat;
use super::wait_list::{Seeker, WaitList, Waiter};
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::engine::kind::{Refusal, Wanted};
use crate::engine::lease::{Lease, Standing};
use crate::engine::quorum::Attempt;
use crate::error::{Error, Fault, LossReason};
use crate::key::{Holder, LeaseId};
use crate::owner::Owner;

#[derive(Default)]
pub(super) struct State {
    pub(super) seat: Seat,
    /// Somebody of this process asks the servers now, for the ordinary waiters or for itself.
    pub(super) asking: Option<Asking>,
    /// How many claims are open, those included whose right was taken from them.
    pub(super) claims: u32,
    /// Lost holds with guards still around.
    pub(super) lost: Vec<Arc<Hold>>,
    pub(super) waiters: WaitList,
    pub(super) arrivals: u64,
    /// How many asks have begun, and the numbers of the last that was refused and of the last that failed.
    pub(super) asks: u64,
    pub(super) refused_ask: u64,
    pub(super) failed_ask: u64,
    /// How many had begun when the servers last answered.
    pub(super) answered_asks: u64,
    /// Somebody who does not wait wants to know whether the lock is free.
    pub(super) hurried: bool,
    /// The driver task runs.
    pub(super) driven: bool,
    pub(super) last_release: LastRelease,
    /// A waiter's request in a server's queue, which the driver has to take over.
    pub(super) begun: Option<Box<Begun>>,
    /// Other clients are taken to listen for releases: some received the message of one a short while before the last answer.
    pub(super) others_listen: bool,
    /// A second after the last answer that said so.
    pub(super) others_listen_until: Timestamp,
    pub(super) refusal: Option<Box<SeenRefusal>>,
    /// What a majority has answered to the ask that is under way, which waits for the others.
    pub(super) refused_so_far: Option<Box<SeenRefusal>>,
    /// The last lease that was given back here; see [`State::given_back`].
    pub(super) last: Option<Last>,
    pub(super) trouble: Option<Box<Trouble>>,
    /// Tokens that the last lease used.
    pub(super) tokens_used: u64,
    /// Until when clients of another library are assumed to want the lock, too.
    pub(super) mixed_until: Timestamp,
    /// The lease whose release is sent at the end of the window, whatever becomes of its unlock.
    pub(super) overseen: Option<LeaseId>,
    /// What unlocks will be told whose releases others had sent, by their numbers.
    pub(super) told: Vec<(u64, oneshot::Receiver<Answer>)>,
    /// Taken out of the client's list: it must not be used any more.
    pub(super) retired: bool,
}

/// The right to ask, which somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    /// The number of the ask.
    pub(super) number: u64,
    pub(super) since: Timestamp,
    /// For how long it is kept: by a caller not for long, since nobody may poll that one; by the driver for as long as it takes.
    pub(super) patience: Duration,
}

/// What the last release of this client left.
#[derive(Clone, Copy, Default)]
pub(super) enum LastRelease {
    /// Nothing that matters to the next ask.
    #[default]
    Over,
    /// Its answer is not there yet.
    Pending { number: u64, since: Timestamp },
    /// Others received its message, and come before us if we ask before `until`.
    Received { others: u32, until: Timestamp },
}

impl LastRelease {
    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

/// A request that waits in a server's queue for the waiters of this process.
pub(super) struct Begun {
    pub(super) attempt: Attempt,
    pub(super) seeker: Seeker,
    pub(super) wanted: Wanted,
    /// What the servers answered. Others may have asked since.
    pub(super) refusal: Option<Refusal>,
}

/// The servers gave no usable answer.
#[derive(Clone)]
pub(super) struct Trouble {
    /// The end of the quarantine, if it is one.
    pub(super) since: Timestamp,
    pub(super) fault: Fault,
}

impl Trouble {
    /// Returns the fault as it is at `now`.
    pub(super) fn fault_at(&self, now: Timestamp) -> Fault {
        match &self.fault {
            Fault::Quarantined(_) => Fault::Quarantined(self.since.since(now)),
            fault => fault.clone(),
        }
    }
}

pub(super) struct SeenRefusal {
    pub(super) refusal: Refusal,
    pub(super) at: Timestamp,
}

impl SeenRefusal {
    /// Returns the refusal as it is at `now`.
    pub(super) fn at(&self, now: Timestamp) -> Refusal {
        let passed = now.since(self.at);
        let remaining = self.refusal.remaining.map(|left| left.saturating_sub(passed));
        Refusal { remaining, ..self.refusal.clone() }
    }
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
            queue: None,
        }
    }
}

impl State {
    /// Returns true if a lease is in use here, and neither over nor shared with `other`. If both were granted just now, one of them
    /// was freed by force: the next renewal of the one that was seated first shows which.
    pub(super) fn is_held_beside(&self, other: &Lease, now: Timestamp) -> bool {
        let Seat::Held(seated) = &self.seat else { return false };
        let lease = &seated.lease;
        !lease.remaining(now).is_zero() && !lease.kind.is_shared_with(&*other.kind)
    }

    /// Moves a lost hold out of the way, and sends its release: a lost hold keeps nobody out (invariant 8).
    pub(super) fn evict_lost(&mut self, now: Timestamp, effects: &mut Effects) {
        let Some(lease) = self.seat.lease() else { return };
        let Standing::Lost { newly: newly_lost, .. } = lease.expire(now) else { return };
        let lease = lease.clone();
        if matches!(self.seat, Seat::Unsent(_)) {
            // It was ours until its last user left.
            return self.send_unsent(effects, now);
        }
        self.tokens_used = 0;
        self.lost.extend(self.seat.holds().iter().filter(|hold| hold.depth() > 0).cloned());
        let release = self.release(&lease, now);
        effects.evicted = Some(Evicted { release, newly_lost });
    }

    /// Sends the release of a lease, and frees the seat behind it, unless that has another lease.
    pub(super) fn release(&mut self, lease: &Arc<Lease>, now: Timestamp) -> PendingRelease {
        let release = Box::new(lease.release());
        let is_seated = self.seat.lease().is_some_and(|seated| Arc::ptr_eq(seated, lease));
        if is_seated && self.passes_on() {
            // Ordinary waiters did not ask meanwhile, as they do behind other leases: their patience begins with their next ask.
            self.trouble = None;
        }
        let owner = self.seat.last_user().filter(|_| is_seated).map(|hold| hold.owner.clone());
        self.given_back(lease, owner, now);
        self.arrivals += 1;
        self.last_release = LastRelease::Pending { number: self.arrivals, since: now };
        if is_seated {
            self.seat = Seat::Free;
        }
        PendingRelease { lease: lease.clone(), release, number: self.arrivals }
    }

    /// Until the servers answer again, the lease that was given back is all that is known.
    pub(super) fn given_back(&mut self, lease: &Lease, owner: Option<Owner>, now: Timestamp) {
        self.last = Some(Last { holder: Holder::new(lease.id().0.clone()), owner, at: now });
    }

    /// Takes in the answer to release `number`, or `None` if there was none. Returns true if a time of that length has begun in
    /// which others come first.
    pub(super) fn released(
        &mut self,
        number: u64,
        others: Option<u32>,
        now: Timestamp,
        window: Duration,
    ) -> bool {
        if !matches!(self.last_release, LastRelease::Pending { number: latest, .. } if latest == number)
        {
            return false;
        }
        let others = others.unwrap_or(0);
        if others > 0 {
            self.others_listen_until = now.plus(MEMORY);
        }
        // A release that grants the lock to one who waits tells nobody, and so not whether anybody listens.
        self.others_listen = now < self.others_listen_until;
        self.last_release = match others {
            0 => LastRelease::Over,
            others => LastRelease::Received { others, until: now.plus(window) },
        };
        others > 0
    }

    pub(super) fn forget_old_release(&mut self, now: Timestamp) {
        if matches!(self.last_release, LastRelease::Received { until, .. } if until <= now) {
            self.last_release = LastRelease::Over;
        }
    }

    /// The time in which others come first is over.
    pub(super) fn forget_release(&mut self) {
        if matches!(self.last_release, LastRelease::Received { .. }) {
            self.last_release = LastRelease::Over;
        }
    }

    /// Has the driver take over a request that stands in a server's queue. Returns the one whose place it takes.
    pub(super) fn take_over(&mut self, begun: Option<Box<Begun>>) -> Option<Box<Begun>> {
        begun.and_then(|begun| self.begun.replace(begun))
    }

    /// Returns true if the servers may be asked behind the last release: its answer is there, or is not waited for
    /// because nobody else was heard to listen lately. So those who listen are passed over once a second at most.
    pub(super) fn may_ask(&self) -> bool {
        match self.last_release {
            LastRelease::Over => true,
            LastRelease::Pending { .. } => !self.others_listen,
            LastRelease::Received { .. } => false,
        }
    }

    /// Returns true if a newcomer may ask the servers: nobody of this process is before it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.seat, Seat::Free)
            && self.asking.is_none()
            && self.waiters.is_empty()
            && self.may_ask()
    }

    /// Returns true if nobody needs the gate. Whoever has an open claim may still be granted the lock.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.seat, Seat::Free)
            && self.claims == 0
            && matches!(self.last_release, LastRelease::Over)
            && self.lost.is_empty()
            && self.waiters.is_empty()
            && !self.driven
    }

    /// Returns true if anything is held, asked for, or given back.
    pub(super) fn is_busy(&self) -> bool {
        let held = match &self.seat {
            Seat::Free => false,
            Seat::Held(seated) => !seated.lease.is_over(),
            Seat::Unsent(_) => true,
        };
        held || self.driven
            || self.claims > 0
            || self.last_release.is_pending()
            || !self.waiters.is_empty()
    }

    /// Returns for how long, of at most `window`, a lease may pass from one waiter here to the next. Clients of another
    /// library take turns one by one, and would get one turn in a window: beside them we do the same.
    pub(super) fn window(&self, window: Duration, now: Timestamp) -> Duration {
        if now < self.mixed_until { Duration::ZERO } else { window }
    }

    /// Takes in that another holds the lock. A holder of another library is remembered for a while.
    pub(super) fn refused(&mut self, refusal: Refusal, now: Timestamp) {
        self.answered();
        if refusal.is_foreign() {
            self.mixed_until = now.plus(MEMORY);
        }
        self.refusal = Some(Box::new(SeenRefusal { refusal, at: now }));
    }

    /// Returns what is known of why nobody here has the lock: that the servers gave no usable answer, or who has it. What the ask
    /// under way has found is newer than what came of the one before.
    pub(super) fn known(&self) -> (Option<&Trouble>, Option<&SeenRefusal>) {
        match &self.refused_so_far {
            Some(so_far) => (None, Some(so_far)),
            None => (self.trouble.as_deref(), self.refusal.as_deref()),
        }
    }

    /// Takes in that an ask finds another holder, and still waits for servers that may grant it.
    pub(super) fn found_held(&mut self, refusal: &Refusal, now: Timestamp) {
        let seen = || Box::new(SeenRefusal { refusal: refusal.clone(), at: now });
        self.refused_so_far.get_or_insert_with(seen);
    }

    /// Takes in that the lock has another holder now. Who waits for it is as good as known from the last refusal.
    pub(super) fn succeeded_by(&mut self, holder: Refusal, now: Timestamp) {
        let queue = self.refusal.take().and_then(|seen| seen.refusal.queue);
        self.refused(Refusal { queue, ..holder }, now);
    }

    /// Returns true if tasks of this process take turns: one asks while the other's release is on its way, or the last lease
    /// had several holds.
    fn takes_turns(&self) -> bool {
        self.last_release.is_pending() || self.tokens_used > 1
    }

    /// Returns how many tokens an acquire takes with `others` waiting behind it: as many as the hand-offs it may serve.
    pub(super) fn block(&self, terms: Terms, others: usize, window: Duration) -> u64 {
        let others = others.max(self.takes_turns().into()) as u64;
        if others == 0 || terms.fair || matches!(terms.lease, LeaseTerms::Fixed(_)) {
            return 1;
        }
        let most = (window.as_micros() as u64).max(1);
        (1 + others).max(2 * self.tokens_used).min(most)
    }

    /// The servers answered.
    pub(super) fn answered(&mut self) {
        self.answered_asks = self.asks;
        self.trouble = None;
        self.refusal = None;
        self.refused_so_far = None;
    }

    /// Ends the waits of those whom `which` selects.
    pub(super) fn fail_waiters(
        &mut self,
        effects: &mut Effects,
        which: impl Fn(&Waiter) -> bool,
        error: impl Fn() -> Error,
    ) {
        let failed = self.waiters.take_all(which).into_iter();
        effects.turns.extend(failed.map(|waiter| (waiter.turn, Err(error()))));
    }

    /// Returns why the owner's hold was lost, if it still has guards of a lost hold. What no waiter took up in time had none.
    pub(super) fn loss_of(&self, owner: &Owner) -> Option<LossReason> {
        let hold = self.lost.iter().find(|hold| hold.owner == *owner && hold.has_begun())?;
        Some(hold.lease.loss().unwrap_or(LossReason::NotRenewed))
    }
}

/// For how long a caller that asks by itself keeps the right to ask. If it has not looked at the answer by then, perhaps nobody
/// polls it.
pub(super) const ABANDONED: Duration = Duration::from_millis(250);
/// How long a holder of another library is remembered, and that others listen.
const MEMORY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
