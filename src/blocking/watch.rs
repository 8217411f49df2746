//! Watching for a loss from another thread.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::runtime::Runtime;
use crate::error::Error;
use crate::guard::Lost;
use crate::primitives::multi_guard::MultiLost;

/// Tells any thread of the loss of what a guard holds; see [`Guard::watch`](super::Guard::watch).
///
/// It is `Send + Sync + 'static`, and holds nothing: it does not keep the guard's lock. Clones watch the same guard.
#[derive(Clone)]
pub struct LossWatch {
    lost: MultiLost,
    ended: CancellationToken,
    runtime: Runtime,
}

impl LossWatch {
    /// Returns true if all that the guard holds is certainly held at this moment. It costs no I/O. It is false after the
    /// guard was released.
    pub fn is_held(&self) -> bool {
        !self.ended.is_cancelled() && self.lost.is_held()
    }

    /// Waits for the loss, for at most `timeout`, and returns it as [`Error::Lost`], which names the lock and the reason.
    /// Returns `None` if nothing was lost: after `timeout`, or as soon as the guard is gone. [`Duration::MAX`] means no limit.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn wait_lost(&self, timeout: Duration) -> Result<Option<Error>, Error> {
        self.runtime.wait(self.lost.clone().within(timeout, self.ended.cancelled()))
    }
}

impl fmt::Debug for LossWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LossWatch").field(&self.lost).finish()
    }
}

/// The end of a guard, which those learn who watch it. Dropped with the guard.
#[derive(Default)]
pub(super) struct End {
    /// Made for the first who watches.
    told: OnceLock<CancellationToken>,
}

impl End {
    pub(super) fn watch(&self, lost: Lost, runtime: &Runtime) -> LossWatch {
        self.watch_all(MultiLost::one(lost), runtime)
    }

    pub(super) fn watch_all(&self, lost: MultiLost, runtime: &Runtime) -> LossWatch {
        let ended = self.told.get_or_init(CancellationToken::new).clone();
        LossWatch { lost, ended, runtime: runtime.clone() }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(told) = self.told.get() {
            told.cancel();
        }
    }
}
