//! Redlock's delayed restart, done by the client: if a server may have forgotten its locks, its grants do not count
//! until every lease that it, or the server before it, may have granted is over. Pure: it takes the time as an argument
//! and asks nothing.
//!
//! | the server that was met                     | when its grants count                                          |
//! |---------------------------------------------|----------------------------------------------------------------|
//! | is met for the first time                   | a quarantine after its mark; without one, a quarantine from now |
//! | is the same run with the same history       | when they did before                                           |
//! | is another run, or has another history      | a quarantine from now                                          |
//!
//! The history is that of its data, see `past.rs`: a server that received the data of another has forgotten its own.
//!
//! In a cluster the mark counts for each slot by itself, since a slot may have come from anywhere: see `tenure.rs`.
//!
//! The *mark* is a key on the server, which says when a client first met this run with this history (`grace_mark.lua`). It
//! comes with the data of another server, and then names that one. So the first client after a promotion begins the
//! quarantine for all, and a client that comes long after does not wait. A client that knew another server waits in full
//! nevertheless, because its address may lead elsewhere.
//!
//! A server's uptime proves nothing: it is the difference of two readings of a wall clock, which is often set forward soon
//! after a host's start, by hours. The mark was written later, by a client that met the server. So it is wrong only if the
//! clock was set forward after that. A promoted server is not young either way.
//!
//! During the quarantine, the *grace*, holders put leases back that the server does not have. They may do so only until
//! others' grants may count, which is a quarantine after the mark. The server's time of the mark is above all tokens of
//! before, also those that its counters do not know of.
//!
//! What a server reports about its disk has no influence. Even if it writes an append-only file through now, the
//! previous run may not have done so, or may have had another disk. A user who knows better sets the quarantine to
//! zero.

use std::time::Duration;

use super::past::Past;
use super::tenure::{Slots, Standing, Tenure};
use crate::clock::Timestamp;

/// What a server reports about its run, and when.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) id: Option<String>,
    /// Its role, and where its data comes from.
    pub(super) past: Past,
    /// When this was reported.
    pub(super) heard_at: Timestamp,
    /// `None` if it was not asked for, or if the server refused.
    pub(super) mark: Option<Mark>,
    /// What it owns, if it is in a cluster.
    pub(super) slots: Option<Slots>,
}

/// What the mark says: since when clients have known this run with this history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// By the server's clock, in microseconds.
    pub(super) since_us: u64,
    pub(super) age: Duration,
    /// The server read its clock between these times.
    pub(super) asked_at: Timestamp,
    pub(super) heard_at: Timestamp,
}

impl Mark {
    /// Returns a time at or after the end of what began with the mark and lasts for `length`, if the server's clock and
    /// this client's differ by at most 1 % in rate.
    fn over_by(&self, length: Duration) -> Timestamp {
        self.heard_at.plus(length.saturating_sub(self.age - self.age / 100))
    }

    /// Returns a time at or before that.
    fn lasts_until(&self, length: Duration) -> Timestamp {
        self.asked_at.plus(length.saturating_sub(self.age + self.age / 50))
    }
}

/// One run of one server, with one history of its data, as this client has met it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// The number of the node, of a cluster.
    pub(crate) member: u32,
    pub(crate) run: u64,
}

/// The time from which on the grants of a node count.
#[derive(Debug)]
pub(super) struct Quarantine {
    length: Duration,
    /// The last run, and the number of runs so far, each with one history.
    pub(super) run_id: Option<String>,
    pub(super) run: u64,
    history: Option<String>,
    pub(super) until: Timestamp,
    /// Until then a lease that the last run does not have may be put back.
    reclaims_until: Timestamp,
    /// What was granted before the last run, or before its present history, has tokens below this. Zero: not known.
    pub(super) tokens_from: u64,
    /// The slots of the last run, if it is in a cluster.
    pub(super) tenure: Tenure,
}

impl Quarantine {
    /// If `length` is zero, grants always count.
    pub(super) fn new(length: Duration) -> Self {
        let never = Timestamp::default();
        Self {
            length,
            run_id: None,
            run: 0,
            history: None,
            until: never,
            reclaims_until: never,
            tokens_from: 0,
            tenure: Tenure::default(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        !self.length.is_zero()
    }

    /// Returns true if `run` is the run of the last connection, with the same history.
    pub(super) fn is_known(&self, run: &Run) -> bool {
        let first = self.run == 0;
        let history = &run.past.history;
        // If grants may not count, an unknown history is always another one.
        let same_history = self.history == *history && (history.is_some() || !self.is_on());
        !first && run.id.is_some() && run.id == self.run_id && same_history
    }

    /// A new connection leads to `run`. Returns true if that is not the run of the last connection.
    pub(super) fn meet(&mut self, run: &Run) -> bool {
        if self.is_known(run) {
            self.note(run.slots.as_ref());
            return false;
        }
        let first = self.run == 0;
        self.run += 1;
        self.run_id.clone_from(&run.id);
        self.history.clone_from(&run.past.history);
        if self.is_on() {
            self.until = self.counts_from(run, first);
            let others_count_from = run.mark.map(|mark| mark.lasts_until(self.length));
            self.reclaims_until = others_count_from.map_or(self.until, |at| at.min(self.until));
            self.tokens_from = run.mark.map_or(0, |mark| {
                // The clock of the server whose data it has may have been ahead.
                let ahead = if run.past.had_another { self.length } else { Duration::ZERO };
                mark.since_us + ahead.as_micros() as u64
            });
            self.tenure.clear();
            self.note(run.slots.as_ref());
        }
        !first
    }

    /// Returns from when on the grants of a server in this run count, which a new connection leads to.
    pub(super) fn will_count_from(&self, run: &Run) -> Timestamp {
        if self.is_known(run) || !self.is_on() {
            return self.until;
        }
        self.counts_from(run, self.run == 0)
    }

    /// The server of the last run owns these slots now.
    pub(super) fn note(&mut self, slots: Option<&Slots>) {
        let Some(slots) = slots.filter(|_| self.is_on()) else { return };
        let (length, tokens_from) = (self.length, self.tokens_from);
        let (counts_from, reclaims_until) = (self.until, self.reclaims_until);
        let all = Standing { counts_from, reclaims_until, tokens_from };
        self.tenure.renew(&slots.owned.ranges, |slot| slots.standing(slot, length, all));
    }

    fn counts_from(&self, run: &Run, first: bool) -> Timestamp {
        let in_full = run.heard_at.plus(self.length);
        if !first {
            return in_full;
        }
        if run.slots.as_ref().is_some_and(|slots| slots.owned.ranges.is_empty()) {
            // Those that come have quarantines of their own.
            return run.heard_at;
        }
        run.mark.map_or(in_full, |mark| mark.over_by(self.length))
    }

    /// Returns true if a lease that this run does not have may be put back at `now`; in a cluster, a lease in this slot.
    pub(super) fn reclaims(&self, run: u64, slot: Option<u16>, now: Timestamp) -> bool {
        let until = match slot {
            Some(slot) => self.tenure.of(slot).map_or(Timestamp::default(), |it| it.reclaims_until),
            None => self.reclaims_until,
        };
        self.run == run && now < until
    }
}

#[cfg(test)]
mod tests;
