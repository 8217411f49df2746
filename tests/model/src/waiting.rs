//! The library's machine as the models of permits and of items step it, and its times in ticks, which are those of the model of a
//! read-write lock, too.
//!
//! Each acquisition has a gate of its own, and so a machine with one request. Its clock stands still, and a tick brings all
//! times nearer: a time in it is a moment, so many ticks and a moment, or a poll. Whatever is due may ask at any later time.

use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::Timestamp;
use leasehold::seam::machine::{
    Action, Allowed, Answer, Epoch, Form, HeldBy, LeaseTerms, Machine, Mail, News, Now, Seeker,
};

/// The machine's time.
pub(crate) const NOW: Timestamp = Timestamp::from_origin(Duration::from_secs(1));
/// A moment.
pub(crate) const SOON: Duration = Duration::from_millis(1);
/// A tick.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// The time until a poll, and longer than any other.
pub(crate) const POLL: Duration = Duration::from_secs(10);

const FORM: Form = (0, LeaseTerms::Watched(Duration::ZERO));

/// The requests of one gate, of which there is one while somebody waits, and the letters `L` about them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requests<L>(pub(crate) Arc<Machine<L>>);

/// A letter about the request of a gate.
pub trait About: Mail + Copy {
    /// For whom the request asks.
    const SEEKER: Seeker;

    /// A tick, after so many of which its age does not matter any more.
    fn age(&mut self, most: u8);
}

/// What the server writes to one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Letter<G> {
    /// It is granted: what, and the ticks since then.
    Grant(G, u8),
    /// It is the first in the queue.
    Next(Ends),
    /// It is the first, and something may be left.
    Free,
}

/// A subscription of the channel on which another library's client tells of what it gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// There is none.
    #[default]
    Off,
    /// It is on its way.
    Subscribing,
    /// The server has it.
    On,
}

/// What the first in the queue is told of those who have what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// The ticks until the first of their ends; `None`: there is none.
    pub in_ticks: Option<u8>,
    /// One of them is a client of Redisson, which tells the queue of nothing.
    pub foreign: bool,
}

impl<G: Copy> Mail for Letter<G> {
    type Grant = (G, u8);
    type Holder = ();

    fn read(self) -> News<(G, u8), ()> {
        match self {
            Letter::Grant(grant, age) => News::Granted((grant, age)),
            Letter::Next(ends) => News::Next { held_by: ends.held_by(), holder: () },
            Letter::Free => News::Free,
        }
    }
}

impl Ends {
    /// What the machine is told of them.
    pub(crate) fn held_by(self) -> HeldBy {
        HeldBy { remaining: self.in_ticks.map(|ticks| TICK * ticks.into()), foreign: self.foreign }
    }
}

/// An answer: it waits, and whether it is the first.
pub fn refused(is_first: bool, ends: Ends) -> Answer {
    Answer::Refused {
        ahead: Some(u32::from(!is_first)),
        held_by: ends.held_by(),
        asked_in: Some(Epoch::numbered(1)),
    }
}

/// None of the answers counts.
pub fn failed() -> Answer {
    Answer::Failed { pause: SOON }
}

/// The mailbox was subscribed before, and stays so.
pub(crate) fn now() -> Now {
    Now { at: NOW, poll: POLL, moment: SOON, epoch: Some(Epoch::numbered(1)) }
}

impl<L> Default for Requests<L> {
    fn default() -> Self {
        Requests(Arc::default())
    }
}

impl<L: About> Requests<L> {
    pub(crate) fn machine(&mut self) -> &mut Machine<L> {
        Arc::make_mut(&mut self.0)
    }

    /// The ask of a request that is wanted was answered. Returns what is to be done about a letter that came meanwhile.
    pub fn answered(&mut self, answer: Answer) -> Option<Action<L>> {
        let action = self.machine().answered(L::SEEKER, answer, now());
        self.machine().forget_failures();
        action
    }

    /// Reads a letter.
    pub fn letter(&mut self, letter: L) -> Option<Action<L>> {
        self.machine().letter(L::SEEKER, letter, now())
    }

    /// What a letter granted is in use, or was given back.
    pub fn taken_up(&mut self) {
        self.machine().taken_up(L::SEEKER);
    }

    /// What a letter granted has to be confirmed.
    pub fn confirm(&mut self) {
        self.machine().confirm(L::SEEKER);
    }

    /// Something was given back, as told on the channel.
    pub fn released(&mut self) {
        self.machine().released();
    }

    /// Whether it has to hear what is told on the channel.
    pub fn watches(&self) -> bool {
        self.0.watches_channel()
    }

    /// Whether its time to ask comes without a poll, and has come if `soon`.
    pub fn has_timer(&self, allowed: Allowed, soon: bool) -> bool {
        self.0.asks_at(allowed) <= NOW.plus(if soon { SOON } else { POLL - SOON })
    }

    /// It asks now, whatever its time was.
    pub fn wake(&mut self) {
        self.machine().rename(|_, _| Timestamp::default(), |_| {});
    }
}

impl<G: Copy> Requests<Letter<G>> {
    /// Takes over a request whose first ask had that answer.
    pub fn begun(&mut self, answer: Answer) {
        let begun = self.machine().begun(Letter::<G>::SEEKER, FORM, answer, now());
        begun.expect("nothing asks");
    }

    /// Nobody waits any more.
    pub fn clear(&mut self) {
        self.machine().clear();
    }

    /// Whether it asks now. It does so from here on.
    pub fn asks(&mut self) -> bool {
        self.0.asks_at(Allowed::All) <= NOW && self.machine().ask(Allowed::All, NOW).is_some()
    }

    /// A tick.
    pub fn tick(&mut self, most: u8) {
        if self.0.standings().next().is_none() {
            return;
        }
        let nearer = |_, at: Timestamp| match at.since(NOW) {
            left if SOON < left && left < POLL => NOW.plus(left - TICK),
            _ => at,
        };
        let older = |letter: &mut Letter<G>| letter.age(most);
        self.machine().rename(nearer, older);
    }
}

impl<G: Copy> About for Letter<G> {
    // All handles to permits and to items are fair.
    const SEEKER: Seeker = Seeker::Fair(1);

    fn age(&mut self, most: u8) {
        if let Letter::Grant(_, age) = self {
            *age = (*age + 1).min(most);
        }
    }
}

/// What a letter grants: what, and the ticks since then.
pub fn granted<G: Copy>(action: Option<Action<Letter<G>>>) -> Option<(G, u8)> {
    match action {
        Some(Action::TakeUp { grant, .. }) => Some(grant),
        Some(Action::Succeeded { .. }) | None => None,
        Some(Action::Drop { .. }) => unreachable!("it is wanted until nobody waits"),
    }
}
