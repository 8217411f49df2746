//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::Case;
use super::rules::Rules;
use super::state::{Action, Answer, Key, LOCKS, Lease, Request, Set, SoFar, State, each};

/// The process never believes that it holds a lock that another client has, unless that was unlocked by force.
pub const EXCLUSION: &str = "no double grant";
/// A lease on the server is held, or its release is on its way.
pub const LEFTOVER: &str = "no leftover";
/// No renewal is on its way behind the release of its lease.
pub const BEHIND: &str = "nothing behind a release";
/// A lease counts as gone only if it was removed, or has expired.
pub const GROUNDS: &str = "a loss has grounds";
/// What was unlocked by force does not come back.
pub const FORCED: &str = "a force-unlock lasts";
/// A lease is renewed in a call in which another is found to be gone.
pub const OUTLIVED: &str = "a renewal beside a loss";
/// A lease is renewed by itself after a call that came to nothing for it.
pub const ALONE: &str = "a renewal by itself";

/// The protocol in one case.
pub type Protocol = crate::protocol::Protocol<Case>;

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let mut state = State {
            keys: [Key::Free; LOCKS],
            leases: [Lease::Released; LOCKS],
            renewing: 0,
            chosen: 0,
            requests: Vec::new(),
            answers: Vec::new(),
            forced: 0,
            removed: 0,
            so_far: SoFar::default(),
            outlived: false,
            alone: false,
        };
        for lock in 0..usize::from(self.case.locks) {
            state.keys[lock] = Key::Ours(self.case.ttl);
            state.leases[lock] = Lease::Held(self.case.ttl);
        }
        vec![state]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        let (case, so_far) = (&self.case, &state.so_far);
        let is_held = |lock: &usize| matches!(state.leases[*lock], Lease::Held(_));
        actions.push(Action::Tick);
        let due: Set =
            (0..LOCKS).filter(is_held).map(|lock| 1 << lock).sum::<Set>() & !state.renewing;
        if state.chosen == 0 && so_far.calls < case.calls {
            let several = (1..1 << LOCKS).filter(|set: &Set| set & !due == 0);
            actions.extend(several.filter(|set| set.count_ones() > 1).map(Action::Choose));
        }
        if state.chosen != 0 {
            actions.push(Action::Send);
        }
        actions.extend((0..LOCKS).filter(is_held).map(|lock| Action::Release(lock as u8)));
        match state.requests.first() {
            Some(&Request::Together { sent, .. }) => {
                actions.push(Action::Run);
                if so_far.refusals < case.refusals {
                    actions.push(Action::Refuse);
                }
                if so_far.failures < case.failures {
                    actions.extend(each(sent).map(|lock| Action::RunBut(lock as u8)));
                }
            }
            Some(_) => actions.push(Action::Run),
            None => {}
        }
        if !state.answers.is_empty() {
            actions.push(Action::Hear);
        }
        if so_far.breaks < case.breaks {
            actions.push(Action::Break);
        }
        for lock in 0..usize::from(case.locks) {
            let number = lock as u8;
            if state.keys[lock] == Key::Free && so_far.takes < case.takes {
                actions.push(Action::Take(number));
            }
            if matches!(state.keys[lock], Key::Ours(_)) && so_far.forces < case.forces {
                actions.push(Action::Force(number));
            }
            if matches!(state.keys[lock], Key::Ours(_)) && so_far.overwrites < case.overwrites {
                actions.push(Action::Overwrite(number));
            }
        }
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        match action {
            Action::Tick => rules.tick(),
            Action::Choose(set) => {
                rules.state.so_far.calls += 1;
                rules.state.chosen = set;
            }
            Action::Send => rules.send(),
            Action::Release(lock) => rules.end(usize::from(lock), Lease::Released),
            Action::Run | Action::RunBut(_) => {
                let failing = match action {
                    Action::RunBut(lock) => Some(usize::from(lock)),
                    _ => None,
                };
                rules.state.so_far.failures += u8::from(failing.is_some());
                let request = rules.state.requests.remove(0);
                rules.run(request, failing);
            }
            Action::Refuse => {
                rules.state.so_far.refusals += 1;
                if let Request::Together { members, .. } = rules.state.requests.remove(0) {
                    rules.state.answers.push(Answer::Refused(members));
                }
            }
            Action::Hear => {
                let answer = rules.state.answers.remove(0);
                rules.hear(answer);
            }
            Action::Break => {
                rules.state.so_far.breaks += 1;
                rules.breaks();
            }
            Action::Take(lock) => {
                rules.state.so_far.takes += 1;
                rules.state.keys[usize::from(lock)] = Key::Others(self.case.ttl);
            }
            Action::Force(lock) | Action::Overwrite(lock) => {
                let bit = 1 << lock;
                rules.state.forced |= bit;
                rules.state.removed |= bit;
                let is_force = matches!(action, Action::Force(_));
                rules.state.keys[usize::from(lock)] =
                    if is_force { Key::Free } else { Key::Overwritten };
                let so_far = &mut rules.state.so_far;
                let times = if is_force { &mut so_far.forces } else { &mut so_far.overwrites };
                *times += 1;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |_: &Self, state: &State| {
                let both = |lock: usize| {
                    matches!(
                        (state.keys[lock], state.leases[lock]),
                        (Key::Others(_), Lease::Held(_))
                    )
                };
                !each(!state.forced).any(both)
            }),
            Property::always(LEFTOVER, |_: &Self, state: &State| {
                let wanted = |lock: usize| {
                    matches!(state.leases[lock], Lease::Held(_))
                        || state.requests.contains(&Request::Release(lock as u8))
                };
                (0..LOCKS).all(|lock| !matches!(state.keys[lock], Key::Ours(_)) || wanted(lock))
            }),
            Property::always(BEHIND, |_: &Self, state: &State| {
                let mut released = 0;
                state.requests.iter().all(|request| match request {
                    Request::Release(_) => {
                        released |= request.locks();
                        true
                    }
                    _ => request.locks() & released == 0,
                })
            }),
            Property::always(GROUNDS, |_: &Self, state: &State| {
                each(!state.removed).all(|lock| state.leases[lock] != Lease::Gone)
            }),
            Property::always(FORCED, |_: &Self, state: &State| {
                each(state.forced).all(|lock| !matches!(state.keys[lock], Key::Ours(_)))
            }),
            Property::sometimes(OUTLIVED, |_: &Self, state: &State| state.outlived),
            Property::sometimes(ALONE, |_: &Self, state: &State| state.alone),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
