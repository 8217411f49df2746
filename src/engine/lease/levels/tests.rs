use std::time::Duration;

use super::super::tests::{WATCHED, at, watched};
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::error::LossReason;

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
    assert_eq!(lease.take_up(level, terms, at(2000), at(2000)), (true, None));
    assert_eq!(lease.state.lock().renew_until, Timestamp::NEVER);
    lease.state.lock().renew_at = at(13_000);
    let (late, look_at) = lease.offer(terms, at(2000));
    assert_eq!(look_at, None, "others use it");
    lease.leave(level);
    assert_eq!(lease.take_up(late, terms, at(2000), at(2000)), (true, Some(at(13_000))));
    let limited = Terms { max_hold: Some(Duration::from_secs(5)), ..terms };
    assert!(lease.take_up(late, limited, at(2000), at(2000)).0);
    assert_eq!(lease.state.lock().renew_until, at(7000), "counted from when it was given");
    lease.await_take_up(late, terms, at(3000));
    assert_eq!(lease.state.lock().renew_until, at(13_001), "also one that has entered already");
    lease.lose(LossReason::Gone);
    assert!(!lease.take_up(late, terms, at(2000), at(2000)).0);
    let stood_still = watched();
    let (level, _) = stood_still.offer(terms, at(2000));
    assert!(!stood_still.take_up(level, terms, at(2000), at(30_000)).0, "nobody has looked yet");
}

#[tokio::test]
async fn its_levels_are_never_out_of_numbers() {
    let lease = watched();
    lease.state.lock().next_level = u32::MAX.into();
    let (first, _) = lease.enter(Terms::of(WATCHED), at(2000));
    let (second, _) = lease.enter(Terms::of(WATCHED), at(2000));
    assert!(first < second);
}
