//! Tokens over several nodes: each has a counter of its own, and the lock's token must be above all before it.
//!
//! A grant's token is the highest that a granting node gave. It is final once a majority of the counters has
//! reached it: two majorities have a node in common, so the next grant sees one of them, and goes above it. The
//! highest alone would not do: a single node may have given it, which the next majority leaves out.
//! Where a majority gave exactly that number there is nothing to do; otherwise the others are lifted to it.
//!
//! A node that forgets its counter breaks the chain; then the order rests on the servers' clocks, from which
//! counters start. A node may also come back with an earlier counter, which readers would take as it is. So no reader
//! has a token below the time since when its clients know that node: what it forgot is from before.

/// The highest of the ends that the granting nodes gave, but at least `least`; and how many gave just that.
pub(super) fn highest(ends: impl Iterator<Item = u64>, least: u64) -> (u64, usize) {
    ends.fold((least, 0), |(highest, times), end| match end.cmp(&highest) {
        std::cmp::Ordering::Less => (highest, times),
        std::cmp::Ordering::Equal => (highest, times + 1),
        std::cmp::Ordering::Greater => (end, 1),
    })
}

/// The last token before a grant: the highest that one of the granting nodes names. Every token reached a majority of the
/// counters, and one of those is among these. `None` if one of them names none, or if there may have been others after it
/// that are forgotten: all those are below `least`.
pub(super) fn before(mut named: impl Iterator<Item = Option<u64>>, least: u64) -> Option<u64> {
    named.try_fold(0, |highest: u64, one| Some(highest.max(one?))).filter(|before| *before >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_end_is_counted() {
        assert_eq!(highest([7, 9, 9, 8].into_iter(), 0), (9, 2));
        assert_eq!(highest([9].into_iter(), 9), (9, 1));
        assert_eq!(highest([9, 7].into_iter(), 10), (10, 0));
        assert_eq!(highest(std::iter::empty(), 0), (0, 0));
    }

    #[test]
    fn the_last_token_before_is_known_if_every_node_knows_one() {
        assert_eq!(before([Some(7), Some(9), Some(8)].into_iter(), 9), Some(9));
        assert_eq!(before([Some(0)].into_iter(), 0), Some(0), "there was none");
        assert_eq!(before([Some(7), None].into_iter(), 0), None);
        assert_eq!(before([Some(9)].into_iter(), 10), None, "others may be forgotten");
    }
}
