//! The loss of a lock, as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::clock::Clock;
use crate::engine::gate::Hold;
use crate::error::LossReason;

/// A future that resolves when a lock is lost; see [`Guard::lost`](crate::Guard::lost). It does not borrow the guard, and is
/// `Send + Unpin + 'static`. Each clone resolves.
#[must_use = "futures do nothing unless polled"]
pub struct Lost {
    signal: Pin<Box<WaitForCancellationFutureOwned>>,
    hold: Arc<Hold>,
}

impl Lost {
    pub(super) fn of(hold: Arc<Hold>) -> Self {
        Self { signal: Box::pin(hold.lease.lost().clone().cancelled_owned()), hold }
    }

    pub(crate) fn lock(&self) -> &Arc<str> {
        &self.hold.gate.name
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.hold.gate.engine.clock
    }

    /// Returns true if the lock is certainly held, by the hold whose loss this is.
    pub(crate) fn is_held(&self) -> bool {
        !self.hold.is_over() && self.hold.lease.check(self.clock().now()).is_ok()
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self::of(self.hold.clone())
    }
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        if self.signal.as_mut().poll(cx).is_pending() || self.hold.is_over() {
            return Poll::Pending;
        }
        let now = self.hold.gate.engine.clock.now();
        let Err(reason) = self.hold.lease.check(now) else {
            // Its runtime is gone, and nobody renews it: whoever is told so holds it no more.
            self.hold.lease.lose(LossReason::Shutdown);
            return Poll::Ready(LossReason::Shutdown);
        };
        Poll::Ready(reason)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("lock", &self.hold.gate.name).finish()
    }
}
