//! A case: how far the model goes, and which rule is broken in it, if one is.

/// The bounds and the rules of one run. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The time to live of every lease.
    pub ttl: u8,
    /// What is taken off a lease for the drift of clocks.
    pub drift: u8,
    /// Acquires, over all clients.
    pub asks: u8,
    /// Renewals, over all clients.
    pub renewals: u8,
    /// Whether a renewal heals nodes that miss the lease.
    pub heals: bool,
    /// Restarts of servers, over all.
    pub restarts: u8,
    /// Servers that follow an empty one and are masters again, in the same run, over all.
    pub demotions: u8,
    /// Whether a restarted server has its data still. It may say so or not.
    pub keeps_data: bool,
    /// How long the grants of a server do not count that may have forgotten others.
    pub quarantine: u8,
    /// Broken connections, over all.
    pub breaks: u8,
    /// Whether the next connection kills its predecessor on the server before it is used.
    pub kills: bool,
    /// Requests that are run twice, over all.
    pub doubles: u8,
    /// Whether acquires can be among them.
    pub doubles_acquires: bool,
    /// Ticks by which clocks go apart, over all clocks.
    pub skew: u8,
    /// Whether an operator force-unlocks what somebody holds, once.
    pub force: Force,
    /// Whether that may be while the acquire has not been run on every node.
    pub force_early: bool,
    /// Whether tokens are modelled.
    pub tokens: bool,
    /// How many tokens the first client takes with a lease; the others take one.
    pub block: u8,
    /// Steps of a server's coarse clock that move a counter, over all.
    pub steps: u8,
    /// No clock at all: holds end on a server at any time, and the holder never learns of it.
    pub timeless: bool,
    /// Whether states that differ only in the order of nodes, or of clients, count as one. Without it a trace
    /// calls each node by the same number from its first step to its last.
    pub symmetry: bool,
    /// Keep what the witnesses need; as the properties are.
    pub witness: bool,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// How a force-unlock reaches the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// There is none.
    Never,
    /// All at the same moment.
    AtOnce,
    /// Each at a moment of its own.
    OneByOne,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Validity counts from the answer, not from before the request.
    ValidityFromReply,
    /// A release deletes the key whoever has it.
    ReleaseOfAnybody,
    /// A client has one lease id for all its acquires.
    LeaseIdReused,
    /// The answer to an earlier acquire counts for the one under way.
    OldGrantCounts,
    /// A refused client releases only where it was granted.
    ReleaseOnlyWhereGranted,
    /// An acquire that a connection took along is sent again on the next one, without its release behind it.
    AcquireCrossesConnections,
    /// Grants of a quarantined server count.
    QuarantineIgnored,
    /// A server that shows an append-only file is trusted at a first meeting.
    FileTrustedAtFirst,
    /// A server that shows an append-only file is trusted after a restart.
    FileTrustedAgain,
    /// A server that followed another is the same, since its run is.
    HistoryIgnored,
    /// A server that followed another is trusted for its uptime at a first meeting.
    FollowerTrustedAtFirst,
    /// Answers to an earlier renewal count for the one under way.
    OldRenewalCounts,
    /// A renewal's answers lead to heals although the lease was released meanwhile.
    HealAfterRelease,
    /// A renewal's answers lead to heals although the deadline passed meanwhile.
    HealAfterDeadline,
    /// A node that misses the lease is healed whatever the others say.
    HealWithoutMajority,
    /// A node that confirmed the lease a moment ago is healed: somebody cleared it on purpose.
    HealOfCleared,
    /// Whether a node confirmed the lease less than a ttl ago is asked when it answers, not as of the sending.
    ConfirmationAgesWhileWaiting,
    /// The token is the highest answer, and the counters stay as they are.
    NoRaise,
    /// `fence_raise` goes through although the lease is not there any more.
    RaiseWithoutLease,
    /// `fence_raise` counts also where the acquire had not been answered when the token was chosen.
    RaiseCountsStragglers,
}

impl Case {
    /// Three acquires, nothing goes wrong but that every message may be as late as it likes, or lost.
    pub const PLAIN: Case = Case {
        ttl: 2,
        drift: 0,
        asks: 3,
        renewals: 0,
        heals: false,
        restarts: 0,
        demotions: 0,
        keeps_data: false,
        quarantine: 0,
        breaks: 0,
        kills: true,
        doubles: 0,
        doubles_acquires: true,
        skew: 0,
        force: Force::Never,
        force_early: false,
        tokens: false,
        block: 1,
        steps: 0,
        timeless: false,
        symmetry: true,
        witness: false,
        wrong: None,
    };

    /// The order of tokens by itself: holds end at any time.
    pub const TOKENS: Case = Case { tokens: true, timeless: true, ..Case::PLAIN };

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Case {
        Case { wrong: Some(wrong), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }
}
