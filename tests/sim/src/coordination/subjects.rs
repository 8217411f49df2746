//! What the processes do with latches, signals and a group of signals: they count and notify, and wait.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{Changes, Error, Latch, LossReason, Notice, Signal};
use tokio::time::timeout;

use super::{GROUP_NAME, SIGNAL_NAMES, Subject, Wait, latch_name};
use crate::checker::Rule;
use crate::kinds::is_lost_or_away;
use crate::workload::{Attempt, ROUND_TRIP, Timing, Worker, millis, some};

/// What a worker remembers from turn to turn: it listens to nothing in between.
#[derive(Default)]
pub struct Memory {
    /// A handle of a latch, which has seen it shut perhaps, and since when it is used.
    latch: Option<(u64, u64, Latch)>,
    signals: [Option<u64>; 2],
    group: Option<u64>,
}

/// The newest number of a signal at a time.
#[derive(Clone, Copy)]
struct Newest {
    number: u64,
    at: u64,
}

impl Worker {
    pub(super) async fn use_latch(&mut self) {
        let (is_used_up, current, now) = {
            let history = self.process.history.lock();
            let latches = &history.books.latches;
            (latches.is_used_up(history.now), latches.current, history.now)
        };
        let Some(latch) = current.filter(|_| !is_used_up || self.rng.chance(500)) else {
            return self.set_latch().await;
        };
        let known = self
            .memory
            .latch
            .take()
            .filter(|(of, since, _)| *of == latch && since + LATCH_HANDLE_MS > now);
        let client = &self.client;
        let (_, since, handle) =
            known.unwrap_or_else(|| (latch, now, client.latch(latch_name(latch))));
        self.memory.latch = Some((latch, since, handle.clone()));
        match self.rng.below(40) {
            0..14 => self.count_down(latch, since, handle).await,
            14..20 => {
                let most = self.process.history.lock().books.latches.most_left(latch);
                let left = self.perhaps(Box::pin(async move { handle.count().await })).await;
                self.check_left("count", latch, (since, now), most, left);
            }
            20 => {
                self.process.history.lock().books.latches.deleting(latch);
                let result = self.perhaps(Box::pin(async move { handle.delete().await })).await;
                match result {
                    Some(Ok(_)) => self.process.history.lock().books.latches.deleted(latch, now),
                    Some(Err(error)) => self.expect("delete", Err(error), is_lost_or_away),
                    None => {}
                }
            }
            _ => self.wait_for_latch(latch, since, handle).await,
        }
    }

    async fn set_latch(&mut self) {
        let (latch, asked_at) = {
            let mut history = self.process.history.lock();
            (history.fresh(), history.now)
        };
        let handle = self.client.latch(latch_name(latch));
        let counts = self.rng.between(1, 8);
        let ttl_ms = self.rng.chance(500).then(|| self.rng.between(3000, 30_000));
        let ttl = ttl_ms.map_or(Duration::MAX, millis);
        let set = async move { handle.try_set_count(counts, ttl).await };
        match self.perhaps(Box::pin(set)).await {
            // Nobody counts who does not know that it is set: it is not set behind a count.
            Some(Ok(true)) => {
                let mut history = self.process.history.lock();
                history.count("latches", 1);
                history.books.latches.set(latch, counts, asked_at, ttl_ms);
            }
            Some(Ok(false)) => {
                let what = format!("latch {latch} was shut before it was set");
                self.process.history.lock().violated(Rule::Latch, what);
            }
            Some(Err(error)) => self.expect("try_set_count", Err(error), is_lost_or_away),
            None => {}
        }
    }

    async fn count_down(&mut self, latch: u64, since: u64, handle: Latch) {
        let (most, now) = {
            let mut history = self.process.history.lock();
            (history.books.latches.counting(latch), history.now)
        };
        let left = self.perhaps(Box::pin(async move { handle.count_down().await })).await;
        if let Some(Ok(_)) = left {
            self.process.history.lock().books.latches.counted(latch, now);
        }
        self.check_left("count_down", latch, (since, now), most, left);
    }

    /// So many counts are left, as somebody was told who began to look when there were `most` at most.
    fn check_left(
        &self,
        what: &'static str,
        latch: u64,
        (since, asked_at): (u64, u64),
        most: u64,
        left: Option<Result<u64, Error>>,
    ) {
        match left {
            Some(Ok(left)) => {
                let mut history = self.process.history.lock();
                history.checker.checked(Rule::Latch);
                let bounds = history.books.latches.bounds(latch, history.now, most, asked_at);
                if !(bounds.least..=bounds.most).contains(&left) {
                    let what = format!("{what} says that latch {latch} has {left}, of {bounds:?}");
                    history.violated(Rule::Latch, what);
                }
            }
            Some(Err(error @ Error::Lost { .. })) => self.check_lost(what, latch, since, &error),
            Some(Err(error)) => self.expect(what, Err(error), is_lost_or_away),
            None => {}
        }
    }

    /// A latch is lost by its end, or to who saw it shut before its server was another.
    fn check_lost(&self, what: &str, latch: u64, since: u64, error: &Error) {
        let Error::Lost { reason, .. } = error else { return };
        let mut history = self.process.history.lock();
        history.count("latches_lost", 1);
        history.checker.checked(Rule::Latch);
        let now = history.now;
        let ended = history.books.latches.may_have_ended(latch, now);
        let is_fine = match reason {
            LossReason::Ended => ended,
            _ => history.causes.silence(self.process.host, since, now),
        };
        if !is_fine {
            history.violated(Rule::Latch, format!("{what} of latch {latch}: {error}"));
        }
    }

    async fn wait_for_latch(&mut self, latch: u64, since: u64, handle: Latch) {
        let (most, now) = {
            let history = self.process.history.lock();
            (history.books.latches.most_left(latch), history.now)
        };
        let (limit, patience) = self.limit();
        let waiting: Attempt<()> = match patience {
            None => Box::pin(within(limit, handle.wait())),
            Some(limit) => Box::pin(some(handle.wait_with_timeout(limit))),
        };
        let left = self.wait_for("wait", Subject::Latch(latch), patience, waiting).await;
        self.check_left("wait", latch, (since, now), most, left.map(|end| end.map(|()| 0)));
    }

    pub(super) async fn use_signal(&mut self) {
        let which = self.rng.below(2) as usize;
        let signal = self.client.signal(SIGNAL_NAMES[which]);
        if self.rng.chance(350) {
            return self.notify(which, signal).await;
        }
        let Some(seen) = self.memory.signals[which].filter(|_| !self.rng.chance(100)) else {
            let newest = self.newest(which);
            match self.perhaps(Box::pin(async move { signal.seen().await })).await {
                Some(Ok(number)) => {
                    self.memory.signals[which] = Some(number);
                    self.check_signal(which, newest, number, None);
                }
                Some(Err(error)) => self.expect("seen", Err(error), is_lost_or_away),
                None => {}
            }
            return;
        };
        let other = 1 - which;
        if let (Some(seen_of_other), true) = (self.memory.signals[other], self.rng.chance(200)) {
            let both = [(which, seen), (other, seen_of_other)];
            return self.wait_for_any(both).await;
        }
        let newest = self.newest(which);
        let (limit, patience) = self.limit();
        let waiting: Attempt<Notice> = match patience {
            None => Box::pin(within(limit, signal.changed(seen))),
            Some(limit) => Box::pin(some(signal.changed_with_timeout(seen, limit))),
        };
        let subject = Subject::Signal(which, seen);
        match self.wait_for("changed", subject, patience, waiting).await {
            Some(Ok(notice)) => self.noticed(which, newest, &notice),
            Some(Err(error)) => self.expect("changed", Err(error), is_lost_or_away),
            None => {}
        }
    }

    async fn notify(&mut self, which: usize, signal: Signal) {
        let data = {
            let mut history = self.process.history.lock();
            let data = history.fresh().to_string().into_bytes();
            history.books.signals[which].notifying(&data);
            data
        };
        let told = data.clone();
        match self.perhaps(Box::pin(async move { signal.notify_all(&data).await })).await {
            Some(Ok(_)) => {
                let mut history = self.process.history.lock();
                history.count("signals", 1);
                if let Err(problem) = history.books.signals[which].notified(&told) {
                    history.violated(Rule::Signal, format!("signal {which}: {problem}"));
                }
            }
            Some(Err(error)) => self.expect("notify", Err(error), is_lost_or_away),
            None => {}
        }
    }

    async fn wait_for_any(&mut self, both: [(usize, u64); 2]) {
        let signals = both.map(|(which, seen)| (self.client.signal(SIGNAL_NAMES[which]), seen));
        let newest = both.map(|(which, _)| self.newest(which));
        let (limit, _) = self.limit();
        let waiting = Signal::any_changed_with_timeout(&signals, limit);
        match self.perhaps(Box::pin(waiting)).await {
            Some(Ok((at, notice))) => self.noticed(both[at].0, newest[at], &notice),
            Some(Err(Error::StillWaiting { .. })) | None => {}
            Some(Err(error)) => self.expect("any_changed", Err(error), is_lost_or_away),
        }
    }

    fn noticed(&mut self, which: usize, newest: Newest, notice: &Notice) {
        self.process.history.lock().count("notices", 1);
        self.memory.signals[which] = Some(notice.number);
        self.check_signal(which, newest, notice.number, Some(&notice.data));
    }

    fn newest(&self, which: usize) -> Newest {
        let history = self.process.history.lock();
        Newest { number: history.books.signals[which].newest(), at: history.now }
    }

    fn check_signal(&self, which: usize, newest: Newest, number: u64, data: Option<&[u8]>) {
        let mut history = self.process.history.lock();
        history.checker.checked(Rule::Signal);
        if let Err(problem) =
            history.books.signals[which].shown(newest.number, number, data, newest.at)
        {
            history.violated(Rule::Signal, format!("signal {which}: {problem}"));
        }
    }

    pub(super) async fn use_group(&mut self) {
        let group = self.client.signal_group(GROUP_NAME);
        if self.rng.chance(350) {
            let first = self.rng.below(10);
            let names = [first, self.rng.below(10)].map(|name| format!("n{name}"));
            let notify = async move { group.notify(&names).await };
            match self.perhaps(Box::pin(notify)).await {
                Some(Err(error)) => self.expect("notify", Err(error), is_lost_or_away),
                Some(Ok(_)) => self.process.history.count("group_signals"),
                None => {}
            }
            return;
        }
        let Some(seen) = self.memory.group.filter(|_| !self.rng.chance(100)) else {
            let (newest, asked_at) = {
                let history = self.process.history.lock();
                (history.books.group.newest(), history.now)
            };
            match self.perhaps(Box::pin(async move { group.seen().await })).await {
                Some(Ok(number)) => {
                    self.memory.group = Some(number);
                    let mut history = self.process.history.lock();
                    history.checker.checked(Rule::Signal);
                    if number < newest && !history.books.group.forgot_since(asked_at) {
                        let what = format!("the group has seen {number} after {newest}");
                        history.violated(Rule::Signal, what);
                    }
                }
                Some(Err(error)) => self.expect("seen", Err(error), is_lost_or_away),
                None => {}
            }
            return;
        };
        let (names, asked_at) = {
            let history = self.process.history.lock();
            (history.books.group.after(seen), history.now)
        };
        let (limit, patience) = self.limit();
        let waiting: Attempt<Changes> = match patience {
            None => Box::pin(within(limit, group.changed(seen))),
            Some(limit) => Box::pin(some(group.changed_with_timeout(seen, limit))),
        };
        match self.wait_for("changed", Subject::Group(seen), patience, waiting).await {
            Some(Ok(changes)) => self.check_changes(seen, &names, &changes, asked_at),
            Some(Err(error)) => self.expect("changed", Err(error), is_lost_or_away),
            None => {}
        }
    }

    fn check_changes(
        &mut self,
        seen: u64,
        names: &BTreeSet<String>,
        changes: &Changes,
        asked_at: u64,
    ) {
        self.memory.group = Some(changes.number);
        let mut history = self.process.history.lock();
        history.count("changes", 1);
        history.checker.checked(Rule::Signal);
        if history.books.group.forgot_since(asked_at) {
            return;
        }
        let known = history.books.group.shown(seen, names, changes.number, &changes.names);
        if let Err(problem) = known {
            history.violated(Rule::Signal, format!("{changes:?}: {problem}"));
        } else if changes.missed && !history.books.group.may_be_missed(seen, changes.number) {
            history
                .violated(Rule::Signal, format!("something is missed since {seen}: {changes:?}"));
        }
    }

    /// How long a wait lasts at most, and whether it knows of that.
    fn limit(&mut self) -> (Duration, Option<Duration>) {
        let limit = millis(self.rng.skewed(5000));
        match self.rng.below(5) {
            0 => (Duration::ZERO, Some(Duration::ZERO)),
            1 | 2 => (limit, Some(limit)),
            _ => (limit, None),
        }
    }

    /// A wait to its end, or dropped on the way. `None`: it came to nothing, as it may.
    async fn wait_for<T>(
        &mut self,
        what: &'static str,
        subject: Subject,
        patience: Option<Duration>,
        waiting: Attempt<T>,
    ) -> Option<Result<T, Error>> {
        let timing = Timing::start(&self.process, patience);
        let (wait, since) = {
            let mut history = self.process.history.lock();
            let (wait, since) = (history.fresh(), history.now);
            history.note(format_args!("h{} waits #{wait} for {subject:?}", self.process.host));
            history.count("waits", 1);
            let host = self.process.host;
            history.books.waits.insert(wait, Wait { host, since, subject });
            (wait, since)
        };
        let end = self.perhaps(waiting).await;
        let mut history = self.process.history.lock();
        history.books.waits.remove(&wait);
        history.note(format_args!("#{wait} ends"));
        match end {
            Some(Err(Error::StillWaiting { .. })) => {
                drop(history);
                timing.check(what, self.workload.response_timeout, true);
                None
            }
            Some(Err(error @ Error::Unavailable { .. })) => {
                if patience.is_none_or(|limit| limit.is_zero() || limit > ROUND_TRIP) {
                    history.unanswered(self.process.host, since, &format!("{what}: {error}"));
                }
                drop(history);
                timing.check(what, self.workload.response_timeout, false);
                None
            }
            Some(end) => end.transpose(),
            None => None,
        }
    }
}

/// A wait without a limit: while nobody does anything, it has no end.
async fn within<T>(
    limit: Duration,
    waiting: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, Error> {
    timeout(limit, some(waiting)).await.unwrap_or(Ok(None))
}

/// For how long a worker keeps the handle of a latch.
const LATCH_HANDLE_MS: u64 = 20_000;
