//! A server's clock as a client knows it, to date grants that arrive as letters. Pure.

use std::time::Duration;

use super::commands::Generation;
use super::mailbox::Epoch;
use crate::clock::Timestamp;

/// What a server said about its clock in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerTime {
    /// When the request was sent, so the server read its clock after that.
    pub(crate) sent_at: Timestamp,
    /// What the server's clock showed, in microseconds.
    pub(crate) server_us: u64,
    /// The connection that carried the request.
    pub(crate) generation: Generation,
    /// The mailbox's subscription when the request was sent.
    pub(crate) epoch: Epoch,
}

impl ServerTime {
    /// Returns a time at or before the moment when the server's clock showed `server_us`, if the server's clock and
    /// this client's differ by at most 1 % in rate and none of them was set in between.
    ///
    /// The server read its clock at some moment `t` after `sent_at`. What it did a time `d` of its clock later happened
    /// at least `d / 1.01 > 0.99 d` after `t`, and what it did `d` earlier happened at most `d / 0.99 < 1.02 d` before
    /// `t`. Since `sent_at` is before `t`, both bounds also hold when they count from there. Both readings are cut to
    /// whole microseconds, so `d` may be one less.
    pub(crate) fn not_before(&self, server_us: u64) -> Timestamp {
        let later = Duration::from_micros(server_us.saturating_sub(self.server_us));
        let earlier = Duration::from_micros(self.server_us.saturating_sub(server_us)) + RESOLUTION;
        self.sent_at.plus(later - later / 100).minus(earlier + earlier / 50)
    }

    /// Returns true if it was read on this connection while this subscription delivered letters.
    ///
    /// On another connection the server may be another one, with another clock.
    pub(crate) fn is_of(&self, generation: Generation, epoch: Epoch) -> bool {
        self.generation == generation && self.epoch == epoch
    }
}

const RESOLUTION: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: u64 = 3_600_000_000;
    /// A server's time of the year 2026.
    const READ_US: u64 = 1_795_000_000_000_000;

    fn read(sent_at: Timestamp) -> ServerTime {
        let epoch = Epoch::numbered(7);
        ServerTime { sent_at, server_us: READ_US, generation: 3, epoch }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_bound_is_never_after_what_it_bounds_whatever_the_clocks_rates() {
        let day = Duration::from_secs(86_400);
        // The request takes this long to the server, whose clock runs this much faster.
        for (way, rate) in [(0, 0.99), (0, 1.0), (0, 1.01), (5, 0.99), (5, 1.01), (900, 1.0)] {
            let sent_at = at(86_400_000);
            let read = read(sent_at);
            let read_at = sent_at.plus(Duration::from_millis(way));
            for us in [0, 1, 999, 2_000_000, 60_000_000, HOUR_US] {
                let took = Duration::from_micros(us).div_f64(rate);
                let later = read.not_before(READ_US + us);
                assert!(later <= read_at.plus(took), "{us} us later, {way} ms, rate {rate}");
                assert!(later >= sent_at.plus(took.mul_f64(0.97)).minus(day / 86_400_000));
                let earlier = read.not_before(READ_US - us);
                assert!(earlier <= read_at.minus(took), "{us} us earlier, {way} ms, rate {rate}");
            }
        }
    }

    #[test]
    fn a_bound_is_close_if_the_reading_is_fresh() {
        let read = read(at(1000));
        let uncertain = RESOLUTION + RESOLUTION / 50;
        assert_eq!(read.not_before(READ_US), at(1000).minus(uncertain));
        assert_eq!(read.not_before(READ_US + 1_000_000), at(1990).minus(uncertain));
        assert!(read.not_before(READ_US - 500_000) > at(489));
    }

    #[test]
    fn clocks_that_were_set_give_a_bound_all_the_same() {
        let read = read(at(1000));
        assert_eq!(read.not_before(0), Timestamp::default());
        assert!(read.not_before(u64::MAX) > at(u64::MAX / 2_000_000));
        let never = ServerTime { server_us: 0, sent_at: Timestamp::NEVER, ..read };
        assert!(never.not_before(u64::MAX) <= Timestamp::NEVER);
    }

    #[test]
    fn a_reading_counts_on_its_connection_while_its_subscription_lasts() {
        let read = read(at(1000));
        assert!(read.is_of(3, Epoch::numbered(7)));
        assert!(!read.is_of(4, Epoch::numbered(7)), "another connection");
        assert!(!read.is_of(3, Epoch::numbered(8)), "another subscription");
    }
}
