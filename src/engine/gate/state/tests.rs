use super::*;
use crate::engine::kind::plain::Plain;
use crate::engine::kind::{InQueue, Kind, Sharing};
use crate::engine::lease::tests::{servers, watched};

const MS: Duration = Duration::from_millis(1);

fn at(after: Duration) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(9) + after)
}

fn refused_by(holder: &str) -> Refusal {
    let holder = Holder::new(holder);
    Refusal { holder, owner: None, remaining: None, subscribers: 0, queue: None }
}

#[test]
fn an_acquire_takes_a_token_for_each_hand_off_that_may_follow() {
    let watched = Terms::of(LeaseTerms::Watched(Duration::from_secs(30)));
    let fixed = Terms::of(LeaseTerms::Fixed(Duration::from_secs(30)));
    let block = |tokens_used, terms, others, window| {
        State { tokens_used, ..State::default() }.block(terms, others, window)
    };
    assert_eq!(block(1, watched, 0, 20 * MS), 1, "nobody is behind it");
    assert_eq!(block(9, watched, 0, 20 * MS), 18, "the last one passed from one to the next");
    let last_release = LastRelease::Pending { number: 1, since: at(MS) };
    let behind = State { last_release, ..State::default() };
    assert_eq!(behind.block(watched, 0, 20 * MS), 2, "another has just given it back");
    assert_eq!(block(9, fixed, 3, 20 * MS), 1, "it is not handed on");
    assert_eq!(block(0, watched, 3, 20 * MS), 4, "those who wait");
    assert_eq!(block(9, watched, 3, 20 * MS), 18, "twice what the last one used");
    assert_eq!(block(9, watched, 3, Duration::from_micros(7)), 7, "one in a microsecond");
    assert_eq!(block(9, watched, 3, Duration::ZERO), 1);
}

#[test]
fn an_answer_ends_the_trouble_and_what_was_known_before() {
    let trouble = Trouble { since: at(MS), fault: Fault::Closed };
    let refusal = SeenRefusal { refusal: refused_by("a"), at: at(MS) };
    let mut state = State {
        trouble: Some(Box::new(trouble)),
        refusal: Some(Box::new(refusal)),
        ..State::default()
    };
    state.answered();
    assert!(state.trouble.is_none() && state.refusal.is_none());
}

#[test]
fn a_holder_of_another_library_is_remembered_for_a_while() {
    let mut state = State::default();
    state.refused(refused_by("client:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30"), at(MS));
    assert_eq!(state.window(20 * MS, at(2 * MS)), 20 * MS, "it is one of ours");
    state.refused(refused_by("0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30:17"), at(MS));
    assert_eq!(state.window(20 * MS, at(MEMORY)), Duration::ZERO);
    assert_eq!(state.window(20 * MS, at(MEMORY + MS)), 20 * MS);
}

#[test]
fn of_a_new_holder_it_is_known_who_waits_behind_it() {
    let queue = Some(Box::new(InQueue { ahead: Some(3), server_us: 7, waiting: [].into() }));
    let trouble = Some(Box::new(Trouble { since: at(MS), fault: Fault::Closed }));
    let mut state = State { trouble, ..State::default() };
    state.refused(Refusal { queue: queue.clone(), ..refused_by("a") }, at(MS));
    assert!(state.trouble.is_none(), "a refusal is an answer");
    state.succeeded_by(refused_by("b"), at(2 * MS));
    let seen = state.refusal.expect("it was just told");
    assert_eq!((seen.refusal.holder, seen.refusal.queue), (Holder::new("b"), queue));
    assert_eq!(seen.at, at(2 * MS));
}

#[test]
fn a_holder_that_was_seen_has_the_lock_for_less_and_less_long() {
    let refusal = Refusal { remaining: Some(500 * MS), ..refused_by("a") };
    let seen = SeenRefusal { refusal, at: at(MS) };
    for (after, left) in [(1_u32, 500_u32), (301, 200), (501, 0), (900, 0)] {
        assert_eq!(seen.at(at(after * MS)).remaining, Some(left * MS), "{after}");
    }
    let endless = SeenRefusal { refusal: refused_by("a"), at: at(MS) };
    assert_eq!(endless.at(at(900 * MS)).remaining, None);
}

#[test]
fn only_the_answer_to_the_last_release_counts() {
    let pending = || State {
        last_release: LastRelease::Pending { number: 5, since: at(MS) },
        ..State::default()
    };
    for (number, others, told, is_pending) in [
        (4, Some(1), false, true),
        (5, Some(1), true, false),
        (5, Some(0), false, false),
        (5, None, false, false),
    ] {
        let mut state = pending();
        assert_eq!(state.released(number, others, at(MS), MS), told, "{number} {others:?}");
        assert_eq!((state.others_listen, state.last_release.is_pending()), (told, is_pending));
        let received = matches!(state.last_release, LastRelease::Received { others: 1, .. });
        assert_eq!(received, told);
    }
    assert!(!State { others_listen: true, ..State::default() }.released(0, Some(1), at(MS), MS));
}

/// Two clients of ours that take turns would otherwise keep one of another library out for ever: the release of each first
/// turn grants the lock to the other, and that of each second one tells whoever listens, behind which the next of ours asks.
#[test]
fn a_release_that_tells_nobody_does_not_say_that_nobody_listens() {
    let mut state = State::default();
    let mut release = |others, now| {
        state.last_release = LastRelease::Pending { number: 5, since: now };
        state.released(5, Some(others), now, MS);
        state.last_release = LastRelease::Pending { number: 6, since: now };
        state.may_ask()
    };
    assert!(release(0, at(MS)), "nobody was heard to listen");
    assert!(!release(1, at(2 * MS)));
    assert!(!release(0, at(3 * MS)), "it may have granted the lock to one who waits");
    assert!(!release(0, at(2 * MS + MEMORY - MS)));
    assert!(release(0, at(2 * MS + MEMORY)), "nobody has listened since");
}

#[test]
fn the_servers_are_not_asked_before_those_who_heard_of_a_release() {
    let others = LastRelease::Received { others: 1, until: at(MS) };
    for (last_release, others_listen, may_ask) in [
        (LastRelease::Over, false, true),
        (LastRelease::Over, true, true),
        (LastRelease::Pending { number: 1, since: at(MS) }, false, true),
        (LastRelease::Pending { number: 1, since: at(MS) }, true, false),
        (others, false, false),
        (others, true, false),
    ] {
        let state = State { last_release, others_listen, ..State::default() };
        assert_eq!(state.may_ask(), may_ask, "{others_listen}");
    }
}

#[tokio::test]
async fn each_release_has_a_number_of_its_own_and_its_lease_is_remembered() {
    let lease = Arc::new(watched());
    let mut state = State { arrivals: 4, ..State::default() };
    for number in [5, 6] {
        let release = state.release(&lease, at(MS));
        let LastRelease::Pending { number: latest, .. } = state.last_release else {
            panic!("it is waited for")
        };
        assert_eq!((release.number, state.arrivals, latest), (number, number, number));
    }
    let last = state.last.expect("it was given back");
    assert_eq!((last.as_refusal().holder, last.at), (Holder::new("a:1"), at(MS)));
}

#[tokio::test]
async fn who_stands_in_no_queue_leaves_the_driver_the_request_that_does() {
    let (quorum, _, _) = servers(1);
    let side: Arc<dyn Kind> = Arc::new(Plain::new(Sharing::Alone, 0));
    let terms = Terms::of(LeaseTerms::Watched(Duration::from_secs(30)));
    let begun = |id: &str| {
        let attempt = quorum.attempt(&side, LeaseId(id.into()), 30_000 * MS, 1, true);
        let wanted = Wanted { side: side.clone(), terms };
        Some(Box::new(Begun { attempt, seeker: Seeker::Ordinary, wanted, refusal: None }))
    };
    let id = |begun: &Option<Box<Begun>>| begun.as_ref().map(|begun| begun.attempt.id().clone());
    let mut state = State::default();
    assert!(state.take_over(begun("a:1")).is_none());
    assert!(state.take_over(None).is_none());
    assert_eq!(id(&state.begun), Some(LeaseId("a:1".into())));
    assert_eq!(id(&state.take_over(begun("a:2"))), Some(LeaseId("a:1".into())));
    assert_eq!(id(&state.begun), Some(LeaseId("a:2".into())));
}
