//! What a client does around the [machine](super::requests) that the library runs: it sends what that asks, tells it what is
//! answered and heard, lets readers share a lease, and believes in deadlines.

use leasehold::seam::machine::{Action, Allowed, Answer};

use super::case::Wrong;
use super::requests::{Grant, Letter, Requests};
use super::server::Rules;
use super::state::{
    Ask, Asker, Attempt, Channel, Client, Held, Inquiry, Lease, Reply, Request, Side,
};
use crate::waiting::{self, About};

/// A lease that is granted.
#[derive(Clone, Copy)]
struct Granted {
    lease: Lease,
    /// The ticks until its deadline.
    left: u8,
    token: u8,
    before: Option<u8>,
    /// The lease that was seen on the server behind the ask.
    seen: Option<Lease>,
    /// A lease was ended by force since the ask was run.
    overtaken: bool,
    by_letter: bool,
}

impl<const C: usize> Rules<'_, C> {
    /// Somebody comes who wants this side. It asks by itself if nobody of its client is before it.
    pub fn come(&mut self, client: usize, side: Side) {
        let own = &mut self.state.clients[client];
        if own.held.is_none() && own.ask.is_none() && own.waiters.is_empty() {
            let attempt = own.attempt(client, side);
            return self.send_ask(client, attempt, Asker::Itself);
        }
        own.waiters.push(side);
        self.drive(client);
    }

    /// Sends an ask. Behind it goes the question whether the lease is still there that it would share.
    fn send_ask(&mut self, client: usize, attempt: Attempt, asker: Asker) {
        let looks = !self.case.is(Wrong::JoinsUnseen);
        let own = &mut self.state.clients[client];
        let lease = attempt.lease;
        let shared = own.shared_with(lease).filter(|_| looks);
        let asks = std::iter::once(match asker {
            Asker::Writer(from) => Request::Replace(lease, from),
            Asker::Itself | Asker::Machine => Request::Ask(lease),
        });
        let inquires = shared.map(|held| Request::Inquire(held, lease.number));
        if self.case.is(Wrong::LooksBeforeAsk) {
            own.requests.extend(inquires.into_iter().chain(asks));
        } else {
            own.requests.extend(asks.chain(inquires));
        }
        let inquiry = shared.map(|of| Inquiry { of, is_there: None });
        own.ask = Some(Ask { attempt, asker, age: 0, reply: None, inquiry, overtaken: false });
    }

    /// One who uses the lease is through; the last one gives it back.
    pub fn leave_seat(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let held = own.held.as_mut().expect("it is held");
        held.users -= 1;
        if held.users == 0 {
            own.give_back();
            self.drive(client);
        }
    }

    /// The last one who uses the lease is through before its shortest hold is over.
    pub fn leave_part(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let held = own.held.take().expect("it is held");
        own.requests.push(Request::Keep(held.lease));
        self.drive(client);
    }

    /// Who asks by itself gives up.
    pub fn abandon(&mut self, client: usize) {
        let ask = self.state.clients[client].ask.take().expect("it asks");
        self.drop_request(client, ask.attempt.lease);
        self.drop_replaced(client, &ask);
        self.drive(client);
    }

    /// A waiter gives up.
    pub fn give_up(&mut self, client: usize, place: usize) {
        self.state.clients[client].waiters.remove(place);
        self.drive(client);
    }

    /// A request that nobody wants leaves the queue, or gives back what it was granted.
    fn drop_request(&mut self, client: usize, lease: Lease) {
        let silent = self.case.is(Wrong::SilentLeaver);
        let own = &mut self.state.clients[client];
        own.letters.retain(|letter| letter.number != lease.number);
        if !silent {
            own.requests.push(Request::Release(lease, false));
        }
    }

    /// The release of a writer is behind the acquire in its place.
    fn drop_replaced(&mut self, client: usize, ask: &Ask) {
        if let Asker::Writer(number) = ask.asker {
            let writer = Lease { number, side: Side::Write, ..ask.attempt.lease };
            self.state.clients[client].requests.push(Request::Release(writer, false));
        }
    }

    /// The writer becomes a reader. Until the answer it is neither.
    pub fn downgrade(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let writer = own.held.take().expect("it is held").lease;
        let attempt = own.attempt(client, Side::Read);
        self.send_ask(client, attempt, Asker::Writer(writer.number));
    }

    /// Renews the lease.
    pub fn send_renewal(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let held = own.held.as_mut().expect("it is held");
        held.renewal = Some((0, None));
        own.requests.push(Request::Renew(held.lease));
    }

    /// Its request asks now: its time has come.
    pub fn wake(&mut self, client: usize) {
        self.state.clients[client].machine.wake();
        self.drive(client);
    }

    /// Its request asks now, whatever its time was.
    pub fn poll(&mut self, client: usize) {
        self.state.clients[client].machine.wake();
        self.drive_on(client, true);
    }

    /// What the driver does whenever something has changed: it says what is wanted, and sends the ask whose time has come.
    fn drive(&mut self, client: usize) {
        self.drive_on(client, false);
    }

    /// The same; an ask that is `free` does not count as one that is repeated.
    fn drive_on(&mut self, client: usize, free: bool) {
        let own = &mut self.state.clients[client];
        let first = own.waiters.first().copied();
        if first.is_none() && own.held.is_none() {
            return self.clear(client);
        }
        // A writer's lease may pass to the next who comes, whose request then stands already.
        if first.is_some() || !own.writes() {
            let dropped = own.machine.want(first);
            self.perform(client, dropped);
        }
        self.ask_if_due(client, free);
        self.state.clients[client].listen();
    }

    fn ask_if_due(&mut self, client: usize, free: bool) {
        let own = &mut self.state.clients[client];
        let allowed = own.allowed();
        if !own.machine.is_due(allowed) {
            return;
        }
        if own.standing.is_some() && !free {
            self.goes_too_far |= self.state.spent.repeats == self.case.repeats;
            self.state.spent.repeats += 1;
        }
        let request = own.machine.ask(allowed);
        let side = *own.waiters.first().expect("it asks for those who wait");
        let standing = own.standing.take();
        let attempt = standing.unwrap_or_else(|| Attempt { request, ..own.attempt(client, side) });
        self.send_ask(client, attempt, Asker::Machine);
    }

    /// Nobody waits any more, and nothing is held: what asks is given back, and so is what stands in the queue.
    fn clear(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let asks = own.ask.take_if(|ask| ask.asker == Asker::Machine).map(|ask| ask.attempt);
        let dropped = [asks, own.standing.take()];
        (own.machine, own.channel, own.has_heard) = (Requests::default(), Channel::Off, false);
        for attempt in dropped.into_iter().flatten() {
            self.drop_request(client, attempt.lease);
        }
    }

    /// Does what the machine decided.
    fn perform(&mut self, client: usize, action: Option<Action<Letter>>) {
        let own = &mut self.state.clients[client];
        match action {
            Some(Action::Drop { number }) => {
                let is_dropped = |attempt: &mut Attempt| u64::from(attempt.request) == number;
                if let Some(dropped) = own.standing.take_if(is_dropped) {
                    self.drop_request(client, dropped.lease);
                } else if let Some(ask) = own.ask.filter(|ask| ask.asker == Asker::Machine) {
                    // If it is the one that asks, it leaves behind its answer.
                    let lease = ask.attempt.lease;
                    let is_wanted = own.machine.is_wanted(ask.attempt.request);
                    own.letters.retain(|letter| is_wanted || letter.number != lease.number);
                }
            }
            Some(Action::TakeUp { grant: (grant, outdated), .. }) => {
                self.take_up(client, grant, outdated);
            }
            Some(Action::Succeeded { by: outdated }) => {
                if let Some(standing) = &mut own.standing {
                    standing.misled = outdated;
                }
            }
            None => {}
        }
    }

    /// Takes up what a letter granted, or has it confirmed.
    fn take_up(&mut self, client: usize, grant: Grant, outdated: bool) {
        let Grant { age, token, before } = grant;
        let own = &mut self.state.clients[client];
        let attempt = own.standing.as_mut().expect("it waits");
        let lease = attempt.lease;
        // Whether the lease is there that it would share, only an ask finds out.
        let joins = own.shared_with(lease).is_some() && !self.case.is(Wrong::JoinsByLetter);
        let left = self.lasts(age);
        let believes = self.case.is(Wrong::BelievedUnanswered);
        let own = &mut self.state.clients[client];
        if joins {
            return own.machine.confirm();
        }
        let attempt = own.standing.as_mut().expect("it waits");
        attempt.told = before.map(|it| (token, it));
        if outdated || attempt.unanswered && !believes || left == 0 {
            return own.machine.confirm();
        }
        own.standing = None;
        own.machine.taken_up();
        self.state.seen.by_letter = true;
        let (seen, overtaken, by_letter) = (None, false, true);
        self.seat_waiter(
            client,
            Granted { lease, left, token, before, seen, overtaken, by_letter },
        );
    }

    /// Takes in the answer to an ask, and to the question that went along if it matters.
    pub fn hear(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let ask = own.ask.take().expect("it asks");
        let reply = ask.reply.expect("there is an answer");
        own.hears_no_more_of(ask.attempt.lease);
        let mut seen = None;
        if let (Reply::Granted(..), Some(Inquiry { of, is_there })) = (reply, ask.inquiry) {
            let is_there = is_there.expect("it is answered");
            self.state.seen.replaced |= !is_there;
            self.confirmed(client, of, ask.age, is_there);
            seen = is_there.then_some(of);
        }
        let granted = match reply {
            Reply::Granted(token, before) => {
                let (lease, left) = (ask.attempt.lease, self.lasts(ask.age));
                let keeps = self.case.is(Wrong::KeepsWhatItWasTold);
                let told = ask.attempt.told.filter(|(of, _)| keeps || *of == token);
                let before = before.or(told.map(|(_, before)| before));
                let (overtaken, by_letter) = (ask.overtaken, false);
                let granted = Granted { lease, left, token, before, seen, overtaken, by_letter };
                Some(granted).filter(|_| left > 0)
            }
            Reply::Queued(..) | Reply::Refused => None,
        };
        match (ask.asker, granted) {
            (Asker::Machine, _) => self.hear_answer(client, ask.attempt, reply, granted),
            (Asker::Itself, None) => self.begun(client, ask.attempt, reply),
            (Asker::Writer(_), None) => {
                self.drop_request(client, ask.attempt.lease);
                self.drop_replaced(client, &ask);
            }
            (Asker::Itself | Asker::Writer(_), Some(granted)) => {
                self.seat(client, granted);
                self.drop_replaced(client, &ask);
            }
        }
        // What was missed during an ask is asked for at once, and bounded by what has happened.
        let confirms = self.state.clients[client].machine.is_confirming();
        self.drive_on(client, !confirms);
    }

    /// One who asked by itself waits from here on, before all others of its client. The machine takes over its request.
    fn begun(&mut self, client: usize, attempt: Attempt, reply: Reply) {
        let own = &mut self.state.clients[client];
        let side = attempt.lease.side;
        own.waiters.insert(0, side);
        let (request, dropped) = own.machine.begun(side, answer(reply));
        self.perform(client, dropped);
        let unanswered = is_late(reply);
        self.state.clients[client].standing = Some(Attempt { request, unanswered, ..attempt });
    }

    /// The answer to a request that the machine had ask.
    fn hear_answer(
        &mut self,
        client: usize,
        attempt: Attempt,
        reply: Reply,
        granted: Option<Granted>,
    ) {
        let own = &mut self.state.clients[client];
        let wanted = own.machine.is_wanted(attempt.request);
        if granted.is_none() {
            if wanted {
                let unanswered = is_late(reply);
                own.standing = Some(Attempt { misled: false, unanswered, ..attempt });
            } else {
                self.drop_request(client, attempt.lease);
            }
        }
        let own = &mut self.state.clients[client];
        let told = if granted.is_some() { Answer::Granted } else { answer(reply) };
        let then = if wanted { own.machine.answered(told) } else { None };
        if let Some(granted) = granted {
            self.seat_waiter(client, granted);
        }
        self.perform(client, then);
    }

    /// Takes in the answer to a renewal.
    pub fn hear_renewal(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let held = own.held.as_mut().expect("it is held");
        let Some((age, Some(is_there))) = held.renewal.take() else {
            unreachable!("it is answered")
        };
        let of = held.lease;
        for request in own.requests.iter_mut().filter(|request| **request == Request::Renew(of)) {
            *request = Request::Inquire(of, 0);
        }
        self.confirmed(client, of, age, is_there);
        self.drive(client);
    }

    /// Whether a lease is there, as the server has answered what was sent `age` ago. It may not be in use any more.
    fn confirmed(&mut self, client: usize, of: Lease, age: u8, is_there: bool) {
        let left = self.lasts(age);
        let own = &mut self.state.clients[client];
        let Some(held) = own.held.as_mut().filter(|held| held.lease == of) else { return };
        if is_there {
            held.left = held.left.max(left);
        } else {
            own.give_back();
        }
    }

    /// Takes in a letter.
    pub fn read(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let letter = own.letters.remove(0);
        let action = own.machine.letter(letter);
        self.perform(client, action);
        self.drive(client);
    }

    /// The server has its subscription. A release may have been missed before that.
    pub fn subscribe(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        (own.channel, own.has_heard) = (Channel::On, true);
    }

    /// Somebody released the lock, as told on the channel.
    pub fn hear_release(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.has_heard = false;
        own.machine.released();
        self.drive_on(client, true);
    }

    /// For how many ticks a lease lasts that was asked for, or granted by letter, so many ticks ago.
    fn lasts(&self, age: u8) -> u8 {
        let age = if self.case.is(Wrong::DeadlineFromReceipt) { 0 } else { age };
        self.case.ttl.saturating_sub(age)
    }

    /// The first who waits has the lock, if it wants that side, and those behind it who share it.
    fn seat_waiter(&mut self, client: usize, granted: Granted) {
        let lease = granted.lease;
        let is_forced = |lease| self.state.seen.forced.iter().any(|(other, _)| *other == lease);
        let own = &mut self.state.clients[client];
        let shared = own.shared_with(lease);
        if let Some(held) = own.held.filter(|_| shared.is_none()) {
            // The server grants it only when that has ended.
            self.state.seen.beside_itself |= !is_forced(held.lease);
            own.give_back();
        }
        let joins_unseen = self.case.is(Wrong::JoinsUnseen)
            || granted.by_letter && self.case.is(Wrong::JoinsByLetter);
        let is_seen = shared.is_none() || granted.seen == shared || joins_unseen;
        if !is_seen || own.waiters.first() != Some(&lease.side) {
            return own.requests.push(Request::Release(lease, granted.by_letter));
        }
        if let Some(shared) = shared {
            // What was ended by force may be held still by those who were let in before, behind others.
            let is_excused = is_forced(shared) && granted.overtaken;
            let is_late = is_forced(shared) && !granted.overtaken;
            let held = own.held.as_mut().expect("it is shared");
            held.joined_late |= is_late;
            let token = held.token;
            own.admit();
            own.requests.push(Request::Release(lease, granted.by_letter));
            own.letters.retain(|letter| letter.number != lease.number);
            self.state.seen.reopened = true;
            if !is_excused {
                self.note_token(Side::Read, token);
            }
            return;
        }
        own.waiters.remove(0);
        self.seat(client, granted);
    }

    /// The lock is held from here on.
    fn seat(&mut self, client: usize, granted: Granted) {
        let Granted { lease, left, token, before, .. } = granted;
        let others_listen = self.case.java_asks + self.case.shuts > 0;
        let is_forced = self.state.seen.forced.iter().any(|(other, _)| *other == lease);
        let own = &mut self.state.clients[client];
        own.letters.retain(|letter| letter.number != lease.number);
        own.held = Some(Held {
            lease,
            left,
            users: 1,
            token,
            by_letter: granted.by_letter && others_listen,
            joined_late: false,
            renewal: None,
        });
        own.admit();
        // Nobody may have written whose token is higher.
        let seen = &mut self.state.seen;
        seen.unnoticed |= before.is_some_and(|before| before < seen.written);
        if !is_forced {
            self.note_token(lease.side, token);
        }
    }

    /// Writers have ever higher tokens; a reader's is no lower than an earlier writer's, and lower than a later one's.
    fn note_token(&mut self, side: Side, token: u8) {
        let seen = &mut self.state.seen;
        match side {
            Side::Write => {
                seen.disorder |= token <= seen.written.max(seen.read);
                seen.written = token;
            }
            Side::Read => {
                seen.disorder |= token < seen.written.max(seen.read);
                seen.read = token;
            }
        }
    }

    /// Time passes. A client whose deadline has come has lost its lease, and releases what may be left of it.
    pub fn tick(&mut self) {
        self.tick_server();
        let forced = &mut self.state.seen.forced;
        forced.iter_mut().for_each(|(_, left)| *left -= 1);
        forced.retain(|(_, left)| *left > 0);
        let limit = self.case.ttl;
        let older = |age: &mut u8| *age = (*age + 1).min(limit);
        for client in 0..C {
            let own = &mut self.state.clients[client];
            own.ask.iter_mut().for_each(|ask| older(&mut ask.age));
            own.letters.iter_mut().for_each(|letter| letter.age(limit));
            own.machine.tick(limit);
            let Some(held) = &mut own.held else { continue };
            held.renewal.iter_mut().for_each(|(age, _)| older(age));
            held.left -= 1;
            if held.left == 0 {
                own.give_back();
                self.drive(client);
            }
        }
    }
}

/// Whether an answer that does not count as a grant came too late for one.
fn is_late(reply: Reply) -> bool {
    matches!(reply, Reply::Granted(..))
}

/// What the machine is told of an answer that does not count as a grant.
fn answer(reply: Reply) -> Answer {
    match reply {
        Reply::Queued(is_first, ends) => waiting::refused(is_first, ends),
        // It came too late.
        Reply::Granted(..) => waiting::failed(),
        Reply::Refused => unreachable!("what asks has an entry"),
    }
}

impl Client {
    /// What is asked for with a lease of its own.
    fn attempt(&mut self, client: usize, side: Side) -> Attempt {
        self.number += 1;
        let lease = Lease { client: client as u8, number: self.number, side };
        Attempt { lease, request: 0, told: None, misled: false, unanswered: false }
    }

    fn give_back(&mut self) {
        let held = self.held.take().expect("it is held");
        self.requests.push(Request::Release(held.lease, held.by_letter));
    }

    /// The lease in use that a grant of this one would be shared with.
    fn shared_with(&self, lease: Lease) -> Option<Lease> {
        let held = self.held.map(|held| held.lease);
        held.filter(|held| (held.side, lease.side) == (Side::Read, Side::Read))
    }

    /// Who may ask: one at a time, and nobody while a writer's lease may pass to the next.
    pub fn allowed(&self) -> Allowed {
        if self.ask.is_some() || self.writes() { Allowed::Fair } else { Allowed::All }
    }

    /// Lets those join who are the first to wait and share the lease.
    fn admit(&mut self) {
        let Some(held) = &mut self.held else { return };
        while held.lease.side == Side::Read && self.waiters.first() == Some(&Side::Read) {
            self.waiters.remove(0);
            held.users += 1;
        }
    }

    /// What was sent for a request whose answer is heard may run once more: nobody hears that.
    fn hears_no_more_of(&mut self, lease: Lease) {
        for request in &mut self.requests {
            match request {
                Request::Ask(other) if *other == lease => *request = Request::Echo(lease),
                Request::Inquire(_, number) if *number == lease.number => *number = 0,
                _ => {}
            }
        }
    }

    /// Listens on the channel if the machine has to hear it.
    fn listen(&mut self) {
        let wanted = !self.waiters.is_empty() && self.machine.watches();
        match self.channel {
            Channel::Off if wanted => self.channel = Channel::Subscribing,
            Channel::Subscribing | Channel::On if !wanted => {
                (self.channel, self.has_heard) = (Channel::Off, false);
            }
            _ => {}
        }
    }
}
