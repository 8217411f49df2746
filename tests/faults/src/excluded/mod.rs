//! What locks do not survive, set up so that it certainly happens: two hold one lock, and what they learn.
//!
//! | arrangement | what breaks | what its user learns |
//! |---|---|---|
//! | `emptied-at-once` | a server restarts without its data | lost when it is reached again; `check`: `NotPersistent` |
//! | `majority-emptied` | two of three servers do, with the quarantine off; tokens may repeat, too | lost when they are reached again; `check`: `NotPersistent` |
//! | `failover` | a replica is promoted that missed the write | lost when it is reached; `check`: `Replicas` |
//! | `clock-ahead` | the server's clock is set ahead | lost at the next renewal; `check`: `ClockAhead` |
//! | `clock-back` | it is set back after a holder crashed | nobody gets the lock; the timeout says for how long |
//! | `clock-of-the-replica` | a replica is promoted whose clock is ahead of its master's | lost when it is reached |
//! | `eviction` | the server, short of memory, drops the key | lost at the next renewal; `check`: `Eviction` |
//! | `flushed` | somebody runs `FLUSHALL` | lost at the next renewal |
//! | `deleted` | somebody else deletes the key of a fixed lease | nothing until the lease's own end |
//! | `forced` | another client calls `force_unlock` | lost at the next renewal |
//! | `paused` | the holder is paused between its check of the guard and its write | the resource refuses the token |

mod arrangements;
mod clocks;

use std::time::{Duration, Instant};

use leasehold::{Client, FindingKind, Guard, LossReason, Mutex};
use tokio::time::timeout;

use crate::{
    checker::{DRIVER, Report, Setting, check},
    event::{Event, How, What},
    history::History,
    journal::Journal,
    recorder::{Recorder, Watched},
};

pub const NAMES: [&str; 11] = [
    "emptied-at-once",
    "majority-emptied",
    "failover",
    "clock-ahead",
    "clock-back",
    "clock-of-the-replica",
    "eviction",
    "flushed",
    "deleted",
    "forced",
    "paused",
];

/// Shows one of them. `Err` says what was otherwise than documented.
pub async fn show(name: &str) -> Result<(), String> {
    match name {
        "emptied-at-once" => arrangements::emptied_at_once().await,
        "majority-emptied" => arrangements::majority_emptied().await,
        "failover" => arrangements::failover().await,
        "eviction" => arrangements::eviction().await,
        "flushed" => arrangements::flushed().await,
        "deleted" => arrangements::deleted().await,
        "forced" => arrangements::forced().await,
        "paused" => arrangements::paused().await,
        "clock-ahead" => clocks::ahead().await,
        "clock-back" => clocks::back().await,
        "clock-of-the-replica" => clocks::of_the_replica().await,
        other => Err(format!("there is no {other}")),
    }
}

/// One of two that take the same lock.
struct Actor {
    name: &'static str,
    client: Client,
    recorder: Recorder,
}

impl Actor {
    async fn enter(name: &'static str, urls: &[String]) -> Result<Self, String> {
        let mut builder = Client::builder().nodes(urls.iter().cloned());
        if urls.len() > 1 {
            // The two have ways of their own to the servers.
            builder = builder.masters_name("excluded");
        }
        let builder = builder.name(name).ttl(TTL).restart_quarantine(Duration::ZERO);
        let client = builder.connect().await;
        let recorder = Recorder::new(Journal::in_memory());
        Ok(Self { name, client: client.map_err(|error| format!("{name}: {error}"))?, recorder })
    }

    fn lock(&self) -> Mutex {
        self.client.mutex(LOCK)
    }

    /// Takes the lock, which must be there to be taken.
    async fn take(&self, lock: &Mutex) -> Result<(Guard, Watched), String> {
        let op = self.recorder.asked(LOCK, self.recorder.number(), How::Lock, None);
        match timeout(LIMIT, lock.lock()).await {
            Ok(Ok(guard)) => {
                let mut watched = self.recorder.granted(op, &guard, TTL);
                watched.alarm(guard.lost());
                Ok((guard, watched))
            }
            Ok(Err(error)) => Err(format!("{}: {error}", self.name)),
            Err(_) => Err(format!("{} does not get the lock", self.name)),
        }
    }

    /// Whether `check` finds something of that kind.
    async fn finds(&self, what: &str, is: impl Fn(&FindingKind) -> bool) -> Result<(), String> {
        let findings = self.client.check().await.map_err(|error| error.to_string())?;
        let found = findings.iter().any(|finding| is(&finding.kind));
        ensure(found, || format!("check does not find {what}: {findings:?}"))
    }

    async fn gives_back(&self, guard: Guard, mut watched: Watched) {
        watched.releasing(&guard, How::Unlock);
        watched.released(&guard.unlock().await);
    }
}

/// The first holds; the fault has happened. The second takes the lock, too, and both say that they hold it. The
/// first is told at its next renewal, and the checker calls that what it is.
async fn second_holder(
    first: &Actor,
    held: (Guard, Watched),
    second: &Actor,
    reason: LossReason,
) -> Result<(), String> {
    second_holder_before(first, held, second, reason, || ()).await
}

/// As [`second_holder`], where the first cannot reach the servers before `reach`: it would be told at once.
async fn second_holder_before(
    first: &Actor,
    held: (Guard, Watched),
    second: &Actor,
    reason: LossReason,
    reach: impl FnOnce(),
) -> Result<(), String> {
    let (guard, mut watched) = held;
    watched.observe(&guard);
    let (other, other_watched) = second.take(&second.lock()).await?;
    // A token counts on from the servers' clock where the counter is gone: over a quorum only every ten seconds.
    let rises = other.token() > guard.token();
    ensure(rises || first.client.nodes().len() > 1, || format!("{other:?} after {guard:?}"))?;
    let violated: &[&str] = if rises { &["S1"] } else { &["S1", "S2"] };
    let both = guard.is_held() && other.is_held();
    ensure(both, || "the lock was not held twice".into())?;
    watched.observe(&guard);
    reach();
    is_told(&guard, reason).await?;
    second.gives_back(other, other_watched).await;
    let report = history(&[first, second]);
    ensure(report.violated() == violated, || format!("the checker says {:?}", report.violations))
}

/// The holder is told why it is one no more, at the next renewal or its lease's end.
async fn is_told(guard: &Guard, reason: LossReason) -> Result<(), String> {
    let asked_at = Instant::now();
    let (mut stood_still, mut seen_at) = (Duration::ZERO, asked_at);
    let told = timeout(LIMIT, async {
        loop {
            match timeout(TICK, guard.lost()).await {
                Ok(reason) => break reason,
                // A machine that stands still tells nobody.
                Err(_) => stood_still += seen_at.elapsed().saturating_sub(2 * TICK),
            }
            seen_at = Instant::now();
        }
    })
    .await;
    stood_still += seen_at.elapsed().saturating_sub(2 * TICK);
    ensure(told == Ok(reason), || format!("told {told:?} instead of {reason:?}"))?;
    ensure(!guard.is_held(), || "it is held all the same".into())?;
    // A third of the lease until the next renewal, and as much again for its answer.
    let limit = if matches!(reason, LossReason::Gone | LossReason::Failover) {
        TTL * 2 / 3
    } else {
        TTL * 4 / 3
    };
    let after = asked_at.elapsed();
    ensure(after < limit + stood_still, || format!("told after {after:?}"))
}

fn history(actors: &[&Actor]) -> Report {
    let journals =
        actors.iter().map(|actor| (actor.name.to_owned(), actor.recorder.journal.events()));
    let mut history = History { processes: journals.collect() };
    // What was arranged is a fault that lasts.
    let fault = What::Fault { number: 0, kind: "excluded".to_owned(), stops: None };
    history.processes.insert(DRIVER.to_owned(), vec![Event { at: 0, what: fault }]);
    let setting = Setting {
        nodes: 1,
        fails_over: false,
        slack: Duration::from_millis(500),
        ttl: TTL,
        response_timeout: Duration::from_secs(1),
        quarantine: Duration::ZERO,
    };
    check(&history, &setting)
}

fn ensure(is_so: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(problem()) }
}

const LOCK: &str = "n";
/// Renewed every two seconds: so long there is for the second holder to come in.
const TTL: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(20);
