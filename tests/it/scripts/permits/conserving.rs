//! Random interleavings of the scripts by clients that crash, fall silent, and send twice or late. After every step, what is
//! left and what is out are all permits there are; no more are held than there are; and who waits is served in order.

use std::time::{Duration, Instant};

use super::{HOLDERS, Lease, NAME, Pool, lease, resize};
use crate::scripts::bench::{Call, Subscriber};

const PERMITS: u32 = 5;
const TTL_MS: u64 = 30;
const STEPS: u32 = 1_500;
/// Permits of abandoned requests come back with time, so on a fast machine a story takes more steps.
const GRANTS: u32 = 75;
const LIMIT: Duration = Duration::from_secs(60);
const CLIENTS: [&str; 4] = ["a", "b", "c", "d"];

/// A repeatable sequence of numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

/// A client as it knows itself.
struct Client {
    name: &'static str,
    mailbox: Subscriber,
    /// It waits, or holds permits until then at least, by message or not.
    request: Option<(Lease, Option<(Instant, bool)>)>,
    /// It has not given everything back in time, so it may lose its place.
    is_silent: bool,
}

/// Who was granted which lease, and whether by message.
type Grant = (usize, Lease, bool);

struct World {
    pool: Pool,
    clients: Vec<Client>,
    /// Who stands in the queue and has a client that lives, in order.
    line: Vec<String>,
    /// What abandoned requests still send: in this order.
    late: Vec<Vec<Call>>,
    permits: u32,
    /// How many were held before: after a lowering they may be more than there are.
    held: u32,
    requests: u64,
    dice: Dice,
    grants: u32,
}

impl World {
    async fn new(seed: u64) -> Self {
        let pool = Pool::of(PERMITS).await;
        let mut clients = Vec::new();
        for name in CLIENTS {
            let mailbox = pool.listen(name).await;
            clients.push(Client { name, mailbox, request: None, is_silent: false });
        }
        Self {
            pool,
            clients,
            line: Vec::new(),
            late: Vec::new(),
            permits: PERMITS,
            held: 0,
            requests: 0,
            dice: Dice(seed),
            grants: 0,
        }
    }

    fn new_lease(&mut self, client: &str) -> Lease {
        self.requests += 1;
        let id = format!("{client}:01234567-89ab-4def-8123-{:012x}", self.requests);
        let weight = 1 + self.dice.below(3) as u32;
        Lease { id, weight, ttl_ms: TTL_MS, ..lease(client, weight) }
    }

    async fn step(&mut self) {
        let at = self.dice.below(self.clients.len() as u64) as usize;
        let before = Instant::now();
        let waits = self.clients[at].request.as_ref().is_some_and(|(_, held)| held.is_none());
        match (self.dice.below(16), self.clients[at].request.clone()) {
            (0..7, None) => self.ask(at, before).await,
            (0..4, Some(_)) if waits => self.ask(at, before).await,
            (0..4, Some((lease, Some((_, by_message))))) => {
                let again = self.dice.below(4) == 0;
                let call = if by_message { lease.release_granted() } else { lease.release() };
                for _ in 0..=u32::from(again) {
                    self.pool.run(&call).await;
                }
                self.clients[at].request = None;
            }
            (4..9, Some((lease, Some(held)))) => self.renew(at, lease, held, before).await,
            // It gives up, or ends: what it sends arrives later, or never.
            (9..11, Some((lease, _))) => {
                self.clients[at].request = None;
                self.line.retain(|id| *id != lease.id);
                let late = vec![lease.ask(), lease.release()];
                let how = self.dice.below(3);
                self.clients[at].is_silent |= how > 0;
                match how {
                    0 => drop(self.pool.run(&lease.release()).await),
                    1 => self.late.push(late),
                    _ => {}
                }
            }
            (11, _) => {
                let number = 3 + self.dice.below(4) as u32;
                self.permits = number;
                self.pool.run(&resize("set", number)).await;
            }
            (12..14, _) if !self.late.is_empty() => {
                let which = self.dice.below(self.late.len() as u64) as usize;
                let call = self.late[which].remove(0);
                self.pool.run(&call).await;
                if self.late[which].is_empty() {
                    self.late.remove(which);
                }
            }
            // All are silent for as long as a lease lasts.
            (14, _) if self.dice.below(20) == 0 => {
                self.clients.iter_mut().for_each(|client| client.is_silent = true);
                tokio::time::sleep(Duration::from_millis(TTL_MS + 5)).await;
            }
            _ => {}
        }
        let grants = self.letters().await;
        self.take_in(grants, before);
        self.check().await;
    }

    async fn renew(
        &mut self,
        at: usize,
        lease: Lease,
        (until, by_message): (Instant, bool),
        before: Instant,
    ) {
        if self.pool.run(&lease.renew(TTL_MS)).await == "1" && before < until {
            let until = before + Duration::from_millis(TTL_MS);
            self.clients[at].request = Some((lease, Some((until, by_message))));
        }
    }

    /// A client asks, for the first time or again, perhaps twice; or tries once.
    async fn ask(&mut self, at: usize, before: Instant) {
        let name = self.clients[at].name;
        let request = self.clients[at].request.clone();
        let (lease, tries) = match request {
            Some((lease, _)) => (lease, false),
            None => (self.new_lease(name), self.dice.below(4) == 0),
        };
        let call = if tries { lease.try_once() } else { lease.ask() };
        let mut reply = self.pool.run(&call).await;
        if self.dice.below(4) == 0 {
            reply = self.pool.run(&call).await;
        }
        // The same script served those before it, and those behind it.
        let mut grants = self.letters().await;
        let is_granted = reply.starts_with("[1, ");
        grants.extend(is_granted.then(|| (at, lease.clone(), false)));
        self.take_in(grants, before);
        if !is_granted && !tries {
            if !self.line.contains(&lease.id) {
                self.line.push(lease.id.clone());
            }
            self.clients[at].request = Some((lease, None));
        }
    }

    fn granted(&mut self, at: usize, lease: Lease, until: Instant, by_message: bool) {
        let place = self.line.iter().position(|id| *id == lease.id);
        let others = place.unwrap_or(self.line.len());
        assert_eq!(others, 0, "{lease:?} passed {:?}", self.line);
        if let Some(place) = place {
            self.line.remove(place);
        }
        self.grants += 1;
        self.clients[at].request = Some((lease, Some((until, by_message))));
    }

    /// Returns the grants by message since it was called last. Who is told that permits are free may have lost its place.
    async fn letters(&mut self) -> Vec<Grant> {
        let (mut grants, queued) = (Vec::new(), self.pool.queued().await);
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            for letter in self.pool.bench.messages(&mut client.mailbox).await {
                let words: Vec<&str> = letter.split(' ').collect();
                let waiting = client.request.as_ref().filter(|(_, held)| held.is_none());
                if let (["grant", id, ..], Some((lease, _))) = (&words[..], waiting)
                    && *id == lease.id
                {
                    grants.push((at, lease.clone(), true));
                }
                if let ["free", id] = words[..]
                    && !queued.split(' ').any(|waits| waits == id)
                {
                    let had = self.line.len();
                    self.line.retain(|waits| waits != id);
                    assert!(self.line.len() == had || client.is_silent, "{id} has lost its place");
                }
            }
        }
        grants
    }

    /// Takes in the grants of one step, in the order in which those who got them waited.
    fn take_in(&mut self, mut grants: Vec<Grant>, before: Instant) {
        let place = |lease: &Lease| self.line.iter().position(|id| *id == lease.id);
        grants.sort_by_key(|(_, lease, _)| place(lease).unwrap_or(usize::MAX));
        let until = before + Duration::from_millis(TTL_MS);
        for (at, lease, by_message) in grants {
            self.granted(at, lease, until, by_message);
        }
    }

    async fn check(&mut self) {
        let state = self.pool.state().await;
        let (left, out) = state.split_once('+').expect("what is left and what is out");
        let sum = |text: &str| text.parse::<i64>().expect("a number");
        assert_eq!(sum(left) + sum(out), i64::from(self.permits), "conservation: {state}");
        let held = self.clients.iter().filter_map(|client| client.request.as_ref());
        // A step may have taken longer than a lease lasts.
        let now = Instant::now();
        let held = held.filter(|(_, held)| held.is_some_and(|(until, _)| now < until));
        let held: u32 = held.map(|(lease, _)| lease.weight).sum();
        let most = self.permits.max(self.held);
        assert!(held <= most, "{held} of {} are held, {} before", self.permits, self.held);
        self.held = held;
    }

    /// All clients end at once. After a lease's time all permits can be taken.
    async fn end(mut self) {
        let mailbox = self.pool.listen("last").await;
        self.clients.clear();
        let all = Lease { weight: self.permits, ..lease("last", self.permits) };
        let got = async || self.pool.run(&all.ask()).await == format!("[1, {}]", self.permits);
        crate::support::eventually(Duration::from_secs(10), "all came back", got).await;
        drop(mailbox);
        assert_eq!(self.pool.state().await, format!("0+{}", self.permits));
        self.pool.run(&all.release()).await;
        assert_eq!(self.pool.queued().await, "");
        assert_eq!(self.pool.bench.ask(&format!("EXISTS {HOLDERS} {NAME}")).await, "1");
    }
}

async fn story(seed: u64) {
    let mut world = World::new(seed).await;
    let (began_at, mut steps) = (Instant::now(), 0);
    while steps < STEPS || world.grants < GRANTS {
        assert!(began_at.elapsed() < LIMIT, "only {} grants in {steps} steps", world.grants);
        world.step().await;
        steps += 1;
    }
    world.end().await;
}

#[tokio::test]
async fn no_permit_is_made_or_lost_and_nobody_is_passed_in_a_first_story() {
    story(1).await;
}

#[tokio::test]
async fn no_permit_is_made_or_lost_and_nobody_is_passed_in_a_second_story() {
    story(20_261_122).await;
}
