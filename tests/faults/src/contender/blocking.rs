//! The turns of a blocking client.

mod kinds;
mod tangles;

use std::{
    thread::{self, sleep},
    time::{Duration, Instant},
};

use leasehold::{
    Error,
    blocking::{Client, Guard, Mutex},
};

use super::{Duty, FIRST_ASKS, Shared};
use crate::{
    clock::{Chance, now},
    event::{How, Share},
    proof::HeldByThread,
    recorder::{Ask, Op, Recorder, Watched},
    stalls::TICK,
};

pub(super) fn contend(shared: &Shared) {
    let Some(client) = connect(shared) else { return };
    let owner = shared.recorder.number();
    let thread = Thread { owner, shared: shared.clone(), client: client.clone() };
    if let Some(first) = &shared.orders.first {
        let (mutex, mut chance) = (client.mutex(first), shared.chance(0));
        for _ in 0..FIRST_ASKS {
            thread.plain(&mutex, How::TryLock, None, &mut chance);
            sleep(TICK * 2);
        }
    }
    let watched = client.clone();
    shared.watch_kept(move || watched.holds());
    let threads: Vec<_> = (0..shared.orders.members())
        .filter(|member| shared.orders.duty(*member) != Duty::Works)
        .map(|member| {
            let duty = shared.orders.duty(member);
            let shared = shared.clone();
            let mut chance = shared.chance(member);
            let client = client.clone();
            thread::spawn(move || {
                let thread = Thread { owner: shared.recorder.number(), shared, client };
                while !thread.shared.is_over() {
                    match duty {
                        Duty::Turns | Duty::Works => thread.turn(&mut chance),
                        Duty::Keeps => thread.keep(&mut chance),
                        Duty::Tangles => thread.tangle(&mut chance),
                    }
                    sleep(chance.ms(0, 25));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    shared.ended(|| client.stats(), || client.holds().len());
    client.shutdown().expect("this thread may wait");
}

fn connect(shared: &Shared) -> Option<Client> {
    while !shared.is_over() {
        let since = now();
        let answer = shared.builder().connect_blocking();
        shared.connected(since, &answer);
        if let Ok(client) = answer {
            return Some(client);
        }
        sleep(TICK * 4);
    }
    None
}

struct Thread {
    shared: Shared,
    client: Client,
    /// The number of the thread itself, which owns what it takes.
    owner: u64,
}

impl Thread {
    fn turn(&self, chance: &mut Chance) {
        if let Some(kind) = self.shared.other_kind(chance) {
            return self.turn_of_another_kind(kind, chance);
        }
        let mutex = self.client.mutex(self.shared.mutex_name(chance));
        let wait = chance.ms(30, 700);
        match chance.between(0, 100) {
            0..30 => self.plain(&mutex, How::Lock, None, chance),
            30..50 => self.plain(&mutex, How::LockWithTimeout, Some(wait), chance),
            50..60 => self.plain(&mutex, How::TryLock, None, chance),
            60..70 => self.plain(&mutex, How::TryLockFor, Some(wait), chance),
            70..82 => self.nested(&mutex, chance),
            82..94 => self.fixed(&mutex, chance),
            94..97 => self.body(&mutex, chance),
            _ => self.owned(&mutex, chance),
        }
    }

    fn plain(&self, mutex: &Mutex, how: How, wait: Option<Duration>, chance: &mut Chance) {
        if let Some((guard, watched)) = self.acquire(mutex, how, wait) {
            self.hold(guard, watched, self.shared.work(chance), chance);
        }
    }

    /// A turn of one that keeps what it gets for long.
    fn keep(&self, chance: &mut Chance) {
        let mutex = self.client.mutex(self.shared.kept_name(chance));
        let (how, wait) = self.shared.way(chance);
        if let Some((guard, watched)) = self.acquire(&mutex, how, wait) {
            self.hold(guard, watched, self.shared.work_of_keeper(chance), chance);
        }
    }

    fn nested(&self, mutex: &Mutex, chance: &mut Chance) {
        let Some((outer, watched_outer)) = self.acquire(mutex, How::Lock, None) else { return };
        if let Some((inner, watched_inner)) = self.acquire(mutex, How::Lock, None) {
            self.hold(inner, watched_inner, chance.ms(1, 10), chance);
        }
        self.hold(outer, watched_outer, chance.ms(1, 10), chance);
    }

    fn fixed(&self, mutex: &Mutex, chance: &mut Chance) {
        let work = self.shared.work_of_fixed(chance);
        let mutex = mutex.with_lease(self.shared.orders.ttl);
        if let Some((guard, watched)) = self.acquire(&mutex, How::Lock, None) {
            self.hold(guard, watched, work, chance);
        }
    }

    /// A guard that another thread gives back.
    fn owned(&self, mutex: &Mutex, chance: &mut Chance) {
        let recorder = self.recorder();
        let op = recorder.asked(mutex.name(), recorder.number(), How::Lock, None);
        match mutex.owned_by(&self.client.owner()).lock() {
            Err(error) => self.refused(op, &error),
            Ok(guard) => {
                let watched = recorder.granted(op, &guard, self.shared.orders.ttl);
                let work = chance.ms(1, 15);
                thread::scope(|scope| {
                    scope.spawn(|| self.hold(guard, watched, work, chance)).join()
                })
                .expect("no panic");
            }
        }
    }

    /// A thread cannot be stopped: the body looks at its guard by itself.
    fn body(&self, mutex: &Mutex, chance: &mut Chance) {
        let recorder = self.recorder();
        let op = recorder.asked(mutex.name(), self.owner, How::Run, None);
        let work = self.shared.work(chance);
        let mut entered = None;
        let ran = mutex.run(|guard: &Guard| {
            let watched = entered.insert(recorder.granted(op, guard, self.shared.orders.ttl));
            watched.write(guard, &self.shared.register);
            if !self.lost_while_working(guard, watched, work) {
                watched.releasing(guard, How::Drop);
            }
        });
        match (entered, ran) {
            (Some(watched), result) => watched.released(&result),
            (None, Err(error)) => self.refused(op, &error),
            (None, Ok(())) => unreachable!("it has run"),
        }
    }

    fn acquire(&self, mutex: &Mutex, how: How, wait: Option<Duration>) -> Option<(Guard, Watched)> {
        let (owner, share) = (self.owner, Share::Alone);
        let ask = Ask { locks: &[mutex.name()], owner, how, share, wait };
        let wait = wait.unwrap_or_default();
        self.attempt(ask, || match how {
            How::LockWithTimeout => mutex.lock_with_timeout(wait).map(Some),
            How::TryLock => mutex.try_lock(),
            How::TryLockFor => mutex.try_lock_for(wait),
            _ => mutex.lock().map(Some),
        })
    }

    /// Makes a call of any kind, and writes down what came of it.
    fn attempt<G: HeldByThread>(
        &self,
        ask: Ask<'_>,
        call: impl FnOnce() -> Result<Option<G>, Error>,
    ) -> Option<(G, Watched)> {
        let recorder = self.recorder();
        let op = recorder.asked_for(ask);
        match call() {
            Ok(Some(guard)) => {
                let watched = recorder.granted(op, &guard, self.shared.orders.ttl);
                return Some((guard, watched));
            }
            Ok(None) => recorder.held(op),
            Err(error) => self.refused(op, &error),
        }
        None
    }

    fn hold<G: HeldByThread>(
        &self,
        guard: G,
        mut watched: Watched,
        work: Duration,
        chance: &mut Chance,
    ) {
        watched.write(&guard, &self.shared.register);
        if self.lost_while_working(&guard, &mut watched, work) {
            return;
        }
        if chance.one_in(3) {
            watched.releasing(&guard, How::Drop);
            drop(guard);
            watched.released(&Ok(()));
        } else {
            watched.releasing(&guard, How::Unlock);
            watched.released(&guard.give_back());
        }
    }

    /// Works until it is done, or told that the lock is lost.
    fn lost_while_working(
        &self,
        guard: &impl HeldByThread,
        watched: &mut Watched,
        work: Duration,
    ) -> bool {
        let ends_at = Instant::now() + work;
        loop {
            watched.observe(guard);
            let left = ends_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if let Some(reason) = HeldByThread::wait_lost(guard, left.min(TICK)) {
                watched.lost(Some(guard), reason);
                return true;
            }
        }
    }

    fn refused(&self, op: Op, error: &Error) {
        self.recorder().refused(op, error);
        sleep(TICK);
    }

    fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }
}
