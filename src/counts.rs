//! What a client has done so far, in numbers: cheap to add to, and added up when somebody asks.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

/// The counters of one client; see [`Stats`](crate::Stats), whose fields have the same names.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acquired: AtomicU64,
    pub(crate) contended: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) renewals: AtomicU64,
    pub(crate) renewals_failed: AtomicU64,
    pub(crate) open_waits: AtomicUsize,
    pub(crate) requests: AtomicU64,
    pub(crate) requests_failed: AtomicU64,
    pub(crate) acquire_times: Times,
    pub(crate) hold_times: Times,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// The upper ends of the ranges, in microseconds; what is longer is in a last one.
const ENDS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Durations, by their range.
#[derive(Debug, Default)]
pub(crate) struct Times {
    counts: [AtomicU64; ENDS.len() + 1],
    nanos: AtomicU64,
}

impl Times {
    pub(crate) fn add(&self, time: Duration) {
        let range = ENDS.partition_point(|end| Duration::from_micros(*end) < time);
        count(&self.counts[range]);
        self.nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn histogram(&self) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|range| self.counts[range].load(Relaxed)),
            sum: Duration::from_nanos(self.nanos.load(Relaxed)),
        }
    }
}

/// How many durations were how long; see [`Stats`](crate::Stats).
///
/// It is a snapshot that was taken while others counted, so its [`sum`](Self::sum) may be of one duration more or less than its
/// counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; ENDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// Returns how many durations there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns how long they were together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns, for each of several lengths from 100 µs to 60 s, how many durations were no longer than that, as the buckets of
    /// Prometheus are counted. Those that were longer are in [`count`](Self::count) alone.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        ENDS.iter().zip(&self.counts).scan(0, |so_far, (end, count)| {
            *so_far += count;
            Some((Duration::from_micros(*end), *so_far))
        })
    }
}

/// As `{count, sum, buckets: [[seconds, count], ..]}`.
#[cfg(feature = "serde")]
impl serde::Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = to.serialize_struct("Histogram", 3)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("sum", &self.sum.as_secs_f64())?;
        let buckets: Vec<(f64, u64)> =
            self.buckets().map(|(end, count)| (end.as_secs_f64(), count)).collect();
        fields.serialize_field("buckets", &buckets)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_each_range_that_ends_with_it_or_later() {
        let times = Times::default();
        for micros in [0, 100, 101, 60_000_000, 60_000_001] {
            times.add(Duration::from_micros(micros));
        }
        let histogram = times.histogram();
        let buckets: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!((buckets[0], buckets[1], buckets[16], buckets[17]), (2, 3, 3, 4));
        assert_eq!(histogram.count(), 5);
        assert_eq!(histogram.sum(), Duration::from_micros(120_000_202));
        let last = histogram.buckets().last().map(|(end, _)| end);
        assert_eq!(last, Some(Duration::from_secs(60)));
    }
}
