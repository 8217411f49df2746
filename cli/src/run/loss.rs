//! Why a lock is lost: a code for programs, a text for people.

use std::fmt;

use leasehold::LossReason;
use serde::Serialize;

use crate::text;

/// Why `run` holds a lock no more, or only for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The command has to end now if it is to end before its lock does.
    ExpiresSoon,
    /// The time of `--max-hold` is over.
    MaxHold,
    /// The outer `run` that holds it, or its command, has ended.
    OuterEnded,
    /// What else the library tells, by the library's own words.
    #[serde(untagged)]
    Other(LossReason),
}

impl Loss {
    /// Returns the same word as in JSON.
    pub fn code(self) -> String {
        text::word(&self)
    }
}

impl From<LossReason> for Loss {
    fn from(reason: LossReason) -> Self {
        match reason {
            // No lease of `run` is a fixed one.
            LossReason::Ended => Self::MaxHold,
            reason => Self::Other(reason),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExpiresSoon => "it expires soon, and no renewal is confirmed",
            Self::MaxHold => "its longest hold is over",
            Self::OuterEnded => "the outer run that holds it, or its command, has ended",
            Self::Other(reason) => return reason.fmt(f),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_has_a_word_for_programs() {
        for (loss, code) in [
            (Loss::ExpiresSoon, "expires_soon"),
            (Loss::OuterEnded, "outer_ended"),
            (LossReason::Ended.into(), "max_hold"),
            (LossReason::NotRenewed.into(), "not_renewed"),
            (LossReason::Gone.into(), "gone"),
        ] {
            assert_eq!(loss.code(), code);
        }
    }
}
