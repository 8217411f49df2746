//! A lease as it is known here: until when it is ours, and what was asked of the servers about it.
//!
//! | phase      | becomes                | when                                                             |
//! |------------|------------------------|------------------------------------------------------------------|
//! | `Held`     | `Lost`                 | its deadline passes, a server says it is gone, or the client ends |
//! | `Held`     | `Released`             | its last user leaves                                             |
//! | the others | nothing (invariant 3)  |                                                                  |
//!
//! What is decided about a lease and the request that follows from it are one step under its mutex: nothing
//! is renewed or counted behind its release.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::kind::{Kind, Ticket};
use super::quorum::{Foothold, Grant, Heal, Quorum, Release, Renewal};
use super::round::PerNode;
use crate::clock::{Clock, Timestamp};
use crate::config::{LeaseTerms, Terms, drift};
use crate::error::{Fault, LossReason};
use crate::events::{self, Use};
use crate::key::LeaseId;
use crate::node::Node;
use crate::owner::Owner;
use crate::script::Call;

/// A grant with an end.
pub(crate) struct Lease {
    ticket: Ticket,
    pub(crate) kind: Arc<dyn Kind>,
    /// A time before the servers granted it.
    pub(crate) acquired_at: Timestamp,
    quorum: Arc<Quorum>,
    clock: Clock,
    state: Mutex<State>,
    /// Where it stands in the watchdog's schedule, whose mutex guards it.
    pub(crate) place: Place,
    /// Cancelled when the lease is lost; made for the first who asks.
    lost: OnceLock<CancellationToken>,
    /// Wakes those who wait until the client holds nothing.
    left: Arc<Notify>,
}

struct State {
    phase: Phase,
    /// Never moves back (invariant 2).
    deadline: Timestamp,
    /// What every renewal asks for.
    ttl: Duration,
    /// What the servers confirmed last: less than the TTL until the first renewal, if it was granted by message.
    lasts: Duration,
    /// The longest end that was ever asked of the servers, confirmed or not.
    ends_by: Timestamp,
    watched: bool,
    /// The longest hold's end: nothing is renewed after it.
    renew_until: Timestamp,
    /// It stays locked until then, also when its last user leaves before.
    keep_until: Timestamp,
    renew_at: Timestamp,
    renewing: bool,
    /// What each node has of it, as far as is known, and when to look for answers that were not waited for.
    footholds: PerNode<Foothold>,
    look_at: Timestamp,
    /// A majority said at its last answer that it is ours.
    confirmed: bool,
    /// The hold count: as it should be, as the servers have it, and whether an update is on its way.
    count: u32,
    count_written: u32,
    count_in_flight: bool,
    next_token: u64,
    block_end: u64,
    block: u64,
    /// Who uses it now, and with which token.
    user: Option<(Owner, u64)>,
    /// What is to be told once the mutex is free.
    news: Vec<News>,
}

/// What happened to a lease, as a line of the log.
enum News {
    RenewalFailed { fault: Fault, remaining: Duration },
    PutBack { node: Arc<str> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Lost(LossReason),
    Released,
}

/// A moment that is guarded from elsewhere: nanoseconds on the client's clock, 0 for none.
#[derive(Default)]
pub(crate) struct Place(AtomicU64);

impl Place {
    pub(crate) fn set(&self, at: Option<Timestamp>) {
        self.0.store(at.map_or(0, Timestamp::nanos), Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Option<Timestamp> {
        match self.0.swap(0, Ordering::Relaxed) {
            0 => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }
}

/// Whether a lease is ours.
pub(crate) enum Standing {
    Ours,
    /// `newly`: it was found out just now, and nobody was told yet.
    Lost {
        reason: LossReason,
        newly: Option<LossReason>,
    },
}

/// What is to be done for a lease now.
pub(crate) struct Due {
    pub(crate) renewal: Option<Renewal>,
    /// When to look again; `None`: never.
    pub(crate) next_at: Option<Timestamp>,
}

impl Lease {
    pub(crate) fn new(
        grant: Grant,
        terms: Terms,
        kind: Arc<dyn Kind>,
        quorum: Arc<Quorum>,
        clock: Clock,
        left: Arc<Notify>,
    ) -> Self {
        let watched = matches!(terms.lease, LeaseTerms::Watched(_));
        let patience = quorum.patience(grant.ttl);
        quorum.events().lease_began();
        Self {
            ticket: grant.ticket,
            kind,
            acquired_at: grant.began_at,
            quorum,
            clock,
            state: Mutex::new(State {
                phase: Phase::Held,
                deadline: grant.deadline,
                ttl: grant.ttl,
                lasts: grant.lasts,
                ends_by: grant.ends_by,
                watched,
                renew_until: end_of_hold(terms.max_hold, grant.began_at),
                renew_at: grant.began_at.plus(first_renewal(grant.lasts, grant.ttl)),
                renewing: false,
                look_at: look_by(&grant.footholds, patience),
                footholds: grant.footholds,
                confirmed: true,
                keep_until: Timestamp::default(),
                count: 1,
                count_written: 1,
                count_in_flight: false,
                next_token: (grant.block_end + 1).saturating_sub(grant.block),
                block_end: grant.block_end,
                block: grant.block,
                user: None,
                news: Vec::new(),
            }),
            place: Place::default(),
            lost: OnceLock::new(),
            left,
        }
    }

    pub(crate) fn id(&self) -> &LeaseId {
        &self.ticket.id
    }

    /// Whether it is ours at `now`; from its deadline on it is lost. Tells nobody.
    pub(crate) fn expire(&self, now: Timestamp) -> Standing {
        let mut state = self.state.lock();
        let newly = state.expire(now);
        if newly.is_some() {
            self.quorum.events().lease_ended();
        }
        match state.phase {
            Phase::Lost(reason) => Standing::Lost { reason, newly },
            Phase::Held | Phase::Released => Standing::Ours,
        }
    }

    /// Whether it is ours at `now`; from its deadline on it is lost.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), LossReason> {
        match self.expire(now) {
            Standing::Ours => Ok(()),
            Standing::Lost { reason, newly } => {
                if newly.is_some() {
                    self.tell(reason);
                }
                Err(reason)
            }
        }
    }

    /// Why it was lost, if that is known.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        match self.state.lock().phase {
            Phase::Lost(reason) => Some(reason),
            Phase::Held | Phase::Released => None,
        }
    }

    /// How long until its deadline, whatever has become of it.
    pub(crate) fn time_left(&self, now: Timestamp) -> Duration {
        self.state.lock().deadline.since(now)
    }

    /// How long it is ours still if nothing renews it.
    pub(crate) fn remaining(&self, now: Timestamp) -> Duration {
        let state = self.state.lock();
        match state.phase {
            Phase::Held => state.deadline.since(now),
            _ => Duration::ZERO,
        }
    }

    /// Ends it as lost, unless it has ended before.
    pub(crate) fn lose(&self, reason: LossReason) {
        let mut state = self.state.lock();
        if state.phase == Phase::Held {
            state.phase = Phase::Lost(reason);
            drop(state);
            self.quorum.events().lease_ended();
            self.tell(reason);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().phase != Phase::Held
    }

    /// Cancelled when the lease is lost, or nobody is left to notice it.
    pub(crate) fn lost(&self) -> &CancellationToken {
        let token = self.lost.get_or_init(CancellationToken::new);
        // Made first, asked then; `wake` takes the same mutex before it looks for the token: one sees the other.
        let state = self.state.lock();
        if matches!(state.phase, Phase::Lost(_)) || self.clock.is_stopped() {
            drop(state);
            token.cancel();
        }
        token
    }

    /// Wakes those who wait for the loss.
    pub(crate) fn tell(&self, reason: LossReason) {
        self.wake();
        let user = self.state.lock().user.clone();
        self.quorum.events().lock_lost(self.used(&user), reason, self.clock.now());
    }

    /// Says who uses it from now on.
    pub(crate) fn used_by(&self, owner: &Owner, token: u64) {
        self.state.lock().user = Some((owner.clone(), token));
    }

    fn used<'a>(&'a self, user: &'a Option<(Owner, u64)>) -> Use<'a> {
        Use {
            lock: self.kind.name(),
            lease: self.id(),
            owner: user.as_ref().map(|(owner, _)| owner),
            token: user.as_ref().map_or(0, |(_, token)| *token),
        }
    }

    /// Emits what has happened under the mutex, once that is free.
    fn tell_news(&self, mut state: MutexGuard<'_, State>) {
        let news = std::mem::take(&mut state.news);
        if news.is_empty() {
            return;
        }
        let user = state.user.clone();
        drop(state);
        let events = self.quorum.events();
        for news in news {
            match news {
                News::RenewalFailed { fault, remaining } => {
                    let now = self.clock.now();
                    events.renewal_failed(self.used(&user), &fault, remaining, now);
                }
                News::PutBack { node } => {
                    events::lease_put_back(&node, self.kind.name(), self.id());
                }
            }
        }
    }

    /// Wakes those who wait for the loss, also where nobody is left to notice it.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        if let Some(token) = self.lost.get() {
            token.cancel();
        }
        self.left.notify_waiters();
    }

    /// Its next token, if the block has one left.
    pub(crate) fn take_token(&self) -> Option<u64> {
        self.state.lock().take_token()
    }

    /// How many tokens were used.
    pub(crate) fn tokens_used(&self) -> u64 {
        let state = self.state.lock();
        state.block - (state.block_end + 1).saturating_sub(state.next_token)
    }

    /// Lets the next hold, of `max_hold`, use this lease as it is: the hold's token, if that can be.
    ///
    /// Only while it is young and far from its end, so that a hold in another process waits for one
    /// window at most, and the new hold begins with time enough. Not once it was extended: the new hold asked
    /// for no longer lease than its own, and would outlast a crash of this process by what the last one asked for.
    ///
    /// The second value is when the watchdog has to look, if that has changed.
    pub(crate) fn hand_off(
        &self,
        now: Timestamp,
        terms: Terms,
        window: Duration,
    ) -> Option<(u64, Option<Timestamp>)> {
        let mut state = self.state.lock();
        let fits = state.watched
            && terms.lease == LeaseTerms::Watched(state.ttl)
            && now.since(self.acquired_at) < window
            && state.phase == Phase::Held
            && state.deadline.since(now) > state.lasts / 2
            && state.ends_by.since(now) <= state.ttl
            && state.keep_until <= now
            && terms.min_hold.is_zero();
        if !fits {
            return None;
        }
        let token = state.take_token()?;
        Some((token, state.limit(end_of_hold(terms.max_hold, now))))
    }

    /// Keeps the lock taken until `at` at least, whatever becomes of its users.
    pub(crate) fn keep_until(&self, at: Timestamp) {
        let mut state = self.state.lock();
        state.keep_until = state.keep_until.max(at);
    }

    /// Sets the longest hold of the first who uses it; when the watchdog has to look, if that has changed.
    pub(crate) fn limit(&self, max_hold: Option<Duration>) -> Option<Timestamp> {
        self.state.lock().limit(end_of_hold(max_hold, self.acquired_at))
    }

    /// What the watchdog has to do at `now`. A renewal that is decided here is sent here.
    pub(crate) fn due(&self, now: Timestamp) -> Due {
        let over = Due { renewal: None, next_at: None };
        if self.check(now).is_err() {
            return over;
        }
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return over;
        }
        if now >= state.look_at {
            self.look(&mut state, now);
        }
        let mut renewal = None;
        if state.renews() && now >= state.renew_at {
            let ttl = state.ttl;
            match self.send_renewal(&mut state, ttl) {
                Ok(sent) => {
                    state.renewing = true;
                    renewal = Some(sent);
                }
                Err(fault) => self.retry(&mut state, now, fault),
            }
        }
        let next_at = Some(state.next_at());
        self.tell_news(state);
        Due { renewal, next_at }
    }

    /// A server may have forgotten it. A renewal, if there is one to come, comes now; else the servers are asked by an
    /// update of the count, which changes nothing.
    pub(crate) fn hurry(&self, now: Timestamp) -> Due {
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return Due { renewal: None, next_at: None };
        }
        let mut question = None;
        if state.renews() {
            state.renew_at = now;
        } else if !state.renewing && !state.count_in_flight {
            question = self.send_count(&mut state);
        }
        Due { renewal: question, next_at: Some(state.next_at()) }
    }

    /// The answer to a renewal, an update of the count or a widening.
    pub(crate) async fn answer(
        &self,
        renewal: &mut Renewal,
        within: Duration,
    ) -> Result<bool, Fault> {
        // Not behind a release.
        let again = |node: &Node, call: &Call| {
            let state = self.state.lock();
            match state.phase {
                Phase::Held => node.send_whole(call),
                Phase::Lost(_) | Phase::Released => Err(Fault::NoScript),
            }
        };
        self.quorum.renewed(&*self.kind, renewal, within, again).await
    }

    /// Takes in the answer to a renewal; when the watchdog should look again.
    pub(crate) fn renewed(
        &self,
        renewal: &mut Renewal,
        answer: Result<bool, Fault>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        // An answer that comes after the end comes too late.
        let standing = self.check(now);
        let mut state = self.state.lock();
        state.renewing = false;
        if standing.is_err() || state.phase != Phase::Held {
            return None;
        }
        match answer {
            Ok(true) => {
                state.confirm(renewal);
                self.absorb(&mut state, renewal, now);
            }
            Ok(false) => {
                drop(state);
                self.lose(LossReason::Gone);
                return None;
            }
            Err(fault) => {
                state.confirmed = false;
                self.absorb(&mut state, renewal, now);
                self.retry(&mut state, now, fault);
            }
        }
        let next_at = state.next_at();
        self.tell_news(state);
        Some(next_at)
    }

    /// Takes in what each node said in a renewal. Where the lease is missing it is put back, if a majority has it.
    fn absorb(&self, state: &mut State, renewal: &mut Renewal, now: Timestamp) {
        if self.quorum.is_one() {
            return;
        }
        self.look(state, now);
        let heal = self.heal(state, renewal.ttl.max(state.ttl));
        let mut healed = false;
        let State { footholds, news, confirmed, .. } = &mut *state;
        renewal.leave(footholds, now, |node, foothold| {
            let node = &self.quorum.nodes()[node];
            if *confirmed && foothold.heal(node, &heal, now) {
                news.push(News::PutBack { node: node.address().clone() });
                healed = true;
            }
        });
        if healed {
            state.asked_for(heal.ttl, now);
        }
        state.look_at = look_by(&state.footholds, self.quorum.patience(state.ttl));
    }

    /// Takes in answers that were not waited for.
    fn look(&self, state: &mut State, now: Timestamp) {
        let heal = self.heal(state, state.ttl);
        let mut healed = false;
        for (node, foothold) in self.quorum.nodes().iter().zip(&mut state.footholds) {
            let missing = foothold.look(node, &heal, now) && state.confirmed;
            if missing && foothold.heal(node, &heal, now) {
                state.news.push(News::PutBack { node: node.address().clone() });
                healed = true;
            }
        }
        if healed {
            state.asked_for(heal.ttl, now);
        }
        state.look_at = look_by(&state.footholds, self.quorum.patience(state.ttl));
    }

    fn heal(&self, state: &State, ttl: Duration) -> Heal<'_> {
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
    fn retry(&self, state: &mut State, now: Timestamp, fault: Fault) {
        let most = (state.ttl / 10).min(LONGEST_RETRY);
        state.renew_at = now.plus(self.clock.jitter(most / 4, most));
        state.news.push(News::RenewalFailed { fault, remaining: state.deadline.since(now) });
    }

    /// Sets the hold count. The servers are told behind the caller's back, one update at a time.
    pub(crate) fn set_count(&self, count: u32) -> Option<Renewal> {
        let mut state = self.state.lock();
        state.count = count;
        self.write_count(&mut state)
    }

    /// Takes in the answer to an update of the count; the next one, if the count has changed meanwhile.
    pub(crate) fn count_written(
        &self,
        update: &mut Renewal,
        answer: Result<bool, Fault>,
    ) -> Option<Renewal> {
        let mut state = self.state.lock();
        state.count_in_flight = false;
        match answer {
            Ok(true) => {
                state.count_written = update.count;
                if state.phase == Phase::Held {
                    self.absorb(&mut state, update, self.clock.now());
                }
                let next = self.write_count(&mut state);
                self.tell_news(state);
                next
            }
            Ok(false) => {
                drop(state);
                self.lose(LossReason::Gone);
                None
            }
            // The next renewal writes it.
            Err(_) => None,
        }
    }

    fn write_count(&self, state: &mut State) -> Option<Renewal> {
        let wanted = state.phase == Phase::Held
            && !state.count_in_flight
            && state.count != state.count_written;
        if !wanted {
            return None;
        }
        self.send_count(state)
    }

    fn send_count(&self, state: &mut State) -> Option<Renewal> {
        let sent = self.send_renewal(state, Duration::ZERO).ok()?;
        state.count_in_flight = true;
        Some(sent)
    }

    /// Sends what makes the lease last as `terms` ask, if it would not do so anyway.
    ///
    /// The second value is when the watchdog has to look, if that has changed.
    pub(crate) fn widen(
        &self,
        terms: Terms,
        now: Timestamp,
    ) -> (Option<Result<Renewal, Fault>>, Option<Timestamp>) {
        let mut state = self.state.lock();
        let ttl = terms.ttl();
        let mut look_at = None;
        let lasts = match terms.lease {
            LeaseTerms::Watched(_) => {
                let renew_until = end_of_hold(terms.max_hold, now);
                if state.watched && renew_until > state.renew_until {
                    look_at = state.limit(renew_until);
                }
                state.watched && ttl <= state.ttl
            }
            LeaseTerms::Fixed(_) => {
                (state.watched && state.renew_until == Timestamp::NEVER)
                    || now.plus(ttl).minus(drift(ttl)) <= state.deadline
            }
        };
        if lasts || state.phase != Phase::Held {
            return (None, look_at);
        }
        (Some(self.send_renewal(&mut state, ttl)), look_at)
    }

    /// Sends what makes the lease last for `ttl` from now on at least.
    pub(crate) fn lengthen(&self, ttl: Duration) -> Result<Renewal, Fault> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Held => self.send_renewal(&mut state, ttl),
            _ => Err(Fault::Closed),
        }
    }

    fn send_renewal(&self, state: &mut State, ttl: Duration) -> Result<Renewal, Fault> {
        let renewal = self.quorum.renew(&*self.kind, self.id(), state.count, ttl)?;
        state.asked_for(ttl, renewal.sent_at());
        Ok(renewal)
    }

    /// Takes in the answer to a widening: the lease lasts as `terms` ask from now on.
    pub(crate) fn widened(
        &self,
        renewal: &mut Renewal,
        terms: Terms,
        now: Timestamp,
    ) -> Result<Timestamp, LossReason> {
        self.check(now)?;
        let mut state = self.state.lock();
        // What is put back on a node must not come behind the release.
        match state.phase {
            Phase::Held => {}
            Phase::Lost(reason) => return Err(reason),
            Phase::Released => return Err(LossReason::Ended),
        }
        state.confirm(renewal);
        self.absorb(&mut state, renewal, now);
        if let LeaseTerms::Watched(ttl) = terms.lease {
            if !state.watched {
                state.watched = true;
                state.ttl = ttl;
                state.renew_until = end_of_hold(terms.max_hold, now);
            }
            state.ttl = state.ttl.max(ttl);
            state.renew_at = renewal.sent_at().plus(state.ttl / 3);
        }
        let next_at = state.next_at();
        self.tell_news(state);
        Ok(next_at)
    }

    /// Ends it and sends its release. A lost lease is released as well as may be.
    pub(crate) fn release(&self) -> Release {
        let mut state = self.state.lock();
        if state.phase == Phase::Held {
            state.phase = Phase::Released;
            self.quorum.events().lease_ended();
        }
        // It is owed for as long as anything that was asked for may keep the lock.
        let now = self.clock.now();
        let lasts = state.ends_by.since(now).max(state.ttl);
        let keep = state.keep_until.since(now);
        self.quorum.release(&self.kind, self.ticket.clone(), lasts, keep, &state.footholds)
    }

    /// When the watchdog has to look at it first.
    pub(crate) fn first_look(&self) -> Timestamp {
        self.state.lock().next_at()
    }

    /// How long an answer about it is waited for: the longer, the longer it is ours.
    pub(crate) fn patience(&self, now: Timestamp) -> Duration {
        let state = self.state.lock();
        self.quorum.patience(state.ttl.max(state.deadline.since(now)))
    }
}

impl State {
    /// Ends it if its time is over; why, if that is news.
    fn expire(&mut self, now: Timestamp) -> Option<LossReason> {
        if self.phase != Phase::Held || now < self.deadline {
            return None;
        }
        let reason = if self.watched && self.renew_until > now {
            LossReason::NotRenewed
        } else {
            LossReason::Ended
        };
        self.phase = Phase::Lost(reason);
        Some(reason)
    }

    /// The next moment at which something happens of itself.
    fn next_at(&self) -> Timestamp {
        let renew_at = if self.renews() { self.renew_at } else { Timestamp::NEVER };
        renew_at.min(self.deadline).min(self.look_at)
    }

    /// Renews no longer than until then; when the next event is, if that has changed.
    fn limit(&mut self, renew_until: Timestamp) -> Option<Timestamp> {
        let before = std::mem::replace(&mut self.renew_until, renew_until);
        (before != renew_until).then(|| self.next_at())
    }

    /// Whether there is a renewal to come that is not on its way.
    fn renews(&self) -> bool {
        self.watched && !self.renewing && self.renew_at < self.renew_until
    }

    /// A renewal that was answered "held": counted from before it was sent (invariant 2).
    fn confirm(&mut self, renewal: &Renewal) {
        let sent_at = renewal.sent_at();
        self.deadline = self.deadline.max(sent_at.plus(renewal.ttl).minus(drift(renewal.ttl)));
        self.lasts = self.lasts.max(renewal.ttl).min(self.ttl);
        self.renew_at = sent_at.plus(self.ttl / 3);
        self.confirmed = true;
        self.count_written = renewal.count;
    }

    /// The servers were asked at `at` to keep it for `ttl` from then on.
    fn asked_for(&mut self, ttl: Duration, at: Timestamp) {
        self.ends_by = self.ends_by.max(at.plus(ttl));
    }

    fn take_token(&mut self) -> Option<u64> {
        if self.next_token > self.block_end {
            return None;
        }
        self.next_token += 1;
        Some(self.next_token - 1)
    }
}

/// Returns how long after its beginning a lease is renewed first. One that was granted for a short time, by message, is
/// renewed soon, but not before a short hold is likely over.
fn first_renewal(lasts: Duration, ttl: Duration) -> Duration {
    if lasts < ttl { FIRST_RENEWAL.min(lasts / 3) } else { ttl / 3 }
}

fn end_of_hold(max_hold: Option<Duration>, began_at: Timestamp) -> Timestamp {
    max_hold.map_or(Timestamp::NEVER, |max_hold| began_at.plus(max_hold))
}

fn look_by(footholds: &[Foothold], patience: Duration) -> Timestamp {
    footholds
        .iter()
        .filter_map(|foothold| foothold.look_by(patience))
        .min()
        .unwrap_or(Timestamp::NEVER)
}

const FIRST_RENEWAL: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(1);
