//! What the server does: lua/rw.lua and the scripts behind it. Broken rules stand beside the right ones, each named by a
//! [`Wrong`].

use super::case::{Case, Wrong};
use super::requests::{Grant, Letter, Says};
use super::state::{Channel, JAVA, Java, Lease, Reply, Request, Side, State};
use crate::waiting::Ends;

/// The rules, applied to one state.
pub struct Rules<'a, const C: usize> {
    /// The case.
    pub case: &'a Case<C>,
    /// The state that they change.
    pub state: &'a mut State<C>,
    /// An ask was sent that is beyond the bounds of the case.
    pub goes_too_far: bool,
}

/// What is told to one who is behind others.
const BEHIND: Ends = Ends { in_ticks: None, foreign: false };

impl<'a, const C: usize> Rules<'a, C> {
    /// The rules of that case, applied to that state.
    pub fn new(case: &'a Case<C>, state: &'a mut State<C>) -> Self {
        Rules { case, state, goes_too_far: false }
    }

    /// Runs the next request of `client`, which stays if it arrives `again`.
    pub fn run(&mut self, client: usize, again: bool) {
        let requests = &mut self.state.clients[client].requests;
        let request = if again { requests[0] } else { requests.remove(0) };
        match request {
            Request::Ask(lease) => {
                let reply = self.acquire(lease);
                self.answer(client, lease, reply);
            }
            Request::Echo(lease) => drop(self.acquire(lease)),
            Request::Replace(lease, from) => {
                let reply = self.replace(lease, from);
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
                let ask = self.state.clients[client].ask.as_mut();
                if let Some(ask) = ask.filter(|ask| ask.attempt.lease.number == number)
                    && let Some(inquiry) = &mut ask.inquiry
                {
                    inquiry.is_there = Some(is_there);
                }
            }
            Request::Release(lease, by_letter) => self.release(lease, by_letter),
            Request::Keep(lease) => self.keep(lease),
        }
    }

    fn answer(&mut self, client: usize, lease: Lease, reply: Reply) {
        let own = &mut self.state.clients[client];
        let Some(ask) = own.ask.as_mut().filter(|ask| ask.attempt.lease == lease) else { return };
        ask.reply = Some(reply);
        // The answer is newer than what was written before. What is read before it waits for it. Beside clients of ours only, it makes
        // no difference who was the first behind whom.
        if let Reply::Queued(..) = reply
            && !self.case.is(Wrong::BelievesOlderLetters)
        {
            let is_outdated = |letter: &Letter| {
                let is_grant = matches!(letter.says, Says::Grant(_));
                letter.number == lease.number && (is_grant || self.case.java_asks > 0)
            };
            let outdate = |letter: &mut Letter| letter.outdated |= is_outdated(letter);
            own.letters.iter_mut().for_each(outdate);
            own.machine.change_letter(outdate);
        }
    }

    /// `rw_acquire` with an entry.
    pub fn acquire(&mut self, lease: Lease) -> Reply {
        let reply = self.acquire_or_queue(lease);
        let server = &mut self.state.server;
        server.ended &= server.queue.first().is_some_and(|first| *first != lease);
        reply
    }

    fn acquire_or_queue(&mut self, lease: Lease) -> Reply {
        let mode = self.mode_now();
        if let Some(token) = self.confirm(lease) {
            self.leave(lease);
            return Reply::Granted(token, None);
        }
        let fits = fits(mode, lease);
        let is_out = self.stays_out(mode, lease);
        let is_reserved = self.is_reserved(mode, lease);
        let passes = self.case.is(Wrong::ReaderPassesWriter) && mode == Some(Side::Read);
        if fits && !is_out && !is_reserved && (self.state.server.queue.is_empty() || passes) {
            self.note_passed(lease);
            let (token, before) = self.take(lease);
            return Reply::Granted(token, before);
        }
        let was_queued = self.state.server.queue.contains(&lease);
        if !was_queued {
            self.state.server.queue.push(lease);
        }
        let is_open = mode.is_none() && !was_queued && self.is_left_to_listeners(lease);
        if fits && !is_open && !is_reserved {
            let first = self.pump(Some(lease), false);
            let mine = first == Some(lease) && !self.state.server.queue.contains(&lease);
            let mode = self.mode_now();
            if mine || first.is_none() && !is_out && self::fits(mode, lease) {
                let (token, before) = self.take(lease);
                self.pump_behind(true, None, true);
                return Reply::Granted(token, before);
            }
        }
        if was_queued && mode.is_some() && !fits && self.names_java() {
            // Only who has waited looks whether the first is gone, who would hear of Redisson's client.
            let passed = self.pass_over_the_dead(Some(lease));
            let first = self.state.server.queue.first().copied();
            if let Some(first) = first.filter(|first| passed && *first != lease) {
                self.tell(first);
            }
        }
        let is_first = self.state.server.queue.first() == Some(&lease);
        Reply::Queued(is_first, if is_first { self.ends(lease) } else { BEHIND })
    }

    /// Whether the lock is free for those who listen on its channel, as the first in the queue was told, who lives.
    fn is_left_to_listeners(&mut self, mine: Lease) -> bool {
        if !self.is_listened_to() {
            return false;
        }
        let passed = self.pass_over_the_dead(Some(mine));
        let first = self.state.server.queue.first().copied();
        let another = first.filter(|first| *first != mine);
        if let Some(first) = another.filter(|_| passed) {
            self.write(first, Says::Free);
        }
        another.is_some()
    }

    /// `rw_acquire` of a lease that is there. Returns its token.
    fn confirm(&mut self, lease: Lease) -> Option<u8> {
        let place = self.place(lease)?;
        if lease.side == Side::Read {
            self.state.server.fields[place].1 = self.case.ttl;
        }
        self.lengthen();
        Some(self.state.server.counter)
    }

    /// `rw_acquire` in the place of a writer.
    fn replace(&mut self, lease: Lease, from: u8) -> Reply {
        self.mode_now();
        if let Some(token) = self.confirm(lease) {
            return Reply::Granted(token, None);
        }
        let writer = Lease { number: from, side: Side::Write, ..lease };
        let is_there = self.place(writer).is_some();
        if !is_there && !self.case.is(Wrong::DowngradeOfNobody) {
            return Reply::Refused;
        }
        let (token, _) = self.take(lease);
        self.remove(writer);
        if is_there && self.case.is(Wrong::DowngradeWithoutEnd) {
            let place = self.place(lease).expect("it was taken");
            self.state.server.fields[place].1 = 0;
        }
        self.pump_behind(true, None, true);
        self.publish();
        self.state.seen.downgraded = true;
        Reply::Granted(token, None)
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
    fn release(&mut self, lease: Lease, by_letter: bool) {
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
        self.pass_over_the_dead(None);
        let first = self.state.server.queue.first().copied();
        let stayed_out =
            first.is_some_and(|first| (first.side, lease.side) == (Side::Read, Side::Read));
        if (by_letter || stayed_out) && self.is_listened_to() {
            // It is for Redisson to take, and the first asks after a moment.
            self.state.server.reserved |= stayed_out;
            if let Some(first) = first {
                self.write(first, Says::Free);
            }
        } else {
            self.pump(None, true);
        }
        if self.state.server.mode != Some(Side::Write) {
            self.publish();
        }
    }

    /// `rw_release` with a shortest hold, of which one tick is left.
    fn keep(&mut self, lease: Lease) {
        let is_over =
            |place: usize| lease.side == Side::Read && self.state.server.fields[place].1 == 0;
        let Some(place) = self.place(lease).filter(|place| !is_over(*place)) else {
            return self.release(lease, false);
        };
        let server = &mut self.state.server;
        server.fields[place].1 = server.fields[place].1.min(1);
        if server.fields.len() == 1 || self.case.is(Wrong::KeptPartEndsHash) {
            server.left = server.left.min(1);
        }
        if !self.state.seen.kept.contains(&lease) {
            self.state.seen.kept.push(lease);
            self.state.seen.kept.sort_unstable();
        }
        self.pump(None, true);
    }

    /// Nobody listens on the lock's channel any more, or it is time for readers to join again.
    pub fn opens(&mut self) {
        let server = &mut self.state.server;
        (server.shut, server.opened) = (false, !server.queue.is_empty());
    }

    /// The prelude's `stays_out`.
    fn stays_out(&self, mode: Option<Side>, lease: Lease) -> bool {
        let joins = (mode, lease.side) == (Some(Side::Read), Side::Read);
        joins && self.state.server.shut && self.live_reader_of_ours()
    }

    fn is_reserved(&self, mode: Option<Side>, lease: Lease) -> bool {
        let server = &self.state.server;
        mode.is_none() && lease.side == Side::Read && server.reserved && !server.queue.is_empty()
    }

    /// `rw_force_unlock`, whoever holds the lock. Who does may believe that until its deadline.
    pub fn force(&mut self) {
        let fields = &self.state.server.fields;
        self.state.seen.forced.extend(fields.iter().map(|(lease, _)| (*lease, self.case.ttl)));
        self.state.seen.forced.sort_unstable();
        let asks = self.state.clients.iter_mut().filter_map(|client| client.ask.as_mut());
        asks.for_each(|ask| ask.overtaken = ask.reply.is_some());
        self.delete();
        self.pump(None, true);
        if self.state.server.mode != Some(Side::Write) {
            self.publish();
        }
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
        self.last_reader_of_ours().is_some()
    }

    /// For how long the one of our readers that lives reads which reads for longest.
    fn last_reader_of_ours(&self) -> Option<u8> {
        let over = u8::from(self.case.is(Wrong::EndsEarly));
        let reads = |lease: &Lease| lease.client != JAVA && lease.side == Side::Read;
        let fields = self.state.server.fields.iter();
        fields.filter(|(lease, left)| reads(lease) && *left > over).map(|(_, left)| *left).max()
    }

    /// What the first in the queue is told of who holds the lock. Of several readers any may be named: it is one of ours
    /// wherever it can be, and the one that reads for longest.
    fn ends(&self, first: Lease) -> Ends {
        let server = &self.state.server;
        if self.is_reserved(server.mode, first) {
            return Ends { in_ticks: Some(1), foreign: true };
        }
        let reader = self.last_reader_of_ours().filter(|_| server.mode == Some(Side::Read));
        let left = reader.unwrap_or(server.left);
        // One that stays out looks again before that reader ends.
        let looks = fits(server.mode, first) && !self.case.is(Wrong::OpensUnseen);
        Ends { in_ticks: Some(if looks { left.min(1) } else { left }), foreign: self.names_java() }
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
            let is_gone = self.is_dead(first);
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
                if tells && !is_gone {
                    self.tell(first);
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
            self.write(first, Says::Grant(Grant { age: 0, token, before }));
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

    /// Takes those out of the queue that are gone, up to `mine`. Returns whether there were any.
    fn pass_over_the_dead(&mut self, mine: Option<Lease>) -> bool {
        let before = self.state.server.queue.len();
        while let Some(&first) = self.state.server.queue.first()
            && Some(first) != mine
            && self.is_dead(first)
        {
            self.state.server.queue.remove(0);
        }
        self.state.server.queue.len() < before
    }

    fn is_dead(&self, lease: Lease) -> bool {
        self.state.clients[usize::from(lease.client)].dead
    }

    /// Tells the first in the queue that it is the first, and who holds the lock.
    fn tell(&mut self, first: Lease) {
        if !self.case.is(Wrong::FirstNotTold) {
            self.state.server.ended = false;
            self.write(first, Says::Next(self.ends(first)));
        }
    }

    /// Writes to one who waits. What nobody waits for any more is not read.
    fn write(&mut self, to: Lease, says: Says) {
        let client = &mut self.state.clients[usize::from(to.client)];
        if client.waits_for(to) {
            client.letters.push(Letter { number: to.number, outdated: false, says });
        }
    }

    /// Whether anybody listens on the lock's channel: one of another library, or one of ours.
    fn is_listened_to(&self) -> bool {
        let mut clients = self.state.clients.iter();
        self.state.server.shut || clients.any(|client| client.channel == Channel::On)
    }

    /// Tells those who listen on the lock's channel of a release.
    fn publish(&mut self) {
        for client in &mut self.state.clients {
            client.has_heard |= client.channel == Channel::On;
        }
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
        let waits = |other: &Lease| self.state.clients[usize::from(other.client)].waits_for(*other);
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
            let server = &mut self.state.server;
            server.counter = counter;
            // A reader that was to wait for it may come in beside it, and is told nothing.
            server.ended |= server.reserved && !server.queue.is_empty();
            self.state.java = Java::Held(side);
        }
    }

    /// It gives the lock back. It deletes the hash only if nobody reads still, and says so on the channel.
    pub fn java_leaves(&mut self, side: Side) {
        self.state.java = Java::Idle;
        if self.remove(Lease { client: JAVA, number: 0, side }) {
            // It looks at the ends of all readers.
            let mut fields = self.state.server.fields.iter();
            if !fields.any(|(lease, left)| lease.side == Side::Read && *left > 0) {
                self.delete();
                self.publish();
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

    /// Time passes for the server.
    pub fn tick_server(&mut self) {
        // The timer of the first begins when it hears its answer or letter.
        let is_told = |first: &Lease| {
            let client = &self.state.clients[usize::from(first.client)];
            client.ask.is_none() && client.letters.is_empty()
        };
        let has_heard = self.state.server.queue.first().is_none_or(is_told);
        let server = &mut self.state.server;
        server.ended |= server.reserved && !server.queue.is_empty();
        server.reserved = false;
        server.opened &= !has_heard;
        if server.mode.is_none() {
            return;
        }
        for (lease, left) in &mut server.fields {
            server.ended |= *left == 1 && lease.client != JAVA && !server.queue.is_empty();
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
            server.ended = !server.queue.is_empty();
            self.delete();
        }
    }

    /// Whether the first in the queue that is not gone could be let in.
    pub fn has_room_for_first(&mut self) -> bool {
        let first = self.state.server.queue.iter().copied().find(|lease| !self.is_dead(*lease));
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
