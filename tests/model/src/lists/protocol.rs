//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::{Case, Wrong};
use super::rules::Rules;
use super::state::{Action, Client, Phase, SERVERS, Server, State};

/// Two clients never both hold the lock, whatever they name.
pub const EXCLUSION: &str = "no double grant";
/// A client with another list than the first holds the lock.
pub const CHANGED: &str = "a new list is used";
/// A client is told of other lists.
pub const REFUSED: &str = "a client is refused";
/// The operator is through, and each client that runs can hold the lock.
pub const THROUGH: &str = "the last step is used";

/// The protocol in one case.
pub type Protocol = crate::protocol::Protocol<Case>;

impl Protocol {
    fn client_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        let (case, own, c) = (&self.case, &state.clients[client], client as u8);
        let servers = (0..SERVERS as u8).filter(|it| case.list_of(client) & (1 << it) != 0);
        let is_up = |server: &u8| own.up & (1 << server) != 0;
        if own.phase == Phase::Stopped {
            return;
        }
        let away = servers.clone().filter(|it| !is_up(it));
        actions.extend(away.map(|server| Action::Connect(c, server)));
        match own.phase {
            Phase::Idle => {
                let may_ask = own.other == 0 || case.is(Wrong::OthersVote);
                let answered = own.up | own.other;
                let all = case.list_of(client) & !answered == 0;
                if may_ask && (all || !case.all_answer) {
                    actions.push(Action::Ask(c));
                }
            }
            Phase::Asking(votes) => {
                let left = servers.filter(|it| is_up(it) && votes & (1 << it) == 0);
                actions.extend(left.map(|server| Action::Vote(c, server)));
                if votes.count_ones() >= case.majority(client) {
                    actions.push(Action::Take(c));
                }
                actions.push(Action::End(c));
            }
            Phase::Held => {
                if state.leases(client) >= case.majority(client) {
                    let missing = servers
                        .filter(|it| is_up(it) && state.servers[usize::from(*it)].lease.is_none());
                    actions.extend(missing.map(|server| Action::Heal(c, server)));
                }
                actions.push(Action::End(c));
            }
            Phase::Stopped => {}
        }
    }

    /// Whether the quarantine of a server can be over: who has seen the list there has come back.
    fn may_count(&self, state: &State, server: usize) -> bool {
        let bit = 1 << server;
        let is_back = |it: &Client| it.seen & bit == 0 || (it.up | it.other) & bit != 0;
        state.servers[server].quarantined && state.clients.iter().all(is_back)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let case = &self.case;
        let mut state = State {
            servers: [Server::default(); SERVERS],
            clients: Default::default(),
            restarts: 0,
            step: (0, 0),
            refused: false,
        };
        for (client, own) in state.clients.iter_mut().enumerate() {
            if client >= case.clients.len() {
                own.phase = Phase::Stopped;
            }
        }
        if case.established {
            for server in 0..SERVERS {
                state.servers[server].allowed = case.lists[0] >> server & 1;
            }
            (state.clients[0].up, state.clients[0].seen) = (case.lists[0], case.lists[0]);
        }
        if !case.steps.is_empty() {
            Rules { case, state: &mut state }.begin(0);
        }
        vec![state]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for client in 0..self.case.clients.len() {
            self.client_actions(state, client, actions);
        }
        for server in 0..self.case.servers() {
            if state.restarts < self.case.restarts {
                actions.push(Action::Restart(server as u8));
            }
            if self.may_count(state, server) {
                actions.push(Action::Counts(server as u8));
            }
        }
        if let Some(step) = self.case.steps.get(usize::from(state.step.0)) {
            let is_idle = |client: usize| {
                step.idle & (1 << client) == 0 || state.clients[client].phase == Phase::Idle
            };
            let left = (0..SERVERS as u8).filter(|it| step.on & !state.step.1 & (1 << it) != 0);
            if (0..self.case.clients.len()).all(is_idle) {
                actions.extend(left.map(Action::Type));
            }
            if state.step.1 == step.on && usize::from(state.step.0) + 1 < self.case.steps.len() {
                actions.push(Action::Next);
            }
        }
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        let at = usize::from;
        match action {
            Action::Connect(client, server) => rules.connect(at(client), at(server)),
            Action::Ask(client) => rules.state.clients[at(client)].phase = Phase::Asking(0),
            Action::Vote(client, server) => rules.vote(at(client), at(server)),
            Action::Take(client) => {
                let own = &mut rules.state.clients[at(client)];
                (own.phase, own.older) = (Phase::Held, 0);
            }
            Action::End(client) => rules.end(at(client)),
            Action::Heal(client, server) => rules.state.servers[at(server)].lease = Some(client),
            Action::Restart(server) => {
                rules.state.restarts += 1;
                rules.restart(at(server));
            }
            Action::Counts(server) => rules.counts(at(server)),
            Action::Type(server) => rules.types(at(server)),
            Action::Next => {
                let step = at(rules.state.step.0) + 1;
                rules.begin(step);
            }
        }
        if !self.properties.contains(&REFUSED) {
            state.refused = false;
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |_: &Self, state: &State| state.holders().count() < 2),
            Property::sometimes(CHANGED, |it: &Self, state: &State| {
                state.holders().any(|client| it.case.clients[client] != 0)
            }),
            Property::sometimes(REFUSED, |_: &Self, state: &State| state.refused),
            Property::sometimes(THROUGH, |it: &Self, state: &State| {
                usize::from(state.step.0) + 1 == it.case.steps.len()
                    && state.holders().any(|client| client + 1 == it.case.clients.len())
            }),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}

impl State {
    /// The numbers of those who hold the lock.
    fn holders(&self) -> impl Iterator<Item = usize> {
        let clients = self.clients.iter().enumerate();
        clients.filter(|(_, it)| it.phase == Phase::Held).map(|(client, _)| client)
    }
}
