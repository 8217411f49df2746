//! The rules: what the server does with a request, what a client does with an answer, a letter and time. Broken rules stand
//! beside the right ones, each named by a [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{Channel, Client, Java, Lease, Phase, Reply, Request, State};
use crate::waiting::{self, About, Ends, Letter, Requests};

/// The rules, applied to one state.
pub struct Rules<'a, const C: usize> {
    /// The case.
    pub case: &'a Case<C>,
    /// The state that they change.
    pub state: &'a mut State<C>,
}

impl<const C: usize> Rules<'_, C> {
    // What the server does: lua/permits.lua and the scripts behind it.

    /// Runs the next request of `client`, which stays if it arrives `again`.
    pub fn run(&mut self, client: usize, again: bool) {
        let requests = &mut self.state.clients[client].requests;
        let request = if again { requests[0] } else { requests.remove(0) };
        let (Request::Ask(number)
        | Request::Echo(number)
        | Request::Renew(number)
        | Request::Release(number)
        | Request::Yield(number)) = request;
        let lease = Lease { client: client as u8, number };
        let reply = match request {
            Request::Ask(_) | Request::Echo(_) => self.ask_on_server(lease),
            Request::Renew(_) => self.renew_on_server(lease),
            Request::Release(_) => return self.release_on_server(lease, false),
            Request::Yield(_) => return self.release_on_server(lease, true),
        };
        let own = &mut self.state.clients[client];
        let is_heard = match request {
            Request::Ask(_) => own.waits(),
            Request::Renew(_) => matches!(own.phase, Phase::Held(_)),
            _ => false,
        };
        if is_heard && own.asked.is_some() && own.number == number {
            own.reply = Some(reply);
        }
    }

    fn ask_on_server(&mut self, lease: Lease) -> Reply {
        if let Some(at) = self.place_out(lease) {
            self.state.out[at].1 = self.case.ttl;
            if self.case.is(Wrong::TakenTwice) {
                self.state.left -= self.weight(lease);
            }
            if self.leave(lease) {
                self.serve(None);
                self.tell_first();
            }
            return Reply::Granted;
        }
        let ended = self.sweep();
        let was_queued = self.state.queue.contains(&lease);
        let mut moved = false;
        if was_queued || !self.is_listened_to() {
            moved = self.serve(Some(lease));
        } else if self.drop_dead(lease) {
            // The moment of Redisson's client lasts, but the one who was told of it is gone.
            self.tell(Letter::Free);
        }
        let first = self.state.queue.first().copied();
        let is_next = first.is_none_or(|first| first == lease);
        if (is_next || self.case.is(Wrong::NewcomerPasses)) && self.state.left >= self.weight(lease)
        {
            self.note_passed(lease);
            self.leave(lease);
            self.give(lease);
            self.serve(None);
            if was_queued {
                self.tell_first();
            }
            self.announce(ended);
            return Reply::Granted;
        }
        let is_left = self.state.left >= self.weight(lease);
        self.state.seen.refused |= is_left && !self.is_anybody_before();
        if !was_queued {
            self.state.queue.push(lease);
        }
        let is_first = self.state.queue.first() == Some(&lease);
        if moved && !is_first {
            self.tell_first();
        }
        self.announce(ended);
        Reply::Queued(is_first, if is_first { self.ends() } else { BEHIND })
    }

    fn renew_on_server(&mut self, lease: Lease) -> Reply {
        match self.place_out(lease) {
            Some(at) => self.state.out[at].1 = self.case.ttl,
            None if self.case.is(Wrong::RenewalMakes) => self.put_out(lease),
            None => return Reply::Gone,
        }
        Reply::Ours
    }

    fn release_on_server(&mut self, lease: Lease, by_letter: bool) {
        let was_first = self.state.queue.first() == Some(&lease);
        self.leave(lease);
        let place = self.place_out(lease);
        if let Some(at) = place {
            self.state.out.remove(at);
        }
        if place.is_some() || self.case.is(Wrong::BackNotThere) {
            self.state.left += self.weight(lease);
        }
        let back = self.sweep() + u8::from(place.is_some());
        if by_letter && back > 0 && self.state.left > 0 && self.is_listened_to() {
            if !self.case.is(Wrong::OpensSilently) {
                self.tell(Letter::Free);
            }
        } else if place.is_some() || !self.case.is(Wrong::LeaverServesNobody) {
            let moved = self.serve(None);
            let hears = self.names_java() && !self.case.is(Wrong::DeafToJava);
            if moved || was_first || hears {
                self.tell_first();
            }
        }
        self.announce(back);
    }

    /// Whether anybody listens on the channel: Redisson's client, or one of ours.
    fn is_listened_to(&self) -> bool {
        let mut clients = self.state.clients.iter();
        self.state.java == Java::Waits || clients.any(|client| client.channel == Channel::On)
    }

    /// Tells those who listen on the channel that so many leases came back.
    fn announce(&mut self, back: u8) {
        if back > 0 && self.state.left > 0 {
            self.publish();
        }
    }

    fn publish(&mut self) {
        for client in &mut self.state.clients {
            client.has_heard |= client.channel == Channel::On;
        }
    }

    /// What the first in the queue is told of those who have permits.
    fn ends(&self) -> Ends {
        let in_ticks = self.state.out.iter().map(|(_, ttl)| *ttl).min();
        Ends { in_ticks, foreign: self.names_java() }
    }

    /// Whether a holder of Redisson is named to the first in the queue. Who is not known may be one.
    fn names_java(&self) -> bool {
        self.state.java == Java::Held || self.state.out.is_empty()
    }

    fn tell_first(&mut self) {
        self.tell(Letter::Next(self.ends()));
    }

    /// The prelude's `tell_head`: tells the first in the queue, and passes over those that are gone.
    fn tell(&mut self, letter: Letter<()>) {
        self.pass_over_dead();
        if let Some(lease) = self.state.queue.first().copied() {
            self.write(lease, letter);
        }
    }

    fn write(&mut self, to: Lease, letter: Letter<()>) {
        if self.waits(to) {
            self.state.clients[usize::from(to.client)].letters.push(letter);
        }
    }

    fn is_anybody_before(&self) -> bool {
        let lives = |lease: &Lease| !self.state.clients[usize::from(lease.client)].is_dead();
        self.state.queue.iter().any(lives)
    }

    fn pass_over_dead(&mut self) -> bool {
        let before = self.state.queue.len();
        while let Some(first) = self.state.queue.first()
            && self.state.clients[usize::from(first.client)].is_dead()
        {
            self.state.queue.remove(0);
        }
        self.state.queue.len() < before
    }

    /// A newcomer passes over those that are gone, and says whether there were any.
    fn drop_dead(&mut self, mine: Lease) -> bool {
        assert!(!self.state.queue.contains(&mine), "it is a newcomer");
        !self.case.is(Wrong::WaitsForTheDead) && self.pass_over_dead()
    }

    /// Takes back the permits that have ended, and returns of how many leases.
    fn sweep(&mut self) -> u8 {
        let mut count = 0;
        let early = u8::from(self.case.is(Wrong::SweptEarly));
        while let Some(at) = self.state.out.iter().position(|(_, ttl)| *ttl <= early) {
            let (lease, _) = self.state.out.remove(at);
            count += 1;
            if !self.case.is(Wrong::SweepNotCounted) {
                self.state.left += self.weight(lease);
            }
            self.state.seen.came_back |= self.state.clients[usize::from(lease.client)].is_dead();
        }
        count
    }

    /// Gives permits to the first in the queue, as long as there are enough, up to `mine`. Returns whether another one was the
    /// first before.
    fn serve(&mut self, mine: Option<Lease>) -> bool {
        let mut moved = false;
        while let Some(first) = self.state.queue.first().copied() {
            let gone = self.state.clients[usize::from(first.client)].is_dead();
            if gone {
                self.state.queue.remove(0);
                moved = true;
                continue;
            }
            if Some(first) == mine || self.state.left < self.weight(first) {
                return moved;
            }
            self.state.queue.remove(0);
            moved = true;
            self.give(first);
            self.write(first, Letter::Grant((), 0));
        }
        moved
    }

    fn waits(&self, lease: Lease) -> bool {
        let client = &self.state.clients[usize::from(lease.client)];
        client.waits() && client.number == lease.number
    }

    /// Notes whether somebody who lives waits before `lease`, which is given its permits now.
    fn note_passed(&mut self, lease: Lease) {
        let mut before = self.state.queue.iter().take_while(|other| **other != lease);
        self.state.seen.passed |= before.any(|other| self.waits(*other));
    }

    fn give(&mut self, lease: Lease) {
        self.state.left -= self.weight(lease);
        self.put_out(lease);
    }

    fn put_out(&mut self, lease: Lease) {
        self.state.out.push((lease, self.case.ttl));
        self.state.out.sort_unstable();
    }

    fn place_out(&self, lease: Lease) -> Option<usize> {
        self.state.out.iter().position(|(other, _)| *other == lease)
    }

    /// Takes an entry out of the queue, if it is there.
    fn leave(&mut self, lease: Lease) -> bool {
        let before = self.state.queue.len();
        self.state.queue.retain(|other| *other != lease);
        self.state.queue.len() < before
    }

    fn weight(&self, lease: Lease) -> i8 {
        self.case.weights[usize::from(lease.client)]
    }

    // What clients do.

    /// Asks for the first time, by itself. Each acquisition has a gate of its own.
    pub fn ask(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.number += 1;
        own.phase = Phase::First;
        own.send(Request::Ask(own.number));
    }

    /// Gives up, or gives back.
    pub fn end(&mut self, client: usize) {
        let silent = self.case.is(Wrong::SilentLeaver);
        let own = &mut self.state.clients[client];
        let waited = own.waits();
        own.machine.clear();
        let by_letter = std::mem::take(&mut own.by_letter);
        own.goes_on(Phase::Idle);
        if by_letter {
            own.requests.push(Request::Yield(own.number));
        } else if !(waited && silent) {
            own.requests.push(Request::Release(own.number));
        }
    }

    /// Its request asks now: its timer has ended, or it polls.
    pub fn wake(&mut self, client: usize) {
        self.state.clients[client].machine.wake();
        self.drive(client);
    }

    /// Sends the ask whose time has come, and listens on the channel if the machine has to hear it.
    fn drive(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        if own.machine.asks() {
            own.send(Request::Ask(own.number));
        }
        match own.channel {
            Channel::Off if own.machine.watches() => own.channel = Channel::Subscribing,
            Channel::Subscribing | Channel::On if !own.machine.watches() => own.hears_no_more(),
            _ => {}
        }
    }

    /// The server has its subscription. A release may have been missed before that.
    pub fn subscribe(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        (own.channel, own.has_heard) = (Channel::On, true);
    }

    /// Something was given back, as told on the channel.
    pub fn hear_release(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.has_heard = false;
        own.machine.released();
        self.drive(client);
    }

    /// Redisson's client gives its permit back, and tells those who listen.
    pub fn java_leaves(&mut self) {
        self.state.java = Java::Idle;
        self.state.left += 1;
        self.publish();
        self.state.seen.heard |= self.state.clients.iter().any(|client| client.has_heard);
    }

    /// Takes in an answer.
    pub fn hear(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let age = own.asked.take().expect("it waits for an answer");
        let reply = own.reply.take().expect("there is an answer");
        let until = self.case.lasts(age);
        if let Phase::Held(left) = own.phase {
            match reply {
                Reply::Ours => own.phase = Phase::Held(left.max(until)),
                _ => self.end(client),
            }
            return;
        }
        // What runs once more is not heard once more.
        for request in &mut own.requests {
            if let Request::Ask(number) = *request {
                *request = Request::Echo(number);
            }
        }
        if reply == Reply::Granted && until > 0 {
            return own.goes_on(Phase::Held(until));
        }
        let answer = match reply {
            Reply::Queued(is_first, ends) => waiting::refused(is_first, ends),
            // It came too late.
            _ => waiting::failed(),
        };
        if own.phase == Phase::First {
            own.phase = Phase::Waiting;
            own.machine.begun(answer);
            return self.drive(client);
        }
        let granted = waiting::granted(own.machine.answered(answer));
        self.take_up(client, granted);
    }

    /// Reads a letter.
    pub fn read(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let letter = own.letters.remove(0);
        let granted = waiting::granted(own.machine.letter(letter));
        self.take_up(client, granted);
    }

    /// Takes up what a letter granted. One that is late is confirmed.
    fn take_up(&mut self, client: usize, granted: Option<((), u8)>) {
        let own = &mut self.state.clients[client];
        if let Some(((), age)) = granted {
            let until = self.case.lasts(age);
            if until > 0 {
                own.machine.taken_up();
                own.goes_on(Phase::Held(until));
                own.by_letter = self.case.java_asks > 0;
                self.state.seen.by_letter = true;
                return;
            }
            own.machine.confirm();
        }
        self.drive(client);
    }

    /// Time passes. A client whose deadline has come has lost its permits, and releases what may be left of them.
    pub fn tick(&mut self) {
        for (_, ttl) in &mut self.state.out {
            *ttl = ttl.saturating_sub(1);
        }
        let limit = self.case.ttl;
        for client in 0..C {
            let own = &mut self.state.clients[client];
            own.asked.iter_mut().for_each(|age| *age = (*age + 1).min(limit));
            own.letters.iter_mut().for_each(|letter| letter.age(limit));
            own.machine.tick(limit);
            if let Phase::Held(left) = &mut own.phase {
                *left -= 1;
                if *left == 0 {
                    self.end(client);
                }
            }
        }
    }
}

/// What is told to one who is behind others.
const BEHIND: Ends = Ends { in_ticks: None, foreign: false };

impl Client {
    /// Sends an ask or a renewal.
    pub fn send(&mut self, request: Request) {
        self.requests.push(request);
        self.asked = Some(0);
    }

    /// It has what it waited for, or waits no more.
    fn goes_on(&mut self, phase: Phase) {
        self.phase = phase;
        (self.asked, self.reply) = (None, None);
        self.letters.clear();
        self.machine = Requests::default();
        self.hears_no_more();
    }

    fn hears_no_more(&mut self) {
        (self.channel, self.has_heard) = (Channel::Off, false);
    }

    /// Whether it waits for its permits.
    pub fn waits(&self) -> bool {
        matches!(self.phase, Phase::First | Phase::Waiting)
    }

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }
}
