//! The events that the processes report, one line for each.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Something that happened in a process.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) at_us: u64,
    pub(crate) process: String,
    pub(crate) what: What,
}

#[derive(Clone)]
pub(crate) enum What {
    Waits,
    Holds {
        token: u64,
        waited_us: u64,
    },
    Nests {
        level: u32,
        token: u64,
    },
    Unnests {
        level: u32,
    },
    /// The process is about to release the lock.
    Leaves,
    Lost,
    /// The process uses another master.
    Moves {
        to: String,
    },
    /// A Sentinel reports something.
    Reported {
        sentinel: usize,
        channel: String,
        text: String,
    },
    /// The process has finished its command.
    Done,
    Failed(String),
}

impl Event {
    pub(crate) fn by(&self, name: &str) -> bool {
        self.process == name
    }

    /// Returns the token of a hold that begins.
    pub(crate) fn token(&self) -> Option<u64> {
        match self.what {
            What::Holds { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Returns true if the process uses another master from now on.
    pub(crate) fn is_move(&self) -> bool {
        matches!(self.what, What::Moves { .. })
    }

    pub(crate) fn is_report(&self, of: &str) -> bool {
        matches!(&self.what, What::Reported { channel, .. } if channel == of)
    }

    /// Returns the line with which a process reports the event.
    pub(crate) fn line(&self) -> String {
        let Self { at_us, process, what } = self;
        let what = match what {
            What::Waits => "waits".to_owned(),
            What::Holds { token, waited_us } => format!("holds {token} {waited_us}"),
            What::Nests { level, token } => format!("nests {level} {token}"),
            What::Unnests { level } => format!("unnests {level}"),
            What::Leaves => "leaves".to_owned(),
            What::Lost => "lost".to_owned(),
            What::Moves { to } => format!("moves {to}"),
            What::Reported { channel, text, .. } => format!("reported {channel} {text}"),
            What::Done => "done".to_owned(),
            What::Failed(message) => format!("failed {message}"),
        };
        format!("{at_us} {process} {what}")
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (at_us, rest) = line.split_once(' ')?;
        let (process, rest) = rest.split_once(' ')?;
        let words: Vec<&str> = rest.split(' ').collect();
        let what = match &*words {
            ["waits"] => What::Waits,
            ["holds", token, waited] => {
                What::Holds { token: token.parse().ok()?, waited_us: waited.parse().ok()? }
            }
            ["nests", level, token] => {
                What::Nests { level: level.parse().ok()?, token: token.parse().ok()? }
            }
            ["unnests", level] => What::Unnests { level: level.parse().ok()? },
            ["leaves"] => What::Leaves,
            ["lost"] => What::Lost,
            ["moves", to] => What::Moves { to: (*to).to_owned() },
            ["done"] => What::Done,
            ["failed", ..] => What::Failed(rest["failed ".len()..].to_owned()),
            _ => return None,
        };
        Some(Self { at_us: at_us.parse().ok()?, process: process.to_owned(), what })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits => f.write_str("wants the lock"),
            Self::Holds { token, waited_us } => {
                write!(f, "HOLDS the lock, token {token}, waited {}", ms(*waited_us))
            }
            Self::Nests { level, token } => write!(f, "holds it at level {level}, token {token}"),
            Self::Unnests { level } => write!(f, "is back at level {level}"),
            Self::Leaves => f.write_str("releases it"),
            Self::Lost => f.write_str("learns that the lock is lost, and stops"),
            Self::Moves { to } => write!(f, "is connected to the new master, {to}"),
            Self::Reported { sentinel, channel, text } => {
                write!(f, "Sentinel {sentinel} reports {channel} {text}")
            }
            Self::Done => f.write_str("is done"),
            Self::Failed(message) => f.write_str(message),
        }
    }
}

pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

pub(crate) fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1000.0)
}
