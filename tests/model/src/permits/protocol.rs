//! Which actions there are, what each leads to, and what must hold.

use arrayvec::ArrayVec;
use leasehold::seam::machine::Allowed;
use stateright::{Model, Property};

use super::case::Case;
use super::rules::Rules;
use super::state::{Action, Channel, Client, Java, Lease, Phase, Request, Seen, Spent, State};

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
/// When nothing is on its way, no client has ended and no letter was lost, the first who waits knows it: it asks when permits
/// end, or hears of those of Redisson's client.
pub const FIRST_KNOWS: &str = "the first knows";
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
            Phase::First => actions.push(Action::End(c)),
            Phase::Waiting => {
                actions.push(Action::End(c));
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
        if own.channel == Channel::Subscribing {
            actions.push(Action::Subscribe(c));
        }
        if own.has_heard {
            actions.push(Action::HearRelease(c));
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
    /// One state stands for all that differ only in the names of clients that ask for as many permits.
    fn canonical(self, case: &Case<C>) -> Self {
        let pairs = (0..C).flat_map(|a| (a + 1..C).map(move |b| (a, b)));
        let alike = pairs.filter(|(a, b)| case.weights[*a] == case.weights[*b]);
        let others = alike.map(|(a, b)| self.exchanged(a, b)).min();
        others.filter(|other| *other < self).unwrap_or(self)
    }

    fn exchanged(&self, a: usize, b: usize) -> Self {
        let mut new = self.clone();
        new.clients.swap(a, b);
        let name = |lease: &mut Lease| match usize::from(lease.client) {
            client if client == a => lease.client = b as u8,
            client if client == b => lease.client = a as u8,
            _ => {}
        };
        new.out.iter_mut().for_each(|(lease, _)| name(lease));
        new.out.sort_unstable();
        new.queue.iter_mut().for_each(name);
        new
    }

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
        let wanted = client.waits() || matches!(client.phase, Phase::Held(_));
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
                && client.letters.is_empty()
                && client.channel != Channel::Subscribing
                && !client.has_heard
                && !client.machine.has_timer(Allowed::All, true)
        };
        self.clients.iter().all(nothing) && self.out.iter().all(|(_, ttl)| *ttl > 0)
    }

    /// Whether the first in the queue will ask without a poll when permits end, or hears of them.
    fn first_knows(&self) -> bool {
        let knows = |first: &Lease| {
            let client = &self.clients[usize::from(first.client)];
            let machine = &client.machine;
            client.waits() && (machine.has_timer(Allowed::All, false) || machine.watches())
        };
        let excused = self.spent.crashes + self.spent.lost_letters > 0;
        excused || !self.is_quiet() || self.queue.first().is_none_or(knows)
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
            Action::Subscribe(c) => rules.subscribe(c.into()),
            Action::HearRelease(c) => rules.hear_release(c.into()),
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
                state.clients[usize::from(c)].letters.remove(0);
            }
            Action::Tick => rules.tick(),
        }
        Some(state.canonical(&self.case))
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
            Property::always(FIRST_KNOWS, |_: &Self, state: &State<C>| state.first_knows()),
            Property::sometimes(HEARD, |_: &Self, state: &State<C>| state.seen.heard),
            Property::sometimes(BY_LETTER, |_: &Self, state: &State<C>| state.seen.by_letter),
            Property::sometimes(CAME_BACK, |_: &Self, state: &State<C>| state.seen.came_back),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
