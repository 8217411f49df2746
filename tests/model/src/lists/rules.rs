//! What servers and clients do.

use super::case::{Case, Set, Wrong};
use super::state::{Phase, Server, State};

/// The rules of a case, at work on a state.
pub struct Rules<'a> {
    /// The case.
    pub case: &'a Case,
    /// The state that they change.
    pub state: &'a mut State,
}

impl Rules<'_> {
    /// The client connects to the server and compares the lists.
    pub fn connect(&mut self, client: usize, server: usize) {
        if self.compare(client, server, true) {
            self.state.clients[client].up |= 1 << server;
        }
    }

    /// The server answers an ask, and says behind its grant which lists it allows.
    pub fn vote(&mut self, client: usize, server: usize) {
        let Server { lease, quarantined, .. } = self.state.servers[server];
        if lease.is_some_and(|holder| usize::from(holder) != client) {
            return;
        }
        self.state.servers[server].lease = Some(client as u8);
        let compares = !self.case.is(Wrong::NotBehindTheGrant);
        let in_use = !compares || self.compare(client, server, false);
        if let (Phase::Asking(votes), true) = (&mut self.state.clients[client].phase, in_use) {
            *votes |= Set::from(!quarantined) << server;
        }
    }

    /// Whether the client may use the server. It writes its list if there is none, and if it may.
    fn compare(&mut self, client: usize, server: usize, connects: bool) -> bool {
        if self.case.is(Wrong::NotCompared) {
            return true;
        }
        let (it, own, bit) =
            (&mut self.state.servers[server], &mut self.state.clients[client], 1 << server);
        let has_seen = own.seen & bit != 0;
        if it.allowed == 0 {
            let writes = match has_seen {
                true => connects && !self.case.is(Wrong::NotWrittenBack),
                false => !it.quarantined || self.case.is(Wrong::StrangerWrites),
            };
            if !writes {
                // Who has seen the list here connects anew, and a stranger's grant does not count yet.
                return connects;
            }
            it.allowed = 1 << self.case.clients[client];
        }
        if self.case.allows(client, it.allowed) {
            (own.seen, own.other) = (own.seen | bit, own.other & !bit);
            return true;
        }
        (own.seen, own.other, own.up) = (own.seen & !bit, own.other | bit, own.up & !bit);
        self.state.refused = true;
        // What it was granted there is released.
        if it.lease == Some(client as u8) && own.phase != Phase::Held {
            it.lease = None;
        }
        false
    }

    /// The client has no hold any more, and wants none.
    pub fn end(&mut self, client: usize) {
        let own = &mut self.state.clients[client];
        (own.phase, own.older) = (Phase::Idle, 0);
        for server in &mut self.state.servers {
            server.lease.take_if(|holder| usize::from(*holder) == client);
        }
    }

    /// The server restarts without its data.
    pub fn restart(&mut self, server: usize) {
        self.state.servers[server] = Server { quarantined: true, ..Server::default() };
        for own in &mut self.state.clients {
            own.up &= !(1 << server);
            if matches!(own.phase, Phase::Asking(1..)) {
                own.older |= 1 << server;
            }
        }
    }

    /// The quarantine of the server is over. So is each lease that was not renewed by a majority since, and each request to
    /// which anything was granted before the restart: no lease outlasts a quarantine.
    pub fn counts(&mut self, server: usize) {
        for client in 0..self.case.clients.len() {
            let is_over = match self.state.clients[client].phase {
                Phase::Held => self.state.leases(client) < self.case.majority(client),
                Phase::Asking(_) => self.state.clients[client].older & (1 << server) != 0,
                _ => false,
            };
            if is_over {
                self.end(client);
            }
        }
        self.state.servers[server].quarantined = false;
    }

    /// The operator types the lists of the present step on the server.
    pub fn types(&mut self, server: usize) {
        self.state.servers[server].allowed = self.case.steps[usize::from(self.state.step.0)].lists;
        self.state.step.1 |= 1 << server;
    }

    /// The operator goes on to a step: clients are stopped, and others are started.
    pub fn begin(&mut self, step: usize) {
        self.state.step = (step as u8, 0);
        for client in 0..self.case.clients.len() {
            let runs = self.case.steps[step].runs & (1 << client) != 0;
            match (runs, self.state.clients[client].phase) {
                (true, Phase::Stopped) => self.state.clients[client].phase = Phase::Idle,
                (false, _) => {
                    self.end(client);
                    let own = &mut self.state.clients[client];
                    *own = Default::default();
                    own.phase = Phase::Stopped;
                }
                _ => {}
            }
        }
    }
}

impl State {
    /// How many servers have the client's lease.
    pub fn leases(&self, client: usize) -> u32 {
        self.servers.iter().filter(|it| it.lease == Some(client as u8)).count() as u32
    }
}
