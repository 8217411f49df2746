//! When somebody who waits could have had a lock. Pure: it knows who has what and who waits for what, and nothing of servers.

use std::collections::BTreeMap;

use crate::event::Share;

/// Somebody has a lock, or some of the permits, or waits for that, from one time until another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) share: Share,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// What is known of a lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) uses: Vec<Part>,
    pub(super) waits: Vec<Part>,
    /// Somebody may have it then, and nobody says so.
    pub(super) unsure: Vec<(u64, u64)>,
}

/// What those who wait for a lock may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Alone,
    Reads,
    Permits,
}

impl Side {
    pub(super) fn of(share: Share) -> Self {
        match share {
            Share::Alone | Share::Lent => Self::Alone,
            Share::Reads => Self::Reads,
            Share::Permits { .. } => Self::Permits,
        }
    }
}

impl Known {
    /// From when until when whoever waits on that side could have the lock, whoever else waits: a writer if nobody has it; a
    /// reader also beside readers, unless a writer waits; and if enough permits are left for the one who wants most of them,
    /// the first in the queue is served, and all behind it.
    pub(super) fn free(&self, side: Side) -> Vec<(u64, u64)> {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        let (mut now, mut since) = (State::default(), 0);
        for (at, changes) in self.changes() {
            if at > since && now.is_free(side) {
                match spans.last_mut() {
                    Some((_, to)) if *to == since => *to = at,
                    _ => spans.push((since, at)),
                }
            }
            changes.into_iter().for_each(|(what, by)| now.change(what, by));
            since = at;
        }
        if now.is_free(side) {
            spans.push((since, u64::MAX));
        }
        spans
    }

    fn changes(&self) -> BTreeMap<u64, Vec<(What, i64)>> {
        let uses = self.uses.iter().map(|part| (part.from, part.to, What::Has(part.share)));
        let waits = self.waits.iter().map(|part| (part.from, part.to, What::Waits(part.share)));
        let unsure = self.unsure.iter().map(|(from, to)| (*from, *to, What::Unsure));
        let mut changes: BTreeMap<u64, Vec<(What, i64)>> = BTreeMap::new();
        for (from, to, what) in uses.chain(waits).chain(unsure) {
            if from < to {
                changes.entry(from).or_default().push((what, 1));
                changes.entry(to).or_default().push((what, -1));
            }
        }
        changes
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Has(Share),
    Waits(Share),
    Unsure,
}

/// How things are at one time.
#[derive(Default)]
struct State {
    alone: i64,
    reads: i64,
    out: i64,
    unsure: i64,
    waiting_writers: i64,
    /// How many permits those want who wait, and how many there are.
    wanted: BTreeMap<(u32, u32), i64>,
}

impl State {
    fn change(&mut self, what: What, by: i64) {
        match what {
            What::Has(Share::Alone | Share::Lent) => self.alone += by,
            What::Has(Share::Reads) => self.reads += by,
            What::Has(Share::Permits { weight, .. }) => self.out += by * i64::from(weight),
            What::Waits(Share::Alone | Share::Lent) => self.waiting_writers += by,
            What::Waits(Share::Reads) => {}
            What::Waits(Share::Permits { weight, all }) => {
                let count = self.wanted.entry((weight, all)).or_default();
                *count += by;
                if *count == 0 {
                    self.wanted.remove(&(weight, all));
                }
            }
            What::Unsure => self.unsure += by,
        }
    }

    fn is_free(&self, side: Side) -> bool {
        let is_free = match side {
            Side::Alone => self.alone + self.reads == 0,
            Side::Reads => self.alone == 0 && (self.reads == 0 || self.waiting_writers == 0),
            Side::Permits => self
                .wanted
                .keys()
                .all(|(weight, all)| self.out + i64::from(*weight) <= i64::from(*all)),
        };
        is_free && self.unsure == 0
    }
}
