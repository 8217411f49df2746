//! What the server does: lua/rw.lua and the scripts behind it. Broken rules stand beside the right ones, each named by a
//! [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{JAVA, Java, Lease, Letter, Reply, Request, Side, State};

/// The rules, applied to one state.
pub struct Rules<'a, const C: usize> {
    /// The case.
    pub case: &'a Case<C>,
    /// The state that they change.
    pub state: &'a mut State<C>,
}

impl<const C: usize> Rules<'_, C> {
    /// Runs the next request of `client`, which stays if it arrives `again`.
    pub fn run(&mut self, client: usize, again: bool) {
        let requests = &mut self.state.clients[client].requests;
        let request = if again { requests[0] } else { requests.remove(0) };
        match request {
            Request::Ask(lease) => {
                let reply = self.acquire(lease, None);
                self.answer(client, lease, reply);
            }
            Request::Replace(lease, from) => {
                let reply = self.acquire(lease, Some(from));
                self.answer(client, lease, reply);
            }
            Request::Renew(lease) => {
                let is_there = self.renew(lease);
                let held = self.state.clients[client].held.as_mut();
                if let Some(held) = held.filter(|held| held.lease == lease)
                    && let Some((_, answer)) = &mut held.renewal
                {
                    *answer = Some(is_there);
                }
            }
            Request::Inquire(lease, number) => {
                let is_there = self.renew(lease);
                let want = self.state.clients[client].want.as_mut();
                if let Some(want) = want.filter(|want| want.lease.number == number)
                    && let Some(inquiry) = &mut want.inquiry
                {
                    *inquiry = Some(is_there);
                }
            }
            Request::Release(lease) => self.release(lease),
            Request::Keep(lease) => self.keep(lease),
        }
    }

    fn answer(&mut self, client: usize, lease: Lease, reply: Reply) {
        let want = self.state.clients[client].want.as_mut();
        if let Some(want) = want.filter(|want| want.lease == lease)
            && let Some((_, answer)) = &mut want.asked
        {
            *answer = Some(reply);
        }
    }

    /// `rw_acquire`.
    pub fn acquire(&mut self, lease: Lease, from: Option<u8>) -> Reply {
        let reply = self.acquire_or_queue(lease, from);
        let server = &mut self.state.server;
        server.ended &= server.queue.first().is_some_and(|first| *first != lease);
        // It is told when the reservation ends, and asks then.
        server.ended |= server.reserved;
        let client = &mut self.state.clients[usize::from(lease.client)];
        let is_heard = client.want.is_some_and(|want| want.lease == lease && want.asked.is_some());
        let letters = &mut client.letters;
        match reply {
            // It ran twice, and the first answer was heard already.
            _ if !is_heard => {}
            // The answer is newer than a letter that says the same, or that tells of a grant which was ended by force.
            Reply::Queued(is_first, _) => letters.retain(|letter| match letter {
                Letter::First(..) => !is_first,
                Letter::Grant(..) => self.case.is(Wrong::BelievesOlderLetters),
            }),
            Reply::Granted(..) => {}
        }
        reply
    }

    fn acquire_or_queue(&mut self, lease: Lease, from: Option<u8>) -> Reply {
        let mode = self.mode_now();
        if let Some(place) = self.place(lease) {
            self.state.server.fields[place].1 = self.case.ttl;
            self.lengthen();
            self.leave(lease);
            return Reply::Granted(self.state.server.counter, None);
        }
        if let Some(number) = from {
            let writer = Lease { number, side: Side::Write, ..lease };
            let is_there = self.place(writer).is_some();
            if is_there || self.case.is(Wrong::DowngradeOfNobody) {
                let (token, _) = self.take(lease);
                self.remove(writer);
                if is_there && self.case.is(Wrong::DowngradeWithoutEnd) {
                    let place = self.place(lease).expect("it was taken");
                    self.state.server.fields[place].1 = 0;
                }
                self.pump_behind(true, None, true);
                self.state.seen.downgraded = true;
                return Reply::Granted(token, None);
            }
            return Reply::Queued(false, false);
        }
        let passes = self.case.is(Wrong::ReaderPassesWriter) && mode == Some(Side::Read);
        let stays_out = self.stays_out(mode, lease) || self.is_reserved(mode, lease);
        if fits(mode, lease) && !stays_out && (self.state.server.queue.is_empty() || passes) {
            self.note_passed(lease);
            let (token, before) = self.take(lease);
            return Reply::Granted(token, before);
        }
        if !self.state.server.queue.contains(&lease) {
            self.state.server.queue.push(lease);
        }
        if fits(mode, lease) && !self.is_reserved(mode, lease) {
            let first = self.pump(Some(lease), false);
            let mine = first == Some(lease) && !self.state.server.queue.contains(&lease);
            let mode = self.mode_now();
            if mine || first.is_none() && fits(mode, lease) {
                let (token, before) = self.take(lease);
                self.pump_behind(true, None, true);
                return Reply::Granted(token, before);
            }
        }
        let is_first = self.state.server.queue.first() == Some(&lease);
        Reply::Queued(is_first, is_first && self.names_java())
    }

    /// `read_renew` and `lock_renew`: whether the lease is there.
    fn renew(&mut self, lease: Lease) -> bool {
        let Some(place) = self.place(lease) else { return false };
        let own_end = &mut self.state.server.fields[place].1;
        if lease.side == Side::Write {
            self.lengthen();
            return true;
        }
        if *own_end == 0 {
            return false;
        }
        if !self.case.is(Wrong::RenewalLeavesOwnEnd) {
            *own_end = self.case.ttl;
        }
        if !self.case.is(Wrong::RenewalLeavesHash) {
            self.lengthen();
        }
        true
    }

    /// `rw_release`.
    fn release(&mut self, lease: Lease) {
        if !self.remove(lease) {
            self.leave(lease);
            return;
        }
        if self.live_reader() && !self.case.is(Wrong::LooksAtNobody) {
            self.state.server.mode = Some(Side::Read);
            self.leave(lease);
            if self.names_java() && !self.case.is(Wrong::DeafToJava) {
                self.pump(None, true);
            }
            return;
        }
        self.delete();
        let first = self.state.server.queue.first().copied();
        let stayed_out = first.filter(|first| (first.side, lease.side) == (Side::Read, Side::Read));
        match stayed_out.filter(|_| self.state.server.shut) {
            // It is for Redisson to take, and the first asks after a moment.
            Some(first) => {
                (self.state.server.reserved, self.state.server.ended) = (true, true);
                self.write(first, Letter::First(first.number, false));
            }
            None => drop(self.pump(None, true)),
        }
    }

    /// `rw_release` with a shortest hold, of which one tick is left.
    fn keep(&mut self, lease: Lease) {
        let is_over =
            |place: usize| lease.side == Side::Read && self.state.server.fields[place].1 == 0;
        let Some(place) = self.place(lease).filter(|place| !is_over(*place)) else {
            return self.release(lease);
        };
        let server = &mut self.state.server;
        server.fields[place].1 = server.fields[place].1.min(1);
        if server.fields.len() == 1 || self.case.is(Wrong::KeptPartEndsHash) {
            server.left = server.left.min(1);
        }
        if !self.state.seen.kept.contains(&lease) {
            self.state.seen.kept.push(lease);
        }
        self.pump(None, true);
    }

    /// Nobody listens on the lock's channel any more, or it is time for readers to join again. The first in the queue asks
    /// often enough to see that.
    pub fn opens(&mut self) {
        self.state.server.shut = false;
        self.state.server.ended |= !self.case.is(Wrong::OpensUnseen);
    }

    /// The prelude's `stays_out`.
    fn stays_out(&self, mode: Option<Side>, lease: Lease) -> bool {
        let joins = (mode, lease.side) == (Some(Side::Read), Side::Read);
        joins && self.state.server.shut && self.live_reader_of_ours()
    }

    fn is_reserved(&self, mode: Option<Side>, lease: Lease) -> bool {
        mode.is_none() && lease.side == Side::Read && self.state.server.reserved
    }

    /// `rw_force_unlock`, whoever holds the lock. Who does may believe that until its deadline.
    pub fn force(&mut self) {
        let fields = &self.state.server.fields;
        self.state.seen.forced.extend(fields.iter().map(|(lease, _)| (*lease, self.case.ttl)));
        let wants = self.state.clients.iter_mut().filter_map(|client| client.want.as_mut());
        wants.for_each(|want| want.overtaken = matches!(want.asked, Some((_, Some(_)))));
        self.delete();
        self.pump(None, true);
    }

    /// The prelude's `mode_now`.
    fn mode_now(&mut self) -> Option<Side> {
        if self.state.server.mode == Some(Side::Read) && !self.live_reader() {
            self.state.seen.took_over = true;
            self.delete();
        }
        self.state.server.mode
    }

    fn live_reader(&self) -> bool {
        self.live_reader_of_ours() || self.java_reads()
    }

    /// Redisson's reader counts while its field is there: its end may have come without being renewed.
    fn java_reads(&self) -> bool {
        let counts = |left| left > 0 || !self.case.is(Wrong::EndsJava);
        let mut fields = self.state.server.fields.iter();
        fields
            .any(|&(lease, left)| lease.client == JAVA && lease.side == Side::Read && counts(left))
    }

    fn live_reader_of_ours(&self) -> bool {
        let over = u8::from(self.case.is(Wrong::EndsEarly));
        let mut fields = self.state.server.fields.iter();
        fields.any(|&(lease, left)| lease.client != JAVA && lease.side == Side::Read && left > over)
    }

    /// The prelude's `take`: returns the token, and for a writer the last one before.
    fn take(&mut self, lease: Lease) -> (u8, Option<u8>) {
        let is_new = self.state.server.mode.is_none();
        let server = &mut self.state.server;
        let before = Some(server.counter).filter(|last| *last > 0 && lease.side == Side::Write);
        let raises = lease.side == Side::Write && !self.case.is(Wrong::WriterTakesNoToken);
        if raises || server.counter == 0 {
            server.counter += 1;
        }
        server.mode = Some(lease.side);
        server.fields.push((lease, if lease.side == Side::Read { self.case.ttl } else { 0 }));
        server.fields.sort_unstable();
        if is_new || !self.case.is(Wrong::JoinLeavesHash) {
            self.lengthen();
        }
        (self.state.server.counter, before)
    }

    /// The prelude's `pump`: lets in those whose turn it is. Returns the first that it did not let in, `mine` included.
    fn pump(&mut self, mine: Option<Lease>, tells: bool) -> Option<Lease> {
        self.pump_behind(false, mine, tells)
    }

    /// The same, if this run has given the lock to somebody (`took`) with whom readers come in.
    fn pump_behind(&mut self, took: bool, mine: Option<Lease>, mut tells: bool) -> Option<Lease> {
        let mut let_in = 0;
        while let Some(&first) = self.state.server.queue.first() {
            let is_gone = self.state.clients[usize::from(first.client)].dead;
            if is_gone && Some(first) != mine {
                self.state.server.queue.remove(0);
                tells = true;
                continue;
            }
            let mode = self.mode_now();
            let is_enough = let_in > 0 && self.case.is(Wrong::PumpsOne);
            let is_shut = !took && let_in == 0 && self.stays_out(mode, first);
            let stays_out = is_shut && !self.case.is(Wrong::JoinsThoughShut);
            if !fits(mode, first) || is_enough || stays_out {
                if tells && !is_gone && !self.case.is(Wrong::FirstNotTold) {
                    self.state.server.ended = false;
                    self.write(first, Letter::First(first.number, self.names_java()));
                }
                return Some(first);
            }
            self.note_passed(first);
            self.state.seen.joined |= is_shut;
            if Some(first) == mine {
                self.state.server.queue.remove(0);
                return mine;
            }
            let (token, before) = self.take(first);
            self.state.server.queue.remove(0);
            self.write(first, Letter::Grant(first.number, 0, token, before));
            tells = true;
            let_in += 1;
        }
        self.state.server.ended = false;
        None
    }

    /// The prelude's `leave`.
    fn leave(&mut self, lease: Lease) {
        let queue = &mut self.state.server.queue;
        let place = queue.iter().position(|other| *other == lease);
        queue.retain(|other| *other != lease);
        if place == Some(0) && !self.case.is(Wrong::LeaverPumpsNobody) {
            self.pump(None, true);
        }
    }

    fn write(&mut self, to: Lease, letter: Letter) {
        let client = &mut self.state.clients[usize::from(to.client)];
        if client.want.is_none_or(|want| want.lease != to) || client.letters.contains(&letter) {
            return;
        }
        if let Letter::Grant(..) = letter {
            // What the earlier ones told is over.
            let limit = self.case.ttl;
            client
                .letters
                .retain(|other| matches!(other, Letter::Grant(_, age, ..) if *age < limit));
        }
        client.letters.push(letter);
    }

    fn place(&self, lease: Lease) -> Option<usize> {
        self.state.server.fields.iter().position(|(other, _)| *other == lease)
    }

    fn remove(&mut self, lease: Lease) -> bool {
        let place = self.place(lease);
        if let Some(place) = place {
            self.state.server.fields.remove(place);
        }
        place.is_some()
    }

    fn lengthen(&mut self) {
        self.state.server.left = self.case.ttl;
    }

    fn delete(&mut self) {
        let server = &mut self.state.server;
        (server.mode, server.left) = (None, 0);
        server.fields.clear();
    }

    /// Notes whether somebody who lives waits before `lease`, which is let in now.
    fn note_passed(&mut self, lease: Lease) {
        let waits = |other: &Lease| {
            let want = self.state.clients[usize::from(other.client)].want;
            want.is_some_and(|want| want.lease == *other)
        };
        let mut before = self.state.server.queue.iter().take_while(|other| **other != lease);
        self.state.seen.passed |= before.any(waits);
    }

    /// Redisson's client takes the lock, if it is free for it: it knows no queue, and no ends of others.
    pub fn java_takes(&mut self, side: Side) {
        let mode = self.state.server.mode;
        let lease = Lease { client: JAVA, number: 0, side };
        if fits(mode, lease) {
            let counter = self.state.server.counter;
            self.remove(lease);
            self.take(lease);
            self.state.server.counter = counter;
            self.state.java = Java::Held(side);
        }
    }

    /// It gives the lock back. It deletes the hash only if nobody reads still.
    pub fn java_leaves(&mut self, side: Side) {
        self.state.java = Java::Idle;
        if self.remove(Lease { client: JAVA, number: 0, side }) {
            self.state.server.ended |= self.first_listens();
            // It looks at the ends of all readers.
            let mut fields = self.state.server.fields.iter();
            if !fields.any(|(lease, left)| lease.side == Side::Read && *left > 0) {
                self.delete();
            }
        }
    }

    /// Whether the holder that is named is Redisson's. Of several readers any may be named: it is one of ours wherever it can
    /// be.
    fn names_java(&self) -> bool {
        let mut fields = self.state.server.fields.iter();
        let writes = fields.any(|(lease, _)| lease.client == JAVA && lease.side == Side::Write);
        writes || self.java_reads() && !self.live_reader_of_ours()
    }

    /// Whether the first in the queue hears of a release by Redisson's client: it listens, or will, and then asks again.
    fn first_listens(&self) -> bool {
        let Some(&first) = self.state.server.queue.first() else { return false };
        let client = &self.state.clients[usize::from(first.client)];
        let is_told = client.letters.iter().any(|letter| matches!(letter, Letter::First(_, true)));
        let want = client.want.filter(|want| want.lease == first);
        want.is_some_and(|want| {
            let is_answered = matches!(want.asked, Some((_, Some(Reply::Queued(_, true)))));
            want.listens || is_told || is_answered
        })
    }

    /// Time passes for the server.
    pub fn tick_server(&mut self) {
        let server = &mut self.state.server;
        server.reserved = false;
        if server.mode.is_none() {
            return;
        }
        for (lease, left) in &mut server.fields {
            server.ended |= *left == 1 && lease.client != JAVA;
            *left = left.saturating_sub(1);
        }
        server.left -= 1;
        if let Java::Held(side) = self.state.java {
            let lease = Lease { client: JAVA, number: 0, side };
            if let Some(field) = server.fields.iter_mut().find(|(other, _)| *other == lease) {
                if !self.case.java_leaves_ends {
                    field.1 = self.case.ttl;
                }
                server.left = self.case.ttl;
            }
        }
        if server.left == 0 {
            server.ended = true;
            self.delete();
        }
    }

    /// Whether the first in the queue that is not gone could be let in.
    pub fn has_room_for_first(&mut self) -> bool {
        let is_gone = |lease: &Lease| self.state.clients[usize::from(lease.client)].dead;
        let first = self.state.server.queue.iter().copied().find(|lease| !is_gone(lease));
        let mode = self.mode_now();
        first.is_some_and(|first| {
            let waits = self.stays_out(mode, first) || self.is_reserved(mode, first);
            fits(mode, first) && !waits
        })
    }
}

/// Whether the lock has room for this lease beside those that have it.
fn fits(mode: Option<Side>, lease: Lease) -> bool {
    mode.is_none_or(|mode| (mode, lease.side) == (Side::Read, Side::Read))
}
