//! What the processes do with locks of other kinds: they read and write, take permits and several locks at once, and lead.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold::{
    Election, Error, Holder, Leadership, MultiGuard, Owner, Permit, ReadGuard, RwLock, WriteGuard,
};
use tokio::time::{sleep, timeout};

use crate::checker::{Grant, Rule, Share, reader_key};
use crate::host::{Process, Proof};
use crate::workload::{Attempt, Timing, Worker, lock_name, millis, some};

/// The numbers of the locks of other kinds. Mutexes are numbered from 0.
pub const RW: usize = 100;
pub const SEMAPHORE: usize = 200;
pub const ELECTION: usize = 300;
/// Of an ask for several locks, whichever they are.
pub const SEVERAL: usize = 400;
pub const RW_NAME: &str = "rw";
pub const SEMAPHORE_NAME: &str = "semaphore";
pub const ELECTION_NAME: &str = "election";
/// How many permits there are.
pub const PERMITS: u32 = 3;

/// Whether a key has the permits that are out.
pub fn is_holders(key: &[u8]) -> bool {
    key == format!("{{{SEMAPHORE_NAME}}}:timeout").as_bytes()
}

impl Worker {
    pub(crate) async fn turn_of_another_kind(&mut self) {
        match self.rng.below(10) {
            0..4 => self.read_or_write().await,
            // A semaphore needs one server.
            4..7 if self.workload.several => self.take_several().await,
            4..7 => self.take_permits().await,
            7 | 8 if !self.workload.several => self.take_several().await,
            _ => self.vote().await,
        }
    }

    /// The terms on which something is asked for: a fixed lease, a TTL of its own, or neither.
    pub(crate) fn lease_and_ttl(&mut self) -> (Option<Duration>, Option<Duration>) {
        let ttl = self.workload.ttl_ms();
        let (fixed, watched) = (self.rng.between(ttl / 10, ttl), self.rng.between(ttl / 3, ttl));
        match self.rng.below(100) {
            0..15 => (Some(millis(fixed)), None),
            15..30 => (None, Some(millis(watched))),
            _ => (None, None),
        }
    }

    async fn read_or_write(&mut self) {
        let number = self.process.history.lock().fresh();
        let mut lock = self.client.rw_lock(RW_NAME).owned_by(&Owner::new());
        let (lease, ttl) = self.lease_and_ttl();
        lock = lease.map_or(lock.clone(), |lease| lock.with_lease(lease));
        lock = ttl.map_or(lock.clone(), |ttl| lock.with_ttl(ttl));
        let limit = millis(self.rng.skewed(5000));
        if self.rng.chance(600) {
            let (how, patience, future): (_, _, Attempt<ReadGuard>) = match self.rng.below(4) {
                0 => ("read", None, Box::pin(some(lock.read()))),
                1 => (
                    "read_with_timeout",
                    Some(limit),
                    Box::pin(some(lock.read_with_timeout(limit))),
                ),
                2 => ("try_read", Some(Duration::ZERO), Box::pin(lock.try_read())),
                _ => ("try_read_for", Some(limit), Box::pin(lock.try_read_for(limit))),
            };
            if let Some((asked_at, guard)) = self.attempt(RW, how, patience, future).await {
                let held = self.reading(number, asked_at, guard);
                self.read(held, number, &lock).await;
            }
        } else {
            let (how, patience, future): (_, _, Attempt<WriteGuard>) = match self.rng.below(4) {
                0 => ("write", None, Box::pin(some(lock.write()))),
                1 => (
                    "write_with_timeout",
                    Some(limit),
                    Box::pin(some(lock.write_with_timeout(limit))),
                ),
                2 => ("try_write", Some(Duration::ZERO), Box::pin(lock.try_write())),
                _ => ("try_write_for", Some(limit), Box::pin(lock.try_write_for(limit))),
            };
            if let Some((asked_at, guard)) = self.attempt(RW, how, patience, future).await {
                let held = self.writing(number, asked_at, guard);
                self.write(held, number, &lock).await;
            }
        }
    }

    fn reading(&self, number: u64, asked_at: u64, guard: ReadGuard) -> Kept<ReadGuard> {
        let key = reader_key(guard.holder().as_str(), number);
        let part = Part { lock: RW, token: guard.token(), key, share: Share::Reads };
        Kept::new(&self.process, number, asked_at, guard, vec![part])
    }

    /// Also of the guard of a reader that its owner got while it wrote.
    fn writing<P: Thing + OfLock>(&self, number: u64, asked_at: u64, guard: P) -> Kept<P> {
        let (token, key) = (guard.token(), guard.holder().as_str().to_owned());
        let part = Part { lock: RW, token, key, share: Share::Alone };
        Kept::new(&self.process, number, asked_at, guard, vec![part])
    }

    async fn read(&mut self, held: Kept<ReadGuard>, number: u64, lock: &RwLock) {
        self.seen = held.proof().version().map(|version| (held.proof().token(), version));
        let mut inner = None;
        for _ in 0..self.rng.below(3) {
            match self.rng.below(8) {
                // Whoever reads may read again, whoever waits.
                0 | 1 if inner.is_none() => {
                    let asked_at = self.process.history.lock().now;
                    let result = lock.read().await;
                    match result {
                        Ok(guard) => inner = Some(self.reading(number, asked_at, guard)),
                        Err(error) => self.expect("nested read", Err(error), is_lost_or_away),
                    }
                }
                2 => {
                    let lease = millis(self.rng.between(100, self.workload.ttl_ms()));
                    let result = held.proof().extend(lease).await;
                    self.expect("extend", result, is_lost_or_away);
                }
                3 => {
                    let result = lock.status().await.map(drop);
                    self.expect("status", result, is_lost_or_away);
                }
                _ => sleep(millis(self.rng.skewed(1500))).await,
            }
        }
        if let Some(inner) = inner {
            self.give_back(inner).await;
        }
        self.give_back(held).await;
    }

    async fn write(&mut self, mut held: Kept<WriteGuard>, number: u64, lock: &RwLock) {
        self.check_unchanged(held.proof());
        sleep(millis(self.rng.skewed(800))).await;
        let asked_at = self.process.history.lock().now;
        match self.rng.below(10) {
            0 => match lock.write().await {
                Ok(inner) => {
                    let inner = self.writing(number, asked_at, inner);
                    self.give_back(inner).await;
                }
                Err(error) => self.expect("nested write", Err(error), is_lost_or_away),
            },
            1 if !held.proof().remaining().is_zero() => match lock.read().await {
                // It is a guard of the same hold, unless that was lost meanwhile.
                Ok(inner) if inner.holder() == held.proof().holder() => {
                    let inner = self.writing(number, asked_at, inner);
                    self.give_back(inner).await;
                }
                Ok(inner) => drop(inner),
                Err(error) => self.expect("read within", Err(error), is_lost_or_away),
            },
            2..6 => {
                let (token, was_held) = (held.proof().token(), !held.proof().remaining().is_zero());
                let Some(guard) = held.take("downgraded") else { return };
                match self.perhaps(Box::pin(guard.downgrade())).await {
                    Some(Ok(guard)) => {
                        self.check_downgrade(token, was_held, &guard);
                        let held = self.reading(number, asked_at, guard);
                        self.read(held, number, lock).await;
                    }
                    Some(Err(error)) => self.expect("downgrade", Err(error), is_lost_or_away),
                    None => {}
                }
                return;
            }
            _ => {}
        }
        self.give_back(held).await;
    }

    /// A writer that is told that nobody has written since it read is the next one.
    fn check_unchanged(&self, guard: &WriteGuard) {
        let Some((seen, _)) = self.seen.filter(|(_, version)| guard.unchanged_since(*version))
        else {
            return;
        };
        let mut history = self.process.history.lock();
        history.count("unchanged", 1);
        history.checker.checked(Rule::ReaderToken);
        let between = history.checker.alone_between(RW, seen, guard.token());
        if let (Some(token), false) = (between, guard.remaining().is_zero()) {
            let what = format!("{token} wrote between the reader {seen} and {guard:?}");
            history.violated(Rule::ReaderToken, what);
        }
    }

    /// Nobody wrote between the writer and the reader that it became.
    fn check_downgrade(&self, token: u64, was_held: bool, guard: &ReadGuard) {
        let mut history = self.process.history.lock();
        history.count("downgraded", 1);
        history.checker.checked(Rule::Exclusion);
        let newest = history.checker.newest_writer(RW);
        if was_held && !guard.remaining().is_zero() && newest > guard.token().max(token) {
            let what = format!("{newest} wrote before the writer {token} went on as a reader");
            history.violated(Rule::Exclusion, what);
        }
    }

    async fn take_permits(&mut self) {
        let number = self.process.history.lock().fresh();
        let mut semaphore = self.client.semaphore(SEMAPHORE_NAME).with_permits(PERMITS);
        let (lease, ttl) = self.lease_and_ttl();
        semaphore = lease.map_or(semaphore.clone(), |lease| semaphore.with_lease(lease));
        semaphore = ttl.map_or(semaphore.clone(), |ttl| semaphore.with_ttl(ttl));
        let limit = millis(self.rng.skewed(5000));
        let many = self.rng.between(1, PERMITS.into()) as u32;
        let zero = Some(Duration::ZERO);
        let (how, patience, future): (_, _, Attempt<Permit>) = match self.rng.below(5) {
            0 | 1 => ("acquire_many", None, Box::pin(some(semaphore.acquire_many(many)))),
            2 => (
                "acquire_with_timeout",
                Some(limit),
                Box::pin(some(semaphore.acquire_with_timeout(limit))),
            ),
            3 => ("try_acquire_many", zero, Box::pin(semaphore.try_acquire_many(many))),
            _ => ("try_acquire_for", Some(limit), Box::pin(semaphore.try_acquire_for(limit))),
        };
        let weight = if how.ends_with("many") { many } else { 1 };
        let asked = self.attempt_many(SEMAPHORE, weight, how, patience, future).await;
        let Some((asked_at, permit)) = asked else { return };
        let share = Share::Permits { weight: permit.weight(), all: PERMITS };
        let key = permit.holder().as_str().to_owned();
        let part = Part { lock: SEMAPHORE, token: 0, key, share };
        let mut held = Kept::new(&self.process, number, asked_at, permit, vec![part]);
        sleep(millis(self.rng.skewed(2000))).await;
        match self.rng.below(10) {
            0 => {
                let result = semaphore.status().await.map(drop);
                self.expect("status", result, is_lost_or_away);
            }
            1 => {
                let lease = millis(self.rng.between(100, self.workload.ttl_ms()));
                let result = held.proof().extend(lease).await;
                self.expect("extend", result, is_lost_or_away);
            }
            2 => {
                if let Some(permit) = held.take("spent") {
                    permit.spend();
                }
                return;
            }
            _ => {}
        }
        self.give_back(held).await;
    }

    async fn take_several(&mut self) {
        let number = self.process.history.lock().fresh();
        // One more than those that others take alone; some come twice.
        let all = self.workload.locks + 1;
        let chosen: Vec<usize> =
            (0..self.rng.between(2, 4)).map(|_| self.rng.below(all) as usize).collect();
        let names: BTreeSet<usize> = chosen.iter().copied().collect();
        let several = self.client.multi_lock(chosen.into_iter().map(lock_name));
        let several = several.owned_by(&Owner::new());
        let limit = millis(self.rng.skewed(5000));
        let (how, future): (_, Attempt<MultiGuard>) = match self.rng.below(4) {
            0 | 1 => ("multi lock", Box::pin(some(several.lock()))),
            2 => ("multi try_lock", Box::pin(several.try_lock())),
            _ => ("multi try_lock_for", Box::pin(several.try_lock_for(limit))),
        };
        let patience = (how == "multi try_lock_for").then_some(limit);
        let Some((asked_at, guard)) = self.attempt(SEVERAL, how, patience, future).await else {
            return;
        };
        let lock_of = |name: &str| (0..all as usize).find(|lock| lock_name(*lock) == name);
        let key = format!("several {number}");
        let parts: Vec<Part> = guard
            .tokens()
            .filter_map(|(name, token)| Some((lock_of(name)?, token)))
            .map(|(lock, token)| Part { lock, token, key: key.clone(), share: Share::Alone })
            .collect();
        let found: BTreeSet<usize> = parts.iter().map(|part| part.lock).collect();
        self.process.history.lock().checker.checked(Rule::Count);
        if found != names || parts.len() != names.len() {
            let what = format!("{found:?} are held of {names:?}");
            self.process.history.lock().violated(Rule::Count, what);
        }
        let held = Kept::new(&self.process, number, asked_at, guard, parts);
        sleep(millis(self.rng.skewed(1000))).await;
        self.give_back(held).await;
    }

    async fn vote(&mut self) {
        let election = self.client.election(ELECTION_NAME).with_value("v");
        let limit = millis(self.rng.skewed(5000));
        let (how, future): (_, Attempt<Leadership>) = match self.rng.below(4) {
            0 | 1 => ("campaign", Box::pin(lead(election.campaign()))),
            2 => ("campaign_with_timeout", Box::pin(lead(election.campaign_with_timeout(limit)))),
            _ => return self.observe(&election).await,
        };
        let number = self.process.history.lock().fresh();
        let Some((asked_at, leadership)) = self.attempt(ELECTION, how, None, future).await else {
            return;
        };
        let (term, key) = (leadership.term(), leadership.holder().as_str().to_owned());
        let part = Part { lock: ELECTION, token: term, key, share: Share::Alone };
        let held = Kept::new(&self.process, number, asked_at, leadership, vec![part]);
        sleep(millis(self.rng.skewed(1500))).await;
        match self.rng.below(4) {
            0 => {
                let result = held.proof().proclaim("w").await;
                self.expect("proclaim", result, is_lost_or_away);
            }
            1 => {
                let result = election.leader().await;
                let leads = !held.proof().remaining().is_zero();
                // Servers that have lost it may know none, or one before it.
                if let (Ok(Some(leader)), true) = (&result, leads)
                    && leader.term > term
                {
                    let what = format!("{leader:?} is said to lead in the term {term}");
                    self.process.history.lock().violated(Rule::Exclusion, what);
                }
                self.expect("leader", result.map(drop), is_lost_or_away);
            }
            _ => {}
        }
        self.give_back(held).await;
    }

    /// Whoever observes sees no term after a later one.
    async fn observe(&mut self, election: &Election) {
        let (process, mut newest) = (self.process.clone(), 0);
        let mut observer = election.observe();
        let shown = async move {
            loop {
                match observer.changed().await {
                    Ok(None) | Err(Error::Unavailable { .. }) => {}
                    Ok(Some(leader)) => {
                        let mut history = process.history.lock();
                        history.checker.checked(Rule::TokenOrder);
                        if leader.term < newest {
                            let what = format!("the term {} is shown after {newest}", leader.term);
                            history.violated(Rule::TokenOrder, what);
                        }
                        newest = leader.term;
                    }
                    Err(error) => return error,
                }
            }
        };
        if let Ok(error) = timeout(millis(self.rng.skewed(4000)), shown).await {
            self.expect("observe", Err(error), is_lost_or_away);
        }
    }

    pub(crate) async fn give_back<P: Thing>(&mut self, mut held: Kept<P>) {
        let how = self.rng.below(10);
        let remaining = held.proof().remaining();
        let was_lost = remaining.is_zero();
        let Some(proof) = held.take(if how < 6 { "released" } else { "dropped" }) else { return };
        if how >= 6 {
            return drop(proof);
        }
        let timing = Timing::start(&self.process, Some(Duration::ZERO));
        let released = proof.give_back();
        let result = if how == 5 { self.perhaps(released).await } else { Some(released.await) };
        timing.check("release", self.workload.response_timeout, false);
        self.check_loss(&result, remaining, &timing, held.asked_at);
        match result {
            Some(Ok(())) if was_lost => {
                let what = format!("a release was fine with what was lost: {:?}", held.parts);
                self.process.history.lock().violated(Rule::Telling, what);
            }
            Some(result) => self.expect("release", result, is_lost_or_away),
            None => {}
        }
    }
}

pub(crate) fn is_lost_or_away(error: &Error) -> bool {
    matches!(error, Error::Lost { .. } | Error::Unavailable { .. })
}

/// A leadership that was lost before its leader had said a word was none.
async fn lead(
    campaign: impl Future<Output = Result<Leadership, Error>>,
) -> Result<Option<Leadership>, Error> {
    match campaign.await {
        Err(Error::Lost { .. }) => Ok(None),
        result => result.map(Some),
    }
}

/// What proves that something is held, and gives it back.
pub(crate) trait Thing: Proof + Sized {
    fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send>>;
    fn give_back(self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
}

/// The guard of a read-write lock.
trait OfLock {
    fn token(&self) -> u64;
    fn holder(&self) -> Holder;
}

macro_rules! of_lock {
    ($guard:ty) => {
        impl OfLock for $guard {
            fn token(&self) -> u64 {
                <$guard>::token(self)
            }

            fn holder(&self) -> Holder {
                <$guard>::holder(self)
            }
        }
    };
}

of_lock!(ReadGuard);
of_lock!(WriteGuard);

macro_rules! thing {
    ($thing:ty) => {
        impl Proof for $thing {
            fn is_held(&self) -> bool {
                <$thing>::is_held(self)
            }

            fn remaining(&self) -> Duration {
                <$thing>::remaining(self)
            }
        }

        impl Thing for $thing {
            fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send>> {
                let lost = <$thing>::lost(self);
                Box::pin(async move { lost.await.to_string() })
            }

            fn give_back(self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
                Box::pin(<$thing>::release(self))
            }
        }
    };
}

thing!(ReadGuard);
thing!(WriteGuard);
thing!(Permit);
thing!(MultiGuard);
thing!(Leadership);
/// What the checker knows a hold by.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) lock: usize,
    pub(crate) token: u64,
    pub(crate) key: String,
    pub(crate) share: Share,
}

/// Something that is held and watched.
pub(crate) struct Kept<P: Thing> {
    process: Arc<Process>,
    asked_at: u64,
    parts: Vec<Part>,
    proof: Option<Arc<P>>,
    teller: tokio::task::JoinHandle<()>,
    is_left: bool,
}

impl<P: Thing> Kept<P> {
    pub(crate) fn new(
        process: &Arc<Process>,
        owner: u64,
        asked_at: u64,
        proof: P,
        parts: Vec<Part>,
    ) -> Self {
        let proof = Arc::new(proof);
        let held = !Proof::remaining(&*proof).is_zero();
        for Part { lock, token, key, share } in parts.iter().cloned() {
            process.history.lock().granted(Grant {
                lock,
                token,
                host: process.host,
                owner,
                share,
                lease: key.clone(),
                asked_at,
                held,
            });
            let watched: Arc<dyn Proof> = proof.clone();
            process.watch_proof(lock, token, key, Arc::downgrade(&watched));
        }
        let (history, told, lost) = (process.history.clone(), parts.clone(), proof.lost());
        let teller = tokio::spawn(async move {
            let reason = lost.await;
            for Part { lock, token, key, .. } in told {
                history.lock().told(lock, token, &key, &reason);
            }
        });
        let proof = Some(proof);
        let process = process.clone();
        Self { process, asked_at, parts, proof, teller, is_left: false }
    }

    pub(crate) fn asked_at(&self) -> u64 {
        self.asked_at
    }

    pub(crate) fn proof(&self) -> &P {
        self.proof.as_ref().expect("it is there until it is let go")
    }

    /// Its proof, for those who look at it.
    pub(crate) fn watched(&self) -> Weak<dyn Proof> {
        let proof: Option<Arc<dyn Proof>> = self.proof.clone().map(|proof| proof as _);
        proof.as_ref().map(Arc::downgrade).expect("it is there until it is let go")
    }

    /// Nothing is promised of it any more.
    pub(crate) fn take(&mut self, how: &str) -> Option<P> {
        self.left(how);
        self.proof.take().and_then(Arc::into_inner)
    }

    fn left(&mut self, how: &str) {
        if std::mem::replace(&mut self.is_left, true) {
            return;
        }
        self.teller.abort();
        if !self.process.killed.load(Ordering::Relaxed) {
            let mut history = self.process.history.lock();
            for Part { lock, token, key, .. } in &self.parts {
                history.left(*lock, *token, key, how);
            }
        }
    }
}

impl<P: Thing> Drop for Kept<P> {
    fn drop(&mut self) {
        self.left("dropped with its future");
    }
}
