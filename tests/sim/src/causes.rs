//! What may be the cause of a loss, or of servers that do not answer. Pure: who is disturbed where, and when.

use std::collections::BTreeMap;

/// Something that went wrong.
#[derive(Clone, Copy, Debug)]
pub struct Cause {
    pub from: u64,
    /// When it was over, in itself.
    pub to: u64,
    /// `None`: all.
    pub host: Option<usize>,
    /// `None`: all.
    pub node: Option<usize>,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Somebody hears late, or nothing.
    Disturbs,
    /// A server has forgotten leases, or taken them from those who had them.
    Forgets,
}

/// All of them, and how long they are felt.
#[derive(Default)]
pub struct Causes {
    causes: Vec<Cause>,
    /// On so many servers something must be wrong before a process can do nothing.
    needed: usize,
    nodes: usize,
    /// For how long after a disturbance servers may not answer, or not with grants that count, in milliseconds.
    recovery_ms: u64,
    /// The longest lease: for so long a loss may come from something before it.
    longest_ms: u64,
    /// When each process last met each server, or another history of its data.
    met: BTreeMap<(usize, usize), u64>,
}

impl Causes {
    pub fn new(nodes: usize, needed: usize, recovery_ms: u64, longest_ms: u64) -> Self {
        Self { causes: Vec::new(), needed, nodes, recovery_ms, longest_ms, met: BTreeMap::new() }
    }

    pub fn add(&mut self, cause: Cause) {
        let longest = self.recovery_ms + self.longest_ms;
        self.causes.retain(|other| other.to + longest + LONG_AGO > cause.from);
        self.causes.push(cause);
    }

    /// A process meets a server, or another history of its data, and trusts it a grace later. A fault made it so, but that may be long
    /// ago: who asks for nothing notices nothing.
    pub fn met(&mut self, host: usize, node: usize, now: u64) {
        let before = self.met.insert((host, node), now).unwrap_or(0);
        let is_why = |cause: &Cause| {
            cause.to > before
                && cause.node == Some(node)
                && cause.host.is_none_or(|disturbed| disturbed == host)
        };
        if self.causes.iter().any(is_why) {
            let (host, node) = (Some(host), Some(node));
            self.add(Cause { from: now, to: now, host, node, what: What::Disturbs });
        }
    }

    /// All faults end.
    pub fn healed(&mut self, now: u64) {
        self.causes.iter_mut().for_each(|cause| cause.to = cause.to.min(now));
    }

    /// Whether a process may get no answer between two times.
    pub fn silence(&self, host: usize, from: u64, to: u64) -> bool {
        self.is_disturbed(host, from.saturating_sub(self.recovery_ms), to)
    }

    /// Whether a process may find at `at` that servers have forgotten what they granted since `since`.
    pub fn forgotten(&self, since: u64, at: u64) -> bool {
        let since = since.saturating_sub(self.recovery_ms);
        let forgets =
            |cause: &Cause| cause.what == What::Forgets && cause.from <= at && cause.to >= since;
        self.causes.iter().any(forgets)
    }

    /// Whether a process may lose a lease at `at` because nothing renews it.
    pub fn expiry(&self, host: usize, at: u64) -> bool {
        let before = self.longest_ms + self.recovery_ms;
        self.is_disturbed(host, at.saturating_sub(before), at)
    }

    fn is_disturbed(&self, host: usize, from: u64, to: u64) -> bool {
        let there = |cause: &&Cause| {
            cause.from <= to && cause.to >= from && cause.host.is_none_or(|of| of == host)
        };
        let disturbed = |node: &usize| {
            self.causes.iter().filter(there).any(|cause| cause.node.is_none_or(|of| of == *node))
        };
        (0..self.nodes).filter(disturbed).count() >= self.needed
    }
}

/// What is over for so long is of no interest, in milliseconds.
const LONG_AGO: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn causes(needed: usize, all: &[Cause]) -> Causes {
        let mut causes = Causes::new(3, needed, 1000, 3000);
        all.iter().for_each(|cause| causes.add(*cause));
        causes
    }

    #[test]
    fn who_meets_a_server_long_after_its_fault_waits_for_its_grace() {
        let forgets =
            Cause { from: 5000, to: 5100, host: None, node: Some(0), what: What::Disturbs };
        let mut met = causes(1, &[forgets]);
        met.met(1, 0, 9000);
        assert!(met.silence(1, 9500, 9600), "it has not trusted it for long enough");
        assert!(!met.silence(2, 9500, 9600), "another process");
        met.met(1, 0, 20_000);
        assert!(!met.silence(1, 20_500, 20_600), "nothing has happened since");
    }

    const CUT: Cause =
        Cause { from: 5000, to: 6000, host: Some(1), node: Some(0), what: What::Disturbs };

    #[test]
    fn nothing_is_away_or_lost_without_a_cause() {
        let quiet = causes(1, &[]);
        assert!(!quiet.silence(1, 0, 9000) && !quiet.expiry(1, 9000) && !quiet.forgotten(0, 9000));
        let cut = causes(1, &[CUT]);
        assert!(cut.silence(1, 4000, 5000) && cut.silence(1, 7000, 7100));
        assert!(!cut.silence(1, 4000, 4900), "before it");
        assert!(!cut.silence(1, 7001, 9000), "long after it");
        assert!(!cut.silence(2, 5000, 5500), "another process");
        assert!(cut.expiry(1, 10_000) && !cut.expiry(1, 10_001));
        assert!(!cut.forgotten(0, 9000), "it takes nothing away");
    }

    #[test]
    fn a_minority_is_no_cause() {
        let elsewhere = |node| Cause { node, ..CUT };
        assert!(!causes(2, &[CUT, elsewhere(Some(0))]).silence(1, 5000, 5500));
        assert!(causes(2, &[CUT, elsewhere(Some(2))]).silence(1, 5000, 5500));
        assert!(causes(2, &[elsewhere(None)]).silence(1, 5000, 5500), "the process itself");
    }

    #[test]
    fn what_is_healed_is_over() {
        let mut cut = causes(1, &[CUT]);
        cut.healed(5100);
        assert!(cut.silence(1, 6000, 6100) && !cut.silence(1, 6200, 6300));
    }

    #[test]
    fn only_who_forgets_takes_away() {
        let forgets = causes(1, &[Cause { what: What::Forgets, host: None, ..CUT }]);
        assert!(forgets.forgotten(4000, 5500) && forgets.forgotten(6500, 7000));
        assert!(!forgets.forgotten(0, 4900) && !forgets.forgotten(7100, 8000));
    }
}
