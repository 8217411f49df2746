//! How values look to `serde`: durations and times as seconds, what has a text as that text.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};

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

/// Bytes that are no text: some formats have a form of their own for them, and JSON lists their numbers.
pub(crate) fn bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Sentinels, and the master that each of them names. A pair would be a list, which could not get a third part with a name.
pub(crate) fn named<S: Serializer>(named: &[(Arc<str>, String)], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        sentinel: &'a str,
        master: &'a str,
    }
    to.collect_seq(named.iter().map(|(sentinel, master)| Named { sentinel, master }))
}

fn since_epoch(time: &SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A duration as it is written in a configuration: `"30s"`, or a number of seconds. The reader says of which setting it is.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a duration such as \"30s\" or \"500ms\", or a number of seconds")]
pub(crate) enum Written {
    Seconds(f64),
    Text(String),
}

impl Written {
    /// Returns what is wrong otherwise, as the end of a sentence that begins with the name of the setting.
    pub(crate) fn duration(&self) -> Result<Duration, String> {
        match self {
            Self::Seconds(seconds) => Duration::try_from_secs_f64(*seconds)
                .map_err(|problem| format!("{seconds} seconds is not a duration: {problem}")),
            Self::Text(text) => read(text).ok_or_else(|| {
                format!(
                    "{text:?} is not a duration: write a number and its unit, as in \"30s\"; the units are us, ms, s, m, h and d"
                )
            }),
        }
    }
}

fn read(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c != '.' && !c.is_ascii_digit())?);
    let seconds = match unit.trim_start() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

/// One URL, or a list of them. Whatever else was written may be a URL with a password, so reading it does not fail.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Texts {
    One(String),
    Several(Vec<String>),
    Odd(IgnoredAny),
}

impl Texts {
    /// Returns what is wrong otherwise, as the end of a sentence that begins with the name of the setting.
    pub(crate) fn list(self) -> Result<Vec<String>, &'static str> {
        match self {
            Self::One(text) => Ok(vec![text]),
            Self::Several(texts) => Ok(texts),
            Self::Odd(_) => Err("it must be a URL, or a list of them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sentinels_name_is_an_object_for_each() {
        let all = [("redis://s:26379".into(), "10.0.0.1:6379".to_owned())];
        let shown = named(&all, serde_json::value::Serializer).expect("plain data");
        let one = serde_json::json!({"sentinel": "redis://s:26379", "master": "10.0.0.1:6379"});
        assert_eq!(shown, serde_json::json!([one]));
    }

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, micros) in [
            ("30s", 30_000_000),
            ("500ms", 500_000),
            ("2m", 120_000_000),
            ("1.5 h", 5_400_000_000),
            ("1d", 86_400_000_000),
            ("250us", 250),
            ("0s", 0),
        ] {
            assert_eq!(read(text), Some(Duration::from_micros(micros)), "{text}");
        }
        for text in
            ["", "30", "s", "30 parsecs", "-1s", "1e3s", "1.2.3s", "1m30s", "30S", " 1s", "1s "]
        {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
