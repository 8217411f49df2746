//! The library's machine in this model: the requests of one client, and its letters.
//!
//! The waiters of a client are ordinary ones, so its machine has one request, for the first of them. Its times are as
//! [`waiting`](crate::waiting) says.

use std::time::Duration;

use leasehold::seam::Timestamp;
use leasehold::seam::machine::{Action, Allowed, Answer, Form, LeaseTerms, Mail, News, Seeker};

use super::state::Side;
use crate::waiting::{self, About, Ends, NOW, POLL, SOON, TICK, now};

/// The requests of a client.
pub type Requests = waiting::Requests<Letter>;

/// What the server writes to one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Letter {
    /// The number of the lease that it is about.
    pub number: u8,
    /// The server has said since then that the request waits.
    pub outdated: bool,
    /// What it says.
    pub says: Says,
}

/// What a letter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Says {
    /// It is granted.
    Grant(Grant),
    /// It is the first in the queue.
    Next(Ends),
    /// It is the first, and the lock is free for a moment.
    Free,
}

/// A grant by letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// The ticks since then.
    pub age: u8,
    /// The token.
    pub token: u8,
    /// The last token before, if a writer was told one.
    pub before: Option<u8>,
}

impl Mail for Letter {
    /// The grant, and whether it is outdated.
    type Grant = (Grant, bool);
    /// Whether what it says of the holder is outdated.
    type Holder = bool;

    fn read(self) -> News<(Grant, bool), bool> {
        match self.says {
            Says::Grant(grant) => News::Granted((grant, self.outdated)),
            Says::Next(ends) => News::Next { held_by: ends.held_by(), holder: self.outdated },
            Says::Free => News::Free,
        }
    }
}

impl About for Letter {
    // The waiters of a read-write lock are ordinary ones.
    const SEEKER: Seeker = Seeker::Ordinary;

    fn age(&mut self, most: u8) {
        if let Says::Grant(Grant { age, .. }) = &mut self.says {
            *age = (*age + 1).min(most);
        }
    }
}

/// What a request of that side asks for. All of one side ask on the same terms.
fn form(side: Side) -> Form {
    (side as u32, LeaseTerms::Watched(Duration::ZERO))
}

const SEEKER: Seeker = Letter::SEEKER;

impl Requests {
    /// Learns what the first who waits wants.
    pub fn want(&mut self, side: Option<Side>) -> Option<Action<Letter>> {
        self.machine().want(SEEKER, side.map(form))
    }

    /// Takes over a request whose first ask had that answer. Returns its number, and what is to be done.
    pub fn begun(&mut self, side: Side, answer: Answer) -> (u8, Option<Action<Letter>>) {
        let begun = self.machine().begun(SEEKER, form(side), answer, now());
        let (number, action) = begun.expect("nothing of the machine asks");
        (number as u8, action)
    }

    /// Whether its request asks now, if it may.
    pub fn is_due(&self, allowed: Allowed) -> bool {
        self.0.asks_at(allowed) <= NOW
    }

    /// Has the request ask that is due. Returns its number.
    pub fn ask(&mut self, allowed: Allowed) -> u8 {
        let (_, number) = self.machine().ask(allowed, NOW).expect("its time has come");
        number as u8
    }

    /// Whether a request of this number stands still for those who wait.
    pub fn is_wanted(&self, number: u8) -> bool {
        self.0.is_wanted(SEEKER, number.into())
    }

    /// Forgets which requests there were, if there is none.
    pub fn tidy(&mut self) {
        if self.0.standings().next().is_none() && self.0.pauses_until() <= NOW {
            *self = Requests::default();
        }
    }

    /// Whether its request asks in order to confirm a grant by letter.
    pub fn is_confirming(&self) -> bool {
        self.0.is_confirming(SEEKER)
    }

    /// The letter that waits for an answer.
    pub fn letters(&self) -> impl Iterator<Item = &Letter> {
        self.0.letters()
    }

    /// Changes that letter.
    pub fn change_letter(&mut self, change: impl Fn(&mut Letter)) {
        if self.0.letters().next().is_some() {
            self.machine().rename(|_, at| at, change);
        }
    }

    /// A tick. A pause is shorter.
    pub fn tick(&mut self, most: u8) {
        let is_paused = self.0.pauses_until() > NOW;
        if self.0.standings().next().is_none() && !is_paused {
            return;
        }
        let nearer = |of: Option<Seeker>, at: Timestamp| match at.since(NOW) {
            left if SOON < left && left < POLL => NOW.plus(left - TICK),
            _ if of.is_none() => Timestamp::default(),
            _ => at,
        };
        self.machine().rename(nearer, |letter| letter.age(most));
    }
}
