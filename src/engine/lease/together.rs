//! Several leases that are renewed in one call.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::state::{Phase, State};
use super::{Due, Lease};
use crate::clock::Timestamp;
use crate::engine::quorum::{Part, Renewal, Renewals, Several};
use crate::error::Fault;
use crate::fleet::{Path, Site};
use crate::script::Call;

/// Leases with the same one can be renewed in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Company {
    /// Where their locks live.
    place: u32,
    /// Of which kind these are, and which side of them is held.
    family: &'static str,
    side: u32,
    /// How long the answer is waited for: a lease with a short TTL does not make the others fail early.
    patience: Duration,
}

/// A call on its way that renews several leases.
pub(crate) struct Together {
    several: Several,
    members: Vec<Member>,
    within: Duration,
}

struct Member {
    lease: Arc<Lease>,
    count: u32,
    ttl: Duration,
}

impl Lease {
    pub(super) fn company(&self, state: &State) -> Option<Company> {
        let place = self.quorum.place()?;
        let patience = self.quorum.patience(state.ttl);
        Some(Company { place, family: self.kind.family(), side: self.kind.side(), patience })
    }

    /// Returns in whose company it may be renewed at `now`, because it is due soon anyway.
    pub(crate) fn is_due_soon(&self, now: Timestamp) -> Option<Company> {
        let state = self.state.lock();
        let soon = SOON.min(state.ttl / 30);
        let is_due =
            state.phase == Phase::Held && state.renews() && state.renew_at <= now.plus(soon);
        if is_due { self.company(&state) } else { None }
    }

    /// Renews it by itself.
    pub(crate) fn renew(&self, now: Timestamp) -> Due {
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return Due::OVER;
        }
        let renewal = if state.renews() { self.begin_renewal(&mut state, now) } else { None };
        let next_at = Some(state.next_at());
        self.tell_news(state);
        Due { renewal, question: None, together: None, next_at }
    }

    pub(super) fn begin_renewal(&self, state: &mut State, now: Timestamp) -> Option<Renewal> {
        let ttl = state.ttl;
        match self.send_renewal(state, ttl) {
            Ok(sent) => {
                state.renewing = true;
                Some(sent)
            }
            Err(fault) => {
                self.retry(state, now, fault);
                None
            }
        }
    }

    /// Renews it by itself after all: what was sent for it with others came to nothing.
    fn renew_alone(&self, now: Timestamp) -> Due {
        if self.check(now).is_err() {
            return Due::OVER;
        }
        self.state.lock().renewing = false;
        self.renew(now)
    }
}

impl Together {
    /// Renews leases of one [company](Company), all of them different. Those that have ended, or are renewed already, are left
    /// out.
    ///
    /// As for a single lease, what is decided and what is sent are one step: all are held until the call is sent. Nobody who
    /// has a lease's mutex waits for that of another lease but the caller of this, the watchdog's one task.
    pub(crate) fn send(company: Company, leases: &[Arc<Lease>], now: Timestamp) -> Option<Self> {
        let mut held: Vec<(&Arc<Lease>, MutexGuard<'_, State>)> = Vec::with_capacity(leases.len());
        let mut renewals = Renewals::default();
        for lease in leases {
            let state = lease.state.lock();
            if state.phase == Phase::Held && state.renews() {
                renewals.add(lease.kind.renew(lease.id(), state.count, state.ttl));
                held.push((lease, state));
            }
        }
        let (first, _) = held.first()?;
        match first.quorum.renew_together(renewals) {
            Ok(several) => {
                let member = |(lease, mut state): (&Arc<Lease>, MutexGuard<'_, State>)| {
                    let (count, ttl) = (state.count, state.ttl);
                    state.asked_for(ttl, several.sent_at());
                    state.renewing = true;
                    Member { lease: lease.clone(), count, ttl }
                };
                let members = held.into_iter().map(member).collect();
                Some(Self { several, members, within: company.patience })
            }
            Err(fault) => {
                for (lease, state) in &mut held {
                    lease.retry(state, now, fault.clone());
                }
                // No other is held while one tells.
                let failed: Vec<_> = held.into_iter().map(|(lease, _)| lease).collect();
                failed.into_iter().for_each(|lease| lease.tell_news(lease.state.lock()));
                None
            }
        }
    }

    /// The answer to it.
    pub(crate) async fn answer(&mut self) -> Result<Vec<Part>, Fault> {
        let Self { several, members, within } = self;
        // Not behind a release.
        let again = |site: &Site, call: &Call, path: &Path| {
            let held: Vec<_> = members.iter().map(|member| member.lease.state.lock()).collect();
            if held.iter().all(|state| state.phase == Phase::Held) {
                site.send_on(call, path)
            } else {
                Err(Fault::NoScript)
            }
        };
        let quorum = &members[0].lease.quorum;
        quorum.renewed_together(several, *within, again).await
    }

    /// Takes in the answer. What is to be done for each lease is told to `go_on`.
    pub(crate) fn answered(
        self,
        answer: &Result<Vec<Part>, Fault>,
        now: Timestamp,
        mut go_on: impl FnMut(Arc<Lease>, Due),
    ) {
        for (number, Member { lease, count, ttl }) in self.members.into_iter().enumerate() {
            let held = match answer.as_ref().map(|parts| parts[number]) {
                Ok(Part::Held(held)) => Ok(held),
                Ok(Part::Alone) => {
                    let due = lease.renew_alone(now);
                    go_on(lease, due);
                    continue;
                }
                Err(fault) => Err(fault.clone()),
            };
            let mut renewal = self.several.renewal(count, ttl, &held);
            let due = lease.renewed(&mut renewal, held, now);
            go_on(lease, due);
        }
    }
}

/// What is due within this time is renewed with what is due now.
pub(crate) const SOON: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::super::tests::{TTL, WATCHED, at, begun_on};
    use super::*;
    use crate::config::{Terms, drift};
    use crate::error::LossReason;

    /// Each is held until 30 000, is renewed at 11 000, and lives on a server that nothing reaches.
    fn leases(number: usize) -> Vec<Arc<Lease>> {
        (0..number).map(|_| Arc::new(begun_on(1, Terms::of(WATCHED)).0)).collect()
    }

    /// They were renewed together at 11 000.
    fn sent(leases: &[Arc<Lease>]) -> Together {
        let members = leases.iter().map(|lease| {
            lease.state.lock().renewing = true;
            Member { lease: lease.clone(), count: 1, ttl: TTL }
        });
        let several = Several::answered(at(11_000), leases.len());
        Together { several, members: members.collect(), within: TTL }
    }

    fn deadlines(leases: &[Arc<Lease>]) -> Vec<Timestamp> {
        leases.iter().map(|lease| lease.state.lock().deadline).collect()
    }

    #[tokio::test]
    async fn those_that_were_given_back_are_left_out() {
        let leases = leases(3);
        let company = leases[0].due(at(11_000)).together.expect("it is due");
        assert!(leases.iter().all(|lease| lease.is_due_soon(at(10_980)) == Some(company)));
        assert!(leases.iter().all(|lease| lease.is_due_soon(at(10_979)).is_none()));
        leases[1].retire();
        leases[2].state.lock().renewing = true;
        // It cannot be sent: what it was sent for is tried again.
        assert!(Together::send(company, &leases, at(11_000)).is_none());
        let tried = leases.iter().map(|lease| lease.state.lock().renew_at > at(11_000));
        assert_eq!(tried.collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(leases[1].is_due_soon(at(11_000)), None);
        assert!(Together::send(company, &leases[1..], at(11_000)).is_none(), "nothing is left");
    }

    #[tokio::test]
    async fn only_those_go_together_for_which_an_answer_is_waited_for_equally_long() {
        let leases = leases(2);
        leases[1].state.lock().ttl = TTL / 30;
        let [long, short] = [0, 1].map(|lease: usize| leases[lease].due(at(11_000)).together);
        assert!(long.is_some() && short.is_some() && long != short, "{long:?} {short:?}");
    }

    #[tokio::test]
    async fn several_masters_are_asked_for_each_lease_by_itself() {
        let lease = begun_on(3, Terms::of(WATCHED)).0;
        assert!(
            lease.due(at(11_000)).together.is_none() && lease.is_due_soon(at(11_000)).is_none()
        );
    }

    #[tokio::test]
    async fn each_takes_its_own_answer() {
        let leases = leases(5);
        let parts = [Part::Held(true), Part::Held(false), Part::Alone].into_iter();
        let parts = parts.chain([Part::Held(true); 2]).collect();
        let together = sent(&leases);
        leases[3].retire();
        leases[4].lose(LossReason::Ended);
        let mut looked_at = Vec::new();
        together.answered(&Ok(parts), at(12_000), |_, due| looked_at.push(due.next_at));
        let longer = at(41_000).minus(drift(TTL));
        let old = at(30_000);
        assert_eq!(deadlines(&leases), [longer, old, old, old, old]);
        assert_eq!(leases[1].loss(), Some(LossReason::Gone));
        assert!(leases[0].loss().is_none() && leases[2].loss().is_none());
        assert_eq!(looked_at[0], Some(at(21_000)));
        let soon = looked_at[2].expect("it is held");
        assert!(at(12_000) < soon && soon <= at(13_000), "{soon:?}");
        assert_eq!([looked_at[1], looked_at[3], looked_at[4]], [None; 3]);
        assert_eq!(leases[4].loss(), Some(LossReason::Ended));
    }

    #[tokio::test]
    async fn no_answer_renews_none_of_them() {
        let leases = leases(2);
        let silence = Fault::NoAnswer(TTL);
        let mut looked_at = Vec::new();
        sent(&leases).answered(&Err(silence), at(12_000), |_, due| looked_at.push(due.next_at));
        assert_eq!(deadlines(&leases), [at(30_000); 2]);
        let are_soon = looked_at.iter().flatten().filter(|at_| **at_ <= at(13_000)).count();
        assert!(are_soon == 2 && leases.iter().all(|lease| lease.loss().is_none()));
    }

    #[tokio::test]
    async fn an_answer_behind_the_deadline_renews_nothing() {
        let leases = leases(1);
        sent(&leases).answered(&Ok(vec![Part::Held(true)]), at(30_000), |_, due| {
            assert!(due.next_at.is_none());
        });
        assert_eq!(leases[0].loss(), Some(LossReason::NotRenewed));
    }
}
