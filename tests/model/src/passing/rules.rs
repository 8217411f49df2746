//! What the process and the server do.

use super::case::{Case, Wrong};
use super::state::{BLOCK, Holder, Lease, Reply, Request, Seat, State, TTL, Task, WINDOW};

/// The rules of a case, at work on a state.
pub struct Rules<'a> {
    /// The case.
    pub case: &'a Case,
    /// The state that they change.
    pub state: &'a mut State,
}

impl Rules<'_> {
    /// A task arrives at the gate.
    pub fn arrive(&mut self, task: u8) {
        self.state.spent.turns += 1;
        self.state.tasks[usize::from(task)] = Task::Waiting;
        if let Seat::Unsent(lease, _) = self.state.seat {
            if self.fits(lease, true) {
                self.state.seen.taken_back = true;
                return self.hold(lease, task);
            }
            if self.case.is(Wrong::NotSentForOthers) {
                return;
            }
            self.state.seen.sent_for = true;
            self.send_unsent();
        }
        if self.state.seat == Seat::Free && self.state.request.is_none() {
            self.ask(task);
        }
    }

    /// The process asks for a task.
    pub fn ask(&mut self, task: u8) {
        if self.state.spent.asks < self.case.asks {
            self.state.spent.asks += 1;
            let id = self.state.spent.asks;
            self.state.request = Some((task, id));
            self.state.sent.push(Request::Acquire(id));
        }
    }

    /// A task leaves the lock.
    pub fn leave(&mut self, task: u8, awaited: bool) {
        let Seat::Held(lease, _) = self.state.seat else { return };
        self.state.tasks[usize::from(task)] = Task::Idle;
        let next = self.state.tasks.iter().position(|task| *task == Task::Waiting);
        if let Some(next) = next.filter(|_| self.fits(lease, false)) {
            return self.hold(lease, next as u8);
        }
        if awaited && next.is_none() && self.fits(lease, false) {
            self.state.seat = Seat::Unsent(lease, task);
            self.state.tasks[usize::from(task)] = Task::Parting;
            return;
        }
        self.state.seat = Seat::Free;
        self.state.sent.push(Request::Release(lease.id, awaited));
        if awaited {
            self.state.tasks[usize::from(task)] = Task::Releasing(lease.id);
        }
    }

    /// An unlock goes on, or is dropped.
    pub fn part(&mut self, task: u8, dropped: bool) {
        self.state.tasks[usize::from(task)] = Task::Idle;
        match self.state.seat {
            Seat::Unsent(lease, owner) if owner == task => {
                if dropped && self.case.is(Wrong::NotSentWhenDropped) {
                    return;
                }
                self.state.seat = Seat::Free;
                self.state.sent.push(Request::Release(lease.id, !dropped));
                if !dropped {
                    self.state.tasks[usize::from(task)] = Task::Releasing(lease.id);
                }
            }
            Seat::Held(lease, _) if self.case.is(Wrong::SentAfterAll) => {
                self.state.sent.push(Request::Release(lease.id, false));
            }
            _ => {}
        }
    }

    /// Sends a release that was not sent, for another than its unlock.
    pub fn send_unsent(&mut self) {
        let Seat::Unsent(lease, owner) = self.state.seat else { return };
        let owner = &mut self.state.tasks[usize::from(owner)];
        let awaited = *owner == Task::Parting;
        self.state.sent.push(Request::Release(lease.id, awaited));
        self.state.seat = Seat::Free;
        if awaited && !self.case.is(Wrong::NotTold) {
            *owner = Task::Releasing(lease.id);
        }
    }

    /// A hold whose deadline has passed.
    pub fn evict(&mut self) {
        if let Seat::Held(lease, task) = self.state.seat {
            self.state.tasks[usize::from(task)] = Task::Idle;
            self.state.seat = Seat::Free;
            self.state.sent.push(Request::Release(lease.id, false));
        }
    }

    /// The server runs the first request.
    pub fn run(&mut self) {
        match self.state.sent.remove(0) {
            Request::Acquire(id) => self.take_or_queue(Holder::Ours(id)),
            Request::Release(id, awaited) => {
                let held = self.state.lock.is_some_and(|(holder, _)| holder == Holder::Ours(id));
                if held {
                    self.free();
                }
                self.state.replies.push(Reply::Released { id, held, awaited });
            }
        }
    }

    /// The lock goes to who asks, or that one waits.
    pub fn take_or_queue(&mut self, who: Holder) {
        if self.state.lock.is_none() && self.state.queue.is_empty() {
            self.grant(who);
        } else if !self.state.queue.contains(&who) {
            self.state.queue.push(who);
        }
    }

    /// The lock goes to the first who waits, if one does.
    pub fn free(&mut self) {
        self.state.lock = None;
        if !self.state.queue.is_empty() {
            let next = self.state.queue.remove(0);
            self.grant(next);
        }
    }

    fn grant(&mut self, who: Holder) {
        self.state.lock = Some((who, TTL));
        match who {
            Holder::Other => {
                self.state.counter += 1;
                let token = self.state.counter;
                self.begins(token);
                self.state.other = Some(TTL);
            }
            Holder::Ours(id) => {
                let tokens = (self.state.counter + 1, self.state.counter + BLOCK);
                self.state.counter += BLOCK;
                self.state.replies.push(Reply::Granted(Lease { id, left: TTL, age: 0, tokens }));
            }
        }
    }

    /// The process hears the first answer.
    pub fn hear(&mut self) {
        match self.state.replies.remove(0) {
            Reply::Granted(lease) => {
                let Some((task, id)) = self.state.request.take() else { return };
                assert_eq!((id, self.state.seat), (lease.id, Seat::Free), "one request at a time");
                if lease.left == 0 {
                    self.state.sent.push(Request::Release(lease.id, false));
                    return;
                }
                self.hold(lease, task);
            }
            Reply::Released { id, held, awaited } => {
                let its = self.state.tasks.iter_mut().find(|task| **task == Task::Releasing(id));
                match its {
                    Some(task) => *task = Task::Idle,
                    None => self.state.seen.untold |= awaited && !held,
                }
            }
        }
    }

    /// Time passes everywhere.
    pub fn tick(&mut self) {
        let state = &mut *self.state;
        if let Some((_, left)) = &mut state.lock {
            *left = left.saturating_sub(1);
        }
        let granted = state.replies.iter_mut().filter_map(|reply| match reply {
            Reply::Granted(lease) => Some(lease),
            Reply::Released { .. } => None,
        });
        let seated = match &mut state.seat {
            Seat::Held(lease, _) | Seat::Unsent(lease, _) => Some(lease),
            Seat::Free => None,
        };
        for lease in granted.chain(seated) {
            lease.left = lease.left.saturating_sub(1);
            lease.age = (lease.age + 1).min(WINDOW + 1);
        }
        if let Some(left) = &mut state.other {
            *left = left.saturating_sub(1);
        }
        if state.lock.is_some_and(|(_, left)| left == 0) {
            // Whoever waits is woken by its timer.
            self.free();
        }
    }

    /// Whether a next hold may use a lease as it is.
    fn fits(&self, lease: Lease, taken_back: bool) -> bool {
        let any_age = taken_back && self.case.is(Wrong::TakenBackAtAnyAge);
        (lease.age < WINDOW || any_age) && lease.left > TTL / 2 && lease.tokens.0 <= lease.tokens.1
    }

    fn hold(&mut self, mut lease: Lease, task: u8) {
        let again = matches!(self.state.seat, Seat::Unsent(..)) && self.case.is(Wrong::TokenKept);
        self.begins(lease.tokens.0 - u8::from(again));
        self.state.seen.too_old |= self.state.seat != Seat::Free && lease.age >= WINDOW;
        lease.tokens.0 += u8::from(!again);
        self.state.seat = Seat::Held(lease, task);
        self.state.tasks[usize::from(task)] = Task::Held;
    }

    fn begins(&mut self, token: u8) {
        let seen = &mut self.state.seen;
        seen.disorder |= token <= seen.token;
        seen.token = token;
    }
}
