//! What a client does: with an answer, a letter and time.

use super::case::Wrong;
use super::server::Rules;
use super::state::{Client, Held, Lease, Letter, Reply, Request, Side, Want};

impl<const C: usize> Rules<'_, C> {
    /// Asks for the first time.
    pub fn ask(&mut self, client: usize, side: Side) {
        let own = &mut self.state.clients[client];
        own.number += 1;
        let lease = Lease { client: client as u8, number: own.number, side };
        own.want = Some(Want::new(lease));
        self.ask_again(client);
    }

    /// Asks again, if that has not come about too often.
    pub fn ask_repeatedly(&mut self, client: usize) {
        if self.state.spent.repeats < self.case.repeats {
            self.state.spent.repeats += 1;
            self.ask_again(client);
        }
    }

    /// Sends the ask for what it waits for. Behind it goes the question whether the lease is still there that it would share.
    pub fn ask_again(&mut self, client: usize) {
        let looks = !self.case.is(Wrong::JoinsUnseen);
        let own = &mut self.state.clients[client];
        let want = own.want.as_mut().expect("it waits");
        let shared = own
            .held
            .map(|held| held.lease)
            .filter(|held| looks && (held.side, want.lease.side) == (Side::Read, Side::Read));
        want.asked = Some((0, None));
        want.overtaken = false;
        want.inquiry = shared.map(|_| None);
        let asks = std::iter::once(Request::Ask(want.lease));
        let inquires = shared.map(|held| Request::Inquire(held, want.lease.number));
        if self.case.is(Wrong::LooksBeforeAsk) {
            own.requests.extend(inquires.into_iter().chain(asks));
        } else {
            own.requests.extend(asks.chain(inquires));
        }
    }

    /// One who uses the lease is through; the last one gives it back.
    pub fn leave_seat(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let held = own.held.as_mut().expect("it is held");
        held.users -= 1;
        if held.users == 0 {
            own.give_back();
        }
    }

    /// The last one who uses the lease is through before its shortest hold is over.
    pub fn leave_part(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let held = own.held.take().expect("it is held");
        own.requests.push(Request::Keep(held.lease));
    }

    /// Gives up waiting.
    pub fn give_up(&mut self, client: usize) {
        let silent = self.case.is(Wrong::SilentLeaver);
        let own = &mut self.state.clients[client];
        let want = own.want.take().expect("it waits");
        own.letters.clear();
        if !silent {
            own.requests.push(Request::Release(want.lease));
        }
        // The release of the writer is behind the acquire in its place.
        own.requests.extend(want.replaced().map(Request::Release));
    }

    /// The writer becomes a reader. Until the answer it is neither.
    pub fn downgrade(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let writer = own.held.take().expect("it is held").lease;
        own.number += 1;
        let lease = Lease { number: own.number, side: Side::Read, ..writer };
        let from = Some(writer.number);
        own.want = Some(Want { from, asked: Some((0, None)), ..Want::new(lease) });
        own.requests.push(Request::Replace(lease, writer.number));
    }

    /// Renews the lease.
    pub fn send_renewal(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let held = own.held.as_mut().expect("it is held");
        held.renewal = Some((0, None));
        own.requests.push(Request::Renew(held.lease));
    }

    /// Takes in the answer to an ask.
    pub fn hear(&mut self, client: usize) {
        let want = self.state.clients[client].want.as_mut().expect("it waits");
        let Some((age, Some(reply))) = want.asked.take() else { unreachable!("it is answered") };
        let is_downgrade = want.from.is_some();
        if let Some(is_there) = want.inquiry.take() {
            let is_there = is_there.expect("it is answered");
            self.state.seen.replaced |= !is_there && matches!(reply, Reply::Granted(..));
            self.confirmed(client, age, is_there);
        }
        let want = self.state.clients[client].want.as_mut().expect("it waits");
        match reply {
            Reply::Granted(token, before) => {
                let keeps = self.case.is(Wrong::KeepsWhatItWasTold);
                let told = want.told.filter(|(of, _)| keeps || *of == token);
                let before = before.or(told.map(|(_, before)| before));
                self.granted(client, age, token, before);
            }
            Reply::Queued(..) if is_downgrade => self.give_up(client),
            Reply::Queued(first, listens) => (want.first, want.listens) = (first, listens),
        }
    }

    /// Takes in the answer to a renewal.
    pub fn hear_renewal(&mut self, client: usize) {
        let held = self.state.clients[client].held.as_mut().expect("it is held");
        let Some((age, Some(is_there))) = held.renewal.take() else {
            unreachable!("it is answered")
        };
        self.confirmed(client, age, is_there);
    }

    /// Whether its lease is there, as the server has answered what was sent `age` ago. It may have left it since.
    fn confirmed(&mut self, client: usize, age: u8, is_there: bool) {
        let receipt = self.case.is(Wrong::DeadlineFromReceipt);
        let own = &mut self.state.clients[client];
        let Some(held) = &mut own.held else { return };
        if is_there {
            let age = if receipt { 0 } else { age };
            held.left = held.left.max(self.case.ttl.saturating_sub(age));
        } else {
            own.give_back();
        }
    }

    /// Takes in a letter.
    pub fn read(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let letter = own.letters.remove(0);
        let want = own.want.as_mut().expect("letters are about what it waits for");
        match letter {
            Letter::First(_, listens) => (want.first, want.listens) = (true, listens),
            Letter::Grant(_, age, token, before) => {
                if age >= self.case.ttl && !self.case.is(Wrong::DeadlineFromReceipt) {
                    want.told = before.map(|before| (token, before));
                    return self.ask_repeatedly(client);
                }
                // Whether the lease is there that it would share, only an ask finds out.
                let shares = want.lease.side == Side::Read && own.held.is_some();
                if shares && !self.case.is(Wrong::JoinsByLetter) {
                    want.told = None;
                    return self.ask_repeatedly(client);
                }
                self.state.seen.by_letter = true;
                self.granted(client, age, token, before);
            }
        }
    }

    /// What it asked for is granted, at most `age` ago.
    fn granted(&mut self, client: usize, age: u8, token: u8, before: Option<u8>) {
        let age = if self.case.is(Wrong::DeadlineFromReceipt) { 0 } else { age };
        let left = self.case.ttl.saturating_sub(age);
        let own = &mut self.state.clients[client];
        let want = own.want.expect("it waits");
        if left == 0 {
            return self.give_up(client);
        }
        // What was ended by force may be held still by those who were let in before, behind others.
        let is_forced = |lease| self.state.seen.forced.iter().any(|(other, _)| *other == lease);
        if let Some(held) = &mut own.held {
            if want.lease.side == Side::Read {
                // Nobody was before its readers: another one joins them, and what it asked with goes back.
                held.users += 1;
                let is_excused = is_forced(held.lease) && want.overtaken;
                held.joined_late |= is_forced(held.lease) && !want.overtaken;
                self.state.seen.reopened = true;
                let token = held.token;
                if !is_excused {
                    self.note_token(Side::Read, token);
                }
                return self.give_up(client);
            }
            self.state.seen.beside_itself |= !is_forced(held.lease);
            own.give_back();
        }
        let is_excused = is_forced(want.lease);
        own.held = Some(Held {
            lease: want.lease,
            left,
            users: 1,
            token,
            joined_late: false,
            renewal: None,
        });
        own.want = None;
        own.letters.clear();
        own.requests.extend(want.replaced().map(Request::Release));
        // Nobody may have written whose token is higher.
        self.state.seen.unnoticed |= before.is_some_and(|before| before < self.state.seen.written);
        if !is_excused {
            self.note_token(want.lease.side, token);
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
        for own in &mut self.state.clients {
            let older = |age: &mut u8| *age = (*age + 1).min(limit);
            own.want.iter_mut().flat_map(|want| &mut want.asked).for_each(|(age, _)| older(age));
            for letter in &mut own.letters {
                if let Letter::Grant(_, age, ..) = letter {
                    older(age);
                }
            }
            if let Some(held) = &mut own.held {
                held.renewal.iter_mut().for_each(|(age, _)| older(age));
                held.left -= 1;
                if held.left == 0 {
                    own.give_back();
                }
            }
        }
    }
}

impl Client {
    fn give_back(&mut self) {
        let held = self.held.take().expect("it is held");
        self.requests.push(Request::Release(held.lease));
    }
}

impl Want {
    /// What is wanted, and was not asked for yet.
    fn new(lease: Lease) -> Self {
        Want {
            lease,
            from: None,
            first: false,
            told: None,
            listens: false,
            asked: None,
            inquiry: None,
            overtaken: false,
        }
    }

    /// The writer in whose place it is to be.
    pub fn replaced(&self) -> Option<Lease> {
        self.from.map(|number| Lease { number, side: Side::Write, ..self.lease })
    }
}
