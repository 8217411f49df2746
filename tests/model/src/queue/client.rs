//! What a client does around the [machine](Requests) that the library runs: it sends what that asks, tells it what is answered
//! and heard, and believes in deadlines.

use std::sync::Arc;

use leasehold::seam::machine::{Action, Allowed, Answer, LeaseTerms, Seeker};

use super::case::Bug;
use super::requests::{self, Requests, SOON};
use super::server::Rules;
use super::state::{Hub, Id, LastRelease, Lock, Phase};
use super::wire::{Ask, Asker, Grant, HubRequest, Message, Reply, Request};

impl Rules<'_> {
    /// A wait begins, or an attempt without waiting. Who comes first asks by itself, and others have their requests ask.
    pub fn begin(&mut self, waiter: usize, phase: Phase) {
        let home = self.case.home(waiter);
        let alone = self.waiters_of(home).all(|w| self.state.waiters[w].phase == Phase::Idle)
            && self.state.processes[home].machine.standings().next().is_none();
        if phase == Phase::Trying && !alone {
            return self.hurry(home);
        }
        let is_open = alone && self.may_ask(home);
        let process = &mut self.state.processes[home];
        process.rests &= process.sent.iter().any(|sent| matches!(sent, Request::Release(..)));
        process.arrivals += 1;
        let arrival = process.arrivals;
        let own = &mut self.state.waiters[waiter];
        (own.number, own.arrival) = (own.number + 1, arrival);
        if phase == Phase::Waiting && !is_open {
            return self.want(waiter);
        }
        own.phase = if phase == Phase::Waiting { Phase::First } else { phase };
        self.ask_by_itself(waiter);
    }

    /// A request of the waiter asks without the machine. It queues only if the mailbox is open.
    pub fn ask_by_itself(&mut self, waiter: usize) {
        let id = self.state.id(waiter);
        let first = self.state.waiters[waiter].phase == Phase::First;
        self.state.waiters[waiter].unanswered = first;
        let process = &mut self.state.processes[self.case.home(waiter)];
        let (enqueue, epoch) = (first && process.epoch > 0, process.epoch);
        process.sent.push(Request::Ask(Ask { id, enqueue, age: 0, epoch, asker: Asker::Itself }));
    }

    /// An attempt wants the answer to a request of those who wait, which come first.
    fn hurry(&mut self, process: usize) {
        self.state.processes[process].hurried = true;
        if !self.case.is(Bug::AttemptForgotten) {
            self.machine(process).hurry();
        }
        self.drive(process);
    }

    /// The waiter waits from here on. Each wait is on terms of its own, so no request serves two.
    fn want(&mut self, waiter: usize) {
        self.state.waiters[waiter].phase = Phase::Waiting;
        self.wants(waiter, Some((self.state.waiters[waiter].number.into(), TERMS)));
    }

    fn wants(&mut self, waiter: usize, form: Option<(u32, LeaseTerms)>) {
        let (home, seeker) = (self.case.home(waiter), self.seeker(waiter));
        let dropped = self.machine(home).want(seeker, form);
        self.perform(home, dropped);
        self.drive(home);
    }

    /// The waiter's request asks now, whatever its time was: its timer has ended, or it polls.
    pub fn wake(&mut self, waiter: usize) {
        let (home, seeker) = (self.case.home(waiter), self.seeker(waiter));
        requests::due(self.machine(home), seeker);
        self.drive(home);
    }

    /// The pause behind a failure, or the time in which others come first, is over.
    pub fn resume(&mut self, process: usize) {
        let own = &mut self.state.processes[process];
        if own.last_release == LastRelease::Received {
            own.last_release = LastRelease::Over;
        }
        requests::unpause(self.machine(process));
        self.drive(process);
    }

    /// Whether it may ask behind its last release.
    fn may_ask(&self, process: usize) -> bool {
        let process = &self.state.processes[process];
        match process.last_release {
            LastRelease::Over => true,
            LastRelease::Pending(_) => !process.others_listen,
            LastRelease::Received => false,
        }
    }

    fn is_held_in(&self, process: usize) -> bool {
        self.waiters_of(process).any(|waiter| self.state.waiters[waiter].holds())
    }

    /// Who may ask. Those who wait stand back if others come first.
    fn allowed(&mut self, process: usize) -> Allowed {
        if self.is_held_in(process) {
            return Allowed::All;
        }
        let own = &mut self.state.processes[process];
        if own.last_release == LastRelease::Received && own.machine.standings().next().is_some() {
            own.last_release = LastRelease::Over;
            if !self.case.is(Bug::DoesNotStandBack) {
                let now = self.now(process);
                self.machine(process).stand_back(now);
            }
        }
        if self.may_ask(process) { Allowed::All } else { Allowed::Nobody }
    }

    /// The queue is on another server, and the machine learns it.
    pub fn begin_anew(&mut self, process: usize) {
        if !self.case.is(Bug::StaysWhereItWas) {
            for action in self.machine(process).moved() {
                self.perform(process, Some(action));
            }
        }
        for waiter in self.waiters_of(process) {
            let own = &mut self.state.waiters[waiter];
            own.since = own.number + 1;
            if own.phase == Phase::Waiting && !self.case.is(Bug::StaysWhereItWas) {
                own.number += 1;
                (own.request, own.told, own.unanswered) = (0, false, false);
            }
        }
        self.drive(process);
    }

    /// Nobody waits any more: those that ask are given back, and nobody reads their answers.
    pub fn clear(&mut self, process: usize) {
        let asks: Vec<Ask> = self.state.processes[process].asks().collect();
        for ask in asks.iter().filter(|ask| ask.asker != Asker::Itself) {
            self.give_back(process, ask.id, false);
        }
        let own = &mut self.state.processes[process];
        for ask in own.sent.iter_mut().filter_map(Request::ask_mut) {
            ask.asker = Asker::Itself;
        }
        for ask in own.replies.iter_mut().filter_map(Reply::ask_mut) {
            ask.asker = Asker::Itself;
        }
        self.machine(process).clear();
        self.listen(process);
    }

    /// A release is sent. It matters to the next ask until its answer is there.
    fn send_release(&mut self, process: usize, id: Id, by_message: bool) {
        let own = &mut self.state.processes[process];
        own.sent.push(Request::Release(id, by_message));
        if self.case.answers {
            own.last_release = LastRelease::Pending(id);
        }
    }

    /// The answer to a release. Only that to the last one matters.
    fn released(&mut self, process: usize, id: Id, others: bool) {
        let own = &mut self.state.processes[process];
        if own.last_release == LastRelease::Pending(id) {
            let forgets = self.case.is(Bug::ForgetsWhoListens);
            own.others_listen = others || own.others_listen && !forgets;
            own.last_release = if others { LastRelease::Received } else { LastRelease::Over };
            self.drive(process);
        }
    }

    /// Has all ask whose time has come, and listens to the lock's channel if the machine has to hear it.
    fn drive(&mut self, process: usize) {
        let allowed = self.allowed(process);
        while let Some((seeker, number)) = self.machine(process).ask(allowed, requests::NOW) {
            self.state.processes[process].hurried = false;
            let Some(waiter) = self.waiter_of(process, seeker) else {
                unreachable!("a request for nobody asks");
            };
            if self.state.processes[process].quarantine > 0 {
                // No server is asked whose grants do not count.
                let now = self.now(process);
                let action = self.machine(process).answered(seeker, failed(), now);
                self.machine(process).forget_failures();
                self.perform(process, action);
                continue;
            }
            let spent = &mut self.state.spent;
            let own = &mut self.state.waiters[waiter];
            if self.case.timed && u64::from(own.request) == number {
                if spent.repeats == self.case.repeats {
                    self.machine(process).not_asked(seeker, requests::LATER);
                    continue;
                }
                spent.repeats += 1;
            }
            (own.request, own.unanswered) = (number as u8, true);
            let (asker, id) = (Asker::Machine(own.arrival, own.request), self.state.id(waiter));
            let process = &mut self.state.processes[process];
            let epoch = process.epoch;
            process.sent.push(Request::Ask(Ask { id, enqueue: true, age: 0, epoch, asker }));
        }
        self.listen(process);
    }

    /// Does what the machine decided.
    fn perform(&mut self, process: usize, action: Option<Action<Message>>) {
        match action {
            Some(Action::Drop { number }) => {
                let mut waiters = self.waiters_of(process);
                let of = waiters.find(|&w| u64::from(self.state.waiters[w].request) == number);
                let own = &self.state.processes[process];
                // One that asks leaves behind its answer.
                if let Some(waiter) = of
                    && !own.asks().any(|ask| ask.asker.number() == number)
                {
                    let id = self.state.id(waiter);
                    self.give_back(process, id, false);
                }
            }
            Some(Action::TakeUp { seeker, grant, .. }) => self.take_up(process, seeker, grant),
            Some(Action::Succeeded { .. }) | None => {}
        }
    }

    /// The waiter is through with its lease: given up, unlocked or lost. The release goes behind what is on its way.
    pub fn release(&mut self, waiter: usize) {
        let (home, id) = (self.case.home(waiter), self.state.id(waiter));
        if self.state.waiters[waiter].phase == Phase::Waiting {
            self.wants(waiter, None);
        } else {
            let by_message = self.state.waiters[waiter].by_message;
            let unneeded =
                self.case.is(Bug::GrantForNobodyKept) && !self.state.waiters[waiter].holds();
            if !unneeded {
                self.send_release(home, id, by_message);
            }
        }
        self.state.waiters[waiter] = self.state.waiters[waiter].idle();
    }

    /// A request that nobody wants leaves the queue, or gives back what it was granted.
    fn give_back(&mut self, process: usize, id: Id, by_message: bool) {
        if !self.case.is(Bug::GrantForNobodyKept) {
            self.state.processes[process].sent.push(Request::Release(id, by_message));
        }
    }

    /// Subscribes to the lock's channel, or unsubscribes, as the machine needs it.
    fn listen(&mut self, process: usize) {
        let process = &mut self.state.processes[process];
        process.hurried &= process.machine.standings().next().is_some();
        let wanted = process.machine.watches_channel() && !self.case.is(Bug::HeadDoesNotListen);
        if wanted != process.listening && !process.follows {
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
        match reply {
            Reply::Granted { ask, .. } | Reply::Refused { ask, .. } => {
                if let Reply::Refused { offset, .. } = reply {
                    self.sample(process, ask, offset);
                    self.state.waiters[waiter].unanswered &= !self.state.wants(ask.id);
                }
                match ask.asker {
                    Asker::Itself if self.state.wants(ask.id) => self.hear_first(waiter, reply),
                    Asker::Itself => {}
                    Asker::Machine(..) => self.hear_answer(process, ask, reply),
                }
            }
            Reply::Renewed(id, age)
                if self.state.wants(id) && self.state.waiters[waiter].phase == Phase::Renewing =>
            {
                let left = self.case.ttl - self.case.drift - age;
                let own = &mut self.state.waiters[waiter];
                own.phase = Phase::Held;
                own.left = own.left.max(left);
                self.state.seen.happened.renewed |= self.keep.happened;
            }
            Reply::Gone(id)
                if self.state.wants(id) && self.state.waiters[waiter].phase == Phase::Renewing =>
            {
                self.release(waiter);
            }
            Reply::Renewed(..) | Reply::Gone(_) => {}
            Reply::Released(id, others) => self.released(process, id, others),
        }
    }

    /// The answer to one who asked by itself.
    fn hear_first(&mut self, waiter: usize, reply: Reply) {
        let home = self.case.home(waiter);
        match reply {
            Reply::Granted { ask, token, .. } => match self.asked_for(home, ask) {
                Some(left) => self.hold(waiter, left, token),
                None if ask.enqueue => self.begun(waiter, failed()),
                None => self.fail_first(waiter),
            },
            Reply::Refused { .. } if self.state.waiters[waiter].phase == Phase::Trying => {
                self.state.waiters[waiter] = self.state.waiters[waiter].idle();
            }
            // It stands in the queue of another server than that which has it now.
            Reply::Refused { ask, .. } if ask.id.number < self.state.waiters[waiter].since => {
                self.fail_first(waiter);
            }
            Reply::Refused { ask, first, lock, .. } if ask.enqueue => {
                self.open_mailbox(home);
                self.begun(waiter, refused(ask, first, lock));
            }
            _ => self.want(waiter),
        }
    }

    /// The machine takes over the request of one who asked by itself.
    fn begun(&mut self, waiter: usize, answer: Answer) {
        let (home, seeker, now) =
            (self.case.home(waiter), self.seeker(waiter), self.now(self.case.home(waiter)));
        let form = (self.state.waiters[waiter].number.into(), TERMS);
        let begun = self.machine(home).begun(seeker, form, answer, now);
        let Some((number, dropped)) = begun else {
            return self.fail_first(waiter);
        };
        let own = &mut self.state.waiters[waiter];
        (own.phase, own.request) = (Phase::Waiting, number as u8);
        self.perform(home, dropped);
        self.drive(home);
    }

    /// The request of one who asked by itself is given back, and another one waits for it; or nothing waits.
    fn fail_first(&mut self, waiter: usize) {
        let (home, id) = (self.case.home(waiter), self.state.id(waiter));
        self.give_back(home, id, false);
        let own = &mut self.state.waiters[waiter];
        if own.phase == Phase::Trying {
            *own = own.idle();
            return;
        }
        (own.number, own.unanswered) = (own.number + 1, false);
        self.want(waiter);
    }

    /// The answer to a request that the machine had ask.
    fn hear_answer(&mut self, process: usize, ask: Ask, reply: Reply) {
        let answer = match reply {
            Reply::Refused { first, lock, .. } => {
                self.open_mailbox(process);
                refused(ask, first, lock)
            }
            _ if self.asked_for(process, ask).is_some() => Answer::Granted,
            _ => failed(),
        };
        let held = match reply {
            Reply::Granted { token, .. } => self.asked_for(process, ask).map(|left| (left, token)),
            _ => None,
        };
        self.answered(process, ask, answer, held);
    }

    fn answered(&mut self, process: usize, ask: Ask, answer: Answer, held: Option<(i8, u8)>) {
        let (seeker, number) = (self.asker(process, ask), ask.asker.number());
        if !self.state.processes[process].machine.is_wanted(seeker, number) {
            return self.give_back(process, ask.id, false);
        }
        let now = self.now(process);
        let action = self.machine(process).answered(seeker, answer, now);
        self.machine(process).forget_failures();
        if let Some((left, token)) = held {
            let waiter = usize::from(ask.id.waiter);
            let own = self.state.waiters[waiter];
            let of_message = own.told && self.case.is(Bug::TokenOfMessage);
            self.state.seen.happened.confirmed |= own.told && self.keep.happened;
            let is_of_message = own.told && own.token == token;
            self.state.waiters[waiter].by_message =
                is_of_message && !self.case.is(Bug::ConfirmedIsNoMessage);
            self.hold(waiter, left, if of_message { own.token } else { token });
        }
        self.perform(process, action);
        self.drive(process);
    }

    /// What was on its way is lost with the connection.
    pub fn fail(&mut self, process: usize, asks: &[Ask]) {
        for ask in asks {
            let waiter = usize::from(ask.id.waiter);
            match ask.asker {
                Asker::Machine(..) => self.answered(process, *ask, failed(), None),
                Asker::Itself if !self.state.wants(ask.id) => {}
                Asker::Itself if self.state.waiters[waiter].phase == Phase::Trying => {
                    self.ask_by_itself(waiter);
                }
                Asker::Itself if ask.enqueue => self.begun(waiter, failed()),
                Asker::Itself => self.fail_first(waiter),
            }
        }
        for waiter in self.waiters_of(process) {
            let own = &mut self.state.waiters[waiter];
            if own.phase == Phase::Renewing {
                own.phase = Phase::Held;
            }
        }
    }

    fn open_mailbox(&mut self, process: usize) {
        let process = &mut self.state.processes[process];
        if process.hub == Hub::Off && !process.follows {
            process.hub = Hub::Subscribing;
            process.hub_sent.push(HubRequest::Mailbox);
        }
    }

    /// The process hears a message.
    pub fn receive(&mut self, process: usize) {
        let Some(next) = self.state.next_message(process) else { return };
        let message = self.state.processes[process].inbox.remove(next);
        match message {
            Message::MailboxOn => {
                let own = &mut self.state.processes[process];
                if own.hub == Hub::Subscribing {
                    own.hub = Hub::On;
                    own.subscriptions += 1;
                    own.epoch = own.subscriptions;
                }
                if !self.case.is(Bug::ResetNotAsked) {
                    let now = self.now(process);
                    self.machine(process).subscribed(now);
                }
            }
            Message::ChannelOn | Message::Released => self.machine(process).released(),
            Message::Next(id, _) | Message::Free(id) => self.deliver(process, id, message),
            Message::Grant(Grant { id, .. }) => self.deliver(process, id, message),
        }
        self.drive(process);
    }

    /// Gives the machine a letter about a request of this id, if there is one.
    fn deliver(&mut self, process: usize, id: Id, message: Message) {
        let waiter = usize::from(id.waiter);
        let own = self.state.waiters[waiter];
        let about = own.phase == Phase::Waiting
            && (own.number == id.number || self.case.is(Bug::OldIdAccepted));
        let (seeker, number) = (self.seeker(waiter), own.request.into());
        if about && self.state.processes[process].machine.is_wanted(seeker, number) {
            let now = self.now(process);
            let action = self.machine(process).letter(seeker, message, now);
            self.perform(process, action);
        }
    }

    /// The machine of a process.
    pub fn machine(&mut self, process: usize) -> &mut Requests {
        Arc::make_mut(&mut self.state.processes[process].machine)
    }

    /// For whom the machine has a request of this waiter. In a process of one waiter that is an ordinary one.
    fn seeker(&self, waiter: usize) -> Seeker {
        self.seeker_at(self.case.home(waiter), self.state.waiters[waiter].arrival)
    }

    /// For whom a request of the machine asks, or asked.
    fn asker(&self, process: usize, ask: Ask) -> Seeker {
        match ask.asker {
            Asker::Machine(arrival, _) => self.seeker_at(process, arrival),
            Asker::Itself => unreachable!("it asks by itself"),
        }
    }

    fn seeker_at(&self, process: usize, arrival: u8) -> Seeker {
        match self.waiters_of(process).count() {
            1 => Seeker::Ordinary,
            _ => Seeker::Fair(arrival.into()),
        }
    }

    /// For which waiter the machine has a request of this seeker.
    pub fn waiter_of(&self, process: usize, seeker: Seeker) -> Option<usize> {
        let waits = |waiter: &usize| self.state.waiters[*waiter].phase == Phase::Waiting;
        self.waiters_of(process).filter(waits).find(|&waiter| self.seeker(waiter) == seeker)
    }
}

fn refused(ask: Ask, first: bool, lock: Option<Lock>) -> Answer {
    Answer::Refused {
        ahead: Some(u32::from(!first)),
        held_by: requests::held_by(lock),
        asked_in: requests::epoch(ask.epoch),
    }
}

fn failed() -> Answer {
    Answer::Failed { pause: SOON }
}

const TERMS: LeaseTerms = LeaseTerms::Watched(std::time::Duration::ZERO);
