//! What the servers do with requests, and those who wait with answers.

use super::case::{Case, Kind, Wrong};
use super::state::{Server, Slot, State, Step, Value};

/// The rules, applied to a state.
pub struct Rules<'a> {
    /// What the run is about.
    pub case: &'a Case,
    /// What there is.
    pub state: &'a mut State,
}

impl Rules<'_> {
    /// A change runs: a count, or giving the signal.
    pub fn change(&mut self) {
        self.state.sent -= 1;
        let server = self.state.runs_on();
        let before = self.state.value();
        let opens = self.case.kind == Kind::Latch && before.is_none_or(|value| value.number <= 1);
        let deletes = self.case.full && self.case.is(Wrong::DeletesFirst);
        if deletes && !opens && before.is_some() && self.state.slot == Slot::Open {
            // Nothing is rolled back, and the server that gives the slot away refuses to make it anew.
            if server == Server::First {
                self.state.key = None;
                return;
            }
        }
        match self.case.kind {
            Kind::Latch => {
                let Some(value) = before else { return };
                self.state.past.ran += 1;
                let left = value.number - 1;
                let value = Value { number: left, ..value };
                self.state.key = (left > 0).then_some((server, value));
                if left == 0 {
                    self.publish(server);
                }
            }
            Kind::Signal => {
                self.state.now += 1;
                self.state.past.ran += 1;
                let next = before.map_or(1, |value| value.number + 1);
                let without_time = self.case.is(Wrong::NumbersWithoutTime);
                let number = if without_time { next } else { next.max(self.state.now) };
                self.state.past.went_back |= number <= self.state.past.highest;
                self.state.past.highest = self.state.past.highest.max(number);
                let value = Value { number, given: self.state.past.ran };
                self.state.key = Some((server, value));
                self.publish(server);
            }
        }
    }

    /// Tells those who listen to this server.
    fn publish(&mut self, server: Server) {
        for waiter in &mut self.state.waiters {
            waiter.mail |= waiter.listens == Some(server);
        }
    }

    /// The server answers one who asks.
    pub fn answer(&mut self, number: usize) {
        let (server, value) = (self.state.runs_on(), self.state.value());
        self.state.waiters[number].step = Step::Answered(server, value);
    }

    /// One who waits takes in the answer to what it asked.
    pub fn hear(&mut self, number: usize) {
        let Step::Answered(server, value) = self.state.waiters[number].step else { return };
        let saw = self.state.waiters[number].saw;
        match (self.case.kind, value) {
            (Kind::Latch, None) => {
                let is_lost = saw.is_some_and(|(before, _)| {
                    (before != server && !self.case.is(Wrong::GoneIsOpen))
                        || (self.state.end_is_near && !self.case.is(Wrong::EndedIsOpen))
                });
                // Who never saw it shut cannot know that it was lost.
                let was_lost = self.state.past.failed_over || self.state.past.ended;
                let is_early =
                    self.state.past.ran < self.case.changes && (saw.is_some() || !was_lost);
                self.state.past.opened_early |= is_early && !is_lost;
                self.leave(number, if is_lost { Step::ToldLost } else { Step::WentOn });
                return;
            }
            (Kind::Latch, Some(value)) => {
                self.state.waiters[number].saw = Some((server, value));
            }
            (Kind::Signal, value) => {
                let value = value.unwrap_or(Value { number: 0, given: 0 });
                if let Some((_, before)) = saw {
                    let is_back = value.number < before.number && !self.state.past.failed_over;
                    self.state.past.shown_back |= is_back;
                }
                if saw.is_none_or(|(_, before)| before.number != value.number) {
                    // It goes on with this one, and waits for the next.
                    self.state.waiters[number].saw = Some((server, value));
                    self.state.waiters[number].unheard = false;
                    self.state.waiters[number].step = Step::Asks;
                    return;
                }
            }
        }
        self.wait(number);
    }

    /// One that has seen nothing new waits.
    fn wait(&mut self, number: usize) {
        let listened_to = self.state.listened_to();
        let waiter = &mut self.state.waiters[number];
        waiter.timer = !self.case.is(Wrong::NoTimer);
        waiter.step = Step::Waits;
        if waiter
            .listens
            .is_none_or(|server| server != listened_to && !self.case.is(Wrong::StaysBehind))
        {
            self.subscribe_anew(number);
        }
    }

    /// One that waits subscribes where the name is. What was said elsewhere it does not hear.
    pub fn subscribe_anew(&mut self, number: usize) {
        let waiter = &mut self.state.waiters[number];
        waiter.step = Step::Subscribes;
        (waiter.listens, waiter.mail, waiter.woken) = (None, false, false);
    }

    /// The server confirms that it listens: what was said before is read then.
    pub fn subscribe(&mut self, number: usize) {
        let listened_to = self.state.listened_to();
        let waiter = &mut self.state.waiters[number];
        waiter.step = Step::Waits;
        waiter.listens = Some(listened_to);
        waiter.woken = !self.case.is(Wrong::ListensUnread);
    }

    /// One that has gone on leaves nothing behind.
    fn leave(&mut self, number: usize, step: Step) {
        let waiter = &mut self.state.waiters[number];
        waiter.step = step;
        (waiter.listens, waiter.mail, waiter.woken, waiter.timer) = (None, false, false, false);
    }

    /// The replica takes over with what it has. Connections to the master end.
    pub fn fail_over(&mut self) {
        self.state.key = self.state.copy.map(|value| (Server::Second, value));
        self.state.slot = Slot::On(Server::Second);
        self.state.past.failed_over = true;
        for number in 0..self.state.waiters.len() {
            let waiter = &mut self.state.waiters[number];
            (waiter.listens, waiter.mail) = (None, false);
            match waiter.step {
                Step::Waits | Step::Subscribes => self.subscribe_anew(number),
                // An answer that was sent is heard, or is not.
                Step::Asks | Step::Answered(..) | Step::WentOn | Step::ToldLost => {}
            }
        }
    }
}
