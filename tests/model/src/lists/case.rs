//! A case: who names what, what the operator does, and which rule is broken in it, if one is.

/// Servers, clients or lists: one bit for each.
pub type Set = u8;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The lists: the servers of each.
    pub lists: &'static [Set],
    /// The number of each client's list.
    pub clients: &'static [u8],
    /// The servers keep the first list, and the first client is connected to them. Otherwise they keep none.
    pub established: bool,
    /// How often servers restart, empty.
    pub restarts: u8,
    /// A client asks for the lock only once each of its servers has told it what list it keeps.
    pub all_answer: bool,
    /// What the operator does. Without steps, all clients run.
    pub steps: &'static [Step],
    /// The rule that is broken.
    pub wrong: Option<Wrong>,
}

/// A step of the operator: first these clients run, then the lists are typed.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The clients that run. The others have been stopped.
    pub runs: Set,
    /// These clients hold nothing while the lists are typed.
    pub idle: Set,
    /// The lists that are typed.
    pub lists: Set,
    /// On these servers.
    pub on: Set,
}

/// A rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Lists are not compared.
    NotCompared,
    /// They are compared when the client connects, and not behind a grant.
    NotBehindTheGrant,
    /// A server that allows other lists does not vote, and the others do.
    OthersVote,
    /// Whoever comes first writes its list on a server that has lost it.
    StrangerWrites,
    /// Who has seen the list on a server that has lost it does not write it back.
    NotWrittenBack,
    /// It does not matter which lists are allowed together.
    AnyTogether,
}

impl Case {
    /// With all rules: the first client's list is established.
    pub const fn of(lists: &'static [Set], clients: &'static [u8]) -> Self {
        Case {
            lists,
            clients,
            established: true,
            restarts: 0,
            all_answer: false,
            steps: &[],
            wrong: None,
        }
    }

    /// No server keeps a list yet.
    pub const fn new_servers(self) -> Self {
        Case { established: false, ..self }
    }

    /// So many restarts.
    pub const fn restarts(self, restarts: u8) -> Self {
        Case { restarts, ..self }
    }

    /// Nobody asks before all its servers have answered once.
    pub const fn all_answer(self) -> Self {
        Case { all_answer: true, ..self }
    }

    /// What the operator does.
    pub const fn steps(self, steps: &'static [Step]) -> Self {
        Case { steps, ..self }
    }

    /// The same with a rule broken.
    pub const fn with(self, wrong: Wrong) -> Self {
        Case { wrong: Some(wrong), ..self }
    }

    /// Whether this rule is broken.
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// How many servers and clients there are, for the table.
    pub fn size(&self) -> String {
        format!("{} × {}", self.servers(), self.clients.len())
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        let all = self.lists.iter().fold(0, |all: Set, list| all | list);
        (Set::BITS - all.leading_zeros()) as usize
    }

    /// The servers of a client.
    pub fn list_of(&self, client: usize) -> Set {
        self.lists[usize::from(self.clients[client])]
    }

    /// How many of them are a majority.
    pub fn majority(&self, client: usize) -> u32 {
        majority(self.list_of(client))
    }

    /// Whether a client may use what allows these lists.
    pub fn allows(&self, client: usize, allowed: Set) -> bool {
        let (own, number) = (self.list_of(client), self.clients[client]);
        let meets = |other: Set| majority(own) + majority(other) > (own | other).count_ones();
        let others = (0..self.lists.len()).filter(|list| allowed & (1 << list) != 0);
        let all_meet = others.map(|list| self.lists[list]).all(meets);
        allowed & (1 << number) != 0 && (all_meet || self.is(Wrong::AnyTogether))
    }
}

fn majority(list: Set) -> u32 {
    list.count_ones() / 2 + 1
}
