//! A case: how far the model goes, and which rule is broken in it, if one is.

/// The bounds and the rules of one run. Times are in ticks; counts are over the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The time to live of every lease.
    pub ttl: u8,
    /// For how long the grants of a server do not count that may have forgotten others; zero: there is no grace.
    pub grace: u8,
    /// Acquires, over all clients.
    pub asks: u8,
    /// Promotions.
    pub promotions: u8,
    /// Whether the old master stops to grant before the other server is promoted.
    pub fenced: bool,
    /// Restarts of the current master without data.
    pub restarts: u8,
    /// Whether the lock's slot may move to another server, which has been up for long, with its data or without.
    pub moves: bool,
    /// Marks that the server loses, by eviction for example.
    pub lost_marks: u8,
    /// Whether this user may write the mark.
    pub may_mark: bool,
    /// Whether client 0 knows no grace.
    pub stranger: bool,
    /// Whether client 0 writes, and the others read what it has written.
    pub readers: bool,
    /// Whether those who unlock wait for the answer to the release.
    pub unlocks: bool,
    /// Leases that somebody removes from the current master, by a forced unlock for example.
    pub removals: u8,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A client that meets a promoted server for the first time trusts it for its uptime.
    MarkIgnored,
    /// The mark is compared by the run only.
    MarkOfRunOnly,
    /// The mark counts whatever run and history it names.
    AnyMark,
    /// A promoted server that the client knows by its run is the same server, whatever its history.
    HistoryIgnored,
    /// A grant counts although the server's history has changed since the client connected.
    VoteUnchecked,
    /// A lease is put back also when the grace is over.
    LateReclaim,
    /// A lease is put back although another holds the lock.
    ReclaimOverAnother,
    /// A lease is put back in the run and the history in which it was confirmed: somebody removed it.
    ReclaimInSameHistory,
    /// A lease that was put back counts although the server's history has changed since the client connected.
    ReclaimUnchecked,
    /// A release that finds nothing tells of a loss, whichever server it was.
    MissingIsLoss,
    /// A release that finds nothing tells of no loss, whichever server it was.
    MissingIsNoLoss,
    /// A release that finds nothing on another server tells of no loss, also when the grace is over.
    MissingAfterGrace,
    /// A reader takes the last writer's token as the server has it.
    AnyToken,
    /// A server is trusted for its uptime also with a slot that it did not have before.
    SlotTrusted,
}

impl Case {
    /// A promotion behind a fenced master.
    pub const PLAIN: Case = Case {
        ttl: 2,
        grace: 2,
        asks: 2,
        promotions: 1,
        fenced: true,
        restarts: 0,
        moves: false,
        lost_marks: 0,
        may_mark: true,
        stranger: false,
        readers: false,
        unlocks: false,
        removals: 0,
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
}
