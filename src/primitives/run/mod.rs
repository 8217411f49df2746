//! Running a body under a lock of any kind, in the forms that callers need.

mod election;
mod multi_lock;
mod mutex;
mod rw_lock;
mod semaphore;

use std::future::Future;
use std::pin::Pin;
use std::slice;

use super::leadership::Leadership;
use super::multi_guard::MultiGuard;
use super::permit::Permit;
use super::rw_guards::{ReadGuard, WriteGuard};
use crate::error::Error;
use crate::guard::Guard;
use crate::owner::run_body_under;

/// What the body of a `run_boxed` returns: a future that borrows the guard.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a body runs under.
pub(super) trait Proof: Sized {
    /// The locks that the body enters again without a named owner.
    fn reentered(&self) -> &[Guard] {
        &[]
    }

    /// Runs a future, and cancels it at a loss.
    fn run_until_lost<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Error>>;

    fn release(self) -> impl Future<Output = Result<(), Error>>;
}

macro_rules! proof {
    ($proof:ty, $($reentered:tt)*) => {
        impl Proof for $proof {
            $($reentered)*

            fn run_until_lost<F: Future>(
                &self,
                future: F,
            ) -> impl Future<Output = Result<F::Output, Error>> {
                <$proof>::run_until_lost(self, future)
            }

            fn release(self) -> impl Future<Output = Result<(), Error>> {
                <$proof>::release(self)
            }
        }
    };
}

proof!(
    Guard,
    fn reentered(&self) -> &[Guard] {
        slice::from_ref(self)
    }
);
proof!(
    ReadGuard,
    fn reentered(&self) -> &[Guard] {
        slice::from_ref(self.inner())
    }
);
proof!(
    WriteGuard,
    fn reentered(&self) -> &[Guard] {
        slice::from_ref(self.inner())
    }
);
proof!(
    MultiGuard,
    fn reentered(&self) -> &[Guard] {
        self.guards()
    }
);
proof!(Permit,);
proof!(Leadership,);

/// Runs `body` under the guard that `acquire` returns, and then gives it back. Inside, the same locks are entered again.
async fn run_under<P: Proof, T, F>(
    acquire: impl Future<Output = Result<P, Error>>,
    body: F,
) -> Result<Outcome<T>, Error>
where
    F: AsyncFnOnce(&P) -> T,
{
    let proof = acquire.await?;
    let holds = proof.reentered().iter().map(|guard| (guard.owner(), guard.key()));
    let body = run_body_under(holds, body(&proof));
    let output = proof.run_until_lost(body).await?;
    Ok(Outcome::new(output, proof.release().await))
}

/// Runs `body` with what `acquire` returns, and then gives it back. There is nothing to be entered again.
async fn run_with<P: Proof, T, F>(
    acquire: impl Future<Output = Result<P, Error>>,
    body: F,
) -> Result<Outcome<T>, Error>
where
    F: AsyncFnOnce(&P) -> T,
{
    let proof = acquire.await?;
    let output = proof.run_until_lost(body(&proof)).await?;
    Ok(Outcome::new(output, proof.release().await))
}

/// The result of a body that ran to its end under a lock; see
/// [`Mutex::run_with_outcome`](crate::Mutex::run_with_outcome).
#[derive(Debug)]
#[must_use = "the lock may have been lost before it was released"]
#[non_exhaustive]
pub struct Outcome<T> {
    /// The value that the body returned.
    pub output: T,
    /// The result of [`Guard::release`]: [`Error::Lost`] if the lock was not held until its release. A release that no
    /// server has confirmed yet goes on in the background, and is not an error here.
    pub released: Result<(), Error>,
}

impl<T> Outcome<T> {
    /// Returns the output if the lock was held until it was released; otherwise drops the output and returns the error.
    ///
    /// # Errors
    ///
    /// The error of [`released`](Self::released).
    pub fn into_result(self) -> Result<T, Error> {
        self.released.map(|()| self.output)
    }

    pub(crate) fn new(output: T, unlocked: Result<(), Error>) -> Self {
        let released = match unlocked {
            // The body has ended, and had the lock all the time; the release goes on in the background.
            Err(Error::Unavailable { .. }) => Ok(()),
            unlocked => unlocked,
        };
        Self { output, released }
    }
}
