//! What a waiter does.

use super::case::{Bug, Case};
use super::server::Rules;
use super::state::{Holder, Hub, Id, Lock, Phase, State, Timer};
use super::wire::{Ask, HubRequest, Message, Reply, Request};

impl Rules<'_> {
    /// A wait begins, or an attempt without waiting.
    pub fn begin(&mut self, waiter: usize, phase: Phase) {
        let process = &mut self.state.processes[self.case.home(waiter)];
        process.rests &= process.sent.iter().any(|sent| matches!(sent, Request::Release(..)));
        let own = &mut self.state.waiters[waiter];
        own.number += 1;
        own.phase = phase;
        self.ask(waiter);
    }

    /// Sends an ask for the waiter's newest lease.
    fn ask(&mut self, waiter: usize) {
        let id = self.state.id(waiter);
        let phase = self.state.waiters[waiter].phase;
        let process = &mut self.state.processes[self.case.home(waiter)];
        let enqueue = phase != Phase::Trying;
        let fresh = process.hub == Hub::On;
        process.sent.push(Request::Ask(Ask { id, enqueue, age: 0, fresh }));
    }

    /// A waiter asks again, at once or when the quarantine is over.
    pub fn ask_again(&mut self, waiter: usize) {
        let quarantined = self.state.processes[self.case.home(waiter)].quarantine > 0;
        let spent = &mut self.state.spent;
        let own = &mut self.state.waiters[waiter];
        own.again = false;
        if self.case.timed && spent.repeats == self.case.repeats {
            (own.phase, own.timer) = (Phase::Waiting, Timer::None);
        } else if quarantined {
            (own.phase, own.timer) = (Phase::Waiting, Timer::Now);
        } else {
            spent.repeats += u8::from(self.case.timed);
            (own.phase, own.timer) = (Phase::Asking, Timer::None);
            self.ask(waiter);
        }
    }

    /// What was on its way is lost with the connection: a waiter that still wants it asks again.
    pub fn resend(&mut self, waiter: usize) {
        match self.state.waiters[waiter].phase {
            Phase::Asking => self.ask_again(waiter),
            Phase::Trying => self.ask(waiter),
            Phase::Renewing => self.state.waiters[waiter].phase = Phase::Held,
            Phase::Idle | Phase::Waiting | Phase::Held => {}
        }
    }

    /// The waiter is through with its lease: given up, unlocked or lost. The release goes behind what is on its way.
    pub fn release(&mut self, waiter: usize) {
        let id = self.state.id(waiter);
        let own = &mut self.state.waiters[waiter];
        let unneeded = self.case.is(Bug::GrantForNobodyKept) && !own.holds();
        let granted = own.by_grant;
        *own = own.idle();
        let home = self.case.home(waiter);
        if !unneeded {
            self.state.processes[home].sent.push(Request::Release(id, granted));
        }
        self.listen(home);
    }

    /// Subscribes to the lock's channel, or unsubscribes, as the waiters need it.
    fn listen(&mut self, process: usize) {
        let wanted = !self.case.is(Bug::HeadDoesNotListen)
            && (0..self.state.waiters.len())
                .any(|w| self.case.home(w) == process && self.state.waiters[w].listens);
        let process = &mut self.state.processes[process];
        if wanted != process.listening {
            process.listening = wanted;
            if matches!(process.hub, Hub::Subscribing | Hub::On) {
                let request = if wanted { HubRequest::Channel } else { HubRequest::NoChannel };
                process.hub_sent.push(request);
            }
        }
    }

    /// The process hears an answer.
    pub fn hear(&mut self, process: usize) {
        let reply = self.state.processes[process].replies.remove(0);
        let waiter = usize::from(reply.id().waiter);
        if let Reply::Granted { ask, offset, .. } | Reply::Refused { ask, offset, .. } = reply {
            self.sample(process, ask, offset);
        }
        if !self.state.wants(reply.id()) {
            return;
        }
        let own = self.state.waiters[waiter];
        match reply {
            Reply::Granted { ask, token, .. } => self.hear_grant(waiter, ask, token),
            Reply::Refused { first, lock, .. } => match own.phase {
                Phase::Trying => self.state.waiters[waiter] = own.idle(),
                Phase::Asking => self.hear_refusal(waiter, first, lock),
                _ => {}
            },
            Reply::Renewed(_, age) if own.phase == Phase::Renewing => {
                let left = self.case.ttl - self.case.drift - age;
                let own = &mut self.state.waiters[waiter];
                own.phase = Phase::Held;
                own.left = own.left.max(left);
                self.state.seen.happened.renewed |= self.keep.happened;
            }
            Reply::Gone(_) if own.phase == Phase::Renewing => self.release(waiter),
            Reply::Renewed(..) | Reply::Gone(_) => {}
        }
    }

    fn sample(&mut self, process: usize, ask: Ask, offset: i8) {
        let process = &mut self.state.processes[process];
        if ask.fresh || self.case.is(Bug::StaleSample) {
            process.sample = (offset < self.case.stale()).then_some(offset);
            process.sample_is_new = self.case.slack == 0 || (ask.age, offset) == (0, 0);
        }
    }

    fn hear_grant(&mut self, waiter: usize, ask: Ask, token: u8) {
        let left = self.case.ttl - self.case.drift - ask.age;
        let quarantined = self.state.processes[self.case.home(waiter)].quarantine > 0;
        let own = &mut self.state.waiters[waiter];
        if own.holds() {
            own.left = own.left.max(left);
        } else if left <= 0 || quarantined {
            self.release(waiter);
        } else {
            let of_message = own.by_grant && self.case.is(Bug::TokenOfMessage);
            let token = if of_message { own.token } else { token };
            let confirmed = own.by_grant;
            self.state.seen.happened.confirmed |= confirmed && self.keep.happened;
            self.hold(waiter, left, token);
        }
    }

    fn hear_refusal(&mut self, waiter: usize, first: bool, lock: Option<Lock>) {
        let home = self.case.home(waiter);
        let process = &mut self.state.processes[home];
        if process.hub == Hub::Off {
            process.hub = Hub::Subscribing;
            process.hub_sent.push(HubRequest::Mailbox);
        }
        let own = &mut self.state.waiters[waiter];
        if own.again {
            // In a moment: if the message was `free`, Java has its chance first.
            (own.phase, own.head, own.timer, own.again) =
                (Phase::Waiting, first, Timer::Now, false);
            return;
        }
        own.by_grant = false;
        own.phase = Phase::Waiting;
        own.head = first;
        own.timer = Timer::None;
        own.listens = false;
        if first {
            self.watch(waiter, lock);
        }
        self.listen(home);
    }

    /// The head waits for the end of the holder's lease, and for a message if the holder is not one of ours.
    fn watch(&mut self, waiter: usize, lock: Option<Lock>) {
        let own = &mut self.state.waiters[waiter];
        own.head = true;
        own.timer = match lock {
            Some(_) if self.case.timed => Timer::None,
            Some(Lock { holder, left: 1.. }) => Timer::End(holder),
            _ => Timer::Now,
        };
        own.listens = lock.is_some_and(|lock| matches!(lock.holder, Holder::Java(_)));
        self.listen(self.case.home(waiter));
    }

    /// The process hears a message.
    pub fn receive(&mut self, process: usize) {
        let message = self.state.processes[process].inbox.remove(0);
        match message {
            Message::MailboxOn => {
                let hub = &mut self.state.processes[process].hub;
                if *hub == Hub::Subscribing {
                    *hub = Hub::On;
                }
                if !self.case.is(Bug::ResetNotAsked) {
                    self.wake(process, false);
                }
            }
            Message::ChannelOn | Message::Released => self.wake(process, true),
            Message::Next(id, lock) if self.state.wants(id) => {
                self.hear_place(id.waiter.into(), Some(lock));
            }
            Message::Free(id) if self.state.wants(id) => self.hear_place(id.waiter.into(), None),
            Message::Grant { id, age, token, .. } => {
                if self.state.wants(id) || self.is_taken_for_the_present_wait(id) {
                    self.hear_message(id.waiter.into(), age, token);
                }
            }
            Message::Next(..) | Message::Free(_) => {}
        }
    }

    fn is_taken_for_the_present_wait(&self, id: Id) -> bool {
        let phase = self.state.waiters[usize::from(id.waiter)].phase;
        self.case.is(Bug::OldIdAccepted) && matches!(phase, Phase::Asking | Phase::Waiting)
    }

    /// The process's waiters ask again: all of them, or those that listen to the lock's channel.
    fn wake(&mut self, process: usize, listeners: bool) {
        for waiter in 0..self.state.waiters.len() {
            let own = &mut self.state.waiters[waiter];
            if self.case.home(waiter) != process || listeners && !own.listens {
                continue;
            }
            match own.phase {
                Phase::Waiting => self.ask_again(waiter),
                Phase::Asking => own.again = true,
                _ => {}
            }
        }
    }

    fn hear_place(&mut self, waiter: usize, lock: Option<Lock>) {
        match self.state.waiters[waiter].phase {
            Phase::Waiting => self.watch(waiter, lock),
            Phase::Asking => self.state.waiters[waiter].again = true,
            _ => {}
        }
    }

    /// A grant by message: held if its deadline can be told and is far enough, else confirmed first.
    fn hear_message(&mut self, waiter: usize, age: i8, token: u8) {
        let home = self.case.home(waiter);
        let quarantined = self.state.processes[home].quarantine > 0;
        let own = &mut self.state.waiters[waiter];
        if own.holds() {
            own.by_grant = true;
            return;
        }
        if !matches!(own.phase, Phase::Waiting | Phase::Asking) {
            return;
        }
        (own.by_grant, own.token) = (true, token);
        if quarantined {
            self.state.seen.happened.given_back |= self.keep.happened;
            return self.release(waiter);
        }
        match self.deadline(home, age) {
            Some(left) => {
                self.state.seen.happened.granted |= self.keep.happened;
                self.hold(waiter, left, token);
            }
            // The answer to an ask under way may confirm it, if that ran behind the grant.
            None if self.state.waiters[waiter].phase == Phase::Asking => {
                self.state.waiters[waiter].again = true;
            }
            None => self.ask_again(waiter),
        }
    }

    /// How long a grant by message is good, by the newest sample; `None` if it has to be confirmed.
    fn deadline(&self, process: usize, age: i8) -> Option<i8> {
        let process = &self.state.processes[process];
        let granted =
            if self.case.is(Bug::FullLengthBelieved) { self.case.ttl } else { self.case.short };
        if self.case.is(Bug::DeadlineFromReceipt) {
            return Some(granted - self.case.drift);
        }
        let slack = if process.sample_is_new { 0 } else { self.case.slack };
        // How long ago the grant was at most, by the client's clock.
        let ago = process.sample? + age + slack;
        let left = granted - self.case.drift - ago.max(0);
        let stepped = process.sample? + age < 0 && !self.case.is(Bug::StepNotSeen);
        (!stepped && 2 * left >= self.case.short).then_some(left)
    }

    fn hold(&mut self, waiter: usize, left: i8, token: u8) {
        let own = &mut self.state.waiters[waiter];
        (own.phase, own.left, own.token) = (Phase::Held, left, 0);
        (own.head, own.timer, own.again, own.listens) = (false, Timer::None, false, false);
        self.listen(self.case.home(waiter));
        self.note_hold(token);
    }
}

/// Whether the next message is for a waiter that has an ask under way: it is read behind the answer.
pub fn must_wait(case: &Case, state: &State, process: usize) -> bool {
    if case.eager {
        return false;
    }
    let message = state.processes[process].inbox.first();
    message.and_then(Message::id).is_some_and(|id| {
        state.wants(id) && state.waiters[usize::from(id.waiter)].phase == Phase::Asking
    })
}
