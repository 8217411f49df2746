//! A case: which end it is, and which rule is broken in it, if one is.

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What ends the lease: one of these.
    pub ends: &'static [End],
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// What ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// `lock_release`.
    Lock,
    /// `force_unlock`.
    LockByForce,
    /// `rw_release` of a reader.
    Reader,
    /// `rw_release` of a writer.
    Writer,
    /// `rw_force_unlock` of all readers.
    ReadersByForce,
    /// `permit_release`.
    Permit,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The queue is served without asking whether the name may be missing.
    ServesUnasked,
    /// A script that looks for other readers fails if it may not.
    LooksAndFails,
    /// A reader whose end is on the other node counts as gone.
    EndElsewhereIsOver,
    /// What failed in the middle, or was refused, is told as done.
    RefusalIsDone,
}

impl Case {
    /// With all rules.
    pub const fn of(ends: &'static [End]) -> Self {
        Case { ends, wrong: None }
    }

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Self {
        Case { wrong: Some(wrong), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// How many nodes there are, for the table.
    pub fn size(&self) -> String {
        "2".to_owned()
    }
}

impl End {
    /// All of them.
    pub const ALL: &'static [End] =
        &[End::Lock, End::LockByForce, End::Reader, End::Writer, End::ReadersByForce, End::Permit];

    /// Whether another one may have its part beside the lease.
    pub fn has_others(self) -> bool {
        matches!(self, End::Reader | End::ReadersByForce | End::Permit)
    }

    /// Whether it is about a read-write lock.
    pub fn is_shared(self) -> bool {
        matches!(self, End::Reader | End::Writer | End::ReadersByForce)
    }

    /// Whether its script works with the name alone.
    pub fn works_with_one_key(self) -> bool {
        !matches!(self, End::Permit | End::ReadersByForce)
    }
}
