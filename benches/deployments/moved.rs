//! Row 3: a slot moves to another master while its locks are held, free and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Guard, Mutex};
use leasehold_testkit::bench::aim::Aim;
use leasehold_testkit::bench::figures::Unit;
use leasehold_testkit::{Cluster, Server, eventually, slot_of};

use crate::place;
use crate::table::Figure;
use crate::watching::seconds;
use crate::{Outcome, Pace};

pub(crate) async fn trial(pace: Pace) -> Outcome<Vec<Figure>> {
    let cluster = place::cluster(pace.silence()).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let builder = Client::builder().cluster(cluster.urls()).ttl(TTL);
        clients.push(builder.restart_quarantine(Duration::ZERO).connect().await?);
    }
    let mut figures = Vec::new();
    for number in 0..pace.times(2) {
        let moved = Move::prepare(&cluster, &clients, &format!("moved-{number}")).await?;
        figures.extend(moved.watch().await?);
    }
    for client in clients {
        client.shutdown().await;
    }
    Ok(figures)
}

/// A slot, and what is in it.
struct Move<'a> {
    cluster: &'a Cluster,
    source: &'a Server,
    target: &'a Server,
    slot: u16,
    /// Freed while the slot is open. The first moves before that, the second waits for it.
    freed: [Guard; 2],
    /// Held until the slot has moved.
    kept: Guard,
    /// Wants the second of those that are freed.
    waiting: tokio::task::JoinHandle<Outcome<Instant>>,
    /// Nobody holds these.
    free: Mutex,
    tried: Mutex,
}

impl<'a> Move<'a> {
    async fn prepare(cluster: &'a Cluster, clients: &[Client], stem: &str) -> Outcome<Self> {
        let [one, other] = clients else { return Err("BUG: two clients".into()) };
        let tag = cluster.name_on(0, stem);
        let name = |which: &str| format!("{{{tag}}}:{which}");
        let freed =
            [one.mutex(name("freed")).lock().await?, one.mutex(name("waited for")).lock().await?];
        let kept = one.mutex(name("kept")).lock().await?;
        let waiting = tokio::spawn(granted(other.mutex(name("waited for"))));
        eventually(LIMIT, "it waits", async || {
            let status = one.mutex(name("waited for")).status().await;
            status.is_ok_and(|status| status.waiting.len() == 1)
        })
        .await;
        let (source, target) = (cluster.master(0), cluster.master(1));
        let [free, tried] = ["free", "tried"].map(|which| other.mutex(name(which)));
        let slot = slot_of(&tag);
        Ok(Self { cluster, source, target, slot, freed, kept, waiting, free, tried })
    }

    async fn watch(self) -> Outcome<Vec<Figure>> {
        let Self { cluster, source, target, slot, freed, kept, waiting, free, tried } = self;
        cluster.open(slot, source, target).await;
        cluster.migrate(&[freed[0].name()], source, target).await;
        let taking = tokio::spawn(granted(free));
        let stop = Arc::<AtomicBool>::default();
        let trying = tokio::spawn(tries(tried, stop.clone()));
        tokio::time::sleep(OPEN / 2).await;
        let mut held = Held::default();
        for guard in freed {
            held.unlock(guard).await;
        }
        tokio::time::sleep(OPEN / 2).await;
        stop.store(true, Ordering::Relaxed);
        let tried = trying.await?;
        // Keys are written until the slot is the target's.
        cluster.migrate_all(slot, source, target).await;
        cluster.close(slot, source, target).await;
        let closed_at = Instant::now();
        let both = async { tokio::join!(taking, waiting) };
        let (taken_at, granted_at) = tokio::time::timeout(LIMIT, both).await?;
        held.unlock(kept).await;
        cluster.settled(&[source, target]).await;
        let after = |at| seconds(closed_at, at).max(0.0);
        let figure = |what: &str, unit, value| {
            Figure::new(3, format!("{WHAT}: {what}"), "leasehold", unit, value)
        };
        Ok(vec![
            figure("errors of those who hold locks", Unit::Number, held.errors)
                .aim(Aim::AtMost(0.0)),
            figure("their longest call", Unit::Seconds, held.longest),
            figure("from its end until a caller has a free lock", Unit::Seconds, after(taken_at??)),
            figure(
                "from its end until a waiter has a lock that was freed meanwhile",
                Unit::Seconds,
                after(granted_at??),
            ),
            figure(
                "errors of `try_lock` on a free lock, of all calls",
                Unit::Number,
                tried.share(),
            ),
            figure("its longest call", Unit::Seconds, tried.longest),
        ])
    }
}

/// When a lock was granted; it is freed at once.
async fn granted(lock: Mutex) -> Outcome<Instant> {
    let guard = lock.lock().await?;
    let granted_at = Instant::now();
    guard.unlock().await?;
    Ok(granted_at)
}

#[derive(Default)]
struct Held {
    errors: f64,
    longest: f64,
}

impl Held {
    async fn unlock(&mut self, guard: Guard) {
        let began_at = Instant::now();
        if guard.unlock().await.is_err() {
            self.errors += 1.0;
        }
        self.longest = self.longest.max(began_at.elapsed().as_secs_f64());
    }
}

#[derive(Default)]
struct Tried {
    calls: u32,
    errors: u32,
    longest: f64,
}

impl Tried {
    fn share(&self) -> f64 {
        f64::from(self.errors) / f64::from(self.calls.max(1))
    }
}

async fn tries(lock: Mutex, stop: Arc<AtomicBool>) -> Tried {
    let mut tried = Tried::default();
    while !stop.load(Ordering::Relaxed) {
        let began_at = Instant::now();
        let guard = lock.try_lock().await;
        tried.calls += 1;
        tried.errors += u32::from(guard.is_err());
        tried.longest = tried.longest.max(began_at.elapsed().as_secs_f64());
        drop(guard);
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    tried
}

const WHAT: &str = "Cluster, a slot moves and is open for 2 s";
const OPEN: Duration = Duration::from_secs(2);
/// Short, so that the held locks are renewed meanwhile.
const TTL: Duration = Duration::from_millis(1500);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(20);
