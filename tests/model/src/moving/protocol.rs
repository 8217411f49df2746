//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::{Case, End};
use super::scripts::Rules;
use super::state::{Action, Form, KEYS, Key, Node, Request, Slot, State};

/// Who ends a lease is never told that there was nothing: nobody else ends it.
pub const NO_LOSS: &str = "what was ended is told so";
/// Who is told anything finds the lease ended.
pub const ENDED: &str = "what is told is so";
/// A reader is not taken for gone, and nobody gets in beside it.
pub const BESIDE: &str = "no reader is passed over";
/// An end is told that the other node ran before it had the slot.
pub const IN_A_MOVE: &str = "an end in a move";
/// Who waits is let in by it.
pub const LET_IN: &str = "one is let in";

/// The protocol in one case.
pub type Protocol = crate::protocol::Protocol<Case>;

impl Protocol {
    fn start(end: End, other: bool, waits: bool) -> State {
        let mut at = [None; KEYS];
        let mut make = |key: Key, is_there: bool| {
            at[key as usize] = is_there.then_some(Node::First);
        };
        make(Key::Name, true);
        make(Key::Second, true);
        make(Key::Queue, waits);
        make(Key::OwnEnd, matches!(end, End::Reader | End::ReadersByForce));
        make(Key::OtherEnd, other && end.is_shared());
        State {
            end,
            at,
            slot: Slot::On(Node::First),
            lease: true,
            other,
            let_in: false,
            form: Form { to: Node::First, asking: false, one_key: false },
            request: Request::Sent,
            told: None,
            passed_over: false,
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let starts = |&end: &End| {
            let all = all.into_iter().filter(move |(other, _)| end.has_others() || !other);
            all.map(move |(other, waits)| Self::start(end, other, waits))
        };
        self.case.ends.iter().flat_map(starts).collect()
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        match state.slot {
            Slot::On(Node::First) => actions.push(Action::Open),
            Slot::On(Node::Second) => {}
            Slot::Open => {
                let left =
                    (0..KEYS as u8).filter(|key| state.at[usize::from(*key)] == Some(Node::First));
                let before = actions.len();
                actions.extend(left.map(Action::Move));
                if actions.len() == before {
                    actions.push(Action::Close);
                }
            }
        }
        match state.request {
            Request::Sent => actions.push(Action::Run),
            Request::Answered(_) => actions.push(Action::Hear),
            Request::Over => {}
        }
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        match action {
            Action::Open => state.slot = Slot::Open,
            Action::Move(key) => state.at[usize::from(key)] = Some(Node::Second),
            Action::Close => state.slot = Slot::On(Node::Second),
            Action::Run => Rules { case: &self.case, state: &mut state }.run(),
            Action::Hear => Rules { case: &self.case, state: &mut state }.hear(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(NO_LOSS, |_: &Self, state: &State| state.told != Some(false)),
            Property::always(ENDED, |_: &Self, state: &State| state.told.is_none() || !state.lease),
            Property::always(BESIDE, |_: &Self, state: &State| !state.passed_over),
            Property::sometimes(IN_A_MOVE, |_: &Self, state: &State| {
                state.told.is_some() && state.slot == Slot::Open && state.form.to == Node::Second
            }),
            Property::sometimes(LET_IN, |_: &Self, state: &State| state.let_in),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
