//! What must hold, and what is kept for that of what has happened.

use super::case::{Bug, Case};
use super::requests::WaitsFor;
use super::server::{Keep, Rules};
use super::state::{Holder, Hub, Id, JavaPhase, Lock, Phase, Process, State};
use super::time::{each_grant, may_expire};
use super::wire::{Asker, Reply, Request};

/// So many tokens and more count as the same.
const MANY: u8 = 15;

impl Rules<'_> {
    /// A new token was given.
    pub fn note_token(&mut self) {
        if !self.keep.tokens {
            return;
        }
        let older = |token: &mut u8| *token = (*token + 1).min(MANY);
        for process in &mut self.state.processes {
            each_grant(process, |grant| older(&mut grant.token));
            for reply in &mut process.replies {
                if let Reply::Granted { token, .. } = reply {
                    older(token);
                }
            }
        }
        for waiter in &mut self.state.waiters {
            if waiter.told || waiter.holds() {
                older(&mut waiter.token);
            }
        }
        self.state.seen.token.as_mut().map(older);
    }

    /// A waiter holds the lock, with this token.
    pub fn note_hold(&mut self, token: u8) {
        let seen = &mut self.state.seen;
        if self.keep.tokens {
            seen.token_disorder |= seen.token.is_some_and(|last| token >= last);
            seen.token = Some(token);
        }
        if self.keep.happened && matches!(seen.happened.alternated, 0 | 2) {
            seen.happened.alternated += 1;
        }
    }

    /// A lease of ours took the lock.
    pub fn note_turn(&mut self, id: Id, raced: bool) {
        self.state.processes.iter_mut().for_each(|process| process.rests = false);

        let java_waits = self.state.javas.iter().any(|java| {
            java.subscribed && matches!(java.phase, JavaPhase::AskingAgain | JavaPhase::Waiting)
        });
        let seen = &mut self.state.seen;
        if self.keep.order {
            seen.order_broken |= seen.arrivals.first().is_some_and(|first| *first != id);
            seen.arrivals.retain(|arrived| *arrived != id);
        }
        if self.keep.turns {
            // Where there is no queue, a newcomer that came first has not taken a chance of Java away.
            let passed = if raced { 0 } else { (seen.passed + 1).min(MANY) };
            seen.passed = if java_waits { passed } else { 0 };
        }
    }

    /// A client of Redisson took the lock.
    pub fn note_java_turn(&mut self) {
        self.state.processes.iter_mut().for_each(|process| process.rests = false);
        let seen = &mut self.state.seen;
        seen.passed = 0;
        if self.keep.happened && seen.happened.alternated == 1 {
            seen.happened.alternated = 2;
        }
    }
}

/// Two never both believe that they hold the lock.
pub fn exclusive(state: &State) -> bool {
    let forced = |holder| state.seen.forced == Some(holder);
    let ours = (0..state.waiters.len())
        .filter(|&waiter| state.waiters[waiter].holds() && !forced(Holder::Ours(state.id(waiter))));
    let javas = (0..state.javas.len()).filter(|&java| {
        state.javas[java].phase == JavaPhase::Held && !forced(Holder::Java(java as u8))
    });
    ours.count() + javas.count() <= 1
}

/// A lease on the server, and an entry in its queue, is wanted by its waiter, or has a release behind it, or its process
/// is gone. Nobody has two entries, or one beside the lock.
pub fn nothing_left_over(case: &Case, state: &State) -> bool {
    let accounted = |id: Id| {
        let process = &state.processes[case.home(id.waiter.into())];
        let released = |request: &Request| matches!(request, Request::Release(of, _) if *of == id);
        state.wants(id)
            || !process.is_live()
            || process.sent.iter().chain(&process.stray).any(released)
            || process.asks().any(|ask| ask.id == id && ask.asker != Asker::Itself)
    };
    let held = match state.lock.map(|lock| lock.holder) {
        Some(Holder::Ours(id)) => Some(id),
        _ => None,
    };
    let once = |(place, id): (usize, &Id)| !state.queue[..place].contains(id) && held != Some(*id);
    held.is_none_or(accounted)
        && state.queue.iter().copied().all(accounted)
        && state.queue.iter().enumerate().all(once)
}

/// Nothing is on its way and no timer is about to end: only holders, newcomers and polls can change anything.
pub fn is_quiet(case: &Case, state: &State) -> bool {
    let busy = |p: usize| {
        let process = &state.processes[p];
        !process.stray.is_empty()
            || process.is_live()
                && (!process.sent.is_empty()
                    || !process.replies.is_empty()
                    || !process.inbox.is_empty()
                    || !process.hub_sent.is_empty()
                    || process.cut
                    || process.follows
                    || process.quarantine > 0
                    || matches!(process.hub, Hub::Subscribing | Hub::Broken))
            || process.ghost_mailbox
            || process.ghost_channel
    };
    let timers = (0..state.waiters.len()).any(|waiter| state.asks_soon(case, waiter));
    // Its next renewal tells it.
    let undeceived = (0..state.waiters.len())
        .any(|waiter| state.waiters[waiter].holds() && !state.has(state.id(waiter)));
    let javas = state.javas.iter().any(|java| match java.phase {
        JavaPhase::Waiting => java.woken,
        JavaPhase::Idle | JavaPhase::Held | JavaPhase::Ended => false,
        JavaPhase::Asking
        | JavaPhase::Subscribing
        | JavaPhase::AskingAgain
        | JavaPhase::Releasing => true,
    });
    let ending = !case.timed && may_expire(case, state).is_some();
    !(0..state.processes.len()).any(busy) && !timers && !undeceived && !javas && !ending
}

/// Whether anything has happened after which only a poll may notice that the lock is free, or who is the head: an end,
/// a stop, a queue that was lost, more of those who are gone than a run takes out.
fn is_excused(state: &State) -> bool {
    let spent = &state.spent;
    spent.crashes + spent.stops + spent.forgets > 0 || state.seen.cut_short
}

/// Whoever holds what the server has was told its token: none was given since.
pub fn have_tokens(state: &State) -> bool {
    (0..state.waiters.len()).all(|waiter| {
        let own = state.waiters[waiter];
        !own.holds() || !state.has(state.id(waiter)) || own.token == 0
    })
}

/// The rule of liveness, in every quiet state (without ticks).
pub fn lives(case: &Case, state: &State) -> bool {
    let waiting: Vec<usize> =
        (0..state.waiters.len()).filter(|&w| state.waiters[w].phase == Phase::Waiting).collect();
    // Java's timer is at the end of the lease that it was told of; that a later one has ended nobody tells it.
    let java_waits =
        state.spent.late == 0 && state.javas.iter().any(|java| java.phase == JavaPhase::Waiting);
    if state.lock.is_some() || waiting.is_empty() && !java_waits || !is_quiet(case, state) {
        return true;
    }
    if !is_excused(state) {
        return false;
    }
    waiting.is_empty()
        || !case.is(Bug::NoPoll) && waiting.iter().all(|&waiter| poll_helps(case, state, waiter))
}

/// Whether a poll of this waiter gives the lock to somebody live, or to a process that stopped and whose lease a head
/// watches that knows it.
fn poll_helps(case: &Case, state: &State, waiter: usize) -> bool {
    let mut state = state.clone();
    let mut rules = Rules { case, keep: Keep::default(), state: &mut state, passed: 0 };
    rules.wake(waiter);
    rules.settle();
    let Some(lock) = state.lock else {
        return false;
    };
    let Holder::Ours(id) = lock.holder else {
        return true;
    };
    let process = &state.processes[case.home(id.waiter.into())];
    let watched = (0..state.waiters.len())
        .any(|waiter| state.waits_for(case, waiter) == Some(WaitsFor::End(lock.holder)));
    process.is_live() || process.is_reached() && watched
}

/// In every quiet state, where nothing excuses it: the first entry's waiter knows that it is the first and has a timer,
/// and whoever waits is in the queue.
pub fn head_knows(case: &Case, state: &State) -> bool {
    if is_excused(state) || !is_quiet(case, state) {
        return true;
    }
    let knows = state.queue.first().is_none_or(|first| {
        let waiter = &state.waiters[usize::from(first.waiter)];
        state.wants(*first)
            && (waiter.phase != Phase::Waiting
                || state.waits_for(case, first.waiter.into()) != Some(WaitsFor::Poll))
    });
    let queued = |waiter: usize| {
        state.waiters[waiter].phase != Phase::Waiting || state.queue.contains(&state.id(waiter))
    };
    knows && (0..state.waiters.len()).all(queued)
}

/// In every quiet state an attempt that came beside those who wait has had one of them ask since.
pub fn attempts_are_answered(case: &Case, state: &State) -> bool {
    let waits = |process: &Process| process.is_live() && process.hurried;
    !state.processes.iter().any(waits) || !is_quiet(case, state)
}

/// In every quiet state in which Java holds the lock: once somebody who waits in the queue has polled, the first in it is
/// somebody who goes on and listens for Java's release, although processes have ended.
pub fn hears_java(case: &Case, state: &State) -> bool {
    let javas = matches!(state.lock, Some(Lock { holder: Holder::Java(_), .. }));
    if !javas || state.seen.cut_short || !is_quiet(case, state) {
        return true;
    }
    (0..state.waiters.len()).all(|waiter| {
        let waits = state.waiters[waiter].phase == Phase::Waiting
            && state.processes[case.home(waiter)].is_live()
            && state.queue.contains(&state.id(waiter));
        if !waits {
            return true;
        }
        let mut state = state.clone();
        let mut rules = Rules { case, keep: Keep::default(), state: &mut state, passed: 0 };
        rules.wake(waiter);
        rules.settle();
        let Some(first) = state.queue.first() else {
            return false;
        };
        let process = &state.processes[case.home(first.waiter.into())];
        process.is_live() && process.channel
    })
}

impl Rules<'_> {
    /// Lets everything run that is on its way, in some order.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for process in 0..self.state.processes.len() {
                if !self.state.processes[process].is_live() {
                    continue;
                }
                if !self.state.processes[process].sent.is_empty() {
                    let request = self.state.processes[process].sent.remove(0);
                    self.run(process, request, false);
                    moved = true;
                }
                if !self.state.processes[process].replies.is_empty() {
                    self.hear(process);
                    moved = true;
                }
                if self.state.next_message(process).is_some() {
                    self.receive(process);
                    moved = true;
                }
                if !self.state.processes[process].hub_sent.is_empty() {
                    let request = self.state.processes[process].hub_sent.remove(0);
                    self.subscribe(process, request);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }
}
