//! The runtime of a blocking client: one thread, which outlives every guard and every pending release.

use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::coop;
use tokio_util::task::TaskTracker;

use crate::error::{ClosedReason, Error};

/// The handle to the thread. Clones refer to the same thread. After the last is dropped, anywhere, the thread ends as
/// soon as the client's tasks have ended: no release is pending then.
#[derive(Clone)]
pub(super) struct Runtime {
    shared: Arc<Shared>,
}

struct Shared {
    handle: Handle,
    /// Whose threads there are. A fork has none of them.
    process: u32,
    /// The tasks that the thread still completes; it receives them at the end.
    end: Mutex<Option<(oneshot::Sender<TaskTracker>, TaskTracker)>>,
    /// Disconnected when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    /// The last drop that waited got no answer, and no lock has been taken since.
    unanswered: AtomicBool,
}

// A panic of the caller's cannot come between two changes here: no mutex is held while the caller's code runs, and the tasks are
// on a thread of their own.
impl UnwindSafe for Shared {}
impl RefUnwindSafe for Shared {}

impl Runtime {
    /// Starts the thread. It fails in async code, where a runtime that fails to start could not be dropped.
    pub(super) fn start() -> Result<Self, Error> {
        may_wait()?;
        let failed =
            |error| Error::config(format!("the client's thread cannot be started: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, at_end) = oneshot::channel::<TaskTracker>();
        let (running, ended) = mpsc::channel();
        let serve = move || {
            runtime.block_on(async {
                if let Ok(tasks) = at_end.await {
                    tasks.close();
                    tasks.wait().await;
                }
            });
            drop(runtime);
            drop(running);
        };
        thread::Builder::new().name(THREAD.to_owned()).spawn(serve).map_err(failed)?;
        let end = Mutex::new(Some((end, TaskTracker::new())));
        let (ended, unanswered) = (Mutex::new(ended), AtomicBool::new(false));
        let process = std::process::id();
        Ok(Self { shared: Arc::new(Shared { handle, process, end, ended, unanswered }) })
    }

    pub(super) fn handle(&self) -> Handle {
        self.shared.handle.clone()
    }

    /// Sets the tasks that the thread completes before it ends.
    pub(super) fn keep_for(&self, tasks: &TaskTracker) {
        if let Some((_, kept)) = &mut *self.shared.end.lock() {
            *kept = tasks.clone();
        }
    }

    /// Returns true if a drop should wait for the servers, which is not so if the last drop that waited got no answer.
    pub(super) fn answers(&self) -> bool {
        !self.shared.unanswered.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self, answered: bool) {
        self.shared.unanswered.store(!answered, Ordering::Relaxed);
    }

    /// Runs a future on this thread. If the thread must not wait, runs nothing.
    pub(super) fn wait<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        may_wait()?;
        self.shared.is_of_this_process()?;
        let _entered = self.shared.handle.enter();
        Ok(until_ready(future))
    }
}

impl Shared {
    /// Fails in a fork, where nobody would answer.
    fn is_of_this_process(&self) -> Result<(), Error> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(Error::Closed { reason: ClosedReason::Forked }),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_of_this_process().is_err() {
            return;
        }
        if let Some((end, tasks)) = self.end.get_mut().take() {
            let _ = end.send(tasks);
            // Usually, pending releases are sent by then. Without this wait, the end of the process could cut them off.
            if !*self.unanswered.get_mut() && may_wait().is_ok() {
                let _ = self.ended.get_mut().recv_timeout(PATIENCE);
            }
        }
    }
}

/// Fails if this thread must not wait, or cannot.
fn may_wait() -> Result<(), Error> {
    match Handle::try_current() {
        Ok(_) if in_async_code() => Err(Error::InAsyncContext),
        // In the destructor of a thread-local, tokio's own thread-locals are gone already, and waiting would panic.
        Err(none) if none.is_thread_local_destroyed() => {
            Err(Error::Closed { reason: ClosedReason::ThreadEnding })
        }
        _ => Ok(()),
    }
}

/// Returns true if this thread, which has a current runtime, is polling a task or the body of a `block_on`.
///
/// `spawn_blocking`, `block_in_place` and `enter()` also have a current runtime. Only async code has a budget of
/// polls, so a budget that can be used up identifies async code. This misses `unconstrained`, which removes the
/// budget, and the body of a `block_on` after a `block_in_place`, which does not restore it.
fn in_async_code() -> bool {
    let mut nobody = Context::from_waker(Waker::noop());
    let mut taken = Vec::with_capacity(MORE_THAN_A_BUDGET);
    let used_up = (0..MORE_THAN_A_BUDGET).any(|_| match coop::poll_proceed(&mut nobody) {
        Poll::Ready(unit) => {
            taken.push(unit);
            false
        }
        Poll::Pending => true,
    });
    // Dropping a unit restores the budget as it was before that unit, so the first must be dropped last.
    while taken.pop().is_some() {}
    used_up
}

/// Polls a future on this thread until it is ready. In async code that could not be detected, tokio's `block_on` would
/// panic; this only blocks the executor.
fn until_ready<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut future = pin!(future);
    // A runtime wakes what let others go first when its own thread goes on, which waits here.
    let longest = if Handle::try_current().is_ok() { LOOK_EVERY } else { Duration::MAX };
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        bell.wait(longest);
    }
}

/// Wakes a thread. It does not use `unpark`, so that it does not consume wake-ups that the program sends with `unpark`.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// Waits until it is rung, for `longest` at most. It may end earlier.
    fn wait(&self, longest: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.rings.wait_for(&mut rung, longest);
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rung.lock() = true;
        self.rings.notify_one();
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(1);
const THREAD: &str = "leasehold";
const MORE_THAN_A_BUDGET: usize = 300;
/// How long a drop waits for the servers.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_in_a_fork_where_nobody_answers() {
        let mut runtime = Runtime::start().expect("not in async code");
        assert!(matches!(runtime.wait(async { 1 }), Ok(1)));
        let shared = Arc::get_mut(&mut runtime.shared).expect("the only handle");
        shared.process += 1;
        let refused = runtime.wait(async { 1 });
        let is_refused = matches!(refused, Err(Error::Closed { reason: ClosedReason::Forked }));
        assert!(is_refused, "{refused:?}");
        // So that its thread ends.
        Arc::get_mut(&mut runtime.shared).expect("the only handle").process -= 1;
    }
}
