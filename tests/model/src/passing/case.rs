//! A case: how far it goes, and which rule is broken in it, if one is.

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// How many tasks the process has.
    pub tasks: u8,
    /// How many requests the process sends for the lock.
    pub asks: u8,
    /// How many turns its tasks have.
    pub turns: u8,
    /// How many turns the other client has.
    pub others: u8,
    /// How often somebody ends the lock by force.
    pub forces: u8,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// A rule, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A lease of any age is taken back.
    TakenBackAtAnyAge,
    /// Who takes a lease back has the token of the hold before.
    TokenKept,
    /// A release whose unlock is dropped is not sent.
    NotSentWhenDropped,
    /// A release whose unlock is not polled is not sent.
    NotSentAtTheEnd,
    /// Who cannot use a lease as it is waits, and nothing is sent.
    NotSentForOthers,
    /// An unlock whose release another had sent is told that all was well.
    NotTold,
    /// The release is sent although somebody has the lease again.
    SentAfterAll,
}

impl Case {
    /// With all rules.
    pub const fn of(tasks: u8, asks: u8, turns: u8) -> Self {
        Case { tasks, asks, turns, others: 1, forces: 0, wrong: None }
    }

    /// The other client has so many turns.
    pub const fn others(self, others: u8) -> Self {
        Case { others, ..self }
    }

    /// So many forced unlocks.
    pub const fn forces(self, forces: u8) -> Self {
        Case { forces, ..self }
    }

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Self {
        Case { wrong: Some(wrong), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// How many clients there are, and how many tasks the first has, for the table.
    pub fn size(&self) -> String {
        format!("2, one of {} tasks", self.tasks)
    }
}
