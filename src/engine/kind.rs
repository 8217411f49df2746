//! All that differs from one kind of lock to another: what is asked of the servers, and how to read
//! their answers. The rest of the engine is the same for all kinds.

#[cfg(test)]
pub(crate) mod plain;

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{LeaseTerms, Terms};
use crate::error::Error;
use crate::key::{Holder, LeaseId};
use crate::owner::Owner;
use crate::script::{Call, Reply};
use crate::waiter::Waiter;

/// One side of one lock of one kind, as a request asks for it. Most kinds have one side only.
pub(crate) trait Kind: Send + Sync + 'static {
    /// What the user calls it.
    fn name(&self) -> &Arc<str>;

    /// Returns the name of the kind. Locks of different kinds never share a gate, even if they have the same name.
    fn family(&self) -> &'static str;

    /// Returns the number of this side among those of the lock: a lease serves other requests for its own side only.
    fn side(&self) -> u32 {
        0
    }

    /// Returns how this client's acquisitions of this side share a gate, and what the servers grant.
    fn sharing(&self) -> Sharing {
        Sharing::Alone
    }

    /// Returns true if a request of this side that waits over several servers keeps others out, until it is dropped.
    fn reserves(&self) -> bool {
        false
    }

    /// Where its releases are told.
    fn channel(&self) -> &Arc<str>;

    /// Takes the lock for the ticket's lease, with `block` tokens; or queues it, or reserves the lock, if it has an entry.
    fn acquire(&self, ticket: &Ticket, ttl: Duration, block: u64) -> Call;

    /// Writes the hold count, and lengthens the lease to `ttl` from now; zero leaves it as it is.
    fn renew(&self, id: &LeaseId, count: u32, ttl: Duration) -> Call;

    /// Puts the lease back where it is missing, with the same tokens, unless another holds the lock.
    fn reclaim(
        &self,
        ticket: &Ticket,
        count: u32,
        ttl: Duration,
        tokens: RangeInclusive<u64>,
    ) -> Call;

    /// Frees the lock, or has it end by itself after `keep` at most, if that is not zero; or leaves the queue, or ends the
    /// reservation.
    fn release(&self, ticket: &Ticket, keep: Duration) -> Call;

    /// Lifts the fencing counter to `end`, where the lease holds the lock.
    fn raise(&self, id: &LeaseId, end: u64) -> Call;

    /// The lease is lost, which its holder is told: what that had decided about its end is void.
    fn lost(&self, _: &LeaseId) {}

    /// Returns true if the server counts its grants, so that one which nobody may use has to be given back at once.
    fn counts_grants(&self) -> bool {
        false
    }

    /// Asks whether anybody waits, if a holder can learn that. Changes nothing; the reply is a number, 0 if nobody does.
    fn look_for_waiting(&self) -> Option<Call> {
        None
    }

    fn read_acquire(&self, reply: &Reply) -> Option<Answer>;

    /// Takes in what the message of a grant brought along for the lease, if anything, before anybody uses it.
    fn enclosed(&self, _: &LeaseId, _: Option<&[u8]>) {}

    /// Whether the lease still holds the lock; also of a raise, and of a reclaim.
    fn read_renew(&self, reply: &Reply) -> Option<bool>;

    fn read_release(&self, reply: &Reply) -> Option<Released>;

    /// Returns how many units there are of what several can have at once, as the caller has said, if all come back by those who have
    /// them.
    fn all_units(&self) -> Option<u64> {
        None
    }

    /// Asks who has units of what several can have at once. Changes nothing.
    fn look_for_holders(&self) -> Option<Call> {
        None
    }

    fn read_holders(&self, _: &Reply) -> Option<Holders> {
        None
    }

    /// Whether a lease that its server has forgotten counts as released if nobody could have had the lock since. False if the
    /// release does more than to end the lease: then that was not done.
    fn may_be_forgotten(&self) -> bool {
        true
    }
}

/// Who has units of what several can have at once, as the servers say.
pub(crate) struct Holders {
    /// How many units there are, those included that nobody has.
    pub(crate) all: u64,
    /// The ids of the leases.
    pub(crate) ids: HashSet<Arc<str>>,
}

/// How the acquisitions of one client share a gate, and what the servers grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// A lease has one owner at a time. It passes from one to the next, each with a token of its own.
    Alone,
    /// All owners that ask for this side use one lease at once, with one token. Its acquire takes no tokens.
    Together,
    /// Each has a gate of its own, so the servers alone decide who is next. An acquisition takes `weight` units of what
    /// there are several of, instead of tokens.
    Each { weight: u64 },
}

impl dyn Kind {
    /// Returns true if an owner that has a lease of this side may take `wanted` without the servers.
    pub(crate) fn contains(&self, wanted: &dyn Kind) -> bool {
        match self.sharing() {
            Sharing::Alone => true,
            Sharing::Together => self.side() == wanted.side(),
            Sharing::Each { .. } => false,
        }
    }

    /// Returns true if others may use a lease of this side for `wanted` while it is in use.
    pub(crate) fn is_shared_with(&self, wanted: &dyn Kind) -> bool {
        self.sharing() == Sharing::Together && self.side() == wanted.side()
    }
}

/// What a request asks for: a side of a lock, on some terms.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) side: Arc<dyn Kind>,
    pub(crate) terms: Terms,
}

impl Wanted {
    /// Returns true if a lease that was asked for as `other` serves this one.
    pub(crate) fn is_served_by(&self, other: &Self) -> bool {
        self.form() == other.form()
    }

    /// Returns what a request for this one asks the servers for: requests of one form serve each other.
    pub(crate) fn form(&self) -> (u32, LeaseTerms) {
        (self.side.side(), self.terms.lease)
    }
}

/// What the servers know a request by, from its first acquire to its release.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) id: LeaseId,
    /// Its entry in the server's queue, if it waits there when the lock is not free. Over several servers: what it reserves.
    pub(crate) entry: Option<Arc<str>>,
    /// The lock was granted to it by message, in its turn, and not by the answer to an acquire.
    pub(crate) by_message: bool,
}

/// A server's answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Held, with the tokens up to this one.
    Granted {
        block_end: u64,
        /// The last token before the block, if the server said so.
        before: Option<u64>,
    },
    Refused(Refusal),
}

impl Answer {
    /// Held, with the tokens up to this one. Nothing is known of those before.
    pub(crate) fn granted(block_end: u64) -> Self {
        Self::Granted { block_end, before: None }
    }

    /// Returns the last token before those of a grant, if it is known.
    pub(crate) fn before(&self) -> Option<u64> {
        match self {
            Self::Granted { before, .. } => *before,
            Self::Refused(_) => None,
        }
    }
}

/// Another holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) holder: Holder,
    /// The holder's owner, where the holder is this client.
    pub(crate) owner: Option<Owner>,
    /// For how long still; `None`: without an end.
    pub(crate) remaining: Option<Duration>,
    /// How many listen on its channel.
    pub(crate) subscribers: u32,
    /// What a server with a queue says of it.
    pub(crate) queue: Option<Box<InQueue>>,
}

/// A server's queue at the time of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InQueue {
    /// How many are ahead of the one who asked. `None`: it did not queue.
    pub(crate) ahead: Option<u32>,
    /// The server's time, in microseconds.
    pub(crate) server_us: u64,
    /// The first of those who wait.
    pub(crate) waiting: Arc<[Waiter]>,
}

impl InQueue {
    /// Returns those who wait, without the one who asked.
    fn others(self) -> Arc<[Waiter]> {
        match self.ahead.map(|ahead| ahead as usize) {
            Some(own) if own < self.waiting.len() => {
                let (before, from) = self.waiting.split_at(own);
                before.iter().chain(&from[1..]).cloned().collect()
            }
            _ => self.waiting,
        }
    }
}

impl Refusal {
    pub(crate) fn of(holder: Holder, remaining: Option<Duration>) -> Self {
        Self { holder, owner: None, remaining, subscribers: 0, queue: None }
    }

    /// Returns true if the holder is not a client of this library.
    pub(crate) fn is_foreign(&self) -> bool {
        self.holder.client().is_none()
    }

    /// Returns how many clients are known to wait in the server's queue. It lists the first few only.
    pub(crate) fn queued_clients(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.waiting.len())
    }

    /// Returns the error for one who waited for `side`.
    pub(crate) fn into_timeout(self, side: &dyn Kind, waited: Duration) -> Error {
        // Whoever holds a lock alone is known, even if somebody has written that word into it.
        let is_known =
            !matches!(side.sharing(), Sharing::Each { .. }) || self.holder.as_str() != UNKNOWN;
        Error::Timeout {
            lock: side.name().clone(),
            holder: is_known.then_some(self.holder),
            owner: self.owner,
            remaining: self.remaining,
            waited,
            waiting: self.queue.map(|queue| queue.others()).unwrap_or_default(),
        }
    }
}

/// What a server says instead of a holder if it knows nobody who has the units that are missing (`lua/permits.lua`).
const UNKNOWN: &str = "unknown";

/// A server's answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// The lease held the lock until then.
    pub(crate) held: bool,
    /// How many heard of it.
    pub(crate) receivers: u32,
    /// How many clients in the queue were gone, and were passed over.
    pub(crate) passed_over: u32,
}

#[cfg(test)]
mod tests {
    use super::plain::Plain;
    use super::*;

    #[test]
    fn who_asked_is_none_of_the_others_that_wait() {
        let waiting: Arc<[Waiter]> = ["a", "b", "c"].map(|name| Waiter::new(name, 0, 7)).into();
        let others = |ahead| {
            let queue = InQueue { ahead, server_us: 7, waiting: waiting.clone() };
            let refusal =
                Refusal { queue: Some(Box::new(queue)), ..Refusal::of(Holder::new("h"), None) };
            let side = Plain::new(Sharing::Alone, 0);
            let Error::Timeout { waiting, .. } = refusal.into_timeout(&side, Duration::ZERO) else {
                panic!("a refusal is a timeout")
            };
            waiting.iter().map(|waiter| waiter.client.to_string()).collect::<String>()
        };
        assert_eq!([Some(0), Some(1), Some(2)].map(others), ["bc", "ac", "ab"]);
        assert_eq!(others(Some(3)), "abc", "its place is behind those that the server lists");
        assert_eq!(others(None), "abc", "it does not wait");
    }

    #[test]
    fn only_who_has_units_of_several_can_be_unknown() {
        let holder = |sharing, name: &str| {
            let refusal = Refusal::of(Holder::new(name), None);
            let error = refusal.into_timeout(&Plain::new(sharing, 0), Duration::ZERO);
            error.holder().map(|holder| holder.as_str().to_owned())
        };
        assert_eq!(holder(Sharing::Each { weight: 1 }, UNKNOWN), None);
        assert_eq!(holder(Sharing::Each { weight: 1 }, "00ff3a").as_deref(), Some("00ff3a"));
        assert_eq!(holder(Sharing::Alone, UNKNOWN).as_deref(), Some(UNKNOWN));
    }

    #[test]
    fn an_exclusive_lease_contains_all_sides_and_a_shared_one_its_own() {
        let side = |sharing, side| -> Box<dyn Kind> { Box::new(Plain::new(sharing, side)) };
        let (write, read) = (side(Sharing::Alone, 0), side(Sharing::Together, 1));
        let contains = |one: &dyn Kind| [&write, &read].map(|wanted| one.contains(&**wanted));
        assert_eq!((contains(&*write), contains(&*read)), ([true, true], [false, true]));
        let shares = |one: &dyn Kind| [&write, &read].map(|other| one.is_shared_with(&**other));
        assert_eq!((shares(&*write), shares(&*read)), ([false, false], [false, true]));
    }
}
