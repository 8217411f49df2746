//! What only a cluster asks of its nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handshake;
use super::{Farewell, Node, PendingRelease, Standing};
use crate::error::Fault;
use crate::key::LeaseId;

impl Node {
    /// Returns true if a release of `id` is pending.
    pub(crate) fn owes(&self, id: &LeaseId) -> bool {
        self.shared.link.lock().pending.contains_key(id)
    }

    /// Returns the first key of a release that is pending here.
    pub(crate) fn pending_key(&self, id: &LeaseId) -> Option<Arc<str>> {
        Some(self.shared.link.lock().pending.get(id)?.call.keys[0].clone())
    }

    /// Takes a release over that is pending here.
    pub(crate) fn take_release(&self, id: &LeaseId) -> Option<PendingRelease> {
        let release = self.shared.link.lock().pending.remove(id)?;
        self.shared.released.notify_waiters();
        Some(release)
    }

    /// Takes over the releases that are pending here and meet the condition.
    pub(crate) fn take_releases(
        &self,
        condition: impl Fn(&PendingRelease) -> bool,
    ) -> Vec<(LeaseId, PendingRelease)> {
        let mut link = self.shared.link.lock();
        let ids = link.pending.iter().filter(|(_, release)| condition(release));
        let ids: Vec<LeaseId> = ids.map(|(id, _)| id.clone()).collect();
        let taken: Vec<_> =
            ids.into_iter().filter_map(|id| link.pending.remove_entry(&id)).collect();
        drop(link);
        if !taken.is_empty() {
            self.shared.released.notify_waiters();
        }
        taken
    }

    /// The client's end does not concern it any more.
    pub(crate) fn leave_farewell(&self, farewell: &Farewell) {
        farewell.leave(&self.shared);
    }

    /// Returns true if the client's runtime is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.endpoint.clock.is_stopped()
    }

    /// Returns its number in its cluster.
    pub(crate) fn number(&self) -> u32 {
        self.shared.membership.as_ref().map_or(0, |membership| membership.number)
    }

    /// Returns the last run of its server, and how grants in a slot stand there; `None` if it is not known that it has it.
    pub(crate) fn standing(&self, slot: u16) -> (u64, Option<Standing>) {
        let quarantine = self.shared.quarantine.lock();
        (quarantine.run, quarantine.tenure.of(slot))
    }

    /// Returns true if its server is known to own these slots, or if that does not matter.
    pub(crate) fn has_noted(&self, ranges: &[(u16, u16)]) -> bool {
        let quarantine = self.shared.quarantine.lock();
        !quarantine.is_on() || quarantine.tenure.ranges() == ranges
    }

    /// Returns true if nobody else asks the server about its slots now. The caller is to do so.
    pub(crate) fn begins_to_note(&self) -> bool {
        !self.shared.is_noting.swap(true, Ordering::AcqRel)
    }

    /// Asks the server which slots it has, and since when. Returns true if it is known to have other slots now than before.
    pub(crate) async fn note_slots(&self) -> bool {
        let slots = || self.shared.quarantine.lock().tenure.ranges();
        let before = slots();
        let noted = handshake::note_slots(&self.shared).await;
        self.shared.is_noting.store(false, Ordering::Release);
        noted.is_ok() && slots() != before
    }

    /// Returns the reason why there is no connection, if there is none.
    pub(crate) fn check_connected(&self) -> Result<(), Fault> {
        self.shared.link.lock().state.connection().map(|_| ())
    }

    /// Returns true if there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.link.lock().state.is_up()
    }
}
