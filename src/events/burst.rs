//! Lines that a thousand locks would repeat: when one is emitted in full, and when it is only counted.

use std::time::Duration;

use crate::clock::Timestamp;

/// Lines of one kind: the first few are logged in full, and the others are counted until a summary is due.
///
/// Summaries come after 10 s, then after 20 s, 40 s and so on: by themselves, or with the next line, which may come much later. The
/// burst starts again if no line came for as long as that.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    until: Timestamp,
    length: Duration,
    last_at: Timestamp,
    admitted: u32,
    /// The number of lines that were only counted.
    more: u64,
}

impl Burst {
    /// Returns true if a line is among the first `most`.
    pub(crate) fn admits(&mut self, now: Timestamp, most: u32) -> bool {
        if now >= self.until && self.more == 0 {
            *self =
                Self { until: now.plus(FIRST_SUMMARY), length: FIRST_SUMMARY, ..Self::default() };
        }
        self.last_at = now;
        let admits = self.admitted < most;
        if admits {
            self.admitted += 1;
        } else {
            self.more += 1;
        }
        admits
    }

    /// Returns the number of lines since the last summary, if one is due.
    pub(crate) fn summary(&mut self, now: Timestamp) -> Option<u64> {
        if self.more == 0 || now < self.until {
            return None;
        }
        if now.since(self.last_at) >= self.length {
            self.until = now;
        } else {
            self.length = (self.length * 2).min(LONGEST_SUMMARY);
            self.until = now.plus(self.length);
        }
        Some(std::mem::take(&mut self.more))
    }

    pub(crate) fn summary_at(&self) -> Timestamp {
        if self.more == 0 { Timestamp::NEVER } else { self.until }
    }
}

const FIRST_SUMMARY: Duration = Duration::from_secs(10);
const LONGEST_SUMMARY: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_lines_are_in_full_and_the_others_are_counted() {
        let mut burst = Burst::default();
        let admitted: Vec<bool> = (0..5).map(|n| burst.admits(at(100 + n), 3)).collect();
        assert_eq!(admitted, [true, true, true, false, false]);
        assert_eq!((burst.summary_at(), burst.summary(at(109))), (at(110), None));
        assert_eq!(burst.summary(at(110)), Some(2));
        assert_eq!((burst.summary_at(), burst.summary(at(111))), (Timestamp::NEVER, None));
    }

    #[test]
    fn summaries_of_what_goes_on_become_rare_and_the_last_is_not_forgotten() {
        let mut burst = Burst::default();
        let summaries: Vec<u64> = (0..3600)
            .filter(|second| {
                burst.admits(at(100 + second), 1);
                burst.summary(at(100 + second)).is_some()
            })
            .collect();
        assert_eq!(summaries, [10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
        assert_eq!(burst.summary_at(), at(100 + 3630));
    }

    #[test]
    fn a_quiet_time_makes_the_next_line_a_first_one() {
        let mut burst = Burst::default();
        assert!(burst.admits(at(100), 1) && !burst.admits(at(101), 1));
        assert_eq!(burst.summary(at(110)), Some(1));
        assert!(!burst.admits(at(120), 1), "within twenty seconds of the summary");
        assert_eq!(burst.summary(at(130)), Some(1));
        assert!(burst.admits(at(170), 1), "forty quiet ones");
        let mut alone = Burst::default();
        let lines = [100, 101, 102, 10_000].map(|second| {
            let summary = alone.summary(at(second));
            (summary, alone.admits(at(second), 1))
        });
        let counted = (None, false);
        assert_eq!(lines, [(None, true), counted, counted, (Some(2), true)], "with the next line");
        let mut quick = Burst::default();
        assert!(quick.admits(at(100), 1) && quick.admits(at(110), 1));
    }
}
