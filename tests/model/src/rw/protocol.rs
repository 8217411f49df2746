//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::{Case, Use};
use super::server::Rules;
use super::state::{Action, Client, JAVA, Java, Lease, Request, Seen, Server, Side, Spent, State};

/// Nobody holds the lock beside a writer, but for what was ended by force: that may be held until its deadline, by those who
/// held it or were about to.
pub const EXCLUSION: &str = "nobody is beside a writer";
/// The lock goes to those who wait in the order in which their entries came into the queue.
pub const ORDER: &str = "order of arrival";
/// While the window is shut, no reader joins readers of ours: when those end, the lock is free.
pub const SHUT: &str = "no reader joins in a shut window";
/// A field or an entry on the server is wanted by its client, or its release is on its way, or its client has ended.
pub const LEFTOVER: &str = "no leftover";
/// When nothing is on its way and no lease has ended, there is no room for the first who waits. After the end of a client,
/// or a letter that was lost, any poll brings that about; beside readers, any poll of a reader.
pub const TAKEN: &str = "a free lock is taken";
/// When nothing is on its way, no client has ended and no letter was lost, the first who waits knows that it is the first.
pub const FIRST_KNOWS: &str = "the first knows";
/// Writers have ever higher tokens, and readers that of the last writer before them.
pub const TOKENS: &str = "tokens tell versions";
/// A writer that is told the last token before its own knows of all writers before it.
pub const NOTICED: &str = "writers before are noticed";
/// Two clients read at once.
pub const TOGETHER: &str = "readers of two clients";
/// A letter gives the lock to a client.
pub const BY_LETTER: &str = "a grant by letter";
/// A lease shows that nobody was before its client's readers.
pub const REOPENED: &str = "a lease given back";
/// A writer becomes a reader.
pub const DOWNGRADED: &str = "a downgrade";
/// A lease that was ended by force is replaced by that of a reader that came after.
pub const REPLACED: &str = "a lease replaced";
/// The lock is taken from a reader that is over.
pub const TOOK_OVER: &str = "a reader that is over";

/// How many use a lease at most.
const USERS: u8 = 2;

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

    fn caller_actions(&self, state: &State<C>, client: usize, actions: &mut Vec<Action>) {
        let (own, spent, case) = (&state.clients[client], &state.spent, &self.case);
        let c = client as u8;
        if own.dead {
            return;
        }
        let (reads, writes) = match case.uses[client] {
            Use::Reads => (true, false),
            Use::Writes => (false, true),
            Use::Both => (true, true),
        };
        let may_wait = match own.held {
            None => spent.asks < case.asks,
            Some(held) => {
                held.lease.side == Side::Read && held.users < USERS && spent.joins < case.joins
            }
        };
        if own.want.is_none() && may_wait {
            if reads {
                actions.push(Action::Ask(c, Side::Read));
            }
            if writes {
                actions.push(Action::Ask(c, Side::Write));
            }
            if own.held.is_some() {
                actions.push(Action::Join(c));
            }
        }
        if let Some(held) = own.held {
            actions.push(Action::Leave(c));
            if held.users == 1 && spent.keeps < case.keeps {
                actions.push(Action::Keep(c));
            }
            if held.renewal.is_none() && spent.renewals < case.renewals {
                actions.push(Action::Renew(c));
            }
            let is_writer = held.lease.side == Side::Write;
            if is_writer && own.want.is_none() && spent.downgrades < case.downgrades {
                actions.push(Action::Downgrade(c));
            }
        }
        if let Some(want) = own.want {
            actions.push(Action::GiveUp(c));
            if want.asked.is_none() {
                if spent.polls < case.polls {
                    actions.push(Action::Poll(c));
                }
                if want.first && state.server.ended && spent.repeats < case.repeats {
                    actions.push(Action::Timer(c));
                }
            }
        }
    }

    fn network_actions(&self, state: &State<C>, client: usize, actions: &mut Vec<Action>) {
        let (own, spent, case) = (&state.clients[client], &state.spent, &self.case);
        let c = client as u8;
        if !own.requests.is_empty() {
            actions.push(Action::Run(c));
            if spent.doubles < case.doubles {
                actions.push(Action::RunTwice(c));
            }
        }
        if own.held.and_then(|held| held.renewal).is_some_and(|(_, answer)| answer.is_some()) {
            actions.push(Action::HearRenewal(c));
        }
        let asked = own.want.and_then(|want| want.asked);
        let inquiry = own.want.and_then(|want| want.inquiry);
        if asked.is_some_and(|(_, answer)| answer.is_some()) && inquiry != Some(None) {
            actions.push(Action::Hear(c));
        }
        if !own.letters.is_empty() {
            if asked.is_none() {
                actions.push(Action::Read(c));
            }
            if spent.lost_letters < case.lost_letters {
                actions.push(Action::LoseLetter(c));
            }
        }
        if !own.dead && spent.crashes < case.crashes {
            actions.push(Action::Crash(c));
        }
    }

    fn java_actions(&self, state: &State<C>, actions: &mut Vec<Action>) {
        if state.server.shut {
            actions.push(Action::Opens);
        } else if state.spent.shuts < self.case.shuts {
            actions.push(Action::Shuts);
        }
        match state.java {
            Java::Idle if state.spent.java_asks < self.case.java_asks => {
                actions.extend([Action::JavaTakes(Side::Read), Action::JavaTakes(Side::Write)]);
            }
            Java::Held(_) => {
                actions.push(Action::JavaLeaves);
                if state.spent.crashes < self.case.crashes {
                    actions.push(Action::JavaEnds);
                }
            }
            _ => {}
        }
    }

    fn apply(&self, rules: &mut Rules<'_, C>, action: Action) {
        let spent = &mut rules.state.spent;
        match action {
            Action::Ask(c, side) => {
                match rules.state.clients[usize::from(c)].held {
                    None => spent.asks += 1,
                    Some(_) => spent.joins += 1,
                }
                rules.ask(c.into(), side);
            }
            Action::Poll(c) => {
                spent.polls += 1;
                rules.ask_again(c.into());
            }
            Action::Timer(c) => rules.ask_repeatedly(c.into()),
            Action::Join(c) => {
                spent.joins += 1;
                let held = &mut rules.state.clients[usize::from(c)].held;
                held.as_mut().expect("it is held").users += 1;
            }
            Action::Leave(c) => rules.leave_seat(c.into()),
            Action::Keep(c) => {
                spent.keeps += 1;
                rules.leave_part(c.into());
            }
            Action::GiveUp(c) => rules.give_up(c.into()),
            Action::Downgrade(c) => {
                spent.downgrades += 1;
                rules.downgrade(c.into());
            }
            Action::Renew(c) => {
                spent.renewals += 1;
                rules.send_renewal(c.into());
            }
            Action::Crash(c) => {
                spent.crashes += 1;
                let own = &mut rules.state.clients[usize::from(c)];
                let requests = std::mem::take(&mut own.requests);
                *own = Client { dead: true, requests, ..Client::default() };
            }
            Action::Shuts => {
                spent.shuts += 1;
                rules.state.server.shut = true;
            }
            Action::Opens => rules.opens(),
            Action::Tick => rules.tick(),
            Action::Force => {
                spent.forces += 1;
                rules.force();
            }
            _ => self.apply_from_outside(rules, action),
        }
    }

    fn apply_from_outside(&self, rules: &mut Rules<'_, C>, action: Action) {
        let spent = &mut rules.state.spent;
        match action {
            Action::Run(c) => rules.run(c.into(), false),
            Action::RunTwice(c) => {
                spent.doubles += 1;
                rules.run(c.into(), true);
            }
            Action::Hear(c) => rules.hear(c.into()),
            Action::HearRenewal(c) => rules.hear_renewal(c.into()),
            Action::Read(c) => rules.read(c.into()),
            Action::LoseLetter(c) => {
                spent.lost_letters += 1;
                rules.state.clients[usize::from(c)].letters.remove(0);
            }
            Action::JavaTakes(side) => {
                spent.java_asks += 1;
                rules.java_takes(side);
            }
            Action::JavaLeaves => {
                if let Java::Held(side) = rules.state.java {
                    rules.java_leaves(side);
                }
            }
            Action::JavaEnds => {
                spent.crashes += 1;
                rules.state.java = Java::Dead;
            }
            _ => unreachable!("what callers do"),
        }
    }
}

impl<const C: usize> State<C> {
    fn holders(&self) -> impl Iterator<Item = Side> {
        let ours = self.clients.iter().filter_map(|client| {
            let held = client.held?;
            let is_forced = self.seen.forced.iter().any(|(lease, _)| *lease == held.lease);
            (held.joined_late || !is_forced).then_some(held.lease.side)
        });
        let java = match self.java {
            Java::Held(side) => Some(side),
            _ => None,
        };
        ours.chain(java)
    }

    fn is_exclusive(&self) -> bool {
        let alone = self.holders().count() <= 1;
        !self.seen.beside_itself && (alone || self.holders().all(|side| side == Side::Read))
    }

    /// Whether somebody will see to this lease.
    fn is_known(&self, lease: Lease) -> bool {
        if lease.client == JAVA {
            return true;
        }
        let client = &self.clients[usize::from(lease.client)];
        client.dead
            || client.held.is_some_and(|held| held.lease == lease)
            || client.want.is_some_and(|want| want.lease == lease || want.replaced() == Some(lease))
            || client.requests.contains(&Request::Release(lease))
            || client.requests.contains(&Request::Keep(lease))
            || self.seen.kept.contains(&lease)
    }

    /// Whether nothing is on its way.
    fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| {
            client.requests.is_empty()
                && client.letters.is_empty()
                && client.want.is_none_or(|want| want.asked.is_none())
                && client.held.is_none_or(|held| held.renewal.is_none())
        })
    }

    /// Whether something has happened after which only a poll may help.
    fn is_excused(&self) -> bool {
        self.spent.crashes + self.spent.lost_letters > 0
    }

    fn is_taken(&self, case: &Case<C>) -> bool {
        if !self.is_quiet() {
            return true;
        }
        let mut copy = self.clone();
        let stays_free = |state: &mut State<C>| Rules { case, state }.has_room_for_first();
        if !self.is_excused() {
            return self.server.ended || !stays_free(&mut copy);
        }
        // Beside readers only a reader finds the queue to be worth a look.
        let reads = self.server.mode == Some(Side::Read);
        let waits = self.clients.iter().filter_map(|client| Some(client.want?.lease));
        waits.filter(|lease| !reads || lease.side == Side::Read).all(|lease| {
            let mut copy = self.clone();
            Rules { case, state: &mut copy }.acquire(lease, None);
            !stays_free(&mut copy)
        })
    }

    fn first_knows(&self) -> bool {
        let first = self.server.queue.first();
        let knows = |lease: &Lease| {
            let want = self.clients[usize::from(lease.client)].want;
            want.is_some_and(|want| want.lease == *lease && want.first)
        };
        self.is_excused() || !self.is_quiet() || first.is_none_or(knows)
    }
}

impl<const C: usize> Model for Protocol<C> {
    type State = State<C>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State {
            server: Server::default(),
            clients: std::array::from_fn(|_| Client::default()),
            java: Java::default(),
            spent: Spent::default(),
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for client in 0..C {
            self.caller_actions(state, client, actions);
            self.network_actions(state, client, actions);
        }
        self.java_actions(state, actions);
        if state.server.mode.is_some() && state.spent.forces < self.case.forces {
            actions.push(Action::Force);
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        self.apply(&mut Rules { case: &self.case, state: &mut state }, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |_: &Self, state: &State<C>| state.is_exclusive()),
            Property::always(ORDER, |_: &Self, state: &State<C>| !state.seen.passed),
            Property::always(SHUT, |_: &Self, state: &State<C>| !state.seen.joined),
            Property::always(LEFTOVER, |_: &Self, state: &State<C>| {
                let fields = state.server.fields.iter().map(|(lease, _)| lease);
                fields.chain(&state.server.queue).all(|lease| state.is_known(*lease))
            }),
            Property::always(TAKEN, |model: &Self, state: &State<C>| state.is_taken(&model.case)),
            Property::always(FIRST_KNOWS, |_: &Self, state: &State<C>| state.first_knows()),
            Property::always(TOKENS, |_: &Self, state: &State<C>| !state.seen.disorder),
            Property::always(NOTICED, |_: &Self, state: &State<C>| !state.seen.unnoticed),
            Property::sometimes(TOGETHER, |_: &Self, state: &State<C>| state.holders().count() > 1),
            Property::sometimes(BY_LETTER, |_: &Self, state: &State<C>| state.seen.by_letter),
            Property::sometimes(REOPENED, |_: &Self, state: &State<C>| state.seen.reopened),
            Property::sometimes(DOWNGRADED, |_: &Self, state: &State<C>| state.seen.downgraded),
            Property::sometimes(REPLACED, |_: &Self, state: &State<C>| state.seen.replaced),
            Property::sometimes(TOOK_OVER, |_: &Self, state: &State<C>| state.seen.took_over),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
