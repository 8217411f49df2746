//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::{Case, Wrong};
use super::rules::Rules;
use super::state::{Action, Holder, Seat, Seen, Spent, State, Task, WINDOW};

/// Two never both believe that they hold the lock, unless it was ended by force.
pub const EXCLUSION: &str = "no double grant";
/// Each hold has a higher token than all before it, unless one was ended by force.
pub const TOKENS: &str = "tokens increase";
/// No hold begins on a lease that is older than the window, but the first.
pub const BOUND: &str = "others wait for a window";
/// A release that is not sent has an unlock that sends it, or it is sent by the end of the window.
pub const SENT: &str = "a release is sent in time";
/// Nobody of the process waits for a lease that nobody uses.
pub const USED: &str = "nobody waits for what nobody uses";
/// An unlock hears of it if its lease was gone.
pub const TOLD: &str = "a loss is told to its unlock";
/// A lease on the server is used, or its release is to come.
pub const LEFTOVER: &str = "no leftover";
/// A lease is taken back.
pub const TAKEN_BACK: &str = "a lease is taken back";
/// Another one than its unlock has a release sent, and the other client gets the lock.
pub const SENT_FOR: &str = "a release is sent for another";

/// The protocol in one case.
pub type Protocol = crate::protocol::Protocol<Case>;

impl Protocol {
    fn task_actions(&self, state: &State, task: u8, actions: &mut Vec<Action>) {
        match state.tasks[usize::from(task)] {
            Task::Idle if state.spent.turns < self.case.turns => {
                actions.push(Action::Arrive(task));
            }
            Task::Waiting if state.seat == Seat::Free && state.request.is_none() => {
                actions.push(Action::Ask(task));
            }
            Task::Held => actions.extend([Action::Unlock(task), Action::DropGuard(task)]),
            Task::Parting => actions.extend([Action::Poll(task), Action::DropUnlock(task)]),
            Task::Idle | Task::Waiting | Task::Releasing(_) => {}
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State {
            lock: None,
            queue: Default::default(),
            counter: 0,
            sent: Default::default(),
            replies: Default::default(),
            seat: Seat::Free,
            request: None,
            tasks: (0..self.case.tasks).map(|_| Task::Idle).collect(),
            other: None,
            spent: Spent::default(),
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for task in 0..self.case.tasks {
            self.task_actions(state, task, actions);
        }
        let mut overseen = false;
        match state.seat {
            Seat::Held(lease, _) if lease.left == 0 => actions.push(Action::Evict),
            Seat::Unsent(lease, _)
                if lease.age >= WINDOW && !self.case.is(Wrong::NotSentAtTheEnd) =>
            {
                overseen = true;
                actions.push(Action::Oversee);
            }
            _ => {}
        }
        if !state.sent.is_empty() {
            actions.push(Action::Run);
        }
        if !state.replies.is_empty() {
            actions.push(Action::Hear);
        }
        let queued = state.queue.contains(&Holder::Other);
        match state.other {
            Some(_) => actions.push(Action::OtherLeaves),
            None if !queued && state.spent.others < self.case.others => {
                actions.push(Action::OtherAsks);
            }
            None => {}
        }
        if state.spent.forces < self.case.forces && state.lock.is_some() {
            actions.push(Action::Force);
        }
        // The end of the window is noticed in time.
        if !overseen {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        match action {
            Action::Arrive(task) => rules.arrive(task),
            Action::Ask(task) => rules.ask(task),
            Action::Unlock(task) => rules.leave(task, true),
            Action::DropGuard(task) => rules.leave(task, false),
            Action::Poll(task) => rules.part(task, false),
            Action::DropUnlock(task) => rules.part(task, true),
            Action::Oversee => rules.send_unsent(),
            Action::Evict => rules.evict(),
            Action::Run => rules.run(),
            Action::Hear => rules.hear(),
            Action::OtherAsks => {
                rules.state.spent.others += 1;
                rules.take_or_queue(Holder::Other);
            }
            Action::OtherLeaves => {
                rules.state.other = None;
                if rules.state.lock.is_some_and(|(holder, _)| holder == Holder::Other) {
                    rules.free();
                }
            }
            Action::Force => {
                rules.state.spent.forces += 1;
                rules.state.seen.forced = true;
                rules.free();
            }
            Action::Tick => rules.tick(),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |_: &Self, state: &State| {
                state.seen.forced || !(state.is_held() && state.other.is_some_and(|left| left > 0))
            }),
            Property::always(TOKENS, |_: &Self, state: &State| {
                state.seen.forced || !state.seen.disorder
            }),
            Property::always(BOUND, |_: &Self, state: &State| !state.seen.too_old),
            Property::always(SENT, |_: &Self, state: &State| match state.seat {
                Seat::Unsent(lease, task) => {
                    let its = state.tasks[usize::from(task)];
                    lease.age <= WINDOW && its == Task::Parting
                }
                _ => true,
            }),
            Property::always(USED, |_: &Self, state: &State| {
                let waits = state.tasks.contains(&Task::Waiting);
                !(waits && matches!(state.seat, Seat::Unsent(..)))
            }),
            Property::always(TOLD, |_: &Self, state: &State| !state.seen.untold),
            Property::always(LEFTOVER, |_: &Self, state: &State| {
                let quiet = state.sent.is_empty() && state.replies.is_empty();
                let ours = matches!(state.lock, Some((Holder::Ours(_), _)));
                !(quiet && ours && state.seat == Seat::Free && state.request.is_none())
            }),
            Property::sometimes(TAKEN_BACK, |_: &Self, state: &State| state.seen.taken_back),
            Property::sometimes(SENT_FOR, |_: &Self, state: &State| {
                state.seen.sent_for && state.other.is_some()
            }),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}

impl State {
    /// Whether a task believes that it holds the lock.
    fn is_held(&self) -> bool {
        matches!(self.seat, Seat::Held(lease, _) if lease.left > 0)
    }
}
