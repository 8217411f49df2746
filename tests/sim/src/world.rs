//! The true time, the servers, and everything between them and the processes.
//!
//! A step is a millisecond: what is due arrives, every process runs, and what they wrote is sent off. Nothing
//! here waits for anything, and everything happens in the order of one queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_test::emulator::{
    LinkId, Ran, Replica, Rng, Server,
    wire::{Command, take_command},
};

use crate::audit::{Audit, Source};
use crate::coordination::shelf::{self, Found, Shelf};
use crate::coordination::{GROUP_NAME, SIGNAL_NAMES, latch_name};
use crate::history::History;
use crate::host::Host;
use crate::kinds::{PERMITS, is_holders};
use crate::moves::Move;
use crate::network::{Pipe, State};

pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub history: History,
    pub nodes: Vec<Node>,
    pub hosts: Vec<Host>,
    pub links: BTreeMap<LinkId, Link>,
    /// What lies between a host and a node.
    pub paths: BTreeMap<(usize, usize), Path>,
    pub audit: Audit,
    /// The slots that move, if the nodes are a cluster.
    pub moves: Vec<Move>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    next_link: LinkId,
}

pub struct Node {
    pub server: Server,
    /// It runs nothing before that: stopped.
    pub stopped_until: u64,
    pub down: bool,
    /// Whether the data is there after a crash.
    pub keeps_data: bool,
    /// It follows the server, if the node is a deployment of two, and gets nothing before `lags_until`.
    pub replica: Option<Replica>,
    pub lags_until: u64,
    /// Counts the servers that were here.
    epoch: u64,
    /// The server before, if it lives on: only connections that were made to it reach it.
    old: Option<Server>,
    /// Another server is about to take over.
    taking_over: bool,
    /// How its clock leaves the true one: up to that many millionths faster or slower in turn.
    pub drift_ppm: i64,
    /// By how much it was set away from the true time.
    pub step_us: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// Nothing passes towards the node before that; it waits.
    pub up_blocked_until: u64,
    pub down_blocked_until: u64,
    /// Everything takes up to `SLOW` until then.
    pub slow_until: u64,
}

/// A connection.
pub struct Link {
    pub host: usize,
    pub node: usize,
    /// The server there that accepted it.
    epoch: u64,
    pipe: Arc<Pipe>,
    unread: Vec<u8>,
    up: VecDeque<(u64, Up)>,
    down: VecDeque<(u64, Down)>,
    /// What the client sends is lost from now on, and nobody says so.
    pub swallowed: bool,
    /// Its server has crashed, and nobody has told the client: it learns that when it sends something.
    is_dead: bool,
    /// Nothing that the client sends on it arrives before that, whatever becomes of the client's end.
    pub late_until: u64,
    client_gone: bool,
}

enum Up {
    Connect,
    Run(Sent),
    Close,
}

/// A command on its way, and what its process's clock showed when it was written.
pub struct Sent {
    pub command: Command,
    pub sent_local: u64,
}

enum Down {
    Opened,
    Refused,
    Bytes(Vec<u8>),
    Ended,
    Reset,
}

enum Event {
    Up(LinkId),
    Down(LinkId),
    Restart { node: usize, keeps_data: bool },
    Promote(usize),
    TakeOver(usize),
    DemoteOld(usize),
}

/// What becomes of a master whose replica takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is dead, and clients are told or not.
    Dead { tells: bool },
    /// It accepts no writes from then on. Its connections stay.
    Fenced,
    /// It goes on for that long.
    LivesOn { ms: u64 },
}

impl World {
    pub fn new(seed: u64, nodes: usize) -> Self {
        let mut rng = Rng::new(seed);
        let history = History::default();
        history.lock().checker.majority = nodes / 2 + 1;
        let nodes = (0..nodes)
            .map(|node| Node {
                server: Server::new(rng.fork(), EPOCH_US - LONG_UP_US - node as u64),
                stopped_until: 0,
                down: false,
                replica: None,
                lags_until: 0,
                epoch: 0,
                old: None,
                taking_over: false,
                keeps_data: true,
                drift_ppm: 0,
                step_us: 0,
            })
            .collect();
        Self {
            now: 0,
            rng,
            history,
            nodes,
            hosts: Vec::new(),
            links: BTreeMap::new(),
            paths: BTreeMap::new(),
            audit: Audit::default(),
            moves: Vec::new(),
            events: BTreeMap::new(),
            sequence: 0,
            next_link: 0,
        }
    }

    /// Starts a process, as number `host`, in place of the one that may have been there.
    pub fn boot(&mut self, host: usize, generation: u64, drift_ppm: i64) -> &Host {
        let started =
            Host::start(host, generation, drift_ppm, self.rng.fork(), self.history.clone());
        if host < self.hosts.len() {
            self.hosts[host] = started;
        } else {
            self.hosts.push(started);
        }
        &self.hosts[host]
    }

    /// Runs for `ms` milliseconds of true time.
    pub fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
        }
    }

    pub fn step(&mut self) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            match entry.remove() {
                Event::Up(link) => self.pump_up(link),
                Event::Down(link) => self.pump_down(link),
                Event::Restart { node, keeps_data } => self.restarted(node, keeps_data),
                Event::Promote(node) => self.promoted(node),
                Event::TakeOver(node) => self.taken_over(node),
                Event::DemoteOld(node) => self.demote_old(node),
            }
        }
        self.now += 1;
        self.history.lock().now = self.now;
        self.replicate();
        self.go_on_moving();
        for host in 0..self.hosts.len() {
            self.hosts[host].run_to(self.now);
            self.collect(host);
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time.max(self.now), self.sequence), event);
    }

    /// The clock of a node, in microseconds since 1970.
    pub fn node_us(&self, node: usize) -> u64 {
        let true_us = self.now * 1000;
        // Faster and slower in turn, so that it strays a little and never far.
        let phase = true_us % (2 * DRIFT_TURN_US);
        let since_turn = phase.min(2 * DRIFT_TURN_US - phase) as i64;
        let strayed = since_turn * self.nodes[node].drift_ppm / 1_000_000;
        (EPOCH_US + true_us).saturating_add_signed(strayed + self.nodes[node].step_us)
    }

    /// Takes what a process wrote, and sends it off.
    pub fn collect(&mut self, host: usize) {
        let process = self.hosts[host].process.clone();
        let mut desk = process.desk.lock().expect("no panic");
        let dialled = std::mem::take(&mut desk.dialled);
        let mut touched = std::mem::take(&mut desk.touched);
        drop(desk);
        if process.killed.load(Ordering::Relaxed) {
            touched.sort_by_key(|pipe| pipe.link.load(Ordering::Relaxed));
        }
        for (node, pipe) in dialled {
            self.next_link += 1;
            let id = self.next_link;
            pipe.link.store(id, Ordering::Relaxed);
            let link = Link {
                host,
                node,
                epoch: 0,
                pipe,
                unread: Vec::new(),
                up: VecDeque::new(),
                down: VecDeque::new(),
                swallowed: false,
                late_until: 0,
                is_dead: false,
                client_gone: false,
            };
            self.links.insert(id, link);
            self.send_up(id, Up::Connect);
        }
        for pipe in touched {
            let id = pipe.link.load(Ordering::Relaxed);
            let Some(link) = self.links.get_mut(&id) else { continue };
            let dropped = pipe.take_written(&mut link.unread);
            let mut commands = Vec::new();
            while let Some(command) = take_command(&mut link.unread).expect("a client's command") {
                commands.push(command);
            }
            let (node, sent_local) = (link.node, process.clock.last());
            for command in commands {
                self.audit.written(&self.history, host, node, &command);
                self.send_up(id, Up::Run(Sent { command, sent_local }));
            }
            if dropped {
                self.client_left(id);
            }
        }
    }

    /// The client closed its end. What is on its way may arrive or not.
    fn client_left(&mut self, id: LinkId) {
        let arrives = self.rng.chance(500);
        let Some(link) = self.links.get_mut(&id) else { return };
        if std::mem::replace(&mut link.client_gone, true) {
            return;
        }
        if link.late_until > self.now {
            // What came last is lost with it: a release behind an acquire, say.
            link.up.truncate(self.rng.between(0, link.up.len() as u64) as usize);
        } else if !arrives {
            link.up.clear();
        }
        self.send_up(id, Up::Close);
    }

    fn delay(&mut self, host: usize, node: usize) -> u64 {
        let path = self.paths.get(&(host, node)).copied().unwrap_or_default();
        match path.slow_until > self.now {
            true => self.rng.between(1, SLOW),
            false => self.rng.between(0, 1) + u64::from(self.rng.chance(20)) * self.rng.skewed(20),
        }
    }

    fn send_up(&mut self, id: LinkId, packet: Up) {
        let (host, node) = (self.links[&id].host, self.links[&id].node);
        let due = self.now + self.delay(host, node);
        let link = self.links.get_mut(&id).expect("it was there");
        if link.swallowed {
            return;
        }
        let due = link.up.back().map_or(due, |(last, _)| due.max(*last));
        link.up.push_back((due, packet));
        self.at(due, Event::Up(id));
    }

    fn send_down(&mut self, id: LinkId, packet: Down) {
        let Some(link) = self.links.get(&id) else { return };
        let due = self.now + self.delay(link.host, link.node);
        let link = self.links.get_mut(&id).expect("it was there");
        let due = link.down.back().map_or(due, |(last, _)| due.max(*last));
        link.down.push_back((due, packet));
        self.at(due, Event::Down(id));
    }

    fn pump_up(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        let (host, node) = (link.host, link.node);
        let path = self.paths.get(&(host, node)).copied().unwrap_or_default();
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            if link.up.front().is_none_or(|(due, _)| *due > self.now) {
                return;
            }
            let is_connect = matches!(link.up.front(), Some((_, Up::Connect)));
            // A process that is stopped is connected to by its kernel.
            let stopped = if is_connect { 0 } else { self.nodes[node].stopped_until };
            let wait = path.up_blocked_until.max(stopped).max(link.late_until);
            if wait > self.now {
                self.at(wait, Event::Up(id));
                return;
            }
            let Some((_, packet)) = link.up.pop_front() else { return };
            self.arrived(id, node, packet);
        }
    }

    fn arrived(&mut self, id: LinkId, node: usize, packet: Up) {
        match packet {
            Up::Connect if self.nodes[node].down => self.send_down(id, Down::Refused),
            Up::Connect => {
                self.nodes[node].server.accept(id);
                let epoch = self.nodes[node].epoch;
                self.links.get_mut(&id).expect("it was there").epoch = epoch;
                self.send_down(id, Down::Opened);
            }
            Up::Close => {
                self.nodes[node].forget(id);
                self.links.remove(&id);
            }
            Up::Run(sent) => self.execute(id, node, sent),
        }
    }

    fn execute(&mut self, id: LinkId, node: usize, sent: Sent) {
        let now_us = self.node_us(node);
        let Node { server, old, down, epoch, .. } = &mut self.nodes[node];
        let (down, is_old) = (*down, self.links[&id].epoch != *epoch);
        let server = match old {
            Some(old) if is_old => old,
            _ => server,
        };
        let down = down && !is_old;
        if down || !server.knows(id) {
            // A process that does not know the connection says so.
            return self.send_down(id, Down::Reset);
        }
        let done = server.execute(id, &sent.command, now_us);
        let rans: Vec<_> = done.ran.iter().flat_map(|ran| self.audit.together.each(ran)).collect();
        if rans.len() > 1 {
            self.history.lock().count("renewed_together", rans.len() as u64);
        }
        for ran in &rans {
            self.saw(id, node, ran, sent.sent_local, now_us);
        }
        if done.redirected {
            self.audit.refused(node, self.now, &sent.command);
            self.history.count("redirects");
        }
        let mut pushes = done.pushes;
        if self.nodes[node].server.shard.is_some() {
            let published = done.ran.iter().flat_map(|ran| &ran.published);
            for message in published {
                let others = self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != node);
                pushes.extend(others.flat_map(|(_, other)| other.server.relay(message)));
            }
        }
        self.send_down(id, Down::Bytes(done.reply));
        for (link, bytes) in pushes {
            self.send_down(link, Down::Bytes(bytes));
        }
        for link in done.closed {
            self.send_down(link, Down::Ended);
        }
    }

    /// A node ran a script.
    fn saw(&mut self, id: LinkId, node: usize, ran: &Ran, sent_local: u64, now_us: u64) {
        let host = self.links[&id].host;
        let (hosts, now) = (&self.hosts, self.now);
        let clock_of = |lease: &str| {
            let host = hosts.iter().find(|host| host.process.is_holder(lease))?;
            Some(host.local_nanos(now))
        };
        let epoch = self.links[&id].epoch;
        let Node { server, old, epoch: newest, .. } = &mut self.nodes[node];
        let (server, is_replaced) = match old {
            Some(old) if epoch != *newest => (old, true),
            _ => (server, false),
        };
        let source = Source { host, node, is_replaced };
        self.audit.ran(&self.history, source, ran, sent_local, clock_of);
        let queue = ran.keys.get(2);
        let left = queue.map(|key| server.keys(now_us, |keys| keys.ranked(key)));
        self.audit.queued(&self.history, node, ran, left, &server.channels());
        let items = shelf::is_about_items(&ran.keys).then(|| server.keys(now_us, Found::read));
        self.audit.signals(&self.history, ran);
        if let [name, holders, _] = &*ran.keys
            && is_holders(holders)
        {
            let (left, out) =
                server.keys(now_us, |keys| (keys.number(name), keys.scored(holders).len() as i64));
            self.audit.permits(&self.history, ran, left, out, PERMITS.into());
        }
        if let Some(found) = items {
            let is_member = self.audit.one_keyspace;
            let after = if is_member { self.shelf() } else { found.into() };
            self.audit.items(&self.history, node, ran, after, now_us);
        }
    }

    /// The items of the queue, wherever its keys are.
    pub fn shelf(&self) -> Shelf {
        let nodes = self.nodes.iter().enumerate();
        let found = nodes.map(|(at, node)| node.server.keys(self.node_us(at), Found::read));
        found.fold(Found::default(), Found::and).into()
    }

    fn pump_down(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        let path = self.paths.get(&(link.host, link.node)).copied().unwrap_or_default();
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            if link.down.front().is_none_or(|(due, _)| *due > self.now) {
                return;
            }
            if path.down_blocked_until > self.now {
                return self.at(path.down_blocked_until, Event::Down(id));
            }
            let Some((_, packet)) = link.down.pop_front() else { return };
            match packet {
                Down::Opened => link.pipe.set_state(State::Open),
                Down::Refused => link.pipe.set_state(State::Refused),
                Down::Bytes(bytes) => link.pipe.deliver(&bytes),
                Down::Ended => link.pipe.set_state(State::Ended),
                Down::Reset => link.pipe.set_state(State::Reset),
            }
        }
    }

    /// Whether anything of a process is on its way, or waits to be read by a server.
    pub fn is_quiet(&self) -> bool {
        self.links.values().all(|link| link.up.is_empty() && link.down.is_empty())
    }

    /// Both ends learn that the connection is gone. What is on its way is lost, or runs still.
    pub fn cut(&mut self, id: LinkId, requests_run: bool) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let node = link.node;
        link.down.clear();
        link.pipe.set_state(State::Reset);
        if requests_run {
            return;
        }
        link.up.clear();
        let client_gone = link.client_gone;
        self.nodes[node].forget(id);
        if client_gone {
            self.links.remove(&id);
        }
    }

    /// The server's process closes a connection, or half of it breaks: the client reads an end.
    pub fn end(&mut self, id: LinkId) {
        self.send_down(id, Down::Ended);
    }

    /// A server's process is gone, and all its connections with it, which the clients are told or not.
    pub fn crash(&mut self, node: usize, down_ms: u64, keeps_data: bool, tells: bool) {
        self.nodes[node].keeps_data = keeps_data;
        self.drop_links(node, tells);
        self.at(self.now + down_ms, Event::Restart { node, keeps_data });
    }

    fn drop_links(&mut self, node: usize, tells: bool) {
        self.nodes[node].down = true;
        let ids: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| link.node == node).map(|(id, _)| *id).collect();
        for id in ids {
            self.nodes[node].forget(id);
            let link = self.links.get_mut(&id).expect("it was there");
            link.up.retain(|(_, packet)| !matches!(packet, Up::Run(_)));
            link.is_dead = !tells;
            if tells {
                self.send_down(id, Down::Reset);
            }
        }
    }

    /// Returns true if a process on that host has a connection whose server is gone, and has not noticed.
    pub fn listens_in_vain(&self, host: usize) -> bool {
        self.links.values().any(|link| link.host == host && link.is_dead && !link.client_gone)
    }

    fn restarted(&mut self, node: usize, keeps_data: bool) {
        if !self.nodes[node].down || self.nodes[node].taking_over {
            return;
        }
        let now_us = self.node_us(node);
        self.nodes[node].down = false;
        self.nodes[node].server.restart(now_us, keeps_data);
        if !keeps_data {
            self.forgot(node);
        }
        self.history.lock().note(format_args!("n{node} is up, data kept: {keeps_data}"));
    }

    /// The node is a deployment of a master and its replica.
    pub fn add_replica(&mut self, node: usize) {
        let Node { server, replica, .. } = &mut self.nodes[node];
        *replica = Some(server.new_replica());
    }

    /// Replicas get what their masters have written, now and then.
    fn replicate(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].replica.is_some() && self.rng.chance(REPLICATES) {
                let Node { server, replica, lags_until, .. } = &mut self.nodes[node];
                if let (Some(replica), true) = (replica, *lags_until <= self.now) {
                    server.replicate(replica);
                }
            }
        }
    }

    pub fn may_fail_over(&self, node: usize) -> bool {
        let it = &self.nodes[node];
        it.replica.is_some() && !it.down && !it.taking_over && !it.server.is_replica()
    }

    /// The replica of a node takes over after `down_ms`. What it has not got by then is lost.
    pub fn fail_over(&mut self, node: usize, down_ms: u64, fate: Fate) {
        self.nodes[node].taking_over = true;
        self.history.lock().note(format_args!("n{node} fails over: {fate:?}"));
        match fate {
            Fate::Dead { tells } => self.drop_links(node, tells),
            Fate::Fenced => self.nodes[node].server.demote(),
            Fate::LivesOn { .. } => {}
        }
        if let Fate::LivesOn { ms } = fate {
            self.taken_over(node);
            self.at(self.now + ms, Event::DemoteOld(node));
        } else {
            self.at(self.now + down_ms, Event::TakeOver(node));
        }
    }

    fn taken_over(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].taking_over) {
            return;
        }
        let now_us = self.node_us(node);
        let Node { server, replica, old, epoch, down, .. } = &mut self.nodes[node];
        let Some(before) = replica.take() else { return };
        let (was, next) = server.replaced_by(before, now_us);
        (*old, *replica, *down) = (Some(was), Some(next), false);
        *epoch += 1;
        self.history.lock().note(format_args!("n{node}: the replica is the master"));
        self.forgot(node);
    }

    /// A node has forgotten the last that it did. Of items, latches and signals that may undo what was confirmed.
    fn forgot(&mut self, node: usize) {
        let after = self.shelf();
        let before = self.audit.forgot_items(node, after.clone());
        let (now, now_us, server) = (self.now, self.node_us(node), &self.nodes[node].server);
        let mut history = self.history.lock();
        let books = &mut history.books;
        books.items.forgot(&before, &after, now);
        server.keys(now_us, |keys| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let left = keys.names().into_iter().filter_map(|name| {
                let latch = text(&name).strip_prefix(&latch_name(""))?.parse::<u64>().ok()?;
                Some((latch, keys.number(&name)? as u64))
            });
            let left: BTreeMap<u64, u64> = left.collect();
            books.latches.forgot(now, |latch| left.get(&latch).copied().unwrap_or(0));
            for (which, name) in SIGNAL_NAMES.iter().enumerate() {
                let fields = keys.fields(format!("leasehold_signal:{{{name}}}").as_bytes());
                let number = fields.iter().find(|(field, _)| field == b"number");
                let number = number.and_then(|(_, number)| text(number).parse().ok());
                books.signals[which].forgot(number.unwrap_or(0), now);
            }
            let group = format!("leasehold_signal_group:{{{GROUP_NAME}}}");
            let names = keys.scored(group.as_bytes()).into_iter();
            let names = names.map(|(name, number)| (text(&name), number as u64));
            books.group.forgot(names.collect(), now);
        });
    }

    /// A master that has lived on accepts no more writes, and ends its connections.
    fn demote_old(&mut self, node: usize) {
        if self.nodes[node].old.take().is_some() {
            let epoch = self.nodes[node].epoch;
            let is_old = |link: &Link| link.node == node && link.epoch != epoch;
            let ids: Vec<LinkId> =
                self.links.iter().filter(|(_, link)| is_old(link)).map(|(id, _)| *id).collect();
            ids.into_iter().for_each(|id| self.cut(id, false));
        }
    }

    /// A node follows an empty server for a while, has that one's data, and is a master again. Nothing is cut.
    pub fn demote(&mut self, node: usize, for_ms: u64) {
        self.nodes[node].server.demote();
        self.at(self.now + for_ms, Event::Promote(node));
    }

    fn promoted(&mut self, node: usize) {
        let is_replica = self.nodes[node].server.is_replica() && !self.nodes[node].taking_over;
        let Node { server, down, .. } = &mut self.nodes[node];
        if !*down && is_replica {
            server.promote();
            self.history.lock().note(format_args!("n{node} is a master again, without its data"));
        }
    }

    /// Somebody deletes a lock's key on a node by hand, and nobody is told. The lease that is gone, if there was one.
    pub fn clear(&mut self, node: usize, lock: &[u8]) -> Option<String> {
        let lease = self.lease_at(node, lock)?;
        let now_us = self.node_us(node);
        self.nodes[node].server.keys(now_us, |keys| keys.run("del", &[lock.to_vec()]));
        self.audit.cleared(node, &lease, self.now);
        self.history.lock().note(format_args!("n{node} loses {lease} by hand"));
        Some(lease)
    }

    /// Who has a lock, as a node knows it.
    pub fn lease_at(&self, node: usize, lock: &[u8]) -> Option<String> {
        let fields = self.nodes[node].server.keys(self.node_us(node), |keys| keys.fields(lock));
        fields.first().map(|(lease, _)| String::from_utf8_lossy(lease).into_owned())
    }

    /// Ends a process, as a crash does.
    pub fn kill(&mut self, host: usize) {
        self.hosts[host].kill();
        self.history.lock().gone_with(host);
        self.collect(host);
    }

    /// All faults end.
    pub fn heal(&mut self) {
        self.history.lock().causes.healed(self.now);
        self.paths.clear();
        for node in &mut self.nodes {
            node.stopped_until = 0;
        }
        for host in &mut self.hosts {
            host.go_on();
        }
        for node in 0..self.nodes.len() {
            let keeps_data = self.nodes[node].keeps_data;
            self.taken_over(node);
            self.demote_old(node);
            self.restarted(node, keeps_data);
            self.promoted(node);
        }
        self.end_moves();
        let ids: Vec<LinkId> = self.links.keys().copied().collect();
        for id in ids {
            self.links.get_mut(&id).expect("it was there").late_until = 0;
            if self.links[&id].swallowed {
                self.cut(id, false);
            }
            // What was held up is looked at again now.
            self.at(self.now, Event::Up(id));
            self.at(self.now, Event::Down(id));
        }
    }
}

impl Node {
    /// A connection is gone.
    pub fn forget(&mut self, link: LinkId) {
        self.server.forget(link);
        if let Some(old) = &mut self.old {
            old.forget(link);
        }
    }
}

/// How often a replica gets what is new, per mille of the milliseconds.
const REPLICATES: u64 = 50;
/// What the servers' clocks show at the start.
const EPOCH_US: u64 = 1_700_000_000_000_000;
/// How long the servers had run before.
const LONG_UP_US: u64 = 100_000_000_000;
const DRIFT_TURN_US: u64 = 25_000_000;
const SLOW: u64 = 400;
