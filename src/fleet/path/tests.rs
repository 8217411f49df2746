use super::*;
use crate::error::{Cause, State};
use crate::script::{LOCK_ACQUIRE, LOCK_RELEASE, Script};

fn call(script: &'static Script) -> Call {
    Call { script, keys: vec!["n".into()], args: Vec::new() }
}

fn refused(text: &str) -> Fault {
    Fault::Refused(Cause::new(text, State::of(text.split(' ').next(), text)))
}

fn sent(step: Step) -> Path {
    match step {
        Step::Send(path) => path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_script_that_is_not_known_is_sent_whole_once() {
    let whole = sent(Path::of(Form::VOTE).after_on_node(&Fault::NoScript));
    assert_eq!(whole.form, Form { whole: true, ..Form::VOTE });
    assert_eq!(whole.after_on_node(&Fault::NoScript), Step::Stop);
    let acquire = call(&LOCK_ACQUIRE);
    assert_eq!(whole.after_in_cluster(&Fault::NoScript, &acquire), Step::Stop);
    let in_cluster = sent(Path::of(Form::VOTE).after_in_cluster(&Fault::NoScript, &acquire));
    assert_eq!(in_cluster, whole);
    let moved = Fault::Moved(Redirect { slot: 1, to: "a:1".into() });
    assert_eq!(Path::default().after_on_node(&moved), Step::Stop, "it is in no cluster");
    let again = sent(whole.after_in_cluster(&moved, &acquire));
    assert_eq!(again.form, Form::VOTE, "the other node may know it");
}

#[test]
fn a_redirect_is_followed_a_few_times_and_then_pauses() {
    let acquire = call(&LOCK_ACQUIRE);
    let to = Redirect { slot: 1, to: "a:1".into() };
    let (ask, moved) = (Fault::Ask(to.clone()), Fault::Moved(to.clone()));
    let asked = sent(Path::of(Form::VOTE).after_in_cluster(&ask, &acquire));
    assert_eq!((asked.form, &asked.asked), (Form { asking: true, ..Form::VOTE }, &Some(to)));
    let mut path = sent(asked.after_in_cluster(&moved, &acquire));
    assert_eq!((path.form, &path.asked), (Form::VOTE, &None));
    for _ in 2..MOST_HOPS {
        path = sent(path.after_in_cluster(&ask, &acquire));
    }
    let Step::Wait(path, FIRST_PAUSE) = path.after_in_cluster(&ask, &acquire) else {
        panic!("it goes on for ever")
    };
    assert_eq!((path.form, &path.asked), (Form::VOTE, &None), "it begins anew");
    let mut path = path;
    for _ in 0..MOST_HOPS {
        path = sent(path.after_in_cluster(&ask, &acquire));
    }
    assert!(matches!(path.after_in_cluster(&ask, &acquire), Step::Wait(..)));
}

#[test]
fn a_slot_on_its_way_and_a_cluster_that_is_down_are_waited_for() {
    let (acquire, release) = (call(&LOCK_ACQUIRE), call(&LOCK_RELEASE));
    let mut path = Path::default();
    let mut pauses = Vec::new();
    for text in ["TRYAGAIN a", "CLUSTERDOWN a", "READONLY a", "MASTERDOWN a"].repeat(75) {
        let Step::Wait(next, pause) = path.after_in_cluster(&refused(text), &acquire) else {
            panic!("{text}")
        };
        pauses.push(pause.as_millis());
        path = next;
    }
    assert_eq!(pauses[..8], [2, 4, 8, 16, 32, 64, 100, 100]);
    assert!(pauses[8..].iter().all(|pause| *pause == 100));
    assert!(matches!(path.after_in_cluster(&Fault::Down("".into()), &acquire), Step::Wait(..)));
    let one_key = sent(Path::default().after_in_cluster(&refused("TRYAGAIN a"), &release));
    assert!(one_key.form.one_key);
    let again = one_key.after_in_cluster(&refused("TRYAGAIN a"), &release);
    assert!(matches!(again, Step::Wait(path, _) if !path.form.one_key));
}

#[test]
fn what_one_key_is_enough_for_is_answered_by_the_owner_of_the_slot_first() {
    let release = call(&LOCK_RELEASE);
    let ask = Fault::Ask(Redirect { slot: 1, to: "a:1".into() });
    let asked = sent(Path::default().after_in_cluster(&ask, &release));
    let whole = sent(asked.after_in_cluster(&Fault::NoScript, &release));
    let one_key = sent(whole.after_in_cluster(&refused("TRYAGAIN a"), &release));
    assert_eq!((one_key.form, &one_key.asked), (Form { one_key: true, ..Form::default() }, &None));
    let there = sent(one_key.after_in_cluster(&ask, &release));
    let form = Form { one_key: true, asking: true, ..Form::default() };
    assert_eq!((there.form, there.asked.is_some()), (form, true), "the owner has it no more");
    let moved = Fault::Moved(Redirect { slot: 1, to: "a:1".into() });
    let settled = sent(one_key.after_in_cluster(&moved, &release));
    assert_eq!(settled.form, Form::default(), "who has the slot for good has all keys");
}

#[test]
fn what_may_have_run_is_not_sent_again() {
    let release = call(&LOCK_RELEASE);
    for fault in [
        Fault::NoAnswer(Duration::ZERO),
        Fault::Broken(Cause::new("gone", None)),
        Fault::Replaced,
        Fault::Closed,
        Fault::WrongType,
        refused("OOM no memory"),
    ] {
        assert_eq!(Path::default().after_in_cluster(&fault, &release), Step::Stop, "{fault}");
    }
}
