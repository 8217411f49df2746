//! The signals that `run` gets.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// All signals that matter, one after the other.
pub struct Signals(Vec<(Number, Signal)>);

impl Signals {
    pub fn new() -> io::Result<Self> {
        let all = [
            Number::SIGCHLD,
            Number::SIGHUP,
            Number::SIGINT,
            Number::SIGQUIT,
            Number::SIGTERM,
            Number::SIGUSR1,
            Number::SIGUSR2,
            Number::SIGCONT,
        ];
        let listen = |number: Number| Ok((number, signal(SignalKind::from_raw(number as i32))?));
        all.into_iter().map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal that ends a process which does nothing about it. It is cancel safe.
    pub async fn next_that_ends(&mut self) -> Number {
        loop {
            let signal = self.next().await;
            if !matches!(signal, Number::SIGCHLD | Number::SIGCONT) {
                return signal;
            }
        }
    }

    /// Waits for the next signal. It is cancel safe.
    pub async fn next(&mut self) -> Number {
        poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}
