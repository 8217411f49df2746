//! What the processes do: take locks in every way there is, hold them, nest them, and let go of them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold::{Client, Error, Guard, Mutex, Owner, ReadVersion};
use leasehold_test::emulator::Rng;
use tokio::time::sleep;

use crate::checker::{Grant, Rule, Share};
use crate::coordination::Memory;
use crate::host::Process;
use crate::wishes::Asking;

/// What the tasks of a run have in common.
#[derive(Clone)]
pub struct Workload {
    pub locks: u64,
    pub ttl: Duration,
    pub response_timeout: Duration,
    /// Per mille of the turns that break somebody's hold.
    pub force_unlocks: u64,
    /// Per mille of the turns that wait in order with all other processes.
    pub fair: u64,
    /// Nobody begins anything new.
    pub resting: Arc<AtomicBool>,
    /// Per mille of the lost holds whose guards are kept for long.
    pub keepers: u64,
    /// How many times a TTL a lease may be made to last.
    pub longer: u64,
    /// There are several servers, which refuse what needs one.
    pub several: bool,
    /// Per mille of the turns that are about locks of other kinds.
    pub kinds: u64,
    /// Per mille of the turns that are about the queue, latches and signals.
    pub coordination: u64,
    /// Per mille of the turns that take several locks, one under the other.
    pub tangles: u64,
    pub tangled_permits: bool,
    /// How many tasks are in the middle of something.
    pub busy: Arc<AtomicU64>,
}

impl Workload {
    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl.as_millis() as u64
    }

    /// Any lease of a run, however it came about.
    pub fn longest_lease_ms(&self) -> u64 {
        self.ttl_ms() * 3 / 2 * self.longer
    }
}

/// A task that takes locks for ever.
pub struct Worker {
    pub process: Arc<Process>,
    pub client: Client,
    /// The client is no more.
    pub ended: Arc<AtomicBool>,
    pub rng: Rng,
    pub workload: Workload,
    /// The token that it read with last, and the version.
    pub seen: Option<(u64, ReadVersion)>,
    pub memory: Memory,
    /// The lock that nobody else takes.
    pub own: usize,
}

/// In the middle of something until it is dropped.
struct Busy(Arc<AtomicU64>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    pub async fn work(mut self) {
        loop {
            let pause = self.rng.skewed(400);
            sleep(Duration::from_millis(pause)).await;
            if self.is_ended() {
                return;
            }
            if self.workload.resting.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(10)).await;
                continue;
            }
            self.workload.busy.fetch_add(1, Ordering::Relaxed);
            let _busy = Busy(self.workload.busy.clone());
            self.turn().await;
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    async fn turn(&mut self) {
        if self.workload.coordination > 0 && self.rng.chance(self.workload.coordination) {
            return self.turn_of_coordination().await;
        }
        if self.workload.kinds > 0 && self.rng.chance(self.workload.kinds) {
            return self.turn_of_another_kind().await;
        }
        if self.workload.tangles > 0 && self.rng.chance(self.workload.tangles) {
            return self.tangle().await;
        }
        let lock = match self.rng.chance(OWN) {
            true => self.own,
            false => self.rng.below(self.workload.locks) as usize,
        };
        let owner = Owner::new();
        let plain = match self.rng.chance(self.workload.fair) {
            true => self.client.fair_mutex(lock_name(lock)),
            false => self.client.mutex(lock_name(lock)),
        };
        let plain = plain.owned_by(&owner);
        if self.rng.chance(self.workload.force_unlocks) {
            self.force(&plain).await;
            return;
        }
        let (handle, ttl) = self.terms(&plain);
        let number = self.process.history.lock().fresh();
        if self.rng.chance(100) {
            self.run(lock, number, &handle).await;
        } else if let Some(held) = self.acquire(lock, number, &handle).await {
            self.check_beginning(&held, ttl);
            self.hold(held, number, &handle).await;
        }
    }

    /// A handle on some terms, and how long the lease is that they ask for.
    fn terms(&mut self, handle: &Mutex) -> (Mutex, Duration) {
        let ttl = self.workload.ttl_ms();
        let (fixed, watched) = (self.rng.between(ttl / 10, ttl), self.rng.between(ttl / 3, ttl));
        let max_hold = self.rng.between(ttl / 3, 2 * ttl);
        match self.rng.below(100) {
            0..70 => (handle.clone(), millis(ttl)),
            70..85 => (handle.with_lease(millis(fixed)), millis(fixed)),
            85..95 => (handle.with_ttl(millis(watched)), millis(watched)),
            _ => (handle.with_max_hold(millis(max_hold)), millis(ttl)),
        }
    }

    /// No hold begins with more time than it asked for: that would outlast a crash of its process.
    fn check_beginning(&self, held: &Held, ttl: Duration) {
        let remaining = held.guard().remaining();
        let mut history = self.process.history.lock();
        history.checker.checked(Rule::Deadline);
        if remaining > ttl {
            let what = format!("token {} begins with {remaining:?} of {ttl:?}", held.token);
            history.violated(Rule::Deadline, what);
        }
    }

    /// One acquisition, in one of the ways there are.
    async fn acquire(&mut self, lock: usize, owner: u64, handle: &Mutex) -> Option<Held> {
        let limit = millis(self.rng.skewed(5000));
        let (how, future): (_, Attempt<Guard>) = match self.rng.below(4) {
            0 => ("lock", Box::pin(some(handle.lock()))),
            1 => ("lock_with_timeout", Box::pin(some(handle.lock_with_timeout(limit)))),
            2 => ("try_lock", Box::pin(handle.try_lock())),
            _ => ("try_lock_for", Box::pin(handle.try_lock_for(limit))),
        };
        let patience = match how {
            "lock" => None,
            "try_lock" => Some(Duration::ZERO),
            _ => Some(limit),
        };
        let (asked_at, guard) = self.attempt(lock, how, patience, future).await?;
        Some(Held::new(&self.process, lock, owner, asked_at, guard))
    }

    /// Awaits an acquisition, or drops it on the way. What was acquired, and when that was asked for.
    pub(crate) async fn attempt<T>(
        &mut self,
        lock: usize,
        how: &'static str,
        patience: Option<Duration>,
        future: Attempt<T>,
    ) -> Option<(u64, T)> {
        self.attempt_many(lock, 1, how, patience, future).await
    }

    /// For some of the permits.
    pub(crate) async fn attempt_many<T>(
        &mut self,
        lock: usize,
        weight: u32,
        how: &'static str,
        patience: Option<Duration>,
        future: Attempt<T>,
    ) -> Option<(u64, T)> {
        let timing = Timing::start(&self.process, patience);
        let request = self.process.history.lock().asked(self.process.host, lock, how, weight);
        let result = self.perhaps(future).await;
        let mut history = self.process.history.lock();
        let Some(result) = result else {
            history.answered(request, "dropped");
            history.count("dropped_futures", 1);
            return None;
        };
        match result {
            Ok(Some(guard)) => Some((history.answered(request, "granted"), guard)),
            Ok(None) | Err(Error::Timeout { .. } | Error::StillWaiting { .. }) => {
                history.answered(request, "held by another");
                drop(history);
                timing.check(how, self.workload.response_timeout, true);
                None
            }
            Err(error @ Error::Unavailable { .. }) => {
                let asked_at = history.answered(request, "unavailable");
                history.count("unavailable", 1);
                // A wait that is shorter than the way there and back has no answer. (The limit of a campaign is not known here.)
                let long = patience.is_none_or(|limit| limit.is_zero() || limit > ROUND_TRIP);
                if long && !had_no_time(&error) && how != "campaign_with_timeout" {
                    history.unanswered(self.process.host, asked_at, &format!("{how}: {error}"));
                }
                drop(history);
                // No wait helps against servers that must not be asked.
                let waits = !error.to_string().contains("grants do not count");
                timing.check(how, self.workload.response_timeout, waits);
                None
            }
            Err(Error::Closed { .. }) if self.is_ended() => {
                history.answered(request, "closed");
                None
            }
            Err(error @ Error::Deadlock { .. }) if self.workload.tangles > 0 => {
                history.answered(request, "deadlock");
                drop(history);
                self.told_deadlock(&error);
                None
            }
            Err(error) => {
                history.answered(request, "failed");
                history.violated(Rule::Unexpected, format!("{how}: {error}"));
                None
            }
        }
    }

    /// A future to its end, or dropped on the way.
    pub(crate) async fn perhaps<F: Future>(&mut self, future: F) -> Option<F::Output> {
        match self.rng.below(100) {
            0..80 => Some(future.await),
            80..90 => drop_after(future, self.rng.below(8) as usize).await,
            _ => tokio::time::timeout(millis(self.rng.skewed(2000)), future).await.ok(),
        }
    }

    async fn hold(&mut self, held: Held, owner: u64, handle: &Mutex) {
        let mut nested: Vec<Held> = Vec::new();
        for _ in 0..self.rng.below(4) {
            match self.rng.below(11) {
                0..5 => sleep(millis(self.rng.skewed(1500))).await,
                10 => self.until_wanted(&held).await,
                5 | 6 => {
                    if let Some(inner) = self.nest(&held, owner, handle).await {
                        nested.push(inner);
                        self.check_count(&held, nested.len() + 1);
                    }
                }
                7 => {
                    let most = self.workload.ttl_ms() * self.workload.longer;
                    let lease = millis(self.rng.between(100, most));
                    let result = held.guard().extend(lease).await;
                    self.expect("extend", result, |error| {
                        matches!(error, Error::Lost { .. } | Error::Unavailable { .. })
                    });
                }
                8 => {
                    let work = sleep(millis(self.rng.skewed(1000)));
                    let result = held.guard().run_until_lost(work).await;
                    self.expect("run_until_lost", result, |error| {
                        matches!(error, Error::Lost { .. })
                    });
                }
                _ => {
                    let result = handle.status().await.map(|_| ());
                    self.expect("status", result, |error| {
                        matches!(error, Error::Unavailable { .. })
                    });
                }
            }
        }
        if held.guard().remaining().is_zero() && self.rng.chance(self.workload.keepers) {
            self.process.history.count("kept_guards");
            sleep(millis(KEPT_MS)).await;
        }
        let mut all = nested;
        all.push(held);
        while !all.is_empty() {
            let next = all.swap_remove(self.rng.below(all.len() as u64) as usize);
            self.let_go(next).await;
            if let Some(left) = all.last() {
                self.check_count(left, all.len());
            }
        }
    }

    /// Keeps a lock until somebody wants it, as who works on a batch does, or for some time.
    async fn until_wanted(&mut self, held: &Held) {
        let ends_at = self.process.clock.read() + millis(self.rng.between(500, 6000));
        let (process, host, lock) = (self.process.clone(), self.process.host, held.lock);
        let number = process.history.lock().fresh();
        let mut asking = WantedOrNot { process: process.clone(), number: None };
        while !held.guard().remaining().is_zero() && process.clock.read() < ends_at {
            let is_wanted = held.guard().is_wanted();
            if asking.number.is_none() {
                asking.number = Some(number);
                let mut history = process.history.lock();
                let since = history.now;
                history.wishes.begun(number, Asking { host, lock, since });
            }
            if is_wanted {
                return process.history.lock().wanted(number);
            }
            sleep(millis(20)).await;
        }
    }

    async fn nest(&mut self, outer: &Held, owner: u64, handle: &Mutex) -> Option<Held> {
        let asked_at = self.process.history.lock().now;
        let most = millis(self.workload.ttl_ms() * self.workload.longer);
        let result = match self.rng.below(6) {
            0..3 => outer.guard().reenter(),
            3 | 4 => handle.lock().await,
            _ => handle.with_lease(most).lock().await,
        };
        match result {
            Err(Error::Closed { .. }) if self.is_ended() => None,
            Ok(guard) => Some(Held::new(&self.process, outer.lock, owner, asked_at, guard)),
            Err(Error::Lost { .. } | Error::Unavailable { .. }) => None,
            Err(error) => {
                let mut history = self.process.history.lock();
                history.violated(Rule::Unexpected, format!("nested: {error}"));
                None
            }
        }
    }

    /// S3: the count is that of the guards which are there.
    fn check_count(&self, held: &Held, expected: usize) {
        let count = held.guard().hold_count() as usize;
        self.process.history.lock().checker.checked(Rule::Count);
        if count != expected {
            let what = format!("{count} holds are counted of {expected}, token {}", held.token);
            self.process.history.lock().violated(Rule::Count, what);
        }
    }

    pub(crate) async fn let_go(&mut self, mut held: Held) {
        let how = self.rng.below(10);
        let remaining = held.guard().remaining();
        let (was_lost, nested) = (remaining.is_zero(), held.guard().hold_count() > 1);
        held.left(if how < 6 { "unlocked" } else { "dropped" });
        let Some(guard) = held.guard.take().and_then(Arc::into_inner) else {
            return;
        };
        if how >= 6 {
            drop(guard);
            return;
        }
        let timing = Timing::start(&self.process, Some(Duration::ZERO));
        let unlock = guard.unlock();
        let result = if how == 5 { self.perhaps(unlock).await } else { Some(unlock.await) };
        timing.check("unlock", self.workload.response_timeout, false);
        if let Some(Err(Error::Unavailable { .. })) = &result
            && !nested
        {
            timing.check_least("unlock", self.workload.response_timeout.min(remaining / 3));
        }
        self.check_loss(&result, remaining, &timing, held.asked_at);
        match result {
            Some(Ok(())) if was_lost => {
                let what = format!("unlock was fine with what was lost, token {}", held.token);
                self.process.history.lock().violated(Rule::Telling, what);
            }
            Some(result) => self.expect("unlock", result, |error| {
                matches!(error, Error::Lost { .. } | Error::Unavailable { .. })
            }),
            None => {}
        }
    }

    /// W3: what was held for so long still, for all that its process knew, is given back, unless something has ended it.
    pub(crate) fn check_loss(
        &self,
        result: &Option<Result<(), Error>>,
        remaining: Duration,
        timing: &Timing,
        asked_at: u64,
    ) {
        let Some(Err(Error::Lost { reason, .. })) = result else { return };
        // It may have ended on its way.
        if timing.took() + SCHEDULING < remaining {
            let mut history = self.process.history.lock();
            history.gone(self.process.host, asked_at, &format!("as it was given back: {reason}"));
        }
    }

    async fn run(&mut self, lock: usize, owner: u64, handle: &Mutex) {
        let process = self.process.clone();
        let length = millis(self.rng.skewed(1500));
        let request = process.history.lock().asked(process.host, lock, "run", 1);
        let mut pending = Pending { process: process.clone(), request: Some(request) };
        let run = handle.run(async move |guard: &Guard| {
            let asked_at = pending.end("granted");
            // Of its own, so that it can be watched.
            if let Ok(inner) = guard.reenter() {
                let _held = Held::new(&process, lock, owner, asked_at, inner);
                sleep(length).await;
            }
        });
        if let Some(result) = self.perhaps(Box::pin(run)).await {
            self.expect("run", result, |error| {
                matches!(error, Error::Lost { .. } | Error::Unavailable { .. })
            });
        }
    }

    async fn force(&mut self, handle: &Mutex) {
        self.process.history.lock().forced(FORCED_MS);
        let result = handle.force_unlock().await.map(|_| ());
        self.expect("force_unlock", result, |error| matches!(error, Error::Unavailable { .. }));
    }

    pub(crate) fn expect(
        &self,
        what: &str,
        result: Result<(), Error>,
        fine: impl Fn(&Error) -> bool,
    ) {
        self.process.history.lock().checker.checked(Rule::Unexpected);
        // What waits for one answer, however long its lease is.
        if let (Err(error @ Error::Unavailable { .. }), true) = (&result, ASKS.contains(&what)) {
            let mut history = self.process.history.lock();
            let asked_at =
                history.now.saturating_sub(self.workload.response_timeout.as_millis() as u64);
            history.unanswered(self.process.host, asked_at, &format!("{what}: {error}"));
        }
        if let Err(error) = result
            && !fine(&error)
            && !(self.is_ended() && matches!(error, Error::Closed { .. }))
        {
            let mut history = self.process.history.lock();
            history.violated(Rule::Unexpected, format!("{what}: {error}"));
        }
    }
}

/// A guard that is asked whether it is wanted, until this is dropped.
struct WantedOrNot {
    process: Arc<Process>,
    number: Option<u64>,
}

impl Drop for WantedOrNot {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.process.history.lock().wishes.ended(number);
        }
    }
}

/// A request that ends as dropped unless it ends otherwise.
struct Pending {
    process: Arc<Process>,
    request: Option<u64>,
}

impl Pending {
    fn end(&mut self, how: &str) -> u64 {
        let request = self.request.take().unwrap_or(0);
        self.process.history.lock().answered(request, how)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.request.is_some() && !self.process.killed.load(Ordering::Relaxed) {
            self.end("ended without the lock");
        }
    }
}

/// A guard that is watched.
pub struct Held {
    process: Arc<Process>,
    pub lock: usize,
    pub token: u64,
    asked_at: u64,
    lease: String,
    guard: Option<Arc<Guard>>,
    teller: tokio::task::JoinHandle<()>,
    is_left: bool,
}

impl Held {
    pub fn new(
        process: &Arc<Process>,
        lock: usize,
        owner: u64,
        asked_at: u64,
        guard: Guard,
    ) -> Self {
        let guard = Arc::new(guard);
        let token = guard.token();
        let lease = guard.holder().as_str().to_owned();
        process.history.lock().granted(Grant {
            lock,
            token,
            host: process.host,
            owner,
            share: Share::Alone,
            lease: lease.clone(),
            asked_at,
            held: !guard.remaining().is_zero(),
        });
        process.watch(lock, &guard);
        let lost = guard.lost();
        let (history, told) = (process.history.clone(), lease.clone());
        let teller = tokio::spawn(async move {
            let reason = lost.await;
            history.lock().told(lock, token, &told, &reason.to_string());
        });
        let guard = Some(guard);
        let process = process.clone();
        Self { process, lock, token, asked_at, lease, guard, teller, is_left: false }
    }

    /// Its guard, for those who look at it.
    pub(crate) fn shared(&self) -> Arc<Guard> {
        self.guard.clone().expect("it is there until it is let go")
    }

    fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("it is there until it is let go")
    }

    fn left(&mut self, how: &str) {
        if !std::mem::replace(&mut self.is_left, true) {
            self.teller.abort();
            if self.process.killed.load(Ordering::Relaxed) {
                return;
            }
            self.process.history.lock().left(self.lock, self.token, &self.lease, how);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.left("dropped with its future");
    }
}

/// T1: a wait ends when it should.
pub(crate) struct Timing {
    process: Arc<Process>,
    /// On the clock of the process.
    began: Duration,
    stops: u64,
    patience: Option<Duration>,
}

impl Timing {
    pub(crate) fn start(process: &Arc<Process>, patience: Option<Duration>) -> Self {
        let stops = process.stops.load(Ordering::Relaxed);
        Self { process: process.clone(), began: process.clock.read(), stops, patience }
    }

    /// On the clock of the process.
    pub(crate) fn took(&self) -> Duration {
        self.process.clock.read() - self.began
    }

    /// An answer was waited for that long at least.
    fn check_least(&self, how: &str, least: Duration) {
        let took = self.took();
        if took + Duration::from_millis(2) < least {
            let what = format!("{how} gave up after {took:?} of {least:?}");
            self.process.history.lock().violated(Rule::Timing, what);
        }
    }

    /// `waits`: the whole time must have passed.
    pub(crate) fn check(&self, how: &str, response_timeout: Duration, waits: bool) {
        let Some(patience) = self.patience else { return };
        let took = self.took();
        self.process.history.lock().checker.checked(Rule::Timing);
        let stopped = self.stops != self.process.stops.load(Ordering::Relaxed);
        // What asks once waits for one answer.
        let most = if patience.is_zero() { ATTEMPTS * response_timeout } else { patience };
        if (waits && took < patience) || (!stopped && took > most + SCHEDULING) {
            let what = format!("{how} of {patience:?} took {took:?}");
            self.process.history.lock().violated(Rule::Timing, what);
        }
    }
}

pub(crate) type Attempt<T> = Pin<Box<dyn Future<Output = Result<Option<T>, Error>> + Send>>;

pub(crate) async fn some<T>(
    future: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, Error> {
    future.await.map(Some)
}

/// Polls a future `polls` times, then drops it. Its output, if it ended by then.
pub async fn drop_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(move |cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The last poll's wake-up would come too late: the drop is due at once.
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

pub fn lock_name(lock: usize) -> String {
    format!("lock-{lock}")
}

pub(crate) fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Whether what was asked last had less time than the way there and back takes: at the end of a wait a lease may be confirmed that
/// others share.
fn had_no_time(error: &Error) -> bool {
    let Error::Unavailable { failures, .. } = error else { return false };
    !failures.is_empty() && failures.iter().all(|failure| is_short(&failure.to_string()))
}

/// Whether a failure says that there was no answer within a time that short.
fn is_short(failure: &str) -> bool {
    let Some((_, limit)) = failure.rsplit_once("no answer within ") else { return false };
    let ms = limit.strip_suffix("ms").and_then(|ms| ms.parse().ok());
    limit.ends_with("µs") || ms.is_some_and(|ms| Duration::from_millis(ms) <= ROUND_TRIP)
}

/// Per mille of the turns that are about the lock that nobody else takes.
const OWN: u64 = 50;
/// How many answers an attempt waits for: its own, and those to asks of its own process that it finds under way.
const ATTEMPTS: u32 = 1;
/// What only asks.
const ASKS: [&str; 12] = [
    "status",
    "observe",
    "leader",
    "push",
    "redrive",
    "try_set_count",
    "count_down",
    "count",
    "delete",
    "seen",
    "notify",
    "dead",
];
/// How long a forced unlock may take to run.
const FORCED_MS: u64 = 10_000;
/// A message takes a few milliseconds, and now and then some more.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(100);
/// How late a wait may end.
const SCHEDULING: Duration = Duration::from_millis(50);
/// How long the guard of a lost hold may be kept: a waiter behind it must have got in by then.
pub const KEPT_MS: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_short_up_to_a_round_trip_in_whatever_unit() {
        for short in ["999µs", "1ms", "100ms"] {
            assert!(is_short(&format!("redis://node-0:6379: no answer within {short}")), "{short}");
        }
        for other in ["no answer within 101ms", "no answer within 1s", "refused", "ms"] {
            assert!(!is_short(other), "{other}");
        }
    }
}
