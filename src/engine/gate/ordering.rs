//! In which order the clients of this process take locks one under the other. What each owner, task or thread holds is kept, and
//! whoever asks for another lock is compared with all pairs that were seen before. Nothing is kept where nobody wants that.

use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use super::hold::Hold;
use super::{Engine, Request};
use crate::config::LockOrder;
use crate::engine::circles::{ByParty, Party};
use crate::engine::kind::{Kind, Sharing};
use crate::engine::order::{Order, Pair, Taken};
use crate::events;
use crate::owner::Place;

/// What is held, and in which order locks were asked for so far.
#[derive(Default)]
pub(super) struct Orders(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    held: ByParty<Held>,
    order: Order,
}

#[derive(Clone)]
struct Held {
    /// The address of the hold, which tells it from all others for as long as it is there.
    hold: usize,
    name: Arc<str>,
    at: &'static Location<'static>,
}

impl Orders {
    fn note(&self, party: &Party, wanted: Taken<'_>) -> Option<Vec<Pair>> {
        let mut kept = self.0.lock();
        let Kept { held, order } = &mut *kept;
        let mut above = held.of(party);
        above.find_map(|held| order.note(Taken { name: &held.name, at: held.at }, wanted))
    }
}

impl Engine {
    /// Warns if what is asked for, by one who may have to wait, is in another order than before with what the caller holds.
    pub(crate) fn check_order(&self, request: &Request) {
        if request.patient || !self.orders(&*request.wanted.side) {
            return;
        }
        let party = Party { owner: request.owner.clone(), place: Place::here() };
        if !self.process.holdings.may_hold(&party) {
            return;
        }
        let wanted = Taken { name: request.name(), at: request.caller };
        let circle = self.process.orders.note(&party, wanted).unwrap_or_default();
        if let Some((now, before)) = circle.split_first() {
            let before: Vec<String> = before.iter().map(Pair::to_string).collect();
            events::other_order(request.name(), &party.owner, now, &before.join(", "));
        }
    }

    fn orders(&self, kind: &dyn Kind) -> bool {
        self.config.lock_order != LockOrder::Off && !matches!(kind.sharing(), Sharing::Each { .. })
    }
}

impl Hold {
    pub(super) fn keep_order(&self) {
        let engine = &self.gate.engine;
        if engine.orders(&*self.lease.kind) {
            let name = self.gate.name.clone();
            let held = Held { hold: self.address(), name, at: self.taken_at };
            engine.process.orders.0.lock().held.put(&self.party(), &held);
        }
    }

    pub(super) fn forget_order(&self) {
        let engine = &self.gate.engine;
        if engine.orders(&*self.lease.kind) {
            let is_it = |held: &Held| held.hold == self.address();
            engine.process.orders.0.lock().held.take_out(&self.party(), is_it);
        }
    }

    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
