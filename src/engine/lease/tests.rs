//! Leases without servers.

use tokio::runtime::Handle;

use super::*;
use crate::clock::{SystemEntropy, SystemTimeSource};
use crate::config::Config;
use crate::engine::kind::Sharing;
use crate::engine::kind::plain::Plain;
use crate::engine::round::PerNode;
use crate::events::Events;

const TTL: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(3600);
const WATCHED: LeaseTerms = LeaseTerms::Watched(TTL);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(ms))
}

/// It began at 1000, is ours until 30 000, and has the tokens from 100 to 109.
fn begun(terms: Terms) -> (Lease, Arc<Events>) {
    let clock = Clock::new(Arc::new(SystemTimeSource), Arc::new(SystemEntropy), Handle::current());
    let events = Arc::<Events>::default();
    let quorum =
        Quorum::new(Vec::new(), clock.clone(), Arc::new(Config::default()), events.clone());
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
        footholds: PerNode::new(),
    };
    let kind = Arc::new(Plain::new(Sharing::Alone, 0));
    (Lease::new(grant, terms, kind, Arc::new(quorum), clock, Arc::default()), events)
}

fn watched() -> Lease {
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
    let token = |lease: &Lease, now, terms, window| {
        lease.hand_off(now, terms, window).map(|(token, _)| token)
    };
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
    assert_eq!(lease.first_look(), at(11_000), "a third of the TTL");
    assert_eq!(lease.limit(None), None);
    let limit = Some(Duration::from_secs(5));
    assert_eq!(lease.limit(limit), Some(at(30_000)), "it is not renewed any more");
    assert_eq!(lease.limit(limit), None);
    assert_eq!(lease.limit_from(at(10_000), limit), Some(at(11_000)));
    let handed = Terms { max_hold: limit, ..Terms::of(WATCHED) };
    let look_at = lease.hand_off(at(10_000), handed, LONG).map(|(_, look_at)| look_at);
    assert_eq!(look_at, Some(None));
    let look_at = lease.hand_off(at(2000), handed, LONG).map(|(_, look_at)| look_at);
    assert_eq!(look_at, Some(Some(at(30_000))));
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
