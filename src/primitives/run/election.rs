//! Bodies that run while their process leads.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use super::{Boxed, Outcome, run_with};
use crate::error::Error;
use crate::primitives::election::Election;
use crate::primitives::leadership::Leadership;

impl Election {
    /// Waits to become leader, runs `body` once, and resigns when it ends. If the leadership is lost, `body` is cancelled.
    /// [`run_each_term`](Self::run_each_term) begins again then. [`with_wait`](Self::with_wait) limits the wait.
    ///
    /// # Errors
    ///
    /// The same as [`campaign`](Self::campaign); [`Error::Lost`] if the leadership was lost before it ended. The result of
    /// `body`, if there is one, is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and resigns in the background.
    #[track_caller]
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&Leadership) -> T,
    {
        let outcome = self.run_with_outcome(body);
        async move { outcome.await?.into_result() }
    }

    /// Works like [`run`](Self::run), but keeps the result of `body` even if the leadership is lost afterwards; see
    /// [`Mutex::run_with_outcome`](crate::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`campaign`](Self::campaign); [`Error::Lost`] if the leadership was lost while `body` ran: `body` was
    /// cancelled, and has no result.
    ///
    /// # Cancel safety
    ///
    /// The same as [`run`](Self::run).
    #[track_caller]
    pub fn run_with_outcome<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&Leadership) -> T,
    {
        run_with(self.campaign(), body)
    }

    /// Works like [`run`](Self::run), but its future is [`Send`] whatever the type of `body` is, so that generic code can
    /// spawn it; see [`Mutex::run_boxed`](crate::Mutex::run_boxed).
    ///
    /// # Errors
    ///
    /// The same as [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// The same as [`run`](Self::run).
    #[track_caller]
    pub fn run_boxed<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send,
        F: for<'a> FnOnce(&'a Leadership) -> Boxed<'a, T> + Send,
    {
        self.run(async move |leadership: &Leadership| body(leadership).await)
    }

    /// Waits to become leader, and runs `body` in each term of this process, until it ends by itself; then resigns. If the
    /// leadership is lost, `body` is cancelled, and started again when this process leads again. Servers that do not answer
    /// are waited for.
    ///
    /// Each term runs a clone of `body`, so what it captures must be [`Clone`], as references are.
    /// [`with_wait`](Self::with_wait) limits the wait for each term.
    ///
    /// # Errors
    ///
    /// The same as [`campaign`](Self::campaign), except for [`Error::Unavailable`] and [`Error::Lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and resigns in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn plan_the_next_hour() {}
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// client.election("scheduler").run_each_term(async |leadership| {
    ///     println!("leading in term {}", leadership.term());
    ///     loop {
    ///         plan_the_next_hour().await; // cancelled if the leadership is lost, and begun again in the next term
    ///     }
    /// }).await
    /// # }
    /// ```
    #[track_caller]
    pub fn run_each_term<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&Leadership) -> T + Clone,
    {
        let (election, caller) = (self.clone(), Location::caller());
        async move {
            let mut failures = 0;
            loop {
                match election.campaign_at(caller).await {
                    Ok(leadership) => {
                        failures = 0;
                        let ended = leadership.run_until_lost(body.clone()(&leadership)).await;
                        if let Ok(output) = ended {
                            // The body has ended; if the leadership was lost since, others have their turn anyway.
                            let _ = leadership.release().await;
                            return Ok(output);
                        }
                    }
                    Err(error) => {
                        election.pause_after(error, failures).await?;
                        failures += 1;
                    }
                }
            }
        }
    }

    /// Works like [`run_each_term`](Self::run_each_term), but its future is [`Send`] whatever the type of `body` is, so that
    /// generic code can spawn it; see [`Mutex::run_boxed`](crate::Mutex::run_boxed).
    ///
    /// # Errors
    ///
    /// The same as [`run_each_term`](Self::run_each_term).
    ///
    /// # Cancel safety
    ///
    /// The same as [`run_each_term`](Self::run_each_term).
    #[track_caller]
    pub fn run_each_term_boxed<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send,
        F: for<'a> FnOnce(&'a Leadership) -> Boxed<'a, T> + Clone + Send,
    {
        self.run_each_term(async move |leadership: &Leadership| body(leadership).await)
    }

    /// Waits before the next attempt to lead, if `error` says that there can be one.
    pub(crate) async fn pause_after(&self, error: Error, failures: u32) -> Result<(), Error> {
        match error {
            Error::Unavailable { .. } | Error::Lost { .. } => {
                let clock = self.clock();
                clock.sleep(clock.back_off(failures, LONGEST_PAUSE)).await;
                Ok(())
            }
            error => Err(error),
        }
    }
}

const LONGEST_PAUSE: Duration = Duration::from_millis(500);
