//! When to ask again over several nodes. Pure: times come in, nothing is sent.
//!
//! A waiter asks when a majority of the nodes can be free: those that were free at its last ask, and those that
//! told of a release or whose lease has ended since. So neither the release of its own part of a vote that
//! came to nothing makes it ask, nor that of another who got no majority either.
//!
//! It asks after a random pause, the longer the more others listen and the more votes were split before: so one
//! of them is likely to be alone. There is no queue as on one server, for there is no order that all nodes share.

use std::time::Duration;

use super::round::PerNode;
use super::tally::majority;
use crate::clock::Timestamp;

/// How a node stood at the last ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Free,
    /// Held by another, or of no use; until then at the longest, or until it is heard of.
    Away {
        until: Timestamp,
    },
}

/// How a vote was lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    pub(crate) nodes: PerNode<Standing>,
    /// Nobody has a majority.
    pub(crate) split: bool,
}

/// What a waiter knows of the nodes.
#[derive(Debug)]
pub(crate) struct Backoff {
    nodes: PerNode<Standing>,
    /// How many others listen.
    others: u32,
    /// Votes in a row that nobody won.
    splits: u32,
}

impl Backoff {
    /// Nothing is known of any node.
    pub(crate) fn new(nodes: usize) -> Self {
        let unknown = Standing::Away { until: Timestamp::NEVER };
        Self { nodes: (0..nodes).map(|_| unknown).collect(), others: 0, splits: 0 }
    }

    /// All nodes are free: we have just released them, and `others` heard of it.
    pub(crate) fn released(&mut self, others: u32) {
        self.nodes.fill(Standing::Free);
        self.others = others;
        self.splits = 0;
    }

    /// The lock is held until then, with `others` listening; how each node stands is not known.
    pub(crate) fn held(&mut self, until: Timestamp, others: u32) {
        self.nodes.fill(Standing::Away { until });
        self.others = others;
    }

    /// The last ask was refused, with `others` listening.
    pub(crate) fn refused(&mut self, count: &Count, others: u32) {
        self.nodes.clone_from(&count.nodes);
        self.others = others;
        self.splits = if count.split { self.splits + 1 } else { 0 };
    }

    /// A node told of a release, or what it told before may have been missed; its grants count from
    /// `counts_from` on. Whether that is news.
    ///
    /// Our own release of a grant that did not count is heard here, too: it must not make us ask again.
    pub(crate) fn freed(&mut self, node: usize, counts_from: Timestamp, now: Timestamp) -> bool {
        let standing = match counts_from {
            until if until > now => Standing::Away { until },
            _ => Standing::Free,
        };
        std::mem::replace(&mut self.nodes[node], standing) != standing
    }

    /// From when on a majority can be free.
    pub(crate) fn may_win_at(&self, now: Timestamp) -> Timestamp {
        let mut free_at: PerNode<Timestamp> = self
            .nodes
            .iter()
            .map(|standing| match standing {
                Standing::Free => now,
                Standing::Away { until } => (*until).max(now),
            })
            .collect();
        free_at.sort_unstable();
        free_at[majority(free_at.len()) - 1]
    }

    /// How long to wait at most, from then on, before asking; `round_trip` is how long a vote takes.
    pub(crate) fn spread(&self, round_trip: Duration) -> Duration {
        let widened = self.others.saturating_mul(1 << self.splits.min(MOST_DOUBLINGS));
        (unit(round_trip) * widened).min(LONGEST_SPREAD)
    }
}

/// How long one who asks keeps the others away.
pub(crate) fn unit(round_trip: Duration) -> Duration {
    (round_trip * 2).max(Duration::from_millis(1))
}

const MOST_DOUBLINGS: u32 = 4;
const LONGEST_SPREAD: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    fn held(ms: u64) -> Standing {
        Standing::Away { until: at(ms) }
    }

    fn lost(nodes: &[Standing], split: bool) -> Count {
        Count { nodes: nodes.iter().copied().collect(), split }
    }

    #[test]
    fn its_own_release_is_no_reason_to_ask() {
        let mut backoff = Backoff::new(3);
        backoff.refused(&lost(&[Standing::Free, held(900), held(800)], false), 0);
        backoff.freed(0, at(0), at(100));
        assert_eq!(backoff.may_win_at(at(100)), at(800));
        backoff.freed(2, at(0), at(100));
        assert_eq!(backoff.may_win_at(at(100)), at(100));
    }

    #[test]
    fn leases_that_end_free_their_nodes_one_by_one() {
        let mut backoff = Backoff::new(5);
        let never = Standing::Away { until: Timestamp::NEVER };
        backoff.refused(&lost(&[held(700), held(500), held(600), never, never], false), 0);
        assert_eq!(backoff.may_win_at(at(100)), at(700));
        backoff.freed(3, at(0), at(100));
        assert_eq!(backoff.may_win_at(at(100)), at(600));
        assert_eq!(backoff.may_win_at(at(650)), at(650));
    }

    #[test]
    fn a_release_on_a_node_in_quarantine_is_no_reason_to_ask_before_its_end() {
        let mut backoff = Backoff::new(3);
        let never = Standing::Away { until: Timestamp::NEVER };
        backoff.refused(&lost(&[Standing::Free, never, held(500)], false), 0);
        assert!(!backoff.freed(2, at(500), at(100)), "its own release");
        assert!(!backoff.freed(0, at(100), at(100)), "its own release, at the end of a quarantine");
        assert_eq!(backoff.may_win_at(at(100)), at(500));
        assert!(backoff.freed(1, at(0), at(100)));
        assert_eq!(backoff.may_win_at(at(100)), at(100));
    }

    #[test]
    fn nothing_is_known_at_the_beginning_and_all_after_a_release_of_ours() {
        for nodes in [1, 3] {
            let mut backoff = Backoff::new(nodes);
            assert_eq!(backoff.may_win_at(at(5)), Timestamp::NEVER);
            backoff.released(2);
            assert_eq!(backoff.may_win_at(at(5)), at(5));
        }
    }

    #[test]
    fn the_pause_grows_with_the_others_and_with_split_votes() {
        const TRIP: Duration = Duration::from_micros(100);
        let mut backoff = Backoff::new(3);
        assert_eq!(backoff.spread(TRIP), Duration::ZERO, "it knows of no others");
        backoff.held(at(9), 4);
        assert_eq!(backoff.spread(TRIP), Duration::from_millis(4), "no vote was split");
        assert_eq!(backoff.may_win_at(at(5)), at(9));
        let split = lost(&[Standing::Free, held(9), held(9)], true);
        let won = lost(&[held(9), held(9), held(9)], false);
        backoff.refused(&won, 0);
        assert_eq!(backoff.spread(TRIP), Duration::ZERO, "alone");
        backoff.refused(&won, 4);
        assert_eq!(backoff.spread(TRIP), Duration::from_millis(4));
        backoff.refused(&split, 4);
        assert_eq!(backoff.spread(TRIP), Duration::from_millis(8));
        backoff.refused(&split, 4);
        assert_eq!(backoff.spread(TRIP), Duration::from_millis(16));
        backoff.refused(&won, 4);
        assert_eq!(backoff.spread(TRIP), Duration::from_millis(4));
        assert_eq!(backoff.spread(TRIP * 100), Duration::from_millis(80));
        backoff.refused(&split, 1000);
        assert_eq!(backoff.spread(TRIP), LONGEST_SPREAD);
        backoff.released(2);
        assert_eq!(backoff.spread(TRIP), Duration::from_millis(2), "who held it starts afresh");
    }
}
