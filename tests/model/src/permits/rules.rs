//! The rules: what the server does with a request, what a client does with an answer, a letter and time. Broken rules stand
//! beside the right ones, each named by a [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{Client, First, Java, Lease, Phase, Reply, Request, State};

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
        | Request::Renew(number)
        | Request::Release(number)
        | Request::Yield(number)) = request;
        let lease = Lease { client: client as u8, number };
        let reply = match request {
            Request::Ask(_) => self.ask_on_server(lease),
            Request::Renew(_) => self.renew_on_server(lease),
            Request::Release(_) => return self.release_on_server(lease, false),
            Request::Yield(_) => return self.release_on_server(lease, true),
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
                self.tell_first();
            }
            return Reply::Granted;
        }
        self.sweep();
        let was_queued = self.state.queue.contains(&lease);
        let mut moved = false;
        if was_queued || self.state.java != Java::Waits {
            moved = self.serve(Some(lease));
        } else if self.drop_dead(lease) {
            // The moment of Redisson's client lasts, but the one who was told of it is gone.
            self.tell(First::Free);
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
            return Reply::Granted;
        }
        let is_left = self.state.left >= self.weight(lease);
        self.state.seen.refused |= is_left && !self.is_anybody_before();
        if !was_queued {
            self.state.queue.push(lease);
        }
        let first = self.state.queue.first();
        if first == Some(&lease) {
            // The answer is newer than a letter that says the same.
            self.state.clients[usize::from(lease.client)].first = None;
            return Reply::Queued(self.names_java());
        }
        if moved {
            self.tell_first();
        }
        Reply::Queued(false)
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
        let listens = self.state.java == Java::Waits;
        if by_letter && back > 0 && self.state.left > 0 && listens {
            if !self.case.is(Wrong::OpensSilently) {
                self.tell(First::Free);
            }
        } else if place.is_some() || !self.case.is(Wrong::LeaverServesNobody) {
            let moved = self.serve(None);
            let hears = self.names_java() && !self.case.is(Wrong::DeafToJava);
            if moved || was_first || hears {
                self.tell_first();
            }
        }
    }

    /// Whether a holder of Redisson is named to the first in the queue. Who is not known may be one.
    fn names_java(&self) -> bool {
        self.state.java == Java::Held || self.state.out.is_empty()
    }

    fn tell_first(&mut self) {
        self.tell(First::Next(self.names_java()));
    }

    /// The prelude's `tell_head`: tells the first in the queue, and passes over those that are gone.
    fn tell(&mut self, first: First) {
        if self.case.java_asks == 0 {
            return;
        }
        self.pass_over_dead();
        if let Some(lease) = self.state.queue.first() {
            let own = &mut self.state.clients[usize::from(lease.client)];
            if own.phase == Phase::Waiting && own.number == lease.number {
                own.first = Some(first);
            }
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
        debug_assert!(!self.state.queue.contains(&mine), "it is a newcomer");
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
            self.state.clients[usize::from(first.client)].letter = Some((first.number, 0));
        }
        moved
    }

    fn waits(&self, lease: Lease) -> bool {
        let client = &self.state.clients[usize::from(lease.client)];
        client.phase == Phase::Waiting && client.number == lease.number
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
        let by_letter = std::mem::take(&mut own.by_letter);
        (own.asked, own.reply, own.letter) = (None, None, None);
        (own.first, own.listens, own.has_heard) = (None, false, false);
        if by_letter {
            own.requests.push(Request::Yield(own.number));
        } else if !(waited && silent) {
            own.requests.push(Request::Release(own.number));
        }
    }

    /// Takes in that it is the first in the queue.
    pub fn read_first(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        match own.first.take().expect("there is a letter") {
            First::Next(listens) => own.listens = listens,
            First::Free => own.send(Request::Ask(own.number)),
        }
    }

    /// Asks again, since Redisson's client has given a permit back.
    pub fn ask_again(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.has_heard = false;
        own.send(Request::Ask(own.number));
    }

    /// Redisson's client gives its permit back, and tells those who listen.
    pub fn java_leaves(&mut self) {
        self.state.java = Java::Idle;
        self.state.left += 1;
        let Some(first) = self.state.queue.first() else { return };
        let own = &mut self.state.clients[usize::from(first.client)];
        let listens = own.listens
            || own.first == Some(First::Next(true))
            || own.reply == Some(Reply::Queued(true));
        if own.phase == Phase::Waiting && own.number == first.number && listens {
            own.has_heard = true;
            self.state.seen.heard = true;
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
            (Reply::Queued(listens), Phase::Waiting) => own.listens = listens,
            // To one who holds, by a letter, it is of before.
            (Reply::Queued(_) | Reply::Ours, _) => {}
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
            (own.first, own.listens, own.has_heard) = (None, false, false);
            own.by_letter = self.case.java_asks > 0;
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
