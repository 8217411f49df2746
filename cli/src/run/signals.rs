//! The signals that `run` gets.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// All signals that matter, one after the other. What was ignored when this program started stays so, for the command, too:
/// `nohup` means that, and shells that start something in the background.
pub struct Signals {
    listened: Vec<(Number, Signal)>,
    /// By their numbers, the first in the lowest bit.
    ignored: u64,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        // Whoever started this may have blocked it, and what is blocked stays so.
        let mut needed = SigSet::empty();
        needed.add(Number::SIGCHLD);
        needed.thread_unblock()?;
        let mut signals = Self { listened: Vec::new(), ignored: ignored() };
        signals.listen(&[
            Number::SIGCHLD,
            Number::SIGHUP,
            Number::SIGINT,
            Number::SIGQUIT,
            Number::SIGTERM,
            Number::SIGUSR1,
            Number::SIGUSR2,
            Number::SIGCONT,
        ])?;
        Ok(signals)
    }

    /// Returns true if this signal was ignored when this program started.
    pub fn ignores(&self, number: Number) -> bool {
        self.ignored & (1 << (number as i32 - 1)) != 0
    }

    /// From now on nobody who holds a lock is suspended from the terminal.
    pub fn hear_suspensions(&mut self) -> io::Result<()> {
        self.listen(&[Number::SIGTSTP])
    }

    fn listen(&mut self, numbers: &[Number]) -> io::Result<()> {
        for &number in numbers {
            // Without that one nobody would learn of the command's end.
            let is_needed = number == Number::SIGCHLD;
            if is_needed || !self.ignores(number) {
                self.listened.push((number, signal(SignalKind::from_raw(number as i32))?));
            }
        }
        Ok(())
    }

    /// Waits for the next signal that ends a process which does nothing about it. It is cancel safe.
    pub async fn next_that_ends(&mut self) -> Number {
        loop {
            let signal = self.next().await;
            if !matches!(signal, Number::SIGCHLD | Number::SIGCONT | Number::SIGTSTP) {
                return signal;
            }
        }
    }

    /// Waits for the next signal. It is cancel safe.
    pub async fn next(&mut self) -> Number {
        poll_fn(|context| {
            for (number, signal) in &mut self.listened {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Returns the signals that this process ignores.
fn ignored() -> u64 {
    // Elsewhere only unsafe code can ask.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
