//! The rules: what the server does with a request, what a client does with an answer, a letter and time. Broken rules stand
//! beside the right ones, each named by a [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{Client, Delivery, Item, Lent, Letter, Phase, Reply, Request, State};
use crate::waiting::{self, About, Ends, Requests};

/// The rules, applied to one state.
pub struct Rules<'a, const C: usize> {
    /// The case.
    pub case: &'a Case<C>,
    /// The state that they change.
    pub state: &'a mut State<C>,
}

impl<const C: usize> Rules<'_, C> {
    // What the server does: lua/items.lua and the scripts behind it.

    /// Somebody pushes an item.
    pub fn push(&mut self, item: Item) {
        self.state.waiting.push(item);
        if !self.case.is(Wrong::PushUnheard) && self.serve(None) {
            self.tell_first();
        }
    }

    /// Runs the next request of `client`, which stays if it arrives `again`.
    pub fn run(&mut self, client: usize, again: bool) {
        let requests = &mut self.state.clients[client].requests;
        let request = if again { requests[0] } else { requests.remove(0) };
        let (Request::Ask(number)
        | Request::Echo(number)
        | Request::Renew(number)
        | Request::Look(number)
        | Request::Back(number)
        | Request::Done(number, _)) = request;
        let delivery = Delivery { client: client as u8, number };
        let reply = match request {
            Request::Ask(_) | Request::Echo(_) => self.pop(delivery),
            Request::Renew(_) | Request::Look(_) => match self.place(delivery) {
                Some(at) => {
                    self.state.lent[at].left = self.case.ttl;
                    let is = Reply::Is(self.state.lent[at].item);
                    if request == Request::Renew(number) { Reply::Ours } else { is }
                }
                None => Reply::Gone,
            },
            Request::Back(_) => return self.settle(delivery, None),
            Request::Done(_, item) => return self.settle(delivery, Some(item)),
        };
        let own = &mut self.state.clients[client];
        let is_heard = match request {
            Request::Ask(_) => own.waits(),
            Request::Look(_) => matches!(own.phase, Phase::Taken(_)),
            Request::Renew(_) => matches!(own.phase, Phase::Held(..)),
            _ => false,
        };
        if is_heard && own.asked.is_some() && own.number == number {
            own.reply = Some(reply);
        } else if let Reply::Granted(item) = reply
            && (own.number != number || own.phase == Phase::Idle)
        {
            // It was given up. The answer to an ask that was followed by another one for the same delivery is not read.
            own.stray = Some((number, item));
        }
    }

    fn pop(&mut self, delivery: Delivery) -> Reply {
        if let Some(at) = self.place(delivery)
            && !self.case.is(Wrong::LentAgain)
        {
            self.state.lent[at].left = self.case.ttl;
            let item = self.state.lent[at].item;
            if self.leave(delivery) {
                self.serve(None);
                self.tell_first();
            }
            return Reply::Granted(item);
        }
        let moved = self.serve(Some(delivery));
        let first = self.state.queue.first().copied();
        if first.is_none_or(|first| first == delivery)
            && let Some(item) = self.lend(delivery)
        {
            if self.leave(delivery) {
                self.serve(None);
                self.tell_first();
            }
            return Reply::Granted(item);
        }
        if !self.state.queue.contains(&delivery) {
            self.state.queue.push(delivery);
        }
        let is_first = self.state.queue.first() == Some(&delivery);
        if moved && !is_first {
            self.tell_first();
        }
        Reply::Queued(is_first, if is_first { self.ends() } else { BEHIND })
    }

    /// Ends a delivery. It is done if its client says so, and is given back otherwise.
    fn settle(&mut self, delivery: Delivery, done: Option<Item>) {
        let was_first = self.state.queue.first() == Some(&delivery);
        self.leave(delivery);
        let place = self.place(delivery);
        if let Some(at) = place {
            let Lent { item, .. } = self.state.lent.remove(at);
            // A request that ran late may have lent another item to the same delivery.
            let is_it = done == Some(item) || self.case.is(Wrong::AnyIsDone);
            if done.is_some() && is_it {
                self.state.seen.mixed |= done != Some(item);
                self.state.done.push(item);
                self.state.done.sort_unstable();
            } else {
                self.put(Lent { left: 0, item, to: None });
            }
        }
        if !self.case.is(Wrong::BackUnheard) {
            let moved = self.serve(None);
            if moved || was_first || place.is_some() {
                self.tell_first();
            }
        }
    }

    /// What the first in the queue is told of those who have items.
    fn ends(&self) -> Ends {
        Ends { in_ticks: self.state.lent.iter().map(|lent| lent.left).min(), foreign: false }
    }

    /// The prelude's `tell_first`: it passes over those that are gone.
    fn tell_first(&mut self) {
        let is_gone = |first: &Delivery| self.state.clients[usize::from(first.client)].is_dead();
        while self.state.queue.first().is_some_and(is_gone) {
            self.state.queue.remove(0);
        }
        if let Some(first) = self.state.queue.first().copied() {
            self.write(first, Letter::Next(self.ends()));
        }
    }

    fn write(&mut self, to: Delivery, letter: Letter) {
        if self.waits(to) {
            self.state.clients[usize::from(to.client)].letters.push(letter);
        }
    }

    /// Lends items to the first in the queue, as long as there are some, up to `mine`. Returns whether another one was the first
    /// before.
    fn serve(&mut self, mine: Option<Delivery>) -> bool {
        let mut moved = false;
        while let Some(first) = self.state.queue.first().copied() {
            if self.state.clients[usize::from(first.client)].is_dead() {
                self.state.queue.remove(0);
                moved = true;
                continue;
            }
            if Some(first) == mine {
                return moved;
            }
            let Some(item) = self.lend(first) else { return moved };
            self.state.queue.remove(0);
            moved = true;
            let item = (item < self.case.long_from).then_some(item);
            self.write(first, Letter::Grant(item, 0));
        }
        moved
    }

    /// Lends what is due, or the oldest item that nobody has had.
    fn lend(&mut self, delivery: Delivery) -> Option<Item> {
        let early = u8::from(self.case.is(Wrong::LentEarly));
        let due = self.state.lent.iter().position(|lent| lent.left <= early);
        let item = match due {
            Some(at) => {
                let lent = self.state.lent.remove(at);
                let dead = |to: Delivery| self.state.clients[usize::from(to.client)].is_dead();
                self.state.seen.came_back |= lent.to.is_some_and(dead);
                lent.item
            }
            None if self.state.waiting.is_empty() => return None,
            None => self.state.waiting.remove(0),
        };
        let before = self.state.queue.iter().take_while(|other| **other != delivery);
        let passed = before.into_iter().any(|other| self.waits(*other));
        self.state.seen.passed |= passed;
        self.put(Lent { left: self.case.ttl, item, to: Some(delivery) });
        Some(item)
    }

    fn put(&mut self, lent: Lent) {
        self.state.lent.push(lent);
        self.state.lent.sort_unstable();
    }

    fn place(&self, delivery: Delivery) -> Option<usize> {
        self.state.lent.iter().position(|lent| lent.to == Some(delivery))
    }

    /// Takes an entry out of the queue, if it is there.
    fn leave(&mut self, delivery: Delivery) -> bool {
        let before = self.state.queue.len();
        self.state.queue.retain(|other| *other != delivery);
        self.state.queue.len() < before
    }

    fn waits(&self, delivery: Delivery) -> bool {
        let client = &self.state.clients[usize::from(delivery.client)];
        client.waits() && client.number == delivery.number
    }

    // What clients do.

    /// Asks for the first time, by itself. Each delivery has a gate of its own.
    pub fn ask(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.number += 1;
        own.phase = Phase::First;
        own.send(Request::Ask(own.number));
    }

    /// Its request asks now: its timer has ended, or it polls.
    pub fn wake(&mut self, client: usize) {
        self.state.clients[client].machine.wake();
        self.drive(client);
    }

    /// Sends the ask whose time has come.
    fn drive(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        if own.machine.asks() {
            own.send(Request::Ask(own.number));
        }
    }

    /// Gives up, or gives back.
    pub fn back(&mut self, client: usize) {
        let silent = self.case.is(Wrong::SilentLeaver);
        let own = &mut self.state.clients[client];
        if !own.waits() || !silent {
            own.requests.push(Request::Back(own.number));
        }
        own.forget();
    }

    /// Reports the item as done.
    pub fn done(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let Phase::Held(item, _) = own.phase else { unreachable!("it works on one") };
        own.requests.push(Request::Done(own.number, item));
        own.forget();
    }

    /// Takes in an answer.
    pub fn hear(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let age = own.asked.take().expect("it waits for an answer");
        let reply = own.reply.take().expect("there is an answer");
        let until = self.case.lasts(age);
        match (reply, own.phase) {
            (Reply::Ours, Phase::Held(item, left)) => {
                own.phase = Phase::Held(item, left.max(until));
            }
            (Reply::Is(item), Phase::Taken(left)) => own.phase = Phase::Held(item, left),
            (Reply::Gone, _) => self.back(client),
            _ => self.hear_ask(client, reply, until),
        }
    }

    /// Takes in the answer to an ask. What it lends lasts for so long still.
    fn hear_ask(&mut self, client: usize, reply: Reply, until: u8) {
        let own = &mut self.state.clients[client];
        // What runs once more is not heard once more.
        for request in &mut own.requests {
            if let Request::Ask(number) = *request {
                *request = Request::Echo(number);
            }
        }
        let answer = match reply {
            Reply::Queued(is_first, ends) => waiting::refused(is_first, ends),
            // It came too late.
            _ => waiting::failed(),
        };
        if let Reply::Granted(item) = reply {
            own.content = Some((own.number, item));
            if until > 0 {
                return own.goes_on(Phase::Taken(until));
            }
        }
        if own.phase == Phase::First {
            own.phase = Phase::Waiting;
            own.machine.begun(answer);
            return self.drive(client);
        }
        let granted = waiting::granted(own.machine.answered(answer));
        self.take_up(client, granted);
    }

    /// Takes in the answer to a request that it has given up.
    pub fn hear_stray(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.content = own.stray.take();
    }

    /// Reads a letter.
    pub fn read(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let letter = own.letters.remove(0);
        let granted = waiting::granted(own.machine.letter(letter));
        self.take_up(client, granted);
    }

    /// Takes up what a letter granted. One that is late is confirmed.
    fn take_up(&mut self, client: usize, granted: Option<(Option<Item>, u8)>) {
        let keeps = self.case.is(Wrong::KeepsContent);
        let own = &mut self.state.clients[client];
        if let Some((item, age)) = granted {
            let until = self.case.lasts(age);
            if until > 0 {
                own.machine.taken_up();
                own.goes_on(Phase::Taken(until));
                if item.is_some() || !keeps {
                    own.content = item.map(|item| (own.number, item));
                }
                self.state.seen.by_letter |= item.is_some();
                self.state.seen.by_look |= item.is_none();
                return;
            }
            own.machine.confirm();
        }
        self.drive(client);
    }

    /// Looks which item it has: by what its grant has brought, or by asking.
    pub fn look(&mut self, client: usize) {
        let any = self.case.is(Wrong::AnyContent);
        let own = &mut self.state.clients[client];
        let Phase::Taken(left) = own.phase else { unreachable!("it has one") };
        match own.content {
            Some((number, item)) if number == own.number || any => {
                own.phase = Phase::Held(item, left);
            }
            _ => own.send(Request::Look(own.number)),
        }
    }

    /// Time passes. A client whose deadline has come has lost its item, and gives back what may be left of it.
    pub fn tick(&mut self) {
        for lent in &mut self.state.lent {
            lent.left = lent.left.saturating_sub(1);
        }
        self.state.lent.sort_unstable();
        let limit = self.case.ttl;
        for client in 0..C {
            let own = &mut self.state.clients[client];
            own.asked.iter_mut().for_each(|age| *age = (*age + 1).min(limit));
            own.letters.iter_mut().for_each(|letter| letter.age(limit));
            own.machine.tick(limit);
            if let Phase::Held(_, left) | Phase::Taken(left) = &mut own.phase {
                *left -= 1;
                if *left == 0 {
                    self.back(client);
                }
            }
        }
    }
}

/// What is told to one who is behind others.
const BEHIND: Ends = Ends { in_ticks: None, foreign: false };

impl Client {
    /// Sends what has an answer.
    pub fn send(&mut self, request: Request) {
        self.requests.push(request);
        self.asked = Some(0);
    }

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }

    /// Whether it waits for an item.
    pub fn waits(&self) -> bool {
        matches!(self.phase, Phase::First | Phase::Waiting)
    }

    /// It has what it waited for, or waits no more.
    fn goes_on(&mut self, phase: Phase) {
        self.phase = phase;
        (self.asked, self.reply) = (None, None);
        self.letters.clear();
        self.machine = Requests::default();
    }

    /// It has nothing, and waits for nothing. An answer may still come, and what the last grant has brought is kept.
    fn forget(&mut self) {
        if let Some(Reply::Granted(item)) = self.reply {
            self.stray = Some((self.number, item));
        }
        self.machine.clear();
        self.goes_on(Phase::Idle);
    }
}
