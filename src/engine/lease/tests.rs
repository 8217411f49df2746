//! Leases, without their servers.

use std::sync::atomic::Ordering;

use super::reclaiming::Missing;
use super::*;
use crate::config::{Config, drift};
use crate::engine::kind::Sharing;
use crate::engine::kind::plain::Plain;
use crate::engine::quorum::{Foothold, Renewal};
use crate::engine::round::PerNode;
use crate::error::Fault;
use crate::events::Events;
use crate::fleet::Site;
use crate::node::Node;

pub(super) const TTL: Duration = Duration::from_secs(30);
pub(super) const LONG: Duration = Duration::from_secs(3600);
pub(super) const WATCHED: LeaseTerms = LeaseTerms::Watched(TTL);

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(ms))
}

/// It lives on three servers that nothing reaches. It began at 1000, is ours until 30 000, and has the tokens from 100 to 109.
pub(super) fn begun(terms: Terms) -> (Lease, Arc<Events>) {
    begun_on(3, terms)
}

/// The same on so many servers.
pub(super) fn begun_on(nodes: usize, terms: Terms) -> (Lease, Arc<Events>) {
    let (quorum, clock, events) = servers(nodes);
    let kind = Arc::new(Plain::new(Sharing::Alone, 0));
    (Lease::new(grant(nodes), terms, kind, quorum, clock, Arc::default()), events)
}

/// What so many servers have granted.
pub(crate) fn grant(nodes: usize) -> Grant {
    Grant {
        ticket: Ticket { id: LeaseId("a:1".into()), entry: None, by_message: false },
        ttl: TTL,
        lasts: TTL,
        began_at: at(1000),
        passes_from: at(1000),
        deadline: at(30_000),
        ends_by: at(31_000),
        block: 10,
        block_end: 109,
        before: Some(50),
        footholds: PerNode::from_iter((0..nodes).map(|_| Foothold::default())),
    }
}

/// So many servers that nothing reaches.
pub(crate) fn servers(nodes: usize) -> (Arc<Quorum>, Clock, Arc<Events>) {
    let clock = Clock::of_this_runtime();
    let events = Arc::<Events>::default();
    let sites = (0..nodes).map(|_| Site::Node(Node::unconnected(&clock))).collect();
    let quorum = Quorum::new(sites, clock.clone(), Arc::new(Config::default()), events.clone());
    (Arc::new(quorum), clock, events)
}

pub(crate) fn watched() -> Lease {
    begun(Terms::of(WATCHED)).0
}

#[tokio::test]
async fn it_ends_once_however_often_it_is_ended() {
    let end = |lease: &Lease, how: &str| match how {
        "lost" => lease.lose(LossReason::Gone),
        "over" => {
            let _ = lease.check(at(30_000));
        }
        "retired" => lease.retire(),
        _ => drop(lease.release()),
    };
    let ends = ["lost", "over", "retired", "released"];
    for first in ends {
        let (lease, events) = begun(Terms::of(WATCHED));
        assert_eq!((events.holds(), lease.is_over()), (1, false));
        end(&lease, first);
        assert_eq!((events.holds(), lease.is_over()), (0, true), "{first}");
        for next in ends {
            end(&lease, next);
            assert_eq!(events.holds(), 0, "{first}, then {next}");
        }
    }
}

#[tokio::test]
async fn its_tokens_are_given_out_one_by_one_and_each_knows_the_one_before() {
    let lease = watched();
    assert_eq!(lease.tokens_used(), 0);
    for used in 1..=10 {
        assert_eq!((lease.take_token(), lease.tokens_used()), (Some(99 + used), used));
    }
    assert_eq!((lease.take_token(), lease.tokens_used()), (None, 10));
    assert_eq!(lease.token_before(100), Some(50), "that of another");
    assert_eq!((lease.token_before(101), lease.token_before(109)), (Some(100), Some(108)));
}

#[tokio::test]
async fn the_next_hold_gets_it_while_it_is_young_and_far_from_its_end() {
    let token = |lease: &Lease, now, terms, window| lease.hand_off(now, terms, window);
    let terms = Terms::of(WATCHED);
    let (lease, window) = (watched(), Duration::from_millis(10));
    assert_eq!(token(&lease, at(1010), terms, window), None, "its window is over");
    assert_eq!(token(&lease, at(1010).minus(Duration::from_nanos(1)), terms, window), Some(100));
    assert_eq!(token(&lease, at(15_000), terms, LONG), None, "half of its time is over");
    assert_eq!(token(&lease, at(14_999), terms, LONG), Some(101));
    assert_eq!(token(&lease, at(999), terms, LONG), None, "somebody asked for more");
    assert_eq!(token(&lease, at(1000), terms, LONG), Some(102));
    for other in [
        Terms::of(LeaseTerms::Fixed(TTL)),
        Terms::of(LeaseTerms::Watched(TTL * 2)),
        Terms { min_hold: Duration::from_millis(1), ..terms },
    ] {
        assert_eq!(token(&lease, at(1000), other, LONG), None, "{other:?}");
    }
    lease.keep_until(at(2000));
    lease.keep_until(at(1500));
    assert_eq!(token(&lease, at(1999), terms, LONG), None, "it is kept for its last user");
    assert_eq!(token(&lease, at(2000), terms, LONG), Some(103));
    lease.retire();
    assert_eq!(token(&lease, at(2000), terms, LONG), None, "it has ended");
}

#[tokio::test]
async fn one_more_may_use_it_until_half_of_its_time_is_over() {
    let lease = watched();
    assert!(lease.has_time(at(14_999)) && !lease.has_time(at(15_000)));
    lease.lose(LossReason::Gone);
    assert!(!lease.has_time(at(1000)));
}

/// Of one that nobody renews, a small part that is left says nothing of the renewals.
#[tokio::test]
async fn only_of_one_that_is_renewed_still_a_part_is_left() {
    let part = |lease: &Lease, ms| lease.part_left(at(ms)).map(|part| (part * 100.0).round());
    let max_hold = Some(Duration::from_secs(10));
    let (lease, _) = begun(Terms { max_hold, ..Terms::of(WATCHED) });
    assert_eq!((part(&lease, 10_500), part(&lease, 11_000)), (Some(65.0), None));
    assert_eq!(part(&begun(Terms::of(LeaseTerms::Fixed(TTL))).0, 10_500), None);
}

#[tokio::test]
async fn it_counts_as_confirmed_and_written_from_the_beginning() {
    for (terms, is_watched) in [(WATCHED, true), (LeaseTerms::Fixed(TTL), false)] {
        let (lease, _) = begun(Terms::of(terms));
        let state = lease.state.lock();
        assert!(
            state.confirmed
                && !state.renewing
                && state.doubted_at.is_none()
                && !state.count_in_flight
        );
        assert_eq!((state.watched, state.count, state.count_written), (is_watched, 1, 1));
    }
}

#[test]
fn a_place_is_taken_once() {
    let place = Place::default();
    assert_eq!(place.take(), None);
    place.set(Some(at(5)));
    assert_eq!((place.take(), place.take()), (Some(at(5)), None));
    place.set(Some(at(5)));
    place.set(None);
    assert_eq!(place.take(), None);
}

/// What a renewal says that was sent at 2000.
pub(super) fn renewal() -> Renewal {
    Renewal::answered(at(2000), 1, TTL)
}

pub(super) fn failed() -> Fault {
    Fault::NoAnswer(TTL)
}

#[tokio::test]
async fn nothing_is_sent_before_it_is_due() {
    let lease = watched();
    let due = lease.due(at(10_999));
    assert!(due.renewal.is_none() && lease.state.lock().confirmed);
    assert_eq!(due.next_at, Some(at(11_000)));
    // It cannot be sent, and is tried again soon.
    let next_at = lease.due(at(11_000)).next_at.expect("it is held");
    assert!(at(11_000) < next_at && next_at <= at(12_000), "{next_at:?}");
    let over = lease.due(at(30_000));
    assert!(over.renewal.is_none() && over.next_at.is_none() && lease.is_over());
}

#[tokio::test]
async fn late_answers_are_looked_for_at_the_very_time() {
    let lease = watched();
    lease.state.lock().look_at = at(5000);
    assert_eq!(lease.due(at(4999)).next_at, Some(at(5000)));
    assert_eq!(lease.due(at(5000)).next_at, Some(at(11_000)), "there were none");
    assert_eq!(lease.state.lock().ends_by, at(31_000), "nothing was put back");
}

#[tokio::test]
async fn one_in_doubt_is_renewed_now_and_once_more_behind_what_is_on_its_way() {
    let lease = watched();
    assert_eq!(lease.hurry(at(3000)).next_at, Some(at(3000)));
    lease.state.lock().renewing = true;
    assert_eq!(lease.hurry(at(4000)).next_at, Some(at(30_000)));
    // The old server may still say that it has it.
    for answer in [Ok(true), Err(failed())] {
        let due = lease.renewed(&mut renewal(), answer, at(5000));
        assert!(due.next_at.is_some_and(|next_at| next_at <= at(5000)), "at once");
    }
    let later = || Renewal::answered(at(5000), 1, TTL);
    let due = lease.renewed(&mut later(), Err(failed()), at(6000));
    assert!(due.next_at.is_some_and(|next_at| next_at > at(6000)), "only once");
    let due = lease.renewed(&mut later(), Ok(true), at(7000));
    assert_eq!(due.next_at, Some(at(15_000)), "it is not in doubt any more");
    lease.retire();
    assert!(lease.hurry(at(6000)).next_at.is_none());
}

#[tokio::test]
async fn a_fixed_lease_in_doubt_is_asked_about_until_that_is_answered() {
    let (lease, _) = begun(Terms::of(LeaseTerms::Fixed(TTL)));
    let asks_at = |due: Due| due.next_at.filter(|next_at| *next_at < at(30_000));
    assert_eq!(asks_at(lease.due(at(3000))), None);
    // It cannot be sent, and is tried again before long.
    let mut now = at(3000);
    let mut next = asks_at(lease.hurry(now)).expect("it is asked again");
    for _ in 0..3 {
        assert!(now < next && next <= now.plus(Duration::from_secs(1)), "{now:?} {next:?}");
        now = next;
        next = asks_at(lease.due(now)).expect("it is asked again");
    }
    let asks = |lease: &Lease| lease.next_look() < Some(at(30_000));
    // What was answered before it was in doubt says nothing, and neither does no answer.
    for (sent_at, answer, again) in
        [(at(2000), Ok(true), true), (at(4000), Err(failed()), true), (at(4000), Ok(true), false)]
    {
        lease.state.lock().count_in_flight = true;
        assert!(!asks(&lease), "one at a time");
        let mut asked = Renewal::answered(sent_at, 1, Duration::ZERO);
        assert!(lease.count_written(&mut asked, answer, at(4000)).is_none());
        assert_eq!(asks(&lease), again, "{sent_at:?}");
    }
    lease.hurry(at(5000));
    let mut reclaim = Renewal::answered(at(6000), 1, TTL);
    lease.renewed(&mut reclaim, Err(failed()), at(6000));
    assert!(asks(&lease), "it could not be put back");
}

#[tokio::test]
async fn a_renewal_that_was_answered_counts_from_its_sending() {
    let (lease, events) = begun(Terms::of(WATCHED));
    lease.state.lock().renewing = true;
    // What was not waited for is looked at, too.
    lease.state.lock().look_at = at(5000);
    let due = lease.renewed(&mut renewal(), Ok(true), at(3000));
    assert!(due.renewal.is_none());
    assert_eq!(due.next_at, Some(at(12_000)), "a third of its time later");
    assert_eq!(lease.remaining(at(3000)), at(32_000).minus(drift(TTL)).since(at(3000)));
    let state = lease.state.lock();
    assert!(state.confirmed && !state.renewing && state.news.is_empty());
    assert_eq!(state.ends_by, at(31_000), "what was asked for was noted when it was sent");
    assert_eq!(events.locks_reclaimed.load(Ordering::Relaxed), 0, "it was never missing");
}

#[tokio::test]
async fn a_renewal_without_an_answer_changes_nothing_and_is_told() {
    let lease = watched();
    lease.state.lock().renewing = true;
    lease.state.lock().look_at = at(9000);
    let due = lease.renewed(&mut renewal(), Err(failed()), at(3000));
    assert!(due.next_at.is_some_and(|next_at| at(3000) < next_at && next_at <= at(4000)));
    let state = lease.state.lock();
    assert_eq!((state.deadline, state.look_at), (at(30_000), Timestamp::NEVER));
    assert!(!state.confirmed && !state.renewing && state.news.is_empty());
}

#[tokio::test]
async fn a_renewal_is_not_taken_in_behind_the_end() {
    for answer in [Ok(true), Ok(false), Err(failed())] {
        let lease = watched();
        lease.retire();
        let due = lease.renewed(&mut renewal(), answer.clone(), at(3000));
        assert!(due.next_at.is_none() && lease.loss().is_none(), "released, then {answer:?}");
        let lease = watched();
        let due = lease.renewed(&mut renewal(), answer.clone(), at(30_000));
        assert!(due.next_at.is_none(), "too late, then {answer:?}");
        assert_eq!(lease.loss(), Some(LossReason::NotRenewed));
    }
}

#[tokio::test]
async fn one_that_the_servers_do_not_have_is_lost() {
    let how: [fn(&Lease); 3] = [
        |lease| assert!(lease.renewed(&mut renewal(), Ok(false), at(3000)).next_at.is_none()),
        |lease| assert!(lease.count_written(&mut renewal(), Ok(false), at(3000)).is_none()),
        |lease| {
            let missing = lease.not_widened(&renewal(), at(3000));
            assert!(matches!(missing, Missing::Lost(LossReason::Gone)));
        },
    ];
    for learns in how {
        let lease = watched();
        lease.state.lock().deadline = lease.clock.now().plus(TTL);
        learns(&lease);
        assert_eq!(lease.loss(), Some(LossReason::Gone));
        // Known already.
        learns(&lease);
    }
}

/// There is no server that could say that no grant to others counts yet.
#[tokio::test]
async fn one_that_was_put_back_too_late_is_lost() {
    let reclaimed = || Renewal { reclaims: true, ..renewal() };
    let lease = watched();
    assert!(lease.renewed(&mut reclaimed(), Ok(true), at(3000)).next_at.is_none());
    assert_eq!(lease.loss(), Some(LossReason::Failover));
    let lease = watched();
    let widened = lease.widened(&mut reclaimed(), Terms::of(WATCHED), at(3000));
    assert_eq!((widened, lease.loss()), (Err(LossReason::Failover), Some(LossReason::Failover)));
}

/// The request was sent before the lease was put back, and only its answer comes later.
#[tokio::test]
async fn an_answer_from_before_it_was_put_back_says_nothing() {
    let from = |ms| Renewal::answered_by(at(ms), TTL, [None]);
    let put_back = || {
        let (lease, _) = begun_on(1, Terms::of(WATCHED));
        let reclaim = Renewal { reclaims: true, ..from(2500) };
        let mut state = lease.state.lock();
        state.footholds[0].reclaimed(&reclaim);
        lease.noted(&mut state, &reclaim);
        drop(state);
        lease
    };
    let lease = put_back();
    for ms in [2400, 2500] {
        assert!(matches!(lease.not_widened(&from(ms), at(3000)), Missing::Unknown(_)), "{ms}");
        assert_eq!(lease.loss(), None);
    }
    let due = lease.renewed(&mut from(2400), Ok(false), at(3000));
    assert!(due.next_at.is_some_and(|next_at| next_at <= at(4000)), "it is asked again");
    assert!(matches!(lease.not_widened(&from(2501), at(3000)), Missing::Lost(LossReason::Gone)));
    // Nor is where it was before what an earlier answer says.
    let lease = put_back();
    lease.noted(&mut lease.state.lock(), &Renewal::answered_by(at(2400), TTL, [Some(true)]));
    assert_eq!(lease.state.lock().footholds[0].source(), from(2500).source());
}
