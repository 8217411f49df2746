//! Since when a server has not answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};

/// Since when no call has been answered.
pub(super) struct Silence {
    clock: Clock,
    /// When the server answered last, give or take [`PRECISION`]. All are nanoseconds on the client's clock.
    heard_at: AtomicU64,
    /// Since when it owes an answer that did not come in its time; zero if it has answered something since.
    since: AtomicU64,
}

impl Silence {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, heard_at: AtomicU64::new(0), since: AtomicU64::new(0) }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The server answered something.
    pub(super) fn heard(&self) {
        self.heard_by(self.now());
    }

    fn heard_by(&self, now: Timestamp) {
        // Every answer comes here, so the cache line is written only now and then.
        let heard_at = Timestamp::from_nanos(self.heard_at.load(Ordering::Relaxed));
        if now.since(heard_at) >= PRECISION {
            self.heard_at.store(now.nanos(), Ordering::Relaxed);
        }
        if self.since.load(Ordering::Relaxed) != 0 {
            self.since.store(0, Ordering::Relaxed);
        }
    }

    /// Returns true if the server is silent for `most` at `now`, when a call from `sent_at` was not answered by `due_at`.
    pub(super) fn lasts(
        &self,
        sent_at: Timestamp,
        due_at: Timestamp,
        now: Timestamp,
        most: Duration,
    ) -> bool {
        if now.since(due_at) >= late_after(most) {
            // This process had no time to look at the clock, and none to read answers either.
            self.heard_by(now);
            return false;
        }
        now.since(self.began_by(sent_at)) >= most
    }

    /// Returns when the silence began in which a call from `sent_at` was not answered: not before the last answer, since what
    /// was sent before it may only have had to wait for its turn.
    fn began_by(&self, sent_at: Timestamp) -> Timestamp {
        let at = sent_at.nanos().max(self.heard_at.load(Ordering::Relaxed)).max(1);
        match self.since.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Timestamp::from_nanos(at),
            Err(since) => Timestamp::from_nanos(since),
        }
    }
}

const PRECISION: Duration = Duration::from_millis(1);

/// From how late on a process looked at the clock after a time limit, it had no time to read answers either. Timers alone are late
/// by some milliseconds.
pub(super) fn late_after(limit: Duration) -> Duration {
    (limit / 4).max(Duration::from_millis(20))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    fn silence() -> Silence {
        Silence::new(Clock::of_this_runtime())
    }

    #[tokio::test]
    async fn a_silence_begins_with_the_first_call_that_is_not_answered() {
        let silence = silence();
        assert_eq!([at(7), at(9), at(8)].map(|sent_at| silence.began_by(sent_at)), [at(7); 3]);
        silence.heard_by(at(9));
        assert_eq!(silence.began_by(at(19)), at(19), "the one before is over");
    }

    #[tokio::test]
    async fn a_silence_begins_with_the_last_answer_if_calls_from_before_it_wait_still() {
        let silence = silence();
        silence.heard_by(at(500));
        assert_eq!(silence.began_by(at(7)), at(500));
        silence.heard_by(at(900));
        assert_eq!([at(8), at(950)].map(|sent_at| silence.began_by(sent_at)), [at(900); 2]);
    }

    #[tokio::test]
    async fn a_process_that_was_late_itself_does_not_take_its_server_for_silent() {
        let silence = silence();
        let lasts = |sent_at, now| {
            silence.lasts(at(sent_at), at(sent_at + 400), at(now), Duration::from_millis(400))
        };
        assert!(lasts(100, 500), "on time");
        silence.heard_by(at(510));
        assert!(!lasts(600, 1100), "a hundred too late");
        assert!(!lasts(650, 1149), "what was sent before that cannot tell either");
        assert!(lasts(1101, 1501), "but what was sent after it can");
    }

    #[tokio::test]
    async fn a_timer_that_is_late_by_some_milliseconds_excuses_no_server() {
        let (silence, most) = (silence(), Duration::from_millis(4));
        silence.heard_by(at(100));
        assert!(silence.lasts(at(200), at(204), at(207), most), "it was silent for longer");
        assert!(!silence.lasts(at(200), at(204), at(230), most), "this process stood still");
    }
}
