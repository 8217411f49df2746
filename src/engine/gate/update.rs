//! The one place where a gate's state changes, and what follows once the mutex is free.
//!
//! Nobody is woken and nothing is logged under the mutex: whoever is woken may come straight back to the gate.

use std::sync::Arc;

use super::Gate;
use super::effects::{Effects, Evicted, SlowWaits};
use super::state::{Asking, State};
use super::wait_list::SlowWait;
use crate::clock::Timestamp;
use crate::config::LeaseTerms;
use crate::engine::kind::Refusal;
use crate::engine::lease::Lease;
use crate::events::Blocker;

/// What others can see of a gate. Whoever waits for a change is woken when it differs.
#[derive(PartialEq, Eq)]
struct Outline {
    /// A hand-off in the process changes the hold and not the lease: nobody waits for that.
    lease: Option<*const Lease>,
    asking: Option<Asking>,
    driven: bool,
    /// All ordinary waiters together need one request, for the side and the lease that the first wants, and each waiter of a
    /// fair handle needs its own. A request for anything else is dropped, see `Wanted::is_served_by`.
    ordinary_want: Option<(u32, LeaseTerms)>,
    fair_waiters: usize,
    releasing: bool,
    /// It changes with a newcomer only if all the others have waited for long.
    slow_at: Timestamp,
}

impl Outline {
    fn of(state: &State) -> Self {
        Self {
            lease: state.seat.lease().map(Arc::as_ptr),
            asking: state.asking,
            driven: state.driven,
            ordinary_want: state.waiters.first().map(|(_, waiter)| waiter.wanted.form()),
            fair_waiters: state.waiters.fair_len(),
            releasing: state.last_release.is_pending(),
            slow_at: state.waiters.slow_at(),
        }
    }
}

impl Gate {
    /// Changes the state. Whoever has to learn of the change does so here, and nowhere else.
    pub(super) fn update<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut State, &mut Effects) -> T,
    ) -> T {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        let before = Outline::of(&state);
        let (was_hurried, had_begun) = (state.hurried, state.begun.is_some());
        let had_claims = state.claims > 0;
        let value = change(&mut state, &mut effects);
        let changed = before != Outline::of(&state);
        // These are for the driver alone: whoever hurries it would be woken when it takes that in, and hurry it again.
        let hurries = state.hurried && !was_hurried;
        let takes_over = state.begun.is_some() && !had_begun;
        let spawns = !state.driven && !state.waiters.is_empty();
        state.driven |= spawns;
        let idle = state.is_idle();
        let claims_end = had_claims && state.claims == 0;
        drop(state);
        let answered = effects.answered;
        self.apply(effects);
        if changed || answered {
            self.asked.notify_waiters();
        }
        if changed || hurries || takes_over {
            self.changed.notify_one();
        }
        if changed || claims_end {
            self.engine.left.notify_waiters();
        }
        if spawns {
            self.spawn_driver();
        }
        if idle {
            self.retire_if_idle();
        }
        value
    }

    fn apply(self: &Arc<Self>, effects: Effects) {
        if let Some((hold, end, at)) = effects.ended {
            hold.tell_released(end, at);
        }
        if let Some(lease) = effects.unattended {
            self.oversee(lease);
        }
        if let Some(sent) = effects.sent {
            let (release, tell) = *sent;
            self.engine.watchdog.forget(&release.lease);
            let answer = self.finish_release(release);
            self.engine.watchdog.adopt(Box::pin(async move {
                // The unlock may be gone.
                let _ = tell.send(answer.await);
            }));
        }
        for (turn, result) in effects.turns {
            // An entry that its waiter does not take any more is dropped here, and so goes to the next one.
            let _ = turn.send(result);
        }
        if let Some(slow) = effects.slow {
            self.tell_of_slow_waits(&slow);
        }
        let Some(Evicted { release, newly_lost }) = effects.evicted else { return };
        self.engine.watchdog.forget(&release.lease);
        if let Some(reason) = newly_lost {
            release.lease.tell(reason);
        }
        self.finish_in_background(release);
    }

    fn tell_of_slow_waits(&self, slow: &SlowWaits) {
        let SlowWaits { waits, now, waiters, hold, refusal, fault } = slow;
        let ours = hold.as_ref().map(|hold| hold.as_refusal(*now));
        let refusal = ours.as_ref().or(refusal.as_ref());
        let blocker = Blocker {
            holder: refusal.map(|refusal| &refusal.holder),
            by: hold.as_ref().map(|hold| &hold.owner),
            taken_at: hold.as_ref().map(|hold| hold.taken_at),
            held_for: hold.as_ref().map(|hold| now.since(hold.since)),
            waiters: *waiters,
            clients: refusal.and_then(Refusal::queued_clients),
            fault: fault.as_ref(),
        };
        for SlowWait { owner, asked_at, waited } in waits {
            self.engine.events.still_waiting(&self.name, owner, asked_at, *waited, &blocker, *now);
        }
    }
}
