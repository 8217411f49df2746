//! Every setting arrives: those of the client, and those of a handle in whatever order they were named.

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Mutex, Owner};
use redis::Value;

use crate::{checks::nothing_left, support::Server};

const MS: Duration = Duration::from_millis(1);

/// The client's own TTL, and what the handles ask for instead.
pub(crate) const CLIENT_TTL: Duration = Duration::from_millis(3600);
const TTL: Duration = Duration::from_millis(1200);
const LEASE: Duration = Duration::from_millis(2000);
const MAX_HOLD: Duration = Duration::from_millis(1500);
/// So long that nobody who looks at once sees the end of it.
const MIN_HOLD: Duration = Duration::from_millis(1100);

/// One call in a chain of calls on a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ttl,
    Lease,
    MaxHold,
    MinHold,
    Owner,
}

/// Every order of every choice of steps, none twice: 326 chains.
pub(crate) fn chains() -> Vec<Vec<Step>> {
    let mut chains = vec![Vec::new()];
    let mut at = 0;
    while at < chains.len() {
        for step in [Step::Ttl, Step::Lease, Step::MaxHold, Step::MinHold, Step::Owner] {
            if !chains[at].contains(&step) {
                chains.push([&chains[at][..], &[step]].concat());
            }
        }
        at += 1;
    }
    chains
}

/// One handle's call, the same on both kinds of handle.
macro_rules! apply {
    ($lock:expr, $step:expr, $times:expr) => {
        match $step {
            Step::Ttl => $lock.with_ttl($times * TTL),
            Step::Lease => $lock.with_lease($times * LEASE),
            Step::MaxHold => $lock.with_max_hold($times * MAX_HOLD),
            Step::MinHold => $lock.with_min_hold($times * MIN_HOLD),
            Step::Owner => unreachable!("an owner is named apart"),
        }
    };
}

/// All lengths are so many `times` longer, so that a busy machine can renew all of these locks in time.
pub(crate) fn asked_of_threads<O>(
    lock: leasehold::blocking::Mutex<O>,
    steps: &[Step],
    times: u32,
) -> leasehold::blocking::Mutex<O> {
    steps.iter().fold(lock, |lock, step| apply!(lock, step, times))
}

fn asked_of_tasks(lock: Mutex, steps: &[Step], owner: &Owner, times: u32) -> Mutex {
    steps.iter().fold(lock, |lock, step| match step {
        Step::Owner => lock.owned_by(owner),
        step => apply!(lock, step, times),
    })
}

/// A lock that was taken on the terms of a chain.
pub(crate) struct Taken {
    pub(crate) chain: Vec<Step>,
    pub(crate) times: u32,
    /// Before and after it was taken.
    pub(crate) began_at: Instant,
    pub(crate) held_at: Instant,
    pub(crate) is_held: Box<dyn Fn() -> bool>,
    /// When it was last seen to be held, and first seen not to be.
    pub(crate) seen_at: Instant,
    pub(crate) ended_at: Option<Instant>,
}

impl Taken {
    /// The last of the two says how long the lease is.
    fn ttl(&self) -> Duration {
        let last = self.chain.iter().rev().find(|step| matches!(step, Step::Ttl | Step::Lease));
        let ttl = match last {
            Some(Step::Ttl) => TTL,
            Some(_) => LEASE,
            None => CLIENT_TTL,
        };
        self.times * ttl
    }

    /// When it ends, counted from its beginning: not before, and not after. `None`: it is renewed.
    fn ends(&self) -> Option<(Duration, Duration)> {
        let (lease, max_hold) = (self.times * LEASE, self.times * MAX_HOLD);
        if self.ttl() == lease {
            return Some((lease - lease / 100 - 2 * MS, lease));
        }
        // It is renewed up to the longest hold, and ends by a lease after that.
        self.chain.contains(&Step::MaxHold).then(|| (max_hold, max_hold + self.ttl()))
    }

    fn look(&mut self) {
        let now = Instant::now();
        if self.ended_at.is_none() && (self.is_held)() {
            self.seen_at = now;
        } else {
            self.ended_at.get_or_insert_with(Instant::now);
        }
    }

    /// What the server says right after it was taken.
    pub(crate) fn is_on_the_server(&self, pttl: &Value) {
        let Value::Int(left) = *pttl else { panic!("no PTTL: {pttl:?}") };
        let left = Duration::from_millis(left.try_into().expect("it has an end"));
        let (ttl, chain) = (self.ttl(), &self.chain);
        assert!(left <= ttl, "{chain:?}: {left:?} of {ttl:?}");
        assert!(left + self.began_at.elapsed() + MS >= ttl, "{chain:?}: {left:?} of {ttl:?}");
    }
}

/// Looks at each of the locks: while others are taken, too, since a busy machine needs long for that.
pub(crate) fn look(taken: &mut [Taken]) {
    for taken in taken {
        taken.look();
    }
}

/// Watches the locks until all that should end have ended, and the others have outlived them by far.
pub(crate) fn end_as_they_should(taken: &mut [Taken]) {
    let last = MAX_HOLD + CLIENT_TTL + TTL;
    while taken.iter().any(|taken| taken.began_at.elapsed() < taken.times * last) {
        look(taken);
        std::thread::sleep(5 * MS);
    }
    for taken in taken {
        let chain = &taken.chain;
        match (taken.ends(), taken.ended_at) {
            (None, None) => {}
            // It ended between two looks, which a busy machine may keep far apart.
            (Some((least, most)), Some(at)) => {
                let (longest, shortest) = (at - taken.began_at, taken.seen_at - taken.held_at);
                assert!(longest >= least, "{chain:?} ended after {longest:?}, not {least:?}");
                assert!(shortest <= most, "{chain:?} was held after {shortest:?}, not {most:?}");
            }
            (expected, ended) => {
                panic!(
                    "{chain:?}: ends {expected:?}, ended {:?}",
                    ended.map(|at| at - taken.began_at)
                )
            }
        }
    }
}

/// The last word on the lease counts, and nothing else is dropped by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_order_of_its_calls_a_handle_has_all_its_terms() {
    let server = Server::start().await;
    let times = server.slowness().await;
    let builder = Client::builder().nodes([server.url()]).ttl(times * CLIENT_TTL);
    let client = builder.connect().await.expect("connected");
    let mut raw = server.raw().await;
    let mut taken = Vec::new();
    for (number, chain) in chains().into_iter().enumerate() {
        let (name, me) = (format!("n{number}"), Owner::new());
        let lock = asked_of_tasks(client.mutex(name.as_str()), &chain, &me, times);
        let began_at = Instant::now();
        let guard = lock.lock().await.expect("free");
        let held_at = Instant::now();
        assert_eq!(guard.owner() == &me, chain.contains(&Step::Owner), "{chain:?}");
        let is_held = Box::new(move || guard.is_held());
        let one =
            Taken { chain, times, began_at, held_at, is_held, seen_at: held_at, ended_at: None };
        let pttl = redis::cmd("PTTL").arg(&name).query_async(&mut raw).await.expect("an answer");
        one.is_on_the_server(&pttl);
        taken.push(one);
        look(&mut taken);
    }
    assert_eq!(taken.len(), 326);
    tokio::task::block_in_place(|| end_as_they_should(&mut taken));
    drop(taken);
    nothing_left(&server, &client).await;
}

/// A lock that is given back at once is free, unless it is to stay taken for longer.
#[tokio::test]
async fn whatever_the_order_of_its_calls_a_handle_has_its_shortest_hold() {
    let server = Server::start().await;
    let times = server.slowness().await;
    let client = Client::builder().nodes([server.url()]).ttl(times * CLIENT_TTL);
    let client = client.connect().await.expect("connected");
    let mut raw = server.raw().await;
    for (number, chain) in chains().into_iter().enumerate() {
        let (name, me) = (format!("n{number}"), Owner::new());
        let lock = asked_of_tasks(client.mutex(name.as_str()), &chain, &me, times);
        let guard = lock.lock().await.expect("free");
        guard.unlock().await.expect("held");
        let pttl = redis::cmd("PTTL").arg(&name).query_async(&mut raw).await.expect("an answer");
        stays_taken(&chain, &pttl, times);
    }
}

/// What the server says right after the lock was given back.
pub(crate) fn stays_taken(chain: &[Step], pttl: &Value, times: u32) {
    let Value::Int(left) = *pttl else { panic!("no PTTL: {pttl:?}") };
    let min_hold = times * MIN_HOLD;
    if chain.contains(&Step::MinHold) {
        let most = min_hold.as_millis() as i64;
        assert!((1..=most).contains(&left), "{chain:?}: {left} ms of {min_hold:?}");
    } else {
        assert_eq!(left, -2, "{chain:?}: it is free");
    }
}

/// What a client with these settings does to the server: how its holder is called, how long the lock lasts, which
/// counter it uses, and how long that is kept.
pub(crate) const RETENTION: Duration = Duration::from_secs(90 * 60);

pub(crate) fn settings(server: &Server, fencing: bool) -> ClientBuilder {
    let builder = Client::builder().nodes([server.url()]).name("the-name").ttl(CLIENT_TTL);
    builder.token_retention(RETENTION).redisson_fencing(fencing)
}

/// While the lock `n` is held by a client with those settings.
pub(crate) async fn settings_are_on_the_server(server: &Server, fencing: bool) {
    let fields = server.command(&["HKEYS", "n"]).await;
    let fields: Vec<String> = redis::from_redis_value(fields).expect("names");
    assert!(fields.len() == 1 && fields[0].starts_with("the-name:"), "{fields:?}");
    let left = async |key: &str| match server.command(&["PTTL", key]).await {
        Value::Int(left) => left,
        other => panic!("no PTTL: {other:?}"),
    };
    let pttl = left("n").await;
    assert!((2000..=3600).contains(&pttl), "{pttl} ms of {CLIENT_TTL:?}");
    let (ours, java) = (left("leasehold_token:{n}").await, left("redisson_lock_token:{n}").await);
    let kept = RETENTION.as_millis() as i64;
    if fencing {
        assert_eq!((ours, java), (-2, -1), "Redisson's counter, for ever");
    } else {
        assert!((kept - 60_000..=kept).contains(&ours) && java == -2, "{ours} {java}");
    }
}

#[tokio::test]
async fn the_settings_of_a_client_are_seen_at_the_server() {
    for fencing in [false, true] {
        let server = Server::start().await;
        let client = settings(&server, fencing).connect().await.expect("connected");
        // The second time the counter may be ahead of the clock.
        for _ in 0..2 {
            let guard = client.mutex("n").lock().await.expect("free");
            settings_are_on_the_server(&server, fencing).await;
            guard.unlock().await.expect("held");
        }
    }
}
