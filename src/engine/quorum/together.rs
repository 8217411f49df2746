//! The renewals of several leases in one call. What is said of one lease says nothing of the others.

use std::sync::Arc;
use std::time::Duration;

use super::{Quorum, Renewal};
use crate::clock::Timestamp;
use crate::engine::round::{Round, Rules};
use crate::error::Fault;
use crate::fleet::{Path, Site};
use crate::node::Sent;
use crate::script::{Arg, Call, Reply, Script};

/// A call on its way that renews several leases on one site.
pub(crate) struct Several {
    round: Round<Vec<Part>>,
    number: usize,
}

/// What became of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Held(bool),
    /// Its renewal failed where the others may not have, or did not run: it must be renewed by itself.
    Alone,
}

impl Quorum {
    /// Returns a number for where the lock lives. Locks with the same one can be renewed together. Several servers have none:
    /// what each of them says of a lease is counted by itself.
    pub(crate) fn place(&self) -> Option<u32> {
        match &*self.sites {
            [Site::Node(_)] => Some(u32::MAX),
            [Site::Slot(slot)] => Some(slot.number().into()),
            _ => None,
        }
    }

    /// Sends what renews several leases of one kind, which live at the same [place](Self::place).
    pub(crate) fn renew_together(&self, renewals: Renewals) -> Result<Several, Fault> {
        let number = renewals.number;
        let call = renewals.call();
        let round = Round::renew(&self.sites, &self.clock, call);
        if round.votes.iter().any(|vote| vote.is_pending()) {
            return Ok(Several { round, number });
        }
        Err(self.no_majority(round.faults(&Fault::Closed)))
    }

    /// What the answer says of each lease. `again` sends the call again if the server does not know its text.
    pub(crate) async fn renewed_together(
        &self,
        several: &mut Several,
        within: Duration,
        again: impl Fn(&Site, &Call, &Path) -> Result<Sent, Fault>,
    ) -> Result<Vec<Part>, Fault> {
        let number = several.number;
        let rules = Rules {
            sites: &self.sites,
            clock: &self.clock,
            until: several.round.sent_at.plus(within),
            read: |reply: &Reply| read(reply, number),
            // Where it was redirected, or has to wait until the slot has moved, each goes its own way.
            again: |site: &Site, call: &Call, path: &Path| {
                if path.form.whole { again(site, call, path) } else { Err(Fault::NoScript) }
            },
        };
        several
            .round
            .settle(rules, |votes, over| (over || !votes[0].is_pending()).then_some(()))
            .await;
        match several.round.votes[0].answer.take() {
            Some(Ok(parts)) => Ok(parts),
            // It did not run; a user who lacks the right to one key may have that to the others.
            Some(Err(Fault::NoScript | Fault::Denied { .. })) => Ok(vec![Part::Alone; number]),
            Some(Err(fault)) => Err(fault),
            None => Err(self.silence(within)),
        }
    }
}

impl Several {
    /// Before its sending.
    pub(crate) fn sent_at(&self) -> Timestamp {
        self.round.sent_at
    }

    /// Returns the renewal of one of the leases, as if it had been sent by itself.
    pub(crate) fn renewal(&self, count: u32, ttl: Duration, held: &Result<bool, Fault>) -> Renewal {
        Renewal { round: self.round.part(held), count, ttl, reclaims: false }
    }
}

/// The calls that renew several leases of one kind each by itself, on their way into one call.
#[derive(Default)]
pub(crate) struct Renewals {
    number: usize,
    script: Option<&'static Script>,
    keys: Vec<Arc<str>>,
    args: Vec<Arg>,
}

impl Renewals {
    pub(crate) fn add(&mut self, call: Call) {
        let (per_key, per_arg) = (call.keys.len(), call.args.len());
        if self.number == 0 {
            self.script = Some(call.script);
            self.args.extend([Arg::Number(per_key as u64), Arg::Number(per_arg as u64)]);
        }
        debug_assert_eq!(self.keys.len(), self.number * per_key);
        debug_assert_eq!(self.args.len(), 2 + self.number * per_arg);
        self.number += 1;
        self.keys.extend(call.keys);
        self.args.extend(call.args);
    }

    fn call(self) -> Call {
        let script = self.script.and_then(Script::together);
        let script = script.expect("BUG: renewals of every kind can be sent together");
        Call { script, keys: self.keys, args: self.args }
    }
}

/// Reads the answer about so many leases.
fn read(reply: &Reply, number: usize) -> Option<Vec<Part>> {
    let (_, parts) = reply.list()?.split_first()?;
    let part = |part: &Reply| match part {
        Reply::Number(1) => Some(Part::Held(true)),
        Reply::Number(0) => Some(Part::Held(false)),
        Reply::Number(-1) => Some(Part::Alone),
        _ => None,
    };
    if parts.len() == number { parts.iter().map(part).collect() } else { None }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::clock::Clock;
    use crate::script::LOCK_RENEW;

    impl Several {
        /// As it is known once it was answered.
        pub(crate) fn answered(sent_at: Timestamp, number: usize) -> Self {
            let clock = Clock::of_this_runtime();
            let call = Call { script: &LOCK_RENEW, keys: Vec::new(), args: Vec::new() };
            let mut round = Round::send(&[], &clock, call);
            round.sent_at = sent_at;
            Self { round, number }
        }
    }

    #[test]
    fn an_answer_is_read_if_it_is_about_so_many() {
        let list = |numbers: &[i64]| {
            Reply::List(numbers.iter().map(|number| Reply::Number(*number)).collect())
        };
        let parts = vec![Part::Held(true), Part::Held(false), Part::Alone];
        assert_eq!(read(&list(&[1, 1, 0, -1]), 3), Some(parts));
        assert_eq!((read(&list(&[1, 1, 0]), 3), read(&list(&[0, 0, 0, 0, 0]), 3)), (None, None));
        assert_eq!(
            (read(&list(&[1, 1, 2]), 2), read(&list(&[]), 0), read(&Reply::Nil, 0)),
            (None, None, None)
        );
    }

    #[test]
    fn the_keys_and_arguments_of_each_follow_those_before() {
        let call = |name: &str, count| Call {
            script: &LOCK_RENEW,
            keys: vec![name.into()],
            args: vec![Arg::Word("id"), Arg::Number(count)],
        };
        let mut both = Renewals::default();
        both.add(call("a", 7));
        both.add(call("b", 8));
        let both = both.call();
        assert_eq!(format!("{:?}", both.script), "locks_renew");
        assert_eq!(format!("{:?}", both.keys), r#"["a", "b"]"#);
        let args = format!("{:?}", both.args);
        assert_eq!(args, r#"[Number(1), Number(2), Word("id"), Number(7), Word("id"), Number(8)]"#);
    }
}
