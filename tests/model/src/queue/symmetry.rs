//! What makes the model small: what can have no effect is dropped, and states that differ only in the names of waiters
//! and processes count as one.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::case::{Bug, Case};
use super::requests::{self, UNKNOWN};
use super::state::{Holder, Id, LastRelease, Lock, Process, State, Waiter};
use super::wire::{Ask, Asker, Grant, Message, Reply, Request};

/// New names: those of the waiters and of the processes, each at its old name.
#[derive(Clone, Debug)]
pub struct Names {
    waiters: Vec<u8>,
    processes: Vec<u8>,
}

/// The ways to rename that lead to a state of equal worth, but for leaving the names as they are.
pub fn renamings(case: &Case) -> Vec<Names> {
    let mut all = Vec::new();
    if !case.symmetry {
        return all;
    }
    for waiters in permutations(case.homes.len()) {
        for processes in permutations(case.processes()) {
            let fits = |waiter: usize| {
                let new: usize = waiters[waiter].into();
                case.homes[new] == processes[case.home(waiter)]
            };
            let moved = !waiters.is_sorted() || !processes.is_sorted();
            if moved && (0..waiters.len()).all(fits) {
                all.push(Names { waiters: waiters.clone(), processes });
            }
        }
    }
    all
}

fn permutations(count: usize) -> Vec<Vec<u8>> {
    let mut all = vec![vec![]];
    for name in 0..count {
        all = all
            .iter()
            .flat_map(|order: &Vec<u8>| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, name as u8);
                    longer
                })
            })
            .collect();
    }
    all
}

/// One state stands for all that differ in names: the least of them.
pub fn canonical(renamings: &[Names], state: State) -> State {
    // Few are as small as the least one in what is compared first, and only those are worth renaming as a whole.
    let mut head = Head::of(&state);
    let mut least = ArrayVec::<&Names, MOST>::new();
    for names in renamings {
        let other = names.head(&state);
        if other < head {
            least.clear();
        }
        if other <= head {
            least.push(names);
            head = other;
        }
    }
    match least.into_iter().map(|names| names.apply(&state)).min() {
        Some(other) if other < state => other,
        _ => state,
    }
}

/// There are no more ways to rename four waiters.
const MOST: usize = 24;

/// What is compared first of two states, in this order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    lock: Option<Lock>,
    queue: ArrayVec<Id, 6>,
    silent: Option<Id>,
    waiters: ArrayVec<Waiter, 4>,
}

impl Head {
    fn of(state: &State) -> Self {
        let State { lock, queue, silent, waiters, .. } = state;
        Head { lock: *lock, queue: queue.clone(), silent: *silent, waiters: waiters.clone() }
    }
}

impl Names {
    fn head(&self, state: &State) -> Head {
        let mut new = Head::of(state);
        for (old, waiter) in state.waiters.iter().enumerate() {
            new.waiters[usize::from(self.waiters[old])] = *waiter;
        }
        self.lock(&mut new.lock);
        new.queue.iter_mut().for_each(|id| self.id(id));
        new.silent.iter_mut().for_each(|id| self.id(id));
        new
    }

    fn apply(&self, state: &State) -> State {
        let mut new = state.clone();
        let Head { lock, queue, silent, waiters } = self.head(state);
        (new.lock, new.queue, new.silent, new.waiters) = (lock, queue, silent, waiters);
        for (old, process) in state.processes.iter().enumerate() {
            let renamed = &mut new.processes[usize::from(self.processes[old])];
            *renamed = process.clone();
            renamed
                .sent
                .iter_mut()
                .chain(&mut renamed.stray)
                .for_each(|request| self.request(request));
            renamed.replies.iter_mut().for_each(|reply| self.reply(reply));
            renamed.inbox.iter_mut().for_each(|message| self.message(message));
            if let LastRelease::Pending(id) = &mut renamed.last_release {
                self.id(id);
            }
            if process.machine.standings().next().is_some() {
                let machine = Arc::make_mut(&mut renamed.machine);
                let letter = |letter: &mut Message| self.message(letter);
                requests::renamed(machine, |holder| self.holder(holder), letter);
            }
        }
        for java in &mut new.javas {
            java.watches.iter_mut().for_each(|holder| self.holder(holder));
        }
        new.seen.arrivals.iter_mut().for_each(|id| self.id(id));
        new.seen.forced.iter_mut().for_each(|holder| self.holder(holder));
        new
    }

    fn id(&self, id: &mut Id) {
        id.waiter = self.waiters[usize::from(id.waiter)];
    }

    fn holder(&self, holder: &mut Holder) {
        if let Holder::Ours(id) = holder {
            self.id(id);
        }
    }

    fn lock(&self, lock: &mut Option<Lock>) {
        if let Some(lock) = lock {
            self.holder(&mut lock.holder);
        }
    }

    fn request(&self, request: &mut Request) {
        match request {
            Request::Ask(Ask { id, .. }) | Request::Release(id, _) | Request::Renew(id, _) => {
                self.id(id);
            }
        }
    }

    fn reply(&self, reply: &mut Reply) {
        match reply {
            Reply::Granted { ask, .. } => self.id(&mut ask.id),
            Reply::Refused { ask, lock, .. } => {
                self.id(&mut ask.id);
                self.lock(lock);
            }
            Reply::Renewed(id, _) | Reply::Gone(id) | Reply::Released(id, _) => self.id(id),
        }
    }

    fn message(&self, message: &mut Message) {
        match message {
            Message::Next(id, lock) => {
                self.id(id);
                self.holder(&mut lock.holder);
            }
            Message::Grant(Grant { id, .. }) | Message::Free(id) => self.id(id),
            Message::Released | Message::MailboxOn | Message::ChannelOn => {}
        }
    }
}

/// Drops what can have no effect any more: releases of what is not there and cannot get there, and what is heard about
/// leases that nobody wants (but an answer's sample).
pub fn tidy(case: &Case, state: &mut State) {
    state.silent = state.silent.filter(|id| state.queue.first() == Some(id));
    for process in 0..state.processes.len() {
        let mut own = std::mem::take(&mut state.processes[process]);
        if !case.is(Bug::OldIdAccepted) {
            own.inbox.retain(|message| message.id().is_none_or(|id| state.wants(id)));
        }
        own.replies.retain(|reply| {
            let samples = matches!(reply, Reply::Granted { offset, .. } | Reply::Refused { offset, .. }
                if *offset < case.stale());
            let machines = reply.ask().is_some_and(|ask| ask.asker != Asker::Itself);
            let released = matches!(reply, Reply::Released(..));
            machines || released || state.wants(reply.id()) || case.timed && samples
        });
        let all: ArrayVec<Request, 16> = own.stray.iter().chain(&own.sent).copied().collect();
        let works = |request: &Request| {
            let Request::Release(id, _) = request else {
                return true;
            };
            let awaited = own.last_release == LastRelease::Pending(*id);
            awaited
                || state.has(*id)
                || state.queue.contains(id)
                || all.iter().any(|other| other.creates(*id))
        };
        own.sent.retain(|request| works(request));
        own.stray.retain(|request| works(request));
        if case.timed {
            forget_ends(&mut own);
        }
        state.processes[process] = own;
    }
}

/// With ticks no timer follows from what is heard of another's lease.
fn forget_ends(process: &mut Process) {
    for reply in &mut process.replies {
        if let Reply::Refused { lock: Some(lock), .. } = reply {
            lock.left = UNKNOWN;
        }
    }
    for message in &mut process.inbox {
        if let Message::Next(_, lock) = message {
            lock.left = UNKNOWN;
        }
    }
}
