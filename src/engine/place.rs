//! When a client that waits in a server's queue asks again. Pure: times come in, nothing is sent.
//!
//! The lock comes to it by message, so it need not ask in order to get it. It asks so that nobody waits for ever when
//! messages are lost or processes end (invariant 8):
//!
//! * The first in the queue is responsible for the lock's being free: it asks when the holder's lease ends.
//! * All others ask after a random time of some seconds, in case the first has stopped.
//! * If the lock is free for a moment, in which others may take it, the first asks after that moment.
//! * Everybody asks when a message may have been lost.

use std::time::Duration;

use crate::clock::Timestamp;

/// What a client knows of its place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    ask_at: Timestamp,
    watches_channel: bool,
}

/// The lock's holder, as the first in the queue sees it.
#[derive(Clone, Copy, Debug)]
pub struct HeldBy {
    /// `None`: without an end.
    pub remaining: Option<Duration>,
    /// It is a client of another library, which knows no queue: its release is heard on the lock's channel only.
    pub foreign: bool,
}

impl Place {
    /// Nothing was asked yet: it is time to ask.
    pub(crate) fn unknown() -> Self {
        Self { ask_at: Timestamp::default(), watches_channel: false }
    }

    pub(crate) fn ask_at(&self) -> Timestamp {
        self.ask_at
    }

    /// Returns true if this client has to listen on the lock's channel, besides its mailbox.
    pub(crate) fn watches_channel(&self) -> bool {
        self.watches_channel
    }

    /// Others are ahead, or the server did not queue the request. `poll` is a random time.
    pub(crate) fn behind(&mut self, now: Timestamp, poll: Duration) {
        self.ask_at = now.plus(poll);
        self.watches_channel = false;
    }

    /// It is the first, and somebody holds the lock.
    pub(crate) fn first(&mut self, held_by: HeldBy, now: Timestamp, poll: Duration) {
        // A key is gone a little after its last millisecond began.
        let end = held_by.remaining.map_or(poll, |left| left + Duration::from_millis(1));
        self.ask_at = now.plus(end.min(poll));
        self.watches_channel = held_by.foreign;
    }

    /// It is the first, and the lock is free for a moment: others may take it.
    pub(crate) fn free(&mut self, now: Timestamp, moment: Duration) {
        self.ask_at = now.plus(moment);
        self.watches_channel = false;
    }

    /// A message may have been missed, or a grant must be confirmed.
    pub(crate) fn ask_now(&mut self) {
        self.ask_at = Timestamp::default();
    }

    /// The last ask had no usable answer.
    pub(crate) fn failed(&mut self, now: Timestamp, pause: Duration) {
        self.ask_at = now.plus(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_origin(Duration::from_secs(1));
    const POLL: Duration = Duration::from_secs(3);

    fn after_ms(ms: u64) -> Timestamp {
        NOW.plus(Duration::from_millis(ms))
    }

    #[test]
    fn the_first_asks_when_the_holders_lease_ends_and_the_others_after_a_while() {
        let mut place = Place::unknown();
        assert!(place.ask_at() <= NOW, "at once");
        place.behind(NOW, POLL);
        assert_eq!(place.ask_at(), after_ms(3000));
        for (remaining, ask_at) in [(Some(500), 501), (Some(9000), 3000), (None, 3000)] {
            let remaining = remaining.map(Duration::from_millis);
            place.first(HeldBy { remaining, foreign: false }, NOW, POLL);
            assert_eq!(place.ask_at(), after_ms(ask_at));
        }
        place.free(NOW, Duration::from_millis(2));
        assert_eq!(place.ask_at(), after_ms(2));
        place.failed(NOW, Duration::from_millis(7));
        assert_eq!(place.ask_at(), after_ms(7));
        place.ask_now();
        assert!(place.ask_at() <= NOW);
    }

    #[test]
    fn only_the_first_behind_a_holder_of_another_library_listens_on_the_channel() {
        let mut place = Place::unknown();
        assert!(!place.watches_channel());
        place.first(HeldBy { remaining: None, foreign: true }, NOW, POLL);
        assert!(place.watches_channel());
        place.failed(NOW, POLL);
        assert!(place.watches_channel(), "a failure says nothing of the holder");
        place.behind(NOW, POLL);
        assert!(!place.watches_channel());
        place.first(HeldBy { remaining: None, foreign: true }, NOW, POLL);
        place.first(HeldBy { remaining: None, foreign: false }, NOW, POLL);
        assert!(!place.watches_channel());
        place.first(HeldBy { remaining: None, foreign: true }, NOW, POLL);
        place.free(NOW, POLL);
        assert!(!place.watches_channel());
    }
}
