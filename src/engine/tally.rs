//! Counting the answers of the nodes. Pure.

/// How many of `nodes` decide.
pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The answers so far to a question that is answered yes or no.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) yes: usize,
    pub(crate) no: usize,
    /// No usable answer.
    pub(crate) failed: usize,
    /// Its answer may come.
    pub(crate) pending: usize,
}

/// What a majority says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Yes,
    /// So many said no that there is no majority for yes.
    No,
    /// It depends on nodes that gave no usable answer.
    Unknown,
}

impl Tally {
    fn nodes(self) -> usize {
        self.yes + self.no + self.failed + self.pending
    }

    /// The verdict once no answer to come can change it, or once none is waited for any more.
    pub(crate) fn verdict(self, over: bool) -> Option<Verdict> {
        let majority = majority(self.nodes());
        let most_no = self.nodes() - majority;
        if self.yes >= majority {
            return Some(Verdict::Yes);
        }
        if self.no > most_no {
            return Some(Verdict::No);
        }
        let undecidable = self.yes + self.pending < majority && self.no + self.pending <= most_no;
        (over || undecidable).then_some(Verdict::Unknown)
    }
}

/// The answers so far to an acquire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Election {
    /// Grants that count.
    pub(crate) granted: usize,
    pub(crate) held: usize,
    /// No usable answer, or a grant that does not count.
    pub(crate) failed: usize,
    /// Its answer may come, and a grant would count, or would not.
    pub(crate) pending: usize,
    pub(crate) pending_void: usize,
}

impl Election {
    /// [`Verdict::No`] is contention: a majority answered, and another holds what is missing. Without such a
    /// majority it is [`Verdict::Unknown`].
    pub(crate) fn verdict(self, over: bool) -> Option<Verdict> {
        let pending = self.pending + self.pending_void;
        let majority = majority(self.granted + self.held + self.failed + pending);
        if self.granted >= majority {
            return Some(Verdict::Yes);
        }
        if !over && self.granted + self.pending >= majority {
            return None;
        }
        let answered = self.granted + self.held;
        if answered >= majority {
            return Some(Verdict::No);
        }
        (over || answered + pending < majority).then_some(Verdict::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(yes: usize, no: usize, failed: usize, pending: usize) -> Tally {
        Tally { yes, no, failed, pending }
    }

    #[test]
    fn one_node_decides_alone() {
        assert_eq!(tally(0, 0, 0, 1).verdict(false), None);
        assert_eq!(tally(1, 0, 0, 0).verdict(false), Some(Verdict::Yes));
        assert_eq!(tally(0, 1, 0, 0).verdict(false), Some(Verdict::No));
        assert_eq!(tally(0, 0, 1, 0).verdict(false), Some(Verdict::Unknown));
        assert_eq!(tally(0, 0, 0, 1).verdict(true), Some(Verdict::Unknown));
    }

    #[test]
    fn a_verdict_does_not_wait_for_what_cannot_change_it() {
        assert_eq!(tally(2, 0, 0, 1).verdict(false), Some(Verdict::Yes));
        assert_eq!(tally(0, 2, 0, 1).verdict(false), Some(Verdict::No));
        assert_eq!(tally(1, 1, 0, 1).verdict(false), None);
        assert_eq!(tally(1, 1, 1, 0).verdict(false), Some(Verdict::Unknown));
        assert_eq!(tally(0, 0, 2, 1).verdict(false), Some(Verdict::Unknown));
        assert_eq!(tally(2, 1, 1, 1).verdict(false), None);
        // Of four, two that say no leave no majority of three.
        assert_eq!(tally(1, 2, 0, 1).verdict(false), Some(Verdict::No));
    }

    #[test]
    fn a_verdict_once_given_stays_whatever_comes() {
        for nodes in 1..=5 {
            for yes in 0..=nodes {
                for no in 0..=nodes - yes {
                    for failed in 0..=nodes - yes - no {
                        let pending = nodes - yes - no - failed;
                        let now = tally(yes, no, failed, pending);
                        let Some(verdict) = now.verdict(false) else { continue };
                        for next in [
                            Tally { yes: yes + 1, ..now },
                            Tally { no: no + 1, ..now },
                            Tally { failed: failed + 1, ..now },
                        ] {
                            if pending > 0 {
                                let next = Tally { pending: pending - 1, ..next };
                                assert_eq!(next.verdict(false), Some(verdict), "{now:?} {next:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    fn election(granted: usize, held: usize, failed: usize, pending: usize) -> Election {
        Election { granted, held, failed, pending, pending_void: 0 }
    }

    #[test]
    fn contention_is_not_a_failure_nor_the_other_way_round() {
        assert_eq!(election(2, 0, 0, 1).verdict(false), Some(Verdict::Yes));
        assert_eq!(election(0, 2, 0, 1).verdict(false), Some(Verdict::No));
        assert_eq!(election(1, 1, 1, 0).verdict(false), Some(Verdict::No));
        assert_eq!(election(0, 1, 2, 0).verdict(false), Some(Verdict::Unknown));
        assert_eq!(election(1, 0, 2, 0).verdict(false), Some(Verdict::Unknown));
        // It cannot win any more; whether that is contention, the last answer says.
        assert_eq!(election(0, 1, 1, 1).verdict(false), None);
        assert_eq!(election(0, 1, 1, 1).verdict(true), Some(Verdict::Unknown));
        assert_eq!(election(0, 2, 1, 0).verdict(false), Some(Verdict::No));
        // A majority answered, and the last answer can still win it.
        assert_eq!(election(1, 1, 0, 1).verdict(false), None);
        assert_eq!(election(1, 1, 0, 1).verdict(true), Some(Verdict::No));
    }

    #[test]
    fn a_grant_that_does_not_count_is_not_waited_for() {
        let void = Election { granted: 1, held: 1, pending_void: 1, ..Election::default() };
        assert_eq!(void.verdict(false), Some(Verdict::No));
        let void = Election { granted: 1, failed: 1, pending_void: 1, ..Election::default() };
        assert_eq!(void.verdict(false), None, "its refusal would be contention");
    }
}
