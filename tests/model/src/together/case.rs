//! A case: how far the model goes, and which rule is broken in it, if one is.

/// The bounds and the rules of one run. Counts are over the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// How many locks the process holds.
    pub locks: u8,
    /// The ticks that a lease lasts.
    pub ttl: u8,
    /// Calls that renew several leases.
    pub calls: u8,
    /// Locks that other clients take.
    pub takes: u8,
    /// Forced unlocks.
    pub forces: u8,
    /// Keys that somebody overwrites.
    pub overwrites: u8,
    /// Renewals that fail by themselves beside others, and change nothing: a right to the key is lacking.
    pub failures: u8,
    /// Calls that the server refuses.
    pub refusals: u8,
    /// Connections that break.
    pub breaks: u8,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Those that were chosen are sent, whatever has become of them.
    ChosenAreSent,
    /// The answers are those of all that were chosen, though some were left out when it was sent.
    AnswersShifted,
    /// A renewal makes a lease that is not there.
    Creates,
    /// A lease that is gone takes those with it that were renewed in the same call.
    OneLossLosesAll,
    /// A renewal that failed counts as a loss.
    FailureIsLoss,
    /// A call that was refused counts as the loss of all.
    RefusalIsLoss,
    /// A call without an answer counts as one that renewed all.
    SilenceRenews,
    /// A renewal that failed counts as one that was done: the others' answer is that of all.
    OneAnswerForAll,
    /// A lease lasts from the answer on, and not from before the request.
    CountsFromTheAnswer,
    /// An answer that comes behind the deadline counts.
    LateAnswerCounts,
}

impl Case {
    /// Two locks, and nothing goes wrong but that all may be as late as it likes.
    pub const PLAIN: Case = Case {
        locks: 2,
        ttl: 2,
        calls: 2,
        takes: 2,
        forces: 0,
        overwrites: 0,
        failures: 0,
        refusals: 0,
        breaks: 0,
        wrong: None,
    };

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Case {
        Case { wrong: Some(wrong), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// How many locks there are, for the table.
    pub fn size(&self) -> String {
        self.locks.to_string()
    }
}
