//! The way of a call to the node that answers it: which forms and which nodes it was sent in and to. Pure.

use std::time::Duration;

use crate::error::{Fault, Redirect};
use crate::node::Form;
use crate::script::Call;

/// Where and how a call is sent next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) form: Form,
    /// The node to which the slot is on its way.
    pub(crate) asked: Option<Redirect>,
    /// How often it was sent without a pause since the last one.
    hops: u8,
    pauses: u8,
}

/// What to do about a call that had no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send it at once: it did not run.
    Send(Path),
    /// Send it after a pause: it did not run, and may soon.
    Wait(Path, Duration),
    /// Nothing: this is its outcome.
    Stop,
}

impl Path {
    /// The path of a call that was sent first in this form.
    pub(crate) fn of(form: Form) -> Self {
        Self { form, ..Self::default() }
    }

    /// A node that is no part of a cluster gave no usable answer.
    pub(super) fn after_on_node(&self, fault: &Fault) -> Step {
        match fault {
            Fault::NoScript if !self.form.whole => Step::Send(self.whole()),
            _ => Step::Stop,
        }
    }

    /// A node of a cluster gave no usable answer.
    pub(super) fn after_in_cluster(&self, fault: &Fault, call: &Call) -> Step {
        let next = match fault {
            Fault::NoScript if !self.form.whole => return Step::Send(self.whole()),
            // The map of the slots has been corrected.
            Fault::Moved(_) => self.to(None),
            Fault::Ask(to) => self.to(Some(to.clone())),
            fault if fault.is_try_again() && call.works_with_one_key() && !self.form.one_key => {
                let form = Form { one_key: true, ..self.form };
                return Step::Send(Self { form, ..self.clone() });
            }
            fault if fault.is_try_again() || fault.is_cluster_down() => return self.wait(),
            // There is no connection yet.
            Fault::Down(_) => return self.wait(),
            _ => return Step::Stop,
        };
        match self.hops {
            MOST_HOPS.. => next.wait(),
            hops => Step::Send(Self { hops: hops + 1, ..next }),
        }
    }

    fn whole(&self) -> Self {
        Self { form: Form { whole: true, ..self.form }, ..self.clone() }
    }

    fn to(&self, asked: Option<Redirect>) -> Self {
        // Another node may know the script.
        let form = Form { whole: false, asking: asked.is_some(), ..self.form };
        Self { form, asked, ..self.clone() }
    }

    fn wait(&self) -> Step {
        let pause = (FIRST_PAUSE * (1 << self.pauses.min(9))).min(LONGEST_PAUSE);
        let pauses = self.pauses.saturating_add(1);
        let form = Form { asking: false, one_key: false, ..self.form };
        Step::Wait(Self { form, asked: None, hops: 0, pauses }, pause)
    }
}

/// How often a call is redirected before it pauses.
const MOST_HOPS: u8 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
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
}
