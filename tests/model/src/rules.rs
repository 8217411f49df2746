//! The rules of the protocol: what a server does with a request, what a client does with an answer, with
//! time, and with a broken connection. Broken rules stand beside the right ones, each named by a [`Wrong`].

use crate::case::{Case, Wrong};
use crate::state::{Client, Heard, Lease, Link, Phase, Reply, Request, Requests, State};

impl Case {
    /// The client's newest lease.
    pub fn lease(&self, client: usize, state: &Client) -> Lease {
        let number = if self.is(Wrong::LeaseIdReused) { 1 } else { state.asked };
        Lease { client: client as u8, number }
    }

    fn block(&self, client: usize) -> u8 {
        if client == 0 { self.block } else { 1 }
    }
}

/// The rules, applied to one state.
pub struct Rules<'a, const N: usize, const C: usize> {
    /// The case.
    pub case: &'a Case,
    /// The state that they change.
    pub state: &'a mut State<N, C>,
}

impl<const N: usize, const C: usize> Rules<'_, N, C> {
    const MAJORITY: usize = N / 2 + 1;

    // What a server does: the scripts.

    /// Runs one request of `client` on `node`. A stray one's answer goes nowhere.
    pub fn run(&mut self, node: usize, client: usize, request: Request, stray: bool) {
        let Case { ttl, .. } = *self.case;
        let block = self.case.block(client);
        let lease = Lease { client: client as u8, number: request.number() };
        let server = &mut self.state.nodes[node];
        let ours = server.has(lease);
        let reply = match request {
            Request::Acquire(_) | Request::Heal(..) if server.entry.is_some() && !ours => {
                Reply::Refused
            }
            Request::Acquire(_) => {
                server.entry = Some((lease, ttl));
                if self.case.tokens && !ours {
                    server.counter += block;
                }
                Reply::Granted(server.counter)
            }
            Request::Heal(_, end) => {
                self.state.seen.heal |= self.case.witness && !ours;
                server.entry = Some((lease, ttl));
                server.counter = server.counter.max(end);
                Reply::Granted(server.counter)
            }
            Request::Renew(..) if ours => {
                server.entry = Some((lease, ttl));
                Reply::Ours
            }
            Request::Renew(..) => Reply::Gone,
            Request::Raise(_, end) if ours || self.case.is(Wrong::RaiseWithoutLease) => {
                server.counter = server.counter.max(end);
                Reply::Raised
            }
            Request::Raise(..) => return,
            Request::Release(_) => {
                if ours || self.case.is(Wrong::ReleaseOfAnybody) {
                    server.entry = None;
                }
                return;
            }
        };
        if !stray && self.is_awaited(client, request) {
            server_link(self.state, node, client).reply = Some(reply);
        }
    }

    /// Whether the client still looks at the answer to this request: replies are matched to their lease, and
    /// those of renewals to their renewal.
    pub fn is_awaited(&self, client: usize, request: Request) -> bool {
        let own = &self.state.clients[client];
        let current =
            own.phase != Phase::Idle && request.number() == self.case.lease(client, own).number;
        current
            && match request {
                Request::Renew(_, renewal) => {
                    // After the majority's answers a late one may still lead to a heal.
                    (own.phase == Phase::Renewing || self.case.heals)
                        && (renewal == own.renewed || self.case.is(Wrong::OldRenewalCounts))
                }
                Request::Raise(..) => own.phase == Phase::Raising,
                Request::Release(_) => false,
                // After the grant a late one only says that this node has the lease too.
                Request::Acquire(_) | Request::Heal(..) => {
                    self.case.heals || matches!(own.phase, Phase::Asking | Phase::Raising)
                }
            }
    }

    // What a client does.

    /// A fresh lease id; the acquire goes to all nodes at once.
    pub fn ask(&mut self, client: usize) {
        let floor = self.state.seen.last_token;
        if self.state.clients[client].asked == 0 {
            self.meet(client);
        }
        let own = &mut self.state.clients[client];
        own.asked += 1;
        own.phase = Phase::Asking;
        if self.case.timeless {
            own.floor = floor;
        }
        let Lease { number, .. } = self.case.lease(client, &self.state.clients[client]);
        self.forget_answers(client);
        for link in self.links(client) {
            link.queue.push(Request::Acquire(number));
        }
    }

    /// The renewal goes to all nodes at once.
    pub fn renew(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.renewed += 1;
        own.phase = Phase::Renewing;
        own.age = 0;
        let renewal = own.renewed;
        let Lease { number, .. } = self.case.lease(client, &self.state.clients[client]);
        let keep = self.case.is(Wrong::OldRenewalCounts);
        for link in self.links(client) {
            link.heard = Heard::Nothing;
            link.confirmed_at_send = link.confirmed > 0;
            if !keep {
                link.reply = None;
            }
            link.queue.push(Request::Renew(number, renewal));
        }
    }

    /// The client is through with its lease: refused, given up, unlocked or lost. The release goes to all
    /// nodes, also those thought not to hold it, behind whatever is on its way there.
    pub fn release(&mut self, client: usize) {
        let own = self.state.clients[client];
        let Lease { number, .. } = self.case.lease(client, &own);
        let everywhere =
            !(own.phase == Phase::Asking && self.case.is(Wrong::ReleaseOnlyWhereGranted));
        for link in self.links(client) {
            if everywhere || matches!(link.heard, Heard::Granted(_) | Heard::Quarantined) {
                link.queue.push(Request::Release(number));
            }
        }
        let own = &mut self.state.clients[client];
        *own = Client { asked: own.asked, renewed: own.renewed, ..Client::default() };
        self.forget_answers(client);
        for link in self.links(client) {
            (link.confirmed, link.confirmed_at_send) = (0, false);
        }
    }

    /// As `release`, with a rule broken: answers to the renewal under way are acted upon all the same.
    pub fn release_but_listen(&mut self, client: usize) {
        let before = self.state.clients[client];
        let links: Vec<Link> = self.links(client).map(|link| link.clone()).collect();
        self.release(client);
        self.state.clients[client] = Client { phase: Phase::Over, left: 0, age: 0, ..before };
        for (link, before) in self.links(client).zip(links) {
            (link.reply, link.heard) = (before.reply, before.heard);
        }
    }

    /// The client hears what `node` answered.
    pub fn hear(&mut self, node: usize, client: usize) {
        let Case { ttl, heals, .. } = *self.case;
        let ignored = self.case.is(Wrong::QuarantineIgnored);
        let anybody = self.case.is(Wrong::RaiseCountsStragglers);
        let own = self.state.clients[client];
        let link = server_link(self.state, node, client);
        let Some(reply) = link.reply.take() else {
            return;
        };
        if heals && matches!(reply, Reply::Granted(_) | Reply::Ours) {
            link.confirmed = ttl;
        }
        let counts = link.quarantine == 0 || ignored;
        match (own.phase, reply) {
            (Phase::Asking, Reply::Granted(end)) => {
                link.heard = if counts { Heard::Granted(end) } else { Heard::Quarantined };
                self.tally_acquire(client);
            }
            (Phase::Asking, Reply::Refused) => {
                link.heard = Heard::Refused;
                self.tally_acquire(client);
            }
            // A straggler. One whose block ends higher knows of tokens that may have been given since.
            (Phase::Raising, Reply::Granted(end)) if counts => {
                link.heard = if end <= own.token { Heard::Granted(end) } else { Heard::Refused };
                self.tally_raise(client);
            }
            (Phase::Raising, Reply::Raised)
                if matches!(link.heard, Heard::Granted(_)) || anybody && counts =>
            {
                link.heard = Heard::Granted(own.token);
                self.tally_raise(client);
            }
            (Phase::Renewing | Phase::Held | Phase::Over, Reply::Ours) => {
                link.heard = Heard::Ours;
                self.tally_renewal(client);
            }
            (Phase::Renewing | Phase::Held | Phase::Over, Reply::Gone) => {
                link.heard = Heard::Gone;
                self.tally_renewal(client);
            }
            _ => {}
        }
    }

    /// Granted as soon as a majority granted, refused as soon as none can be reached any more.
    fn tally_acquire(&mut self, client: usize) {
        let no = self.count(client, |heard| matches!(heard, Heard::Refused | Heard::Quarantined));
        if self.count(client, |heard| matches!(heard, Heard::Granted(_))) >= Self::MAJORITY {
            let token = self.votes(client).filter_map(granted).max().unwrap_or(0);
            self.state.clients[client].token = token;
            if self.case.tokens && !self.case.is(Wrong::NoRaise) {
                self.state.clients[client].phase = Phase::Raising;
                self.raise(client, token);
                self.tally_raise(client);
            } else {
                self.hold(client);
            }
        } else if no > N - Self::MAJORITY {
            self.release(client);
        }
    }

    /// Lifts the counter to the token wherever it is not known to be there, unless a majority is.
    fn raise(&mut self, client: usize, token: u8) {
        if self.count(client, |heard| heard == Heard::Granted(token)) >= Self::MAJORITY {
            return;
        }
        let Lease { number, .. } = self.case.lease(client, &self.state.clients[client]);
        for link in self.links(client) {
            if link.heard != Heard::Granted(token) {
                link.queue.push(Request::Raise(number, token));
            }
        }
    }

    /// The token is final once a majority has exactly that.
    fn tally_raise(&mut self, client: usize) {
        let token = self.state.clients[client].token;
        if self.count(client, |heard| heard == Heard::Granted(token)) >= Self::MAJORITY {
            self.hold(client);
        }
    }

    /// The grant becomes a hold if anything is left of it, counted from before the acquire was sent.
    fn hold(&mut self, client: usize) {
        let left = self.left(client);
        if left == 0 {
            self.release(client);
            return;
        }
        let own = &mut self.state.clients[client];
        own.phase = Phase::Held;
        own.left = left;
        own.age = 0;
        self.forget_votes(client);
        self.note_hold(client);
    }

    /// Renewed if a majority says ours; lost if none can any more; else unknown, and the deadline stays.
    fn tally_renewal(&mut self, client: usize) {
        let ours = self.count(client, |heard| heard == Heard::Ours) >= Self::MAJORITY;
        let gone = self.count(client, |heard| heard == Heard::Gone) > N - Self::MAJORITY;
        if self.state.clients[client].phase == Phase::Renewing && ours {
            let left = self.left(client);
            let own = &mut self.state.clients[client];
            own.phase = Phase::Held;
            own.left = own.left.max(left);
            own.age = 0;
            self.state.seen.renewal |= self.case.witness;
        }
        if self.case.heals && (ours || self.case.is(Wrong::HealWithoutMajority)) {
            self.heal(client);
        }
        if self.state.clients[client].phase == Phase::Renewing && gone {
            self.release(client);
        } else if ours && !self.case.heals && self.state.clients[client].phase == Phase::Held {
            self.forget_votes(client);
        }
    }

    /// Puts the lease on nodes that miss it, but never where it was confirmed less than a ttl before the
    /// renewal was sent, or later: such a node was cleared on purpose. (A restart, seen by its run id, makes
    /// the confirmation void.)
    fn heal(&mut self, client: usize) {
        let own = self.state.clients[client];
        let Lease { number, .. } = self.case.lease(client, &own);
        let always = self.case.is(Wrong::HealOfCleared);
        let late = self.case.is(Wrong::ConfirmationAgesWhileWaiting);
        for link in self.links(client) {
            let cleared = link.confirmed > 0 || link.confirmed_at_send && !late;
            if link.heard == Heard::Gone && (!cleared || always) {
                link.heard = Heard::Nothing;
                link.queue.push(Request::Heal(number, own.token));
            }
        }
    }

    /// A tick of the client's clock. At the deadline the hold is lost, whatever is on its way.
    pub fn tick_client(&mut self, client: usize) {
        let Case { ttl, drift, .. } = *self.case;
        for link in self.links(client) {
            link.quarantine = link.quarantine.saturating_sub(1);
            link.confirmed = link.confirmed.saturating_sub(1);
        }
        let own = &mut self.state.clients[client];
        if matches!(own.phase, Phase::Asking | Phase::Raising | Phase::Renewing) {
            own.age = (own.age + 1).min(ttl);
        }
        match own.phase {
            Phase::Held | Phase::Renewing => {
                own.left -= 1;
                if own.left == 0 && self.case.is(Wrong::HealAfterDeadline) {
                    self.release_but_listen(client);
                } else if own.left == 0 {
                    self.release(client);
                }
            }
            // No answer can make a hold of it any more.
            Phase::Asking | Phase::Raising
                if own.age >= ttl - drift && !self.case.is(Wrong::ValidityFromReply) =>
            {
                self.release(client);
            }
            _ => {}
        }
    }

    /// A tick of the node's clock.
    pub fn tick_node(&mut self, node: usize) {
        let server = &mut self.state.nodes[node];
        server.young = server.young.saturating_sub(1);
        server.entry = match server.entry {
            Some((lease, left)) if left > 1 => Some((lease, left - 1)),
            _ => None,
        };
    }

    /// The connection is cut and made again. What was not run yet is killed with it, or cannot be killed and
    /// strays. Only releases are sent again.
    pub fn reconnect(&mut self, node: usize, client: usize, killed: bool) {
        let resent = self.case.is(Wrong::AcquireCrossesConnections);
        let link = server_link(self.state, node, client);
        let sent = std::mem::take(&mut link.queue);
        let (releases, others): (Requests, Requests) =
            sent.iter().copied().partition(|request| matches!(request, Request::Release(_)));
        link.queue = releases;
        if resent {
            let acquires = others.iter().filter(|request| matches!(request, Request::Acquire(_)));
            link.queue.extend(acquires.copied());
        }
        if !killed {
            link.stray.extend(sent);
        }
    }

    /// The node starts again. No connection outlives that, so nothing of ours can run behind it.
    pub fn restart(&mut self, node: usize) {
        let Case { keeps_data, quarantine, .. } = *self.case;
        let server = &mut self.state.nodes[node];
        if !keeps_data {
            server.entry = None;
            server.counter = 0;
        }
        server.young = quarantine;
        server.followed = false;
        for client in 0..C {
            self.reconnect(node, client, true);
            server_link(self.state, node, client).stray.clear();
            self.distrust(node, client, self.case.is(Wrong::FileTrustedAgain));
        }
    }

    /// The node has the data of another, which is none, in the same run. What was sent on its connections runs on that.
    pub fn demote(&mut self, node: usize) {
        let server = &mut self.state.nodes[node];
        server.entry = None;
        server.counter = 0;
        server.followed = true;
        for client in 0..C {
            self.distrust(node, client, self.case.is(Wrong::HistoryIgnored));
        }
    }

    /// The quarantine is counted from the event itself, on the client's clock, which is the earliest end it can have: a
    /// client that notices it later counts in full from then, and counts no grant that ran before it did. A client that
    /// has not asked yet has not met the server.
    fn distrust(&mut self, node: usize, client: usize, not_noticed: bool) {
        let has_met = self.state.clients[client].asked > 0;
        let link = server_link(self.state, node, client);
        if !not_noticed {
            (link.confirmed, link.confirmed_at_send) = (0, false);
            link.quarantine = if has_met { self.case.quarantine } else { 0 };
        }
    }

    /// A client meets the servers: it trusts each for its uptime, unless that one followed another.
    fn meet(&mut self, client: usize) {
        let Case { quarantine, .. } = *self.case;
        let file_trusted = self.case.is(Wrong::FileTrustedAtFirst);
        let follower_trusted = self.case.is(Wrong::FollowerTrustedAtFirst);
        for node in &mut self.state.nodes {
            node.links[client].quarantine = match node.followed && !follower_trusted {
                true => quarantine,
                false if file_trusted => 0,
                false => node.young,
            };
        }
    }

    // Helpers.

    /// What is left of a lease whose request was sent `age` ticks ago.
    fn left(&self, client: usize) -> u8 {
        let Case { ttl, drift, .. } = *self.case;
        let age = self.state.clients[client].age;
        let age = if self.case.is(Wrong::ValidityFromReply) { 0 } else { age };
        (ttl - drift).saturating_sub(age)
    }

    /// What the properties need to know of a new hold.
    fn note_hold(&mut self, client: usize) {
        let own = self.state.clients[client];
        let seen = &mut self.state.seen;
        if self.case.tokens {
            let first = own.token + 1 - self.case.block(client);
            let bits = (first..=own.token).fold(0, |bits, token| bits | 1_u32 << token);
            // Holds follow each other, so each token must be above the last one. Where they may end at any
            // time they may overlap too: then it must be above those given before it was asked for.
            let floor = if self.case.timeless { own.floor } else { seen.last_token };
            seen.disorder |= first <= floor || seen.tokens & bits != 0;
            seen.last_token = seen.last_token.max(own.token);
            seen.tokens |= bits;
        }
        if self.case.witness {
            let first = *seen.first.get_or_insert(client as u8);
            seen.second |= first != client as u8;
        }
    }

    fn links(&mut self, client: usize) -> impl Iterator<Item = &mut Link> {
        self.state.nodes.iter_mut().map(move |node| &mut node.links[client])
    }

    fn votes(&self, client: usize) -> impl Iterator<Item = Heard> {
        self.state.nodes.iter().map(move |node| node.links[client].heard)
    }

    fn count(&self, client: usize, is: impl Fn(Heard) -> bool) -> usize {
        self.votes(client).filter(|&heard| is(heard)).count()
    }

    fn forget_votes(&mut self, client: usize) {
        for link in self.links(client) {
            link.heard = Heard::Nothing;
        }
    }

    fn forget_answers(&mut self, client: usize) {
        self.forget_votes(client);
        if !self.case.is(Wrong::OldGrantCounts) {
            for link in self.links(client) {
                link.reply = None;
            }
        }
    }
}

fn granted(heard: Heard) -> Option<u8> {
    match heard {
        Heard::Granted(end) => Some(end),
        _ => None,
    }
}

fn server_link<const N: usize, const C: usize>(
    state: &mut State<N, C>,
    node: usize,
    client: usize,
) -> &mut Link {
    &mut state.nodes[node].links[client]
}
