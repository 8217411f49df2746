//! Who is compared.

use std::fmt;

/// A lock of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Leasehold,
    RLock,
    RFairLock,
    RFencedLock,
    Rslock,
    Rlock,
    Rueidislock,
    Redsync,
}

/// The program that has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Rust,
    Java,
    Go,
}

impl Program {
    pub(crate) const ALL: [Self; 3] = [Self::Rust, Self::Java, Self::Go];
}

impl Peer {
    /// In the order of the table's columns.
    pub(crate) const ALL: [Self; 8] = [
        Self::Leasehold,
        Self::RLock,
        Self::RFairLock,
        Self::RFencedLock,
        Self::Rslock,
        Self::Rlock,
        Self::Rueidislock,
        Self::Redsync,
    ];

    pub(crate) fn program(self) -> Program {
        match self {
            Self::Leasehold | Self::Rslock | Self::Rlock => Program::Rust,
            Self::RLock | Self::RFairLock | Self::RFencedLock => Program::Java,
            Self::Rueidislock | Self::Redsync => Program::Go,
        }
    }

    /// What it is called in the workers' orders.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::RLock => "lock",
            Self::RFairLock => "fair",
            Self::RFencedLock => "fenced",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::Rueidislock => "rueidislock",
            Self::Redsync => "redsync",
        }
    }

    /// The commands of the server's statistics whose number is that of the commands that clients sent.
    ///
    /// The statistics count what scripts call as well, so only names that no script of this lock calls are
    /// here. With one exception: Redisson sends a DEL after each unlock, for a key that the unlock's script
    /// has SET, once; its scripts call DEL themselves too, but SET only there. So its SETs stand for the DELs.
    pub(crate) fn sends(self) -> &'static [&'static str] {
        match self {
            Self::Leasehold => &["evalsha", "eval", "subscribe", "unsubscribe"],
            // It waits for messages about its keys, which it does not subscribe to.
            Self::Rueidislock => &["evalsha", "eval"],
            _ => &["evalsha", "eval", "subscribe", "unsubscribe", "set"],
        }
    }

    /// Whether its owner may take it again.
    pub(crate) fn is_reentrant(self) -> bool {
        !matches!(self, Self::Rslock | Self::Rlock | Self::Rueidislock | Self::Redsync)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leasehold => "leasehold",
            Self::RLock => "Redisson RLock",
            Self::RFairLock => "Redisson RFairLock",
            Self::RFencedLock => "Redisson RFencedLock",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::Rueidislock => "rueidislock",
            Self::Redsync => "redsync",
        })
    }
}
