//! How values look to `serde`: durations and times as seconds, what has a text as that text.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

pub(crate) fn maybe_seconds<S: Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => to.serialize_some(&duration.as_secs_f64()),
        None => to.serialize_none(),
    }
}

/// Seconds since 1970.
pub(crate) fn time<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(since_epoch(time))
}

pub(crate) fn maybe_time<S: Serializer>(
    time: &Option<SystemTime>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => to.serialize_some(&since_epoch(time)),
        None => to.serialize_none(),
    }
}

pub(crate) fn text<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn since_epoch(time: &SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A duration that was written as seconds.
pub(crate) struct Seconds(pub(crate) Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|problem| {
            serde::de::Error::custom(format!("{seconds} seconds is not a duration: {problem}"))
        })
    }
}
