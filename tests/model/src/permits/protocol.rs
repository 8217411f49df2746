//! Which actions there are, what each leads to, and what must hold.

use arrayvec::ArrayVec;
use stateright::{Model, Property};

use super::case::Case;
use super::rules::Rules;
use super::state::{Action, Client, Java, Lease, Phase, Request, Seen, Spent, State};

/// No more permits are held than there are.
pub const EXCLUSION: &str = "no more than there are";
/// What is left and what is out are all permits.
pub const CONSERVATION: &str = "none is made or lost";
/// Permits go to those who wait in the order in which their entries came into the queue.
pub const ORDER: &str = "order of arrival";
/// A lease or an entry on the server is wanted by its client, or its release is on its way, or its client has ended.
pub const LEFTOVER: &str = "no leftover";
/// When nothing is on its way and no lease has ended, there are not enough permits left for the first who waits.
pub const TAKEN: &str = "free permits are taken";
/// Who asks for permits that are left gets them, if nobody who lives is before it.
pub const LEFT_FOR_WHO_ASKS: &str = "permits are refused for the living";
/// One who waits hears of a release by Redisson's client.
pub const HEARD: &str = "a release by Java heard";
/// A letter gives permits to a client that waits.
pub const BY_LETTER: &str = "a grant by letter";
/// Permits of a client that has ended come back.
pub const CAME_BACK: &str = "permits of the dead";

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

    fn client_actions(&self, state: &State<C>, client: usize, actions: &mut Vec<Action>) {
        let (own, spent, case) = (&state.clients[client], &state.spent, &self.case);
        let c = client as u8;
        match own.phase {
            Phase::Idle if spent.asks < case.asks => actions.push(Action::Ask(c)),
            Phase::Waiting => {
                actions.push(Action::End(c));
                if own.asked.is_none() && spent.polls < case.polls {
                    actions.push(Action::Poll(c));
                }
            }
            Phase::Held(_) => {
                actions.push(Action::End(c));
                if own.asked.is_none() && spent.renewals < case.renewals {
                    actions.push(Action::Renew(c));
                }
            }
            _ => {}
        }
        if !own.is_dead() && spent.crashes < case.crashes {
            actions.push(Action::Crash(c));
        }
        if !own.requests.is_empty() {
            actions.push(Action::Run(c));
            if spent.doubles < case.doubles {
                actions.push(Action::RunTwice(c));
            }
        }
        if own.reply.is_some() {
            actions.push(Action::Hear(c));
        }
        if own.asked.is_none() && own.first.is_some() {
            actions.push(Action::ReadFirst(c));
        }
        if own.asked.is_none() && own.has_heard {
            actions.push(Action::AskAgain(c));
        }
        if own.letter.is_some() {
            actions.push(Action::Read(c));
            if spent.lost_letters < case.lost_letters {
                actions.push(Action::LoseLetter(c));
            }
        }
    }
}

impl<const C: usize> State<C> {
    fn weights(&self, case: &Case<C>, leases: impl Iterator<Item = Lease>) -> i8 {
        leases.map(|lease| case.weights[usize::from(lease.client)]).sum()
    }

    fn held(&self, case: &Case<C>) -> i8 {
        let clients = self.clients.iter().zip(case.weights);
        clients.filter(|(it, _)| matches!(it.phase, Phase::Held(_))).map(|(_, weight)| weight).sum()
    }

    fn java_has(&self) -> i8 {
        i8::from(self.java == Java::Held)
    }

    /// Whether somebody will see to this lease.
    fn is_known(&self, lease: Lease) -> bool {
        let client = &self.clients[usize::from(lease.client)];
        let wanted = matches!(client.phase, Phase::Waiting | Phase::Held(_));
        (wanted && client.number == lease.number)
            || client.is_dead()
            || client.requests.contains(&Request::Release(lease.number))
            || client.requests.contains(&Request::Yield(lease.number))
    }

    /// Whether nothing is on its way, and no timer is due.
    fn is_quiet(&self) -> bool {
        let nothing = |client: &Client| {
            client.requests.is_empty()
                && client.reply.is_none()
                && client.letter.is_none()
                && client.first.is_none()
                && !client.has_heard
        };
        self.clients.iter().all(nothing) && self.out.iter().all(|(_, ttl)| *ttl > 0)
    }
}

impl<const C: usize> Model for Protocol<C> {
    type State = State<C>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State {
            left: self.case.permits,
            out: ArrayVec::new(),
            queue: ArrayVec::new(),
            clients: std::array::from_fn(|_| Client::default()),
            java: Java::default(),
            spent: Spent::default(),
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for client in 0..C {
            self.client_actions(state, client, actions);
        }
        match state.java {
            Java::Idle if state.spent.java_asks < self.case.java_asks => {
                actions.push(Action::JavaWaits);
            }
            Java::Idle => {}
            Java::Waits => {
                actions.push(Action::JavaGivesUp);
                if state.left > 0 {
                    actions.push(Action::JavaTakes);
                }
            }
            Java::Held => actions.push(Action::JavaLeaves),
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        match action {
            Action::Ask(c) => {
                rules.state.spent.asks += 1;
                rules.ask(c.into());
            }
            Action::Poll(c) => {
                rules.state.spent.polls += 1;
                let own = &mut rules.state.clients[usize::from(c)];
                own.send(Request::Ask(own.number));
            }
            Action::Renew(c) => {
                rules.state.spent.renewals += 1;
                let own = &mut rules.state.clients[usize::from(c)];
                own.send(Request::Renew(own.number));
            }
            Action::End(c) => rules.end(c.into()),
            Action::Crash(c) => {
                state.spent.crashes += 1;
                let own = &mut state.clients[usize::from(c)];
                *own = Client {
                    phase: Phase::Dead,
                    requests: own.requests.clone(),
                    ..Client::default()
                };
            }
            Action::Run(c) => rules.run(c.into(), false),
            Action::RunTwice(c) => {
                rules.state.spent.doubles += 1;
                rules.run(c.into(), true);
            }
            Action::Hear(c) => rules.hear(c.into()),
            Action::Read(c) => rules.read(c.into()),
            Action::ReadFirst(c) => rules.read_first(c.into()),
            Action::AskAgain(c) => rules.ask_again(c.into()),
            Action::JavaWaits => {
                state.spent.java_asks += 1;
                state.java = Java::Waits;
            }
            Action::JavaGivesUp => state.java = Java::Idle,
            Action::JavaTakes => {
                state.left -= 1;
                state.java = Java::Held;
            }
            Action::JavaLeaves => rules.java_leaves(),
            Action::LoseLetter(c) => {
                state.spent.lost_letters += 1;
                state.clients[usize::from(c)].letter = None;
            }
            Action::Tick => rules.tick(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |model: &Self, state: &State<C>| {
                state.held(&model.case) + state.java_has() <= model.case.permits
            }),
            Property::always(CONSERVATION, |model: &Self, state: &State<C>| {
                let out = state.weights(&model.case, state.out.iter().map(|(lease, _)| *lease));
                state.left + out + state.java_has() == model.case.permits
            }),
            Property::always(ORDER, |_: &Self, state: &State<C>| !state.seen.passed),
            Property::always(LEFTOVER, |_: &Self, state: &State<C>| {
                let out = state.out.iter().map(|(lease, _)| lease);
                out.chain(&state.queue).all(|lease| state.is_known(*lease))
            }),
            Property::always(TAKEN, |model: &Self, state: &State<C>| {
                let first = state.queue.first().copied().into_iter();
                let wanted = state.weights(&model.case, first);
                wanted == 0 || !state.is_quiet() || state.left < wanted
            }),
            Property::always(LEFT_FOR_WHO_ASKS, |_: &Self, state: &State<C>| !state.seen.refused),
            Property::sometimes(HEARD, |_: &Self, state: &State<C>| state.seen.heard),
            Property::sometimes(BY_LETTER, |_: &Self, state: &State<C>| state.seen.by_letter),
            Property::sometimes(CAME_BACK, |_: &Self, state: &State<C>| state.seen.came_back),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
