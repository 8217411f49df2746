//! A case: how far the model goes, and which rule is broken in it, if one is.

/// The bounds and the rules of one run. Times are in ticks; counts are over the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Case<const C: usize> {
    /// How each client takes the lock.
    pub uses: [Use; C],
    /// The time to live of every lease.
    pub ttl: u8,
    /// First asks, over all clients.
    pub asks: u8,
    /// Further asks of those who wait, over all clients.
    pub polls: u8,
    /// Asks of those who wait since a timer has ended, or a grant by letter did not count, over all clients: who is slow enough may
    /// lose each grant, and ask for ever.
    pub repeats: u8,
    /// Readers that join a lease of their client, or come to wait beside it, over all clients, and writers that do.
    pub joins: u8,
    /// How many wait in a client at once.
    pub crowd: u8,
    /// Writers that become readers.
    pub downgrades: u8,
    /// Times that the last user of a lease gives it back before its shortest hold is over.
    pub keeps: u8,
    /// Renewals, over all clients.
    pub renewals: u8,
    /// Times that Redisson's client takes the lock.
    pub java_asks: u8,
    /// Its watchdog renews the hash only, and no reader's end: 3.44 to 3.52 do that.
    pub java_leaves_ends: bool,
    /// Times that somebody listens on the lock's channel and the window for joining readers shuts.
    pub shuts: u8,
    /// Clients that end, Redisson's included.
    pub crashes: u8,
    /// Requests that run twice.
    pub doubles: u8,
    /// Letters that are lost.
    pub lost_letters: u8,
    /// Forced unlocks of whoever holds the lock.
    pub forces: u8,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// How a client takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// For reading.
    Reads,
    /// For writing.
    Writes,
    /// For either.
    Both,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A reader that finds readers joins them, though a writer waits.
    ReaderPassesWriter,
    /// A reader counts as gone in its last tick.
    EndsEarly,
    /// A reader of Redisson counts as gone when its end has come, as one of ours does.
    EndsJava,
    /// A release frees the lock without a look at other readers.
    LooksAtNobody,
    /// A reader's renewal does not lengthen the hash.
    RenewalLeavesHash,
    /// A reader's renewal does not lengthen its own end.
    RenewalLeavesOwnEnd,
    /// A writer that becomes a reader gets no end of its own.
    DowngradeWithoutEnd,
    /// A reader that comes to others does not lengthen the hash.
    JoinLeavesHash,
    /// A downgrade takes the lock though its writer is gone.
    DowngradeOfNobody,
    /// Only one is let in at a time.
    PumpsOne,
    /// Who leaves the queue does not let in those behind it.
    LeaverPumpsNobody,
    /// The first in the queue is not told that it is the first.
    FirstNotTold,
    /// Readers in the queue join readers that are there, though the window is shut.
    JoinsThoughShut,
    /// The first in the queue does not look whether the window is open again.
    OpensUnseen,
    /// A release beside Redisson's reader does not tell the first in the queue to listen.
    DeafToJava,
    /// Who gives up does not say so.
    SilentLeaver,
    /// A deadline counts from the answer or the letter.
    DeadlineFromReceipt,
    /// A writer's token is the counter's number as it is.
    WriterTakesNoToken,
    /// A reader that is granted the lock joins its client's lease without a look whether that is still there.
    JoinsUnseen,
    /// That look comes before the ask.
    LooksBeforeAsk,
    /// A reader that a letter grants the lock joins its client's lease without an ask.
    JoinsByLetter,
    /// A letter of a grant is believed though a newer answer says that the request waits.
    BelievesOlderLetters,
    /// A letter of a grant is believed though the answer to the last ask did not count.
    BelievedUnanswered,
    /// A reader that keeps its part for a while shortens the hash, though others read.
    KeptPartEndsHash,
    /// What a letter that came too late told of the tokens before goes for a later grant, too.
    KeepsWhatItWasTold,
}

impl<const C: usize> Case<C> {
    /// Three asks, and no fault.
    pub const fn plain(uses: [Use; C]) -> Self {
        Case {
            uses,
            ttl: 2,
            asks: 3,
            polls: 0,
            repeats: 2,
            joins: 0,
            crowd: 1,
            downgrades: 0,
            keeps: 0,
            renewals: 0,
            java_asks: 0,
            java_leaves_ends: false,
            shuts: 0,
            crashes: 0,
            doubles: 0,
            lost_letters: 0,
            forces: 0,
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

    /// Who takes part, for the table.
    pub fn size(&self) -> String {
        format!("{C}{}", if self.java_asks > 0 { " + Java" } else { "" })
    }
}
