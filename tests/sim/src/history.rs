//! What the processes of a run report: shared by all of them, stamped with the true time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::causes::{Cause, Causes, What};
use crate::checker::{Checker, Grant, Rule};
use crate::coordination::Books;
use crate::tangles::Tangles;
use crate::trace::Trace;
use crate::wishes::Wishes;

/// The history of a run. Clones are the same.
#[derive(Clone, Default)]
pub struct History {
    inner: Arc<Mutex<Record>>,
}

#[derive(Default)]
pub struct Record {
    /// The true time.
    pub now: u64,
    pub trace: Trace,
    pub checker: Checker,
    pub books: Books,
    pub causes: Causes,
    pub tangles: Tangles,
    pub wishes: Wishes,
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Acquisitions that have not ended.
    pub pending: BTreeMap<u64, Ask>,
    /// When each process last met a server, or another history of its data: it trusts that one a quarantine later.
    pub met: BTreeMap<usize, u64>,
    next: u64,
}

/// An acquisition: who asks for what, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub host: usize,
    pub lock: usize,
    pub how: &'static str,
    pub since: u64,
    /// How many permits it wants.
    pub weight: u32,
}

impl Ask {
    /// It waits until it has the lock, or for some time.
    pub fn waits(&self) -> bool {
        self.how != "try_lock"
    }

    /// It may be beside others of its kind.
    pub fn reads(&self) -> bool {
        self.how.contains("read")
    }
}

impl History {
    pub fn lock(&self) -> MutexGuard<'_, Record> {
        self.inner.lock().expect("nobody panics with it")
    }

    pub fn count(&self, what: &'static str) {
        self.lock().count(what, 1);
    }
}

impl Record {
    pub fn count(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// A number that nothing else in this run has.
    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.add(self.now, what);
    }

    pub fn violated(&mut self, rule: Rule, what: String) {
        self.note(format_args!("VIOLATION {rule:?} {what}"));
        self.checker.violated(self.now, rule, what);
    }

    /// Somebody begins to ask for a lock: the number of the request.
    pub fn asked(&mut self, host: usize, lock: usize, how: &'static str, weight: u32) -> u64 {
        let request = self.fresh();
        self.note(format_args!("h{host} asks #{request} {how} lock {lock}"));
        self.count("asks", 1);
        self.pending.insert(request, Ask { host, lock, how, since: self.now, weight });
        self.wishes.asked(lock, self.now);
        request
    }

    /// A process is gone, and all that it has asked for.
    pub fn gone_with(&mut self, host: usize) {
        for ask in self.pending.values().filter(|ask| ask.host == host) {
            self.wishes.asked(ask.lock, self.now);
        }
        self.wishes.gone_with(host);
        self.pending.retain(|_, ask| ask.host != host);
        self.books.waits.retain(|_, wait| wait.host != host);
    }

    /// A request ended, one way or another; when it began.
    pub fn answered(&mut self, request: u64, how: &str) -> u64 {
        self.note(format_args!("#{request} ends: {how}"));
        let Some(ask) = self.pending.remove(&request) else { return self.now };
        self.wishes.asked(ask.lock, self.now);
        ask.since
    }

    pub fn granted(&mut self, grant: Grant) {
        let Grant { lock, token, host, owner, .. } = grant;
        self.note(format_args!("h{host} holds lock {lock} token {token} owner {owner}"));
        self.count("holds", 1);
        self.checker.granted(self.now, grant);
    }

    pub fn told(&mut self, lock: usize, token: u64, lease: &str, reason: &str) {
        self.note(format_args!("told: lock {lock} token {token} is lost: {reason}"));
        self.count("losses", 1);
        if let Some((host, asked_at)) = self.checker.asker(lock, token, lease) {
            let what = format!("lock {lock} with the token {token} is lost: {reason}");
            self.lost(host, asked_at, reason, &what);
        }
        self.checker.told(lock, token, lease);
    }

    /// Somebody ends a hold, which may run so much later.
    pub fn forced(&mut self, later_ms: u64) {
        self.count("force_unlocks", 1);
        let (from, to) = (self.now, self.now + later_ms);
        self.causes.add(Cause { from, to, host: None, node: None, what: What::Forgets });
    }

    /// N1: a guard says that somebody wants its lock.
    pub fn wanted(&mut self, guard: u64) {
        self.checker.checked(Rule::Wanted);
        self.count("wishes_told", 1);
        if let Some(asking) = self.wishes.ended(guard)
            && !self.wishes.may_be_told(asking.lock, self.now, &self.pending)
        {
            self.violated(Rule::Wanted, format!("wanted by nobody: {asking:?}"));
        }
    }

    /// W3: what a process asked for at `asked_at` is lost now.
    pub fn lost(&mut self, host: usize, asked_at: u64, reason: &str, what: &str) {
        self.checker.checked(Rule::Cause);
        // What has ended while its process was stopped is gone, too.
        let gone =
            || self.causes.forgotten(asked_at, self.now) || self.causes.expiry(host, self.now);
        let caused = match reason {
            _ if reason.contains(ENDED) => true,
            _ if reason.contains(SHUT_DOWN) => self.causes.silence(host, asked_at, self.now),
            _ => gone(),
        };
        if !caused {
            self.violated(Rule::Cause, format!("h{host}, without a cause: {what}"));
        }
    }

    /// W3: servers have forgotten what a process asked for at `asked_at`, and what it had for longer still.
    pub fn gone(&mut self, host: usize, asked_at: u64, what: &str) {
        self.checker.checked(Rule::Cause);
        if !self.causes.forgotten(asked_at, self.now) {
            self.violated(
                Rule::Cause,
                format!("h{host} has lost something without a cause {what}"),
            );
        }
    }

    /// W3: a process asked at `asked_at` and has no answer now.
    pub fn unanswered(&mut self, host: usize, asked_at: u64, what: &str) {
        self.checker.checked(Rule::Cause);
        if !self.causes.silence(host, asked_at, self.now) {
            self.violated(Rule::Cause, format!("h{host} has no answer without a cause: {what}"));
        }
    }

    pub fn left(&mut self, lock: usize, token: u64, lease: &str, how: &str) {
        self.note(format_args!("left: lock {lock} token {token} {how}"));
        self.checker.left(self.now, lock, token, lease);
    }
}

/// Why something is lost, as the library says it: nobody renews it; its client has ended.
const ENDED: &str = "its lease ended";
const SHUT_DOWN: &str = "the client was shut down";
