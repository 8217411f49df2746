//! A case: how far the model goes, and which rule is broken in it, if one is.

/// What a client does with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It reads.
    Reads,
    /// It writes.
    Writes,
    /// It does either.
    Both,
}

/// The bounds and the rules of one run. Times are in ticks; counts are over the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Case<const C: usize> {
    /// What each client does.
    pub uses: [Use; C],
    /// The time to live of every lease.
    pub ttl: u8,
    /// The time to live of a reservation.
    pub reserved: u8,
    /// Requests, over all clients.
    pub asks: u8,
    /// Writers that become readers.
    pub downgrades: u8,
    /// Clients that end.
    pub crashes: u8,
    /// Requests that are given up without an answer of a majority.
    pub faults: u8,
    /// How far ahead of the others the counter of one master begins.
    pub ahead: u8,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// One master is enough to read.
    OneMasterToRead,
    /// A deadline counts from the answer.
    DeadlineFromReceipt,
    /// Who reads takes the highest token as it is.
    ReadNotRaised,
    /// What a refused request was granted stays until the next one.
    RefusedKeeps,
    /// A writer that waits reserves nothing.
    NoReservation,
    /// A reservation is left to end by itself.
    NeverWithdrawn,
    /// A request takes away the reservation of a later one.
    WithdrawsAny,
    /// A downgrade takes the lock from whoever writes.
    DowngradeOfAnybody,
}

impl<const C: usize> Case<C> {
    /// No fault.
    pub const fn plain(uses: [Use; C]) -> Self {
        Case {
            uses,
            ttl: 2,
            reserved: 2,
            asks: 3,
            downgrades: 0,
            crashes: 0,
            faults: 0,
            ahead: 0,
            wrong: None,
        }
    }

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Self {
        Case { wrong: Some(wrong), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// How many take part, for the table.
    pub fn size(&self) -> String {
        C.to_string()
    }
}
