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
        waited: Duration,
    },
    Lost {
        lock: &'a str,
        loss: Loss,
        /// It says what is done about it.
        run: &'a Run,
    },
    NotReleased {
        lock: &'a str,
        error: &'a Error,
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
    /// With `--verbose`.
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
            Self::NotSuspended | Self::WaitsForTerminal => Weight::Notice,
            Self::Lost { .. }
            | Self::NotReleased { .. }
            | Self::ShellFailed { .. }
            | Self::Failed(_) => Weight::Problem,
        }
    }

    fn json(&self) -> Value {
        let (event, mut rest) = match self {
            Self::Taken { locks, waited } => {
                let locks: Vec<_> = locks
                    .iter()
                    .map(|guard| json!({"name": guard.name(), "token": guard.token()}))
                    .collect();
                ("taken", json!({"locks": locks, "waited": waited.as_secs_f64()}))
            }
            Self::Lost { lock, loss, .. } => ("lost", lost(lock, *loss)),
            // To a program it is a loss as any other.
            Self::NotReleased { lock, error: Error::Lost { reason, .. } } => {
                ("lost", lost(lock, (*reason).into()))
            }
            Self::NotReleased { lock, error } => {
                ("not_released", json!({"name": lock, "text": error.to_string()}))
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

fn lost(lock: &str, loss: Loss) -> Value {
    json!({"name": lock, "reason": loss, "text": loss.to_string()})
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { locks, waited } => {
                write!(f, "took ")?;
                for (index, guard) in locks.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{:?} (token {})", guard.name(), guard.token())?;
                }
                write!(f, " after {:.3} s", waited.as_secs_f64())
            }
            Self::Lost { lock, loss, run } => {
                let action = match (&run.on_lost_run, run.on_lost) {
                    (Some(_), _) => "the command of --on-lost-run runs",
                    (None, OnLost::Term) => "the command is told to end",
                    (None, OnLost::Kill) => "the command is killed",
                    (None, OnLost::Continue) => "the command goes on",
                };
                write!(f, "lost lock {lock:?}: {loss}; {action}, and another one may hold the lock soon")
            }
            Self::NotReleased { lock, error } => {
                match error.is_lost() {
                    true => write!(f, "{error} while the command ran"),
                    false => {
                        write!(f, "the release of {lock:?} is not confirmed: it ends with its TTL at the latest ({error})")
                    }
                }
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
        let line = if self.json {
            event.json().to_string()
        } else if match event.weight() {
            Weight::Detail => self.verbose,
            Weight::Notice => !self.quiet,
            Weight::Problem => true,
        } {
            format!("leasehold: {event}")
        } else {
            return;
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
