//! What the processes of a run report: shared by all of them, stamped with the true time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::checker::{Checker, Grant, Rule};
use crate::trace::Trace;

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
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Acquisitions that have not ended.
    pub pending: BTreeMap<u64, Ask>,
    next: u64,
}

/// An acquisition: who asks for what, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub host: usize,
    pub lock: usize,
    pub how: &'static str,
    pub since: u64,
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
    pub fn asked(&mut self, host: usize, lock: usize, how: &'static str) -> u64 {
        let request = self.fresh();
        self.note(format_args!("h{host} asks #{request} {how} lock {lock}"));
        self.count("asks", 1);
        self.pending.insert(request, Ask { host, lock, how, since: self.now });
        request
    }

    /// A request ended, one way or another; when it began.
    pub fn answered(&mut self, request: u64, how: &str) -> u64 {
        self.note(format_args!("#{request} ends: {how}"));
        self.pending.remove(&request).map_or(self.now, |ask| ask.since)
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
        self.checker.told(lock, token, lease);
    }

    pub fn left(&mut self, lock: usize, token: u64, lease: &str, how: &str) {
        self.note(format_args!("left: lock {lock} token {token} {how}"));
        self.checker.left(self.now, lock, token, lease);
    }
}
