//! A case: how far the model goes, and which rule is broken in it, if one is.

/// The bounds and the rules of one run. Times are in ticks. Unless said otherwise, counts are over the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The process of each waiter, counted from 0.
    pub homes: &'static [u8],
    /// Whether the mailboxes are subscribed from the beginning, as after earlier waits.
    pub subscribed: bool,
    /// Clients that follow Redisson's `RLock`.
    pub javas: u8,
    /// Waits that begin.
    pub asks: u8,
    /// Locks of Java that begin.
    pub java_asks: u8,
    /// Attempts that do not wait.
    pub tries: u8,
    /// Polls.
    pub polls: u8,
    /// Asks of those that wait already, polls or not, where time is counted in ticks: a waiter that is slow enough may
    /// lose each grant and ask for ever.
    pub repeats: u8,
    /// Waits that are given up.
    pub cancels: u8,
    /// Renewals.
    pub renewals: u8,
    /// Processes that end, of ours or Java's.
    pub crashes: u8,
    /// Processes that stop and keep their connections.
    pub stops: u8,
    /// Command connections that break.
    pub breaks: u8,
    /// Whether the next connection kills its predecessor before it is used.
    pub kills: bool,
    /// Subscription connections that break.
    pub resets: u8,
    /// Whether the server may notice that later than the client.
    pub half_open: bool,
    /// Releases that run twice.
    pub doubles: u8,
    /// Leases that end while the message of their grant, or the answer, is still on its way (only without ticks).
    pub late: u8,
    /// Queues that the server loses.
    pub forgets: u8,
    /// Restarts of the server, which forgets everything.
    pub restarts: u8,
    /// Moves of the lock and its queue to another server.
    pub moves: u8,
    /// Forced unlocks.
    pub forces: u8,
    /// Whether the answers to releases are heard, which tell whether others have the message on the lock's channel.
    pub answers: bool,
    /// Whether time is counted in ticks.
    pub timed: bool,
    /// The time to live of a lease that was asked for.
    pub ttl: i8,
    /// The time to live of a lease granted by message.
    pub short: i8,
    /// What is taken off a lease for the drift of clocks.
    pub drift: i8,
    /// What is taken off for the drift between a sample that is not new and the grant.
    pub slack: i8,
    /// How long a client believes no grants of a server that restarted.
    pub quarantine: i8,
    /// Ticks by which clocks go apart, over all clocks.
    pub skew: u8,
    /// How many ticks apart those are at least.
    pub calm: i8,
    /// Steps of the server's wall clock.
    pub steps: u8,
    /// By how much it steps; back, if negative.
    pub step: i8,
    /// By how much it steps when the server restarts.
    pub restart_step: i8,
    /// How many ticks requests and messages are under way at most.
    pub delay: Option<i8>,
    /// Whether Java asks before a head asks that was told `free`, and before a poll.
    pub java_prompt: bool,
    /// Whether another ask has to confirm each grant that came by message.
    pub confirms: bool,
    /// Whether states that differ only in the names of waiters and processes count as one.
    pub symmetry: bool,
    /// Entries of processes that are gone, which one run of a script takes out at most.
    pub passes: u8,
    /// The rule that is broken.
    pub bug: Option<Bug>,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The next head is not told that it is the head.
    NextLeftOut,
    /// The head leaves and the next one is not told.
    LeaveNotTold,
    /// A grant goes to a head whose mailbox nobody reads.
    DeadNotPassedOver,
    /// A waiter that gives up sends no release.
    GrantForNobodyKept,
    /// The deadline of a grant by message counts from its receipt.
    DeadlineFromReceipt,
    /// A grant by message is believed to last as long as one that was asked for.
    FullLengthBelieved,
    /// A grant that seems to have come before it was sent is not confirmed.
    StepNotSeen,
    /// A release hands on although Java waits.
    PumpAlways,
    /// A first ask grants the free lock to the head although Java was told that it is free.
    FirstAskPumps,
    /// A first ask leaves the free lock to a head that is gone.
    WaitsForTheDead,
    /// Who polls behind Java leaves the place of a head that is gone to it.
    DeadHeadKept,
    /// Where a run may take out no more of those who are gone, an ask waits for who is behind them.
    WaitsBehindTheRest,
    /// A client that has released to others' ears asks again at once.
    AsksBehindItsRelease,
    /// One that waits asks at once behind a release of its process that others heard.
    DoesNotStandBack,
    /// A release that told nobody on the channel is taken to say that nobody listens.
    ForgetsWhoListens,
    /// A request that stands in the queue of the server that had the lock before goes on.
    StaysWhereItWas,
    /// An entry that is in the queue is put there again.
    EnqueuedTwice,
    /// A message is taken for the present wait though it names an earlier one.
    OldIdAccepted,
    /// Waiters do not poll.
    NoPoll,
    /// The lock is taken although others wait for it.
    Barging,
    /// A poll goes to the end of the queue.
    PollLosesPlace,
    /// Nobody asks again once the mailbox is subscribed.
    ResetNotAsked,
    /// The head does not listen for Java's release.
    HeadDoesNotListen,
    /// The token of a grant by message is used though the lease had to be confirmed.
    TokenOfMessage,
    /// A grant by message is believed although the last ask has had no answer.
    BelievedUnanswered,
    /// A grant by message that an ask had to confirm is given back as one that came by an answer.
    ConfirmedIsNoMessage,
    /// An attempt beside those who wait leaves it to their own time when they ask.
    AttemptForgotten,
}

impl Case {
    /// Three waiters, no fault, without ticks.
    pub const PLAIN: Case = Case {
        homes: &[0, 1, 2],
        subscribed: false,
        javas: 0,
        asks: 3,
        java_asks: 0,
        tries: 0,
        polls: 0,
        repeats: 0,
        cancels: 0,
        renewals: 0,
        crashes: 0,
        stops: 0,
        breaks: 0,
        kills: true,
        resets: 0,
        half_open: false,
        doubles: 0,
        late: 0,
        forgets: 0,
        restarts: 0,
        moves: 0,
        forces: 0,
        answers: false,
        timed: false,
        ttl: 3,
        short: 2,
        drift: 0,
        slack: 0,
        quarantine: 0,
        skew: 0,
        calm: 0,
        steps: 0,
        step: 0,
        restart_step: 0,
        delay: None,
        java_prompt: false,
        confirms: false,
        symmetry: true,
        passes: 6,
        bug: None,
    };

    /// Two waiters, with ticks.
    pub const TIMED: Case =
        Case { homes: &[0, 1], timed: true, subscribed: true, repeats: 2, ..Case::PLAIN };

    /// Who takes part, for the table.
    pub fn size(&self) -> String {
        let (waiters, processes) = (self.homes.len(), self.processes());
        let together = if waiters > processes { format!(" in {processes}") } else { String::new() };
        let java = if self.javas > 0 { " + Java" } else { "" };
        format!("{waiters}{together}{java}")
    }

    /// The same with a rule broken.
    pub const fn with(self, bug: Bug) -> Case {
        Case { bug: Some(bug), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// How many processes of ours there are.
    pub fn processes(&self) -> usize {
        self.homes.iter().max().map_or(0, |&last| usize::from(last) + 1)
    }

    /// The process of a waiter.
    pub fn home(&self, waiter: usize) -> usize {
        self.homes[waiter].into()
    }

    /// The age of an ask beyond which nothing is left of what it was granted.
    pub fn old(&self) -> i8 {
        self.ttl
    }

    /// The age of a grant by message, or of a sample against it, beyond which nothing is left of it, whatever the clocks
    /// did.
    pub fn stale(&self) -> i8 {
        self.short + self.step.max(0) + self.restart_step.max(0) + self.skew as i8
    }

    /// How long a lease is, as the server keeps it; without ticks it ends at some time.
    pub fn length(&self, ttl: i8) -> i8 {
        if self.timed { ttl } else { 1 }
    }
}
