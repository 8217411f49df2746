//! Which actions there are, what each leads to, and what must hold.

use stateright::{Model, Property};

use super::case::{Case, Use};
use super::server::Rules;
use super::state::{
    Action, Asker, Attempt, Channel, Client, JAVA, Java, Lease, Reply, Seen, Server, Side, Spent,
    State,
};

/// Nobody holds the lock beside a writer, but for what was ended by force: that may be held until its deadline, by those who
/// held it or were about to.
pub const EXCLUSION: &str = "nobody is beside a writer";
/// The lock goes to those who wait in the order in which their entries came into the queue.
pub const ORDER: &str = "order of arrival";
/// While the window is shut, no reader joins readers of ours: when those end, the lock is free.
pub const SHUT: &str = "no reader joins in a shut window";
/// A field or an entry on the server is wanted by its client, or its release is on its way, or its client has ended.
pub const LEFTOVER: &str = "no leftover";
/// When nothing is on its way, no timer is due and no lease has ended by itself, there is no room for the first who waits,
/// unless it was told of its place by a letter that is older than an answer. After the end of a client, or a letter that was
/// lost, any poll of one in the queue brings that about; beside readers, any poll of a reader.
pub const TAKEN: &str = "a free lock is taken";
/// When nothing is on its way, no client has ended and no letter was lost, the first who waits has a timer at the end of a lease, or
/// listens to Redisson's client.
pub const FIRST_KNOWS: &str = "the first knows";
/// Writers have ever higher tokens, and readers that of the last writer before them.
pub const TOKENS: &str = "tokens tell versions";
/// A writer that is told the last token before its own knows of all writers before it.
pub const NOTICED: &str = "writers before are noticed";
/// Two clients read at once.
pub const TOGETHER: &str = "readers of two clients";
/// A letter gives the lock to a client.
pub const BY_LETTER: &str = "a grant by letter";
/// A request that nobody wants any more asks still, beside a lease in use.
pub const LEFT_BEHIND: &str = "an ask for nobody";
/// A request asks in order to confirm a grant by letter.
pub const CONFIRMING: &str = "a grant confirmed";
/// A lease has ended by itself, so that the lock has room for the first who waits, which asks later: another one was named to it, or it
/// heard late of that one.
pub const LATER: &str = "an ask later than an end";
/// The lock has room for the first who waits, but that believes a letter which is older than the last answer, and asks later.
pub const MISLED: &str = "a first that believes an older letter";
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
    /// A property asks what has happened.
    notes: bool,
}

impl<const C: usize> Protocol<C> {
    /// The protocol with these properties to check.
    pub fn new(case: Case<C>, properties: &[&'static str]) -> Self {
        let happen = [BY_LETTER, REOPENED, DOWNGRADED, REPLACED, TOOK_OVER];
        let notes = properties.iter().any(|property| happen.contains(property));
        Protocol { case, properties: properties.to_vec(), notes }
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
        let asks_itself = own.ask.is_some_and(|ask| ask.asker != Asker::Machine);
        let crowd = own.waiters.len() + usize::from(asks_itself);
        let may_come = match own.held {
            None => spent.asks < case.asks,
            Some(held) => {
                held.lease.side == Side::Read && held.users < USERS && spent.joins < case.joins
            }
        };
        if may_come && crowd < case.crowd.into() {
            if reads {
                actions.push(Action::Come(c, Side::Read));
            }
            if writes {
                actions.push(Action::Come(c, Side::Write));
            }
            if own.held.is_some() && own.waiters.is_empty() {
                actions.push(Action::Join(c));
            }
        }
        if asks_itself {
            actions.push(Action::Abandon(c));
        }
        actions.extend((0..own.waiters.len()).map(|place| Action::GiveUp(c, place as u8)));
        if let Some(held) = own.held {
            actions.push(Action::Leave(c));
            if held.users == 1 && spent.keeps < case.keeps {
                actions.push(Action::Keep(c));
            }
            if held.renewal.is_none() && spent.renewals < case.renewals {
                actions.push(Action::Renew(c));
            }
            let is_writer = held.lease.side == Side::Write;
            if is_writer && crowd == 0 && spent.downgrades < case.downgrades {
                actions.push(Action::Downgrade(c));
            }
        }
        if own.waiters.is_empty() || own.ask.is_some() || own.writes() {
            return;
        }
        let is_new = own.standing.is_none();
        if own.machine.has_timer(own.allowed(), true) {
            if is_new || spent.repeats < case.repeats {
                actions.push(Action::Timer(c));
            }
        } else if !is_new && spent.polls < case.polls {
            actions.push(Action::Poll(c));
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
        let is_asked = |is_there: Option<bool>| is_there.is_some();
        let may_hear = own.ask.is_some_and(|ask| match ask.reply {
            // A refusal counts whatever becomes of the question that went along.
            Some(Reply::Queued(..) | Reply::Refused) => true,
            Some(Reply::Granted(..)) => ask.inquiry.is_none_or(|asked| is_asked(asked.is_there)),
            None => false,
        });
        if may_hear {
            actions.push(Action::Hear(c));
        }
        if !own.letters.is_empty() {
            // What comes while one asks by itself is read behind the answer.
            if own.ask.is_none_or(|ask| ask.asker == Asker::Machine) {
                actions.push(Action::Read(c));
            }
            if spent.lost_letters < case.lost_letters {
                actions.push(Action::LoseLetter(c));
            }
        }
        if own.channel == Channel::Subscribing {
            actions.push(Action::Subscribe(c));
        }
        if own.has_heard {
            actions.push(Action::HearRelease(c));
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
            Action::Come(c, side) => {
                match rules.state.clients[usize::from(c)].held {
                    None => spent.asks += 1,
                    Some(_) => spent.joins += 1,
                }
                rules.come(c.into(), side);
            }
            Action::Poll(c) => {
                spent.polls += 1;
                rules.poll(c.into());
            }
            Action::Timer(c) => rules.wake(c.into()),
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
            Action::Abandon(c) => rules.abandon(c.into()),
            Action::GiveUp(c, place) => rules.give_up(c.into(), place.into()),
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
            Action::Subscribe(c) => rules.subscribe(c.into()),
            Action::HearRelease(c) => rules.hear_release(c.into()),
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
        client.dead || client.knows(lease) || self.seen.kept.contains(&lease)
    }

    /// Whether nothing is on its way, and no timer is due.
    fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| {
            client.requests.is_empty()
                && client.letters.is_empty()
                && client.ask.is_none()
                && client.held.is_none_or(|held| held.renewal.is_none())
                && client.channel != Channel::Subscribing
                && !client.has_heard
                && !client.machine.has_timer(client.allowed(), true)
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
        let stays_free = |state: &mut State<C>| Rules::new(case, state).has_room_for_first();
        if !self.is_excused() {
            let asks_later = self.server.ended || self.server.opened || self.is_first_misled();
            return asks_later || !stays_free(&mut copy);
        }
        // Beside readers only a reader finds the queue to be worth a look.
        let reads = self.server.mode == Some(Side::Read);
        let waits = self.clients.iter().filter_map(|client| Some(client.standing?.lease));
        // A newcomer leaves a free lock to those who listen. One whose grant came too late is one, too.
        let queued = waits.filter(|lease| self.server.queue.contains(lease));
        queued.filter(|lease| !reads || lease.side == Side::Read).all(|lease| {
            let mut copy = self.clone();
            Rules::new(case, &mut copy).acquire(lease);
            !stays_free(&mut copy)
        })
    }

    /// The request that is the first in the queue, if its client waits for it.
    fn first(&self) -> Option<(&Client, Attempt)> {
        let first = self.server.queue.first()?;
        let client = &self.clients[usize::from(first.client)];
        let attempt = client.standing.filter(|attempt| attempt.lease == *first)?;
        Some((client, attempt))
    }

    fn is_first_misled(&self) -> bool {
        self.first().is_some_and(|(_, attempt)| attempt.misled)
    }

    /// Whether the first in the queue will ask without a poll when a lease ends, or hears of a release.
    fn first_knows(&self) -> bool {
        let knows = |client: &Client| {
            client.machine.has_timer(client.allowed(), false) || client.machine.watches()
        };
        self.is_excused()
            || !self.is_quiet()
            || self.server.queue.is_empty()
            || self.first().is_some_and(|(client, _)| knows(client))
    }

    /// Whether nothing keeps the first in the queue out, and it has a timer that is not due.
    fn asks_later(&self, case: &Case<C>) -> bool {
        let has_timer = |client: &Client| client.machine.has_timer(client.allowed(), false);
        let mut copy = self.clone();
        self.is_quiet()
            && self.first().is_some_and(|(client, _)| has_timer(client))
            && Rules::new(case, &mut copy).has_room_for_first()
    }

    /// The same, and the only reason is that it believes an older letter.
    fn is_misled(&self, case: &Case<C>) -> bool {
        let Server { ended, opened, .. } = self.server;
        !ended && !opened && self.is_first_misled() && self.asks_later(case)
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
        let mut rules = Rules::new(&self.case, &mut state);
        self.apply(&mut rules, action);
        if rules.goes_too_far {
            return None;
        }
        if !self.notes {
            state.seen.forget_what_happened();
        }
        Some(state.canonical(&self.case))
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
            Property::sometimes(LEFT_BEHIND, |_: &Self, state: &State<C>| {
                state.clients.iter().any(Client::asks_for_nobody)
            }),
            Property::sometimes(CONFIRMING, |_: &Self, state: &State<C>| {
                state.clients.iter().any(|client| client.machine.is_confirming())
            }),
            Property::sometimes(LATER, |model: &Self, state: &State<C>| {
                state.asks_later(&model.case)
            }),
            Property::sometimes(MISLED, |model: &Self, state: &State<C>| {
                state.is_misled(&model.case)
            }),
            Property::sometimes(REOPENED, |_: &Self, state: &State<C>| state.seen.reopened),
            Property::sometimes(DOWNGRADED, |_: &Self, state: &State<C>| state.seen.downgraded),
            Property::sometimes(REPLACED, |_: &Self, state: &State<C>| state.seen.replaced),
            Property::sometimes(TOOK_OVER, |_: &Self, state: &State<C>| state.seen.took_over),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}
