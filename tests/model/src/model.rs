//! The model as the checker sees it: which actions there are, what each leads to, what must hold.

use stateright::{Model, Property};

use crate::case::{Case, Force, Wrong};
use crate::rules::Rules;
use crate::state::{Action, Phase, Request, Requests, State};

/// Two clients never hold the lock at the same time.
pub const EXCLUSION: &str = "no double grant";
/// A lease on a server is wanted by its client, or has a release behind it.
pub const NO_LEFTOVER: &str = "no leftover";
/// Tokens strictly increase from hold to hold.
pub const TOKEN_ORDER: &str = "tokens increase";
/// A force-unlock that has reached every server ends the hold.
pub const FORCED_ENDS: &str = "a force-unlock lasts";
/// Both clients do get the lock, one after the other.
pub const BOTH_HOLD: &str = "one after the other";
/// A renewal is confirmed.
pub const RENEWAL: &str = "a renewal";
/// A heal puts a lease back on a server.
pub const HEAL: &str = "a heal";

/// What is looked for, to show that the model moves.
const WITNESSES: [&str; 3] = [BOTH_HOLD, RENEWAL, HEAL];

/// The protocol over `N` servers with `C` clients, in one case.
pub struct Protocol<const N: usize, const C: usize> {
    case: Case,
    properties: Vec<&'static str>,
    /// The ways to rename the clients that lead to a state of equal worth, but for leaving them as they are.
    renamings: Vec<[usize; C]>,
}

impl<const N: usize, const C: usize> Protocol<N, C> {
    /// The protocol with these properties to check.
    pub fn new(case: Case, properties: &[&'static str]) -> Self {
        // Clients that take blocks of different sizes are not alike.
        let alike = case.block == 1;
        let mut renamings = if alike { permutations() } else { Vec::new() };
        renamings.retain(|names| !names.is_sorted());
        let witness = properties.iter().any(|property| WITNESSES.contains(property));
        let case = Case { witness, ..case };
        Protocol { case, properties: properties.to_vec(), renamings }
    }

    fn client_actions(&self, state: &State<N, C>, client: usize, actions: &mut Vec<Action>) {
        let own = &state.clients[client];
        let c = client as u8;
        let asked: u8 = state.clients.iter().map(|client| client.asked).sum();
        let renewed: u8 = state.clients.iter().map(|client| client.renewed).sum();
        match own.phase {
            Phase::Idle if asked < self.case.asks => actions.push(Action::Ask(c)),
            Phase::Asking | Phase::Raising => actions.push(Action::GiveUp(c)),
            Phase::Held | Phase::Renewing => {
                actions.push(Action::Unlock(c));
                if renewed < self.case.renewals {
                    actions.push(Action::Renew(c));
                }
                if self.may_force(state, client) {
                    actions.push(Action::Force(c));
                }
            }
            _ => {}
        }
    }

    fn may_force(&self, state: &State<N, C>, client: usize) -> bool {
        let acquire = Request::Acquire(state.clients[client].asked);
        let early = state.nodes.iter().any(|node| node.links[client].queue.contains(&acquire));
        self.case.force != Force::Never
            && state.forced.is_none()
            && (self.case.force_early || !early)
    }

    fn link_actions(&self, state: &State<N, C>, n: usize, c: usize, actions: &mut Vec<Action>) {
        let link = &state.nodes[n].links[c];
        let (n, c) = (n as u8, c as u8);
        if let Some(&next) = link.queue.first() {
            actions.push(Action::Run(n, c));
            let twice = self.case.doubles_acquires || !matches!(next, Request::Acquire(_));
            if twice && state.spent.doubles < self.case.doubles {
                actions.push(Action::RunTwice(n, c));
            }
            if state.spent.breaks < self.case.breaks {
                actions.push(Action::Break(n, c));
            }
        }
        if !link.stray.is_empty() {
            actions.push(Action::RunStray(n, c));
        }
        if link.reply.is_some() {
            actions.push(Action::Hear(n, c));
        }
    }

    fn time_actions(&self, state: &State<N, C>, actions: &mut Vec<Action>) {
        let nodes = 0..N as u8;
        if self.case.timeless {
            let held = nodes.filter(|&n| state.nodes[n as usize].entry.is_some());
            actions.extend(held.map(Action::Expire));
            return;
        }
        actions.push(Action::Tick);
        if state.spent.skew < self.case.skew {
            for c in 0..C as u8 {
                actions.extend([Action::TickWithoutClient(c), Action::TickOfClient(c)]);
            }
            actions.extend(nodes.map(Action::TickOfNode));
        }
    }

    fn apply(&self, state: &mut State<N, C>, action: Action) {
        let mut rules = Rules { case: &self.case, state };
        match action {
            Action::Ask(c) => rules.ask(c.into()),
            Action::GiveUp(c) => rules.release(c.into()),
            Action::Unlock(c) if self.case.is(Wrong::HealAfterRelease) => {
                rules.release_but_listen(c.into());
            }
            Action::Unlock(c) => rules.release(c.into()),
            Action::Renew(c) => rules.renew(c.into()),
            Action::Run(n, c) => {
                let request = rules.state.nodes[n as usize].links[c as usize].queue.remove(0);
                rules.run(n.into(), c.into(), request, false);
            }
            Action::RunTwice(n, c) => {
                rules.state.spent.doubles += 1;
                let request = rules.state.nodes[n as usize].links[c as usize].queue[0];
                rules.run(n.into(), c.into(), request, false);
            }
            Action::RunStray(n, c) => {
                let request = rules.state.nodes[n as usize].links[c as usize].stray.remove(0);
                rules.run(n.into(), c.into(), request, true);
            }
            Action::Hear(n, c) => rules.hear(n.into(), c.into()),
            Action::Break(n, c) => {
                rules.state.spent.breaks += 1;
                rules.reconnect(n.into(), c.into(), self.case.kills);
            }
            Action::Restart(n) => {
                rules.state.spent.restarts += 1;
                rules.restart(n.into());
            }
            Action::Demote(n) => {
                rules.state.spent.demotions += 1;
                rules.demote(n.into());
            }
            Action::Tick => self.tick(&mut rules, None),
            Action::TickWithoutClient(c) => {
                rules.state.spent.skew += 1;
                self.tick(&mut rules, Some(c.into()));
            }
            Action::TickOfClient(c) => {
                rules.state.spent.skew += 1;
                rules.tick_client(c.into());
            }
            Action::TickOfNode(n) => {
                rules.state.spent.skew += 1;
                rules.tick_node(n.into());
            }
            Action::Expire(n) => state.nodes[n as usize].entry = None,
            Action::ClockStep(n) => {
                state.spent.steps += 1;
                state.nodes[n as usize].counter += 1;
            }
            Action::Force(c) => {
                let lease = self.case.lease(c.into(), &state.clients[c as usize]);
                state.forced = Some(lease);
                for n in 0..N {
                    state.nodes[n].clearing = true;
                    if self.case.force == Force::AtOnce {
                        self.clear(state, n);
                    }
                }
            }
            Action::Clear(n) => self.clear(state, n.into()),
        }
    }

    fn tick(&self, rules: &mut Rules<'_, N, C>, but: Option<usize>) {
        for node in 0..N {
            rules.tick_node(node);
        }
        for client in (0..C).filter(|&client| Some(client) != but) {
            rules.tick_client(client);
        }
    }

    /// `force_unlock_if`: clears the node if the lease that was meant is there.
    fn clear(&self, state: &mut State<N, C>, n: usize) {
        let node = &mut state.nodes[n];
        node.clearing = false;
        if state.forced.is_some_and(|lease| node.has(lease)) {
            node.entry = None;
        }
    }

    /// Drops what can have no effect any more: requests about a lease that is not on the node and that nothing
    /// on its way can put there, and answers that nobody looks at. This keeps the number of states small.
    fn tidy(&self, state: &mut State<N, C>) {
        if self.case.is(Wrong::ReleaseOfAnybody) {
            return;
        }
        // With one id for all leases a stray release may still meet a lease that is not asked for yet.
        let reused = self.case.is(Wrong::LeaseIdReused);
        for n in 0..N {
            for c in 0..C {
                let mut queue = std::mem::take(&mut state.nodes[n].links[c].queue);
                let mut stray = std::mem::take(&mut state.nodes[n].links[c].stray);
                self.drop_idle(state, n, c, &mut queue, &stray, true);
                if !reused {
                    self.drop_idle(state, n, c, &mut stray, &queue, false);
                }
                let link = &mut state.nodes[n].links[c];
                (link.queue, link.stray) = (queue, stray);
            }
        }
    }

    fn drop_idle(
        &self,
        state: &mut State<N, C>,
        n: usize,
        c: usize,
        requests: &mut Requests,
        others: &[Request],
        answered: bool,
    ) {
        let holder = state.nodes[n].entry.map(|(lease, _)| lease);
        let mut ahead = Requests::new();
        requests.retain(|&mut request| {
            let number = request.number();
            let there = holder.is_some_and(|l| l.client as usize == c && l.number == number)
                || others.iter().chain(&ahead).any(|other: &Request| other.creates(number));
            let unchecked =
                self.case.is(Wrong::RaiseWithoutLease) && matches!(request, Request::Raise(..));
            let awaited = answered
                && matches!(request, Request::Renew(..))
                && Rules { case: &self.case, state: &mut *state }.is_awaited(c, request);
            let keep = there || awaited || unchecked || request.creates(number);
            if keep {
                ahead.push(request);
            }
            keep
        });
    }

    /// One state stands for all that differ in the order of nodes, or in the names of clients that are alike.
    fn canonical(&self, mut state: State<N, C>) -> State<N, C> {
        if !self.case.symmetry {
            return state;
        }
        let renamed = self.renamings.iter().map(|names| {
            let mut renamed = state.renamed(names);
            renamed.nodes.sort_unstable();
            renamed
        });
        let least = renamed.min();
        state.nodes.sort_unstable();
        match least {
            Some(least) if least < state => least,
            _ => state,
        }
    }

    fn exclusive(&self, state: &State<N, C>) -> bool {
        state.clients.iter().filter(|client| client.holds()).count() <= 1
    }

    fn nothing_left_over(&self, state: &State<N, C>) -> bool {
        state.nodes.iter().all(|node| {
            let Some((lease, _)) = node.entry else {
                return true;
            };
            let own = &state.clients[lease.client as usize];
            let link = &node.links[lease.client as usize];
            let release = Request::Release(lease.number);
            own.wants_its_lease() && self.case.lease(lease.client.into(), own) == lease
                || link.queue.contains(&release)
                || link.stray.contains(&release)
        })
    }

    fn force_lasts(&self, state: &State<N, C>) -> bool {
        let Some(lease) = state.forced else {
            return true;
        };
        let own = &state.clients[lease.client as usize];
        state.nodes.iter().any(|node| node.clearing)
            || !own.holds()
            || self.case.lease(lease.client.into(), own) != lease
            || state.copies(lease) <= N / 2
    }
}

impl<const N: usize, const C: usize> Model for Protocol<N, C> {
    type State = State<N, C>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State::start()]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        for n in 0..N {
            for c in 0..C {
                self.link_actions(state, n, c, actions);
            }
            if state.spent.restarts < self.case.restarts {
                actions.push(Action::Restart(n as u8));
            }
            if state.spent.demotions < self.case.demotions {
                actions.push(Action::Demote(n as u8));
            }
            if state.spent.steps < self.case.steps {
                actions.push(Action::ClockStep(n as u8));
            }
            if state.nodes[n].clearing {
                actions.push(Action::Clear(n as u8));
            }
        }
        for c in 0..C {
            self.client_actions(state, c, actions);
        }
        self.time_actions(state, actions);
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        self.apply(&mut state, action);
        self.tidy(&mut state);
        Some(self.canonical(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            Property::always(EXCLUSION, |model: &Self, state| model.exclusive(state)),
            Property::always(NO_LEFTOVER, |model: &Self, state| model.nothing_left_over(state)),
            Property::always(TOKEN_ORDER, |_: &Self, state: &State<N, C>| !state.seen.disorder),
            Property::always(FORCED_ENDS, |model: &Self, state| model.force_lasts(state)),
            Property::sometimes(BOTH_HOLD, |_: &Self, state: &State<N, C>| state.seen.second),
            Property::sometimes(RENEWAL, |_: &Self, state: &State<N, C>| state.seen.renewal),
            Property::sometimes(HEAL, |_: &Self, state: &State<N, C>| state.seen.heal),
        ];
        all.into_iter().filter(|property| self.properties.contains(&property.name)).collect()
    }
}

pub(crate) fn permutations<const C: usize>() -> Vec<[usize; C]> {
    let mut all = vec![vec![]];
    for client in 0..C {
        all = all
            .iter()
            .flat_map(|order: &Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, client);
                    longer
                })
            })
            .collect();
    }
    all.into_iter().map(|order| order.try_into().expect("one place for each client")).collect()
}
