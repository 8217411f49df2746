//! The calm after a storm: everybody comes to an end, and nothing is left behind.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::{CONNECT_MS, Run, client_name};
use crate::checker::Rule;
use crate::coordination::shelf::{self, Found, Shelf};
use crate::coordination::{GROUP_NAME, QUEUE_NAME, SIGNAL_NAMES, Subject, latch_name};
use crate::history::Ask;
use crate::keys::{QUEUES, wrong_with};
use crate::kinds::{PERMITS, RW_NAME, SEMAPHORE_NAME, is_holders};
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
        self.turns = Turns::from(began_at);
        let quarantine_ms = self.scenario.quarantine_ms.unwrap_or(0);
        let settled_at = began_at + CONNECT_MS + quarantine_ms;
        let limit = began_at + self.longest_wait_ms();
        while self.workload.busy.load(Ordering::Relaxed) > 0 {
            if self.world.now > limit {
                let mut history = self.world.history.lock();
                let waiting: Vec<Ask> = history.pending.values().copied().collect();
                history.violated(Rule::Stuck, format!("{} still wait: {waiting:?}", waiting.len()));
                return false;
            }
            self.step();
            if !self.free_is_taken(settled_at) || !self.deadlocks_are_told(settled_at) {
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
        if !self.all_is_released() || !self.no_item_is_lost() {
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
            // One deadlock after the other.
            + if self.scenario.tangles > 0 { workers * TOLD_MS } else { 0 }
    }

    fn settling_ms(&self) -> u64 {
        // A lease that was made longer must not last until its end: its release is sent as soon as it can be.
        if self.workload.longer > 1 {
            return CONNECT_MS + STALE_MS;
        }
        2 * self.workload.longest_lease_ms()
    }

    /// Invariant 8: who waits for a lock that is free hears of it, or asks by itself. Whoever could have heard of it, since all
    /// was well when it became free, needs no poll for that. All has been well since `settled_at`.
    pub(super) fn free_is_taken(&mut self, settled_at: u64) -> bool {
        let now = self.world.now;
        // A look now and then is enough. While nothing goes wrong, a lock is free for a moment only.
        let every_ms = if self.scenario.is_quiet() { LOOK_MS / 5 } else { LOOK_MS };
        if !now.is_multiple_of(every_ms) {
            return true;
        }
        self.note_the_deaf();
        if now < settled_at {
            return true;
        }
        if self.scenario.coordination > 0 && !self.changes_are_told(settled_at) {
            return false;
        }
        if !self.wishes_are_told(settled_at) {
            return false;
        }
        let (pending, met): (Vec<Ask>, _) = {
            let history = self.world.history.lock();
            (history.pending.values().copied().collect(), history.met.clone())
        };
        // A process that noticed late that a server has another history trusts it later than the others.
        let trusts_at = |host: usize| match (self.scenario.quarantine_ms, met.get(&host)) {
            (Some(quarantine_ms), Some(at)) => at + CONNECT_MS + quarantine_ms,
            _ => 0,
        };
        for (lock, name) in self.scenario.names() {
            let asks = || pending.iter().filter(|ask| ask.lock == lock);
            for reads in [false, true] {
                if !self.is_open(&name, asks(), reads) {
                    self.turns.taken_at.insert((lock, reads), now);
                }
            }
            for ask in asks() {
                let settled_at = settled_at.max(trusts_at(ask.host));
                let Some(late) = self.turns.late(ask, settled_at, now) else { continue };
                let mut history = self.world.history.lock();
                let slowest = history.counts.entry("slowest_turn_ms").or_default();
                *slowest = late.ms.max(*slowest);
                history.checker.checked(Rule::Stuck);
                // The first in the queue of a replica that took over may have left it on the master before: nobody hears then
                // that what it was granted has ended.
                // And the first in any queue may be one that is gone: whoever asks next finds that out.
                let hears = !self.scenario.replicated && !self.is_first_gone(&name);
                let heard_ms = late.heard_ms.filter(|_| hears);
                let needs_poll = heard_ms.is_some_and(|ms| ms > WAKE_MS + self.reserved_ms(ask));
                if needs_poll {
                    history.count("turns_by_poll", 1);
                }
                let answer_ms = self.workload.response_timeout.as_millis() as u64;
                if needs_poll || late.ms > POLL_MS + 2 * answer_ms {
                    let what = format!("free for {} ms, and still waited for: {ask:?}", late.ms);
                    history.violated(Rule::Stuck, what);
                    return false;
                }
            }
        }
        true
    }

    /// Returns true if the first of those who wait for this is of a client that has ended.
    fn is_first_gone(&self, name: &str) -> bool {
        let is_gone = |number: usize| {
            let first = self.world.nodes[number].server.keys(self.world.node_us(number), |keys| {
                let queues = QUEUES.iter().map(|queue| format!("{queue}:{{{name}}}"));
                queues.filter_map(|queue| keys.ranked(queue.as_bytes()).into_iter().next()).next()
            });
            first.is_some_and(|entry| self.since_end(&id_of(&entry)).is_some())
        };
        (0..self.world.nodes.len()).any(is_gone)
    }

    /// Whose connection is gone without a word hears nothing until it has noticed.
    fn note_the_deaf(&mut self) {
        let deaf = (0..self.world.hosts.len()).filter(|host| self.world.listens_in_vain(*host));
        let now = self.world.now;
        self.turns.deaf_at.extend(deaf.map(|host| (host, now)));
    }

    /// N1: who asks whether its lock is wanted is told of everybody who waits for long.
    fn wishes_are_told(&self, settled_at: u64) -> bool {
        let now = self.world.now;
        let mut history = self.world.history.lock();
        let answer_ms = self.workload.response_timeout.as_millis() as u64;
        let most_ms = LOOKS_MS + 2 * answer_ms;
        for (guard, asking) in history.wishes.untold(&history.pending) {
            let late_ms = now.saturating_sub(asking.since.max(settled_at));
            let slowest = history.counts.entry("slowest_wish_ms").or_default();
            *slowest = late_ms.max(*slowest);
            history.checker.checked(Rule::Wanted);
            if late_ms > most_ms {
                let what =
                    format!("waited for since {late_ms} ms, and not told: {guard} {asking:?}");
                history.violated(Rule::Wanted, what);
                return false;
            }
        }
        true
    }

    /// Whoever waits for a latch that is open, or a signal that was given, is told; as in [`free_is_taken`](Self::free_is_taken).
    fn changes_are_told(&mut self, settled_at: u64) -> bool {
        let now = self.world.now;
        let waits = self.world.history.lock().books.waits.clone();
        self.turns.changed_at.retain(|wait, _| waits.contains_key(wait));
        for (number, wait) in waits {
            if !self.has_changed(wait.subject) {
                continue;
            }
            let changed_at = *self.turns.changed_at.entry(number).or_insert(now);
            let since = wait.since.max(changed_at).max(settled_at);
            let late_ms = now.saturating_sub(since);
            let is_heard_of = wait.since.max(changed_at) > settled_at;
            let heard_ms = self.turns.heard_ms(wait.host, since, now).filter(|_| is_heard_of);
            let answer_ms = self.workload.response_timeout.as_millis() as u64;
            let mut history = self.world.history.lock();
            let slowest = history.counts.entry("slowest_news_ms").or_default();
            *slowest = late_ms.max(*slowest);
            history.checker.checked(Rule::Stuck);
            if heard_ms.is_some_and(|ms| ms > WAKE_MS) || late_ms > POLL_MS + 2 * answer_ms {
                let what = format!("changed for {late_ms} ms, and still waited for: {wait:?}");
                history.violated(Rule::Stuck, what);
                return false;
            }
        }
        true
    }

    /// D2: a deadlock that stands while all is well is told to somebody who is in it.
    fn deadlocks_are_told(&self, settled_at: u64) -> bool {
        let now = self.world.now;
        if self.scenario.tangles == 0 || !now.is_multiple_of(LOOK_MS) {
            return true;
        }
        let mut history = self.world.history.lock();
        for (circle, since) in history.tangles.standing(now) {
            history.checker.checked(Rule::MissedDeadlock);
            let stands_ms = now.saturating_sub(since.max(settled_at));
            let longest = history.counts.entry("longest_deadlock_ms").or_default();
            *longest = stands_ms.max(*longest);
            if stands_ms > TOLD_MS {
                history.violated(Rule::MissedDeadlock, format!("for {stands_ms} ms: {circle}"));
                return false;
            }
        }
        true
    }

    fn has_changed(&self, subject: Subject) -> bool {
        let number_of = |node: usize, key: &str| {
            let now_us = self.world.node_us(node);
            let server = &self.world.nodes[node].server;
            server.keys(now_us, |keys| {
                let fields = keys.fields(key.as_bytes());
                let number = fields.iter().find(|(field, _)| field == b"number");
                let last = keys.scored(key.as_bytes()).last().map(|(_, number)| *number as u64);
                let text = number.map(|(_, text)| String::from_utf8_lossy(text).into_owned());
                text.and_then(|text| text.parse().ok()).or(last)
            })
        };
        let mut nodes = 0..self.world.nodes.len();
        match subject {
            Subject::Latch(latch) => nodes.all(|node| {
                let now_us = self.world.node_us(node);
                let server = &self.world.nodes[node].server;
                !server.keys(now_us, |keys| keys.is_there(latch_name(latch).as_bytes()))
            }),
            Subject::Signal(which, seen) => {
                let key = format!("leasehold_signal:{{{}}}", SIGNAL_NAMES[which]);
                nodes.find_map(|node| number_of(node, &key)).is_some_and(|number| number != seen)
            }
            Subject::Group(seen) => {
                let key = format!("leasehold_signal_group:{{{GROUP_NAME}}}");
                nodes.find_map(|node| number_of(node, &key)).is_some_and(|number| number != seen)
            }
        }
    }

    /// S5: what was pushed and is not done is there, and what is done is not.
    fn no_item_is_lost(&self) -> bool {
        if self.scenario.coordination == 0 {
            return true;
        }
        let there = self.world.shelf().items();
        let mut history = self.world.history.lock();
        history.checker.checked(Rule::Items);
        history.books.latches.forget_earlier();
        history.books.signals.iter_mut().for_each(|signal| signal.forget_old(100));
        let wrong = history.books.items.compare(&there);
        let is_fine = wrong.is_empty();
        for what in wrong {
            history.violated(Rule::Items, what);
        }
        is_fine
    }

    /// Over several servers a writer that waited there, and was killed, keeps readers out for a while.
    fn reserved_ms(&self, ask: &Ask) -> u64 {
        let several = self.scenario.nodes > 1 && !self.scenario.cluster;
        if several && ask.reads() { RESERVED_MS } else { 0 }
    }

    /// Whether all who wait for a lock could have it, the first of them at once; or those who read, whoever reads already.
    fn is_open<'a>(
        &self,
        name: &str,
        mut asks: impl Iterator<Item = &'a Ask> + Clone,
        reads: bool,
    ) -> bool {
        let one_place = self.scenario.nodes == 1 || self.scenario.cluster;
        let beside = reads && one_place && asks.clone().all(Ask::reads);
        let weight = asks.clone().map(|ask| ask.weight).max().unwrap_or(1) as usize;
        let nodes = 0..self.world.nodes.len();
        let open = nodes.clone().filter(|node| {
            if name == QUEUE_NAME {
                let now_ms = (self.world.node_us(*node) / 1000) as i64;
                return self.world.shelf().has_some(now_ms);
            }
            if name == SEMAPHORE_NAME {
                return self.permits_out(*node).len() + weight <= PERMITS as usize;
            }
            let is_free = self.world.lease_at(*node, name.as_bytes()).is_none();
            is_free || (beside && self.is_read(*node, name))
        });
        // In a cluster, it is on one of them.
        let needed = match self.scenario.cluster {
            true => nodes.len(),
            false => self.world.history.lock().checker.majority,
        };
        asks.next().is_some() && open.count() >= needed
    }

    fn is_read(&self, node: usize, name: &str) -> bool {
        let now_us = self.world.node_us(node);
        let server = &self.world.nodes[node].server;
        let fields = server.keys(now_us, |keys| keys.fields(name.as_bytes()));
        fields.contains(&(b"mode".to_vec(), b"read".to_vec()))
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
            let idle = (stats.locks, stats.waiters, stats.subscriptions, stats.releases_pending)
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
                let mut names = keys.names();
                names.retain(|name| !is_of_items(name) && !is_signal(name));
                names.iter().flat_map(|name| keys.fields(name)).collect::<Vec<_>>()
            });
            let fields = fields.into_iter().map(|(field, _)| field);
            let fields = fields.map(|field| String::from_utf8_lossy(&field).into_owned());
            let readers = self.readers_left(number);
            let leases = fields.filter(|field| field != "mode").chain(self.permits_out(number));
            let now_ms = (self.world.node_us(number) / 1000) as i64;
            // No slot moves now, so all of it is on one of them.
            let shelf =
                self.world.nodes[number].server.keys(self.world.node_us(number), Found::read);
            let shelf = Shelf::from(shelf);
            let lent = shelf.lent(now_ms).map(str::to_owned);
            let leases = leases.chain(readers).chain(lent);
            left.extend(self.wrong_keys(number));
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

    /// Keys that nobody knows, or that stay for too long.
    fn wrong_keys(&self, number: usize) -> Vec<String> {
        let longest_ms = self.workload.longest_lease_ms() as i64 + STALE_MS as i64;
        let ends = self.key_ends(number).into_iter();
        let wrong = ends.filter_map(|(key, left_ms)| {
            wrong_with(&key, left_ms, self.scenario.locks, longest_ms)
        });
        wrong.map(|what| format!("n{number} has {what}")).collect()
    }

    /// Of whom a node has a reader's end.
    fn readers_left(&self, number: usize) -> Vec<String> {
        let prefix = format!("{{{RW_NAME}}}:");
        let ends = self.key_ends(number).into_iter();
        let readers = ends.filter_map(|(key, _)| {
            let (id, _) = key.strip_prefix(&prefix)?.split_once(":rwlock_timeout:")?;
            Some(id.to_owned())
        });
        readers.collect()
    }

    fn key_ends(&self, number: usize) -> Vec<(String, Option<i64>)> {
        let now_us = self.world.node_us(number);
        let ends = self.world.nodes[number].server.keys(now_us, |keys| keys.ends());
        let named = |(key, left): (Vec<u8>, _)| (String::from_utf8_lossy(&key).into_owned(), left);
        ends.into_iter().map(named).collect()
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
            let is_queue =
                |name: &&Vec<u8>| !is_holders(name) && !is_of_items(name) && !is_signal(name);
            let queues = names.iter().filter(is_queue);
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

fn is_of_items(key: &[u8]) -> bool {
    shelf::keys().iter().any(|name| name.as_bytes() == key)
}

fn is_signal(key: &[u8]) -> bool {
    key.starts_with(b"leasehold_signal")
}

/// When each lock was last not to be had, by those who read and by those who do not.
#[derive(Default)]
pub(super) struct Turns {
    began_at: u64,
    taken_at: BTreeMap<(usize, bool), u64>,
    /// Since when what somebody waits for has changed.
    changed_at: BTreeMap<u64, u64>,
    /// When each process was last seen to listen on a connection that is gone.
    deaf_at: BTreeMap<usize, u64>,
}

/// A wait for a lock that is free.
#[derive(Debug, PartialEq, Eq)]
struct Late {
    ms: u64,
    /// For how long whoever waits could have known: it hears of what becomes free while all is well, and looks when it listens
    /// again. `None`: all was not well, or it hears nothing still.
    heard_ms: Option<u64>,
}

impl Turns {
    fn from(began_at: u64) -> Self {
        Self { began_at, ..Self::default() }
    }

    fn late(&self, ask: &Ask, settled_at: u64, now: u64) -> Option<Late> {
        let key = (ask.lock, ask.reads());
        let taken_at = self.taken_at.get(&key).copied().unwrap_or(self.began_at);
        let since = ask.since.max(taken_at).max(settled_at);
        let is_heard_of = ask.since.max(taken_at) > settled_at;
        let heard_ms = self.heard_ms(ask.host, since, now).filter(|_| is_heard_of);
        (now > since).then(|| Late { ms: now - since, heard_ms })
    }

    /// For how long a process could have known of what has changed at `since`.
    fn heard_ms(&self, host: usize, since: u64, now: u64) -> Option<u64> {
        let deaf_at = self.deaf_at.get(&host).copied();
        let hears = deaf_at.is_none_or(|at| at < now);
        hears.then(|| now.saturating_sub(since.max(deaf_at.unwrap_or(0))))
    }
}

/// The longest of the random polls.
const POLL_MS: u64 = 4000;
/// How long a task keeps a lock at most once it has it, and what it does on the way.
const LONGEST_HOLD_MS: u64 = 12_000;
/// How long a client goes on at most until it looks again who waits for a lock.
const LOOKS_MS: u64 = 4000;
/// How long after its process a message may still arrive.
const STALE_MS: u64 = 6000;
/// In so long a deadlock is told.
const TOLD_MS: u64 = 10_000;
pub(super) const LOOK_MS: u64 = 50;
/// How long a waiter may wait that hears of everything. The shortest poll of one that is queued is twice as long.
const WAKE_MS: u64 = 1000;
/// How long a reservation lasts.
const RESERVED_MS: u64 = 5000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(how: &'static str, since: u64) -> Ask {
        Ask { host: 0, lock: 1, how, since, weight: 1 }
    }

    #[test]
    fn a_wait_counts_from_when_the_lock_was_free_and_all_was_well() {
        let mut turns = Turns::from(100);
        let late = |turns: &Turns, how, since, now| {
            turns.late(&ask(how, since), 1000, now).map(|late| (late.ms, late.heard_ms))
        };
        assert_eq!(late(&turns, "lock", 50, 900), None, "all is not well yet");
        assert_eq!(late(&turns, "lock", 50, 1500), Some((500, None)), "it may have heard nothing");
        let to_a_free_lock = late(&turns, "lock", 1200, 1500);
        assert_eq!(to_a_free_lock, Some((300, Some(300))), "it came to a free lock");
        turns.taken_at.insert((1, false), 1400);
        assert_eq!(late(&turns, "lock", 50, 1500), Some((100, Some(100))), "it was given back");
        assert_eq!(late(&turns, "lock", 50, 1400), None);
        let beside = late(&turns, "try_read_for", 1200, 1500);
        assert_eq!(beside, Some((300, Some(300))), "beside readers");
    }

    #[test]
    fn who_listened_in_vain_has_as_long_from_when_it_noticed() {
        let mut turns = Turns::from(100);
        let late = |turns: &Turns, now| turns.late(&ask("lock", 1200), 1000, now);
        turns.deaf_at.insert(0, 4000);
        assert_eq!(late(&turns, 4000), Some(Late { ms: 2800, heard_ms: None }), "it is deaf");
        assert_eq!(late(&turns, 4050), Some(Late { ms: 2850, heard_ms: Some(50) }));
        turns.deaf_at.insert(1, 4050);
        assert_eq!(late(&turns, 4100), Some(Late { ms: 2900, heard_ms: Some(100) }), "another");
    }
}
