use super::*;

const TTL: Duration = Duration::from_secs(30);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(ms))
}

/// It is ours until 30 000, and renewed at 10 000.
fn state() -> State {
    State {
        phase: Phase::Held,
        deadline: at(30_000),
        ttl: TTL,
        lasts: TTL,
        ends_by: at(31_000),
        watched: true,
        renew_until: Timestamp::NEVER,
        levels: SmallVec::from_buf([Level { number: 0, until: Timestamp::NEVER }]),
        next_level: 0,
        keep_until: Timestamp::default(),
        renew_at: at(10_000),
        renewing: false,
        doubted_at: None,
        ask_at: Timestamp::default(),
        footholds: PerNode::new(),
        look_at: Timestamp::NEVER,
        confirmed: true,
        count: 1,
        count_written: 1,
        count_in_flight: false,
        next_token: 5,
        block_end: 6,
        block: 2,
        user: None,
        news: Vec::new(),
    }
}

#[test]
fn it_is_lost_at_its_deadline_and_only_once() {
    let mut one = state();
    assert_eq!((one.expire(at(29_999)), one.phase), (None, Phase::Held));
    assert_eq!(one.expire(at(30_000)), Some(LossReason::NotRenewed));
    assert_eq!(one.phase, Phase::Lost(LossReason::NotRenewed));
    assert_eq!(one.expire(at(30_000)), None, "that is no news");
    let mut released = State { phase: Phase::Released, ..state() };
    assert_eq!((released.expire(at(99_000)), released.phase), (None, Phase::Released));
}

#[test]
fn one_that_nothing_renews_any_more_ends() {
    for (watched, renew_until, reason) in [
        (true, at(30_001), LossReason::NotRenewed),
        (true, at(30_000), LossReason::Ended),
        (false, Timestamp::NEVER, LossReason::Ended),
    ] {
        let mut one = State { watched, renew_until, ..state() };
        assert_eq!(one.expire(at(30_000)), Some(reason));
    }
}

#[test]
fn the_next_event_is_a_renewal_the_deadline_or_a_late_answer() {
    assert_eq!(state().next_at(), at(10_000));
    assert_eq!(State { renewing: true, ..state() }.next_at(), at(30_000));
    assert_eq!(State { watched: false, ..state() }.next_at(), at(30_000));
    assert_eq!(State { look_at: at(9000), ..state() }.next_at(), at(9000));
    let last = |renew_until| State { renew_until, ..state() };
    assert_eq!(last(at(10_000)).next_at(), at(30_000));
    assert_eq!(last(at(10_001)).next_at(), at(10_000));
}

#[test]
fn another_limit_tells_when_to_look_and_the_same_one_does_not() {
    let mut one = state();
    let mut limit = |until| {
        one.limit(0, until);
        (one.settle(), one.renew_until)
    };
    assert_eq!(limit(Timestamp::NEVER), (None, Timestamp::NEVER));
    assert_eq!(limit(at(5000)), (Some(at(30_000)), at(5000)));
    assert_eq!(limit(at(5000)), (None, at(5000)));
    assert_eq!(limit(Timestamp::NEVER), (Some(at(10_000)), Timestamp::NEVER));
}

#[test]
fn it_is_renewed_for_as_long_as_any_wants_who_uses_it() {
    let mut one = state();
    one.limit(0, at(5000));
    let [longer, shorter] = [at(9000), at(2000)].map(|until| one.enter(until));
    one.settle();
    assert_eq!((one.renew_until, one.until(longer)), (at(9000), Some(at(9000))));
    one.leave(longer);
    assert_eq!((one.renew_until, one.until(longer)), (at(5000), None));
    one.leave(longer);
    assert_eq!(one.levels.len(), 2, "it had left");
    one.leave(0);
    assert_eq!(one.renew_until, at(2000));
    one.leave(shorter);
    assert!(one.levels.is_empty() && one.until(shorter).is_none());
}

#[test]
fn what_the_last_one_wanted_stays_until_the_next_comes() {
    let mut one = state();
    one.leave(0);
    assert_eq!(one.renew_until, Timestamp::NEVER);
    let next = one.enter(at(5000));
    assert_eq!((one.settle(), one.renew_until), (Some(at(30_000)), at(5000)));
    one.limit(next + 1, at(9000));
    assert_eq!(one.settle(), None, "nobody has that number");
}

#[test]
fn the_longest_end_that_was_asked_for_stays() {
    let mut one = state();
    one.asked_for(TTL, at(500));
    assert_eq!(one.ends_by, at(31_000));
    one.asked_for(TTL, at(2000));
    assert_eq!(one.ends_by, at(32_000));
}

#[test]
fn tokens_are_taken_until_the_block_is_empty_and_a_shared_lease_takes_none() {
    let mut one = state();
    assert_eq!([one.take_token(), one.take_token(), one.take_token()], [Some(5), Some(6), None]);
    let mut shared = State { block: 0, next_token: 7, ..state() };
    assert_eq!([shared.take_token(), shared.take_token()], [Some(6), Some(6)]);
}

#[tokio::test]
async fn a_confirmation_is_counted_from_its_sending_and_takes_nothing_away() {
    let late = Renewal::answered(at(9000), 3, TTL);
    let mut one =
        State { confirmed: false, doubted_at: Some(at(9000)), lasts: TTL / 10, ..state() };
    one.confirm(&late);
    let deadline = at(39_000).minus(drift(TTL));
    assert_eq!((one.deadline, one.lasts, one.renew_at), (deadline, TTL, at(19_000)));
    assert_eq!((one.confirmed, one.doubted_at, one.count_written), (true, None, 3));
    one.confirm(&Renewal::answered(at(9500), 2, TTL / 10));
    assert_eq!((one.deadline, one.lasts), (deadline, TTL), "a shorter one");
    one.confirm(&Renewal::answered(at(10_000), 2, TTL * 2));
    assert_eq!((one.ttl, one.lasts), (TTL, TTL), "a longer one, which is not asked for again");
    assert_eq!(one.deadline, at(70_000).minus(drift(TTL * 2)));
    one.confirm(&Renewal::answered(at(11_000), 2, TTL / 10));
    assert_eq!(one.renew_at, at(12_000), "it was lengthened by little");
    one.doubted_at = Some(at(12_001));
    one.confirm(&Renewal::answered(at(12_000), 2, TTL));
    assert!(one.doubted_at.is_some(), "it says nothing of later");
}

#[test]
fn a_short_first_grant_is_renewed_soon() {
    assert_eq!(first_renewal(TTL, TTL), TTL / 3);
    assert_eq!(first_renewal(TTL - Duration::from_millis(1), TTL), FIRST_RENEWAL);
    assert_eq!(first_renewal(FIRST_RENEWAL, TTL), FIRST_RENEWAL / 3);
}

#[test]
fn a_hold_without_a_limit_never_ends() {
    let watched = Terms::of(LeaseTerms::Watched(TTL));
    assert_eq!(end_of_hold(watched, at(1000)), Timestamp::NEVER);
    let limited = Terms { max_hold: Some(TTL), ..watched };
    assert_eq!(end_of_hold(limited, at(1000)), at(31_000));
    let fixed = Terms { lease: LeaseTerms::Fixed(TTL), ..limited };
    assert_eq!(end_of_hold(fixed, at(1000)), Timestamp::default());
}
