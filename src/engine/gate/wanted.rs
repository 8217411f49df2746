//! Whether anybody else wants a lock that is held here: a hint, by which nothing is decided.
//!
//! Nothing is done for it before a guard is asked. From then on a task looks who waits, until somebody does or the hold ends; and
//! the ids of this client's leases name its mailbox, so that the first in the server's queue tells the holder. What nobody tells, and
//! what was missed, the task finds when it looks again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Gate;
use crate::engine::lease::Lease;
use crate::node::Demand;
use crate::script::Reply;

/// What a hold knows of others who want its lock. Its task ends with it.
pub(super) struct Wanting {
    news: Arc<News>,
    task: AbortHandle,
}

#[derive(Default)]
struct News {
    is_wanted: AtomicBool,
    told: Notify,
}

impl News {
    fn found(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

impl Wanting {
    /// Begins to look who wants what the lease holds.
    pub(super) fn begin(gate: &Arc<Gate>, lease: &Arc<Lease>) -> Self {
        let engine = &gate.engine;
        engine.asks_whether_wanted.store(true, Ordering::Relaxed);
        let news = Arc::<News>::default();
        let looking = look(gate.clone(), lease.clone(), news.clone());
        let task = engine.tasks.spawn_on(looking, engine.clock.runtime()).abort_handle();
        Self { news, task }
    }

    /// Returns true if somebody was found who wants it.
    pub(super) fn has_found(&self) -> bool {
        self.news.is_wanted.load(Ordering::Acquire)
    }

    /// Somebody who wants it was found otherwise.
    pub(super) fn found(&self) {
        if !self.has_found() {
            self.news.found();
            self.end();
        }
    }

    /// Waits until `is_so`, which is asked at first, and again when somebody was found.
    pub(super) async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let mut told = pin!(self.news.told.notified());
            told.as_mut().enable();
            if is_so() {
                return;
            }
            told.await;
        }
    }

    /// Ends with the hold, whoever keeps what is left of that.
    pub(super) fn end(&self) {
        self.task.abort();
    }
}

impl Drop for Wanting {
    fn drop(&mut self) {
        self.end();
    }
}

/// Looks until somebody wants what the lease holds, or the lease is lost.
async fn look(gate: Arc<Gate>, lease: Arc<Lease>, news: Arc<News>) {
    let lost = lease.lost().clone();
    tokio::select! {
        () = gate.until_wanted(&lease) => news.found(),
        () = lost.cancelled() => {}
    }
}

impl Gate {
    async fn until_wanted(&self, lease: &Lease) {
        self.quorum.open_mailbox();
        let mut heard: Option<(u32, Option<Demand>)> = None;
        let mut pause = Duration::ZERO;
        // Behind the runtime's end all timers are over: whoever went on would never let it end.
        while !self.engine.clock.is_stopped() {
            let queue = self.quorum.queue();
            let member = queue.as_ref().map_or(0, |node| node.number());
            if heard.as_ref().is_none_or(|(at, _)| *at != member) {
                // Before the look: who asks after it is heard.
                heard = Some((member, queue.and_then(|node| node.mailbox().demand(lease.id()))));
                // What this client listened to while it waited for the lock itself is over by then: it would count.
                pause = SETTLING;
            }
            let demand = heard.as_ref().and_then(|(_, demand)| demand.as_ref());
            let said = async {
                match demand {
                    Some(demand) => demand.said().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                is_wanted = said => if is_wanted { return },
                () = self.has_waiters() => return,
                () = self.quorum.queue_moved_from(member) => {}
                () = self.engine.clock.sleep(pause) => {}
            }
            tokio::select! {
                wait = self.do_others_wait(lease) => if wait { return },
                () = self.has_waiters() => return,
            }
            let longest = if demand.is_some() { TOLD } else { UNTOLD };
            pause = self.engine.clock.jitter(longest / 2, longest);
        }
        std::future::pending().await
    }

    /// Asks the servers whether any client waits. If they cannot say, nobody is known to.
    async fn do_others_wait(&self, lease: &Lease) -> bool {
        let Some(call) = lease.kind.look_for_waiting() else { return false };
        let waits = |reply: &Reply| reply.number().is_some_and(|waiting| waiting > 0);
        let majority = self.quorum.majority();
        let enough = |replies: &[&Reply]| {
            replies.len() >= majority && replies.iter().any(|reply| waits(reply))
        };
        let answers = self.quorum.ask(call, enough).await;
        answers.is_ok_and(|answers| answers.replies.iter().any(waits))
    }

    /// Waits until somebody of this process waits.
    async fn has_waiters(&self) {
        loop {
            let mut changed = pin!(self.asked.notified());
            changed.as_mut().enable();
            if self.waiters() > 0 {
                return;
            }
            changed.await;
        }
    }
}

const SETTLING: Duration = Duration::from_millis(30);
/// How long it is at most from look to look, if those who wait tell the holder; half of that at least.
const TOLD: Duration = Duration::from_secs(4);
/// The same, if they do not.
const UNTOLD: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use futures_util::FutureExt;

    use super::super::Engine;
    use super::*;
    use crate::clock::Clock;
    use crate::engine::kind::{Sharing, plain::Plain};
    use crate::engine::lease::tests::watched;
    use crate::fleet::Fleet;
    use crate::node::Node;

    #[tokio::test]
    async fn nobody_looks_on_behind_the_end_of_the_runtime() {
        let clock = Clock::of_this_runtime();
        let fleet = Fleet::Nodes([Node::unconnected(&clock)].into());
        let (config, tasks) = Default::default();
        let engine =
            Engine::new(config, clock.clone(), fleet, Arc::default(), tasks, Arc::default());
        let (gate, lease) = (engine.gate(&Plain::new(Sharing::Alone, 0)), watched());
        clock.stop();
        let (done, is_done) = mpsc::channel();
        // Elsewhere, since one who looks on never lets go of its thread.
        thread::spawn(move || done.send(gate.until_wanted(&lease).now_or_never()));
        assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(None));
    }
}
