//! Redlock's delayed restart, done by the client: a server that may have forgotten its locks grants none that
//! count, until whatever it may have granted before is over. Pure: times come in, nothing is asked.
//!
//! | seen of the server                        | its grants count again                                     |
//! |-------------------------------------------|------------------------------------------------------------|
//! | the first time                            | when it has been up for the quarantine and a second        |
//! | the same run as before                    | when they did before                                       |
//! | another run                               | a quarantine from now                                      |
//! | another run, and both keep their data     | at once, unless it ran already while the last one did      |
//!
//! The last line: data that is written through survives a restart, but a promoted replica is another server.

use std::time::Duration;

use super::past::Past;
use crate::clock::Timestamp;

/// What a server says of its run, and when.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) id: Option<String>,
    /// The difference of two clock readings in whole seconds: up to a second too long or too short.
    pub(super) uptime: Option<Duration>,
    /// Every write is on disk before it is answered.
    pub(super) keeps_data: bool,
    /// Its role, and where its data comes from.
    pub(super) past: Past,
    /// When this was heard.
    pub(super) heard_at: Timestamp,
}

/// Whether the grants of a node count.
#[derive(Debug)]
pub(super) struct Quarantine {
    length: Duration,
    /// The last run, and its number.
    pub(super) run_id: Option<String>,
    pub(super) run: u64,
    keeps_data: bool,
    pub(super) until: Timestamp,
}

impl Quarantine {
    /// None if `length` is zero.
    pub(super) fn new(length: Duration) -> Self {
        Self { length, run_id: None, run: 0, keeps_data: false, until: Timestamp::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        !self.length.is_zero()
    }

    /// A new connection leads to `run`. The one before was given up at `left_at`.
    pub(super) fn meet(&mut self, run: &Run, left_at: Timestamp) {
        let first = self.run == 0;
        if !first && run.id.is_some() && run.id == self.run_id {
            return;
        }
        self.run += 1;
        self.run_id.clone_from(&run.id);
        // What is not written can not be kept, whatever the next run says of itself.
        let kept_data = std::mem::replace(&mut self.keeps_data, run.keeps_data) || first;
        if !self.is_on() {
            return;
        }
        let up_since = run.uptime.map(|uptime| run.heard_at.minus(uptime));
        let ran_beside = up_since.is_none_or(|since| since.plus(ROUNDING) < left_at);
        self.until = match run.uptime {
            _ if run.keeps_data && kept_data && (first || !ran_beside) => return,
            Some(uptime) if first => {
                run.heard_at.plus((self.length + ROUNDING).saturating_sub(uptime))
            }
            _ => run.heard_at.plus(self.length),
        };
    }
}

/// How much shorter a server's uptime can be than it says.
const ROUNDING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    fn run(id: &str, uptime: u64, heard: u64) -> Run {
        let uptime = Some(Duration::from_secs(uptime));
        Run {
            id: Some(id.into()),
            uptime,
            keeps_data: false,
            past: Past::default(),
            heard_at: at(heard),
        }
    }

    #[test]
    fn a_server_seen_first_is_trusted_when_it_has_been_up_for_long_enough() {
        for (uptime, until) in [(0, 1061), (10, 1051), (61, 1000), (500, 1000), (5000, 1000)] {
            let mut quarantine = Quarantine::new(MINUTE);
            quarantine.meet(&run("a", uptime, 1000), Timestamp::default());
            assert_eq!(quarantine.until, at(until), "up for {uptime} s");
        }
    }

    #[test]
    fn another_run_starts_it_in_full_and_the_same_run_does_not() {
        let mut quarantine = Quarantine::new(MINUTE);
        quarantine.meet(&run("a", 500, 1000), Timestamp::default());
        let before = quarantine.until;
        quarantine.meet(&run("a", 510, 1010), at(1005));
        assert_eq!((quarantine.until, quarantine.run), (before, 1));
        quarantine.meet(&run("b", 900, 1020), at(1015));
        assert_eq!((quarantine.until, quarantine.run), (at(1080), 2));
        quarantine.meet(&run("b", 910, 1030), at(1025));
        assert_eq!(quarantine.until, at(1080));
    }

    #[test]
    fn a_server_that_keeps_its_data_needs_none_unless_it_is_another_one() {
        let keeping = |run: Run| Run { keeps_data: true, ..run };
        let mut quarantine = Quarantine::new(MINUTE);
        quarantine.meet(&keeping(run("a", 0, 1000)), Timestamp::default());
        assert_eq!(quarantine.until, Timestamp::default(), "the first");
        quarantine.meet(&keeping(run("b", 2, 1010)), at(1005));
        assert_eq!(quarantine.until, Timestamp::default(), "it was started again");
        // Started half a second after that answer; it counts from the second before.
        let soon = Run {
            heard_at: Timestamp::from_origin(Duration::from_millis(1_010_600)),
            ..run("b", 1, 0)
        };
        let answered_at = Timestamp::from_origin(Duration::from_millis(1_009_900));
        let mut quick = Quarantine::new(MINUTE);
        quick.meet(&keeping(run("a", 0, 1000)), Timestamp::default());
        quick.meet(&keeping(soon), answered_at);
        assert_eq!(quick.until, Timestamp::default(), "it was started again at once");
        quarantine.meet(&keeping(run("c", 20, 1020)), at(1015));
        assert_eq!(quarantine.until, at(1080), "it ran beside the last one");
    }

    #[test]
    fn data_that_the_last_run_did_not_write_is_lost_whatever_the_next_says() {
        let mut quarantine = Quarantine::new(MINUTE);
        quarantine.meet(&run("a", 500, 1000), Timestamp::default());
        quarantine.meet(&Run { keeps_data: true, ..run("b", 2, 1010) }, at(1007));
        assert_eq!(quarantine.until, at(1070));
    }

    #[test]
    fn switched_off_it_only_counts_runs() {
        let mut quarantine = Quarantine::new(Duration::ZERO);
        quarantine.meet(&run("a", 0, 1000), Timestamp::default());
        quarantine.meet(&run("b", 0, 1010), at(1005));
        assert_eq!((quarantine.until, quarantine.run), (Timestamp::default(), 2));
    }

    #[test]
    fn a_run_that_nobody_can_name_is_always_another_one() {
        let mut quarantine = Quarantine::new(MINUTE);
        let unknown = |heard| Run { id: None, uptime: None, ..run("", 0, heard) };
        quarantine.meet(&unknown(1000), Timestamp::default());
        assert_eq!(quarantine.until, at(1060));
        quarantine.meet(&unknown(1010), at(1005));
        assert_eq!(quarantine.until, at(1070));
    }
}
