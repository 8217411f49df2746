//! What a node answered in time, late, or not at all.

use std::sync::Arc;

use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::kind::Sharing;
use crate::engine::kind::plain::Plain;
use crate::key::LeaseId;
use crate::node::{Form, Node};
use crate::script::Reply;

const TTL: Duration = Duration::from_secs(10);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(ms))
}

fn sent<T>(sent_at: Timestamp) -> Vote<T> {
    Vote::of(Ok(Sent::in_vain(7, 1, at(0))), Form::PLAIN, sent_at)
}

#[test]
fn acquires_are_on_one_connection_or_on_several() {
    use Acquires::{None, On, OnSeveral};
    for (before, on, after) in [
        (None, Option::None, None),
        (None, Some(7), On(7)),
        (On(7), Option::None, On(7)),
        (On(7), Some(7), On(7)),
        (On(7), Some(8), OnSeveral),
        (OnSeveral, Some(7), OnSeveral),
    ] {
        assert_eq!(before.and(on), after, "{before:?} and {on:?}");
    }
}

#[tokio::test]
async fn the_only_node_is_known_by_its_last_answer_and_by_all_that_was_asked_of_it() {
    let mut renewal = Renewal::answered(at(0), 1, TTL);
    renewal.round.votes.push(sent(at(0)));
    let mut foothold = Foothold::default();
    foothold.confirmed(&renewal);
    assert_eq!(foothold.source(), renewal.source());
    assert_ne!(foothold.source(), Source::default());
    foothold.reclaimed(&renewal);
    assert_eq!(foothold.acquires(), Acquires::On(7));
}

/// It has the lease in its run 1, asked at 0.
fn confirmed() -> Foothold {
    let mut foothold = Foothold::default();
    foothold.confirm(1, TTL, at(0));
    foothold
}

fn answered(foothold: &mut Foothold, run: u64, held: bool, sent_at: Timestamp) -> bool {
    let mut vote = Vote::known(held);
    vote.run = run;
    foothold.renewed(&mut vote, sent_at, TTL, sent_at)
}

#[test]
fn a_lease_was_taken_away_if_it_is_missing_in_its_run_before_its_end() {
    assert!(confirmed().had() && !Foothold::default().had());
    for (run, asked_at, cleared) in
        [(1, 0, true), (1, 10_101, true), (1, 10_102, false), (2, 0, false), (2, 20_000, false)]
    {
        assert_eq!(confirmed().was_cleared(run, at(asked_at)), cleared, "{run} {asked_at}");
    }
    assert!(!Foothold::default().was_cleared(0, at(0)), "it never had it");
}

#[test]
fn the_longest_lease_of_a_run_is_the_one_that_is_remembered() {
    let mut foothold = confirmed();
    foothold.confirm(1, TTL / 10, at(1000));
    assert!(foothold.was_cleared(1, at(10_101)));
    foothold.confirm(1, TTL, at(2000));
    assert!(foothold.was_cleared(1, at(12_101)));
    foothold.confirm(2, TTL / 10, at(3000));
    assert!(!foothold.was_cleared(1, at(3000)) && !foothold.was_cleared(2, at(4012)));
    assert!(foothold.was_cleared(2, at(4011)));
}

#[test]
fn a_renewal_puts_the_lease_back_where_it_is_missing_and_was_not_taken_away() {
    assert!(answered(&mut Foothold::default(), 1, false, at(0)), "it never had it");
    assert!(answered(&mut confirmed(), 2, false, at(0)), "it restarted");
    assert!(answered(&mut confirmed(), 1, false, at(10_102)), "it ended by itself");
    assert!(!answered(&mut confirmed(), 1, false, at(10_101)), "it was taken away");
    let mut foothold = Foothold::default();
    assert!(!answered(&mut foothold, 1, true, at(0)));
    assert!(foothold.had() && foothold.was_cleared(1, at(10_101)));
    let mut failed: Vote<bool> = Vote::known(false);
    failed.answer = Some(Err(Fault::Closed));
    assert!(!confirmed().renewed(&mut failed, at(0), TTL, at(0)), "who knows");
}

#[test]
fn only_the_latest_renewal_is_looked_at_later() {
    let mut foothold = Foothold::default();
    assert_eq!(foothold.look_by(TTL), None);
    for (sent_at, look_by) in [(1000, 11_000), (2000, 12_000), (1500, 12_000)] {
        assert!(!foothold.renewed(&mut sent(at(sent_at)), at(sent_at), TTL, at(5000)));
        assert_eq!(foothold.look_by(TTL), Some(at(look_by)), "{sent_at}");
    }
}

#[test]
fn an_acquire_leaves_what_was_answered_or_what_is_to_be_looked_at() {
    let granted = |vote: Vote<Answer>, alone| {
        let acquires = Acquires::None.and(vote.sent_on());
        Foothold::granted(vote, acquires, at(1000), TTL, at(1000), alone)
    };
    let mut yes = sent(at(1000));
    (yes.sent, yes.answer) = (None, Some(Ok(Answer::granted(1))));
    let foothold = granted(yes, false);
    assert_eq!((foothold.acquires(), foothold.look_by(TTL)), (Acquires::On(7), None));
    assert!(foothold.had() && foothold.was_cleared(1, at(11_101)));
    let foothold = granted(sent(at(1000)), false);
    assert_eq!((foothold.acquires(), foothold.look_by(TTL)), (Acquires::On(7), Some(at(11_000))));
    assert!(!foothold.had());
    let foothold = granted(sent(at(1000)), true);
    assert_eq!((foothold.acquires(), foothold.look_by(TTL)), (Acquires::On(7), None), "alone");
    let unasked = Vote::known(Answer::granted(1));
    assert_eq!(granted(unasked, true).acquires(), Acquires::None);
}

/// Does something with a node that has no connection.
async fn with_node<T>(act: impl FnOnce(&Site, &Heal<'_>) -> T) -> T {
    let clock = Clock::of_this_runtime();
    let node = Site::Node(Node::unconnected(&clock));
    let quorum = Quorum::new(Vec::new(), clock, Arc::new(Config::default()), Arc::default());
    let ticket = Ticket { id: LeaseId("a:1".into()), entry: None, by_message: false };
    let heal = Heal {
        quorum: &quorum,
        kind: &Plain::new(Sharing::Alone, 0),
        ticket: &ticket,
        count: 1,
        ttl: TTL,
        block_end: 1,
    };
    act(&node, &heal)
}

/// Looks at `now` for what was asked at 0. Whether the lease is to be put back.
async fn look(foothold: &mut Foothold, now: Timestamp) -> bool {
    with_node(|node, heal| foothold.look(node, heal, now)).await
}

fn late(foothold: &mut Foothold, asked: Asked, answer: Option<Result<Reply, Fault>>) {
    let sent = match answer {
        Some(answer) => Sent::answered(7, 1, answer),
        None => Sent::in_vain(7, 1, at(0)),
    };
    foothold.memory().late = Some(Late { sent, sent_at: at(0), asked, _behind: None });
}

const YES: Option<Result<Reply, Fault>> = Some(Ok(Reply::Number(1)));
const NO: Option<Result<Reply, Fault>> = Some(Ok(Reply::Number(0)));

#[tokio::test]
async fn a_late_answer_is_looked_for_until_its_time_is_over() {
    let mut foothold = Foothold::default();
    assert!(!look(&mut foothold, at(0)).await, "nothing is late");
    // The answer to a call is waited for for a second.
    for (now, stays) in [(500, true), (999, true), (1000, false)] {
        late(&mut foothold, Asked::Acquire, None);
        assert!(!look(&mut foothold, at(now)).await);
        assert_eq!(foothold.look_by(TTL).is_some(), stays, "{now}");
    }
}

/// The lease may have ended there by itself: if it is missing later, nobody took it away.
#[tokio::test]
async fn an_answer_that_is_looked_at_when_its_lease_may_have_ended_says_nothing() {
    for asked in [Asked::Acquire, Asked::Renewal(TTL), Asked::Renewal(Duration::ZERO)] {
        for (now, had) in [(9_999, true), (10_000, false)] {
            let mut foothold = Foothold::default();
            late(&mut foothold, asked, YES);
            assert!(!look(&mut foothold, at(now)).await);
            assert_eq!(foothold.had(), had, "{now}");
            late(&mut foothold, asked, YES);
            assert!(!foothold.renewed(&mut sent(at(10)), at(10), TTL, at(10)));
            assert_eq!(answered(&mut foothold, 1, false, at(now + 1)), !had, "it is put back");
        }
    }
}

#[tokio::test]
async fn a_late_answer_to_an_acquire_says_that_the_node_has_the_lease_or_nothing() {
    for (answer, had) in [(YES, true), (NO, false), (Some(Err(Fault::Closed)), false)] {
        let mut foothold = Foothold::default();
        late(&mut foothold, Asked::Acquire, answer);
        assert!(!look(&mut foothold, at(500)).await);
        assert_eq!((foothold.had(), foothold.look_by(TTL)), (had, None));
        assert_eq!(foothold.was_cleared(1, at(10_601)), had, "from now on, for the TTL and a bit");
    }
    let mut foothold = Foothold::default();
    late(&mut foothold, Asked::Acquire, Some(Err(Fault::NoScript)));
    assert!(look(&mut foothold, at(500)).await, "it did not run");
}

#[tokio::test]
async fn a_late_answer_to_a_renewal_says_whether_the_lease_is_to_be_put_back() {
    let renewal = Asked::Renewal(TTL / 10);
    let mut foothold = Foothold::default();
    late(&mut foothold, renewal, YES);
    assert!(!look(&mut foothold, at(500)).await);
    assert!(foothold.was_cleared(1, at(10_601)), "maybe the acquire gave it for longer");
    late(&mut foothold, renewal, NO);
    assert!(!look(&mut foothold, at(500)).await, "it was taken away");
    let unreadable = Some(Ok(Reply::Nil));
    for (answer, missing) in [
        (NO, true),
        (unreadable, false),
        (Some(Err(Fault::Closed)), false),
        (Some(Err(Fault::NoScript)), false),
    ] {
        let mut foothold = Foothold::default();
        late(&mut foothold, renewal, answer);
        assert_eq!(look(&mut foothold, at(500)).await, missing);
        assert_eq!((foothold.had(), foothold.look_by(TTL)), (false, None));
    }
}

#[tokio::test]
async fn nothing_is_put_back_on_a_node_without_a_connection() {
    let mut foothold = Foothold::default();
    assert!(!with_node(|node, heal| foothold.heal(node, heal, at(0))).await);
    assert_eq!((foothold.acquires(), foothold.look_by(TTL)), (Acquires::None, None));
}

#[tokio::test]
async fn a_late_refusal_of_a_renewal_does_not_hide_that_the_acquire_before_it_was_granted() {
    for (answer, missing) in [(YES, false), (NO, true), (Some(Err(Fault::Closed)), true)] {
        let mut foothold = Foothold::default();
        late(&mut foothold, Asked::Acquire, answer);
        assert!(!foothold.renewed(&mut sent(at(10)), at(10), TTL, at(10)));
        late(&mut foothold, Asked::Renewal(Duration::ZERO), NO);
        assert_eq!(look(&mut foothold, at(500)).await, missing);
    }
}
