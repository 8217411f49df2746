//! How votes are counted, and what they say of each node.

use super::*;
use crate::error::Fault;
use crate::key::Holder;
use crate::node::{Form, Sent};

const NOW: Timestamp = Timestamp::from_origin(Duration::from_secs(9));
const TRUSTED_AT: Timestamp = Timestamp::from_origin(Duration::from_secs(60));

/// Not answered yet by a server that counts, or by one in quarantine.
fn pending(counts: bool) -> Vote<Answer> {
    let counts_from = if counts { Timestamp::default() } else { TRUSTED_AT };
    Vote::of(Ok(Sent::in_vain(1, 1, counts_from)), Form::VOTE, NOW)
}

fn answered(counts: bool, answer: Result<Answer, Fault>) -> Vote<Answer> {
    let mut vote = pending(counts);
    (vote.sent, vote.answer) = (None, Some(answer));
    vote
}

fn granted(counts: bool) -> Vote<Answer> {
    answered(counts, Ok(Answer::granted(7)))
}

fn refused(counts: bool, remaining: Option<Duration>) -> Vote<Answer> {
    let holder = Holder::new("another:0");
    let refusal = Refusal { holder, owner: None, remaining, subscribers: 0, queue: None };
    answered(counts, Ok(Answer::Refused(refusal)))
}

fn failed(counts: bool) -> Vote<Answer> {
    answered(counts, Err(Fault::Closed))
}

#[test]
fn every_vote_is_counted_once_and_a_grant_only_of_a_server_that_counts() {
    let votes = [
        [granted(true), granted(true), granted(false)],
        [refused(true, None), refused(false, None), refused(true, None)],
        [failed(true), failed(false), failed(true)],
        [pending(true), pending(false), pending(false)],
    ];
    let election = count(&votes.into_iter().flatten().collect::<Vec<_>>());
    assert_eq!((election.granted, election.held, election.failed), (2, 3, 4));
    assert_eq!((election.pending, election.pending_void), (1, 2));
    let ends = [granted(true), granted(false), refused(true, None)].map(|vote| counted_end(&vote));
    assert_eq!(ends, [Some(7), None, None]);
    assert!(refusal(&refused(false, None)).is_some() && refusal(&granted(true)).is_none());
}

#[test]
fn a_node_is_free_at_once_when_its_quarantine_ends_when_the_lease_does_or_nobody_knows_when() {
    let until = |until| Standing::Away { until };
    let remaining = Duration::from_millis(5);
    let ends_at = NOW.plus(Duration::from_millis(6));
    for (vote, stands) in [
        (granted(true), Standing::Free),
        (granted(false), until(TRUSTED_AT)),
        (refused(true, Some(remaining)), until(ends_at)),
        (refused(false, Some(remaining)), until(ends_at)),
        (refused(true, None), until(Timestamp::NEVER)),
        (pending(false), until(TRUSTED_AT)),
        (pending(true), until(Timestamp::NEVER)),
        (failed(false), until(Timestamp::NEVER)),
    ] {
        let (answer, counts) = (format!("{:?}", vote.answer), vote.counts);
        assert_eq!(standing(&vote, || TRUSTED_AT, NOW), stands, "{answer} {counts}");
    }
}
