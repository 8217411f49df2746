//! The model as the checker sees it: which actions there are, what each leads to, what must hold.

use stateright::{Model, Property};

use super::action::Action;
use super::case::{Bug, Case};
use super::check;
use super::requests::{self, WaitsFor};
use super::server::{Keep, Rules};
use super::state::{Hub, JavaPhase, LastRelease, Life, Phase, State};
use super::symmetry::{Names, canonical, renamings, tidy};
use super::time::{is_due, may_expire};
use super::wire::Request;

/// Two never both believe that they hold the lock.
pub const EXCLUSION: &str = "no double grant";
/// Nothing is held or queued for a lease whose release has run.
pub const NO_LEFTOVER: &str = "no leftover";
/// In a quiet state with a free lock nobody waits; after certain faults a poll helps.
pub const LIVENESS: &str = "a free lock is taken";
/// In a quiet state the first in the queue knows it.
pub const HEAD_KNOWS: &str = "the head knows";
/// While Java holds the lock, somebody who goes on listens for its release, after a poll at the latest.
pub const HEARS_JAVA: &str = "a poll finds who listens to Java";
/// A free lock is refused only for somebody who is there.
pub const FREE_FOR_WHO_ASKS: &str = "a free lock is refused for the living";
/// Tokens strictly increase from hold to hold.
pub const TOKEN_ORDER: &str = "tokens increase";
/// Who holds what the server has knows the token of that.
pub const LEASE_TOKEN: &str = "a lease has its token";
/// Grants follow the order of arrival.
pub const ARRIVAL_ORDER: &str = "order of arrival";
/// A client of Redisson that waits is passed over twice at most.
pub const JAVA_TURN: &str = "every second turn is open to Java";
/// In a quiet state each attempt beside those who wait has had one of them ask.
pub const ATTEMPT_ANSWERED: &str = "an attempt is answered";
/// A waiter holds the lock by a message alone.
pub const GRANTED: &str = "a grant by message";
/// A grant is confirmed before it is a hold.
pub const CONFIRMED: &str = "a confirmation";
/// A renewal is confirmed.
pub const RENEWED: &str = "a renewal";
/// We hold the lock, then Java, then we.
pub const ALTERNATED: &str = "turns of both";
/// A grant comes in a quarantine.
pub const DOUBTED: &str = "a grant in a quarantine";

/// How many turns of ours a client of Redisson may wait for.
const PASSED: u8 = 2;
/// The same where a client asks behind its release before it knows that others heard that: it does so once, and its own release
/// may grant the lock to one who waits.
const PASSED_UNKNOWN: u8 = 4;

/// The queue's protocol in one case.
pub struct Protocol {
    case: Case,
    properties: Vec<&'static str>,
    keep: Keep,
    /// The ways to rename waiters and processes that lead to a state of equal worth, but for leaving them as they are.
    renamings: Vec<Names>,
}

impl Protocol {
    /// The protocol with these properties to check.
    pub fn new(case: Case, properties: &[&'static str]) -> Self {
        let among = |names: &[&str]| properties.iter().any(|property| names.contains(property));
        let keep = Keep {
            tokens: among(&[TOKEN_ORDER, LEASE_TOKEN]),
            lease_tokens: among(&[LEASE_TOKEN]),
            order: among(&[ARRIVAL_ORDER]),
            turns: among(&[JAVA_TURN]),
            happened: among(&[GRANTED, CONFIRMED, RENEWED, ALTERNATED, DOUBTED]),
        };
        Protocol { case, properties: properties.to_vec(), keep, renamings: renamings(&case) }
    }

    fn waiter_actions(&self, state: &State, waiter: usize, actions: &mut Vec<Action>) {
        let Case { asks, tries, polls, cancels, renewals, java_prompt, .. } = self.case;
        let own = &state.waiters[waiter];
        let process = &state.processes[self.case.home(waiter)];
        let w = waiter as u8;
        let spent = &state.spent;
        if !process.is_live() {
            return;
        }
        let quarantined = process.quarantine > 0;
        // Where Java is prompt, its requests are under way for less time than anything that a client of ours does takes.
        let java_first = java_prompt
            && state.javas.iter().any(|java| java.woken || java.phase == JavaPhase::AskingAgain);
        match own.phase {
            // What a process knows of its own release keeps it from passing before Java, where that is modelled.
            Phase::Idle
                if !quarantined
                    && (!java_first || self.case.answers)
                    && !self.rests(state, waiter) =>
            {
                if spent.asks < asks {
                    actions.push(Action::Begin(w));
                }
                if spent.tries < tries {
                    actions.push(Action::Try(w));
                }
            }
            Phase::Held | Phase::Renewing if !java_first => {
                actions.push(Action::Unlock(w));
                if own.phase == Phase::Held && spent.renewals < renewals {
                    actions.push(Action::Renew(w));
                }
            }
            Phase::Waiting
                if !quarantined && !java_first && !requests::is_paused(&process.machine) =>
            {
                match state.waits_for(&self.case, waiter) {
                    None => {}
                    Some(WaitsFor::Moment) => actions.push(Action::Timer(w)),
                    Some(_) if spent.polls < polls && !self.case.is(Bug::NoPoll) => {
                        actions.push(Action::Poll(w));
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
        if !matches!(own.phase, Phase::Idle | Phase::Held | Phase::Renewing)
            && spent.cancels < cancels
        {
            actions.push(Action::GiveUp(w));
        }
    }

    /// Whether the waiter's process waits for the answer to a release, which tells whether Java heard it.
    fn rests(&self, state: &State, waiter: usize) -> bool {
        let process = &state.processes[self.case.home(waiter)];
        let released = |request: &Request| matches!(request, Request::Release(..));
        self.case.java_prompt
            && !self.case.answers
            && !self.case.is(Bug::AsksBehindItsRelease)
            && process.sent.iter().any(released)
    }

    fn process_actions(&self, state: &State, p: usize, actions: &mut Vec<Action>) {
        let process = &state.processes[p];
        let Case { breaks, resets, half_open, doubles, crashes, stops, .. } = self.case;
        let (spent, p) = (&state.spent, p as u8);
        if !process.stray.is_empty() {
            actions.extend([Action::RunStray(p), Action::DropStray(p)]);
        }
        if process.ghost_mailbox || process.ghost_channel {
            actions.push(Action::ServerNotices(p));
        }
        if !process.is_live() {
            return;
        }
        if process.cut {
            actions.push(Action::Reconnect(p));
        } else if let Some(next) = process.sent.first() {
            actions.push(Action::Run(p));
            if matches!(next, Request::Release(..)) && spent.doubles < doubles {
                actions.push(Action::RunTwice(p));
            }
        }
        if !process.replies.is_empty() {
            actions.push(Action::Hear(p));
        }
        if !process.hub_sent.is_empty() {
            actions.push(Action::Subscribe(p));
        }
        if state.next_message(p.into()).is_some() {
            actions.push(Action::Receive(p));
        }
        let java_first = self.case.java_prompt
            && state.javas.iter().any(|java| java.woken || java.phase == JavaPhase::AskingAgain);
        let stands_back = process.last_release == LastRelease::Received;
        if process.quarantine == 0
            && !java_first
            && (requests::is_paused(&process.machine) || stands_back)
        {
            actions.push(Action::Resume(p));
        }
        if process.follows {
            actions.push(Action::Follow(p));
        }
        if state.may_clear(&self.case, p.into()) {
            actions.push(Action::Clear(p));
        }
        if process.hub == Hub::Broken {
            actions.push(Action::ProcessNotices(p));
        }
        if spent.breaks < breaks && !(process.sent.is_empty() && process.replies.is_empty()) {
            actions.push(Action::Break(p));
        }
        if spent.resets < resets && matches!(process.hub, Hub::On | Hub::Subscribing) {
            actions.push(Action::Reset(p, true));
            if half_open && process.mailbox {
                actions.push(Action::Reset(p, false));
            }
        }
        if spent.crashes < crashes {
            actions.push(Action::Crash(p));
        }
        if spent.stops < stops {
            actions.push(Action::Stop(p));
        }
    }

    fn java_actions(&self, state: &State, j: usize, actions: &mut Vec<Action>) {
        let java = &state.javas[j];
        let j = j as u8;
        match java.phase {
            JavaPhase::Idle if state.spent.java_asks < self.case.java_asks => {
                actions.push(Action::JavaBegin(j));
            }
            JavaPhase::Asking
            | JavaPhase::Subscribing
            | JavaPhase::AskingAgain
            | JavaPhase::Releasing => actions.push(Action::JavaRun(j)),
            JavaPhase::Waiting if java.woken => actions.push(Action::JavaWake(j)),
            JavaPhase::Held => actions.push(Action::JavaUnlock(j)),
            _ => {}
        }
        if java.subscribed && matches!(java.phase, JavaPhase::Held | JavaPhase::Idle) {
            actions.push(Action::JavaUnsubscribe(j));
        }
        let alive = !matches!(java.phase, JavaPhase::Idle | JavaPhase::Ended);
        if alive && state.spent.crashes < self.case.crashes {
            actions.push(Action::JavaCrash(j));
        }
    }

    fn server_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let spent = &state.spent;
        let held = state.lock.is_some();
        if spent.forgets < self.case.forgets && !state.queue.is_empty() {
            actions.push(Action::Forget);
        }
        if spent.restarts < self.case.restarts {
            actions.push(Action::Restart);
        }
        if spent.moves < self.case.moves {
            actions.push(Action::Move);
        }
        if spent.forces < self.case.forces && held {
            actions.push(Action::Force);
        }
        if spent.steps < self.case.steps {
            actions.push(Action::Step);
        }
        if !self.case.timed {
            let late = may_expire(&self.case, state);
            if late.is_some_and(|late| !late || state.spent.late < self.case.late) {
                actions.push(Action::Expire);
            }
            return;
        }
        if is_due(&self.case, state) {
            return;
        }
        actions.push(Action::Tick);
        if spent.skew < self.case.skew && state.calm == 0 {
            actions.push(Action::TickOfServer);
            for process in 0..state.processes.len() as u8 {
                actions.extend([Action::TickWithout(process), Action::TickOf(process)]);
            }
        }
    }

    fn apply(&self, state: &mut State, action: Action) {
        let mut rules = Rules { case: &self.case, keep: self.keep, state, passed: 0 };
        match action {
            Action::Begin(w) => {
                rules.state.spent.asks += 1;
                rules.begin(w.into(), Phase::Waiting);
            }
            Action::Try(w) => {
                rules.state.spent.tries += 1;
                rules.begin(w.into(), Phase::Trying);
            }
            Action::GiveUp(w) => {
                rules.state.spent.cancels += 1;
                rules.release(w.into());
            }
            Action::Unlock(w) => {
                let home = self.case.home(w.into());
                rules.state.processes[home].rests = self.keep.turns;
                rules.release(w.into());
            }
            Action::Renew(w) => {
                rules.state.spent.renewals += 1;
                rules.renew(w.into());
            }
            Action::Poll(w) => {
                rules.state.spent.polls += 1;
                rules.wake(w.into());
            }
            Action::Timer(w) => rules.wake(w.into()),
            Action::Force => {
                rules.state.spent.forces += 1;
                rules.force();
            }
            Action::Forget => {
                rules.state.spent.forgets += 1;
                rules.state.queue.clear();
            }
            Action::Restart => {
                rules.state.spent.restarts += 1;
                rules.restart();
            }
            Action::Move => {
                rules.state.spent.moves += 1;
                rules.move_away();
            }
            Action::Step => {
                rules.state.spent.steps += 1;
                rules.step(self.case.step);
            }
            Action::Expire => {
                rules.state.spent.late +=
                    u8::from(may_expire(&self.case, rules.state) == Some(true));
                rules.expire();
            }
            Action::Tick => rules.tick(None),
            Action::TickWithout(p) => rules.skew(|rules| rules.tick(Some(p.into()))),
            Action::TickOf(p) => rules.skew(|rules| rules.tick_process(p.into())),
            Action::TickOfServer => rules.skew(Rules::tick_server),
            _ => self.apply_to_one(&mut rules, action),
        }
    }

    fn apply_to_one(&self, rules: &mut Rules<'_>, action: Action) {
        let processes = &mut rules.state.processes;
        match action {
            Action::Run(p) => {
                let request = processes[usize::from(p)].sent.remove(0);
                rules.run(p.into(), request, false);
            }
            Action::RunTwice(p) => {
                let request = processes[usize::from(p)].sent[0];
                rules.state.spent.doubles += 1;
                rules.run(p.into(), request, false);
            }
            Action::RunStray(p) => {
                let request = processes[usize::from(p)].stray.remove(0);
                rules.run(p.into(), request, true);
            }
            Action::DropStray(p) => {
                processes[usize::from(p)].stray.remove(0);
            }
            Action::Hear(p) => rules.hear(p.into()),
            Action::Subscribe(p) => {
                let request = processes[usize::from(p)].hub_sent.remove(0);
                rules.subscribe(p.into(), request);
            }
            Action::Receive(p) => rules.receive(p.into()),
            Action::Resume(p) => rules.resume(p.into()),
            Action::Clear(p) => rules.clear(p.into()),
            Action::Follow(p) => rules.follow(p.into()),
            Action::Break(p) => {
                rules.state.spent.breaks += 1;
                rules.reconnect(p.into(), self.case.kills);
            }
            Action::Reset(p, noticed) => {
                rules.state.spent.resets += 1;
                rules.reset(p.into(), noticed);
            }
            Action::ServerNotices(p) => rules.server_notices(p.into()),
            Action::ProcessNotices(p) => rules.process_notices(p.into()),
            Action::Reconnect(p) => rules.meet_again(p.into()),
            Action::Crash(p) => {
                rules.state.spent.crashes += 1;
                rules.end(p.into(), Life::Ended);
            }
            Action::Stop(p) => {
                rules.state.spent.stops += 1;
                rules.end(p.into(), Life::Stopped);
            }
            Action::JavaBegin(j) => {
                rules.state.spent.java_asks += 1;
                rules.state.javas[usize::from(j)].phase = JavaPhase::Asking;
            }
            Action::JavaRun(j) => rules.java_run(j.into()),
            Action::JavaWake(j) => rules.java_wake(j.into()),
            Action::JavaUnlock(j) => {
                rules.state.javas[usize::from(j)].phase = JavaPhase::Releasing;
            }
            Action::JavaUnsubscribe(j) => rules.state.javas[usize::from(j)].subscribed = false,
            Action::JavaCrash(j) => {
                rules.state.spent.crashes += 1;
                rules.java_crash(j.into());
            }
            _ => unreachable!("{action:?} is not of one of them"),
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(&self.case)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for waiter in 0..state.waiters.len() {
            self.waiter_actions(state, waiter, actions);
        }
        for process in 0..state.processes.len() {
            self.process_actions(state, process, actions);
        }
        for java in 0..state.javas.len() {
            self.java_actions(state, java, actions);
        }
        self.server_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.apply(&mut state, action);
        tidy(&self.case, &mut state);
        Some(canonical(&self.renamings, state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |_: &Self, state| check::exclusive(state)),
            Property::always(NO_LEFTOVER, |model: &Self, state| {
                check::nothing_left_over(&model.case, state)
            }),
            Property::always(LIVENESS, |model: &Self, state| check::lives(&model.case, state)),
            Property::always(HEAD_KNOWS, |model: &Self, state| {
                check::head_knows(&model.case, state)
            }),
            Property::always(HEARS_JAVA, |model: &Self, state| {
                check::hears_java(&model.case, state)
            }),
            Property::always(ATTEMPT_ANSWERED, |model: &Self, state| {
                check::attempts_are_answered(&model.case, state)
            }),
            Property::always(FREE_FOR_WHO_ASKS, |_: &Self, state: &State| {
                !state.seen.refused_for_nobody
            }),
            Property::always(TOKEN_ORDER, |_: &Self, state: &State| !state.seen.token_disorder),
            Property::always(LEASE_TOKEN, |_: &Self, state: &State| check::have_tokens(state)),
            Property::always(ARRIVAL_ORDER, |_: &Self, state: &State| !state.seen.order_broken),
            Property::always(JAVA_TURN, |model: &Self, state: &State| {
                let most = if model.case.answers { PASSED_UNKNOWN } else { PASSED };
                state.seen.passed <= most
            }),
            Property::sometimes(GRANTED, |_: &Self, state: &State| state.seen.happened.granted),
            Property::sometimes(CONFIRMED, |_: &Self, state: &State| state.seen.happened.confirmed),
            Property::sometimes(RENEWED, |_: &Self, state: &State| state.seen.happened.renewed),
            Property::sometimes(DOUBTED, |_: &Self, state: &State| state.seen.happened.doubted),
            Property::sometimes(ALTERNATED, |_: &Self, state: &State| {
                state.seen.happened.alternated == 3
            }),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
