//! The rules: what the server does with a request, what a client does with an answer, a letter and time. Broken rules stand
//! beside the right ones, each named by a [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{Client, Delivery, Item, Lent, Letter, Phase, Reply, Request, State};

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
        if !self.case.is(Wrong::PushUnheard) {
            self.serve(None);
        }
    }

    /// Runs the next request of `client`, which stays if it arrives `again`.
    pub fn run(&mut self, client: usize, again: bool) {
        let requests = &mut self.state.clients[client].requests;
        let request = if again { requests[0] } else { requests.remove(0) };
        let (Request::Ask(number)
        | Request::Renew(number)
        | Request::Look(number)
        | Request::Back(number)
        | Request::Done(number, _)) = request;
        let delivery = Delivery { client: client as u8, number };
        let reply = match request {
            Request::Ask(_) => self.pop(delivery),
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
        if own.asked.is_some() && own.number == number {
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
            }
            return Reply::Granted(item);
        }
        self.serve(Some(delivery));
        let first = self.state.queue.first().copied();
        if first.is_none_or(|first| first == delivery)
            && let Some(item) = self.lend(delivery)
        {
            if self.leave(delivery) {
                self.serve(None);
            }
            return Reply::Granted(item);
        }
        if !self.state.queue.contains(&delivery) {
            self.state.queue.push(delivery);
        }
        Reply::Queued
    }

    /// Ends a delivery. It is done if its client says so, and is given back otherwise.
    fn settle(&mut self, delivery: Delivery, done: Option<Item>) {
        self.leave(delivery);
        if let Some(at) = self.place(delivery) {
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
            self.serve(None);
        }
    }

    /// Lends items to the first in the queue, as long as there are some, up to `mine`.
    fn serve(&mut self, mine: Option<Delivery>) {
        while let Some(first) = self.state.queue.first().copied() {
            if self.state.clients[usize::from(first.client)].is_dead() {
                self.state.queue.remove(0);
                continue;
            }
            if Some(first) == mine {
                return;
            }
            let Some(item) = self.lend(first) else { return };
            self.state.queue.remove(0);
            let item = (item < self.case.long_from).then_some(item);
            let letters = &mut self.state.clients[usize::from(first.client)].letters;
            letters.push(Letter { number: first.number, item, age: 0 });
        }
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
        client.phase == Phase::Waiting && client.number == delivery.number
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
    pub fn back(&mut self, client: usize) {
        let silent = self.case.is(Wrong::SilentLeaver);
        let own = &mut self.state.clients[client];
        if own.phase != Phase::Waiting || !silent {
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
        let receipt = self.case.is(Wrong::DeadlineFromReceipt);
        let own = &mut self.state.clients[client];
        let age = own.asked.take().expect("it waits for an answer");
        let until = self.case.ttl.saturating_sub(if receipt { 0 } else { age });
        match (own.reply.take().expect("there is an answer"), own.phase) {
            (Reply::Granted(item), _) => {
                own.content = Some((own.number, item));
                // One that is late is confirmed by another ask.
                if until > 0 {
                    own.phase = Phase::Taken(until);
                }
            }
            (Reply::Ours, Phase::Held(item, left)) => {
                own.phase = Phase::Held(item, left.max(until));
            }
            (Reply::Is(item), Phase::Taken(left)) => own.phase = Phase::Held(item, left),
            (Reply::Gone, _) => self.back(client),
            _ => {}
        }
    }

    /// Takes in the answer to a request that it has given up.
    pub fn hear_stray(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.content = own.stray.take();
    }

    /// Takes in a letter.
    pub fn read(&mut self, client: usize) {
        let receipt = self.case.is(Wrong::DeadlineFromReceipt);
        let keeps = self.case.is(Wrong::KeepsContent);
        let own = &mut self.state.clients[client];
        let Letter { number, item, age } = own.letters.remove(0);
        let until = self.case.ttl.saturating_sub(if receipt { 0 } else { age });
        // One that is late is confirmed by the next poll.
        if own.phase == Phase::Waiting && own.number == number && until > 0 {
            own.phase = Phase::Taken(until);
            if item.is_some() || !keeps {
                own.content = item.map(|item| (number, item));
            }
            self.state.seen.by_letter |= item.is_some();
            self.state.seen.by_look |= item.is_none();
        }
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
            let ages = own.asked.iter_mut().chain(own.letters.iter_mut().map(|it| &mut it.age));
            ages.for_each(|age| *age = (*age + 1).min(limit));
            if let Phase::Held(_, left) | Phase::Taken(left) = &mut own.phase {
                *left -= 1;
                if *left == 0 {
                    self.back(client);
                }
            }
        }
    }
}

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

    /// It has nothing, and waits for nothing. An answer may still come, and what the last grant has brought is kept.
    fn forget(&mut self) {
        self.phase = Phase::Idle;
        if let Some(Reply::Granted(item)) = self.reply.take() {
            self.stray = Some((self.number, item));
        }
        self.asked = None;
        self.letters.clear();
    }
}
