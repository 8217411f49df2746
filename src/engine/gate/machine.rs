//! The requests of a gate that stand in a server's queue, as a machine: events come in, and what is to be done comes out. It
//! knows no clock, no network and no task. Times come in, and each step costs a search in a tree, however many wait.
//!
//! One request stands there for all ordinary waiters, and one for each waiter of a fair handle.
//!
//! | phase     | becomes   | when                                                                        |
//! |-----------|-----------|-----------------------------------------------------------------------------|
//! | `Waiting` | `Asking`  | its time to ask has come, and it [may](Allowed)                             |
//! | `Asking`  | `Waiting` | the answer is a refusal, or there was none                                  |
//! | any       | gone      | it was granted, or nobody wants it, or it is in the queue of another server |
//!
//! Any number of requests ask at once. A letter that arrives while its own request asks is read right after the answer, and
//! no letter waits for the answer to another request.

mod events;
#[cfg(feature = "__test-seam")]
mod naming;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use super::wait_list::Seeker;
use crate::clock::Timestamp;
pub use crate::config::LeaseTerms;
pub use crate::engine::place::HeldBy;
use crate::engine::place::Place;
pub use crate::node::Epoch;
pub use events::{Action, Allowed, Answer, Form, Mail, News, Now};

/// The requests of a gate. Machines are equal if they do the same from here on: a model tells its states apart by that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine<L> {
    requests: BTreeMap<Seeker, Standing<L>>,
    /// Those that wait, by when they ask.
    due: BTreeSet<(Timestamp, Seeker)>,
    /// How many have to hear of the releases of another library's client.
    watching: usize,
    /// Nothing is asked before.
    pause_until: Timestamp,
    /// Asks in a row without a usable answer.
    failures: u32,
    numbers: u64,
}

/// A request that stands in the queue, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Standing<L> {
    /// Tells it from those that stood in its place before.
    number: u64,
    form: Form,
    place: Place,
    asking: bool,
    /// A grant by message has to be confirmed.
    confirming: bool,
    /// The mailbox's subscription at the last ask.
    asked_in: Option<Epoch>,
    /// What arrived while it asked.
    letter: Option<L>,
    /// While it asked, somebody released the lock, or wanted a later answer.
    heard: bool,
    /// Somebody who does not wait wants its next answer.
    hurried: bool,
}

impl<L> Default for Machine<L> {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            due: BTreeSet::new(),
            watching: 0,
            pause_until: Timestamp::default(),
            failures: 0,
            numbers: 0,
        }
    }
}

impl<L: Mail> Machine<L> {
    /// Learns what is wanted for a seeker. A request on other terms, or for another side, serves it no more: one begins anew,
    /// at the end of the queue.
    pub fn want(&mut self, seeker: Seeker, form: Option<Form>) -> Option<Action<L>> {
        let standing = self.requests.get(&seeker);
        if standing.map(|standing| standing.form) == form {
            return None;
        }
        let dropped = self.remove(seeker).map(|old| Action::Drop { number: old.number });
        if let Some(form) = form {
            self.insert(seeker, form, Place::unknown());
        }
        dropped
    }

    /// Takes over a request that has asked once, and was refused so, or had no answer. Returns its number, or `None` if one
    /// asks for that seeker now.
    pub fn begun(
        &mut self,
        seeker: Seeker,
        form: Form,
        answer: Answer,
        now: Now,
    ) -> Option<(u64, Option<Action<L>>)> {
        if self.requests.get(&seeker).is_some_and(|standing| standing.asking) {
            return None;
        }
        let dropped = self.remove(seeker).map(|old| Action::Drop { number: old.number });
        let number = self.insert(seeker, form, Place::unknown());
        self.set(seeker, |standing| match answer {
            Answer::Failed { pause } => standing.place.failed(now.at, pause),
            Answer::Refused { ahead, held_by, asked_in } => {
                standing.refused(ahead, held_by, asked_in, now);
                standing.catch_up(now);
            }
            Answer::Granted => {}
        });
        Some((number, dropped))
    }

    /// The queue is on another server: all begin anew there. Whatever kept the server before from granting is no reason.
    pub fn moved(&mut self) -> Vec<Action<L>> {
        self.pause_until = Timestamp::default();
        let forms: Vec<_> =
            self.requests.iter().map(|(seeker, standing)| (*seeker, standing.form)).collect();
        let again = |(seeker, form)| {
            let old = self.remove(seeker)?;
            self.insert(seeker, form, Place::unknown());
            Some(Action::Drop { number: old.number })
        };
        forms.into_iter().filter_map(again).collect()
    }

    /// Nobody waits any more.
    pub fn clear(&mut self) {
        *self = Self { numbers: self.numbers, ..Self::default() };
    }

    /// Another library's waiters learned of our release, and have a moment to ask.
    pub fn stand_back(&mut self, now: Now) {
        self.pause_until = now.at.plus(now.moment);
    }

    /// Somebody wants the answer to an ask that begins from now on: the one that may get the lock first asks, and asks again if
    /// it does so already.
    pub fn hurry(&mut self) {
        if let Some(seeker) = self.requests.keys().next().copied() {
            self.set(seeker, |standing| {
                standing.heard |= standing.asking;
                standing.hurried = true;
                standing.place.ask_now();
            });
        }
    }

    /// Returns when the next request asks.
    pub fn asks_at(&self, allowed: Allowed) -> Timestamp {
        let Some((at, seeker)) = self.next(allowed) else { return Timestamp::NEVER };
        // The pause after a failure is for those who wait. Without a failure, it is a moment that others have.
        let is_hurried = self.failures > 0 && self.requests[&seeker].hurried;
        if is_hurried { at } else { at.max(self.pause_until) }
    }

    /// Returns the next request whose time to ask has come. It asks from here on, until it is [`answered`](Self::answered).
    pub fn ask(&mut self, allowed: Allowed, now: Timestamp) -> Option<(Seeker, u64)> {
        let (_, seeker) = self.next(allowed).filter(|_| self.asks_at(allowed) <= now)?;
        self.set(seeker, |standing| (standing.asking, standing.hurried) = (true, false));
        Some((seeker, self.requests[&seeker].number))
    }

    /// A request could not be sent after all.
    pub fn not_asked(&mut self, seeker: Seeker, at: Timestamp) {
        self.set(seeker, |standing| {
            standing.asking = false;
            standing.place.failed(at, Duration::ZERO);
        });
    }

    /// Returns how many asks in a row had no usable answer.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns true if the number is that of a request that stands for this seeker still.
    pub fn is_wanted(&self, seeker: Seeker, number: u64) -> bool {
        self.requests.get(&seeker).is_some_and(|standing| standing.number == number)
    }

    /// Returns true if the request asks in order to confirm a grant by message.
    pub fn is_confirming(&self, seeker: Seeker) -> bool {
        self.requests.get(&seeker).is_some_and(|standing| standing.confirming)
    }

    /// Takes in what came of the ask of a request that is [wanted](Self::is_wanted).
    pub fn answered(&mut self, seeker: Seeker, answer: Answer, now: Now) -> Option<Action<L>> {
        match answer {
            Answer::Granted => {
                self.failures = 0;
                self.remove(seeker);
                return None;
            }
            Answer::Refused { ahead, held_by, asked_in } => {
                self.failures = 0;
                self.set(seeker, |standing| standing.refused(ahead, held_by, asked_in, now));
            }
            Answer::Failed { pause } => {
                // Those that fail together are one failure.
                self.failures += u32::from(self.pause_until <= now.at);
                self.pause_until = self.pause_until.max(now.at.plus(pause));
                self.set(seeker, |standing| standing.asking = false);
            }
        }
        let letter = self.requests.get_mut(&seeker)?.letter.take();
        let action = letter.and_then(|letter| self.letter(seeker, letter, now));
        // Behind the letter, which may be older than what was missed.
        self.set(seeker, |standing| standing.catch_up(now));
        action
    }

    /// Reads a letter about the request of this seeker.
    pub fn letter(&mut self, seeker: Seeker, letter: L, now: Now) -> Option<Action<L>> {
        let standing = self.requests.get_mut(&seeker)?;
        if standing.asking {
            standing.letter = Some(letter);
            return None;
        }
        match letter.read() {
            News::Granted(grant) => {
                return Some(Action::TakeUp { seeker, number: standing.number, grant });
            }
            News::Next { held_by, holder } => {
                self.set(seeker, |standing| standing.place.first(held_by, now.at, now.poll));
                return Some(Action::Succeeded { by: holder });
            }
            News::Free => self.set(seeker, |standing| standing.place.free(now.at, now.moment)),
            News::Subscribed => self.subscribed(now),
        }
        None
    }

    /// The mailbox was subscribed: what was written to it before may be lost, and a request passed over.
    pub fn subscribed(&mut self, now: Now) {
        let missed = |(seeker, standing): (&Seeker, &Standing<L>)| {
            standing.has_missed(now).then_some(*seeker)
        };
        let missed: Vec<Seeker> = self.requests.iter().filter_map(missed).collect();
        for seeker in missed {
            self.set(seeker, |standing| standing.place.ask_now());
        }
    }

    /// Somebody released the lock, as told on its channel.
    pub fn released(&mut self) {
        let watches = |(seeker, standing): (&Seeker, &Standing<L>)| {
            standing.place.watches_channel().then_some(*seeker)
        };
        // No further than to the last of them: mostly the first in the queue is the only one.
        let watching = self.requests.iter().filter_map(watches).take(self.watching);
        let watching: Vec<Seeker> = watching.collect();
        for seeker in watching {
            self.set(seeker, |standing| {
                standing.heard = standing.asking;
                standing.place.ask_now();
            });
        }
    }

    /// What a message granted is in use, or was given back.
    pub fn taken_up(&mut self, seeker: Seeker) {
        self.remove(seeker);
    }

    /// What a message granted was given back, since nobody may use it: it is asked for anew.
    pub fn given_back(&mut self, seeker: Seeker) {
        self.set(seeker, |standing| standing.place.ask_now());
    }

    /// What a message granted has to be confirmed by an ask.
    pub fn confirm(&mut self, seeker: Seeker) {
        self.set(seeker, |standing| {
            standing.place.ask_now();
            standing.confirming = true;
        });
    }

    /// Returns true if the releases of another library's client have to be heard.
    pub fn watches_channel(&self) -> bool {
        self.watching > 0
    }

    fn next(&self, allowed: Allowed) -> Option<(Timestamp, Seeker)> {
        let mut due = self.due.iter().copied();
        match allowed {
            Allowed::Nobody => None,
            Allowed::Fair => due.find(|(_, seeker)| *seeker != Seeker::Ordinary),
            Allowed::All => due.next(),
        }
    }

    fn insert(&mut self, seeker: Seeker, form: Form, place: Place) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        let standing = Standing {
            number,
            form,
            place,
            asking: false,
            confirming: false,
            asked_in: None,
            letter: None,
            heard: false,
            hurried: false,
        };
        self.due.insert((place.ask_at(), seeker));
        self.watching += usize::from(place.watches_channel());
        self.requests.insert(seeker, standing);
        number
    }

    fn remove(&mut self, seeker: Seeker) -> Option<Standing<L>> {
        let standing = self.requests.remove(&seeker)?;
        self.due.remove(&(standing.place.ask_at(), seeker));
        self.watching -= usize::from(standing.place.watches_channel());
        Some(standing)
    }

    /// Changes a request, and with it when it asks.
    fn set(&mut self, seeker: Seeker, change: impl FnOnce(&mut Standing<L>)) {
        let Some(standing) = self.requests.get_mut(&seeker) else { return };
        self.due.remove(&(standing.place.ask_at(), seeker));
        self.watching -= usize::from(standing.place.watches_channel());
        change(standing);
        self.watching += usize::from(standing.place.watches_channel());
        if !standing.asking {
            self.due.insert((standing.place.ask_at(), seeker));
        }
    }
}

impl<L> Standing<L> {
    fn refused(&mut self, ahead: Option<u32>, held_by: HeldBy, asked_in: Option<Epoch>, now: Now) {
        self.asking = false;
        self.confirming = false;
        self.asked_in = asked_in;
        match ahead {
            Some(1..) => self.place.behind(now.at, now.poll),
            Some(0) => self.place.first(held_by, now.at, now.poll),
            // A full server may have no place for it, or the right is missing: then nothing but its own timer wakes it, and those who are
            // queued come first. It asks for its place more often. A free lock is left to one of them, for as long as that takes.
            None if held_by.remaining == Some(Duration::ZERO) => {
                self.place.behind(now.at, now.poll / 4);
            }
            None => self.place.first(held_by, now.at, now.poll / 4),
        }
    }

    /// Asks again if the lock may have become free during the ask without a letter that says so, or if somebody wants that.
    fn catch_up(&mut self, now: Now) {
        if std::mem::take(&mut self.heard) || self.has_missed(now) {
            self.place.ask_now();
        }
    }

    /// Returns true if letters about it may have been lost since it asked.
    fn has_missed(&self, now: Now) -> bool {
        now.epoch.is_some() && now.epoch != self.asked_in
    }
}
