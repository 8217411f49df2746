//! Exit codes, and the messages that go with them.

use std::fmt;
use std::io;

use leasehold::Error;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Wrong use of the command line.
pub const USAGE: u8 = 64;
/// The key on the servers is no lock.
pub const DATA: u8 = 65;
/// The servers do not answer.
pub const UNAVAILABLE: u8 = 69;
/// A fault of this program, or of what it may do on this host.
pub const SOFTWARE: u8 = 70;
/// Somebody else holds the lock.
pub const BUSY: u8 = 75;
/// The servers deny a right, or the login.
pub const DENIED: u8 = 77;
/// A setting that cannot work.
pub const CONFIG: u8 = 78;
/// The lock was lost while the command ran.
pub const LOST: u8 = 79;
/// The command ended well, but the servers did not confirm the release (`--strict`).
pub const NOT_RELEASED: u8 = 80;
/// The command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// Why the program ends with something else than success.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub message: String,
}

impl Failure {
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Timeout { .. } => BUSY,
            Error::Lost { .. } => LOST,
            Error::Unavailable { .. } => UNAVAILABLE,
            Error::InvalidName { .. } | Error::InvalidArgument { .. } => USAGE,
            Error::InvalidConfig { .. } | Error::SingleServerOnly { .. } => CONFIG,
            Error::WrongType { .. } => DATA,
            Error::Denied { .. } => DENIED,
            _ => SOFTWARE,
        };
        Self::new(code, error.to_string())
    }
}

/// This program cannot learn of signals.
pub fn no_signals(error: io::Error) -> Failure {
    Failure::new(SOFTWARE, format!("cannot listen for signals: {error}"))
}

/// Listens for the signals that ask this program to end. The future returns the exit code for the first that comes.
pub fn when_asked_to_end() -> Result<impl Future<Output = u8>, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    Ok(async move {
        let signal = tokio::select! {
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
        };
        of_signal(signal as i32)
    })
}

/// The code of a program that a signal ended, as a shell reports it.
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
