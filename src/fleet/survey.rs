//! The task that keeps the map of a cluster's slots up to date.
//!
//! It asks a few nodes at once, because one of them may be stopped or cut off: when a call was redirected, when a node is
//! out of reach or says that the cluster is not in order, and from time to time.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::slots::{Latest, Location, SlotMap, View};
use crate::clock::Timestamp;
use crate::config::Address;
use crate::error::Fault;
use crate::events;
use crate::node::{Chart, Farewell, First, Node};

pub(super) struct Surveyor {
    cluster: Arc<Cluster>,
    /// How many surveys there have been: each begins with other servers.
    surveys: usize,
    latest: Latest,
    /// The last survey found the cluster in order.
    is_ok: bool,
    _farewell: Arc<Farewell>,
}

/// What servers answered.
#[derive(Default)]
struct Found {
    views: Vec<View>,
    /// Who answered.
    alive: Vec<Location>,
    fault: Option<Fault>,
}

type Asked = Pin<Box<dyn Future<Output = (Location, Result<Chart, Fault>)> + Send>>;

impl Surveyor {
    pub(super) fn new(cluster: Arc<Cluster>, farewell: Arc<Farewell>) -> Self {
        let (surveys, latest, is_ok) = Default::default();
        Self { cluster, surveys, latest, is_ok, _farewell: farewell }
    }

    pub(super) async fn run(mut self, result: oneshot::Sender<Result<(), Fault>>) {
        let closing = self.cluster.closing.clone();
        let found = closing.run_until_cancelled(self.find()).await.unwrap_or(Err(Fault::Closed));
        let is_found = found.is_ok();
        let _ = result.send(found);
        if !is_found {
            return;
        }
        closing.run_until_cancelled(self.keep_current()).await;
        // Releases that are still pending must find the owners of their slots.
        let owed = self.cluster.clone();
        tokio::select! {
            () = self.keep_current() => {}
            () = owed.all_released() => {}
        }
    }

    /// Looks for the cluster, and connects to one of its masters.
    async fn find(&mut self) -> Result<(), Fault> {
        let clock = self.cluster.kit.clock.clone();
        let until = self.now().plus(self.cluster.kit.config.connect_timeout);
        let mut attempt = 0;
        loop {
            let found = self.survey(true, until).await;
            let now = self.now();
            let fault = match self.latest.choose(&found.views, now).map(|view| &view.map) {
                Some(map) if !map.masters().is_empty() => {
                    self.cluster.adopt(map);
                    match self.connect_one(map, &found.alive).await {
                        Ok(()) => return Ok(()),
                        Err(fault) => fault,
                    }
                }
                Some(_) => Fault::Down("no node of the cluster owns any slot".into()),
                None => found.fault.unwrap_or(Fault::Closed),
            };
            let next_at = self.now().plus(clock.back_off(attempt, LONGEST_PAUSE_AT_START));
            if !(fault.may_pass_at_start()) || next_at >= until || clock.is_stopped() {
                return Err(fault);
            }
            clock.sleep_until(next_at).await;
            attempt += 1;
        }
    }

    /// Connects to a master that has just answered, or else to the first of a few that does.
    async fn connect_one(&self, map: &SlotMap, alive: &[Location]) -> Result<(), Fault> {
        let masters = map.masters();
        let answered = alive.iter().filter(|location| masters.contains(location)).take(1);
        let mut chosen: Vec<&Location> = answered.collect();
        if chosen.is_empty() {
            chosen = masters.into_iter().take(AT_ONCE).collect();
        }
        let mut firsts: FuturesUnordered<First> = FuturesUnordered::new();
        let mut fault = Fault::Closed;
        for location in chosen {
            match self.cluster.members.lock().at(location, &self.cluster.kit) {
                Ok((_, Some(first))) => firsts.push(first),
                Ok((node, None)) if node.is_up() => return Ok(()),
                Ok(_) => fault = Fault::Down("it was not reached".into()),
                Err(problem) => fault = problem,
            }
        }
        while let Some(first) = firsts.next().await {
            match first.unwrap_or(Err(Fault::Closed)) {
                Ok(()) => return Ok(()),
                Err(problem) => fault = problem,
            }
        }
        Err(fault)
    }

    /// Asks again and again.
    async fn keep_current(&mut self) {
        let clock = self.cluster.kit.clock.clone();
        let mut doubts: u32 = 0;
        while !clock.is_stopped() {
            let is_wrong = !self.is_ok || self.cluster.misses_a_master();
            let in_doubt = is_wrong || self.doubt_or_pause().await;
            // Doubts that follow each other are not looked into all at once.
            doubts = if in_doubt { doubts.saturating_add(1) } else { 0 };
            if doubts > 1 {
                let most = if doubts < MANY { LONGEST_PAUSE } else { LONGEST_PAUSE_LATER };
                clock.sleep(clock.back_off(doubts - 1, most)).await;
            }
            let limit = self.now().plus(self.cluster.kit.config.response_timeout);
            let found = self.survey(in_doubt, limit).await;
            let now = self.now();
            let view = self.latest.choose(&found.views, now);
            self.is_ok = view.is_some_and(|view| view.is_ok);
            match (view, &found.fault) {
                (Some(view), _) => self.cluster.adopt(&view.map),
                (None, Some(fault)) => events::no_map(&self.cluster.seeds[0].shown, fault),
                (None, None) => {}
            }
        }
    }

    /// Waits until it is time to ask again, while nothing is known to be wrong. Returns true if something may be.
    async fn doubt_or_pause(&self) -> bool {
        let cluster = &*self.cluster;
        let clock = &cluster.kit.clock;
        let began_at = self.now();
        cluster.is_slow.store(true, Ordering::SeqCst);
        if !cluster.is_watched() {
            tokio::select! {
                biased;
                () = cluster.doubt.notified() => return true,
                () = cluster.watched.notified() => {}
                () = clock.sleep_until(began_at.plus(EVERY)) => return false,
            }
        }
        cluster.is_slow.store(false, Ordering::SeqCst);
        clock.until(began_at.plus(WATCHED), cluster.doubt.notified()).await.is_some()
    }

    /// Asks a few servers at once. If there is a doubt, more of them.
    async fn survey(&mut self, in_doubt: bool, until: Timestamp) -> Found {
        let clock = self.cluster.kit.clock.clone();
        self.surveys = self.surveys.wrapping_add(1);
        let mut asked: FuturesUnordered<Asked> = self.ask(in_doubt, until).into_iter().collect();
        let (mut found, mut limit) = (Found::default(), until);
        while let Some(Some((from, answer))) = clock.until(limit, asked.next()).await {
            let map = answer.and_then(|chart| {
                if let Some(are_there) = chart.has_sharded_channels {
                    self.cluster.note_channels(are_there)?;
                }
                let map = SlotMap::read(&chart.slots, &from);
                let odd =
                    || Fault::Unexpected("its reply to CLUSTER SLOTS is not understood".into());
                Ok(View { map: map.ok_or_else(odd)?, is_ok: chart.is_ok, epoch: chart.epoch })
            });
            match map {
                Ok(view) => {
                    // One that says that the cluster is down may be cut off from the others.
                    let place = if view.is_ok { 0 } else { found.alive.len() };
                    if view.is_ok {
                        self.cluster.serves(&from);
                    }
                    found.views.push(view);
                    found.alive.insert(place, from);
                    limit = limit.min(self.now().plus(FOR_OTHERS));
                }
                Err(fault) => found.fault = Some(fault),
            }
        }
        if found.views.is_empty() && found.fault.is_none() {
            found.fault = Some(Fault::NoAnswer(self.cluster.kit.config.response_timeout));
        }
        found
    }

    /// Asks some nodes on their connections; without them, or if there is a doubt, also others on new ones. At the start it asks all
    /// that the user has named: each may be one that swallows what it is sent.
    fn ask(&self, in_doubt: bool, until: Timestamp) -> Vec<Asked> {
        let members = self.cluster.members.lock();
        let up: Vec<(Location, Node)> = members
            .all()
            .filter(|(_, node)| node.is_up())
            .map(|(location, node)| (location.clone(), node.clone()))
            .collect();
        let channels = !self.cluster.knows_channels();
        let most = if in_doubt { AT_ONCE } else { 1 };
        let mut asked: Vec<Asked> = Vec::new();
        for (location, node) in turned(&up, self.surveys).take(most).cloned() {
            asked.push(Box::pin(async move { (location, node.chart(channels, until).await) }));
        }
        if asked.len() >= most.min(2) {
            return asked;
        }
        let others: BTreeSet<Location> = members
            .map
            .masters()
            .into_iter()
            .filter(|location| up.iter().all(|(other, _)| other != *location))
            .cloned()
            .collect();
        let address = |location: Location| {
            let address = members.address_of(&location, &self.cluster.kit).ok()?;
            Some((location, address))
        };
        let others = others.into_iter().filter_map(address);
        let seeds =
            self.cluster.seeds.iter().filter_map(|seed| Some((location(seed)?, seed.clone())));
        let others: Vec<(Location, Address)> = others.chain(seeds).collect();
        let most = if members.map.masters().is_empty() { others.len() } else { AT_ONCE };
        drop(members);
        for (location, address) in turned(&others, self.surveys).take(most).cloned() {
            if let Some(chart) = self.cluster.kit.chart(&address, until) {
                asked.push(Box::pin(async move { (location, chart.await) }));
            }
        }
        asked
    }

    fn now(&self) -> Timestamp {
        self.cluster.kit.clock.now()
    }
}

fn location(address: &Address) -> Option<Location> {
    let (host, port) = address.host_and_port()?;
    Some(Location { host: host.into(), port })
}

/// The items, beginning with another one each time.
fn turned<T>(items: &[T], by: usize) -> impl Iterator<Item = &T> {
    let by = if items.is_empty() { 0 } else { by % items.len() };
    items[by..].iter().chain(&items[..by])
}

/// How many servers are asked at once.
const AT_ONCE: usize = 3;
/// How long the others are waited for when one has answered.
const FOR_OTHERS: Duration = Duration::from_millis(100);
const LONGEST_PAUSE_AT_START: Duration = Duration::from_millis(150);
/// The longest pause while something is wrong: holders whose locks the next master lacks are to know soon. But all clients ask,
/// so that it comes to eight requests a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// After so many doubts in a row, which take some 10 s, nobody may be about to take over.
const MANY: u32 = 40;
const LONGEST_PAUSE_LATER: Duration = Duration::from_secs(1);
/// How often the map is looked at while somebody waits for a lock, which may be on its way to another node.
const WATCHED: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_secs(5);
