use super::*;
use crate::error::{Cause, Redirect, State};
use crate::script::LOCK_RELEASE;

fn release(until: Timestamp) -> PendingRelease {
    let call = Call { script: &LOCK_RELEASE, keys: Vec::new(), args: Vec::new() };
    let ttl = Duration::from_secs(1);
    let detour = Detour::default();
    PendingRelease {
        call,
        acquired_on: None,
        ttl,
        until,
        repeats: 7,
        first: None,
        queued: false,
        detour,
    }
}

fn try_again() -> Fault {
    let text = "TRYAGAIN Multiple keys request during rehashing of slot";
    Fault::Refused(Cause::new(text, State::of(Some("TRYAGAIN"), text)))
}

fn clock() -> Clock {
    Clock::of_this_runtime()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(seconds))
}

#[test]
fn a_release_is_repeated_until_nothing_can_run_after_it() {
    let refused = || Err(Fault::Refused(Cause::new("busy", None)));
    let denied = || Err(Fault::Denied { what: "evalsha".into(), message: "no".into() });
    let silent = || Err(Fault::NoAnswer(Duration::ZERO));
    let release = release(at(10));
    for (answer, is_last_word, now, next) in [
        (Ok(Reply::Nil), true, at(1), Next::Done),
        (Ok(Reply::Nil), false, at(10), Next::Repeat),
        (Ok(Reply::Nil), false, at(11), Next::Done),
        (refused(), true, at(10), Next::Repeat),
        (refused(), false, at(11), Next::Done),
        (silent(), true, at(71), Next::Repeat),
        (denied(), true, at(1), Next::Done),
        (Err(Fault::NoScript), true, at(11), Next::Send(Form::WHOLE)),
    ] {
        let is = release.next(&answer, Form::PLAIN, is_last_word, now);
        assert_eq!(is, next, "{answer:?} {is_last_word} {now:?}");
    }
}

#[test]
fn a_place_in_a_queue_that_cannot_be_left_is_left_when_the_server_lets_it() {
    let denied = || Fault::Denied { what: "evalsha".into(), message: "no".into() };
    let release = PendingRelease { queued: true, ..release(at(10)) };
    for (now, next) in [(1, Next::Repeat), (70, Next::Repeat), (71, Next::Done)] {
        for fault in [denied(), try_again()] {
            assert_eq!(
                release.next(&Err(fault), Form { one_key: true, ..Form::PLAIN }, true, at(now)),
                next,
                "{now}"
            );
        }
    }
}

#[tokio::test]
async fn a_release_is_redirected_a_few_times_and_then_pauses() {
    let moved = || Err(Fault::Moved(Redirect { slot: 0, to: "a:1".into() }));
    let mut release = release(at(10));
    assert_eq!(release.next(&moved(), Form::PLAIN, true, at(1)), Next::Redirect);
    release.detour.hops = MOST_HOPS;
    assert_eq!(release.next(&moved(), Form::PLAIN, true, at(1)), Next::Repeat);
    assert_eq!(release.next(&moved(), Form::PLAIN, true, at(11)), Next::Done, "for ever");
    release.detour.hops = 0;
    assert_eq!(
        release.next(&moved(), Form::PLAIN, true, at(11)),
        Next::Done,
        "however few there were"
    );
    // A slot that moves for the second time.
    release.detour.hops = MOST_HOPS;
    release.pause(&clock(), at(1), false);
    assert_eq!(release.next(&moved(), Form::PLAIN, true, at(1)), Next::Redirect);
}

#[test]
fn a_release_that_lacks_a_key_frees_the_lock_with_one_and_is_repeated_unless_it_held_it() {
    let replied = |held| Ok(Reply::Number(held));
    let listed = |held| Ok(Reply::List(vec![Reply::Number(held), Reply::Number(0)]));
    let release = release(at(10));
    let one_key = Form { one_key: true, ..Form::PLAIN };
    let next = |answer, form, is_last_word| release.next(&answer, form, is_last_word, at(1));
    assert_eq!(next(Err(try_again()), Form::PLAIN, true), Next::Send(one_key));
    assert_eq!(next(Err(try_again()), one_key, true), Next::Repeat);
    for held in [replied(1), replied(3), listed(1), listed(3)] {
        assert_eq!(next(held, one_key, true), Next::Done);
    }
    assert_eq!(next(replied(1), one_key, false), Next::Repeat);
    assert_eq!(next(replied(0), one_key, true), Next::Repeat, "it may stand in the queue");
    assert_eq!(next(replied(0), Form::PLAIN, true), Next::Done);
}

#[tokio::test]
async fn a_release_that_lacks_a_key_where_its_slot_goes_returns_to_where_that_comes_from() {
    let mut release = release(at(10));
    release.detour.asking = true;
    let asking = Form { asking: true, ..Form::PLAIN };
    assert_eq!(release.form(), asking);
    assert_eq!(release.next(&Err(try_again()), asking, true, at(1)), Next::Redirect);
    let one_key = Form { one_key: true, ..asking };
    assert_eq!(
        release.next(&Err(try_again()), one_key, true, at(1)),
        Next::Repeat,
        "it has been there"
    );
    release.detour.hops = MOST_HOPS;
    assert_eq!(
        release.next(&Err(try_again()), asking, true, at(1)),
        Next::Repeat,
        "without a pause"
    );
    release.detour = Detour { asking: false, one_key: true, ..release.detour };
    assert_eq!(release.form(), Form { one_key: true, ..Form::PLAIN });
    release.pause(&clock(), at(1), true);
    assert_eq!(release.form(), Form::PLAIN, "it may stand in the queue");
}

#[test]
fn a_release_is_not_repeated_for_ever_though_its_slot_stays_open() {
    let moved = || Err(Fault::Moved(Redirect { slot: 0, to: "a:1".into() }));
    let one_key = Form { one_key: true, ..Form::PLAIN };
    let life = QUEUE_LIFE.as_secs();
    for (queued, last) in [(false, 10), (true, 10 + life)] {
        let release = PendingRelease { queued, ..release(at(10)) };
        for (now, redirected, repeated) in
            [(last, Next::Redirect, Next::Repeat), (last + 1, Next::Done, Next::Done)]
        {
            assert_eq!(release.next(&moved(), Form::PLAIN, true, at(now)), redirected, "{queued}");
            let answer = Ok(Reply::Number(0));
            assert_eq!(release.next(&answer, one_key, true, at(now)), repeated, "{queued}");
        }
    }
}

#[test]
fn a_server_that_knows_no_script_though_it_was_sent_is_not_asked_without_a_pause() {
    let release = release(at(10));
    let whole = Form { whole: true, ..Form::PLAIN };
    let answer = || Err(Fault::NoScript);
    assert_eq!(release.next(&answer(), Form::PLAIN, true, at(1)), Next::Send(whole));
    assert_eq!(release.next(&answer(), whole, true, at(1)), Next::Repeat);
}

#[test]
fn a_new_connection_gives_the_acquire_another_ttl() {
    for (until, now, renewed) in [(10, 1, 10), (10, 9, 10), (10, 10, 11), (10, 20, 21)] {
        let mut release = release(at(until));
        release.renew(at(now));
        assert_eq!((release.until, release.repeats), (at(renewed), 0), "{until} {now}");
    }
}
