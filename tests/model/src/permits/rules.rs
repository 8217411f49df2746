//! The rules: what the server does with a request, what a client does with an answer, a letter and time. Broken rules stand
//! beside the right ones, each named by a [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{Client, Lease, Phase, Reply, Request, State};

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
        let (Request::Ask(number) | Request::Renew(number) | Request::Release(number)) = request;
        let lease = Lease { client: client as u8, number };
        let reply = match request {
            Request::Ask(_) => self.ask_on_server(lease),
            Request::Renew(_) => self.renew_on_server(lease),
            Request::Release(_) => return self.release_on_server(lease),
        };
        let own = &mut self.state.clients[client];
        if own.asked.is_some() && own.number == number {
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
            }
            return Reply::Granted;
        }
        self.sweep();
        self.serve(Some(lease));
        let first = self.state.queue.first().copied();
        let is_next = first.is_none_or(|first| first == lease);
        if (is_next || self.case.is(Wrong::NewcomerPasses)) && self.state.left >= self.weight(lease)
        {
            self.note_passed(lease);
            self.leave(lease);
            self.give(lease);
            self.serve(None);
            return Reply::Granted;
        }
        if !self.state.queue.contains(&lease) {
            self.state.queue.push(lease);
        }
        Reply::Queued
    }

    fn renew_on_server(&mut self, lease: Lease) -> Reply {
        match self.place_out(lease) {
            Some(at) => self.state.out[at].1 = self.case.ttl,
            None if self.case.is(Wrong::RenewalMakes) => self.put_out(lease),
            None => return Reply::Gone,
        }
        Reply::Ours
    }

    fn release_on_server(&mut self, lease: Lease) {
        self.leave(lease);
        let place = self.place_out(lease);
        if let Some(at) = place {
            self.state.out.remove(at);
        }
        if place.is_some() || self.case.is(Wrong::BackNotThere) {
            self.state.left += self.weight(lease);
        }
        self.sweep();
        if place.is_some() || !self.case.is(Wrong::LeaverServesNobody) {
            self.serve(None);
        }
    }

    /// Takes back the permits that have ended.
    fn sweep(&mut self) {
        let early = u8::from(self.case.is(Wrong::SweptEarly));
        while let Some(at) = self.state.out.iter().position(|(_, ttl)| *ttl <= early) {
            let (lease, _) = self.state.out.remove(at);
            if !self.case.is(Wrong::SweepNotCounted) {
                self.state.left += self.weight(lease);
            }
            self.state.seen.came_back |= self.state.clients[usize::from(lease.client)].is_dead();
        }
    }

    /// Gives permits to the first in the queue, as long as there are enough, up to `mine`.
    fn serve(&mut self, mine: Option<Lease>) {
        while let Some(first) = self.state.queue.first().copied() {
            let gone = self.state.clients[usize::from(first.client)].is_dead();
            if gone {
                self.state.queue.remove(0);
                continue;
            }
            if Some(first) == mine || self.state.left < self.weight(first) {
                return;
            }
            self.state.queue.remove(0);
            self.give(first);
            self.state.clients[usize::from(first.client)].letter = Some((first.number, 0));
        }
    }

    /// Notes whether somebody who lives waits before `lease`, which is given its permits now.
    fn note_passed(&mut self, lease: Lease) {
        let waits = |other: &Lease| {
            let client = &self.state.clients[usize::from(other.client)];
            client.phase == Phase::Waiting && client.number == other.number
        };
        let mut before = self.state.queue.iter().take_while(|other| **other != lease);
        self.state.seen.passed |= before.any(waits);
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

    /// Asks for the first time.
    pub fn ask(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.number += 1;
        own.phase = Phase::Waiting;
        own.send(Request::Ask(own.number));
    }

    /// Gives up, or gives back.
    pub fn end(&mut self, client: usize) {
        let silent = self.case.is(Wrong::SilentLeaver);
        let own = &mut self.state.clients[client];
        let waited = own.phase == Phase::Waiting;
        own.phase = Phase::Idle;
        (own.asked, own.reply, own.letter) = (None, None, None);
        if !(waited && silent) {
            own.requests.push(Request::Release(own.number));
        }
    }

    /// Takes in an answer.
    pub fn hear(&mut self, client: usize) {
        let receipt = self.case.is(Wrong::DeadlineFromReceipt);
        let own = &mut self.state.clients[client];
        let age = own.asked.take().expect("it waits for an answer");
        let until = self.case.ttl.saturating_sub(if receipt { 0 } else { age });
        match (own.reply.take().expect("there is an answer"), own.phase) {
            (Reply::Granted | Reply::Ours, Phase::Held(left)) => {
                own.phase = Phase::Held(left.max(until));
            }
            (Reply::Granted, _) if until > 0 => own.phase = Phase::Held(until),
            (Reply::Granted | Reply::Gone, _) => self.end(client),
            // To one who holds, by a letter, it is of before.
            (Reply::Queued | Reply::Ours, _) => {}
        }
    }

    /// Takes in a letter.
    pub fn read(&mut self, client: usize) {
        let receipt = self.case.is(Wrong::DeadlineFromReceipt);
        let own = &mut self.state.clients[client];
        let (number, age) = own.letter.take().expect("there is a letter");
        let until = self.case.ttl.saturating_sub(if receipt { 0 } else { age });
        // One that is late is confirmed by the next poll.
        if own.phase == Phase::Waiting && own.number == number && until > 0 {
            own.phase = Phase::Held(until);
            self.state.seen.by_letter = true;
        }
    }

    /// Time passes. A client whose deadline has come has lost its permits, and releases what may be left of them.
    pub fn tick(&mut self) {
        for (_, ttl) in &mut self.state.out {
            *ttl = ttl.saturating_sub(1);
        }
        let limit = self.case.ttl;
        for client in 0..C {
            let own = &mut self.state.clients[client];
            let ages = own.asked.iter_mut().chain(own.letter.iter_mut().map(|(_, age)| age));
            ages.for_each(|age| *age = (*age + 1).min(limit));
            if let Phase::Held(left) = &mut own.phase {
                *left -= 1;
                if *left == 0 {
                    self.end(client);
                }
            }
        }
    }
}

impl Client {
    /// Sends an ask or a renewal.
    pub fn send(&mut self, request: Request) {
        self.requests.push(request);
        self.asked = Some(0);
    }

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }
}
