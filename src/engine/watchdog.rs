//! The one task of a client that renews leases, notices their ends, and sees through what dropped futures left.
//!
//! A lease stands in the schedule under the moment of its next event. Taking and releasing a lock only
//! touch the schedule; the task is woken when something is due before it would look by itself.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::inbox;
use super::lease::{Company, Due, Lease, SOON, Together};
use super::quorum::{Part, Renewal};
use crate::clock::{Clock, Timestamp};
use crate::error::Fault;
use crate::events::Events;
use crate::fleet::Fleet;
use crate::key::LeaseId;
use crate::node::Farewell;

/// Work that goes on by itself.
pub(crate) type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reports the holds that have lasted for long, and returns when to look at them again.
pub(crate) type LookAtHolds = Box<dyn FnMut(Timestamp) -> Timestamp + Send>;

/// The handle on the task. Dropped, the task ends once all its errands are done.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    work: inbox::Sender<Work>,
    clock: Clock,
}

enum Work {
    Errand(Errand),
    Count(Arc<Lease>, Box<Renewal>),
}

struct Shared {
    /// Errands that are not done yet.
    errands: AtomicUsize,
    /// Wakes those who wait until there are none.
    idle: Notify,
    schedule: Mutex<Schedule>,
    /// Something is due before the task would look.
    sooner: Notify,
}

/// Who is due when.
#[derive(Default)]
struct Schedule {
    events: BTreeMap<(Timestamp, LeaseId), Arc<Lease>>,
    /// When the task looks next.
    looks_at: Timestamp,
}

impl Schedule {
    /// Puts a lease at its next event, from wherever it stood. Whether the task must be woken for it.
    ///
    /// The lease is asked under the schedule's mutex: of two who put it, the later one knows what the earlier one knew.
    fn put(&mut self, lease: &Arc<Lease>, clock: &Clock) -> bool {
        // Whoever ends a lease removes it afterwards: one that is over must not come back.
        let Some(at) = lease.next_look() else { return false };
        self.remove(lease);
        lease.place.set(Some(at));
        self.events.insert((at, lease.id().clone()), lease.clone());
        let sooner = at < self.looks_at;
        // While nothing is held the task sleeps for good. The look for the first that is stays planned, even if that one is gone
        // before the task has run: otherwise each lock that comes and goes would wake it.
        let idle = self.looks_at == Timestamp::NEVER;
        let latest = if idle { clock.now().plus(LOOK_EVERY) } else { self.looks_at };
        self.looks_at = latest.min(at);
        sooner
    }

    fn remove(&mut self, lease: &Arc<Lease>) {
        if let Some(at) = lease.place.take() {
            self.events.remove(&(at, lease.id().clone()));
        }
    }

    /// Takes out those that are due at `now`.
    fn due(&mut self, now: Timestamp) -> Vec<Arc<Lease>> {
        let mut due = Vec::new();
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let lease = entry.remove();
            lease.place.take();
            due.push(lease);
        }
        due
    }

    /// Takes out those that are due at `now`, and if there are any, those that are due soon after. No lease is in both.
    fn due_now_and_soon(&mut self, now: Timestamp) -> (Vec<Arc<Lease>>, Vec<Arc<Lease>>) {
        let due = self.due(now);
        let soon = if due.is_empty() { Vec::new() } else { self.due(now.plus(SOON)) };
        (due, soon)
    }

    /// When to look next. At least once a second while anything is held: timers stand still while the
    /// host is suspended, deadlines do not. A look that was planned stays, though it may find nothing:
    /// so locks that come and go wake nobody.
    fn plan(&mut self, now: Timestamp) -> Timestamp {
        if self.looks_at <= now {
            self.looks_at = match self.events.first_key_value() {
                Some(((at, _), _)) => (*at).min(now.plus(LOOK_EVERY)),
                None => Timestamp::NEVER,
            };
        }
        self.looks_at
    }
}

impl Watchdog {
    pub(crate) fn start(
        clock: Clock,
        events: Arc<Events>,
        tasks: &TaskTracker,
        fleet: Fleet,
        farewell: Arc<Farewell>,
        long_holds: Option<LookAtHolds>,
    ) -> Self {
        let (work, received) = inbox::inbox();
        let shared = Arc::new(Shared {
            errands: AtomicUsize::new(0),
            idle: Notify::new(),
            schedule: Mutex::default(),
            sooner: Notify::new(),
        });
        let round = Round {
            shared: shared.clone(),
            clock: clock.clone(),
            events,
            fleet,
            work: received,
            errands: FuturesUnordered::new(),
            renewals: FuturesUnordered::new(),
            closing: false,
            long_holds,
            holds_at: Timestamp::default(),
            _farewell: farewell,
        };
        tasks.spawn_on(round.run(), clock.runtime());
        Self { shared, work, clock }
    }

    /// Watches a lease, or looks again when its next event is.
    pub(crate) fn watch(&self, lease: &Arc<Lease>) {
        if self.shared.schedule.lock().put(lease, &self.clock) {
            self.shared.sooner.notify_one();
        }
    }

    /// Watches a lease no more.
    pub(crate) fn forget(&self, lease: &Arc<Lease>) {
        self.shared.schedule.lock().remove(lease);
    }

    /// Sees a future through that nobody waits for.
    pub(crate) fn adopt(&self, errand: Errand) {
        self.shared.errands.fetch_add(1, Ordering::AcqRel);
        // Without its task the runtime is gone: dropping the errand is all that can be done.
        self.work.send(Work::Errand(errand));
    }

    /// Waits until all errands are done.
    pub(crate) async fn idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.shared.idle.notified());
            idle.as_mut().enable();
            if self.shared.errands.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Sees an update of a hold count through.
    pub(crate) fn adopt_count(&self, lease: &Arc<Lease>, update: Renewal) {
        self.work.send(Work::Count(lease.clone(), Box::new(update)));
    }
}

/// The task.
struct Round {
    shared: Arc<Shared>,
    clock: Clock,
    events: Arc<Events>,
    fleet: Fleet,
    work: inbox::Receiver<Work>,
    errands: FuturesUnordered<Errand>,
    renewals: FuturesUnordered<Pin<Box<dyn Future<Output = Answered> + Send>>>,
    closing: bool,
    /// `None` if nobody wants to know of long holds.
    long_holds: Option<LookAtHolds>,
    holds_at: Timestamp,
    /// Dropped last: what the errands leave owed is a part of the farewell.
    _farewell: Arc<Farewell>,
}

enum Answered {
    One { lease: Arc<Lease>, renewal: Renewal, answer: Result<bool, Fault>, only_count: bool },
    Several { together: Together, answer: Result<Vec<Part>, Fault> },
}

impl Round {
    async fn run(mut self) {
        let shared = self.shared.clone();
        let clock = self.clock.clone();
        let fleet = self.fleet.clone();
        let mut timer = clock.sleep_until(Timestamp::NEVER);
        let mut timer_at = Timestamp::NEVER;
        while !clock.is_stopped() && (!self.closing || !self.errands.is_empty()) {
            let planned = shared.schedule.lock().plan(clock.now());
            let at = planned.min(self.look_at_holds_at(planned)).min(self.events.sums_up_at());
            if at != timer_at {
                timer = clock.sleep_until(at);
                timer_at = at;
            }
            tokio::select! {
                biased;
                Some(answered) = self.renewals.next() => {
                    self.answered(answered);
                    // Those sent together are answered together: one look is enough for all.
                    while let Some(Some(another)) = self.renewals.next().now_or_never() {
                        self.answered(another);
                    }
                }
                work = self.work.receive(), if !self.closing => match work {
                    Some(Work::Errand(errand)) => self.errands.push(errand),
                    Some(Work::Count(lease, update)) => self.await_renewal(lease, *update, true),
                    None => self.closing = true,
                },
                Some(()) = self.errands.next() => {
                    if shared.errands.fetch_sub(1, Ordering::AcqRel) == 1 {
                        shared.idle.notify_waiters();
                    }
                }
                () = shared.sooner.notified() => {}
                () = fleet.forgets() => self.ask_about_all(),
                // Replaced at once: it is ready for ever.
                () = &mut timer => {
                    timer = clock.sleep_until(Timestamp::NEVER);
                    timer_at = Timestamp::NEVER;
                }
            }
            self.look();
        }
    }

    fn look(&mut self) {
        let now = self.clock.now();
        let (due, soon) = self.shared.schedule.lock().due_now_and_soon(now);
        let mut companies: BTreeMap<Company, Vec<Arc<Lease>>> = BTreeMap::new();
        for lease in due {
            let due = lease.due(now);
            match due.together {
                Some(company) => companies.entry(company).or_default().push(lease),
                None => self.go_on(lease, due),
            }
        }
        for lease in soon {
            match lease.is_due_soon(now).and_then(|company| companies.get_mut(&company)) {
                Some(company) => company.push(lease),
                None => self.plan(&lease),
            }
        }
        self.renew(companies, now);
        self.events.sum_up(now);
        if let Some(look) = &mut self.long_holds
            && now >= self.holds_at
        {
            self.holds_at = look(now);
        }
    }

    /// When to look at the holds, if there are any: without, nothing is `planned`.
    fn look_at_holds_at(&self, planned: Timestamp) -> Timestamp {
        match &self.long_holds {
            Some(_) if planned != Timestamp::NEVER => self.holds_at,
            _ => Timestamp::NEVER,
        }
    }

    /// Renews those of each company together.
    fn renew(&self, companies: BTreeMap<Company, Vec<Arc<Lease>>>, now: Timestamp) {
        for (company, all) in companies {
            for leases in all.chunks(MOST_TOGETHER) {
                if let [lease] = leases {
                    self.go_on(lease.clone(), lease.renew(now));
                    continue;
                }
                let together = Together::send(company, leases, now);
                leases.iter().for_each(|lease| self.plan(lease));
                if let Some(mut together) = together {
                    self.renewals.push(Box::pin(async move {
                        let answer = together.answer().await;
                        Answered::Several { together, answer }
                    }));
                }
            }
        }
    }

    /// Does what is to be done for a lease.
    fn go_on(&self, lease: Arc<Lease>, due: Due) {
        if due.next_at.is_some() {
            self.plan(&lease);
        }
        if let Some(question) = due.question {
            self.await_renewal(lease.clone(), question, true);
        }
        if let Some(renewal) = due.renewal {
            self.await_renewal(lease, renewal, false);
        }
    }

    fn plan(&self, lease: &Arc<Lease>) {
        self.shared.schedule.lock().put(lease, &self.clock);
    }

    /// Asks about every lease now, so that who has lost one learns of it before the next renewal.
    fn ask_about_all(&self) {
        let leases: Vec<Arc<Lease>> =
            self.shared.schedule.lock().events.values().cloned().collect();
        let now = self.clock.now();
        for lease in leases {
            let due = lease.hurry(now);
            self.go_on(lease, due);
        }
    }

    fn await_renewal(&self, lease: Arc<Lease>, mut renewal: Renewal, only_count: bool) {
        let within = lease.patience(self.clock.now());
        self.renewals.push(Box::pin(async move {
            let answer = lease.answer(&mut renewal, within).await;
            Answered::One { lease, renewal, answer, only_count }
        }));
    }

    fn answered(&self, answered: Answered) {
        match answered {
            Answered::One { lease, mut renewal, answer, only_count: true } => {
                let next = lease.count_written(&mut renewal, answer, self.clock.now());
                // There may be late answers to look for, or it is to be asked about once more.
                self.plan(&lease);
                if let Some(next) = next {
                    let only_count = !next.reclaims;
                    self.await_renewal(lease, next, only_count);
                }
            }
            Answered::One { lease, mut renewal, answer, only_count: false } => {
                let due = lease.renewed(&mut renewal, answer, self.clock.now());
                self.go_on(lease, due);
            }
            Answered::Several { together, answer } => {
                together.answered(&answer, self.clock.now(), |lease, due| self.go_on(lease, due));
            }
        }
    }
}

/// Nobody renews any more, and nobody will notice the ends: those who wait for a loss are told now.
impl Drop for Round {
    fn drop(&mut self) {
        if !self.closing {
            self.clock.stop();
        }
        self.shared.errands.store(0, Ordering::Release);
        self.shared.idle.notify_waiters();
        let schedule = std::mem::take(&mut *self.shared.schedule.lock());
        for lease in schedule.events.values() {
            lease.wake();
        }
    }
}

/// So many leases are renewed in one call at most: it keeps the server from all others.
const MOST_TOGETHER: usize = 128;
const LOOK_EVERY: Duration = Duration::from_secs(1);
