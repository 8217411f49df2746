//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::{Case, Kind, Wrong};
use super::rules::Rules;
use super::state::{Action, Past, Server, Slot, State, Step, Value, Waiter};

/// Nobody goes on before the last count; but who never saw the latch shut may, once it was lost.
pub const NOT_EARLY: &str = "a latch does not open early";
/// A latch is told to be lost only if its server changed, or its end came.
pub const GROUNDS: &str = "a loss has grounds";
/// Where no message is lost, none is needed beside them; otherwise a timer is there.
pub const HEARD: &str = "who waits hears of it";
/// Each signal has a higher number than all before.
pub const NUMBERS: &str = "numbers of signals grow";
/// While the master stays, or its slot moves, nobody is shown an earlier number than before.
pub const SHOWN: &str = "numbers that are shown do not go back";
/// One goes on.
pub const GOES_ON: &str = "one goes on";
/// One goes on because of its timer.
pub const BY_TIMER: &str = "one goes on by its timer";
/// One is told that the latch is lost.
pub const TOLD_LOST: &str = "a loss is told";
/// A change runs where the slot has gone.
pub const ELSEWHERE: &str = "a change where the slot has gone";

/// The protocol in one case.
pub type Protocol = crate::protocol::Protocol<Case>;

impl Protocol {
    /// Whether nothing more happens soon: only changes, faults and timers can come.
    fn is_quiet(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        let goes_on = |action: &Action| {
            matches!(
                action,
                Action::Answer(_)
                    | Action::Hear(_)
                    | Action::Subscribe(_)
                    | Action::Deliver(_)
                    | Action::Look(_)
                    | Action::Notice(_)
                    | Action::Move
                    | Action::Close
            )
        };
        !actions.iter().any(goes_on)
    }

    /// Whether all who wait know what there is, or will.
    fn is_heard(&self, state: &State) -> bool {
        let unknown = |waiter: &&Waiter| {
            waiter.step == Step::Waits
                && match self.case.kind {
                    Kind::Latch => state.key.is_none(),
                    Kind::Signal => {
                        let given = state.value().map_or(0, |value| value.given);
                        waiter.saw.is_none_or(|(_, saw)| saw.given != given)
                    }
                }
        };
        let mut unaware = state.waiters.iter().filter(unknown).peekable();
        // Its clock tells it of the end.
        unaware.peek().is_none()
            || !self.is_quiet(state)
            || unaware.all(|waiter| waiter.timer && (waiter.unheard || state.past.ended))
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let is_latch = self.case.kind == Kind::Latch;
        let value = Value { number: self.case.changes, given: 0 };
        let waiter = Waiter {
            step: Step::Asks,
            listens: None,
            woken: false,
            mail: false,
            timer: false,
            saw: None,
            unheard: false,
        };
        vec![State {
            key: is_latch.then_some((Server::First, value)),
            slot: Slot::On(Server::First),
            copy: None,
            now: 0,
            sent: self.case.changes,
            waiters: [waiter.clone(), waiter],
            end_is_near: false,
            faults: (self.case.lost, self.case.breaks),
            past: Past::default(),
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        if state.sent > 0 {
            actions.extend([Action::Change, Action::Lose]);
        }
        for (number, waiter) in state.waiters.iter().enumerate() {
            let number = number as u8;
            match waiter.step {
                Step::Asks => actions.push(Action::Answer(number)),
                Step::Answered(..) => actions.push(Action::Hear(number)),
                Step::Subscribes => actions.push(Action::Subscribe(number)),
                Step::Waits => {
                    if waiter.woken {
                        actions.push(Action::Look(number));
                    }
                    if waiter.timer {
                        actions.push(Action::Poll(number));
                    }
                    let is_behind = waiter.listens != Some(state.listened_to());
                    if is_behind && !self.case.is(Wrong::StaysBehind) {
                        actions.push(Action::Notice(number));
                    }
                    if state.faults.1 > 0 {
                        actions.push(Action::Break(number));
                    }
                }
                Step::WentOn | Step::ToldLost => {}
            }
            if waiter.mail {
                actions.push(Action::Deliver(number));
                if state.faults.0 > 0 {
                    actions.push(Action::Drop(number));
                }
            }
        }
        match state.slot {
            Slot::On(Server::First) => {
                if self.case.moves {
                    actions.push(Action::Open);
                }
                if self.case.fails_over {
                    actions.push(Action::FailOver);
                    if state.copy != state.value() {
                        actions.push(Action::Copy);
                    }
                }
            }
            Slot::Open if state.key.is_some_and(|(server, _)| server == Server::First) => {
                actions.push(Action::Move);
            }
            Slot::Open => actions.push(Action::Close),
            Slot::On(Server::Second) => {}
        }
        if self.case.ends && !state.end_is_near {
            actions.push(Action::EndIsNear);
        }
        if state.end_is_near && state.key.is_some() {
            actions.push(Action::End);
        }
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        match action {
            Action::Change => rules.change(),
            Action::Answer(number) => rules.answer(usize::from(number)),
            Action::Hear(number) => rules.hear(usize::from(number)),
            Action::Subscribe(number) => rules.subscribe(usize::from(number)),
            Action::Notice(number) => rules.subscribe_anew(usize::from(number)),
            Action::FailOver => rules.fail_over(),
            Action::Break(number) => {
                rules.subscribe_anew(usize::from(number));
                state.faults.1 -= 1;
            }
            Action::Deliver(number) => {
                let waiter = &mut state.waiters[usize::from(number)];
                (waiter.mail, waiter.woken) = (false, true);
            }
            Action::Drop(number) => {
                let waiter = &mut state.waiters[usize::from(number)];
                (waiter.mail, waiter.unheard) = (false, true);
                state.faults.0 -= 1;
            }
            Action::Look(number) | Action::Poll(number) => {
                let waiter = &mut state.waiters[usize::from(number)];
                let has_news = self.case.kind == Kind::Latch && last.key.is_none();
                state.past.by_timer |= matches!(action, Action::Poll(_)) && has_news;
                (waiter.woken, waiter.timer) = (false, false);
                waiter.step = Step::Asks;
            }
            Action::Lose => state.sent -= 1,
            Action::Open => state.slot = Slot::Open,
            Action::Move => {
                state.key = state.key.map(|(_, value)| (Server::Second, value));
            }
            Action::Close => state.slot = Slot::On(Server::Second),
            Action::Copy => state.copy = state.value(),
            Action::EndIsNear => state.end_is_near = true,
            Action::End => (state.key, state.past.ended) = (None, true),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(NOT_EARLY, |_: &Self, state: &State| !state.past.opened_early),
            Property::always(GROUNDS, |_: &Self, state: &State| {
                !state.is_told_lost() || state.slot != Slot::On(Server::First) || state.end_is_near
            }),
            Property::always(HEARD, Self::is_heard),
            Property::always(NUMBERS, |_: &Self, state: &State| !state.past.went_back),
            Property::always(SHOWN, |_: &Self, state: &State| !state.past.shown_back),
            Property::sometimes(GOES_ON, |_: &Self, state: &State| state.has_gone_on()),
            Property::sometimes(BY_TIMER, |_: &Self, state: &State| {
                state.past.by_timer && state.has_gone_on()
            }),
            Property::sometimes(TOLD_LOST, |_: &Self, state: &State| state.is_told_lost()),
            Property::sometimes(ELSEWHERE, |_: &Self, state: &State| {
                state.past.ran > 0 && state.key.is_some_and(|(server, _)| server == Server::Second)
            }),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
