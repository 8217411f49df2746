//! A case: how far the model goes, and which rule is broken in it, if one is.

/// The bounds and the rules of one run. Times are in ticks; counts are over the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Case<const C: usize> {
    /// How many items are pushed.
    pub items: u8,
    /// Those from this one on are too long for a letter.
    pub long_from: u8,
    /// The time to live of every delivery.
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
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An ask that runs twice is lent another item.
    LentAgain,
    /// An item is lent again in the last tick of its delivery.
    LentEarly,
    /// A letter without its item leaves what an earlier grant to the same delivery brought.
    KeepsContent,
    /// What a grant to another delivery brought is taken for this one's.
    AnyContent,
    /// A deadline counts from the answer or the letter.
    DeadlineFromReceipt,
    /// A push lends its item to nobody.
    PushUnheard,
    /// What is given back is lent to nobody who waits.
    BackUnheard,
    /// Who gives up does not say so.
    SilentLeaver,
    /// What is lent to a delivery now is done, also if that is another item than its client had.
    AnyIsDone,
}

impl<const C: usize> Case<C> {
    /// Two short items, and no fault.
    pub const fn plain() -> Self {
        Case {
            items: 2,
            long_from: u8::MAX,
            ttl: 2,
            asks: 3,
            polls: 1,
            repeats: 1,
            renewals: 0,
            crashes: 0,
            doubles: 0,
            lost_letters: 0,
            wrong: None,
        }
    }

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Self {
        Case { wrong: Some(wrong), ..self }
    }

    /// How many take part, for the table.
    pub fn size(&self) -> String {
        C.to_string()
    }

    /// For how many ticks an item is lent that was asked for, or lent by letter, so many ticks ago.
    pub fn lasts(&self, age: u8) -> u8 {
        self.ttl.saturating_sub(if self.is(Wrong::DeadlineFromReceipt) { 0 } else { age })
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }
}
