//! What clocks do, and the ends of leases.

use std::sync::Arc;

use super::case::Case;
use super::requests;
use super::server::Rules;
use super::state::{Holder, JavaPhase, Process, State};
use super::wire::{Ask, Grant, Message, Reply, Request};

impl Rules<'_> {
    /// A tick for all clocks, but for that of a process that is slow.
    pub fn tick(&mut self, but: Option<usize>) {
        self.tick_server();
        for process in (0..self.state.processes.len()).filter(|&process| Some(process) != but) {
            self.tick_process(process);
        }
        self.state.calm = (self.state.calm - 1).max(0);
        if self.case.delay.is_some() {
            for process in &mut self.state.processes {
                for message in &mut process.inbox {
                    if let Message::Grant(grant) = message {
                        grant.late += 1;
                    }
                }
            }
        }
    }

    /// A clock goes wrong by a tick.
    pub fn skew(&mut self, tick: impl FnOnce(&mut Self)) {
        self.state.spent.skew += 1;
        tick(self);
        self.state.calm = self.case.calm;
    }

    /// A tick of the server's clock: keys expire, and its wall clock is later than before.
    pub fn tick_server(&mut self) {
        // Java's watchdog renews its lease.
        let kept = matches!(self.state.lock.map(|lock| lock.holder), Some(Holder::Java(java))
            if self.state.javas[usize::from(java)].phase != JavaPhase::Ended);
        if let Some(lock) = &mut self.state.lock
            && !kept
        {
            lock.left -= 1;
            if lock.left == 0 {
                self.state.lock = None;
                self.wake_java();
            }
        }
        self.step(1);
        // The samples' offsets are from the client's clock to the server's: a tick of both leaves them.
    }

    fn wake_java(&mut self) {
        for java in &mut self.state.javas {
            java.woken |= java.watches.is_some();
        }
    }

    /// The server's wall clock is later by so much than it would have been: against the clients', samples are from
    /// later and grants from longer ago.
    pub fn step(&mut self, by: i8) {
        let stale = self.case.stale();
        for process in &mut self.state.processes {
            process.sample = process.sample.map(|offset| offset - by);
            process.sample_is_new &= self.case.slack == 0;
            each_offset(process, |offset| {
                if *offset < stale {
                    *offset -= by;
                }
            });
            each_grant(process, |grant| {
                grant.age = (grant.age + by).min(stale);
                if grant.age == stale {
                    grant.kept = 0;
                }
            });
        }
    }

    /// A tick of a process's clock: deadlines pass and timers end.
    pub fn tick_process(&mut self, process: usize) {
        let (old, stale) = (self.case.old(), self.case.stale());
        let own = &mut self.state.processes[process];
        own.quarantine = (own.quarantine - 1).max(0);
        own.sample = own.sample.map(|offset| offset + 1).filter(|offset| *offset < stale);
        own.sample_is_new &= self.case.slack == 0;
        each_offset(own, |offset| *offset = (*offset + 1).min(stale));
        each_age(own, |age| *age = (*age + 1).min(old));
        // It matters only where a clock steps, and the grant may still count.
        let steps = self.case.step != 0 || self.case.restart_step != 0;
        let kept = |grant: &mut Grant| grant.kept += i8::from(steps && grant.age < stale);
        each_letter(own, |letter| {
            if let Message::Grant(grant) = letter {
                kept(grant);
            }
        });
        for waiter in self.waiters_of(process) {
            let own = &mut self.state.waiters[waiter];
            if own.holds() {
                own.left -= 1;
                if own.left <= 0 {
                    self.release(waiter);
                }
            }
        }
    }

    /// The lease ends (without ticks): a ttl has passed since, so what tells of it is too old to count.
    pub fn expire(&mut self) {
        let (old, stale) = (self.case.old(), self.case.stale());
        let Some(lock) = self.state.lock.take() else {
            return;
        };
        for java in &mut self.state.javas {
            java.woken |= java.watches == Some(lock.holder);
        }
        self.end_timers(lock.holder);
        let Holder::Ours(id) = lock.holder else {
            return;
        };
        let process = &mut self.state.processes[self.case.home(id.waiter.into())];
        each_grant(process, |grant| {
            if grant.id == id {
                grant.age = stale;
            }
        });
        for reply in &mut process.replies {
            match reply {
                Reply::Granted { ask, .. } if ask.id == id => ask.age = old,
                _ => {}
            }
        }
    }

    /// What waits for the end of this holder's lease, or will, since it is told of it by what is on its way, asks soon.
    fn end_timers(&mut self, holder: Holder) {
        let over = |message: &mut Message| match message {
            Message::Next(_, lock) if lock.holder == holder => lock.left = 0,
            _ => {}
        };
        for process in &mut self.state.processes {
            for reply in &mut process.replies {
                if let Reply::Refused { lock: Some(lock), .. } = reply
                    && lock.holder == holder
                {
                    lock.left = 0;
                }
            }
            process.inbox.iter_mut().for_each(over);
            if process.machine.standings().next().is_some() {
                requests::ended(Arc::make_mut(&mut process.machine), holder, over);
            }
        }
    }
}

/// Whether the lease may end (without ticks): its client does not believe in it. If what tells the client is on its
/// way, that is late; `Some(true)` then.
pub fn may_expire(case: &Case, state: &State) -> Option<bool> {
    match state.lock?.holder {
        Holder::Java(java) => {
            let ended = state.javas[usize::from(java)].phase == JavaPhase::Ended;
            ended.then_some(false)
        }
        Holder::Ours(id) => {
            let process = &state.processes[case.home(id.waiter.into())];
            if !process.is_live() {
                return Some(false);
            }
            if state.wants(id) && state.waiters[usize::from(id.waiter)].holds() {
                return None;
            }
            let asks_soon = state.wants(id) && state.asks_soon(case, id.waiter.into());
            let on_its_way = asks_soon
                || process.sent.iter().any(|request| request.id() == id)
                || process.stray.iter().any(|request| request.id() == id)
                || process
                    .replies
                    .iter()
                    .any(|reply| reply.id() == id && !matches!(reply, Reply::Released(..)))
                || process.inbox.iter().any(|message| message.id() == Some(id));
            Some(on_its_way)
        }
    }
}

/// Whether something is under way for as long as it may be.
pub fn is_due(case: &Case, state: &State) -> bool {
    let Some(delay) = case.delay else {
        return false;
    };
    state.processes.iter().any(|process| {
        process.sent.iter().any(|request| matches!(request, Request::Ask(ask) if ask.age >= delay))
            || process
                .inbox
                .iter()
                .any(|message| matches!(message, Message::Grant(grant) if grant.late >= delay))
    })
}

/// The offsets in the answers on their way.
fn each_offset(process: &mut Process, change: impl Fn(&mut i8)) {
    for reply in &mut process.replies {
        if let Reply::Granted { offset, .. } | Reply::Refused { offset, .. } = reply {
            change(offset);
        }
    }
}

/// The ages of requests that are under way or whose answer is.
fn each_age(process: &mut Process, change: impl Fn(&mut i8)) {
    for request in process.sent.iter_mut().chain(&mut process.stray) {
        match request {
            Request::Ask(Ask { age, .. }) | Request::Renew(_, age) => change(age),
            Request::Release(..) => {}
        }
    }
    for reply in &mut process.replies {
        match reply {
            Reply::Granted { ask, .. } | Reply::Refused { ask, .. } => change(&mut ask.age),
            Reply::Renewed(_, age) => change(age),
            Reply::Gone(_) | Reply::Released(..) => {}
        }
    }
}

/// The letters that the machine keeps until an answer comes.
fn each_letter(process: &mut Process, change: impl Fn(&mut Message)) {
    if process.machine.letters().next().is_some() {
        Arc::make_mut(&mut process.machine).rename(|_, at| at, change);
    }
}

/// The grants by message that are on their way, or not read yet.
pub fn each_grant(process: &mut Process, change: impl Fn(&mut Grant)) {
    let change = |message: &mut Message| {
        if let Message::Grant(grant) = message {
            change(grant);
        }
    };
    process.inbox.iter_mut().for_each(change);
    each_letter(process, change);
}
