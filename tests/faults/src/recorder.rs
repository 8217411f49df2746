//! What a contender writes down of its calls and guards.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use leasehold::{Error, Guard, LossReason, Lost, blocking};
use tokio::task::AbortHandle;

use crate::{
    clock::{nanos, now},
    event::{How, Outcome, What, Why},
    journal::Journal,
    register::Register,
};

/// What guards of both clients tell.
pub trait Proof {
    fn name(&self) -> &str;
    fn token(&self) -> u64;
    fn is_held(&self) -> bool;
    fn remaining(&self) -> Duration;
    fn hold_count(&self) -> u32;
    fn id(&self) -> String;
}

macro_rules! proof {
    ($($generics:ident)? ; $guard:ty) => {
        impl$(<$generics>)? Proof for $guard {
            fn name(&self) -> &str {
                <$guard>::name(self)
            }
            fn token(&self) -> u64 {
                <$guard>::token(self)
            }
            fn is_held(&self) -> bool {
                <$guard>::is_held(self)
            }
            fn remaining(&self) -> Duration {
                <$guard>::remaining(self)
            }
            fn hold_count(&self) -> u32 {
                <$guard>::hold_count(self)
            }
            fn id(&self) -> String {
                <$guard>::holder(self).as_str().to_owned()
            }
        }
    };
}

proof!(; Guard);
proof!(O; blocking::Guard<O>);

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

    /// A call is about to be made: its number.
    pub fn asked(&self, lock: &str, owner: u64, how: How, wait: Option<Duration>) -> u64 {
        let op = self.number();
        let wait_ms = wait.map(|wait| wait.as_millis() as u64);
        self.journal.write(What::Asked { op, lock: lock.to_owned(), owner, how, wait_ms });
        op
    }

    /// It gave a guard.
    pub fn granted(&self, op: u64, guard: &impl Proof, ttl: Duration) -> Watched {
        let at = now();
        let (until, latest) = deadline(guard).unwrap_or((at, at));
        self.journal.write_at(
            at,
            What::Granted {
                op,
                id: guard.id(),
                token: guard.token(),
                count: guard.hold_count(),
                ttl_ms: ttl.as_millis() as u64,
                until,
                latest,
            },
        );
        Watched { recorder: self.clone(), op, until, alarm: None }
    }

    pub fn refused(&self, op: u64, error: &Error) -> Why {
        let (why, holder) = match error {
            Error::Timeout { holder, .. } => (Why::Held, Some(holder.as_str().to_owned())),
            Error::Unavailable { .. } => (Why::Unavailable, None),
            Error::Denied { .. } => (Why::Denied, None),
            Error::Lost { .. } => (Why::Lost, None),
            other => (Why::Unexpected, Some(other.to_string())),
        };
        self.journal.write(What::Refused { op, why, holder });
        why
    }

    /// `None` instead of a guard.
    pub fn held(&self, op: u64) {
        self.journal.write(What::Refused { op, why: Why::Held, holder: None });
    }

    pub fn dropped(&self, op: u64) {
        self.journal.write(What::Refused { op, why: Why::Dropped, holder: None });
    }
}

/// A guard whose life is written down.
#[derive(Debug)]
pub struct Watched {
    recorder: Recorder,
    pub op: u64,
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

    /// Writes to the resource, as a holder does.
    pub fn write(&self, guard: &impl Proof, register: &Register) {
        let (op, token, lock) = (self.op, guard.token(), guard.name().to_owned());
        let before = guard.is_held();
        let written = register.write(&lock, token).expect("the register can be written");
        let held = before && guard.is_held();
        let (number, accepted) = (written.number, written.accepted);
        self.recorder.journal.write(What::Wrote { op, lock, token, number, accepted, held });
    }

    /// Writes down the loss when it is told, whatever the holder is busy with.
    pub fn alarm(&mut self, lost: Lost) {
        let (op, journal) = (self.op, self.recorder.journal.clone());
        let alarm = tokio::spawn(async move {
            let reason = format!("{:?}", lost.await);
            journal.write(What::Lost { op, reason, held: false });
        });
        self.alarm = Some(alarm.abort_handle());
    }

    /// The holder was told of the loss, of which its guard must know.
    pub fn lost(&self, guard: Option<&dyn Proof>, reason: LossReason) {
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
const NOTABLE: u64 = 5_000_000;
