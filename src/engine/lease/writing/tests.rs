use super::super::tests::{LONG, TTL, WATCHED, at, begun, begun_on, failed, renewal, watched};
use super::*;
use crate::engine::lease::state::News;

#[tokio::test]
async fn a_count_that_was_written_is_not_written_again() {
    let lease = watched();
    assert!(lease.set_count(3).is_none(), "there is nobody to tell");
    assert!(!lease.state.lock().count_in_flight);
    let mut state = lease.state.lock();
    (state.count_in_flight, state.look_at) = (true, at(5000));
    state.news.push(News::PutBack { node: "nowhere".into() });
    drop(state);
    assert!(
        lease.count_written(&mut Renewal::answered(at(2000), 3, TTL), Ok(true), at(3000)).is_none()
    );
    let state = lease.state.lock();
    assert!(state.look_at == Timestamp::NEVER && state.news.is_empty());
    drop(state);
    let written = |lease: &Lease| {
        let state = lease.state.lock();
        (state.count, state.count_written, state.count_in_flight)
    };
    assert_eq!(written(&lease), (3, 3, false));
    lease.state.lock().count_in_flight = true;
    assert!(lease.count_written(&mut renewal(), Err(failed()), at(3000)).is_none());
    assert_eq!(written(&lease), (3, 3, false));
}

/// An answer may have waited while this process was stopped.
#[tokio::test]
async fn what_is_heard_behind_the_end_puts_nothing_back() {
    let (lease, _) = begun_on(1, Terms::of(LeaseTerms::Fixed(TTL)));
    lease.state.lock().count_in_flight = true;
    let mut asked = Renewal::answered_by(at(2000), Duration::ZERO, [None]);
    assert!(lease.count_written(&mut asked, Ok(false), at(30_000)).is_none());
    assert_eq!(
        lease.loss(),
        Some(LossReason::Ended),
        "it was not asked whether it may be put back"
    );
    let (lease, _) = begun_on(1, Terms::of(LeaseTerms::Fixed(TTL)));
    let missing = lease.not_widened(&asked, at(30_000));
    assert!(matches!(missing, Missing::Lost(LossReason::Ended)));
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
