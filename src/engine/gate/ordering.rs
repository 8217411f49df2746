//! In which order the clients of this process take locks one under the other. What each owner, task or thread holds is kept, and
//! whoever asks for another lock is compared with all pairs that were seen before. Nothing is kept where nobody wants that.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use super::deadlock::is_followed;
use super::hold::Hold;
use super::{Engine, Request};
use crate::config::LockOrder;
use crate::engine::circles::{Actor, Party};
use crate::engine::order::{Order, Pair, Taken};
use crate::events;
use crate::owner::Place;

/// What is held, and in which order locks were asked for so far.
#[derive(Default)]
pub(super) struct Ordering(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    held: HashMap<Actor, Vec<Held>>,
    order: Order,
}

#[derive(Clone)]
struct Held {
    /// The address of the hold, which tells it from all others for as long as it is there.
    hold: usize,
    name: Arc<str>,
    at: &'static Location<'static>,
}

impl Ordering {
    fn note(&self, party: &Party, wanted: Taken<'_>) -> Option<Vec<Pair>> {
        let mut kept = self.0.lock();
        let Kept { held, order } = &mut *kept;
        let mut above = party.actors().filter_map(|actor| held.get(&actor)).flatten();
        above.find_map(|held| order.note(Taken { name: &held.name, at: held.at }, wanted))
    }
}

impl Engine {
    /// Warns if what is asked for, by one who may have to wait, is in another order than before with what the caller holds.
    pub(crate) fn check_order(&self, request: &Request) {
        let is_on = self.config.lock_order != LockOrder::Off;
        if !is_on || request.patient || !is_followed(&*request.wanted.side) {
            return;
        }
        let party = Party { owner: request.owner.clone(), place: Place::here() };
        if !self.process.holdings.may_hold(&party) {
            return;
        }
        let wanted = Taken { name: request.name(), at: request.caller };
        let circle = self.process.ordering.note(&party, wanted).unwrap_or_default();
        if let Some((now, before)) = circle.split_first() {
            let before: Vec<String> = before.iter().map(Pair::to_string).collect();
            events::other_order(request.name(), &party.owner, now, &before.join(", "));
        }
    }
}

impl Hold {
    pub(super) fn keep_order(&self) {
        if !self.is_ordered() {
            return;
        }
        let held = Held { hold: self.address(), name: self.gate.name.clone(), at: self.taken_at };
        let mut kept = self.gate.engine.process.ordering.0.lock();
        for actor in self.party().actors() {
            kept.held.entry(actor).or_default().push(held.clone());
        }
    }

    pub(super) fn forget_order(&self) {
        if !self.is_ordered() {
            return;
        }
        let mut kept = self.gate.engine.process.ordering.0.lock();
        for actor in self.party().actors() {
            if let Some(held) = kept.held.get_mut(&actor) {
                held.retain(|held| held.hold != self.address());
                if held.is_empty() {
                    kept.held.remove(&actor);
                }
            }
        }
    }

    fn is_ordered(&self) -> bool {
        self.gate.engine.config.lock_order != LockOrder::Off && is_followed(&*self.lease.kind)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
