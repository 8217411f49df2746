//! What the server does: the scripts, and messages.

use arrayvec::ArrayVec;

use super::case::{Bug, Case};
use super::state::{Holder, Id, Life, Lock, State};
use super::time::each_grant;
use super::wire::{Ask, Grant, HubRequest, Message, Reply, Request};

/// The rules, applied to one state.
pub struct Rules<'a> {
    /// The case.
    pub case: &'a Case,
    /// Which of what has happened is kept.
    pub keep: Keep,
    /// The state that they change.
    pub state: &'a mut State,
    /// How many of those who are gone this run has taken out of the queue.
    pub passed: u8,
}

/// Which of what has happened is kept for the properties.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// Tokens.
    pub tokens: bool,
    /// Those of the leases that are held.
    pub lease_tokens: bool,
    /// The order of arrival.
    pub order: bool,
    /// The turns beside Java.
    pub turns: bool,
    /// What witnesses look for.
    pub happened: bool,
}

/// Who got the lock from a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pumped {
    /// The caller's own entry is the first one alive.
    Mine,
    /// Another.
    Another,
    /// Nobody is in the queue.
    Nobody,
}

impl Rules<'_> {
    /// Runs one command of a process. A stray one's answer goes nowhere.
    pub fn run(&mut self, process: usize, request: Request, stray: bool) {
        self.passed = 0;
        let reply = match request {
            Request::Ask(ask) => Some(self.acquire(ask)),
            Request::Release(id, granted) => {
                let others = self.release_script(id, granted);
                self.repeat_release(process, id, granted, stray);
                self.case.answers.then_some(Reply::Released(id, others))
            }
            Request::Renew(id, age) if self.state.has(id) => {
                self.lengthen();
                Some(Reply::Renewed(id, age))
            }
            Request::Renew(id, _) => Some(Reply::Gone(id)),
        };
        let process = &mut self.state.processes[process];
        if let Some(reply) = reply
            && !stray
            && process.is_live()
        {
            process.replies.push(reply);
        }
    }

    /// `lock_acquire`.
    fn acquire(&mut self, ask: Ask) -> Reply {
        let id = ask.id;
        let free = self.state.lock.is_none();
        if self.state.has(id) {
            self.lengthen();
        } else if free && (self.state.queue.is_empty() || self.case.is(Bug::Barging)) {
            let raced = !self.state.processes[self.case.home(id.waiter.into())].rests;
            self.take(id, self.case.ttl, raced);
        } else if free && self.state.queue[0] == id {
            self.take_as_head(id);
        } else {
            let known = self.state.queue.contains(&id);
            if ask.enqueue {
                self.enqueue(id);
            }
            // The head was told that the lock is free, and so was Java: a newcomer does not take Java's chance away.
            let newcomer = !known && self.listeners() && !self.case.is(Bug::FirstAskPumps);
            if free && !(newcomer && self.is_left_to_another(id)) {
                self.pass_over_the_silent(id);
                match self.pump(Some(id)) {
                    Pumped::Mine => self.take_as_head(id),
                    Pumped::Nobody if self.case.is(Bug::WaitsBehindTheRest) && self.is_spent() => {}
                    Pumped::Nobody => {
                        self.state.queue.retain(|entry| *entry != id);
                        self.take(id, self.case.ttl, false);
                    }
                    Pumped::Another => {}
                }
            } else if known && self.is_javas() && !self.case.is(Bug::DeadHeadKept) {
                // Only the head hears of Java's release. A newcomer's mailbox may not be subscribed yet.
                self.is_left_to_another(id);
            }
        }
        let offset = if ask.epoch > 0 { ask.age } else { self.case.stale() };
        if self.state.has(id) {
            return Reply::Granted { ask, offset, token: 0 };
        }
        if self.state.lock.is_none() {
            let lives = |other: &Id| self.is_reached(*other);
            let for_another = self.state.queue.iter().any(|other| *other != id && lives(other));
            self.state.seen.refused_for_nobody |= !for_another;
        }
        let first = self.state.queue.first() == Some(&id);
        if self.case.forces > 0 {
            let process = &mut self.state.processes[self.case.home(id.waiter.into())];
            each_grant(process, |grant| grant.outdated |= grant.id == id);
        }
        Reply::Refused { ask, offset, first, lock: self.state.lock }
    }

    fn is_javas(&self) -> bool {
        matches!(self.state.lock, Some(Lock { holder: Holder::Java(_), .. }))
    }

    /// Whether the lock is left to a head that is not this one. If it is the head only because those before it are gone,
    /// nobody has told it yet.
    fn is_left_to_another(&mut self, id: Id) -> bool {
        if self.case.is(Bug::WaitsForTheDead) {
            return true;
        }
        let first = self.head(Some(id));
        let another = first.is_some_and(|first| first != id);
        if another && self.passed > 0 {
            self.tell_head();
        }
        another
    }

    fn enqueue(&mut self, id: Id) {
        if self.case.is(Bug::PollLosesPlace) {
            self.state.queue.retain(|entry| *entry != id);
        }
        if !self.state.queue.contains(&id) || self.case.is(Bug::EnqueuedTwice) {
            // A list that grows without end is not what that bug is about.
            if self.state.queue.iter().filter(|entry| **entry == id).count() < 2 {
                self.state.queue.push(id);
            }
        }
        if self.keep.order && !self.state.seen.arrivals.contains(&id) {
            self.state.seen.arrivals.push(id);
        }
    }

    fn lengthen(&mut self) {
        if let Some(lock) = &mut self.state.lock {
            lock.left = self.case.length(self.case.ttl);
        }
    }

    /// The prelude's `take`.
    fn take(&mut self, id: Id, ttl: i8, raced: bool) {
        self.state.lock = Some(Lock { holder: Holder::Ours(id), left: self.case.length(ttl) });
        self.note_token();
        self.note_turn(id, raced);
    }

    fn take_as_head(&mut self, id: Id) {
        self.state.queue.remove(0);
        self.take(id, self.case.ttl, false);
        self.tell_head();
    }

    /// The prelude's `pump`: the lock is free, and the first in the queue that is alive gets it.
    fn pump(&mut self, mine: Option<Id>) -> Pumped {
        match self.head(mine) {
            None => Pumped::Nobody,
            Some(id) if Some(id) == mine => Pumped::Mine,
            Some(id) => {
                self.state.queue.remove(0);
                self.take(id, self.case.short, false);
                self.tell_head();
                let home = self.case.home(id.waiter.into());
                let next = self.state.queue.first().copied();
                self.state.silent = next.filter(|next| self.case.home(next.waiter.into()) == home);
                self.write(
                    home,
                    Message::Grant(Grant {
                        id,
                        age: 0,
                        late: 0,
                        kept: 0,
                        token: 0,
                        outdated: false,
                    }),
                );
                Pumped::Another
            }
        }
    }

    /// What an ask does that finds the lock free: whose last grant by message has ended, and who has not asked since, loses all places.
    fn pass_over_the_silent(&mut self, mine: Id) {
        let home = |id: Id| self.case.home(id.waiter.into());
        let Some(&first) = self.state.queue.first() else { return };
        let is_silent = self.state.silent == Some(first);
        if !is_silent || !self.is_reached(first) || home(first) == home(mine) {
            return;
        }
        let (out, left) = self.state.queue.iter().copied().partition(|id| home(*id) == home(first));
        let out: ArrayVec<Id, 6> = out;
        self.state.queue = left;
        for id in out {
            self.state.seen.arrivals.retain(|arrived| *arrived != id);
            self.write(self.case.home(id.waiter.into()), Message::Free(id));
        }
    }

    /// The prelude's `tell_head`.
    fn tell_head(&mut self) {
        if self.case.is(Bug::NextLeftOut) {
            return;
        }
        if let Some(id) = self.head(None) {
            let message = match self.state.lock {
                Some(lock) => Message::Next(id, lock),
                None => Message::Free(id),
            };
            self.write(self.case.home(id.waiter.into()), message);
        }
    }

    /// The prelude's `head`: the first that somebody would hear of, or that is the caller's own. Takes out those before it.
    fn head(&mut self, mine: Option<Id>) -> Option<Id> {
        while !self.is_spent() {
            let &id = self.state.queue.first()?;
            let trusted = self.case.is(Bug::DeadNotPassedOver);
            if Some(id) == mine || trusted || self.is_reached(id) {
                return Some(id);
            }
            self.state.queue.remove(0);
            self.state.seen.arrivals.retain(|arrived| *arrived != id);
            self.passed += 1;
        }
        self.state.seen.cut_short |= !self.state.queue.is_empty();
        None
    }

    /// Whether somebody would hear of this entry: its mailbox is on this server, and is subscribed.
    fn is_reached(&self, id: Id) -> bool {
        let is_here = id.number >= self.state.waiters[usize::from(id.waiter)].since;
        is_here && self.state.processes[self.case.home(id.waiter.into())].is_reached()
    }

    /// Whether this run may take out no more of those who are gone.
    fn is_spent(&self) -> bool {
        self.passed >= self.case.passes
    }

    /// `lock_release`, which is also how a waiter leaves. Returns whether others had a message on the lock's channel.
    fn release_script(&mut self, id: Id, granted: bool) -> bool {
        self.state.seen.arrivals.retain(|arrived| *arrived != id);
        if self.state.has(id) {
            self.state.lock = None;
            return self.free(granted) && self.listeners();
        } else if let Some(place) = self.state.queue.iter().position(|entry| *entry == id) {
            self.state.queue.remove(place);
            if place == 0 && !self.case.is(Bug::LeaveNotTold) {
                self.tell_head();
            }
        }
        false
    }

    /// The lock has become free. Returns whether that was published.
    fn free(&mut self, granted: bool) -> bool {
        let java_waits = granted && self.listeners() && !self.case.is(Bug::PumpAlways);
        if !self.state.queue.is_empty() && java_waits {
            self.publish();
            self.tell_head();
            return true;
        }
        let nobody = self.pump(None) == Pumped::Nobody;
        if nobody {
            self.publish();
        }
        nobody
    }

    /// `force_unlock`, whoever holds the lock.
    pub fn force(&mut self) {
        self.passed = 0;
        if let Some(lock) = self.state.lock.take() {
            self.state.seen.forced = Some(lock.holder);
            self.free(false);
        }
    }

    /// Where an earlier connection may still run an ask for this lease, its release is sent again.
    fn repeat_release(&mut self, process: usize, id: Id, granted: bool, stray: bool) {
        let process = &mut self.state.processes[process];
        if !stray && process.is_live() && process.stray.iter().any(|other| other.creates(id)) {
            process.sent.push(Request::Release(id, granted));
        }
    }

    /// Runs a subscription.
    pub fn subscribe(&mut self, process: usize, request: HubRequest) {
        let process = &mut self.state.processes[process];
        match request {
            HubRequest::Mailbox => {
                process.mailbox = true;
                process.inbox.push(Message::MailboxOn);
            }
            HubRequest::Channel => {
                process.channel = true;
                process.inbox.push(Message::ChannelOn);
            }
            HubRequest::NoChannel => process.channel = false,
        }
    }

    /// Whether the lock's channel has subscribers.
    fn listeners(&self) -> bool {
        self.state.processes.iter().any(|process| process.channel || process.ghost_channel)
            || self.state.javas.iter().any(|java| java.subscribed)
    }

    /// Publishes `0` in the lock's channel.
    pub fn publish(&mut self) {
        for process in 0..self.state.processes.len() {
            if self.state.processes[process].channel {
                self.write(process, Message::Released);
            }
        }
        for java in &mut self.state.javas {
            java.woken |= java.subscribed;
        }
    }

    /// A message on a connection that is broken, or to a process that stopped, is lost.
    fn write(&mut self, process: usize, message: Message) {
        let process = &mut self.state.processes[process];
        let connected = process.mailbox || process.channel && message == Message::Released;
        if process.life == Life::Live && connected {
            process.inbox.push(message);
        }
    }
}
