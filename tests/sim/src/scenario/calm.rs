//! The calm after a storm: everybody comes to an end, and nothing is left behind.

use std::sync::atomic::Ordering;

use super::{CONNECT_MS, Run, client_name};
use crate::checker::Rule;
use crate::history::Ask;
use crate::kinds::{SEMAPHORE_NAME, is_holders};
use crate::lines::{id_of, is_mailbox, mailbox_of};
use crate::nemesis::Fault;
use crate::workload::KEPT_MS;
use crate::world::Node;

impl Run<'_> {
    /// All faults end, and nobody begins anything new. False if something did not come to its end.
    pub(super) fn calm(&mut self) -> bool {
        self.world.heal();
        self.rest(true);
        self.world.history.lock().note(format_args!("calm"));
        let began_at = self.world.now;
        let mut taken_at = vec![began_at; self.scenario.names().len()];
        let limit = began_at + self.longest_wait_ms();
        while self.workload.busy.load(Ordering::Relaxed) > 0 {
            if self.world.now > limit {
                let mut history = self.world.history.lock();
                let waiting: Vec<Ask> = history.pending.values().copied().collect();
                history.violated(Rule::Stuck, format!("{} still wait: {waiting:?}", waiting.len()));
                return false;
            }
            self.step();
            if !self.free_is_taken(began_at, &mut taken_at) {
                return false;
            }
        }
        let limit = self.world.now + self.settling_ms();
        loop {
            let left = self.left_behind();
            if left.is_empty() {
                break;
            }
            if self.world.now > limit {
                let what = left.join("; ");
                self.world.history.lock().violated(Rule::Leak, what);
                return false;
            }
            self.step();
        }
        if !self.all_is_released() {
            return false;
        }
        self.world.audit.forget();
        let mut history = self.world.history.lock();
        history.checker.forget_ended();
        history.count("calms", 1);
        history.checker.checked(Rule::Stuck);
        history.checker.checked(Rule::Leak);
        history.note(format_args!("storm"));
        drop(history);
        self.rest(false);
        true
    }

    /// H: how long the last waiter waits once nothing goes wrong any more.
    fn longest_wait_ms(&self) -> u64 {
        let workers = (self.scenario.hosts * self.scenario.workers) as u64;
        // What may be held still, then a poll, connections, the quarantine, and everybody's turn.
        let kept = if self.scenario.keepers > 0 { KEPT_MS } else { 0 };
        2 * self.workload.longest_lease_ms()
            + POLL_MS
            + CONNECT_MS
            + self.scenario.quarantine_ms.unwrap_or(0)
            + workers * LONGEST_HOLD_MS
            + kept
    }

    fn settling_ms(&self) -> u64 {
        // A lease that was made longer must not last until its end: its release is sent as soon as it can be.
        if self.workload.longer > 1 {
            return CONNECT_MS + STALE_MS;
        }
        2 * self.workload.longest_lease_ms()
    }

    /// Invariant 8: who waits for a lock that is free hears of it, or asks by itself. `taken_at` is when each lock
    /// was last not free.
    fn free_is_taken(&self, began_at: u64, taken_at: &mut [u64]) -> bool {
        let now = self.world.now;
        // A look now and then is enough.
        if !now.is_multiple_of(LOOK_MS) {
            return true;
        }
        let settled_at = began_at + CONNECT_MS + self.scenario.quarantine_ms.unwrap_or(0);
        let mut history = self.world.history.lock();
        let nodes = 0..self.world.nodes.len();
        for ((lock, name), taken_at) in self.scenario.names().into_iter().zip(taken_at) {
            let is_free = |node: &usize| self.is_free(*node, &name);
            let free = nodes.clone().filter(is_free).count();
            // In a cluster, it is on one of them.
            let needed = match self.scenario.cluster {
                true => nodes.len(),
                false => history.checker.majority,
            };
            if free < needed {
                *taken_at = now;
                continue;
            }
            let longest = POLL_MS + 2 * self.workload.response_timeout.as_millis() as u64;
            let waits = history.pending.values().find(|ask| {
                ask.lock == lock && now > ask.since.max(*taken_at).max(settled_at) + longest
            });
            if let Some(ask) = waits.copied() {
                let what = format!("free since {taken_at}, and still waited for: {ask:?}");
                history.violated(Rule::Stuck, what);
                return false;
            }
        }
        true
    }

    /// Whether nobody has a lock on a node, or none of a semaphore's permits.
    fn is_free(&self, node: usize, name: &str) -> bool {
        if name == SEMAPHORE_NAME {
            return self.permits_out(node).is_empty();
        }
        self.world.lease_at(node, name.as_bytes()).is_none()
    }

    /// The permits that are out on a node and have not ended.
    fn permits_out(&self, node: usize) -> Vec<String> {
        let now_us = self.world.node_us(node);
        let out = self.world.nodes[node].server.keys(now_us, |keys| {
            let names: Vec<_> = keys.names().into_iter().filter(|name| is_holders(name)).collect();
            names.iter().flat_map(|name| keys.scored(name)).collect::<Vec<_>>()
        });
        let lasting = out.into_iter().filter(|(_, ends_ms)| *ends_ms > (now_us / 1000) as f64);
        lasting.map(|(member, _)| String::from_utf8_lossy(&member).into_owned()).collect()
    }

    /// Invariant 5: there is a release behind everything that a server granted to a process that is still there.
    fn all_is_released(&self) -> bool {
        let mut history = self.world.history.lock();
        history.checker.checked(Rule::Unreleased);
        // A client that has ended gives a release up once the lease is over.
        let clients_end = self.scenario.faults.iter().any(|(fault, _)| *fault == Fault::EndClient);
        let mut left = self.world.audit.unreleased().filter(|(_, lease, ends_at)| {
            self.since_end(lease).is_none() && !(clients_end && *ends_at < self.world.now)
        });
        let Some((node, lease, _)) = left.next() else { return true };
        history.violated(Rule::Unreleased, format!("nobody released {lease} on n{node}"));
        false
    }

    /// How long ago the process ended that had a lease.
    fn since_end(&self, lease: &str) -> Option<u64> {
        self.gone.iter().find_map(|((host, generation), at)| {
            let name = format!("{}:", client_name(*host, *generation));
            lease.starts_with(&name).then(|| self.world.now - at)
        })
    }

    /// R1: what is there that should not be.
    fn left_behind(&self) -> Vec<String> {
        let mut left = Vec::new();
        if !self.world.is_quiet() {
            left.push("messages are on their way".to_owned());
        }
        let mut live = Vec::new();
        for host in &self.world.hosts {
            let process = &host.process;
            live.push((process.host, process.generation));
            let Some(client) = process.client() else {
                left.push(format!("h{} is not connected", process.host));
                continue;
            };
            let stats = client.stats();
            // A client has two for each node of a cluster that it uses, one for the map, and the watchdog.
            let idle_tasks = match self.scenario.cluster {
                true => stats.tasks <= 2 + 2 * self.scenario.nodes,
                false => stats.tasks == self.idle_tasks,
            };
            let idle = (stats.gates, stats.waiters, stats.subscriptions, stats.owed_releases)
                == (0, 0, 0, 0)
                && idle_tasks;
            if !idle {
                left.push(format!("h{}: {stats:?}, idle: {} tasks", process.host, self.idle_tasks));
            }
        }
        for (number, node) in self.world.nodes.iter().enumerate() {
            left.extend(self.left_to_hear(node).map(|what| format!("n{number} has {what}")));
            for entry in self.left_in_queues(number) {
                left.push(format!("n{number} has {entry} in a queue"));
            }
            let fields = node.server.keys(self.world.node_us(number), |keys| {
                let names = keys.names();
                names.iter().flat_map(|name| keys.fields(name)).collect::<Vec<_>>()
            });
            let fields = fields.into_iter().map(|(field, _)| field);
            let fields = fields.map(|field| String::from_utf8_lossy(&field).into_owned());
            let leases = fields.filter(|field| field != "mode").chain(self.permits_out(number));
            for lease in leases {
                let since_end = self.since_end(&lease);
                // L1: what a dead process held ends by itself.
                let longest = self.workload.longest_lease_ms() + STALE_MS;
                if since_end.is_none_or(|ms| ms > longest) {
                    left.push(format!("n{number} has {lease}, gone for {since_end:?} ms"));
                }
            }
        }
        left
    }

    /// Nobody listens on a lock's channel. A client may keep its mailbox, one on each server.
    fn left_to_hear(&self, node: &Node) -> Option<String> {
        let channels = node.server.channels();
        let (mailboxes, others): (Vec<_>, Vec<_>) =
            channels.iter().partition(|channel| is_mailbox(channel));
        if others.is_empty() && mailboxes.len() <= self.world.hosts.len() {
            return None;
        }
        Some(format!("{} mailboxes, and {} channels", mailboxes.len(), others.len()))
    }

    /// Nobody waits in a queue, except for those whose client has ended: they are passed over when their turn comes.
    fn left_in_queues(&self, number: usize) -> Vec<String> {
        let server = &self.world.nodes[number].server;
        let heard = server.channels();
        let entries = server.keys(self.world.node_us(number), |keys| {
            let names = keys.names();
            let queues = names.iter().filter(|name| !is_holders(name));
            queues.flat_map(|name| keys.ranked(name)).collect::<Vec<_>>()
        });
        if self.scenario.replicated || self.scenario.cluster {
            // A replica that took over may have entries of requests that have left the queue. Those that moved with a slot
            // were given up: they are passed over when their turn comes.
            return Vec::new();
        }
        let clients_end = self.scenario.faults.iter().any(|(fault, _)| *fault == Fault::EndClient);
        let ended = |entry: &[u8]| {
            !heard.contains(&mailbox_of(entry))
                && (clients_end || self.since_end(&id_of(entry)).is_some())
        };
        let left = entries.iter().filter(|entry| !ended(entry));
        left.map(|entry| String::from_utf8_lossy(entry).into_owned()).collect()
    }
}

/// The longest of the random polls.
const POLL_MS: u64 = 4000;
/// How long a task keeps a lock at most once it has it, and what it does on the way.
const LONGEST_HOLD_MS: u64 = 6000;
/// How long after its process a message may still arrive.
const STALE_MS: u64 = 6000;
const LOOK_MS: u64 = 50;
