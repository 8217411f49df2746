//! Texts and durations, as messages show them.

use std::fmt::{self, Write};
use std::time::Duration;

/// Shortens a name for a message.
pub(crate) fn shortened(name: &str) -> String {
    if name.chars().count() <= 64 {
        return name.to_owned();
    }
    let start: String = name.chars().take(61).collect();
    format!("{start}...")
}

/// Text from outside, made fit for a log line: it escapes control characters and the like.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\'' => f.write_char(c),
            c => write!(f, "{}", c.escape_debug()),
        })
    }
}

/// Rounds a duration for people: to three digits, or from 1000 s on to whole seconds.
pub(crate) fn rounded(duration: &Duration) -> Duration {
    let nanos = duration.as_nanos();
    let unit = match nanos.checked_ilog10() {
        Some(digits) => 10_u128.pow(digits.saturating_sub(2)).min(1_000_000_000),
        None => return Duration::ZERO,
    };
    let nanos = ((nanos + unit / 2) / unit * unit).min(Duration::MAX.as_nanos());
    Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_what_people_read() {
        for (nanos, shown) in [
            (0, "0ns"),
            (1, "1ns"),
            (123_456, "123µs"),
            (123_600, "124µs"),
            (9_999_999, "10ms"),
            (27_396_768_739, "27.4s"),
            (3_564_123_456_789, "3564s"),
        ] {
            assert_eq!(format!("{:?}", rounded(&Duration::from_nanos(nanos))), shown);
        }
        assert_eq!(rounded(&Duration::MAX).as_secs(), u64::MAX);
    }

    #[test]
    fn a_name_in_a_message_is_64_characters_at_most() {
        assert_eq!(shortened(&"ä".repeat(64)), "ä".repeat(64));
        assert_eq!(shortened(&"ä".repeat(65)), format!("{}...", "ä".repeat(61)));
    }
}
