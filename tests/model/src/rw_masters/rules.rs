//! The rules: what a master does with a request, what a client does with answers and time. Broken rules stand beside the
//! right ones, each named by a [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{Answer, Client, Lease, MAJORITY, MASTERS, Master, Phase, Request, State};

/// The rules of a case, at work on a state.
pub struct Rules<'a, const C: usize> {
    /// The case.
    pub case: &'a Case<C>,
    /// The state.
    pub state: &'a mut State<C>,
}

impl<const C: usize> Master<C> {
    /// Whether a lease has a field here.
    fn has(&self, lease: Lease) -> bool {
        self.readers.iter().any(|(other, _)| *other == lease)
            || self.writer.is_some_and(|(other, _)| other == lease)
    }

    /// Takes out what readers left that have all ended.
    fn look(&mut self) {
        if self.readers.iter().all(|(_, left)| *left == 0) {
            self.readers.clear();
        }
    }

    fn put_reader(&mut self, lease: Lease, ttl: u8) {
        self.readers.retain(|(other, _)| *other != lease);
        self.readers.push((lease, ttl));
        self.readers.sort_unstable();
    }
}

impl<const C: usize> Rules<'_, C> {
    // What masters do.

    /// Runs the next request of a client.
    pub fn run(&mut self, client: usize, master: usize) {
        let line = &mut self.state.masters[master].lines[client];
        let request = line.requests.remove(0);
        let of = |number| Lease { client: client as u8, number };
        let (number, answer) = match request {
            Request::Read(number) => (number, self.acquire(master, of(number), false)),
            Request::Write(number) => (number, self.acquire(master, of(number), true)),
            Request::Downgrade(number, from) => {
                (number, self.downgrade(master, of(number), of(from)))
            }
            Request::Raise(number, to) => (number, self.raise(master, of(number), to)),
            Request::Release(number, withdraws) => {
                return self.release(master, of(number), withdraws);
            }
        };
        let own = self.state.clients[client];
        let line = &mut self.state.masters[master].lines[client];
        let is_waited_for = matches!(own.phase, Phase::Asking(_)) && own.number == number;
        if is_waited_for && line.answer.is_none() {
            line.answer = Some(answer);
        }
    }

    fn acquire(&mut self, master: usize, lease: Lease, writes: bool) -> Answer {
        let case = self.case;
        let it = &mut self.state.masters[master];
        it.look();
        let is_free = it.readers.is_empty() && it.writer.is_none();
        if writes && is_free {
            it.writer = Some((lease, case.ttl));
            it.counter += 1;
            it.next = None;
            return Answer::Granted(it.counter);
        }
        if !writes && it.writer.is_none() && it.next.is_none() {
            it.put_reader(lease, case.ttl);
            return Answer::Granted(it.counter);
        }
        if writes && it.writer.is_none() && !case.is(Wrong::NoReservation) {
            it.next = Some((lease, case.reserved));
        }
        Answer::Refused
    }

    fn downgrade(&mut self, master: usize, lease: Lease, from: Lease) -> Answer {
        let (ttl, anybody) = (self.case.ttl, self.case.is(Wrong::DowngradeOfAnybody));
        let it = &mut self.state.masters[master];
        match it.writer {
            Some((writer, _)) if writer == from || anybody => {
                it.writer = None;
                it.put_reader(lease, ttl);
                Answer::Granted(it.counter)
            }
            _ => Answer::Refused,
        }
    }

    fn raise(&mut self, master: usize, lease: Lease, to: u8) -> Answer {
        let it = &mut self.state.masters[master];
        if !it.has(lease) {
            return Answer::Refused;
        }
        it.counter = it.counter.max(to);
        Answer::Granted(to)
    }

    fn release(&mut self, master: usize, lease: Lease, withdraws: bool) {
        let any = self.case.is(Wrong::WithdrawsAny);
        let it = &mut self.state.masters[master];
        it.readers.retain(|(other, _)| *other != lease);
        it.look();
        if it.writer.is_some_and(|(writer, _)| writer == lease) {
            it.writer = None;
        }
        if withdraws && it.next.is_some_and(|(next, _)| next == lease || any) {
            it.next = None;
        }
    }

    // What clients do.

    /// Sends a request to all masters. What has no effect any more is not sent.
    fn send(&mut self, client: usize, request: Request) {
        for it in &mut self.state.masters {
            if let Request::Release(number, withdraws) = request {
                let lease = Lease { client: client as u8, number };
                let reserves = withdraws && it.next.is_some_and(|(next, _)| next == lease);
                let queued = it.lines[client].requests.iter().any(|sent| sent.number() == number);
                if !it.has(lease) && !reserves && !queued {
                    continue;
                }
            }
            it.lines[client].requests.push(request);
        }
    }

    fn expect_answers(&mut self, client: usize) {
        self.state.masters.iter_mut().for_each(|it| it.lines[client].answer = None);
        let own = &mut self.state.clients[client];
        (own.phase, own.age) = (Phase::Asking(None), 0);
    }

    /// Asks to write or to read, with a new lease.
    pub fn ask(&mut self, client: usize, writes: bool) {
        let behind = !writes && self.state.clients.iter().any(|it| it.writes && it.fresh > 0);
        let own = &mut self.state.clients[client];
        own.number += 1;
        (own.writes, own.behind) = (writes, behind);
        let number = own.number;
        self.expect_answers(client);
        self.send(client, if writes { Request::Write(number) } else { Request::Read(number) });
    }

    /// Asks to read in the place of the writer.
    pub fn downgrade_to_reader(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.kept = Some(own.number);
        own.number += 1;
        (own.writes, own.behind) = (false, false);
        let number = own.number;
        self.expect_answers(client);
        self.send(client, Request::Downgrade(number, number - 1));
    }

    /// Decides by the answers, if they suffice.
    pub fn decide(&mut self, client: usize) {
        let own = self.state.clients[client];
        let Phase::Asking(lifting) = own.phase else { unreachable!("it has asked") };
        let answers = self.state.answers(client);
        let ends = answers.iter().flatten().filter_map(|answer| match answer {
            Answer::Granted(end) => Some(*end),
            Answer::Refused => None,
        });
        let enough = match own.writes {
            false if self.case.is(Wrong::OneMasterToRead) => 1,
            _ => MAJORITY,
        };
        if ends.clone().count() < enough {
            return self.refused(client);
        }
        let end = lifting.or(ends.clone().max()).expect("somebody granted it");
        let settled = (!own.writes && self.case.is(Wrong::ReadNotRaised)) || enough == 1;
        if ends.filter(|given| *given == end).count() >= MAJORITY || settled {
            return self.granted(client, end);
        }
        self.state.seen.raised = true;
        self.state.clients[client].phase = Phase::Asking(Some(end));
        for it in &mut self.state.masters {
            let line = &mut it.lines[client];
            match line.answer {
                Some(Answer::Granted(given)) if given != end => {
                    line.answer = None;
                    line.requests.push(Request::Raise(own.number, end));
                }
                // An acquire that runs from here on does not count.
                None => line.answer = Some(Answer::Refused),
                Some(_) => {}
            }
        }
    }

    fn granted(&mut self, client: usize, token: u8) {
        let own = self.state.clients[client];
        let age = if self.case.is(Wrong::DeadlineFromReceipt) { 0 } else { own.age };
        let left = self.case.ttl.saturating_sub(age);
        if left == 0 {
            return self.refused(client);
        }
        let seen = &mut self.state.seen;
        if own.writes {
            seen.disorder |= token <= seen.written.max(seen.read);
            seen.written = seen.written.max(token);
            seen.writer_got_in |= own.kept.is_some();
        } else {
            seen.disorder |= token < seen.written;
            seen.read = seen.read.max(token);
            seen.downgraded |= own.kept.is_some();
            let waits = |it: &Client| it.writes && it.fresh > 0;
            seen.passed |= own.behind && self.state.clients.iter().any(waits);
        }
        self.give_back_kept(client);
        self.state.clients[client].phase = Phase::Held(left);
        self.forget_answers(client);
        if own.writes {
            self.no_longer_waits(client);
        }
    }

    /// Gives back what it was granted. A writer keeps its reservation, until the next request was answered.
    fn refused(&mut self, client: usize) {
        let own = self.state.clients[client];
        self.give_back_kept(client);
        if !own.writes {
            self.send(client, Request::Release(own.number, true));
        } else {
            if !self.case.is(Wrong::RefusedKeeps) {
                self.send(client, Request::Release(own.number, false));
            }
            let own = &mut self.state.clients[client];
            own.kept = Some(own.number);
            own.fresh = self.case.reserved.saturating_sub(own.age);
        }
        self.state.clients[client].phase = Phase::Waiting;
        self.forget_answers(client);
    }

    /// Gives its request up without an answer, and will ask again.
    pub fn fail(&mut self, client: usize) {
        let own = self.state.clients[client];
        self.send(client, Request::Release(own.number, true));
        self.state.clients[client].phase = Phase::Waiting;
        self.forget_answers(client);
        if own.writes {
            self.no_longer_waits(client);
        } else {
            self.give_back_kept(client);
        }
    }

    /// Gives up, or gives back.
    pub fn end(&mut self, client: usize) {
        let withdraws = !self.case.is(Wrong::NeverWithdrawn);
        let own = self.state.clients[client];
        self.give_back_kept(client);
        if own.phase != Phase::Waiting {
            self.send(client, Request::Release(own.number, withdraws));
        }
        self.state.clients[client].phase = Phase::Idle;
        self.forget_answers(client);
        self.no_longer_waits(client);
    }

    fn give_back_kept(&mut self, client: usize) {
        let withdraws = !self.case.is(Wrong::NeverWithdrawn);
        if let Some(number) = self.state.clients[client].kept.take() {
            self.send(client, Request::Release(number, withdraws));
        }
    }

    /// Ends at once. What it sent goes on.
    pub fn crash(&mut self, client: usize) {
        self.no_longer_waits(client);
        let own = &mut self.state.clients[client];
        *own = Client { phase: Phase::Dead, number: own.number, ..Client::default() };
        self.forget_answers(client);
    }

    /// Whoever came behind this writer is behind it no more.
    fn no_longer_waits(&mut self, client: usize) {
        self.state.clients[client].fresh = 0;
        self.state.clients.iter_mut().for_each(|it| it.behind = false);
    }

    /// They have served. It also asks for nothing any more.
    fn forget_answers(&mut self, client: usize) {
        self.state.masters.iter_mut().for_each(|it| it.lines[client].answer = None);
        let own = &mut self.state.clients[client];
        own.age = 0;
        if !matches!(own.phase, Phase::Asking(_) | Phase::Waiting) {
            own.behind = false;
        }
    }

    /// Time passes. A client whose deadline has come has lost the lock, and releases what may be left of it.
    pub fn tick(&mut self) {
        for it in &mut self.state.masters {
            it.readers.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
            it.look();
            let passed = |(lease, left): (Lease, u8)| (left > 1).then(|| (lease, left - 1));
            it.writer = it.writer.and_then(passed);
            it.next = it.next.and_then(passed);
        }
        let limit = self.case.ttl.max(self.case.reserved);
        for client in 0..C {
            let own = &mut self.state.clients[client];
            own.fresh = own.fresh.saturating_sub(1);
            match &mut own.phase {
                Phase::Asking(_) => own.age = (own.age + 1).min(limit),
                Phase::Held(left) => {
                    *left -= 1;
                    if *left == 0 {
                        self.end(client);
                    }
                }
                _ => {}
            }
        }
        if !self.state.clients.iter().any(|it| it.fresh > 0) {
            self.state.clients.iter_mut().for_each(|it| it.behind = false);
        }
    }
}

impl Request {
    /// Returns the number of its lease.
    pub fn number(self) -> u8 {
        match self {
            Self::Read(number)
            | Self::Write(number)
            | Self::Downgrade(number, _)
            | Self::Raise(number, _)
            | Self::Release(number, _) => number,
        }
    }
}

impl<const C: usize> State<C> {
    /// Returns the masters' answers to a client.
    pub fn answers(&self, client: usize) -> [Option<Answer>; MASTERS] {
        std::array::from_fn(|master| self.masters[master].lines[client].answer)
    }

    /// Whether a client can decide: a majority granted it, or can no longer.
    pub fn is_decided(&self, client: usize, enough: usize) -> bool {
        let answers = self.answers(client);
        let granted = |answer: &&Answer| matches!(answer, Answer::Granted(_));
        let yes = answers.iter().flatten().filter(granted).count();
        let no = answers.iter().flatten().count() - yes;
        match self.clients[client].phase {
            // Those that had the token already do not answer again.
            Phase::Asking(Some(_)) => yes >= MAJORITY || no > MASTERS - MAJORITY,
            _ => yes >= enough || no > MASTERS - MAJORITY,
        }
    }
}
