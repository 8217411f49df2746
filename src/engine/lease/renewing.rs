//! The renewals of a lease, and what their answers say of each node.

use std::time::Duration;

use super::reclaiming::Missing;
use super::state::{News, Phase, State, look_by};
use super::{Company, Lease};
use crate::clock::Timestamp;
use crate::engine::quorum::{Heal, Renewal};
use crate::error::{Fault, LossReason};
use crate::fleet::{Path, Site};
use crate::script::Call;

/// What is to be done for a lease now.
pub(crate) struct Due {
    pub(crate) renewal: Option<Renewal>,
    /// Whether the servers have it still; the answer is that to an update of the count.
    pub(crate) question: Option<Renewal>,
    /// It is to be renewed with others of this company, or by itself if there are none.
    pub(crate) together: Option<Company>,
    /// When to look again, as it is now; `None`: never.
    pub(crate) next_at: Option<Timestamp>,
}

impl Due {
    pub(super) const OVER: Self =
        Self { renewal: None, question: None, together: None, next_at: None };
}

impl Lease {
    /// What the watchdog has to do at `now`. A renewal that is decided here is sent here, unless it may go with others.
    pub(crate) fn due(&self, now: Timestamp) -> Due {
        if self.check(now).is_err() {
            return Due::OVER;
        }
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return Due::OVER;
        }
        if now >= state.look_at {
            self.look(&mut state, now);
        }
        let is_due = state.renews() && now >= state.renew_at;
        let together = if is_due { self.company(&state) } else { None };
        let alone = is_due && together.is_none();
        let renewal = if alone { self.begin_renewal(&mut state, now) } else { None };
        let question = self.ask(&mut state, now);
        let next_at = Some(state.next_at());
        self.tell_news(state);
        Due { renewal, question, together, next_at }
    }

    /// A server may have forgotten it. A renewal, if there is one to come, comes now; else the servers are asked, until they
    /// answer.
    pub(crate) fn hurry(&self, now: Timestamp) -> Due {
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return Due::OVER;
        }
        state.doubted_at = Some(now);
        state.ask_at = now;
        if state.renews() {
            state.renew_at = now;
        }
        let question = self.ask(&mut state, now);
        Due { renewal: None, question, together: None, next_at: Some(state.next_at()) }
    }

    /// Asks the servers about a lease that is in doubt and is not renewed, by an update of the count, which changes nothing.
    fn ask(&self, state: &mut State, now: Timestamp) -> Option<Renewal> {
        if !state.asks() || now < state.ask_at {
            return None;
        }
        // If it cannot be sent, or gets no answer.
        let doubted_for = state.doubted_at.map_or(Duration::ZERO, |at| now.since(at));
        let most = (state.ttl / 10).min(LONGEST_RETRY.max(doubted_for / 4));
        state.ask_at = now.plus(self.clock.jitter(most / 4, most));
        self.send_count(state)
    }

    /// The answer to a renewal, an update of the count or a widening.
    pub(crate) async fn answer(
        &self,
        renewal: &mut Renewal,
        within: Duration,
    ) -> Result<bool, Fault> {
        // Not behind a release.
        let again = |site: &Site, call: &Call, path: &Path| {
            let state = self.state.lock();
            match state.phase {
                Phase::Held => site.send_on(call, path),
                Phase::Lost(_) | Phase::Released => Err(Fault::NoScript),
            }
        };
        self.quorum.renewed(&*self.kind, renewal, within, again).await
    }

    /// Takes in the answer to a renewal. What follows is what puts the lease back, if that can be.
    pub(crate) fn renewed(
        &self,
        renewal: &mut Renewal,
        answer: Result<bool, Fault>,
        now: Timestamp,
    ) -> Due {
        let renewed = matches!(answer, Ok(true));
        // An answer that comes after the end comes too late.
        let standing = self.check(now);
        let mut state = self.state.lock();
        state.renewing = false;
        if standing.is_err() || state.phase != Phase::Held {
            return Due::OVER;
        }
        let mut reclaim = None;
        match answer {
            Ok(true) if self.is_late(renewal, now) => {
                drop(state);
                self.lose(LossReason::Failover);
                return Due::OVER;
            }
            Ok(true) => {
                state.confirm(renewal);
                self.noted(&mut state, renewal);
                self.absorb(&mut state, renewal, now);
            }
            Ok(false) => match self.missing(&mut state, renewal, now) {
                Missing::Reclaiming(sent) => {
                    state.renewing = true;
                    reclaim = Some(*sent);
                }
                Missing::Unknown(fault) => self.retry(&mut state, now, fault),
                Missing::Lost(reason) => {
                    drop(state);
                    self.lose(reason);
                    return Due::OVER;
                }
            },
            Err(fault) => {
                state.confirmed = false;
                self.absorb(&mut state, renewal, now);
                self.retry(&mut state, now, fault);
            }
        }
        if state.is_doubted_since(renewal) {
            (state.renew_at, state.ask_at) = (now, now);
        }
        let next_at = Some(state.next_at());
        self.tell_news(state);
        if renewed {
            self.quorum.events().renewed(self.kind.name());
        }
        Due { renewal: reclaim, question: None, together: None, next_at }
    }

    /// Takes in what each node said in a renewal. Where the lease is missing it is put back, if a majority has it.
    pub(super) fn absorb(&self, state: &mut State, renewal: &mut Renewal, now: Timestamp) {
        if self.quorum.is_one() {
            return;
        }
        self.look(state, now);
        let heal = self.heal(state, renewal.ttl.max(state.rest(now)));
        let mut healed = false;
        let State { footholds, news, confirmed, .. } = &mut *state;
        renewal.leave(footholds, now, |node, foothold| {
            let node = &self.quorum.sites()[node];
            if *confirmed && foothold.heal(node, &heal, now) {
                news.push(News::PutBack { node: node.address() });
                healed = true;
            }
        });
        if healed {
            state.asked_for(heal.ttl, now);
        }
        state.look_at = look_by(&state.footholds, self.quorum.patience(state.ttl));
    }

    /// Takes in answers that were not waited for.
    pub(super) fn look(&self, state: &mut State, now: Timestamp) {
        let (asked, heal) = (self.heal(state, state.ttl), self.heal(state, state.rest(now)));
        let mut healed = false;
        for (node, foothold) in self.quorum.sites().iter().zip(&mut state.footholds) {
            let missing = foothold.look(node, &asked, now) && state.confirmed;
            if missing && foothold.heal(node, &heal, now) {
                state.news.push(News::PutBack { node: node.address() });
                healed = true;
            }
        }
        if healed {
            state.asked_for(heal.ttl, now);
        }
        state.look_at = look_by(&state.footholds, self.quorum.patience(state.ttl));
    }

    pub(super) fn heal(&self, state: &State, ttl: Duration) -> Heal<'_> {
        Heal {
            quorum: &self.quorum,
            kind: &*self.kind,
            ticket: &self.ticket,
            count: state.count,
            ttl,
            block_end: state.block_end,
        }
    }

    /// Nothing is known: the old deadline stands, and it is tried again before long.
    pub(super) fn retry(&self, state: &mut State, now: Timestamp, fault: Fault) {
        let mut most = (state.ttl / 10).min(LONGEST_RETRY);
        if fault.is_cluster_down() {
            // It may last, and all that the client holds is tried again.
            most = most.max((state.ttl / 10).min(state.deadline.since(now) / 4));
        }
        state.renew_at = now.plus(self.clock.jitter(most / 4, most));
        // If it is in doubt, and is not renewed.
        state.ask_at = state.renew_at;
        state.news.push(News::RenewalFailed { fault, remaining: state.deadline.since(now) });
    }
}

const LONGEST_RETRY: Duration = Duration::from_secs(1);
