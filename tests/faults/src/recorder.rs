//! What a contender writes down of its calls and guards.

use std::fmt::Debug;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use leasehold::{Blocked, Error};
use tokio::task::AbortHandle;

use crate::{
    clock::{nanos, now},
    event::{Deed, How, Outcome, Part, Share, What, Why},
    journal::Journal,
    proof::Proof,
    register::Register,
};

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub locks: &'a [&'a str],
    pub owner: u64,
    pub how: How,
    pub share: Share,
    pub wait: Option<Duration>,
}

/// A call that was written down.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub number: u64,
    share: Share,
}

/// The journal of one process.
#[derive(Clone, Debug)]
pub struct Recorder {
    pub journal: Journal,
    numbers: Arc<AtomicU64>,
}

impl Recorder {
    pub fn new(journal: Journal) -> Self {
        Self { journal, numbers: Arc::default() }
    }

    /// A number that nothing else in this process has.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A call for a mutex is about to be made.
    pub fn asked(&self, lock: &str, owner: u64, how: How, wait: Option<Duration>) -> Op {
        self.asked_for(Ask { locks: &[lock], owner, how, share: Share::Alone, wait })
    }

    pub fn asked_for(&self, ask: Ask<'_>) -> Op {
        let Ask { locks, owner, how, share, wait } = ask;
        let number = self.number();
        let locks = locks.iter().map(|lock| (*lock).to_owned()).collect();
        let wait_ms = wait.map(|wait| wait.as_millis() as u64);
        self.journal.write(What::Asked { op: number, locks, owner, how, share, wait_ms });
        Op { number, share }
    }

    /// It gave a guard.
    pub fn granted(&self, op: Op, guard: &impl Proof, ttl: Duration) -> Watched {
        let at = now();
        let Op { number: op, share } = op;
        let (until, latest) = deadline(guard).unwrap_or((at, at));
        self.journal.write_at(
            at,
            What::Granted {
                op,
                id: guard.id(),
                tokens: guard.tokens(),
                count: guard.hold_count(),
                ttl_ms: ttl.as_millis() as u64,
                until,
                latest,
            },
        );
        Watched { recorder: self.clone(), op, share, until, alarm: None }
    }

    pub fn refused(&self, op: Op, error: &Error) -> Why {
        let (why, holder) = match error {
            Error::Timeout { holder, .. } => {
                (Why::Held, holder.as_ref().map(|holder| holder.as_str().to_owned()))
            }
            Error::StillWaiting { .. } => (Why::Held, None),
            Error::Unavailable { .. } => (Why::Unavailable, None),
            Error::Denied { .. } => (Why::Denied, None),
            Error::Lost { .. } => (Why::Lost, None),
            Error::SingleServerOnly { .. } => (Why::OneServerOnly, None),
            Error::Deadlock { cycle, .. } => {
                let circle = cycle.iter().map(Part::of).collect();
                self.journal.write(What::Deadlocked { op: op.number, circle });
                (Why::Deadlock, None)
            }
            // So it is told where the masters change.
            Error::InvalidConfig { .. } => (Why::OtherMasters, Some(error.to_string())),
            other => (Why::Unexpected, Some(other.to_string())),
        };
        self.journal.write(What::Refused { op: op.number, why, holder });
        why
    }

    /// `None` instead of a guard.
    pub fn held(&self, op: Op) {
        self.journal.write(What::Refused { op: op.number, why: Why::Held, holder: None });
    }

    pub fn dropped(&self, op: Op) {
        self.journal.write(What::Refused { op: op.number, why: Why::Dropped, holder: None });
    }

    /// An operator's call is about to be made.
    pub fn does(&self, lock: &str, owner: u64, deed: Deed) -> u64 {
        let op = self.number();
        self.journal.write(What::Doing { op, owner, lock: lock.to_owned(), deed });
        op
    }

    pub fn done(&self, op: u64, answer: &Result<bool, Error>) {
        self.journal.write(What::Done { op, done: answer.as_ref().ok().copied() });
    }

    /// An election's observer is told who leads.
    pub fn shown(&self, op: Op, term: u64) {
        self.journal.write(What::Shown { op: op.number, term });
    }
}

impl Part {
    fn of(part: &Blocked) -> Self {
        let [client, holds, waits_for] =
            [&part.client, &part.holds, &part.waits_for].map(|name| name.to_string());
        // Of what has no token.
        let token = part.token.unwrap_or(0);
        Self { client, holds, token, waits_for }
    }
}

/// A guard whose life is written down.
#[derive(Debug)]
pub struct Watched {
    recorder: Recorder,
    pub op: u64,
    share: Share,
    until: u64,
    /// The task that waits for the loss.
    alarm: Option<AbortHandle>,
}

impl Watched {
    /// Looks at the guard's end, and writes down where it has moved on.
    pub fn observe(&mut self, guard: &impl Proof) {
        if let Some((until, latest)) = deadline(guard)
            && until > self.until + NOTABLE
        {
            self.until = until;
            self.recorder.journal.write(What::Renewed { op: self.op, until, latest });
        }
        if guard.remaining().is_zero() && guard.is_held() {
            let reason = "its deadline has passed".to_owned();
            self.recorder.journal.write(What::Lost { op: self.op, reason, held: true });
        }
    }

    /// Writes to the resource of each lock, as its only holder does.
    pub fn write(&self, guard: &impl Proof, register: &Register) {
        let tokens = if self.share == Share::Alone { guard.tokens() } else { Vec::new() };
        for (lock, token) in tokens {
            let before = guard.is_held();
            let written = register.write(&lock, token).expect("the register can be written");
            let held = before && guard.is_held();
            let (op, number, accepted) = (self.op, written.number, written.accepted);
            self.recorder.journal.write(What::Wrote { op, lock, token, number, accepted, held });
        }
    }

    /// The guard is asked for the first time whether its lock is wanted.
    pub fn asks_whether_wanted(&self) {
        self.recorder.journal.write(What::AsksWhetherWanted { op: self.op });
    }

    /// It says so.
    pub fn wanted(&self) {
        self.recorder.journal.write(What::Wanted { op: self.op });
    }

    /// Writes down the loss when it is told, whatever the holder is busy with.
    pub fn alarm<L>(&mut self, lost: L)
    where
        L: Future<Output: Debug> + Send + 'static,
    {
        let (op, journal) = (self.op, self.recorder.journal.clone());
        let alarm = tokio::spawn(async move {
            let reason = format!("{:?}", lost.await);
            journal.write(What::Lost { op, reason, held: false });
        });
        self.alarm = Some(alarm.abort_handle());
    }

    /// The holder was told of the loss, of which its guard must know.
    pub fn lost(&self, guard: Option<&dyn Proof>, reason: impl Debug) {
        let at = now();
        let held = guard.is_some_and(|guard| guard.is_held());
        let reason = format!("{reason:?}");
        self.recorder.journal.write_at(at, What::Lost { op: self.op, reason, held });
    }

    /// The guard is about to be given back.
    pub fn releasing(&mut self, guard: &impl Proof, how: How) {
        if let Some(alarm) = self.alarm.take() {
            alarm.abort();
        }
        self.observe(guard);
        let over = guard.remaining().is_zero();
        self.recorder.journal.write(What::Releasing { op: self.op, how, over });
    }

    pub fn released(&self, result: &Result<(), Error>) {
        let outcome = match result {
            Ok(()) => Outcome::Ok,
            Err(Error::Lost { .. }) => Outcome::Lost,
            Err(Error::Unavailable { .. }) => Outcome::Unavailable,
            Err(Error::Denied { .. }) => Outcome::Denied,
            Err(Error::InvalidConfig { .. }) => Outcome::OtherMasters,
            Err(_) => Outcome::Unexpected,
        };
        self.recorder.journal.write(What::Released { op: self.op, outcome });
    }
}

/// Between which two times the guard's deadline is; `None`: it has passed.
fn deadline(guard: &impl Proof) -> Option<(u64, u64)> {
    let before = now();
    let remaining = nanos(guard.remaining());
    (remaining > 0).then(|| (before + remaining, now() + remaining))
}

/// A renewal moves a deadline by more than this, in nanoseconds; readings of one deadline differ by less.
pub(crate) const NOTABLE: u64 = 5_000_000;
