//! Every setting arrives, as for tasks.

use std::time::{Duration, Instant};

use leasehold::{Error, LossReason, Owner, blocking::Client};
use redis::{Connection, Value};

use super::{LIMIT, MS, connect_with_ttl, server, wait_for};
use crate::settings::{
    CLIENT_TTL, Step, Taken, asked_of_threads, chains, end_as_they_should, look, settings,
    settings_are_on_the_server, stays_taken,
};
use crate::support::Server;

#[test]
fn whatever_the_order_of_its_calls_a_handle_of_threads_has_all_its_terms() {
    let server = server();
    let times = wait_for(server.slowness());
    let builder = Client::builder().nodes([server.url()]).ttl(times * CLIENT_TTL);
    let client = builder.connect_blocking().expect("connected");
    // Who this thread is.
    let thread = client.mutex("before").lock().expect("free").owner().clone();
    let mut raw = raw(&server);
    let mut taken = Vec::new();
    for (number, chain) in chains().into_iter().enumerate() {
        let (name, me) = (format!("n{number}"), Owner::new());
        let lock = client.mutex(name.as_str());
        let mut steps = chain.split(|step| *step == Step::Owner);
        let lock = asked_of_threads(lock, steps.next().expect("one part at least"), times);
        let began_at = Instant::now();
        let (owner, is_held): (Owner, Box<dyn Fn() -> bool>) = match steps.next() {
            Some(after) => {
                let guard =
                    asked_of_threads(lock.owned_by(&me), after, times).lock().expect("free");
                (guard.owner().clone(), Box::new(move || guard.is_held()))
            }
            None => {
                let guard = lock.lock().expect("free");
                (guard.owner().clone(), Box::new(move || guard.is_held()))
            }
        };
        let expected = if chain.contains(&Step::Owner) { &me } else { &thread };
        assert_eq!(&owner, expected, "{chain:?}");
        let held_at = Instant::now();
        let one =
            Taken { chain, times, began_at, held_at, is_held, seen_at: held_at, ended_at: None };
        one.is_on_the_server(&pttl(&mut raw, &name));
        taken.push(one);
        look(&mut taken);
    }
    end_as_they_should(&mut taken);
}

#[test]
fn whatever_the_order_of_its_calls_a_handle_of_threads_has_its_shortest_hold() {
    let server = server();
    let times = wait_for(server.slowness());
    let builder = Client::builder().nodes([server.url()]).ttl(times * CLIENT_TTL);
    let client = builder.connect_blocking().expect("connected");
    let mut raw = raw(&server);
    for (number, chain) in chains().into_iter().enumerate() {
        let name = format!("n{number}");
        let mut steps = chain.split(|step| *step == Step::Owner);
        let before = steps.next().expect("one part at least");
        let lock = asked_of_threads(client.mutex(name.as_str()), before, times);
        match steps.next() {
            Some(after) => {
                let lock = asked_of_threads(lock.owned_by(&Owner::new()), after, times);
                lock.lock().expect("free").unlock().expect("held");
            }
            None => lock.lock().expect("free").unlock().expect("held"),
        }
        stays_taken(&chain, &pttl(&mut raw, &name), times);
    }
}

fn raw(server: &Server) -> Connection {
    let client = redis::Client::open(server.url()).expect("a URL");
    client.get_connection().expect("the server accepts it")
}

/// Asked on one connection: making others takes long on a busy machine.
fn pttl(raw: &mut Connection, name: &str) -> Value {
    redis::cmd("PTTL").arg(name).query(raw).expect("an answer")
}

#[test]
fn the_settings_of_a_client_for_threads_are_seen_at_the_server() {
    for fencing in [false, true] {
        let server = server();
        let client = settings(&server, fencing).connect_blocking().expect("connected");
        for _ in 0..2 {
            let guard = client.mutex("n").lock().expect("free");
            wait_for(settings_are_on_the_server(&server, fencing));
            guard.unlock().expect("held");
        }
    }
}

/// How a thread learns that a hold has ended, whatever kind it is of.
type WaitLost = Box<dyn Fn(Duration) -> Result<Option<LossReason>, Error>>;

/// The thread hangs: it gives nothing back itself.
#[test]
fn a_hold_of_threads_ends_by_its_lease_or_its_longest_hold_whatever_kind_it_is_of() {
    const SHORT: Duration = Duration::from_millis(500);
    macro_rules! held {
        ($acquired:expr) => {{
            let held = $acquired.expect("free");
            let wait_lost: WaitLost = Box::new(move |limit| held.wait_lost(limit));
            wait_lost
        }};
    }
    let server = server();
    let client = connect_with_ttl(&server, 2000 * MS);
    let (election, queue) = (client.election("leader"), client.queue("jobs"));
    let permits = client.semaphore("api").with_permits(2);
    queue.push_many(["one", "two"]).expect("an answer");
    let all = [
        ("a reader's lease", held!(client.rw_lock("a").with_lease(SHORT).read())),
        ("a writer's lease", held!(client.rw_lock("b").with_lease(SHORT).write())),
        ("a permit's lease", held!(permits.with_lease(SHORT).acquire())),
        ("a delivery's lease", held!(queue.with_lease(SHORT).pop())),
        ("a reader's longest hold", held!(client.rw_lock("c").with_max_hold(SHORT).read())),
        ("a writer's longest hold", held!(client.rw_lock("d").with_max_hold(SHORT).write())),
        ("a permit's longest hold", held!(permits.with_max_hold(SHORT).acquire())),
        ("a delivery's longest hold", held!(queue.with_max_hold(SHORT).pop())),
        ("a leader's longest term", held!(election.with_max_hold(SHORT).campaign())),
    ];
    for (what, wait_lost) in &all {
        assert_eq!(wait_lost(LIMIT).expect("it may wait"), Some(LossReason::Ended), "{what}");
    }
}
