//! The place of a client among all that wait for a lock. Pure: times come in, nothing is sent.
//!
//! A release wakes every subscriber of the lock's channel. If all asked, a turn would cost a request per
//! client and the nearest would always win. So the subscribers are the line: who joins learns how many stand
//! before it, a message lets everybody move up by one, and only the first few ask. If the channel falls
//! silent after a message, those before us may be gone, and we ask once, the later the farther behind.

use std::time::Duration;

use crate::clock::Timestamp;

/// Where this client stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    ahead: u32,
    silence_at: Option<Timestamp>,
}

impl Line {
    /// Takes a place behind `ahead` others, without having asked on the last message.
    pub(crate) fn join(&mut self, ahead: u32, now: Timestamp, round_trip: Duration) {
        self.ahead = ahead;
        self.silence_at = Some(self.patience(now, round_trip));
    }

    /// The lock is held, and `others` listen besides us.
    pub(crate) fn refused(&mut self, others: u32, first: bool) {
        self.ahead = if first { others } else { self.ahead.min(others) };
        self.silence_at = None;
    }

    /// We asked: a silence means nothing any more.
    pub(crate) fn asked(&mut self) {
        self.silence_at = None;
    }

    /// A holder left. Whether it is our turn to ask.
    pub(crate) fn message(&mut self, now: Timestamp, round_trip: Duration) -> bool {
        let asks = self.ahead < WINDOW;
        self.silence_at = (!asks).then(|| self.patience(now, round_trip));
        self.ahead = self.ahead.saturating_sub(1);
        asks
    }

    /// When to ask if nothing is heard until then.
    pub(crate) fn silence_at(&self) -> Option<Timestamp> {
        self.silence_at
    }

    fn patience(&self, now: Timestamp, round_trip: Duration) -> Timestamp {
        let places = (self.ahead + 1).saturating_sub(WINDOW).clamp(1, 8);
        now.plus((round_trip * 2).max(Duration::from_millis(1)) * places)
    }
}

/// How many ask on a message.
const WINDOW: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_micros(100);
    const NOW: Timestamp = Timestamp::from_origin(Duration::from_secs(1));

    fn after_ms(ms: u64) -> Option<Timestamp> {
        Some(NOW.plus(Duration::from_millis(ms)))
    }

    #[test]
    fn only_the_first_three_ask_and_everybody_moves_up() {
        let mut line = Line::default();
        line.refused(4, true);
        assert!(!line.message(NOW, TRIP));
        assert!(!line.message(NOW, TRIP));
        assert!(line.message(NOW, TRIP));
        assert!(line.message(NOW, TRIP));
    }

    #[test]
    fn who_did_not_ask_asks_after_a_silence_that_grows_with_its_place() {
        for (ahead, silence) in [(0, 1), (2, 1), (3, 1), (4, 2), (9, 7), (100, 8)] {
            let mut line = Line::default();
            line.join(ahead, NOW, TRIP);
            assert_eq!(line.silence_at(), after_ms(silence), "{ahead} ahead");
        }
        let mut line = Line::default();
        line.refused(3, true);
        line.message(NOW, TRIP);
        assert_eq!(line.silence_at(), after_ms(1));
        line.message(NOW, TRIP);
        assert_eq!(line.silence_at(), None, "it asked");
        line.join(0, NOW, Duration::from_millis(10));
        assert_eq!(line.silence_at(), after_ms(20), "two round trips");
        line.refused(0, false);
        assert_eq!(line.silence_at(), None, "it was refused");
        line.join(0, NOW, TRIP);
        line.asked();
        assert_eq!(line.silence_at(), None, "it asked, and has no answer yet");
    }

    #[test]
    fn a_refusal_never_moves_a_client_back() {
        let mut line = Line::default();
        line.refused(7, true);
        line.refused(9, false);
        for _ in 0..5 {
            line.message(NOW, TRIP);
        }
        assert!(line.message(NOW, TRIP));
        line.join(9, NOW, TRIP);
        line.refused(1, false);
        assert!(line.message(NOW, TRIP));
    }
}
