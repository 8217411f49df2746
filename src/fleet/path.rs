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
            // The map of the slots has been corrected. Who has the slot for good has all keys.
            Fault::Moved(_) => self.to(None).with_one_key(false),
            Fault::Ask(to) => self.to(Some(to.clone())),
            fault if fault.is_try_again() && call.works_with_one_key() && !self.form.one_key => {
                // By the slot's owner: Redis 6.2 redirects a call already if one of its keys is not there, and the other node
                // would take what it does not have yet for gone.
                let path = if self.asked.is_some() { self.to(None) } else { self.clone() };
                return Step::Send(path.with_one_key(true));
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

    fn with_one_key(self, one_key: bool) -> Self {
        Self { form: Form { one_key, ..self.form }, ..self }
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
mod tests;
