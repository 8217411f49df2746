//! A case: what changes, which faults there are, and which rule is broken in it, if one is.

/// One run, with two who wait.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is about.
    pub kind: Kind,
    /// How many changes are sent. So many counts open the latch.
    pub changes: u8,
    /// The slot moves to the other node.
    pub moves: bool,
    /// The replica takes over.
    pub fails_over: bool,
    /// The latch has an end.
    pub ends: bool,
    /// The node is full.
    pub full: bool,
    /// So many messages are lost.
    pub lost: u8,
    /// So many subscriptions break.
    pub breaks: u8,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// What it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that counts down to nothing.
    Latch,
    /// A number that grows.
    Signal,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A script on a full node deletes the key, so that it may write.
    DeletesFirst,
    /// Who waits does not ask again once it listens.
    ListensUnread,
    /// Who waits has no timer.
    NoTimer,
    /// Who waits does not notice that the name has moved.
    StaysBehind,
    /// A latch that is gone from another server than the one that had it is open.
    GoneIsOpen,
    /// A latch that is gone after its end is open.
    EndedIsOpen,
    /// The next number of a signal is one more than the last, whatever the time.
    NumbersWithoutTime,
}

impl Case {
    /// Without faults, and with all rules.
    pub const fn of(kind: Kind, changes: u8) -> Self {
        Case {
            kind,
            changes,
            moves: false,
            fails_over: false,
            ends: false,
            full: false,
            lost: 0,
            breaks: 0,
            wrong: None,
        }
    }

    /// The same with a slot that moves, on a full node.
    pub const fn moving(self) -> Self {
        Case { moves: true, full: true, ..self }
    }

    /// The same with a failover.
    pub const fn failing_over(self) -> Self {
        Case { fails_over: true, ..self }
    }

    /// The same with an end.
    pub const fn ending(self) -> Self {
        Case { ends: true, ..self }
    }

    /// The same with messages that are lost, and subscriptions that break.
    pub const fn losing(self, lost: u8, breaks: u8) -> Self {
        Case { lost, breaks, ..self }
    }

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Self {
        Case { wrong: Some(wrong), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// How many wait, for the table.
    pub fn size(&self) -> String {
        "2".to_owned()
    }
}
