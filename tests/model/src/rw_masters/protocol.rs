//! Which actions there are, what each leads to, and what must hold.

use arrayvec::ArrayVec;
use stateright::{Model, Property};

use super::case::{Case, Use, Wrong};
use super::rules::Rules;
use super::state::{
    Action, Client, Lease, Line, MAJORITY, MASTERS, Master, Phase, Request, Seen, Spent, State,
};

/// Nobody else holds the lock while a writer does.
pub const EXCLUSION: &str = "a writer is alone";
/// A lease or a reservation on a master is wanted by its client, or its release is on its way, or its client has ended.
pub const LEFTOVER: &str = "no leftover";
/// A writer's token is above all before it; a reader's is at least that of the last writer.
pub const TOKENS: &str = "tokens in order";
/// No reader gets in that came after a writer was refused which still waits.
pub const PASSED: &str = "no reader passes a waiting writer";
/// Two read at once.
pub const TOGETHER: &str = "two read at once";
/// Counters are lifted.
pub const RAISED: &str = "a counter is lifted";
/// A writer that was refused gets in.
pub const GOT_IN: &str = "a writer gets in";
/// A writer becomes a reader.
pub const DOWNGRADED: &str = "a writer becomes a reader";

/// The protocol with `C` clients, in one case.
pub struct Protocol<const C: usize> {
    case: Case<C>,
    properties: Vec<&'static str>,
}

impl<const C: usize> Protocol<C> {
    /// The protocol with these properties to check.
    pub fn new(case: Case<C>, properties: &[&'static str]) -> Self {
        Protocol { case, properties: properties.to_vec() }
    }

    fn checks(&self, property: &'static str) -> bool {
        self.properties.contains(&property)
    }

    /// What no property of this run asks for is no part of the states.
    fn forget_unseen(&self, state: &mut State<C>) {
        let seen = &mut state.seen;
        seen.raised &= self.checks(RAISED);
        seen.writer_got_in &= self.checks(GOT_IN);
        seen.downgraded &= self.checks(DOWNGRADED);
        if !self.checks(TOKENS) && !self.checks(RAISED) {
            (seen.written, seen.read, seen.disorder) = (0, 0, false);
            state.masters.iter_mut().for_each(|it| it.counter = 0);
        }
        if !self.checks(PASSED) {
            seen.passed = false;
            state.clients.iter_mut().for_each(|it| (it.fresh, it.behind) = (0, false));
        }
    }

    fn client_actions(&self, state: &State<C>, client: usize, actions: &mut Vec<Action>) {
        let (own, spent, case) = (&state.clients[client], &state.spent, &self.case);
        let c = client as u8;
        let enough = match own.writes {
            false if case.is(Wrong::OneMasterToRead) => 1,
            _ => MAJORITY,
        };
        let behind = state.masters.iter().filter(|it| !it.lines[client].requests.is_empty());
        let is_ready = behind.count() <= MASTERS - MAJORITY;
        match own.phase {
            Phase::Idle | Phase::Waiting if is_ready && spent.asks < case.asks => {
                let uses = case.uses[client];
                let goes_on = own.phase == Phase::Waiting;
                if uses != Use::Reads && (!goes_on || own.writes) {
                    actions.push(Action::Ask(c, true));
                }
                if uses != Use::Writes && (!goes_on || !own.writes) {
                    actions.push(Action::Ask(c, false));
                }
            }
            Phase::Asking(_) => {
                if state.is_decided(client, enough) {
                    actions.push(Action::Decide(c));
                } else if spent.faults < case.faults {
                    actions.push(Action::Fail(c));
                }
            }
            Phase::Held(_) if is_ready && own.writes && spent.downgrades < case.downgrades => {
                actions.push(Action::Downgrade(c));
            }
            _ => {}
        }
        if !matches!(own.phase, Phase::Idle | Phase::Dead) {
            actions.push(Action::End(c));
            if spent.crashes < case.crashes {
                actions.push(Action::Crash(c));
            }
        }
        for (number, master) in state.masters.iter().enumerate() {
            if !master.lines[client].requests.is_empty() {
                actions.push(Action::Run(c, number as u8));
            }
        }
    }
}

impl<const C: usize> State<C> {
    fn holders(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().filter(|it| matches!(it.phase, Phase::Held(_)))
    }

    /// Whether somebody will see to what this lease has on a master.
    fn is_known(&self, master: &Master<C>, lease: Lease, reserves: bool) -> bool {
        let client = &self.clients[usize::from(lease.client)];
        let line = &master.lines[usize::from(lease.client)];
        let wanted = matches!(client.phase, Phase::Asking(_) | Phase::Held(_));
        let released = |request: &Request| match request {
            Request::Release(number, withdraws) => {
                *number == lease.number && (*withdraws || !reserves)
            }
            _ => false,
        };
        // Of a kept one there is the reservation, or the writer that becomes a reader.
        let is_kept = client.kept == Some(lease.number)
            && (reserves || matches!(client.phase, Phase::Asking(_)) && !client.writes);
        (wanted && client.number == lease.number)
            || is_kept
            || client.phase == Phase::Dead
            || line.requests.iter().any(released)
    }
}

impl<const C: usize> Model for Protocol<C> {
    type State = State<C>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let master = |number: usize| Master {
            readers: ArrayVec::new(),
            writer: None,
            counter: if number == 0 { self.case.ahead } else { 0 },
            next: None,
            lines: std::array::from_fn(|_| Line::default()),
        };
        let mut masters = std::array::from_fn(master);
        masters.sort_unstable();
        vec![State {
            masters,
            clients: [Client::default(); C],
            spent: Spent::default(),
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for client in 0..C {
            self.client_actions(state, client, actions);
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        match action {
            Action::Ask(c, writes) => {
                rules.state.spent.asks += 1;
                rules.ask(c.into(), writes);
            }
            Action::Downgrade(c) => {
                rules.state.spent.downgrades += 1;
                rules.downgrade_to_reader(c.into());
            }
            Action::Decide(c) => rules.decide(c.into()),
            Action::Fail(c) => {
                rules.state.spent.faults += 1;
                rules.fail(c.into());
            }
            Action::End(c) => rules.end(c.into()),
            Action::Crash(c) => {
                rules.state.spent.crashes += 1;
                rules.crash(c.into());
            }
            Action::Run(c, master) => rules.run(c.into(), master.into()),
            Action::Tick => rules.tick(),
        }
        self.forget_unseen(&mut state);
        state.masters.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |_: &Self, state: &State<C>| {
                state.holders().count() < 2 || !state.holders().any(|it| it.writes)
            }),
            Property::always(LEFTOVER, |_: &Self, state: &State<C>| {
                state.masters.iter().all(|it| {
                    let mut leases = it.readers.iter().chain(&it.writer).map(|(lease, _)| *lease);
                    leases.all(|lease| state.is_known(it, lease, false))
                        && it.next.is_none_or(|(lease, _)| state.is_known(it, lease, true))
                })
            }),
            Property::always(TOKENS, |_: &Self, state: &State<C>| !state.seen.disorder),
            Property::always(PASSED, |_: &Self, state: &State<C>| !state.seen.passed),
            Property::sometimes(TOGETHER, |_: &Self, state: &State<C>| {
                state.holders().filter(|it| !it.writes).count() > 1
            }),
            Property::sometimes(RAISED, |_: &Self, state: &State<C>| state.seen.raised),
            Property::sometimes(GOT_IN, |_: &Self, state: &State<C>| state.seen.writer_got_in),
            Property::sometimes(DOWNGRADED, |_: &Self, state: &State<C>| state.seen.downgraded),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
