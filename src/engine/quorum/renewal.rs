//! The renewals of a lease, and what the answers say of it.

use std::time::Duration;

use super::Quorum;
use crate::clock::Timestamp;
use crate::engine::kind::Kind;
use crate::engine::round::{Round, Rules, Vote};
use crate::engine::tally::{Tally, Verdict};
use crate::error::Fault;
use crate::fleet::{Path, Site};
use crate::key::LeaseId;
use crate::node::{Sent, Source};
use crate::script::{Call, Reply};

/// A renewal on its way.
pub(crate) struct Renewal {
    pub(in crate::engine) round: Round<bool>,
    pub(crate) count: u32,
    pub(crate) ttl: Duration,
    /// It puts the lease back.
    pub(crate) reclaims: bool,
}

impl Renewal {
    /// Before its sending.
    pub(crate) fn sent_at(&self) -> Timestamp {
        self.round.sent_at
    }

    /// Returns the only server that it was sent to.
    pub(crate) fn source(&self) -> Source {
        self.round.votes.first().map_or(Source::default(), Vote::source)
    }
}

impl Quorum {
    /// Sends a renewal, to a lease that is known to be held.
    pub(crate) fn renew(
        &self,
        kind: &dyn Kind,
        id: &LeaseId,
        count: u32,
        ttl: Duration,
    ) -> Result<Renewal, Fault> {
        let round = Round::renew(&self.sites, &self.clock, kind.renew(id, count, ttl));
        self.pending(Renewal { round, count, ttl, reclaims: false })
    }

    /// Sends what puts a lease back on the only server, which has lost it. Like an acquire, it must be followed by a
    /// release. Its answer is read like that of a renewal, which it also is.
    pub(crate) fn reclaim(&self, call: Call, count: u32, ttl: Duration) -> Result<Renewal, Fault> {
        let round = Round::reclaim(&self.sites, &self.clock, call);
        self.pending(Renewal { round, count, ttl, reclaims: true })
    }

    /// Returns true if a lease that the server that answered `renewal` does not have may be put back there now.
    pub(crate) fn may_reclaim(&self, renewal: &Renewal, now: Timestamp) -> bool {
        let ([site], Some(vote)) = (&*self.sites, renewal.round.votes.first()) else {
            return false;
        };
        vote.sent_on().is_some_and(|on| site.reclaims(on, vote.run, now))
    }

    fn pending(&self, renewal: Renewal) -> Result<Renewal, Fault> {
        if renewal.round.votes.iter().any(|vote| vote.is_pending()) {
            return Ok(renewal);
        }
        Err(self.no_majority(renewal.round.faults(&Fault::Closed)))
    }

    /// Whether the lease is held still; a fault where that is not known. `again` sends the call again
    /// where it did not run, unless it is not wanted any more.
    pub(crate) async fn renewed(
        &self,
        kind: &dyn Kind,
        renewal: &mut Renewal,
        within: Duration,
        again: impl Fn(&Site, &Call, &Path) -> Result<Sent, Fault>,
    ) -> Result<bool, Fault> {
        let rules = Rules {
            sites: &self.sites,
            clock: &self.clock,
            until: renewal.round.sent_at.plus(within),
            read: |reply: &Reply| kind.read_renew(reply),
            again,
        };
        let decide = |votes: &[Vote<bool>], over| standing(votes, |held| *held).verdict(over);
        match renewal.round.settle(rules, decide).await {
            Some(Verdict::Yes) => Ok(true),
            Some(Verdict::No) => Ok(false),
            Some(Verdict::Unknown) | None => {
                Err(self.no_majority(renewal.round.faults(&self.silence(within))))
            }
        }
    }
}

/// What the answers about a lease come to. A key that holds something else by now has no lease any more.
pub(super) fn standing<T>(votes: &[Vote<T>], held: impl Fn(&T) -> bool) -> Tally {
    let mut tally = Round::tally(votes, held);
    let overwritten = votes.iter().filter(|vote| is_overwritten(vote)).count();
    tally.failed -= overwritten;
    tally.no += overwritten;
    tally
}

pub(super) fn is_overwritten<T>(vote: &Vote<T>) -> bool {
    matches!(vote.answer, Some(Err(Fault::WrongType)))
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::clock::Clock;
    use crate::node::Form;
    use crate::script::LOCK_RENEW;

    impl Renewal {
        /// As it is known once it was answered.
        pub(crate) fn answered(sent_at: Timestamp, count: u32, ttl: Duration) -> Self {
            let clock = Clock::of_this_runtime();
            let call = Call { script: &LOCK_RENEW, keys: Vec::new(), args: Vec::new() };
            let mut round = Round::send(&[], &clock, call);
            round.sent_at = sent_at;
            Self { round, count, ttl, reclaims: false }
        }

        /// The same, with the answer of each node: held, or not, or none yet from a server in its run 1.
        pub(crate) fn answered_by(
            sent_at: Timestamp,
            ttl: Duration,
            nodes: impl IntoIterator<Item = Option<bool>>,
        ) -> Self {
            let mut renewal = Self::answered(sent_at, 1, ttl);
            let late = || Ok(Sent::in_vain(7, 1, Timestamp::default()));
            let vote = |held: Option<bool>| {
                held.map_or_else(|| Vote::of(late(), Form::PLAIN, sent_at), Vote::known)
            };
            renewal.round.votes.extend(nodes.into_iter().map(vote));
            renewal
        }
    }
}
