//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::Case;
use super::rules::{LOST, Rules};
use super::state::{Action, Phase, Request, Role, State, TARGET};
use crate::model::permutations;

/// Two clients never hold the lock at the same time.
pub const EXCLUSION: &str = "no double grant";
/// A lease is put back only if nobody else has begun to hold the lock on that server since its promotion.
pub const RECLAIM_IN_TIME: &str = "put back in time";
/// A lease is not put back where another client holds the lock.
pub const RECLAIM_OF_FREE: &str = "put back where it is free";
/// A reader's token is at least that of every writer before it.
pub const TOKEN_ORDER: &str = "tokens in order";
/// An unlock tells of a loss before the deadline only if somebody removed the lease, or another client could have had it.
pub const GROUNDS: &str = "a loss has grounds";
/// An unlock whose server has nothing tells of a loss if another client began to hold the lock before it.
pub const LOSS: &str = "a loss is told";
/// A server has nothing to release, and the unlock tells of no loss.
pub const FORGOTTEN: &str = "an unlock of what was forgotten";
/// A lease is put back on a promoted server.
pub const RECLAIM: &str = "a lease put back";
/// A client that meets a promoted server first uses it at once, thanks to the mark.
pub const TRUSTED: &str = "a promoted server trusted";
/// A client acquires the lock on a promoted server.
pub const SECOND: &str = "a grant after a promotion";

/// The protocol with `C` clients, in one case.
pub struct Protocol<const C: usize> {
    case: Case,
    properties: Vec<&'static str>,
    renamings: Vec<[usize; C]>,
}

impl<const C: usize> Protocol<C> {
    /// The protocol with these properties to check.
    pub fn new(case: Case, properties: &[&'static str]) -> Self {
        let alike = !case.stranger && !case.readers;
        let mut renamings = if alike { permutations() } else { Vec::new() };
        renamings.retain(|names: &[usize; C]| !names.is_sorted());
        Protocol { case, properties: properties.to_vec(), renamings }
    }

    fn client_actions(&self, state: &State<C>, client: usize, actions: &mut Vec<Action>) {
        let own = &state.clients[client];
        let c = client as u8;
        let master = &state.servers[usize::from(state.current)];
        if own.greeting.is_some() {
            actions.push(Action::Mark(c));
        } else if own.at != Some((state.current, master.identity)) {
            actions.push(Action::Meet(c));
        }
        let connected = own.at.is_some_and(|(at, _)| at != LOST);
        let asked: u8 = state.clients.iter().map(|client| client.asked).sum();
        match own.phase {
            Phase::Idle if own.unlock.is_some() => {}
            Phase::Idle if connected && own.grace == 0 && asked < self.case.asks => {
                actions.push(Action::Ask(c));
            }
            Phase::Asking => actions.push(Action::GiveUp(c)),
            Phase::Held => {
                actions.push(Action::Unlock(c));
                if connected {
                    actions.push(Action::Renew(c));
                }
            }
            _ => {}
        }
        if own.reply.is_some() {
            actions.push(Action::Hear(c));
        }
        if own.unlock.is_some_and(|unlock| unlock.held.is_some()) {
            actions.push(Action::HearUnlock(c));
        }
        // An unlock without a connection waits for the next one.
        let waits = own.unlock.is_some() && !connected;
        for (s, server) in state.servers.iter().enumerate() {
            if !server.queues[client].is_empty() && !waits {
                actions.push(Action::Run(s as u8, c));
            }
        }
    }

    fn server_actions(&self, state: &State<C>, actions: &mut Vec<Action>) {
        if state.current == TARGET {
            return;
        }
        let [master, other] =
            [state.current, 1 - state.current].map(|at| &state.servers[usize::from(at)]);
        let may_promote = state.spent.promotions < self.case.promotions;
        if self.case.moves {
            actions.extend([Action::Move(true), Action::Move(false)]);
        }
        if other.role == Role::Replica {
            if may_promote {
                actions.push(Action::Promote);
            }
            if other.data != master.data {
                actions.push(Action::Replicate);
            }
        } else if may_promote || other.role == Role::Master {
            actions.push(Action::Demote);
        }
        if state.spent.restarts < self.case.restarts {
            actions.push(Action::Restart);
        }
        if state.spent.removals < self.case.removals && master.data.entry.is_some() {
            actions.push(Action::Remove);
        }
        if state.spent.marks < self.case.lost_marks && master.data.mark.is_some() {
            actions.push(Action::LoseMark);
        }
    }

    /// Drops what can have no effect any more.
    fn tidy(&self, state: &mut State<C>) {
        let moved = state.current == TARGET;
        let may_promote = state.spent.promotions < self.case.promotions && !moved;
        let may_move = self.case.moves && !moved;
        for (s, server) in state.servers.iter_mut().enumerate() {
            // It accepts nothing, and never will again.
            let may_begin = if s == usize::from(TARGET) { may_move } else { may_promote };
            let over = server.role != Role::Master && !may_begin;
            for (client, queue) in server.queues.iter_mut().enumerate() {
                let there = |number| {
                    let holder = server.data.entry.map(|(lease, _)| lease);
                    holder.is_some_and(|it| usize::from(it.client) == client && it.number == number)
                };
                if server.role == Role::Master {
                    // A release of what is not there and cannot get there.
                    let all = queue.clone();
                    let unlock = state.clients[client].unlock.map(|unlock| unlock.number);
                    queue.retain(|request| match *request {
                        Request::Release(number) if unlock == Some(number) => true,
                        Request::Release(number) => {
                            let creates = |other: &Request| {
                                matches!(other, Request::Acquire(_) | Request::Reclaim(_))
                                    && other.number() == number
                            };
                            there(number) || all.iter().any(creates)
                        }
                        _ => true,
                    });
                }
                // Releases are sent again where the client goes; only these wait here for a connection.
                if over {
                    queue.retain(|request| matches!(request, Request::Release(_)));
                }
            }
            if over {
                server.uptime = self.case.grace;
            }
        }
    }

    fn canonical(&self, state: State<C>) -> State<C> {
        match self.renamings.iter().map(|names| state.renamed(names)).min() {
            Some(least) if least < state => least,
            _ => state,
        }
    }
}

impl<const C: usize> Model for Protocol<C> {
    type State = State<C>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State::start(self.case.grace)]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for client in 0..C {
            self.client_actions(state, client, actions);
        }
        self.server_actions(state, actions);
        actions.push(Action::Tick);
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        match action {
            Action::Meet(c) => rules.meet(c.into()),
            Action::Mark(c) => rules.mark(c.into()),
            Action::Ask(c) => rules.ask(c.into()),
            Action::GiveUp(c) => rules.end(c.into()),
            Action::Unlock(c) => rules.unlock(c.into()),
            Action::HearUnlock(c) => rules.hear_unlock(c.into()),
            Action::Remove => rules.remove(),
            Action::Renew(c) => rules.renew(c.into()),
            Action::Run(s, c) => rules.run(s.into(), c.into()),
            Action::Hear(c) => rules.hear(c.into()),
            Action::Replicate => rules.replicate(),
            Action::Promote => rules.promote(),
            Action::Demote => state.other().role = Role::Replica,
            Action::Move(kept) => rules.move_slot(kept),
            Action::Restart => rules.restart(),
            Action::LoseMark => {
                state.spent.marks += 1;
                state.master().data.mark = None;
            }
            Action::Tick => rules.tick(),
        }
        self.tidy(&mut state);
        Some(self.canonical(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |_: &Self, state: &State<C>| {
                state.clients.iter().filter(|client| client.holds()).count() <= 1
            }),
            Property::always(RECLAIM_IN_TIME, |_: &Self, state: &State<C>| {
                !state.seen.late_reclaim
            }),
            Property::always(RECLAIM_OF_FREE, |_: &Self, state: &State<C>| {
                !state.seen.over_another
            }),
            Property::always(TOKEN_ORDER, |_: &Self, state: &State<C>| !state.seen.stale),
            Property::always(GROUNDS, |_: &Self, state: &State<C>| !state.seen.groundless),
            Property::always(LOSS, |_: &Self, state: &State<C>| !state.seen.concealed),
            Property::sometimes(FORGOTTEN, |_: &Self, state: &State<C>| state.seen.forgotten),
            Property::sometimes(RECLAIM, |_: &Self, state: &State<C>| state.seen.reclaim),
            Property::sometimes(TRUSTED, |_: &Self, state: &State<C>| state.seen.trusted),
            Property::sometimes(SECOND, |_: &Self, state: &State<C>| state.seen.second),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
