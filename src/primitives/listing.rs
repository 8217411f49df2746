//! Finding the locks that are held, or waited for. No server keeps a list of them, so their keys are looked for among all.
//!
//! A part of a server's keys is looked through by one script, and then the servers are asked about the locks in it, as any
//! `status` asks. What is known changes only when an answer is there, so a call may be dropped and made again.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::listed::ListedLock;
use super::mutex::Mutex;
use super::page::{self, Lead, Page};
use super::rw_lock::RwLock;
use super::semaphore::Semaphore;
use super::walk::{Candidate, KeyType, Step, Walk};
use crate::clock::Timestamp;
use crate::engine::gate::{Engine, Service};
use crate::engine::quorum::{Answers, Quorum};
use crate::error::{Error, Fault, KEY};
use crate::fleet::{Fleet, Site};
use crate::key::{self, LockKind};
use crate::node::Node;

/// Finds locks, one after the other; see [`Client::list`](crate::Client::list).
///
/// It remembers eight bytes of each lock that it has shown, and what it has found and not shown yet: about a thousand names.
#[must_use = "nothing is asked before `next` is called"]
pub struct Listing {
    engine: Arc<Engine>,
    wanted: Wanted,
    walk: Walk,
    /// Locks that may be what is wanted.
    found: VecDeque<Lead>,
    ready: VecDeque<ListedLock>,
    /// What was shown.
    shown: HashSet<u64>,
    hasher: RandomState,
    /// The servers are left alone until then.
    rests_until: Timestamp,
    /// What the last request took a server.
    cost: Duration,
    is_fast: bool,
}

/// What is shown of what is found.
#[derive(Debug)]
enum Wanted {
    Held { prefix: Arc<str> },
    Waited { prefix: Arc<str> },
}

impl Listing {
    pub(crate) fn of_held(engine: &Arc<Engine>, prefix: &str) -> Self {
        let prefix: Arc<str> = format!("{}{prefix}", engine.config.name_prefix).into();
        let keys = |pattern, of| Step::Keys { pattern, of };
        let mut steps = vec![keys(key::pattern_of_locks(&prefix), KeyType::Hash)];
        if !engine.config.deployment.is_quorum() {
            steps.push(keys(key::pattern_of_permits(&prefix), KeyType::SortedSet));
        }
        Self::new(engine, Wanted::Held { prefix }, steps, VecDeque::new())
    }

    pub(crate) fn of_waited(engine: &Arc<Engine>) -> Self {
        let prefix = engine.config.name_prefix.clone();
        let mut steps = vec![Step::Channels];
        // Several servers have no queues: all who wait listen.
        if !engine.config.deployment.is_quorum() {
            steps.push(Step::Keys { pattern: key::QUEUES.to_owned(), of: KeyType::SortedSet });
        }
        let here = |(name, family)| {
            let kind = match family {
                "lock" => LockKind::Mutex,
                "rw_lock" => LockKind::RwLock,
                "semaphore" => LockKind::Semaphore,
                _ => return None,
            };
            Some(Lead { name, kind: Some(kind), is_waited_here: true })
        };
        let found = engine.waited_for().into_iter().filter_map(here).collect();
        Self::new(engine, Wanted::Waited { prefix }, steps, found)
    }

    fn new(engine: &Arc<Engine>, wanted: Wanted, steps: Vec<Step>, found: VecDeque<Lead>) -> Self {
        Self {
            engine: engine.clone(),
            wanted,
            walk: Walk::new(steps),
            found,
            ready: VecDeque::new(),
            shown: HashSet::new(),
            hasher: RandomState::new(),
            rests_until: Timestamp::default(),
            cost: COST_OF_PAGE,
            is_fast: false,
        }
    }

    /// Makes no pauses: it takes each server's whole time, a few milliseconds at a stretch. All other clients wait for those.
    pub fn fast(self) -> Self {
        Self { is_fast: true, ..self }
    }

    /// Returns the next lock, in no order; `None` if there are no more.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if a server that is needed does not answer: call it again to go on from there;
    /// [`Error::Denied`] if this user lacks the rights `scan` or, for [`contended`](crate::Client::contended),
    /// `pubsub|channels`; [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call goes on.
    pub async fn next(&mut self) -> Result<Option<ListedLock>, Error> {
        loop {
            self.engine.check_service(Service::Draining)?;
            if let Some(lock) = self.ready.pop_front() {
                return Ok(Some(lock));
            }
            if !self.rested().await {
                return Err(Error::closed(&self.engine.clock));
            }
            let goes_on = match self.found.is_empty() {
                true => self.find().await?,
                false => self.ask().await.map(|()| true)?,
            };
            if !goes_on {
                return Ok(None);
            }
        }
    }

    /// Returns how much of the keys it has looked at, from 0 to 1: an estimate, since keys come and go meanwhile. It goes back
    /// if a server has restarted, and is looked at again.
    pub fn progress(&self) -> f64 {
        self.walk.progress()
    }

    /// Leaves the servers alone for a while. Returns false if the client is closed meanwhile.
    async fn rested(&self) -> bool {
        let clock = &self.engine.clock;
        if self.rests_until > clock.now() {
            clock.until(self.rests_until, self.engine.closed()).await.is_none()
        } else {
            true
        }
    }

    /// A request is about to be sent. If the caller goes away meanwhile, the servers may be busy with it all the same.
    fn begins(&mut self) {
        self.rest_after(self.cost);
    }

    fn rest_after(&mut self, cost: Duration) {
        let rest = if self.is_fast { Duration::ZERO } else { rest_after(cost) };
        self.rests_until = self.engine.clock.now().plus(rest);
        self.cost = cost;
    }

    /// Looks at the next part of a server. Returns false if there is none.
    async fn find(&mut self) -> Result<bool, Error> {
        let engine = self.engine.clone();
        let (nodes, needed) = servers(&engine);
        if nodes.is_empty() {
            let fault = Fault::Down("no master of the cluster is known".into());
            return Err(engine.quorum_of(self.wanted.prefix()).error(None, fault));
        }
        let servers: Vec<Candidate> = nodes.iter().map(|(candidate, _)| *candidate).collect();
        let Some((number, step, cursor)) = self.walk.next(&servers, needed) else {
            return Ok(false);
        };
        let step = step.clone();
        let call = page::call(&step, cursor, engine.fleet.is_sharded());
        let node = nodes.into_iter().find(|(candidate, _)| candidate.number == number);
        let site = Site::Node(node.expect("BUG: the walk is among these servers").1);
        let (clock, config) = (engine.clock.clone(), engine.config.clone());
        let quorum = Quorum::new(vec![site], clock, config, engine.events.clone());
        self.begins();
        let asked = quorum.ask(call, |replies| !replies.is_empty()).await;
        match asked.and_then(|answers| self.take_in(&step, &answers)) {
            Ok(()) => Ok(true),
            Err(_) if self.walk.failed(&servers) => Ok(true),
            Err(fault) => Err(quorum.error(None, fault)),
        }
    }

    /// Takes in what a server has answered.
    fn take_in(&mut self, step: &Step, answers: &Answers) -> Result<(), Fault> {
        let reply = &answers.replies[0];
        let page = Page::read(step, reply)
            .ok_or_else(|| Fault::Unexpected(format!("{reply:?}").into()))?;
        let leads = page.leads.into_iter().filter(|lead| {
            lead.name.starts_with(self.wanted.prefix())
                && key::lock_name_problem(&lead.name).is_none()
                && !lead.kind.is_some_and(|kind| self.is_shown(&lead.name, kind))
        });
        let leads: Vec<Lead> = leads.collect();
        self.found.extend(leads);
        self.walk.looked(answers.source, page.next, page::COUNT, page.size);
        let elapsed = self.engine.clock.now().since(answers.sent_at);
        self.rest_after(page.took.unwrap_or(elapsed).min(elapsed));
        Ok(())
    }

    /// Asks the servers about what was found.
    async fn ask(&mut self) -> Result<(), Error> {
        let began_at = self.engine.clock.now();
        self.begins();
        let leads: Vec<Lead> = self.found.iter().take(AT_ONCE).cloned().collect();
        let asked = join_all(leads.iter().map(|lead| lead.ask(&self.engine))).await;
        let locks: Vec<Option<ListedLock>> = asked.into_iter().collect::<Result<_, _>>()?;
        self.found.drain(..leads.len());
        for lock in locks.into_iter().flatten() {
            if self.wanted.includes(&lock) && self.shown.insert(self.hash(&lock.name, lock.kind)) {
                self.ready.push_back(lock);
            }
        }
        let elapsed = self.engine.clock.now().since(began_at);
        self.rest_after((COST_OF_STATUS * leads.len() as u32).min(elapsed));
        Ok(())
    }

    fn hash(&self, name: &str, kind: LockKind) -> u64 {
        self.hasher.hash_one((name, kind))
    }

    fn is_shown(&self, name: &str, kind: LockKind) -> bool {
        self.shown.contains(&self.hash(name, kind))
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("wanted", &self.wanted)
            .field("shown", &self.shown.len())
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

impl Wanted {
    fn prefix(&self) -> &str {
        match self {
            Self::Held { prefix } | Self::Waited { prefix } => prefix,
        }
    }

    fn includes(&self, lock: &ListedLock) -> bool {
        match self {
            Self::Held { .. } => lock.is_held(),
            // `n` and `{n}` share a channel: who listens there waits for the one that is held. Nothing says who has the permits of a
            // Redisson `RSemaphore`.
            Self::Waited { .. } => {
                let is_wanted =
                    lock.is_held() || !lock.waiting.is_empty() || lock.kind == LockKind::Semaphore;
                lock.waiting_clients > 0 && is_wanted
            }
        }
    }
}

impl Lead {
    /// Asks the servers. Returns `None` if it is no such lock, or is none any more.
    async fn ask(&self, engine: &Arc<Engine>) -> Result<Option<ListedLock>, Error> {
        let asked = match self.kind {
            Some(kind) => self.ask_as(kind, engine).await,
            None => match self.ask_as(LockKind::Mutex, engine).await {
                Err(Error::WrongType { .. }) => self.ask_as(LockKind::RwLock, engine).await,
                asked => asked,
            },
        };
        match asked {
            Ok(mut lock) => {
                if self.is_waited_here
                    && let Some(lock) = &mut lock
                {
                    lock.waiting_clients = lock.waiting_clients.max(1);
                }
                Ok(lock)
            }
            Err(Error::WrongType { .. } | Error::InvalidName { .. }) => Ok(None),
            // Over several masters there is no semaphore, though somebody may listen there as if there were.
            Err(Error::SingleServerOnly { .. }) => Ok(None),
            // It is not for this user.
            Err(Error::Denied { what, .. }) if *what == *KEY => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ask_as(
        &self,
        kind: LockKind,
        engine: &Arc<Engine>,
    ) -> Result<Option<ListedLock>, Error> {
        let name = self.name.clone();
        Ok(match kind {
            LockKind::Mutex => {
                Some(ListedLock::of_lock(kind, Mutex::new(engine, name).status().await?))
            }
            LockKind::RwLock => {
                Some(ListedLock::of_lock(kind, RwLock::new(engine, name).status().await?))
            }
            LockKind::Semaphore => {
                let semaphore = Semaphore::new(engine, name).with_permits(UNMADE);
                let status = semaphore.status().await?;
                let is_made = status.permits() != i64::from(UNMADE);
                let is_free = status.available > 0 && status.held == 0;
                let mut listed = ListedLock::of_semaphore(status);
                if is_free {
                    // Who listens waits for another one that has the same channel.
                    listed.waiting_clients = listed.waiting.len() as u32;
                }
                is_made.then_some(listed)
            }
            // No lead is of these.
            LockKind::FairMutex
            | LockKind::Latch
            | LockKind::Signal
            | LockKind::SignalGroup
            | LockKind::Queue
            | LockKind::Election => None,
        })
    }
}

/// Returns the servers that there are, and how many of them must be looked at to find every lock.
fn servers(engine: &Engine) -> (Vec<(Candidate, Node)>, usize) {
    let nodes = match &engine.fleet {
        Fleet::Nodes(nodes) => nodes.to_vec(),
        Fleet::Cluster(cluster) => cluster.masters(),
    };
    let needed = match &engine.fleet {
        // A lock is on a majority, so among so many is one that has it.
        Fleet::Nodes(nodes) => nodes.len() - nodes.len() / 2,
        Fleet::Cluster(_) => nodes.len(),
    };
    let numbered = |(index, node): (usize, Node)| {
        let number = match &engine.fleet {
            Fleet::Nodes(_) => index as u32,
            Fleet::Cluster(_) => node.number(),
        };
        (Candidate { number, is_up: node.is_up() }, node)
    };
    (nodes.into_iter().enumerate().map(numbered).collect(), needed)
}

/// Returns for how long the servers are left alone after what took them `cost`: it has a fifth of their time at most.
fn rest_after(cost: Duration) -> Duration {
    cost * 4
}

/// What a page takes a server, more or less, before it was measured.
const COST_OF_PAGE: Duration = Duration::from_millis(2);
/// The number of locks that are asked about at once.
const AT_ONCE: usize = 100;
/// More than it costs a server to tell the status of a lock. It is no part of the time that the answer is on its way.
const COST_OF_STATUS: Duration = Duration::from_micros(50);
/// A semaphore that has so many permits does not exist: nobody has made it.
const UNMADE: u32 = i32::MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_have_four_fifths_of_their_time_for_others() {
        let cost = Duration::from_millis(3);
        assert_eq!(cost.as_secs_f64() / (cost + rest_after(cost)).as_secs_f64(), 0.2);
    }
}
