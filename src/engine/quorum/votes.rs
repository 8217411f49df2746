//! What the votes of an acquire say.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::engine::backoff::Standing;
use crate::engine::kind::{Answer, Refusal};
use crate::engine::round::Vote;
use crate::engine::tally::Election;

/// Whether a node may have something of the request. One that refused it has its entry, if it `queues`.
pub(super) fn may_have_it(vote: &Vote<Answer>, queues: bool) -> bool {
    match &vote.answer {
        None | Some(Ok(Answer::Granted { .. })) => true,
        Some(Ok(Answer::Refused(_))) => queues,
        Some(Err(_)) => vote.may_have_run(),
    }
}

pub(super) fn count(votes: &[Vote<Answer>]) -> Election {
    let mut election = Election::default();
    for vote in votes {
        *match (&vote.answer, vote.counts) {
            (Some(Ok(Answer::Granted { .. })), true) => &mut election.granted,
            (Some(Ok(Answer::Refused(_))), _) => &mut election.held,
            (Some(_), _) => &mut election.failed,
            (None, true) => &mut election.pending,
            (None, false) => &mut election.pending_void,
        } += 1;
    }
    election
}

pub(super) fn counted_end(vote: &Vote<Answer>) -> Option<u64> {
    match vote.value() {
        Some(Answer::Granted { block_end, .. }) if vote.counts => Some(*block_end),
        _ => None,
    }
}

pub(super) fn refusal(vote: &Vote<Answer>) -> Option<&Refusal> {
    match vote.value() {
        Some(Answer::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}

/// How a node stands once what it granted is released again.
pub(super) fn standing(
    vote: &Vote<Answer>,
    counts_from: impl FnOnce() -> Timestamp,
    now: Timestamp,
) -> Standing {
    match vote.value() {
        Some(Answer::Granted { .. }) if vote.counts => Standing::Free,
        Some(Answer::Granted { .. }) => Standing::Away { until: counts_from() },
        Some(Answer::Refused(Refusal { remaining: Some(remaining), .. })) => {
            // A key is gone a little after its last millisecond began.
            Standing::Away { until: now.plus(*remaining + Duration::from_millis(1)) }
        }
        // It was not waited for: a grant of it would not count.
        None if vote.is_pending() && !vote.counts => Standing::Away { until: counts_from() },
        _ => Standing::Away { until: Timestamp::NEVER },
    }
}

#[cfg(test)]
mod tests;
