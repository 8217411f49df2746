//! What `run` says, on standard error: standard output belongs to the command.

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use leasehold::{Error, Guard};
use serde_json::{Value, json};

use super::child;
use super::loss::Loss;
use crate::args::{OnLost, Run, Servers};
use crate::exit::Failure;
use crate::text::SCHEMA;

/// Something that happened.
pub enum Event<'a> {
    Taken {
        locks: &'a [Guard],
        /// Those that an outer `run` holds.
        lent: &'a [String],
        waited: Duration,
    },
    /// The outer `run` decides when these are released.
    NoMinHold {
        lent: &'a [String],
    },
    Lost {
        lock: &'a str,
        loss: Loss,
        /// It says what is done about it.
        run: &'a Run,
    },
    NotReleased {
        lock: &'a str,
        /// `None` if a signal came before the answer.
        error: Option<&'a Error>,
    },
    NotSuspended,
    WaitsForTerminal,
    ShellFailed {
        command: &'a str,
        error: &'a std::io::Error,
    },
    /// The command did not run.
    Failed(&'a Failure),
}

/// To whom an event is told.
enum Weight {
    /// With `--verbose`, and in JSON without `--quiet`.
    Detail,
    /// Without `--quiet`.
    Notice,
    /// Always.
    Problem,
}

impl Event<'_> {
    fn weight(&self) -> Weight {
        match self {
            Self::Taken { .. } => Weight::Detail,
            Self::NoMinHold { .. } | Self::NotSuspended | Self::WaitsForTerminal => Weight::Notice,
            Self::Lost { .. }
            | Self::NotReleased { .. }
            | Self::ShellFailed { .. }
            | Self::Failed(_) => Weight::Problem,
        }
    }

    pub fn json(&self) -> Value {
        let (event, mut rest) = match self {
            Self::Taken { locks, lent, waited } => {
                let locks: Vec<_> = locks
                    .iter()
                    .map(|guard| json!({"name": guard.name(), "token": guard.token()}))
                    .collect();
                ("taken", json!({"locks": locks, "lent": lent, "waited": waited.as_secs_f64()}))
            }
            Self::NoMinHold { lent } => ("no_min_hold", json!({"names": lent})),
            Self::Lost { lock, loss, .. } => ("lost", lost(lock, *loss)),
            // To a program it is a loss as any other.
            Self::NotReleased { lock, error: Some(Error::Lost { reason, .. }) } => {
                ("lost", lost(lock, (*reason).into()))
            }
            Self::NotReleased { lock, error } => {
                ("not_released", json!({"name": lock, "text": why(*error)}))
            }
            Self::NotSuspended => ("not_suspended", json!({})),
            Self::WaitsForTerminal => ("waits_for_terminal", json!({})),
            Self::ShellFailed { command, error } => {
                ("on_lost_failed", json!({"command": command, "text": error.to_string()}))
            }
            Self::Failed(failure) => {
                ("failed", json!({"code": failure.code, "text": failure.message}))
            }
        };
        rest["schema"] = SCHEMA.into();
        rest["event"] = event.into();
        rest
    }
}

/// Says why a release is not confirmed.
fn why(error: Option<&Error>) -> String {
    error.map_or_else(|| "a signal ended the wait for it".to_owned(), Error::to_string)
}

fn lost(lock: &str, loss: Loss) -> Value {
    json!({"name": lock, "reason": loss, "text": loss.to_string()})
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { locks, lent, waited } => {
                let took = locks.iter().map(|it| format!("{:?} (token {})", it.name(), it.token()));
                let took = took.collect::<Vec<_>>().join(", ");
                let waited = waited.as_secs_f64();
                match (took.is_empty(), lent.is_empty()) {
                    (true, _) => write!(f, "has {} from an outer run", quoted(lent)),
                    (false, true) => write!(f, "took {took} after {waited:.3} s"),
                    (false, false) => {
                        write!(f, "took {took} after {waited:.3} s, and has {} from an outer run", quoted(lent))
                    }
                }
            }
            Self::NoMinHold { lent } => {
                write!(f, "--min-hold has no effect on {}: the outer run decides when to release what it holds", quoted(lent))
            }
            Self::Lost { lock, loss, run } => {
                let action = match (&run.on_lost_run, run.on_lost) {
                    (Some(_), _) => "the command of --on-lost-run runs",
                    (None, OnLost::Term) => "the command is told to end",
                    (None, OnLost::Kill) => "the command is killed",
                    (None, OnLost::Continue) => "the command goes on",
                };
                write!(f, "lost lock {lock:?}: {loss}; {action}, and somebody else may soon hold the lock")
            }
            Self::NotReleased { lock, error: Some(Error::Lost { reason, .. }) } => {
                write!(f, "lost lock {lock:?} while the command ran: {reason}")
            }
            Self::NotReleased { lock, error } => {
                let why = why(*error);
                write!(f, "the release of {lock:?} was not confirmed ({why}): the lock ends with its TTL at the latest")
            }
            Self::NotSuspended => f.write_str("not suspended: the lock would be lost meanwhile"),
            Self::WaitsForTerminal => {
                f.write_str("the command waits for the terminal, and holds the lock meanwhile: bring it to the foreground")
            }
            Self::ShellFailed { command, error } => write!(f, "--on-lost-run {command:?} did not start: {error}"),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// Where events go. A thread of its own writes them: whoever reads them may stop reading, and that must neither keep a lock from
/// being renewed nor a command from being ended.
pub struct Say {
    json: bool,
    quiet: bool,
    verbose: bool,
    lines: SyncSender<String>,
    written: Receiver<()>,
}

impl Say {
    pub fn new(servers: &Servers) -> Self {
        let (lines, to_write) = sync_channel(MOST_LINES);
        let (end, written) = sync_channel(1);
        thread::spawn(move || {
            // Signals are blocked by each thread for itself.
            let _ = child::keep_going_in_the_background();
            for line in to_write {
                tell!("{line}");
            }
            let _ = end.send(());
        });
        let Servers { json, quiet, verbose, .. } = *servers;
        Self { json, quiet, verbose, lines, written }
    }

    pub fn event(&self, event: &Event<'_>) {
        let is_told = match event.weight() {
            // Programs need not ask for it.
            Weight::Detail => self.verbose || (self.json && !self.quiet),
            Weight::Notice => !self.quiet,
            Weight::Problem => true,
        };
        if !is_told {
            return;
        }
        let line = match self.json {
            true => event.json().to_string(),
            false => format!("leasehold: {event}"),
        };
        // If nobody reads for long, it is lost.
        let _ = self.lines.try_send(line);
    }

    /// Waits until all is written, but not for long.
    pub fn finish(self) {
        drop(self.lines);
        let _ = self.written.recv_timeout(PATIENCE);
    }
}

const MOST_LINES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(1);
