//! Short leases, a server that stops for longer than they last, connections that are cut, silent or without answers: what
//! must hold nevertheless.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Client, Permit, Semaphore};
use parking_lot::Mutex as Shared;

use super::MS;
use crate::checks::{LIMIT, connect, soon};
use crate::support::{Proxy, Server, eventually};

const PERMITS: u32 = 4;
const TTL: Duration = Duration::from_millis(200);
const ROUNDS: usize = 12;

/// The permits that somebody has, lost or not, and how often there were some.
#[derive(Default)]
struct Holds {
    permits: BTreeMap<u32, Arc<Permit>>,
    taken: u32,
    most: u32,
}

impl Holds {
    /// Adds a permit, and checks that no more are held at this moment than there are.
    fn add(&mut self, permit: &Arc<Permit>) -> u32 {
        self.taken += 1;
        self.permits.insert(self.taken, permit.clone());
        let held = self.permits.values().filter(|permit| permit.is_held());
        let held: u32 = held.map(|permit| permit.weight()).sum();
        assert!(held <= PERMITS, "{held} of {PERMITS} are held");
        self.most = self.most.max(held);
        self.taken
    }
}

async fn contend(semaphore: Semaphore, weight: u32, holds: Arc<Shared<Holds>>, until: Instant) {
    let mut round = weight;
    while Instant::now() < until {
        round += 1;
        let wait = semaphore.acquire_many(weight);
        // A wait that is dropped in the middle gives back what it may have got.
        let Ok(Ok(permit)) = tokio::time::timeout(400 * MS, wait).await else { continue };
        let permit = Arc::new(permit);
        let number = holds.lock().add(&permit);
        tokio::time::sleep(MS * (round * 7 % 40)).await;
        holds.lock().permits.remove(&number);
        let permit = Arc::into_inner(permit).expect("nobody else has it");
        match round % 3 {
            0 => drop(permit),
            _ => drop(permit.release().await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_permits_are_held_than_there_are_and_none_is_lost_for_good() {
    let server = Server::start().await;
    let holds = Arc::<Shared<Holds>>::default();
    let until = Instant::now() + 400 * MS * ROUNDS as u32;
    let (mut proxies, mut clients, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let proxy = Proxy::start(server.port()).await;
        let client = Client::builder().nodes([proxy.url()]).ttl(TTL).connect().await;
        let client = client.expect("connected");
        for weight in 1..=3 {
            let semaphore = client.semaphore("api").with_permits(PERMITS);
            tasks.push(tokio::spawn(contend(semaphore, weight, holds.clone(), until)));
        }
        proxies.push(proxy);
        clients.push(client);
    }
    for round in 0..ROUNDS {
        tokio::time::sleep(100 * MS).await;
        let proxy = &proxies[round % 3];
        match round % 5 {
            0 => {
                server.pause();
                tokio::time::sleep(TTL + 50 * MS).await;
                server.resume();
            }
            1 => proxy.cut(),
            2 => {
                proxy.drop_replies(true);
                tokio::time::sleep(TTL).await;
                proxy.drop_replies(false);
            }
            3 => {
                proxy.black_hole(true);
                tokio::time::sleep(TTL + 100 * MS).await;
                proxy.black_hole(false);
                proxy.cut();
            }
            _ => drop(server.command(&["SCRIPT", "FLUSH"]).await),
        }
    }
    for task in tasks {
        soon("the end of a contender", task).await.expect("no panic");
    }
    let Holds { taken, most, .. } = std::mem::take(&mut *holds.lock());
    println!("{taken} acquisitions, {most} permits at once");
    assert!(taken > 50 && most > 2, "{taken} acquisitions, {most} permits at once");

    let looks = connect(&server).await.semaphore("api");
    eventually(LIMIT, "all permits are back", async || {
        let status = looks.status().await.expect("an answer");
        assert_eq!(status.permits(), i64::from(PERMITS), "none was made or lost: {status:?}");
        status.held == 0 && status.waiting.is_empty()
    })
    .await;
    let all = soon("all", looks.acquire_many(PERMITS)).await.expect("they are back");
    all.release().await.expect("held");
}
