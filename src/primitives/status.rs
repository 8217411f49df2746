//! What the servers know about a lock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::key::Holder;
use crate::waiter::Waiter;

/// The state of a lock on the servers at one moment; see [`Mutex::status`](crate::Mutex::status).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockStatus {
    /// The lock's name.
    pub name: Arc<str>,
    /// The holder; `None` if the lock is free.
    pub holder: Option<Holder>,
    /// The holder's number of guards, as far as the servers know.
    pub hold_count: u32,
    /// The time until the lock expires unless it is renewed; `None` if it is free, or never expires (it was made by hand).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::maybe_seconds"))]
    pub remaining: Option<Duration>,
    /// The time since which a client of this library has held it, by the server's clock, accurate to about one
    /// [`handoff_window`](crate::ClientBuilder::handoff_window). `None` for other holders, while the lock is
    /// held for reading, over several masters, while a cluster moves the lock's slot, and once it has been held for longer than the
    /// [`token_retention`](crate::ClientBuilder::token_retention).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::maybe_time"))]
    pub since: Option<SystemTime>,
    /// The highest token reserved for its holds so far; `None` if the servers know none, or while a cluster moves the
    /// lock's slot.
    pub last_token: Option<u64>,
    /// The number of clients that wait for the lock, those of Redisson included. Of the requests in a server's queue, the
    /// first 1000 are counted.
    pub waiting_clients: u32,
    /// The clients of this library that wait for the lock, in the order in which they get it. It is empty over several
    /// masters, which share no order, and while a cluster moves the lock's slot.
    pub waiting: Vec<Waiter>,
    /// The readers, one for each client, if it is a [read-write lock](crate::RwLock) that is held for reading.
    pub readers: Vec<Holder>,
}

impl LockStatus {
    /// Returns when the lock expires unless it is renewed: `None` if it is free, and [`Duration::MAX`] if it never expires.
    pub(super) fn remaining_ttl(&self) -> Option<Duration> {
        self.holder.as_ref().map(|_| self.remaining.unwrap_or(Duration::MAX))
    }

    /// Combines the answers of several nodes: the holder is the one that a majority names, for as long as a majority does.
    pub(super) fn of_majority(name: &Arc<str>, mut answers: Vec<Self>, majority: usize) -> Self {
        let last_token = answers.iter().filter_map(|answer| answer.last_token).max();
        let waiting_clients =
            answers.iter().map(|answer| answer.waiting_clients).max().unwrap_or(0);
        // Answers without an end come first, then the longest.
        answers.sort_by_key(|answer| {
            std::cmp::Reverse((answer.remaining.is_none(), answer.remaining))
        });
        let readers = Self::readers_of_majority(&answers, majority);
        let deciding = match readers.first() {
            // Some nodes may name others first, who have no majority.
            Some(first) => {
                let reads = |answer: &&Self| answer.readers.contains(first);
                answers.iter().filter(reads).nth(majority - 1)
            }
            None => answers.iter().find_map(|answer| {
                let holder = answer.holder.as_ref()?;
                let is_same =
                    |other: &&Self| other.holder.as_ref().is_some_and(|it| it.is_one_with(holder));
                answers.iter().filter(is_same).nth(majority - 1)
            }),
        };
        match deciding {
            Some(deciding) => {
                let holder = readers.first().or(deciding.holder.as_ref()).cloned();
                let deciding = deciding.clone();
                Self { holder, readers, last_token, waiting_clients, ..deciding }
            }
            None => Self {
                name: name.clone(),
                holder: None,
                hold_count: 0,
                remaining: None,
                since: None,
                last_token,
                waiting_clients,
                waiting: Vec::new(),
                readers: Vec::new(),
            },
        }
    }

    /// Returns true if no further answer can change what comes out, as far as nodes agree.
    pub(super) fn is_settled(answers: &[Self], majority: usize) -> bool {
        let readers = Self::readers_of_majority(answers, majority);
        let same = |one: &Self| answers.iter().filter(|other| other.holder == one.holder).count();
        answers.iter().any(|answer| same(answer) >= majority)
            && answers.iter().flat_map(|answer| &answer.readers).all(|it| readers.contains(it))
    }

    /// Returns those whom a majority lists as readers.
    fn readers_of_majority(answers: &[Self], majority: usize) -> Vec<Holder> {
        let listed = |one: &&Holder| {
            answers.iter().filter(|answer| answer.readers.contains(one)).count() >= majority
        };
        let all = answers.iter().flat_map(|answer| &answer.readers);
        let mut readers: Vec<Holder> = all.filter(listed).cloned().collect();
        readers.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        readers.dedup();
        readers
    }
}

#[cfg(test)]
mod tests;
