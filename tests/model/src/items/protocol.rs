//! Which actions there are, what each leads to, and what must hold.

use arrayvec::ArrayVec;
use leasehold::seam::machine::Allowed;
use stateright::{Model, Property};

use super::case::Case;
use super::rules::Rules;
use super::state::{Action, Client, Delivery, Phase, Request, Seen, Spent, State};

/// Who works on an item has that item on loan, and so nobody else has it.
pub const LENT: &str = "who works on an item has it";
/// What is reported as done is what its client worked on.
pub const DONE: &str = "what was worked on is done";
/// Each item is in one place: waiting, lent, or done.
pub const CONSERVATION: &str = "none is made or lost";
/// Items go to those who wait in the order in which their entries came into the queue.
pub const ORDER: &str = "order of arrival";
/// A delivery or an entry on the server is wanted by its client, or its end is on its way, or its client has ended.
pub const LEFTOVER: &str = "no leftover";
/// When nothing is on its way and no delivery has ended, there is no item for the first who waits.
pub const TAKEN: &str = "items are taken";
/// When nothing is on its way, no client has ended and no letter was lost, the first who waits will ask when a delivery ends.
pub const FIRST_KNOWS: &str = "the first knows";
/// A letter brings a client its item.
pub const BY_LETTER: &str = "an item by letter";
/// A client has an item by a letter that does not bring it.
pub const BY_LOOK: &str = "a long item by letter";
/// An item of a client that has ended is lent again.
pub const CAME_BACK: &str = "an item of the dead";

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
            Phase::First => actions.push(Action::Back(c)),
            Phase::Waiting => {
                actions.push(Action::Back(c));
                if own.asked.is_none() {
                    if own.machine.has_timer(Allowed::All, true) {
                        if spent.repeats < case.repeats {
                            actions.push(Action::Timer(c));
                        }
                    } else if spent.polls < case.polls {
                        actions.push(Action::Poll(c));
                    }
                }
            }
            Phase::Taken(_) => {
                actions.push(Action::Back(c));
                if own.asked.is_none() {
                    actions.push(Action::LookAt(c));
                }
            }
            Phase::Held(..) => {
                actions.extend([Action::Back(c), Action::Done(c)]);
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
        if own.stray.is_some() {
            actions.push(Action::HearStray(c));
        }
        if !own.letters.is_empty() {
            // The first ask is not the machine's: what comes meanwhile is read behind the answer.
            if own.phase == Phase::Waiting {
                actions.push(Action::Read(c));
            }
            if spent.lost_letters < case.lost_letters {
                actions.push(Action::LoseLetter(c));
            }
        }
    }
}

impl<const C: usize> State<C> {
    /// One state stands for all that differ only in the names of clients, of which there are two.
    fn canonical(self) -> Self {
        const { assert!(C == 2, "two can only be exchanged") };
        let mut other = self.clone();
        other.clients.swap(0, 1);
        let name = |delivery: &mut Delivery| delivery.client = 1 - delivery.client;
        other.lent.iter_mut().filter_map(|lent| lent.to.as_mut()).for_each(name);
        other.lent.sort_unstable();
        other.queue.iter_mut().for_each(name);
        if other < self { other } else { self }
    }

    /// Whether what this client works on is what it has on loan.
    fn is_lent(&self, client: usize) -> bool {
        let Client { phase, number, .. } = self.clients[client];
        let Phase::Held(item, _) = phase else { return true };
        let own = Delivery { client: client as u8, number };
        self.lent.iter().any(|lent| lent.to == Some(own) && lent.item == item)
    }

    /// Whether somebody will see to this delivery.
    fn is_known(&self, delivery: Delivery) -> bool {
        let client = &self.clients[usize::from(delivery.client)];
        let wanted = client.waits() || matches!(client.phase, Phase::Taken(_) | Phase::Held(..));
        let ends = |request: &Request| match *request {
            Request::Back(number) | Request::Done(number, _) => number == delivery.number,
            _ => false,
        };
        (wanted && client.number == delivery.number)
            || client.is_dead()
            || client.requests.iter().any(ends)
    }

    /// How many places each item is in, in the order of their numbers.
    fn places(&self) -> Vec<u8> {
        let lent = self.lent.iter().map(|lent| &lent.item);
        let mut all: Vec<u8> = self.waiting.iter().chain(lent).chain(&self.done).copied().collect();
        all.sort_unstable();
        all
    }

    /// Whether nothing is on its way, and no timer is due.
    fn is_quiet(&self) -> bool {
        let nothing = |client: &Client| {
            client.requests.is_empty()
                && client.reply.is_none()
                && client.letters.is_empty()
                && !client.machine.has_timer(Allowed::All, true)
        };
        let timers = self.lent.iter().filter(|lent| lent.to.is_some());
        self.clients.iter().all(nothing) && timers.into_iter().all(|lent| lent.left > 0)
    }

    /// Whether the first in the queue will ask without a poll when a delivery ends.
    fn first_knows(&self) -> bool {
        let knows = |first: &Delivery| {
            let client = &self.clients[usize::from(first.client)];
            client.waits() && client.machine.has_timer(Allowed::All, false)
        };
        let excused = self.spent.crashes + self.spent.lost_letters > 0;
        let nothing_ends = self.lent.is_empty();
        excused || nothing_ends || !self.is_quiet() || self.queue.first().is_none_or(knows)
    }
}

impl<const C: usize> Model for Protocol<C> {
    type State = State<C>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State {
            waiting: ArrayVec::new(),
            lent: ArrayVec::new(),
            done: ArrayVec::new(),
            queue: ArrayVec::new(),
            clients: std::array::from_fn(|_| Client::default()),
            spent: Spent::default(),
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for client in 0..C {
            self.client_actions(state, client, actions);
        }
        if state.spent.items < self.case.items {
            actions.push(Action::Push);
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        let mut rules = Rules { case: &self.case, state: &mut state };
        match action {
            Action::Push => {
                let item = rules.state.spent.items;
                rules.state.spent.items += 1;
                rules.push(item);
            }
            Action::Ask(c) => {
                rules.state.spent.asks += 1;
                rules.ask(c.into());
            }
            Action::Poll(c) => {
                rules.state.spent.polls += 1;
                rules.wake(c.into());
            }
            Action::Timer(c) => {
                rules.state.spent.repeats += 1;
                rules.wake(c.into());
            }
            Action::Renew(c) => {
                rules.state.spent.renewals += 1;
                let own = &mut rules.state.clients[usize::from(c)];
                own.send(Request::Renew(own.number));
            }
            Action::Back(c) => rules.back(c.into()),
            Action::Done(c) => rules.done(c.into()),
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
            Action::HearStray(c) => rules.hear_stray(c.into()),
            Action::Read(c) => rules.read(c.into()),
            Action::LoseLetter(c) => {
                state.spent.lost_letters += 1;
                state.clients[usize::from(c)].letters.remove(0);
            }
            Action::LookAt(c) => rules.look(c.into()),
            Action::Tick => rules.tick(),
        }
        Some(state.canonical())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(LENT, |_: &Self, state: &State<C>| {
                (0..C).all(|client| state.is_lent(client))
            }),
            Property::always(DONE, |_: &Self, state: &State<C>| !state.seen.mixed),
            Property::always(CONSERVATION, |_: &Self, state: &State<C>| {
                state.places().into_iter().eq(0..state.spent.items)
            }),
            Property::always(ORDER, |_: &Self, state: &State<C>| !state.seen.passed),
            Property::always(LEFTOVER, |_: &Self, state: &State<C>| {
                let lent = state.lent.iter().filter_map(|lent| lent.to);
                lent.chain(state.queue.iter().copied()).all(|it| state.is_known(it))
            }),
            Property::always(TAKEN, |_: &Self, state: &State<C>| {
                let due = state.lent.iter().any(|lent| lent.left == 0);
                let is_there = due || !state.waiting.is_empty();
                state.queue.is_empty() || !is_there || !state.is_quiet()
            }),
            Property::always(FIRST_KNOWS, |_: &Self, state: &State<C>| state.first_knows()),
            Property::sometimes(BY_LETTER, |_: &Self, state: &State<C>| state.seen.by_letter),
            Property::sometimes(BY_LOOK, |_: &Self, state: &State<C>| state.seen.by_look),
            Property::sometimes(CAME_BACK, |_: &Self, state: &State<C>| state.seen.came_back),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
