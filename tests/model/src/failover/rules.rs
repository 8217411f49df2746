//! The rules: what a server does with a request, what a client does with an answer, with time and with a new connection.
//! Broken rules stand beside the right ones, each named by a [`Wrong`].

use super::case::{Case, Wrong};
use super::state::{
    Client, Data, Identity, Lease, Phase, Reply, Request, Requests, Role, State, TARGET, Unlock,
};

/// The rules, applied to one state.
pub struct Rules<'a, const C: usize> {
    /// The case.
    pub case: &'a Case,
    /// The state that they change.
    pub state: &'a mut State<C>,
}

impl<const C: usize> Rules<'_, C> {
    // What servers do.

    /// Runs the next request of `client` on `server`, if that accepts writes.
    pub fn run(&mut self, server: usize, client: usize) {
        let ttl = self.case.ttl;
        let over = self.case.is(Wrong::ReclaimOverAnother);
        let holders: Vec<bool> = self.state.clients.iter().map(Client::holds).collect();
        let at = &mut self.state.servers[server];
        let request = at.queues[client].remove(0);
        if at.role != Role::Master {
            return;
        }
        let lease = Lease { client: client as u8, number: request.number() };
        let entry = &mut at.data.entry;
        let ours = entry.is_some_and(|(holder, _)| holder == lease);
        let free = entry.is_none();
        let counter = &mut at.data.counter;
        let reply = match request {
            Request::Acquire(_) if free || ours => {
                *entry = Some((lease, ttl));
                if self.case.readers && client == 0 && !ours {
                    self.state.time += 1;
                    *counter = self.state.time;
                }
                Reply::Yes(at.identity, *counter)
            }
            Request::Reclaim(_) if free || ours => {
                *entry = Some((lease, ttl));
                let own = &self.state.clients[client];
                if own.asked == lease.number {
                    *counter = own.token.max(*counter);
                }
                Reply::Yes(at.identity, *counter)
            }
            Request::Reclaim(_) if over => {
                let another = entry.map(|(holder, _)| usize::from(holder.client));
                self.state.seen.over_another |= another.is_some_and(|another| holders[another]);
                *entry = Some((lease, ttl));
                Reply::Yes(at.identity, *counter)
            }
            Request::Renew(_) if ours => {
                *entry = Some((lease, ttl));
                Reply::Ours
            }
            Request::Release(number) => {
                if ours {
                    *entry = None;
                }
                let own = &mut self.state.clients[client];
                let here = own.at.is_some_and(|(at, _)| usize::from(at) == server);
                let unlock = own.unlock.as_mut().filter(|it| it.number == number && here);
                unlock.into_iter().for_each(|unlock| unlock.held = Some(ours));
                return;
            }
            _ => Reply::No,
        };
        let own = &mut self.state.clients[client];
        let here = own.at.is_some_and(|(at, _)| usize::from(at) == server);
        let awaited = match request {
            Request::Acquire(_) => own.phase == Phase::Asking,
            Request::Renew(_) => own.phase == Phase::Renewing,
            Request::Reclaim(_) => own.phase == Phase::Reclaiming,
            Request::Release(_) => false,
        };
        if here && awaited && request.number() == own.asked {
            own.reply = Some(reply);
        }
    }

    /// The other server takes over all data of the current master.
    pub fn replicate(&mut self) {
        let data = self.state.master().data;
        self.state.other().data = data;
    }

    /// The other server is the current master from now on.
    pub fn promote(&mut self) {
        self.state.spent.promotions += 1;
        self.state.histories += 1;
        let history = self.state.histories;
        if self.case.fenced {
            self.state.master().role = Role::Fenced;
        }
        self.state.current = 1 - self.state.current;
        let master = self.state.master();
        master.role = Role::Master;
        master.identity.history = history;
        master.had_another = true;
        self.state.seen.newest = None;
    }

    /// The lock's slot moves to the third server. The one that had it sends everybody there, if it is alive.
    pub fn move_slot(&mut self, kept: bool) {
        let master = self.state.master();
        master.role = Role::Fenced;
        let data = if kept { master.data } else { Data::default() };
        self.state.current = TARGET;
        let master = self.state.master();
        master.role = Role::Master;
        // Its mark does not name the slot. That of the other server does not come along.
        master.data = Data { mark: None, marked_at: 0, ..data };
        self.state.seen.newest = None;
    }

    /// The current master starts again. Nothing that was sent to it can run any more.
    pub fn restart(&mut self) {
        self.state.spent.restarts += 1;
        self.state.histories += 1;
        self.state.runs += 1;
        let identity = Identity { run: self.state.runs, history: self.state.histories };
        let current = self.state.current;
        let master = self.state.master();
        master.identity = identity;
        master.data = Data::default();
        master.had_another = false;
        master.uptime = 0;
        let queues =
            std::mem::replace(&mut master.queues, std::array::from_fn(|_| Requests::new()));
        for (client, queue) in queues.into_iter().enumerate() {
            let own = &mut self.state.clients[client];
            own.greeting.take_if(|(at, _)| *at == current);
            if own.at.take_if(|(at, _)| *at == current).is_some() {
                // It has met a server, and is not connected: what is pending waits for the next connection.
                own.at = Some((LOST, Identity::default()));
                own.reply = None;
                self.give_up_request(client);
            }
            let releases =
                queue.into_iter().filter(|request| matches!(request, Request::Release(_)));
            let later: Requests = releases.collect();
            self.state.master().queues[client].extend(later);
        }
    }

    /// Somebody removes the current master's lease.
    pub fn remove(&mut self) {
        self.state.spent.removals += 1;
        self.state.master().data.entry = None;
    }

    // What clients do.

    /// The client begins to connect to the current master.
    pub fn meet(&mut self, client: usize) {
        let at = (self.state.current, self.state.master().identity);
        self.state.clients[client].greeting = Some(at);
    }

    /// The client's script compares the mark, and the connection is in use: what was pending elsewhere is sent here.
    pub fn mark(&mut self, client: usize) {
        let Case { grace, may_mark, .. } = *self.case;
        let Some((server, met)) = self.state.clients[client].greeting.take() else { return };
        let run_only = self.case.is(Wrong::MarkOfRunOnly);
        let any = self.case.is(Wrong::AnyMark);
        let at = &mut self.state.servers[usize::from(server)];
        let equal = |mark: Identity| mark == met || (run_only && mark.run == met.run) || any;
        let age = match at.data.mark {
            Some((mark, age)) if equal(mark) => age,
            _ if may_mark && at.role == Role::Master => {
                at.data.mark = Some((met, 0));
                at.data.marked_at = self.state.time;
                0
            }
            _ => 0,
        };
        let tokens_from = if may_mark { at.data.marked_at } else { 0 };
        let is_target = server == TARGET;
        let trusted = match is_target {
            true => self.case.is(Wrong::SlotTrusted),
            false => !at.had_another || self.case.is(Wrong::MarkIgnored),
        };
        let age = if trusted { age.max(at.uptime) } else { age };
        let promoted = at.had_another;

        let own = &mut self.state.clients[client];
        // For each address it is the first one.
        let first = own.at.is_none() || is_target;
        let before = own.at.filter(|(at, _)| *at != LOST);
        let own_grace = !self.is_stranger(client);
        let own = &mut self.state.clients[client];
        let same = before.is_some_and(|(_, before)| {
            before == met || (self.case.is(Wrong::HistoryIgnored) && before.run == met.run)
        });
        own.at = Some((server, met));
        own.tokens_from = tokens_from;
        if !same {
            own.grace = if first { grace.saturating_sub(age) } else { grace };
            // Others may count grants from this time on, and no lease is put back then.
            own.reclaims =
                if may_mark { grace.saturating_sub(age).min(own.grace) } else { own.grace };
        }
        if !own_grace {
            (own.grace, own.reclaims) = (0, 0);
        }
        self.state.seen.trusted |=
            first && promoted && own_grace && self.state.clients[client].grace == 0;
        self.state.clients[client].reply = None;
        self.give_up_request(client);
        // What was sent before may have released it: nothing speaks for a loss.
        let unlock = &mut self.state.clients[client].unlock;
        unlock.take_if(|unlock| unlock.was_sent);
        unlock.iter_mut().for_each(|unlock| unlock.was_sent = true);
        if let Some((before, _)) = before.filter(|(before, _)| *before != server) {
            let left = self.state.servers[usize::from(before)].queues[client].clone();
            let releases =
                left.into_iter().filter(|request| matches!(request, Request::Release(_)));
            for release in releases {
                self.send(client, release);
            }
        } else {
            // The old connection was killed; only releases are sent again.
            let queue = &mut self.state.servers[usize::from(server)].queues[client];
            queue.retain(|request| matches!(request, Request::Release(_)));
        }
    }

    /// The connection of the request under way is gone.
    fn give_up_request(&mut self, client: usize) {
        match self.state.clients[client].phase {
            Phase::Asking => self.end(client),
            Phase::Renewing | Phase::Reclaiming => self.state.clients[client].phase = Phase::Held,
            Phase::Idle | Phase::Held => {}
        }
    }

    /// A fresh lease id.
    pub fn ask(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.asked += 1;
        own.phase = Phase::Asking;
        (own.age, own.reply) = (0, None);
        let number = own.asked;
        self.send(client, Request::Acquire(number));
    }

    /// A renewal.
    pub fn renew(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        own.phase = Phase::Renewing;
        (own.age, own.reply) = (0, None);
        let number = own.asked;
        self.send(client, Request::Renew(number));
    }

    /// The client unlocks what it holds, and may wait for the answer.
    pub fn unlock(&mut self, client: usize) {
        let own = self.state.clients[client];
        self.end(client);
        if self.case.unlocks {
            let Client { asked: number, left, confirmed_in, was_passed, .. } = own;
            let was_sent = own.at.is_some_and(|(at, _)| at != LOST);
            let held = None;
            let unlock = Unlock { number, left, confirmed_in, was_passed, was_sent, held };
            self.state.clients[client].unlock = Some(unlock);
        }
    }

    /// The client hears the answer to its release.
    pub fn hear_unlock(&mut self, client: usize) {
        let own = self.state.clients[client];
        let (Some((_, met)), Some(unlock)) = (own.at, own.unlock) else { return };
        let in_time = own.reclaims > 0 || self.case.is(Wrong::MissingAfterGrace);
        let is_forgotten = match self.case.wrong {
            Some(Wrong::MissingIsLoss) => false,
            Some(Wrong::MissingIsNoLoss) => true,
            _ => unlock.confirmed_in != met && in_time && unlock.left > 0,
        };
        self.state.clients[client].unlock = None;
        if unlock.held == Some(true) {
            return;
        }
        if is_forgotten {
            self.state.seen.forgotten = true;
            self.state.seen.concealed |= unlock.was_passed;
        } else {
            let had_grounds = self.state.spent.removals > 0 || self.could_be_had(client);
            self.state.seen.groundless |= unlock.left > 0 && !had_grounds;
        }
    }

    /// Whether a grant to another than this client may count.
    fn could_be_had(&mut self, client: usize) -> bool {
        let here = (self.state.current, self.state.master().identity);
        let master = self.state.master();
        let for_all = match master.data.mark {
            Some((mark, age)) if mark == master.identity => age >= self.case.grace,
            _ => !master.had_another && master.uptime >= self.case.grace,
        };
        let mut others = self.state.clients.iter().enumerate().filter(|(it, _)| *it != client);
        for_all || others.any(|(_, other)| other.at == Some(here) && other.grace == 0)
    }

    /// The client is through with its lease, and releases it.
    pub fn end(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        let Client { at, asked, grace, reclaims, greeting, tokens_from, .. } = *own;
        *own = Client { at, asked, grace, reclaims, greeting, tokens_from, ..Client::default() };
        self.send(client, Request::Release(asked));
    }

    /// The client hears the answer to its request.
    pub fn hear(&mut self, client: usize) {
        let own = self.state.clients[client];
        let Some((_, met)) = own.at else { return };
        let Some(reply) = self.state.clients[client].reply.take() else { return };
        match (own.phase, reply) {
            (Phase::Asking, Reply::Yes(now, token)) => {
                let checked = now == met || self.case.is(Wrong::VoteUnchecked);
                match checked && own.grace == 0 {
                    true => self.hold(client, met, token),
                    false => self.end(client),
                }
            }
            (Phase::Renewing, Reply::Ours) => self.confirm(client, met),
            (Phase::Renewing, Reply::No) => {
                let moved = own.confirmed_in != met || self.case.is(Wrong::ReclaimInSameHistory);
                let in_time = own.reclaims > 0 || self.case.is(Wrong::LateReclaim);
                if moved && in_time {
                    let own = &mut self.state.clients[client];
                    (own.phase, own.age) = (Phase::Reclaiming, 0);
                    let number = own.asked;
                    self.send(client, Request::Reclaim(number));
                } else {
                    self.end(client);
                }
            }
            // It may have run after others' grants counted again.
            (Phase::Reclaiming, Reply::Yes(..))
                if own.reclaims == 0 && !self.case.is(Wrong::LateReclaim) =>
            {
                self.end(client);
            }
            (Phase::Reclaiming, Reply::Yes(now, _)) => {
                if now == met || self.case.is(Wrong::ReclaimUnchecked) {
                    let newest = self.state.seen.newest;
                    self.state.seen.late_reclaim |=
                        newest.is_some_and(|other| other != client as u8);
                    self.state.seen.reclaim = true;
                    self.confirm(client, met);
                } else {
                    // Nothing is known: the deadline stands.
                    self.state.clients[client].phase = Phase::Held;
                }
            }
            _ => self.end(client),
        }
    }

    fn hold(&mut self, client: usize, met: Identity, token: u8) {
        let left = self.case.ttl.saturating_sub(self.state.clients[client].age);
        if left == 0 {
            self.end(client);
            return;
        }
        let own = &mut self.state.clients[client];
        own.phase = Phase::Held;
        (own.left, own.age, own.confirmed_in) = (left, 0, met);
        let any = self.case.is(Wrong::AnyToken);
        own.token = if any { token } else { token.max(own.tokens_from) };
        let token = own.token;
        own.was_passed = false;
        let lease = Lease { client: client as u8, number: own.asked };
        let holder = self.state.master().data.entry.map(|(holder, _)| holder);
        let is_there = self.case.unlocks && holder == Some(lease);
        let passed = self.state.clients.iter_mut().enumerate();
        passed
            .filter(|(it, other)| is_there && *it != client && other.holds())
            .for_each(|(_, other)| other.was_passed = true);
        let is_current = self.state.master().identity == met;
        let promoted = self.state.master().had_another;
        let seen = &mut self.state.seen;
        if client == 0 {
            seen.written = seen.written.max(token);
        }
        seen.stale |= token < seen.written;
        if is_current {
            seen.second |= promoted && client > 0;
            seen.newest = Some(client as u8);
        }
    }

    fn confirm(&mut self, client: usize, met: Identity) {
        let own = &mut self.state.clients[client];
        own.phase = Phase::Held;
        own.left = own.left.max(self.case.ttl.saturating_sub(own.age));
        own.age = 0;
        own.confirmed_in = met;
    }

    // What time does.

    /// A tick of all clocks.
    pub fn tick(&mut self) {
        let Case { ttl, grace, .. } = *self.case;
        for server in &mut self.state.servers {
            server.uptime = (server.uptime + 1).min(grace);
            server.data.entry = match server.data.entry {
                Some((lease, left)) if left > 1 => Some((lease, left - 1)),
                _ => None,
            };
            if let Some((_, age)) = &mut server.data.mark {
                *age = (*age + 1).min(grace);
            }
        }
        for client in 0..C {
            let own = &mut self.state.clients[client];
            own.grace = own.grace.saturating_sub(1);
            own.reclaims = own.reclaims.saturating_sub(1);
            own.unlock.iter_mut().for_each(|unlock| unlock.left = unlock.left.saturating_sub(1));
            match own.phase {
                Phase::Asking => {
                    own.age += 1;
                    if own.age >= ttl {
                        self.end(client);
                    }
                }
                Phase::Held | Phase::Renewing | Phase::Reclaiming => {
                    own.age = if own.phase == Phase::Held { 0 } else { (own.age + 1).min(ttl) };
                    own.left -= 1;
                    if own.left == 0 {
                        self.end(client);
                    }
                }
                Phase::Idle => {}
            }
        }
    }

    /// Whether this client knows no grace.
    pub fn is_stranger(&self, client: usize) -> bool {
        self.case.stranger && client == 0
    }

    fn send(&mut self, client: usize, request: Request) {
        // Without a connection what is pending waits at the current master.
        let at = match self.state.clients[client].at {
            Some((at, _)) if at != LOST => at,
            _ => self.state.current,
        };
        let queue = &mut self.state.servers[usize::from(at)].queues[client];
        if !queue.contains(&request) {
            queue.push(request);
        }
    }
}

/// The client has met a server, and has no connection now.
pub const LOST: u8 = 9;
