//! Sends releases after the runtime has ended.
//!
//! A runtime that ends drops the tasks of a client, so none of them can send the pending releases, and after a `?` out
//! of `main` there nearly always are some. They are sent over a connection that needs no runtime, and the sender waits
//! for the answers. The sender is the last task, when it is dropped ([`Farewell`]), and then everybody who leaves a
//! release, since guards may outlive the runtime.
//!
//! * This is the only place where a drop blocks: for [`PATIENCE`] in total per client, and only if a release is
//!   pending. Everything that may take longer, such as the lookup of a name, is done on a thread that is abandoned
//!   after that time.
//! * As on every new connection, the predecessor is killed first, so that none of its acquires can run after the
//!   release. If that is not allowed, the release is sent nevertheless, once.
//! * A lease that a living guard holds is not released: its release is not pending before the guard is dropped.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::last_connection::{PATIENCE, Patience};
use super::shared::Shared;

/// Shared by the tasks of a client. It is dropped with the last of them, and then sends the pending releases.
#[derive(Default)]
pub(crate) struct Farewell {
    nodes: Mutex<Vec<Arc<Shared>>>,
    pub(super) patience: Arc<Patience>,
}

impl Farewell {
    pub(super) fn join(&self, node: &Arc<Shared>) {
        self.nodes.lock().push(node.clone());
    }

    /// The node owes nothing, and is not used any more.
    pub(super) fn leave(&self, node: &Arc<Shared>) {
        self.nodes.lock().retain(|other| !Arc::ptr_eq(other, node));
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let nodes = mem::take(self.nodes.get_mut());
        for node in &nodes {
            node.tasks_gone.store(true, Ordering::Release);
        }
        send_pending(nodes.iter(), &self.patience);
    }
}

impl Shared {
    /// Returns true if a release is pending and no task can send it.
    ///
    /// Whoever leaves a release looks here after that, and the last task collects releases after it has set
    /// `tasks_gone`. So one of them sees the release.
    fn has_releases_and_no_tasks(&self) -> bool {
        self.tasks_gone.load(Ordering::Acquire) && !self.link.lock().pending.is_empty()
    }
}

/// Sends the pending releases of those nodes whose tasks are gone, to all nodes at once.
pub(super) fn send_pending<'a>(nodes: impl Iterator<Item = &'a Arc<Shared>>, patience: &Patience) {
    if patience.is_of_another_process() {
        return;
    }
    let began_at = Instant::now();
    let (done, all_done) = channel::<()>();
    for node in nodes.filter(|node| node.has_releases_and_no_tasks()) {
        let (node, done) = (node.clone(), done.clone());
        let send = move || {
            let opened = send_over_last(&node, began_at + PATIENCE);
            drop(done);
            if opened {
                // More releases may follow soon, as guards are dropped one by one.
                thread::sleep(LINGER);
                node.last_connection.lock().connection = None;
            }
        };
        // Without a thread nothing is sent, and the locks expire.
        let _ = thread::Builder::new().name(THREAD.to_owned()).spawn(send);
    }
    drop(done);
    let mut left = patience.left.lock();
    // This is always an error: all threads are done, or the time is over.
    let _ = all_done.recv_timeout(*left);
    *left = left.saturating_sub(began_at.elapsed());
}

/// Sends the node's pending releases. Returns true if that opened the connection.
fn send_over_last(node: &Shared, until: Instant) -> bool {
    let mut last = node.last_connection.lock();
    if last.is_over {
        return false;
    }
    let pending = mem::take(&mut node.link.lock().pending);
    last.send(&node.endpoint, pending, node.membership.is_some(), until)
}

/// How long the connection is kept after it is opened.
const LINGER: Duration = Duration::from_millis(100);
const THREAD: &str = "leasehold-end";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::key::LeaseId;
    use crate::node::{Detour, Node, PendingRelease};
    use crate::script::{Call, LOCK_RELEASE};

    /// Returns a node with a release that was left when the last task of its client ended. The process of this number made the
    /// client.
    fn node_of_ended_client(clock: &Clock, process: u32) -> Node {
        let node = Node::unconnected(clock);
        let ttl = Duration::from_secs(60);
        let release = PendingRelease {
            call: Call { script: &LOCK_RELEASE, keys: Vec::new(), args: Vec::new() },
            acquired_on: None,
            ttl,
            until: clock.now().plus(ttl),
            repeats: 0,
            first: None,
            queued: false,
            detour: Detour::default(),
        };
        node.leave_release(LeaseId("a:1".into()), release, None);
        let patience = Arc::new(Patience { process, ..Patience::default() });
        let farewell = Farewell { nodes: Mutex::default(), patience };
        farewell.join(&node.shared);
        drop(farewell);
        node
    }

    #[tokio::test]
    async fn a_fork_that_ends_sends_nothing_of_what_its_parent_has_to_release() {
        let clock = Clock::of_this_runtime();
        let own = std::process::id();
        let node = node_of_ended_client(&clock, own + 1);
        assert_eq!(node.pending_releases(), 1, "this process is the fork");
        let node = node_of_ended_client(&clock, own);
        let began_at = Instant::now();
        while node.pending_releases() > 0 {
            assert!(began_at.elapsed() < Duration::from_secs(60), "its own is not sent");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
