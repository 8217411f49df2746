//! Leases, without their servers.

use std::sync::atomic::Ordering;

use tokio::runtime::Handle;

use super::reclaiming::Missing;
use super::*;
use crate::clock::{SystemEntropy, SystemTimeSource};
use crate::config::{Config, drift};
use crate::engine::kind::Sharing;
use crate::engine::kind::plain::Plain;
use crate::engine::quorum::Foothold;
use crate::engine::round::PerNode;
use crate::error::Fault;
use crate::events::Events;
use crate::fleet::Site;
use crate::node::Node;

pub(super) const TTL: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(3600);
pub(super) const WATCHED: LeaseTerms = LeaseTerms::Watched(TTL);

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(ms))
}

/// It lives on three servers that nothing reaches. It began at 1000, is ours until 30 000, and has the tokens from 100 to 109.
fn begun(terms: Terms) -> (Lease, Arc<Events>) {
    begun_on(3, terms)
}

/// The same on so many servers.
pub(super) fn begun_on(nodes: usize, terms: Terms) -> (Lease, Arc<Events>) {
    let (quorum, clock, events) = servers(nodes);
    let grant = Grant {
        ticket: Ticket { id: LeaseId("a:1".into()), entry: None, by_message: false },
        ttl: TTL,
        lasts: TTL,
        began_at: at(1000),
        deadline: at(30_000),
        ends_by: at(31_000),
        block: 10,
        block_end: 109,
        before: Some(50),
        footholds: PerNode::from_iter((0..nodes).map(|_| Foothold::default())),
    };
    let kind = Arc::new(Plain::new(Sharing::Alone, 0));
    (Lease::new(grant, terms, kind, quorum, clock, Arc::default()), events)
}

/// So many servers that nothing reaches.
pub(crate) fn servers(nodes: usize) -> (Arc<Quorum>, Clock, Arc<Events>) {
    let clock = Clock::new(Arc::new(SystemTimeSource), Arc::new(SystemEntropy), Handle::current());
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

#[tokio::test]
async fn the_watchdog_learns_of_another_limit_and_of_none_that_is_the_same() {
    let lease = watched();
    assert_eq!(lease.next_look(), Some(at(11_000)), "a third of the TTL");
    let watched = Terms::of(WATCHED);
    let limited = Terms { max_hold: Some(Duration::from_secs(5)), ..watched };
    let (first, look_at) = lease.enter(watched, at(1000));
    assert_eq!(look_at, None);
    assert_eq!(lease.limit(first, limited, at(1000)), Some(at(30_000)), "it is not renewed");
    assert_eq!(lease.limit(first, limited, at(1000)), None);
    assert_eq!(lease.limit(first, limited, at(10_000)), Some(at(11_000)));
    let (longer, look_at) = lease.enter(limited, at(20_000));
    assert_eq!(
        (look_at, lease.state.lock().renew_until),
        (None, at(25_000)),
        "it looks then anyway"
    );
    assert_eq!(lease.enter(limited, at(15_000)).1, None, "that is sooner");
    let beside = lease.enter_beside(longer);
    lease.leave(longer);
    assert_eq!(lease.state.lock().renew_until, at(25_000), "it lasts as long");
    lease.leave(beside);
    assert_eq!(lease.state.lock().renew_until, at(20_000), "what is left");
}

#[tokio::test]
async fn what_nobody_takes_up_is_renewed_for_a_third_of_the_ttl_only() {
    let lease = watched();
    let terms = Terms::of(WATCHED);
    let (level, look_at) = lease.offer(terms, at(2000));
    assert_eq!(look_at, None, "one that is taken up at once costs the watchdog nothing");
    assert_eq!(lease.state.lock().renew_until, at(12_001));
    assert_eq!(lease.take_up(level, terms, at(2000)), (true, None));
    assert_eq!(lease.state.lock().renew_until, Timestamp::NEVER);
    lease.state.lock().renew_at = at(13_000);
    let (late, look_at) = lease.offer(terms, at(2000));
    assert_eq!(look_at, None, "others use it");
    lease.leave(level);
    assert_eq!(lease.take_up(late, terms, at(2000)), (true, Some(at(13_000))));
    let limited = Terms { max_hold: Some(Duration::from_secs(5)), ..terms };
    assert!(lease.take_up(late, limited, at(2000)).0);
    assert_eq!(lease.state.lock().renew_until, at(7000), "counted from when it was given");
    lease.await_take_up(late, terms, at(3000));
    assert_eq!(lease.state.lock().renew_until, at(13_001), "also one that has entered already");
    lease.lose(LossReason::Gone);
    assert!(!lease.take_up(late, terms, at(2000)).0);
}

#[tokio::test]
async fn it_counts_as_confirmed_and_written_from_the_beginning() {
    for (terms, is_watched) in [(WATCHED, true), (LeaseTerms::Fixed(TTL), false)] {
        let (lease, _) = begun(Terms::of(terms));
        let state = lease.state.lock();
        assert!(state.confirmed && !state.renewing && !state.hurried && !state.count_in_flight);
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
fn renewal() -> Renewal {
    Renewal::answered(at(2000), 1, TTL)
}

fn failed() -> Fault {
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
    assert!(!lease.state.lock().hurried);
    lease.state.lock().renewing = true;
    assert_eq!(lease.hurry(at(4000)).next_at, Some(at(30_000)));
    let due = lease.renewed(&mut renewal(), Err(failed()), at(5000));
    assert_eq!(due.next_at, Some(at(5000)), "at once");
    let due = lease.renewed(&mut renewal(), Err(failed()), at(5000));
    assert!(due.next_at.is_some_and(|next_at| next_at > at(5000)), "only once");
    lease.retire();
    assert!(lease.hurry(at(6000)).next_at.is_none());
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
        |lease| assert!(lease.count_written(&mut renewal(), Ok(false)).is_none()),
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

#[tokio::test]
async fn a_count_that_was_written_is_not_written_again() {
    let lease = watched();
    assert!(lease.set_count(3).is_none(), "there is nobody to tell");
    assert!(!lease.state.lock().count_in_flight);
    let mut state = lease.state.lock();
    (state.count_in_flight, state.look_at) = (true, at(5000));
    state.news.push(News::PutBack { node: "nowhere".into() });
    drop(state);
    assert!(lease.count_written(&mut Renewal::answered(at(2000), 3, TTL), Ok(true)).is_none());
    let state = lease.state.lock();
    assert!(state.look_at == Timestamp::NEVER && state.news.is_empty());
    drop(state);
    let written = |lease: &Lease| {
        let state = lease.state.lock();
        (state.count, state.count_written, state.count_in_flight)
    };
    assert_eq!(written(&lease), (3, 3, false));
    lease.state.lock().count_in_flight = true;
    assert!(lease.count_written(&mut renewal(), Err(failed())).is_none());
    assert_eq!(written(&lease), (3, 3, false));
}

#[tokio::test]
async fn only_what_would_end_too_soon_is_widened() {
    let fixed = |ttl| Terms::of(LeaseTerms::Fixed(ttl));
    let limited = |max_hold| Terms { max_hold: Some(max_hold), ..Terms::of(WATCHED) };
    let sends = |lease: &Lease, terms, now| lease.widen(1, terms, now).is_some();
    let lease = watched();
    assert!(!sends(&lease, Terms::of(WATCHED), at(3000)) && !sends(&lease, fixed(LONG), at(3000)));
    assert!(sends(&lease, Terms::of(LeaseTerms::Watched(TTL * 2)), at(3000)));
    // It is not renewed after 40 000.
    let until = |lease: &Lease, level| lease.state.lock().until(level);
    let level = lease.enter(fixed(LONG), at(3000)).0;
    assert_eq!((level, until(&lease, 1)), (1, Some(Timestamp::default())));
    let lasting = lease.enter(Terms::of(WATCHED), at(3000)).0;
    assert!(!sends(&lease, fixed(TTL / 2), at(3000)));
    assert_eq!(until(&lease, 1), Some(Timestamp::default()), "it lasts long enough");
    assert!(!sends(&lease, fixed(LONG), at(3000)));
    assert_eq!(until(&lease, 1), Some(at(3000).plus(LONG)), "also if the other leaves");
    lease.leave(lasting);
    assert_eq!(lease.state.lock().renew_until, at(3000).plus(LONG));
    lease.leave(level);
    assert!(sends(&lease, Terms::of(WATCHED), at(11_000)), "its renewal is overdue");
    lease.state.lock().renewing = true;
    assert!(!sends(&lease, Terms::of(WATCHED), at(11_000)));
    lease.state.lock().renewing = false;
    lease.enter(limited(TTL), at(10_000));
    assert!(sends(&lease, fixed(LONG), at(3000)) && !sends(&lease, fixed(TTL / 2), at(3000)));
    assert!(!sends(&lease, limited(LONG), at(3000)));
    let (lease, _) = begun(fixed(TTL));
    assert!(sends(&lease, Terms::of(WATCHED), at(3000)) && sends(&lease, fixed(TTL), at(3000)));
    assert!(!sends(&lease, fixed(TTL / 2), at(3000)));
    lease.retire();
    assert!(!sends(&lease, fixed(LONG), at(3000)));
    assert!(matches!(lease.lengthen(LONG), Err(Fault::Closed)));
}

#[tokio::test]
async fn an_inquiry_about_a_lease_that_was_given_back_or_lost_says_that_it_is_over() {
    let (lease, _) = begun(Terms::of(WATCHED));
    let said = lease.inquire(at(2000));
    assert!(matches!(said, Err(Unconfirmed::Unknown(_))), "nothing reaches its servers");
    lease.lose(LossReason::Gone);
    let said = lease.inquire(at(2000));
    assert!(matches!(said, Err(Unconfirmed::Lost(LossReason::Gone))));
    let (lease, _) = begun(Terms::of(WATCHED));
    lease.retire();
    let said = lease.inquire(at(2000));
    assert!(matches!(said, Err(Unconfirmed::Lost(LossReason::Ended))), "nobody uses it");
}

#[tokio::test]
async fn a_fixed_lease_that_was_widened_is_renewed_from_then_on() {
    let (lease, _) = begun(Terms::of(LeaseTerms::Fixed(TTL)));
    let terms = Terms::of(LeaseTerms::Watched(TTL * 2));
    lease.enter(terms, at(2000));
    let mut sent = Renewal::answered(at(2000), 1, TTL * 2);
    assert_eq!(lease.widened(&mut sent, terms, at(3000)), Ok(at(22_000)));
    let state = lease.state.lock();
    assert!(state.watched && state.ttl == TTL * 2);
    drop(state);
    // Shorter terms leave it as it is.
    let shorter = Terms::of(LeaseTerms::Watched(TTL));
    let mut sent = Renewal::answered(at(4000), 1, TTL);
    assert_eq!(lease.widened(&mut sent, shorter, at(5000)), Ok(at(14_000)));
    lease.retire();
    assert_eq!(lease.widened(&mut renewal(), terms, at(5000)), Err(LossReason::Ended));
    assert!(matches!(lease.not_widened(&renewal(), at(5000)), Missing::Lost(LossReason::Ended)));
}

/// What the server lacks later was taken away there, and is not put back.
#[tokio::test]
async fn a_widening_tells_which_server_has_it() {
    let (lease, _) = begun_on(1, Terms::of(LeaseTerms::Fixed(TTL)));
    let source = |lease: &Lease| lease.state.lock().footholds[0].source();
    let mut sent = Renewal::answered_by(at(2000), TTL, [None]);
    assert_ne!(source(&lease), sent.source());
    lease.widened(&mut sent, Terms::of(LeaseTerms::Fixed(TTL)), at(3000)).expect("it is held");
    assert_eq!(source(&lease), sent.source());
}

/// A fixed lease has no later renewal that would find out what the late one said.
#[tokio::test]
async fn an_answer_that_a_widening_did_not_wait_for_is_looked_at() {
    let (lease, _) = begun(Terms::of(LeaseTerms::Fixed(TTL)));
    let mut sent = Renewal::answered_by(at(2000), TTL, [Some(true), Some(true), None]);
    assert_eq!(lease.state.lock().look_at, Timestamp::NEVER);
    let next_at = lease.widened(&mut sent, Terms::of(LeaseTerms::Fixed(TTL)), at(3000));
    assert!(next_at.is_ok_and(|next_at| next_at < at(30_000)), "{next_at:?}");
    assert!(lease.state.lock().look_at < at(30_000));
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

#[tokio::test]
async fn its_levels_are_never_out_of_numbers() {
    let lease = watched();
    lease.state.lock().next_level = u32::MAX.into();
    let (first, _) = lease.enter(Terms::of(WATCHED), at(2000));
    let (second, _) = lease.enter(Terms::of(WATCHED), at(2000));
    assert!(first < second);
}
