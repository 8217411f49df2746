//! What a model sees of a machine besides what it does, and how it gives other names to what is in one.

use std::time::Duration;

use super::{Machine, Seeker};
use crate::clock::Timestamp;

impl<L> Machine<L> {
    /// Returns for whom there are requests, and when each will ask; `None`: it asks now.
    pub fn standings(&self) -> impl Iterator<Item = (Seeker, Option<Timestamp>)> {
        self.requests.iter().map(|(seeker, standing)| {
            let waits = !standing.asking;
            (*seeker, waits.then(|| standing.place.ask_at()))
        })
    }

    /// Returns the letters that are not read before an answer.
    pub fn letters(&self) -> impl Iterator<Item = &L> {
        self.requests.values().filter_map(|standing| standing.letter.as_ref())
    }

    /// Nothing is asked before.
    pub fn pauses_until(&self) -> Timestamp {
        self.pause_until
    }

    /// Forgets how many asks in a row have failed, but not whether one has: nothing rests on the number in a machine, but the length
    /// of pauses outside of it.
    pub fn forget_failures(&mut self) {
        self.failures = self.failures.min(1);
    }

    /// Replaces all times, those of requests and that of a pause, and what is in the letters. A machine only compares times,
    /// each of which it was given.
    pub fn rename(
        &mut self,
        time: impl Fn(Option<Seeker>, Timestamp) -> Timestamp,
        letter: impl Fn(&mut L),
    ) {
        for (seeker, standing) in &mut self.requests {
            let at = time(Some(*seeker), standing.place.ask_at());
            standing.place.failed(at, Duration::ZERO);
            standing.letter.iter_mut().for_each(&letter);
        }
        let due = std::mem::take(&mut self.due).into_iter();
        self.due = due.map(|(at, seeker)| (time(Some(seeker), at), seeker)).collect();
        self.pause_until = time(None, self.pause_until);
    }
}
