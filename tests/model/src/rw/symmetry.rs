//! One state stands for all that differ only in names: of clients that take the lock in the same way, of leases, and of tokens.

use arrayvec::ArrayVec;

use super::case::Case;
use super::requests::{Grant, Letter, Says};
use super::state::{Asker, Client, JAVA, Lease, Reply, Request, Seen, Server, State};

/// More leases of a client, or tokens, are in no state.
const MOST: usize = 64;

/// New names of numbers, by the old ones; zero stays.
type Names = [u8; MOST];

impl<const C: usize> State<C> {
    /// The state that stands for this one.
    pub fn canonical(mut self, case: &Case<C>) -> Self {
        self.tidy();
        self.number_leases();
        self.number_tokens();
        let pairs = (0..C).flat_map(|a| (a + 1..C).map(move |b| (a, b)));
        let alike = pairs.filter(|(a, b)| case.uses[*a] == case.uses[*b]);
        let others = alike.map(|(a, b)| self.exchanged(a, b)).min();
        others.filter(|other| *other < self).unwrap_or(self)
    }

    /// Forgets what is on its way and can have no effect any more, about a lease that is not there and cannot get there, and what
    /// makes no difference to any property.
    fn tidy(&mut self) {
        for client in &mut self.clients {
            if !client.asks_for_nobody() {
                client.machine.tidy();
            }
            let mut asked = ArrayVec::<Lease, 16>::new();
            client.requests.retain(|request| {
                let lease = *request.lease_mut();
                let is_idle = match request {
                    Request::Ask(_) | Request::Echo(_) | Request::Replace(..) => {
                        asked.push(lease);
                        false
                    }
                    Request::Release(..) | Request::Keep(_) | Request::Inquire(_, 0) => true,
                    Request::Renew(_) | Request::Inquire(..) => false,
                };
                !is_idle || asked.contains(&lease) || self.server.has(lease)
            });
        }
        self.seen.kept.retain(|lease| self.server.has(*lease));
        if self.seen.read <= self.seen.written {
            self.seen.read = 0;
        }
    }

    /// Gives the leases of each client the numbers from one on, in their order.
    fn number_leases(&mut self) {
        let mut names = [[0; MOST]; C];
        self.each_lease(|lease| {
            if lease.client != JAVA {
                names[usize::from(lease.client)][usize::from(lease.number)] = 1;
            }
        });
        for (client, names) in self.clients.iter_mut().zip(&mut names) {
            client.each_number(|number| names[usize::from(*number)] = 1);
            client.each_letter(|letter| names[usize::from(letter.number)] = 1);
            client.number = put_in_order(names);
        }
        self.each_lease(|lease| {
            if lease.client != JAVA {
                lease.number = names[usize::from(lease.client)][usize::from(lease.number)];
            }
        });
        for (client, names) in self.clients.iter_mut().zip(&names) {
            client.each_number(|number| *number = names[usize::from(*number)]);
            client.change_letters(|letter| letter.number = names[usize::from(letter.number)]);
        }
    }

    /// Gives the tokens the numbers from one on, in their order: they are only compared, and a new one is above all.
    fn number_tokens(&mut self) {
        let mut names = [0; MOST];
        let mut note = |token: &mut u8| names[usize::from(*token)] = 1;
        self.each_token(&mut note);
        for client in &self.clients {
            client.each_letter(|letter| each_token_of(&mut letter.clone(), &mut note));
        }
        put_in_order(&mut names);
        let name = |token: &mut u8| *token = names[usize::from(*token)];
        self.each_token(name);
        for client in &mut self.clients {
            client.change_letters(|letter| each_token_of(letter, name));
        }
    }

    /// Exchanges the names of two clients.
    fn exchanged(&self, a: usize, b: usize) -> Self {
        let mut new = self.clone();
        new.clients.swap(a, b);
        new.each_lease(|lease| match usize::from(lease.client) {
            client if client == a => lease.client = b as u8,
            client if client == b => lease.client = a as u8,
            _ => {}
        });
        new.server.fields.sort_unstable();
        new.seen.forced.sort_unstable();
        new.seen.kept.sort_unstable();
        new
    }

    fn each_lease(&mut self, mut each: impl FnMut(&mut Lease)) {
        for client in &mut self.clients {
            client.held.iter_mut().for_each(|held| each(&mut held.lease));
            client.standing.iter_mut().for_each(|attempt| each(&mut attempt.lease));
            if let Some(ask) = &mut client.ask {
                each(&mut ask.attempt.lease);
                ask.inquiry.iter_mut().for_each(|inquiry| each(&mut inquiry.of));
            }
            client.requests.iter_mut().for_each(|request| each(request.lease_mut()));
        }
        let Server { fields, queue, .. } = &mut self.server;
        let Seen { forced, kept, .. } = &mut self.seen;
        let timed = fields.iter_mut().chain(forced).map(|(lease, _)| lease);
        timed.chain(queue).chain(kept).for_each(each);
    }

    /// All tokens but those in letters.
    fn each_token(&mut self, mut each: impl FnMut(&mut u8)) {
        for client in &mut self.clients {
            client.held.iter_mut().for_each(|held| each(&mut held.token));
            let asked = client.ask.as_mut().map(|ask| &mut ask.attempt);
            for (token, before) in
                asked.into_iter().chain(&mut client.standing).filter_map(|it| it.told.as_mut())
            {
                each(token);
                each(before);
            }
            let reply = client.ask.as_mut().and_then(|ask| ask.reply.as_mut());
            if let Some(Reply::Granted(token, before)) = reply {
                each(token);
                before.iter_mut().for_each(&mut each);
            }
        }
        let Seen { written, read, .. } = &mut self.seen;
        [&mut self.server.counter, written, read].into_iter().for_each(each);
    }
}

/// Has the numbers that are marked follow each other, and returns how many there are.
fn put_in_order(names: &mut Names) -> u8 {
    let mut last = 0;
    names[0] = 0;
    for name in names.iter_mut().filter(|name| **name > 0) {
        last += 1;
        *name = last;
    }
    last
}

fn each_token_of(letter: &mut Letter, mut each: impl FnMut(&mut u8)) {
    if let Says::Grant(Grant { token, before, .. }) = &mut letter.says {
        each(token);
        before.iter_mut().for_each(each);
    }
}

impl Server {
    /// Whether this lease has a field or an entry.
    fn has(&self, lease: Lease) -> bool {
        self.fields.iter().any(|(other, _)| *other == lease) || self.queue.contains(&lease)
    }
}

impl Client {
    /// The numbers of leases that stand by themselves, but for those in letters.
    fn each_number(&mut self, mut each: impl FnMut(&mut u8)) {
        if let Some(Asker::Writer(number)) = self.ask.as_mut().map(|ask| &mut ask.asker) {
            each(number);
        }
        for request in &mut self.requests {
            if let Request::Replace(_, number) | Request::Inquire(_, number) = request {
                each(number);
            }
        }
    }

    fn each_letter(&self, each: impl FnMut(&Letter)) {
        self.letters.iter().chain(self.machine.letters()).for_each(each);
    }

    fn change_letters(&mut self, change: impl Fn(&mut Letter)) {
        self.letters.iter_mut().for_each(&change);
        self.machine.change_letter(change);
    }
}

impl Request {
    /// The lease that it is about.
    fn lease_mut(&mut self) -> &mut Lease {
        match self {
            Request::Ask(lease)
            | Request::Echo(lease)
            | Request::Replace(lease, _)
            | Request::Renew(lease)
            | Request::Inquire(lease, _)
            | Request::Release(lease, _)
            | Request::Keep(lease) => lease,
        }
    }
}
