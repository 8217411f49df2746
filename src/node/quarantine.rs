//! Redlock's delayed restart, done by the client: if a server may have forgotten its locks, its grants do not count
//! until every lease that it may have granted before is over. Pure: it takes the time as an argument and asks nothing.
//!
//! | the server that was met                     | when its grants count                                          |
//! |---------------------------------------------|----------------------------------------------------------------|
//! | is met for the first time                   | when it has been up for the quarantine and a second            |
//! | the same, and it has followed another       | a quarantine from now: it does not say when it stopped         |
//! | is the same run with the same history       | when they did before                                           |
//! | is another run, or has another history      | a quarantine from now                                          |
//!
//! The history is that of its data, see `past.rs`: a server that received the data of another has forgotten its own.
//!
//! What a server reports about its disk has no influence. Even if it writes an append-only file through now, the
//! previous run may not have done so, or may have had another disk. A user who knows better sets the quarantine to
//! zero.

use std::time::Duration;

use super::past::Past;
use crate::clock::Timestamp;

/// What a server reports about its run, and when.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) id: Option<String>,
    /// The difference of two clock readings in whole seconds, so it is up to a second too long or too short.
    pub(super) uptime: Option<Duration>,
    /// Its role, and where its data comes from.
    pub(super) past: Past,
    /// When this was reported.
    pub(super) heard_at: Timestamp,
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
}

impl Quarantine {
    /// If `length` is zero, grants always count.
    pub(super) fn new(length: Duration) -> Self {
        Self { length, run_id: None, run: 0, history: None, until: Timestamp::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        !self.length.is_zero()
    }

    /// A new connection leads to `run`. Returns true if that is not the run of the last connection.
    pub(super) fn meet(&mut self, run: &Run) -> bool {
        let first = self.run == 0;
        let history = &run.past.history;
        // If grants may not count, an unknown history is always another one.
        let same_history = self.history == *history && (history.is_some() || !self.is_on());
        if !first && run.id.is_some() && run.id == self.run_id && same_history {
            return false;
        }
        self.run += 1;
        self.run_id.clone_from(&run.id);
        self.history.clone_from(history);
        if self.is_on() {
            self.until = match run.uptime {
                Some(uptime) if first && !run.past.had_another => {
                    run.heard_at.plus((self.length + ROUNDING).saturating_sub(uptime))
                }
                _ => run.heard_at.plus(self.length),
            };
        }
        !first
    }
}

/// How much shorter a server's uptime can be than it reports.
const ROUNDING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    fn run(id: &str, uptime: u64, heard: u64) -> Run {
        let past = Past { history: Some("h".into()), ..Past::default() };
        let uptime = Some(Duration::from_secs(uptime));
        Run { id: Some(id.into()), uptime, past, heard_at: at(heard) }
    }

    fn of_history(history: Option<&str>, run: Run) -> Run {
        Run { past: Past { history: history.map(str::to_owned), ..run.past }, ..run }
    }

    #[test]
    fn a_server_seen_first_is_trusted_when_it_has_been_up_for_long_enough() {
        for (uptime, until) in [(0, 1061), (10, 1051), (61, 1000), (500, 1000), (5000, 1000)] {
            let mut quarantine = Quarantine::new(MINUTE);
            quarantine.meet(&run("a", uptime, 1000));
            assert_eq!(quarantine.until, at(until), "up for {uptime} s");
        }
    }

    #[test]
    fn another_run_starts_it_in_full_and_the_same_run_does_not() {
        let mut quarantine = Quarantine::new(MINUTE);
        quarantine.meet(&run("a", 500, 1000));
        let before = quarantine.until;
        quarantine.meet(&run("a", 510, 1010));
        assert_eq!((quarantine.until, quarantine.run), (before, 1));
        quarantine.meet(&run("b", 900, 1020));
        assert_eq!((quarantine.until, quarantine.run), (at(1080), 2));
        quarantine.meet(&run("b", 910, 1030));
        assert_eq!(quarantine.until, at(1080));
    }

    #[test]
    fn another_history_in_the_same_run_starts_it_in_full() {
        let mut quarantine = Quarantine::new(MINUTE);
        assert!(!quarantine.meet(&run("a", 500, 1000)), "the first");
        assert!(!quarantine.meet(&run("a", 505, 1005)), "the same");
        assert_eq!(quarantine.until, at(1000));
        assert!(quarantine.meet(&of_history(Some("i"), run("a", 510, 1010))));
        assert_eq!((quarantine.until, quarantine.run), (at(1070), 2));
        for heard in [1020, 1030] {
            assert!(quarantine.meet(&of_history(None, run("a", 520, heard))));
            assert_eq!(quarantine.until, at(heard + 60), "nobody can name it");
        }
    }

    #[test]
    fn a_server_seen_first_that_followed_another_is_not_trusted_for_its_uptime() {
        let mut quarantine = Quarantine::new(MINUTE);
        let mut met = run("a", 500, 1000);
        met.past.had_another = true;
        quarantine.meet(&met);
        assert_eq!(quarantine.until, at(1060));
        quarantine.meet(&Run { heard_at: at(1030), ..met });
        assert_eq!(quarantine.until, at(1060));
    }

    #[test]
    fn switched_off_it_only_counts_runs() {
        let mut quarantine = Quarantine::new(Duration::ZERO);
        quarantine.meet(&run("a", 0, 1000));
        quarantine.meet(&run("b", 0, 1010));
        assert_eq!((quarantine.until, quarantine.run), (Timestamp::default(), 2));
        quarantine.meet(&of_history(None, run("b", 0, 1020)));
        quarantine.meet(&of_history(None, run("b", 0, 1030)));
        assert_eq!((quarantine.until, quarantine.run), (Timestamp::default(), 3));
    }

    #[test]
    fn a_run_that_nobody_can_name_is_always_another_one() {
        let mut quarantine = Quarantine::new(MINUTE);
        let unknown = |heard| Run { id: None, uptime: None, ..run("", 0, heard) };
        quarantine.meet(&unknown(1000));
        assert_eq!(quarantine.until, at(1060));
        quarantine.meet(&unknown(1010));
        assert_eq!(quarantine.until, at(1070));
    }
}
