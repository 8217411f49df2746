//! Until when a client believes that it holds the lock.

use leasehold::seam::machine::Seeker;

use super::case::Bug;
use super::server::Rules;
use super::state::Phase;
use super::wire::{Ask, Grant};

impl Rules<'_> {
    /// A grant by message: held if its deadline can be told and is far enough, else confirmed first.
    pub fn take_up(&mut self, process: usize, seeker: Seeker, grant: Grant) {
        let Some(waiter) = self.waiter_of(process, seeker) else {
            unreachable!("a request for nobody is granted the lock");
        };
        let quarantined = self.state.processes[process].quarantine > 0;
        let unanswered =
            self.state.waiters[waiter].unanswered && !self.case.is(Bug::BelievedUnanswered);
        let confirms = quarantined || self.case.confirms || unanswered || grant.outdated;
        let left = self.deadline(process, grant).filter(|_| !confirms);
        self.state.seen.happened.doubted |= quarantined && self.keep.happened;
        let Some(left) = left else {
            let own = &mut self.state.waiters[waiter];
            (own.told, own.token) = (true, grant.token);
            return self.machine(process).confirm(seeker);
        };
        self.machine(process).taken_up(seeker);
        self.state.seen.happened.granted |= self.keep.happened;
        self.state.waiters[waiter].by_message = true;
        self.hold(waiter, left, grant.token);
    }

    /// What an answer says of the server's clock.
    pub fn sample(&mut self, process: usize, ask: Ask, offset: i8) {
        let process = &mut self.state.processes[process];
        if ask.epoch > 0 {
            process.sample = (offset < self.case.stale()).then_some(offset);
            process.sample_is_new = self.case.slack == 0 || (ask.age, offset) == (0, 0);
        }
    }

    /// How long a grant is good that was asked for; `None` if it does not count.
    pub fn asked_for(&self, process: usize, ask: Ask) -> Option<i8> {
        let left = self.case.ttl - self.case.drift - ask.age;
        (left > 0 && self.state.processes[process].quarantine == 0).then_some(left)
    }

    /// How long a grant by message is good, by the newest sample; `None` if it has to be confirmed.
    fn deadline(&self, process: usize, grant: Grant) -> Option<i8> {
        let process = &self.state.processes[process];
        let lasts =
            if self.case.is(Bug::FullLengthBelieved) { self.case.ttl } else { self.case.short };
        if self.case.is(Bug::DeadlineFromReceipt) {
            return Some(lasts - self.case.drift);
        }
        let slack = if process.sample_is_new { 0 } else { self.case.slack };
        // How long ago the grant was at most, by the client's clock.
        let ago = process.sample? + grant.age + slack;
        let left = lasts - self.case.drift - ago.max(0);
        // It arrived before it was sent.
        let stepped = process.sample? + grant.age < grant.kept && !self.case.is(Bug::StepNotSeen);
        (!stepped && 2 * left >= self.case.short).then_some(left)
    }

    /// The waiter holds the lock.
    pub fn hold(&mut self, waiter: usize, left: i8, token: u8) {
        let own = &mut self.state.waiters[waiter];
        let kept = if self.keep.lease_tokens { token } else { 0 };
        (own.phase, own.left, own.token) = (Phase::Held, left, kept);
        (own.told, own.unanswered, own.request) = (false, false, 0);
        self.note_hold(token);
    }
}
