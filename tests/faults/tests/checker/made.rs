//! Histories made by hand.

use std::time::Duration;

use leasehold_faults::{
    checker::{DRIVER, Report, Setting, check},
    event::{Event, How, Outcome, Share, What, Why},
    history::History,
};

pub const MS: u64 = 1_000_000;
pub const TTL_MS: u64 = 1000;
/// What is left of a lease when the allowance for drift is taken off.
pub const VALID: u64 = TTL_MS - 12;

/// A history in the making; times in milliseconds.
#[derive(Default)]
pub struct Made(pub History);

impl Made {
    pub fn add(mut self, process: &str, at: u64, what: What) -> Self {
        // Journals begin late, so that nothing is before the beginning of time.
        let event = Event { at: (10_000 + at) * MS, what };
        self.0.processes.entry(process.to_owned()).or_default().push(event);
        self
    }

    pub fn asked(self, process: &str, at: u64, op: u64, how: How, wait_ms: Option<u64>) -> Self {
        self.add(process, at, asked(op, op, &["n"], how, Share::Alone, wait_ms))
    }

    pub fn granted(self, process: &str, at: u64, op: u64, token: u64) -> Self {
        self.granted_as(process, at, op, token, 1)
    }

    pub fn granted_as(self, process: &str, at: u64, op: u64, token: u64, count: u32) -> Self {
        self.granted_locks(process, at, op, &[("n", token)], count)
    }

    pub fn granted_locks(
        self,
        process: &str,
        at: u64,
        op: u64,
        tokens: &[(&str, u64)],
        count: u32,
    ) -> Self {
        let until = (10_000 + at + VALID) * MS;
        let id = format!("{process}:{tokens:?}");
        let tokens = tokens.iter().map(|(lock, token)| ((*lock).to_owned(), *token)).collect();
        let (ttl_ms, latest) = (TTL_MS, until + 10_000);
        self.add(process, at, What::Granted { op, id, tokens, count, ttl_ms, until, latest })
    }

    /// A call that is granted at once.
    pub fn takes(self, process: &str, at: u64, op: u64, token: u64) -> Self {
        self.asked(process, at, op, How::Lock, None).granted(process, at + 1, op, token)
    }

    /// A call by an owner of its own that is granted at once.
    pub fn shares(self, process: &str, at: u64, op: u64, share: Share, token: u64) -> Self {
        self.add(process, at, asked(op, op, &["n"], How::Lock, share, None)).granted(
            process,
            at + 1,
            op,
            token,
        )
    }

    pub fn gives_back(self, process: &str, at: u64, op: u64) -> Self {
        self.ends(process, at, op, false, Outcome::Ok)
    }

    pub fn ends(self, process: &str, at: u64, op: u64, over: bool, outcome: Outcome) -> Self {
        self.add(process, at, What::Releasing { op, how: How::Unlock, over }).add(
            process,
            at + 1,
            What::Released { op, outcome },
        )
    }

    pub fn refused(self, process: &str, at: u64, op: u64, why: Why) -> Self {
        self.add(process, at, What::Refused { op, why, holder: None })
    }

    pub fn lost(self, process: &str, at: u64, op: u64, held: bool) -> Self {
        self.add(process, at, What::Lost { op, reason: "gone".into(), held })
    }

    /// Told that its lease, which nobody renews, has ended.
    pub fn over(self, process: &str, at: u64, op: u64) -> Self {
        self.add(process, at, What::Lost { op, reason: "Ended".into(), held: false })
    }

    pub fn fault(self, number: u64, kind: &str, from: u64, to: u64) -> Self {
        let kind = kind.to_owned();
        self.add(DRIVER, from, What::Fault { number, kind, stops: None }).add(
            DRIVER,
            to,
            What::Healed { number },
        )
    }

    pub fn wrote(self, process: &str, at: u64, token: u64, number: u64, accepted: bool) -> Self {
        let lock = "n".to_owned();
        self.add(process, at, What::Wrote { op: 0, lock, token, number, accepted, held: true })
    }

    /// The process still writes at `at`.
    pub fn lives(self, process: &str, at: u64) -> Self {
        self.asked(process, at, 9999, How::Lock, None)
    }

    pub fn report(&self) -> Report {
        check(&self.0, &setting())
    }

    /// Passes, and each of `checked` had something to say.
    #[track_caller]
    pub fn passes(&self, checked: &[&str]) {
        let report = self.report();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        for invariant in checked {
            assert!(report.checked.contains_key(invariant), "{invariant}: {:?}", report.checked);
        }
    }

    #[track_caller]
    pub fn breaks(&self, invariant: &str) {
        self.breaks_all(&[invariant]);
    }

    /// These, and no others.
    #[track_caller]
    pub fn breaks_all(&self, invariants: &[&str]) {
        let report = self.report();
        assert_eq!(report.violated(), invariants, "{:#?}", report.violations);
    }
}

pub fn setting() -> Setting {
    Setting {
        nodes: 1,
        fails_over: false,
        slack: Duration::from_millis(50),
        ttl: Duration::from_millis(TTL_MS),
        response_timeout: Duration::from_millis(300),
        quarantine: Duration::ZERO,
    }
}

/// A call of an owner.
pub fn asked(
    op: u64,
    owner: u64,
    locks: &[&str],
    how: How,
    share: Share,
    wait_ms: Option<u64>,
) -> What {
    let locks = locks.iter().map(|lock| (*lock).to_owned()).collect();
    What::Asked { op, locks, owner, how, share, wait_ms }
}
