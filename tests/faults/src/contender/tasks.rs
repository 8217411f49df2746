//! The turns of an async client.

mod deeds;
mod kinds;
mod tangles;
mod work;

use std::{pin::pin, time::Duration};

use leasehold::{Client, Error, Guard, Mutex};
use tokio::{
    runtime::Runtime,
    time::{Instant, sleep, timeout},
};

use super::{Duty, FIRST_ASKS, Shared};
use crate::{
    clock::{Chance, now},
    event::{How, Share, What},
    proof::Held,
    recorder::{Ask, Op, Recorder, Watched},
    stalls::{TICK, told_late},
};

pub(super) fn contend(shared: &Shared) {
    let runtime = Runtime::new().expect("a runtime");
    let journal = shared.recorder.journal.clone();
    runtime.spawn(async move {
        let mut from = now();
        loop {
            sleep(TICK).await;
            from = told_late(&journal, from);
        }
    });
    runtime.block_on(async {
        let Some(client) = connect(shared).await else { return };
        let task = Task { shared: shared.clone(), client: client.clone() };
        if let Some(first) = &shared.orders.first {
            let (mutex, mut chance) = (client.mutex(first), shared.chance(0));
            for _ in 0..FIRST_ASKS {
                task.plain(&mutex, How::TryLock, None, &mut chance).await;
                sleep(TICK * 2).await;
            }
        }
        let watched = client.clone();
        shared.watch_kept(move || watched.holds());
        let tasks: Vec<_> = (0..shared.orders.members())
            .map(|member| {
                let task = Task { shared: shared.clone(), client: client.clone() };
                let mut chance = shared.chance(member);
                let duty = shared.orders.duty(member);
                tokio::spawn(async move {
                    while !task.shared.is_over() {
                        match duty {
                            Duty::Turns => task.turn(&mut chance).await,
                            Duty::Keeps => task.keep(&mut chance).await,
                            Duty::Works => task.work(&mut chance).await,
                            Duty::Tangles => task.tangle(&mut chance).await,
                        }
                        sleep(chance.ms(0, 25)).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let waits = shared.clone();
        let asked = client.clone();
        let ended = move || waits.ended(|| asked.stats(), || asked.holds().len());
        tokio::task::spawn_blocking(ended).await.expect("no panic");
        client.shutdown().await;
    });
}

async fn connect(shared: &Shared) -> Option<Client> {
    while !shared.is_over() {
        let since = now();
        let answer = shared.builder().connect().await;
        shared.connected(since, &answer);
        if let Ok(client) = answer {
            return Some(client);
        }
        sleep(TICK * 4).await;
    }
    None
}

struct Task {
    shared: Shared,
    client: Client,
}

impl Task {
    async fn turn(&self, chance: &mut Chance) {
        if let Some(kind) = self.shared.other_kind(chance) {
            return self.turn_of_another_kind(kind, chance).await;
        }
        let mutex = self.client.mutex(self.shared.mutex_name(chance));
        let wait = chance.ms(30, 700);
        match chance.between(0, 100) {
            0..25 => self.plain(&mutex, How::Lock, None, chance).await,
            25..41 => self.plain(&mutex, How::LockWithTimeout, Some(wait), chance).await,
            41..48 => self.plain(&mutex, How::TryLock, None, chance).await,
            48..57 => self.plain(&mutex, How::TryLockFor, Some(wait), chance).await,
            57..66 => self.dropped(&mutex, chance).await,
            66..75 => self.nested(&mutex, chance).await,
            75..87 => self.fixed(&mutex, chance).await,
            87..91 => self.extended(&mutex, chance).await,
            91..93 => self.limited(&mutex, chance).await,
            93..96 => self.until_wanted(&mutex, chance).await,
            _ => self.body(&mutex, chance).await,
        }
    }

    async fn plain(&self, mutex: &Mutex, how: How, wait: Option<Duration>, chance: &mut Chance) {
        let owner = self.recorder().number();
        if let Some((guard, watched)) = self.acquire(mutex, owner, how, wait).await {
            self.hold(guard, watched, self.shared.work(chance), chance).await;
        }
    }

    /// A turn of one that keeps what it gets for long.
    async fn keep(&self, chance: &mut Chance) {
        let mutex = self.client.mutex(self.shared.kept_name(chance));
        let (how, wait) = self.shared.way(chance);
        let owner = self.recorder().number();
        if let Some((guard, watched)) = self.acquire(&mutex, owner, how, wait).await {
            self.hold(guard, watched, self.shared.work_of_keeper(chance), chance).await;
        }
    }

    /// Lost interest after a moment, with the lock perhaps on its way.
    async fn dropped(&self, mutex: &Mutex, chance: &mut Chance) {
        let owner = self.recorder().number();
        let ask =
            Ask { locks: &[mutex.name()], owner, how: How::Lock, share: Share::Alone, wait: None };
        let lock = async { mutex.lock().await.map(Some) };
        if let Some((guard, watched)) = self.attempt(ask, Some(chance.ms(0, 60)), lock).await {
            self.hold(guard, watched, chance.ms(0, 10), chance).await;
        }
    }

    /// Two holds of one owner, given back in any order.
    async fn nested(&self, mutex: &Mutex, chance: &mut Chance) {
        let number = self.recorder().number();
        let owner = self.client.owner();
        if chance.one_in(2) {
            let both = self.both(mutex, number, chance);
            return owner.scope(both).await;
        }
        self.both(&mutex.owned_by(&owner), number, chance).await;
    }

    async fn both(&self, mutex: &Mutex, owner: u64, chance: &mut Chance) {
        let outer = self.acquire(mutex, owner, How::Lock, None).await;
        let Some((outer, mut watched_outer)) = outer else { return };
        let again = self.acquire(mutex, owner, How::Lock, None);
        let inner = beside([(&outer, &mut watched_outer)], again).await;
        let Some((inner, mut watched_inner)) = inner else {
            // Lost between the two: the outer guard is told, too.
            return self.hold(outer, watched_outer, Duration::ZERO, chance).await;
        };
        if chance.one_in(3) {
            let op = watched_inner.op;
            let holds = [(&outer, &mut watched_outer), (&inner, &mut watched_inner)];
            beside(holds, self.count(mutex, &inner, op)).await;
        }
        let work = chance.ms(1, 10);
        let (first, mut second) = if chance.one_in(2) {
            ((outer, watched_outer), (inner, watched_inner))
        } else {
            ((inner, watched_inner), (outer, watched_outer))
        };
        let first = self.hold(first.0, first.1, work, chance);
        beside([(&second.0, &mut second.1)], first).await;
        self.hold(second.0, second.1, work, chance).await;
    }

    /// Compares how deep the hold is here and at the servers, once that is written down there.
    async fn count(&self, mutex: &Mutex, guard: &Guard, op: u64) {
        sleep(COUNT_ARRIVES).await;
        let local = guard.hold_count();
        let Ok(status) = mutex.status().await else { return };
        if guard.is_held() && status.holder == Some(guard.holder()) {
            self.recorder().journal.write(What::Counted { op, local, server: status.hold_count });
        }
    }

    /// A lease that nobody renews, sometimes kept past its end.
    async fn fixed(&self, mutex: &Mutex, chance: &mut Chance) {
        let work = self.shared.work_of_fixed(chance);
        let owner = self.recorder().number();
        let mutex = mutex.with_lease(self.shared.orders.ttl);
        if let Some((guard, watched)) = self.acquire(&mutex, owner, How::Lock, None).await {
            self.hold(guard, watched, work, chance).await;
        }
    }

    /// A short lease that is made a longer one.
    async fn extended(&self, mutex: &Mutex, chance: &mut Chance) {
        let ttl = self.shared.orders.ttl;
        let owner = self.recorder().number();
        let mutex = mutex.with_lease(ttl / 2);
        let acquired = self.acquire(&mutex, owner, How::Lock, None).await;
        if let Some((guard, mut watched)) = acquired {
            // Whether it was answered or not, the guard says how long it is held.
            let _ = guard.extend(ttl).await;
            watched.observe(&guard);
            self.hold(guard, watched, chance.ms(1, 15), chance).await;
        }
    }

    /// The watchdog stops before the holder does.
    async fn limited(&self, mutex: &Mutex, chance: &mut Chance) {
        let ttl = self.shared.orders.ttl;
        let owner = self.recorder().number();
        let mutex = mutex.with_max_hold(ttl / 4);
        if let Some((guard, watched)) = self.acquire(&mutex, owner, How::Lock, None).await {
            self.hold(guard, watched, chance.ms(1, 300), chance).await;
        }
    }

    /// Kept until somebody wants it, as who works on a batch does. Half of these locks are wanted by nobody else.
    async fn until_wanted(&self, mutex: &Mutex, chance: &mut Chance) {
        let owner = self.recorder().number();
        let own = chance.one_in(2);
        let name = format!("{}:{owner}", self.shared.orders.name);
        let (mutex, limit) = match own {
            true => (&self.client.mutex(name), chance.ms(100, 1500)),
            false => (mutex, KEPT_UNWANTED),
        };
        let acquired = self.acquire(mutex, owner, How::Lock, None).await;
        let Some((guard, mut watched)) = acquired else { return };
        let ends_at = Instant::now() + limit;
        watched.asks_whether_wanted();
        while guard.is_held() && Instant::now() < ends_at && !self.shared.is_over() {
            watched.observe(&guard);
            if guard.is_wanted() {
                watched.wanted();
                break;
            }
            sleep(TICK).await;
        }
        self.hold(guard, watched, Duration::ZERO, chance).await;
    }

    async fn body(&self, mutex: &Mutex, chance: &mut Chance) {
        let recorder = self.recorder();
        let op = recorder.asked(mutex.name(), recorder.number(), How::Run, None);
        let work = self.shared.work(chance);
        let mut entered = None;
        let ran = mutex.run(async |guard: &Guard| {
            let watched = entered.insert(recorder.granted(op, guard, self.shared.orders.ttl));
            watched.alarm(guard.lost());
            watched.write(guard, &self.shared.register);
            let ends_at = Instant::now() + work;
            while Instant::now() < ends_at {
                watched.observe(guard);
                sleep(TICK.min(work)).await;
            }
            watched.releasing(guard, How::Drop);
            true
        });
        let ran = ran.await;
        match (entered, ran) {
            (Some(watched), Ok(_)) => watched.released(&Ok(())),
            // The body was cancelled where it stood, or had come to its end.
            (Some(watched), Err(Error::Lost { reason, .. })) => {
                watched.lost(None, reason);
            }
            (Some(watched), Err(error)) => watched.released(&Err(error)),
            (None, Err(error)) => self.refused(op, &error).await,
            (None, Ok(_)) => unreachable!("it has run"),
        }
    }

    async fn acquire(
        &self,
        mutex: &Mutex,
        owner: u64,
        how: How,
        wait: Option<Duration>,
    ) -> Option<(Guard, Watched)> {
        let ask = Ask { locks: &[mutex.name()], owner, how, share: Share::Alone, wait };
        let wait = wait.unwrap_or_default();
        let acquired = async {
            match how {
                How::LockWithTimeout => mutex.lock_with_timeout(wait).await.map(Some),
                How::TryLock => mutex.try_lock().await,
                How::TryLockFor => mutex.try_lock_for(wait).await,
                _ => mutex.lock().await.map(Some),
            }
        };
        self.attempt(ask, None, acquired).await
    }

    /// Makes a call of any kind, drops it when `patience` is over, and writes down what came of it.
    async fn attempt<G: Held>(
        &self,
        ask: Ask<'_>,
        patience: Option<Duration>,
        call: impl Future<Output = Result<Option<G>, Error>>,
    ) -> Option<(G, Watched)> {
        let recorder = self.recorder();
        let op = recorder.asked_for(ask);
        let called = match patience {
            Some(patience) => timeout(patience, call).await,
            None => Ok(call.await),
        };
        match called {
            Ok(Ok(Some(guard))) => {
                let watched = self.granted(op, &guard);
                return Some((guard, watched));
            }
            Ok(Ok(None)) => recorder.held(op),
            Ok(Err(error)) => self.refused(op, &error).await,
            Err(_) => recorder.dropped(op),
        }
        None
    }

    fn granted(&self, op: Op, guard: &impl Held) -> Watched {
        let mut watched = self.recorder().granted(op, guard, self.shared.orders.ttl);
        watched.alarm(guard.told());
        watched
    }

    /// Uses the lock for a while, and gives it back or is told that it is lost.
    async fn hold<G: Held>(
        &self,
        guard: G,
        mut watched: Watched,
        work: Duration,
        chance: &mut Chance,
    ) {
        watched.write(&guard, &self.shared.register);
        if self.lost_while_working(&guard, &mut watched, work).await {
            return;
        }
        if chance.one_in(3) {
            watched.releasing(&guard, How::Drop);
            drop(guard);
            watched.released(&Ok(()));
        } else {
            watched.releasing(&guard, How::Unlock);
            watched.released(&guard.give_back().await);
        }
    }

    /// Works until it is done, or told that the lock is lost.
    async fn lost_while_working(
        &self,
        guard: &impl Held,
        watched: &mut Watched,
        work: Duration,
    ) -> bool {
        let ends_at = Instant::now() + work;
        let mut lost = guard.told();
        loop {
            watched.observe(guard);
            let left = ends_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            tokio::select! {
                biased;
                reason = &mut lost => {
                    watched.lost(Some(guard), reason);
                    return true;
                }
                () = sleep(left.min(TICK)) => {}
            }
        }
    }

    async fn refused(&self, op: Op, error: &Error) {
        self.recorder().refused(op, error);
        // Who is refused for a fault tries again, but not all the time.
        sleep(TICK).await;
    }

    fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }
}

/// Awaits something, and observes what is held meanwhile: it may be renewed, and end, before that is done.
async fn beside<T, const N: usize>(
    mut holds: [(&Guard, &mut Watched); N],
    what: impl Future<Output = T>,
) -> T {
    let mut what = pin!(what);
    loop {
        for (guard, watched) in &mut holds {
            watched.observe(*guard);
        }
        tokio::select! {
            biased;
            done = &mut what => return done,
            () = sleep(TICK) => {}
        }
    }
}

/// So long a lock is kept at most that nobody is said to want: longer than a client takes until it looks again.
const KEPT_UNWANTED: Duration = Duration::from_secs(6);
/// A count is written down behind the caller's back, within this time.
const COUNT_ARRIVES: Duration = Duration::from_millis(200);
