//! Calls of either library, and what comes of them.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::shared_clock_us;

/// What was done, and when: by a clock that all processes of this host share.
#[derive(Debug)]
pub struct Done<T> {
    /// When it began.
    pub began_us: u64,
    /// When it ended.
    pub ended_us: u64,
    /// What came of it.
    pub outcome: Result<T, Failure>,
}

impl<T: std::fmt::Debug> Done<T> {
    /// What came of it, which must be good.
    pub fn value(self) -> T {
        self.outcome.expect("it succeeds")
    }

    /// How long it took.
    pub fn took(&self) -> Duration {
        Duration::from_micros(self.ended_us - self.began_us)
    }
}

/// Why something could not be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The lock is not the caller's: Java's IllegalMonitorStateException, the library's `Error::Lost`.
    NotHeld,
    /// Anything else, in words.
    Other(String),
}

/// A call that was begun; it goes on whether or not anybody waits for it.
pub struct Call(JoinHandle<Done<i64>>);

impl Call {
    /// Begins a call in this process.
    pub fn begin(call: impl Future<Output = Result<i64, Failure>> + Send + 'static) -> Self {
        Self(tokio::spawn(async move {
            let began_us = shared_clock_us();
            let outcome = call.await;
            Done { began_us, ended_us: shared_clock_us(), outcome }
        }))
    }

    /// A call of Java's, which has begun, and whose answer is a number.
    pub(super) fn to_java(answer: impl Future<Output = Done<String>> + Send + 'static) -> Self {
        Self(tokio::spawn(async move {
            let Done { began_us, ended_us, outcome } = answer.await;
            let outcome = outcome.map(|number| number.parse().expect("a number"));
            Done { began_us, ended_us, outcome }
        }))
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// What came of it, if it has ended; then it cannot be asked again.
    pub async fn ended(&mut self) -> Option<Done<i64>> {
        match self.0.is_finished() {
            true => Some((&mut self.0).await.expect("no panic")),
            false => None,
        }
    }

    /// Waits for its end.
    pub async fn done(self) -> Done<i64> {
        self.0.await.expect("no panic")
    }

    /// Waits for its end, which must be good.
    pub async fn value(self) -> i64 {
        self.done().await.value()
    }
}
