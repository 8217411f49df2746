//! A case: how far the model goes, and which rule is broken in it, if one is.

/// The bounds and the rules of one run. Times are in ticks; counts are over the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Case<const C: usize> {
    /// How many permits there are.
    pub permits: i8,
    /// How many each client asks for at once.
    pub weights: [i8; C],
    /// The time to live of every lease.
    pub ttl: u8,
    /// First asks, over all clients.
    pub asks: u8,
    /// Further asks of those who wait, over all clients.
    pub polls: u8,
    /// Asks of those who wait since their timers have ended, over all clients: who is slow enough may lose each grant, and ask
    /// for ever.
    pub repeats: u8,
    /// Renewals, over all clients.
    pub renewals: u8,
    /// Clients that end.
    pub crashes: u8,
    /// Requests that run twice.
    pub doubles: u8,
    /// Letters that are lost.
    pub lost_letters: u8,
    /// Times that Redisson's client waits for a permit.
    pub java_asks: u8,
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An ask that runs twice takes the permits twice.
    TakenTwice,
    /// Ended permits are not counted as left.
    SweepNotCounted,
    /// Permits are taken back in their last tick.
    SweptEarly,
    /// A renewal makes the lease that is not there.
    RenewalMakes,
    /// A release gives back what is not there.
    BackNotThere,
    /// Who asks takes what is left, though another waits for more.
    NewcomerPasses,
    /// Who leaves the queue does not let the next have what is left.
    LeaverServesNobody,
    /// A newcomer waits behind those that are gone, while Redisson's client listens.
    WaitsForTheDead,
    /// A release beside Redisson's permits does not tell the first in the queue to listen.
    DeafToJava,
    /// A release that leaves Redisson's client a moment tells nobody in the queue.
    OpensSilently,
    /// Who gives up does not say so.
    SilentLeaver,
    /// A deadline counts from the answer or the letter.
    DeadlineFromReceipt,
}

impl<const C: usize> Case<C> {
    /// Two permits, and no fault.
    pub const fn plain(weights: [i8; C]) -> Self {
        Case {
            permits: 2,
            weights,
            ttl: 2,
            asks: 3,
            polls: 1,
            repeats: 1,
            renewals: 0,
            crashes: 0,
            doubles: 0,
            lost_letters: 0,
            java_asks: 0,
            wrong: None,
        }
    }

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Self {
        Case { wrong: Some(wrong), ..self }
    }

    /// How many take part, for the table.
    pub fn size(&self) -> String {
        format!("{C}{}", if self.java_asks > 0 { " + Java" } else { "" })
    }

    /// For how many ticks permits last that were asked for, or granted by letter, so many ticks ago.
    pub fn lasts(&self, age: u8) -> u8 {
        self.ttl.saturating_sub(if self.is(Wrong::DeadlineFromReceipt) { 0 } else { age })
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }
}
