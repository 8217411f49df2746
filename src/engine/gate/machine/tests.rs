use super::*;
use crate::engine::kind::Refusal;
use crate::key::{Holder, LeaseId};
use crate::node::{Letter, MailedGrant};

type Machine = super::Machine<Letter>;
type Action = super::Action<Letter>;

const FIRST: Seeker = Seeker::Fair(1);
const SECOND: Seeker = Seeker::Fair(2);
const OURS: &str = "b:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30";
const JAVA: &str = "0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30:17";
const FORM: Form = (0, LeaseTerms::Watched(Duration::from_secs(30)));
const OTHER: Form = (0, LeaseTerms::Watched(Duration::from_secs(9)));

fn at(ms: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(10_000 + ms))
}

/// At that time, with a mailbox that was subscribed so often.
fn now_in(ms: u64, epoch: u64) -> Now {
    let (poll, moment) = (Duration::from_millis(3000), Duration::from_millis(2));
    let epoch = (epoch > 0).then(|| Epoch::numbered(epoch));
    Now { at: at(ms), poll, moment, epoch }
}

fn now(ms: u64) -> Now {
    now_in(ms, 1)
}

fn refused(ahead: Option<u32>, foreign: bool) -> Answer {
    let held_by = HeldBy { remaining: Some(Duration::from_millis(500)), foreign };
    Answer::Refused { ahead, held_by, asked_in: Some(Epoch::numbered(1)) }
}

fn grant() -> Letter {
    Letter::Grant(MailedGrant {
        id: LeaseId("a:1".into()),
        server_us: 7,
        ttl: Duration::from_secs(2),
        block_end: 9,
        before: None,
        enclosed: None,
        epoch: Epoch::numbered(1),
        received_at: at(0),
    })
}

/// Who asks now, in this order.
fn ask_all(machine: &mut Machine, allowed: Allowed, ms: u64) -> Vec<Seeker> {
    std::iter::from_fn(|| machine.ask(allowed, at(ms))).map(|(seeker, _)| seeker).collect()
}

/// A machine with requests for these, which have been refused.
fn waiting(seekers: &[Seeker]) -> Machine {
    let mut machine = Machine::default();
    for (ahead, seeker) in seekers.iter().enumerate() {
        assert_eq!(machine.want(*seeker, Some(FORM)), None);
        assert_eq!(machine.ask(Allowed::All, at(0)).map(|(seeker, _)| seeker), Some(*seeker));
        assert_eq!(machine.answered(*seeker, refused(Some(ahead as u32), false), now(0)), None);
    }
    machine
}

#[test]
fn all_that_come_ask_at_once_in_the_order_of_their_arrival() {
    let mut machine = Machine::default();
    for seeker in [SECOND, FIRST, Seeker::Ordinary] {
        assert_eq!(machine.want(seeker, Some(FORM)), None);
        assert_eq!(machine.want(seeker, Some(FORM)), None, "it has a request");
    }
    assert_eq!(ask_all(&mut machine, Allowed::All, 0), [Seeker::Ordinary, FIRST, SECOND]);
    assert_eq!(machine.asks_at(Allowed::All), Timestamp::NEVER, "nobody asks twice");
}

#[test]
fn only_those_ask_who_may() {
    for (allowed, asks) in [
        (Allowed::Nobody, vec![]),
        (Allowed::Fair, vec![FIRST]),
        (Allowed::All, vec![Seeker::Ordinary, FIRST]),
    ] {
        let mut machine = Machine::default();
        machine.want(Seeker::Ordinary, Some(FORM));
        machine.want(FIRST, Some(FORM));
        let due = if asks.is_empty() { Timestamp::NEVER } else { Timestamp::default() };
        assert_eq!(machine.asks_at(allowed), due, "{allowed:?}");
        assert_eq!(ask_all(&mut machine, allowed, 0), asks);
    }
}

#[test]
fn the_first_asks_at_the_end_of_the_lease_and_the_others_after_a_while() {
    let mut machine = waiting(&[FIRST, SECOND]);
    assert_eq!(machine.asks_at(Allowed::All), at(501));
    assert_eq!(ask_all(&mut machine, Allowed::All, 501), [FIRST]);
    assert_eq!(machine.asks_at(Allowed::All), at(3000));
    machine.answered(FIRST, refused(None, false), now(600));
    assert_eq!(machine.asks_at(Allowed::All), at(1101), "a full server has no place for it");
}

#[test]
fn one_that_is_not_queued_asks_for_its_place_more_often() {
    for (ahead, seconds, asks_at) in
        [(None, 9, 750), (None, 0, 750), (Some(0), 9, 3000), (Some(0), 0, 1), (Some(1), 9, 3000)]
    {
        let mut machine = Machine::default();
        machine.want(FIRST, Some(FORM));
        assert!(machine.ask(Allowed::All, at(0)).is_some());
        let remaining = Some(Duration::from_secs(seconds));
        let held_by = HeldBy { remaining, foreign: false };
        let asked_in = Some(Epoch::numbered(1));
        machine.answered(FIRST, Answer::Refused { ahead, held_by, asked_in }, now(0));
        assert_eq!(machine.asks_at(Allowed::All), at(asks_at), "{ahead:?}");
    }
}

#[test]
fn a_request_that_nobody_wants_or_that_wants_something_else_is_dropped() {
    let mut machine = waiting(&[FIRST, SECOND]);
    assert_eq!(machine.want(FIRST, None), Some(Action::Drop { number: 1 }));
    assert_eq!(machine.want(FIRST, None), None);
    assert_eq!(machine.want(SECOND, Some(OTHER)), Some(Action::Drop { number: 2 }));
    assert!(!machine.is_wanted(SECOND, 2), "it begins anew");
    assert_eq!(machine.ask(Allowed::All, at(0)), Some((SECOND, 3)));
    machine.clear();
    assert_eq!(machine.asks_at(Allowed::All), Timestamp::NEVER);
    machine.want(FIRST, Some(FORM));
    assert_eq!(machine.ask(Allowed::All, at(0)), Some((FIRST, 4)), "no number comes twice");
}

#[test]
fn those_who_get_the_lock_are_gone_and_the_others_wait_on() {
    let mut machine = waiting(&[FIRST, SECOND]);
    machine.ask(Allowed::All, at(501));
    assert_eq!(machine.answered(FIRST, Answer::Granted, now(501)), None);
    assert!(!machine.is_wanted(FIRST, 1) && machine.is_wanted(SECOND, 2));
}

#[test]
fn a_failure_lets_all_pause_and_those_that_fail_together_are_one() {
    let mut machine = waiting(&[FIRST, SECOND]);
    assert_eq!(ask_all(&mut machine, Allowed::All, 3000), [FIRST, SECOND]);
    for seeker in [FIRST, SECOND] {
        let pause = Duration::from_millis(20);
        assert_eq!(machine.answered(seeker, Answer::Failed { pause }, now(3000)), None);
    }
    assert_eq!((machine.failures(), machine.asks_at(Allowed::All)), (1, at(3020)));
    assert_eq!(ask_all(&mut machine, Allowed::All, 3019), []);
    assert_eq!(ask_all(&mut machine, Allowed::All, 3020), [FIRST, SECOND]);
    let pause = Duration::from_millis(40);
    machine.answered(FIRST, Answer::Failed { pause }, now(3020));
    assert_eq!(machine.failures(), 2);
    machine.answered(SECOND, refused(Some(0), false), now(3021));
    assert_eq!(machine.failures(), 0, "the server answers");
    machine.moved();
    assert_eq!(machine.asks_at(Allowed::All), Timestamp::default(), "it is another server");
}

#[test]
fn a_letter_is_read_at_once_and_one_about_a_request_that_asks_behind_its_answer() {
    let taken = |seeker, number| {
        let Letter::Grant(grant) = grant() else { unreachable!() };
        Some(Action::TakeUp { seeker, number, grant })
    };
    let mut machine = waiting(&[FIRST, SECOND]);
    assert_eq!(ask_all(&mut machine, Allowed::All, 501), [FIRST]);
    assert_eq!(machine.letter(SECOND, grant(), now(502)), taken(SECOND, 2));
    assert_eq!(machine.letter(FIRST, grant(), now(502)), None);
    assert_eq!(machine.answered(FIRST, refused(Some(0), false), now(503)), taken(FIRST, 1));
    assert_eq!(machine.ask(Allowed::All, at(2000)), Some((FIRST, 1)));
    assert_eq!(machine.letter(FIRST, grant(), now(2001)), None);
    assert_eq!(machine.answered(FIRST, Answer::Granted, now(2002)), None, "it said the same");
    assert_eq!(machine.letter(FIRST, grant(), now(2003)), None, "nobody waits for it");
}

#[test]
fn a_grant_that_is_taken_up_is_gone_and_one_in_doubt_is_asked_about() {
    let mut machine = waiting(&[FIRST, SECOND]);
    machine.confirm(FIRST);
    assert!(machine.is_confirming(FIRST) && !machine.is_confirming(SECOND));
    assert_eq!(ask_all(&mut machine, Allowed::All, 1), [FIRST]);
    machine.answered(FIRST, refused(Some(0), false), now(1));
    assert!(!machine.is_confirming(FIRST), "it waits again");
    machine.taken_up(SECOND);
    assert!(!machine.is_wanted(SECOND, 2));
}

#[test]
fn the_next_learns_of_its_holder_and_of_a_free_lock() {
    let mut machine = waiting(&[Seeker::Ordinary, SECOND]);
    let next = |holder| Letter::Next {
        id: LeaseId("a:1".into()),
        remaining: Some(Duration::from_millis(100)),
        holder: Holder::new(holder),
    };
    let by = Refusal::of(Holder::new(OURS), Some(Duration::from_millis(100)));
    let told = machine.letter(SECOND, next(OURS), now(5));
    assert_eq!(told, Some(Action::Succeeded { by }));
    assert_eq!((machine.asks_at(Allowed::Fair), machine.watches_channel()), (at(106), false));
    let free = Letter::Free { id: LeaseId("a:1".into()) };
    assert_eq!(machine.letter(SECOND, free, now(6)), None);
    assert_eq!(machine.asks_at(Allowed::Fair), at(8));
    machine.letter(SECOND, next(JAVA), now(7));
    assert!(machine.watches_channel(), "it is a client of another library");
    machine.released();
    assert_eq!(ask_all(&mut machine, Allowed::All, 8), [SECOND]);
}

#[test]
fn a_release_that_is_heard_during_an_ask_is_asked_about_after_it() {
    for heard in [false, true] {
        let mut machine = waiting(&[FIRST]);
        machine.ask(Allowed::All, at(501));
        machine.answered(FIRST, refused(Some(0), true), now(501));
        machine.ask(Allowed::All, at(1002));
        if heard {
            machine.released();
        }
        machine.answered(FIRST, refused(Some(0), true), now(1003));
        assert_eq!(machine.asks_at(Allowed::All) <= at(1003), heard);
    }
    let mut machine = waiting(&[FIRST]);
    machine.released();
    assert_eq!(machine.asks_at(Allowed::All), at(501), "it is none of ours");
    assert_eq!(machine.want(FIRST, None), Some(Action::Drop { number: 1 }));
    assert!(!machine.watches_channel());
}

#[test]
fn what_asked_before_a_subscription_asks_again_once_that_is_there() {
    let mut machine = waiting(&[FIRST, SECOND]);
    machine.subscribed(now_in(5, 1));
    assert_eq!(machine.asks_at(Allowed::All), at(501), "none of its letters is lost");
    machine.ask(Allowed::All, at(501));
    machine.subscribed(now_in(502, 2));
    assert_eq!(ask_all(&mut machine, Allowed::All, 502), [SECOND]);
    machine.answered(FIRST, refused(Some(0), false), now_in(503, 2));
    assert_eq!(ask_all(&mut machine, Allowed::All, 503), [FIRST], "it was asked before");
    machine.answered(SECOND, refused(Some(1), false), now_in(504, 0));
    assert_eq!(machine.asks_at(Allowed::All), at(3504), "nothing is subscribed now");
}

#[test]
fn a_queue_that_moves_is_asked_anew() {
    let mut machine = waiting(&[FIRST, SECOND]);
    machine.ask(Allowed::All, at(501));
    assert_eq!(machine.moved(), [Action::Drop { number: 1 }, Action::Drop { number: 2 }]);
    assert!(!machine.is_wanted(FIRST, 1), "what is answered now is of the old one");
    assert_eq!(ask_all(&mut machine, Allowed::All, 502), [FIRST, SECOND]);
}

#[test]
fn whoever_asked_before_keeps_its_place_unless_another_asks() {
    let mut machine = Machine::default();
    let begun = machine.begun(Seeker::Ordinary, FORM, refused(Some(0), false), now(0));
    assert_eq!(begun, Some((1, None)));
    assert_eq!(machine.asks_at(Allowed::All), at(501));
    let failed = || Answer::Failed { pause: Duration::from_millis(7) };
    let begun = machine.begun(Seeker::Ordinary, FORM, failed(), now(1));
    assert_eq!(begun, Some((2, Some(Action::Drop { number: 1 }))));
    assert_eq!(machine.asks_at(Allowed::All), at(8));
    machine.ask(Allowed::All, at(8));
    assert_eq!(machine.begun(Seeker::Ordinary, FORM, failed(), now(9)), None);
}

#[test]
fn one_who_does_not_wait_hurries_the_first() {
    let mut machine = Machine::default();
    machine.hurry();
    let mut machine = waiting(&[FIRST, SECOND]);
    machine.hurry();
    assert_eq!(ask_all(&mut machine, Allowed::All, 1), [FIRST]);
    machine.hurry();
    assert_eq!(ask_all(&mut machine, Allowed::All, 1), [], "it asks already");
    machine.answered(FIRST, refused(Some(0), false), now(1));
    assert_eq!(ask_all(&mut machine, Allowed::All, 1), [FIRST], "that answer may be too old");
    machine.answered(FIRST, refused(Some(0), false), now(1));
    assert_eq!(ask_all(&mut machine, Allowed::All, 1), [], "one answer is enough");
    machine.hurry();
    assert_eq!(ask_all(&mut machine, Allowed::All, 1), [FIRST]);
    machine.not_asked(FIRST, at(2));
    assert_eq!(machine.asks_at(Allowed::All), at(2), "it could not be sent");
    machine.stand_back(now(2));
    assert_eq!(machine.asks_at(Allowed::All), at(4), "others come first");
}

#[test]
fn what_was_missed_during_an_ask_counts_though_an_older_letter_is_read_behind_it() {
    let next = |holder| Letter::Next {
        id: LeaseId("a:1".into()),
        remaining: Some(Duration::from_millis(500)),
        holder: Holder::new(holder),
    };
    let mut machine = waiting(&[FIRST]);
    machine.ask(Allowed::All, at(501));
    machine.letter(FIRST, next(OURS), now(502));
    machine.subscribed(now_in(503, 2));
    machine.answered(FIRST, refused(Some(0), false), now_in(504, 2));
    assert_eq!(ask_all(&mut machine, Allowed::All, 504), [FIRST], "its holder may be gone");

    let mut machine = Machine::default();
    machine.begun(FIRST, FORM, refused(Some(0), true), now(0));
    for answer in [refused(Some(0), true), Answer::Failed { pause: Duration::ZERO }] {
        machine.ask(Allowed::All, at(501));
        machine.letter(FIRST, next(JAVA), now(502));
        machine.released();
        machine.answered(FIRST, answer, now(503));
        assert!(machine.asks_at(Allowed::All) <= at(503), "the holder has released the lock");
    }
}
