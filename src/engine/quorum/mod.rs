//! The requests about a lease, put to all nodes, and what a majority of the answers means.
//!
//! One server is a quorum of one; several independent masters are Redlock (S. Sanfilippo, "Distributed locks with
//! Redis"). A call goes to all nodes at once and is decided as soon as no answer to come can change the verdict,
//! so a node that is slow, hangs or is dead costs nothing while the others are a majority.
//!
//! * An acquire that was sent ends in a grant or in a release behind it (invariant 5): [`Attempt`] and
//!   [`Release`] see to it when they are dropped half-way.
//! * A time is read before its request is sent (invariant 2).

mod attempt;
mod fence;
mod foothold;
mod grant;
mod queued;
mod raising;
mod release;
mod renewal;
mod together;
mod votes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::select_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

pub(crate) use attempt::{Attempt, Beside, Outcome};
pub(crate) use foothold::{Foothold, Heal};
pub(crate) use grant::Grant;
pub(crate) use release::Release;
pub(crate) use renewal::Renewal;
pub(crate) use together::{Part, Renewals, Several};

use super::round::{PerNode, Round, Rules, Vote};
use super::tally::majority;
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::error::{Error, Fault, NodeFailure};
use crate::events::Events;
use crate::fleet::{Path, Site};
use crate::node::{Node, Sent, Signal, Source, Subscription};
use crate::script::{Call, Reply};

/// The servers of a client.
pub(crate) struct Quorum {
    sites: Vec<Site>,
    clock: Clock,
    config: Arc<Config>,
    events: Arc<Events>,
    /// Grants whose token took a second round.
    raises: AtomicU64,
}

impl Quorum {
    pub(crate) fn new(
        sites: Vec<Site>,
        clock: Clock,
        config: Arc<Config>,
        events: Arc<Events>,
    ) -> Self {
        Self { sites, clock, config, events, raises: AtomicU64::new(0) }
    }

    /// What its client has to tell.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Whether there is one site only, and nothing to count.
    pub(crate) fn is_one(&self) -> bool {
        self.sites.len() == 1
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.sites.len())
    }

    /// How many grants needed a second round to settle their token.
    pub(crate) fn raises(&self) -> u64 {
        self.raises.load(Ordering::Relaxed)
    }

    /// What a fault means to the caller that asked about `lock`.
    pub(crate) fn error(&self, lock: Option<&Arc<str>>, fault: Fault) -> Error {
        let fault = match fault {
            Fault::NoAnswer(_) if !self.is_one() => {
                self.no_majority((0..self.sites.len()).map(|node| (node, fault.clone())))
            }
            fault => fault,
        };
        Error::from_fault(&self.address(), lock, fault, &self.clock)
    }

    /// Returns the address of the first server.
    pub(crate) fn address(&self) -> Arc<str> {
        self.sites[0].address()
    }

    /// What it comes to that these nodes failed, so that the others are no majority.
    pub(crate) fn no_majority(&self, faults: impl Iterator<Item = (usize, Fault)>) -> Fault {
        let faults: PerNode<(usize, Fault)> = faults.collect();
        let spare = self.sites.len() - self.majority();
        let finally = |fault: &Fault| {
            matches!(
                fault.plain(),
                Fault::Denied { .. } | Fault::WrongType | Fault::OtherMasters(_) | Fault::Closed
            )
        };
        let mut in_vain = faults.iter().filter(|(_, fault)| self.is_one() || finally(fault));
        if let Some((_, fault)) = in_vain.nth(spare) {
            return fault.clone();
        }
        let lasting = faults.iter().filter(|(_, fault)| !fault.may_pass()).count() > spare;
        let quarantines: Option<PerNode<Duration>> =
            faults.iter().map(|(_, fault)| fault.quarantine()).collect();
        let opens_in = quarantines.and_then(|mut left| {
            left.sort_unstable();
            // The first of them that makes the others a majority.
            left.get(left.len().checked_sub(spare + 1)?).copied()
        });
        let failure =
            |(node, fault): (usize, Fault)| NodeFailure::new(&self.sites[node].address(), fault);
        let failures = faults.into_iter().map(failure).collect();
        Fault::NoMajority { failures, lasting, opens_in }
    }

    /// Listens on a channel in the slot of the lock.
    pub(crate) fn listen_on(&self, channel: &Arc<str>) -> ChannelListener {
        ChannelListener(self.sites.iter().filter_map(|site| site.subscribe(channel)).collect())
    }

    /// Returns true if those who wait stand in a queue. Several servers have none: they share no order.
    pub(crate) fn has_queue(&self) -> bool {
        self.is_one()
    }

    /// Returns the server whose queue orders those who wait. A queue may move to another server.
    pub(crate) fn queue(&self) -> Option<Node> {
        match &*self.sites {
            [site] => site.node(),
            _ => None,
        }
    }

    /// Waits until the queue is on another server than node number `member`. Dropping the future loses nothing.
    pub(crate) async fn queue_moved_from(&self, member: u32) {
        match &*self.sites {
            [site] => site.moved_from(member).await,
            _ => std::future::pending().await,
        }
    }

    /// Subscribes to the mailbox of the server with the queue, if that was not done yet.
    pub(crate) fn open_mailbox(&self) {
        if let Some(node) = self.queue() {
            node.open_mailbox();
        }
    }

    /// The smoothed time in which a majority answers.
    pub(crate) fn round_trip(&self) -> Duration {
        let trips = self.sites.iter().map(Site::round_trip);
        let mut known: PerNode<Duration> = trips.filter(|trip| !trip.is_zero()).collect();
        known.sort_unstable();
        known.get(self.majority() - 1).or(known.last()).copied().unwrap_or_default()
    }

    /// Waits until a majority can be asked.
    pub(crate) async fn up(&self, until: Timestamp) -> Result<(), Fault> {
        if let [site] = &*self.sites {
            return site.up(until).await;
        }
        let up = |site: &Site| {
            let site = site.clone();
            async move { site.up(until).await }
        };
        self.majority_of(self.sites.iter().map(up)).await
    }

    /// Waits until a majority of what is done on the nodes has succeeded, or cannot succeed.
    pub(crate) async fn majority_of<F>(
        &self,
        on_nodes: impl Iterator<Item = F>,
    ) -> Result<(), Fault>
    where
        F: Future<Output = Result<(), Fault>>,
    {
        let number = |(index, on_node): (usize, F)| async move { (index, on_node.await) };
        let mut ends: FuturesUnordered<_> = on_nodes.enumerate().map(number).collect();
        let (mut done, mut faults) = (0, Vec::new());
        while let Some((index, end)) = ends.next().await {
            match end {
                Ok(()) => done += 1,
                Err(fault) => faults.push((index, fault)),
            }
            if done >= self.majority() {
                return Ok(());
            }
            if faults.len() > self.sites.len() - self.majority() {
                break;
            }
        }
        Err(self.no_majority(faults.into_iter()))
    }

    /// How long the answers to a call about a lease of `ttl` are waited for.
    pub(crate) fn patience(&self, ttl: Duration) -> Duration {
        self.config.response_timeout(ttl)
    }

    /// Returns the server that has the lock now, if there is only one for it.
    pub(crate) fn source(&self) -> Option<Source> {
        let [site] = &*self.sites else { return None };
        Some(site.node()?.source())
    }

    /// Puts a call to all nodes and waits for their answers, until `enough` are there or the time is over.
    /// `Err` if no majority answered. For calls that change nothing, or may be lost on a node that fails.
    pub(crate) async fn ask(
        &self,
        call: Call,
        enough: impl Fn(&[&Reply]) -> bool,
    ) -> Result<Answers, Fault> {
        let within = self.config.response_timeout;
        let until = self.clock.now().plus(within);
        self.up(until).await?;
        let mut round = Round::send(&self.sites, &self.clock, call);
        let rules = self.rules(until, |reply: &Reply| Some(reply.clone()));
        let decide = |votes: &[Vote<Reply>], over: bool| {
            let replies: PerNode<&Reply> = votes.iter().filter_map(|vote| vote.value()).collect();
            (over || enough(&replies)).then_some(())
        };
        round.settle(rules, decide).await;
        let missing = self.no_majority(round.faults(&self.silence(within)));
        let votes = std::mem::take(&mut round.votes);
        let (sent_at, source) =
            (round.sent_at, votes.first().map_or(Source::default(), Vote::source));
        let replies: Vec<Reply> = votes.into_iter().filter_map(|vote| vote.answer?.ok()).collect();
        if replies.len() < self.majority() {
            Err(missing)
        } else {
            Ok(Answers { replies, missing, sent_at, source })
        }
    }

    /// The cause of a node that did not answer.
    fn silence(&self, within: Duration) -> Fault {
        if self.clock.is_stopped() { Fault::Closed } else { Fault::NoAnswer(within) }
    }

    fn rules<R>(&self, until: Timestamp, read: R) -> Rules<'_, R, Again> {
        Rules { sites: &self.sites, clock: &self.clock, until, read, again: Site::send_on }
    }
}

/// How a call is sent again.
type Again = fn(&Site, &Call, &Path) -> Result<Sent, Fault>;

/// The answers of a majority or more.
pub(crate) struct Answers {
    pub(crate) replies: Vec<Reply>,
    /// Why the others gave none.
    pub(crate) missing: Fault,
    /// Before the call was sent.
    pub(crate) sent_at: Timestamp,
    /// The first server that was asked, which is the only one if there is one.
    pub(crate) source: Source,
}

/// A lock's channel on every node.
pub(crate) struct ChannelListener(PerNode<Subscription>);

impl ChannelListener {
    /// The next thing heard, and on which node. Nothing is lost by dropping the future.
    pub(crate) async fn next(&self) -> (usize, Signal) {
        if let [ear] = &*self.0 {
            return (0, ear.next().await);
        }
        first_of(self.0.iter().map(Subscription::next)).await
    }

    /// Whether messages of some node arrive, as far as is known here.
    pub(crate) fn is_listening(&self) -> bool {
        self.0.iter().any(Subscription::is_listening)
    }
}

/// Waits for the first of some futures, which lose nothing when they are dropped, and returns its number and its output.
async fn first_of<F: Future>(all: impl Iterator<Item = F>) -> (usize, F::Output) {
    let all: Vec<_> = all.map(Box::pin).collect();
    if all.is_empty() {
        return std::future::pending().await;
    }
    let (output, index, _) = select_all(all).await;
    (index, output)
}

/// An answer that is there already.
fn at_hand(sent: &mut Sent) -> Option<Result<Reply, Fault>> {
    match std::pin::Pin::new(sent).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Two of three grant by then, those included that are in none.
    #[tokio::test]
    async fn quarantines_are_over_once_those_that_grant_are_a_majority() {
        let clock = Clock::of_this_runtime();
        let sites = (0..3).map(|_| Site::Node(Node::unconnected(&clock))).collect();
        let quorum = Quorum::new(sites, clock, Arc::new(Config::default()), Arc::default());
        for (left, opens_in) in [(&[3, 1][..], 1), (&[1, 3][..], 1), (&[3, 1, 2][..], 2)] {
            let fault = |left: &u64| Fault::Quarantined(Duration::from_secs(*left));
            let fault = quorum.no_majority(left.iter().map(fault).enumerate());
            assert_eq!(fault.quarantine(), Some(Duration::from_secs(opens_in)), "{left:?}");
        }
    }
}
