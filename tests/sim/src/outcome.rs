//! What came of a run, and of all of them together.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::checker::{Rule, Violation};

/// Those of the scenarios in which the least happens are twice as many.
const LEAST_HOLDS_A_MINUTE: u64 = 15;

/// What came of a run.
pub struct Outcome {
    pub scenario: &'static str,
    pub seed: u64,
    pub simulated_ms: u64,
    pub trace_hash: u64,
    pub tail: String,
    pub violations: Vec<Violation>,
    pub overlaps: u64,
    pub overlaps_told: u64,
    pub longest_overlap_ms: u64,
    pub counts: BTreeMap<&'static str, u64>,
    /// How often each rule had something to say.
    pub checks: BTreeMap<Rule, u64>,
}

impl Outcome {
    /// Fails with all that is needed to look into it, if a promise was broken that should have been kept.
    pub fn expect_no_surprise(&self) {
        assert!(self.violations.is_empty(), "{}", self.report());
    }

    /// Hardly anybody held a lock, or there was no calm at whose end everybody must have had one.
    pub fn proves_nothing(&self) -> bool {
        let count = |what: &str| self.counts.get(what).copied().unwrap_or(0);
        let too_few = count("holds") * 60_000 < LEAST_HOLDS_A_MINUTE * self.simulated_ms;
        self.violations.is_empty() && (too_few || count("calms") == 0)
    }

    pub fn report(&self) -> String {
        let found: Vec<String> = self.violations.iter().map(Violation::to_string).collect();
        let minutes = self.simulated_ms.div_ceil(60_000);
        format!(
            "{}\n\n{} with seed {} breaks a promise:\n  {}\nagain: scripts/sim --only {} --seed {} --minutes {minutes}",
            self.tail,
            self.scenario,
            self.seed,
            found.join("\n  "),
            self.scenario,
            self.seed,
        )
    }

    /// One line for programs.
    pub fn line(&self) -> String {
        let mut line = format!(
            "sim scenario={} seed={} simulated_ms={} violations={} overlaps={} overlaps_told={} \
             longest_overlap_ms={} trace={:016x}",
            self.scenario,
            self.seed,
            self.simulated_ms,
            self.violations.len(),
            self.overlaps,
            self.overlaps_told,
            self.longest_overlap_ms,
            self.trace_hash,
        );
        for (what, times) in &self.counts {
            line.push_str(&format!(" {what}={times}"));
        }
        line
    }
}

/// What many runs did and found: one line, for reports.
#[derive(Default, Serialize)]
pub struct Summary {
    /// The first and the last.
    pub seeds: (u64, u64),
    pub seconds: u64,
    pub simulated_hours: f64,
    pub runs: u64,
    /// Acquisitions, however they ended.
    pub calls: u64,
    pub holds: u64,
    /// How often each invariant had something to say.
    pub checked: BTreeMap<&'static str, u64>,
    pub faults: BTreeMap<String, u64>,
    pub deadlocks: Deadlocks,
    /// How often two held one lock at once, where that was brought about and is said to happen.
    pub not_survived: BTreeMap<&'static str, u64>,
    pub violations: u64,
    /// Runs that broke a promise.
    pub failures: u64,
}

/// What came of deadlocks, in the scenarios in which locks are taken one under the other.
#[derive(Default, Serialize)]
pub struct Deadlocks {
    pub runs: u64,
    /// Circles of waits that have no end of their own, and that stood for a moment.
    pub came_about: u64,
    /// How many were told to one who waited, and how many of these were inside one process.
    pub told: u64,
    pub told_inside: u64,
    /// How many were told that were none.
    pub never_real: u64,
    /// How many stood for too long in a calm.
    pub missed: u64,
    /// For how long one stood in a calm at most.
    pub longest_ms: u64,
}

impl Deadlocks {
    fn add(&mut self, outcome: &Outcome) {
        let counted = |what: &str| outcome.counts.get(what).copied().unwrap_or(0);
        let broken = |rule: Rule| {
            let found = outcome.violations.iter().filter(|found| found.rule == rule);
            found.count() as u64
        };
        let (inside, elsewhere) = (counted("deadlocks_inside"), counted("deadlocks_elsewhere"));
        self.runs += 1;
        self.came_about += counted("deadlocks");
        self.told += inside + elsewhere;
        self.told_inside += inside;
        self.never_real += broken(Rule::FalseDeadlock);
        self.missed += broken(Rule::MissedDeadlock);
        self.longest_ms = self.longest_ms.max(counted("longest_deadlock_ms"));
    }
}

impl Summary {
    pub fn of(outcomes: &[Outcome], took: Duration) -> Self {
        let mut summary = Self { seconds: took.as_secs(), ..Self::default() };
        let seeds = || outcomes.iter().map(|outcome| outcome.seed);
        summary.seeds = (seeds().min().unwrap_or(0), seeds().max().unwrap_or(0));
        let simulated_ms: u64 = outcomes.iter().map(|outcome| outcome.simulated_ms).sum();
        summary.simulated_hours = (simulated_ms / 36_000) as f64 / 100.0;
        summary.runs = outcomes.len() as u64;
        for outcome in outcomes {
            summary.add(outcome);
        }
        summary
    }

    fn add(&mut self, outcome: &Outcome) {
        let counted = |what: &str| outcome.counts.get(what).copied().unwrap_or(0);
        self.calls += counted("asks");
        self.holds += counted("holds");
        for (rule, times) in &outcome.checks {
            *self.checked.entry(rule.id()).or_default() += times;
        }
        for (what, times) in &outcome.counts {
            let Some(kind) = what.strip_prefix("fault_") else { continue };
            *self.faults.entry(kind.replace('_', "-")).or_default() += times;
        }
        if outcome.scenario.starts_with("deadlocks") {
            self.deadlocks.add(outcome);
        }
        let forced = counted("force_unlocks");
        if forced > 0 {
            *self.faults.entry("force-unlock".to_owned()).or_default() += forced;
        }
        if outcome.overlaps > 0 {
            *self.not_survived.entry(outcome.scenario).or_default() += outcome.overlaps;
        }
        self.violations += outcome.violations.len() as u64;
        self.failures += u64::from(!outcome.violations.is_empty());
    }
}
