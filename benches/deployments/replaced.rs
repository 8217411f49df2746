//! Rows 2 and 3: a master that is well is replaced, as an operator does it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::Mutex;
use leasehold_testkit::bench::aim::Aim;
use leasehold_testkit::bench::figures::Unit;
use leasehold_testkit::{Server, eventually};
use tokio::task::JoinSet;

use crate::place;
use crate::table::Figure;
use crate::watching::{FOLLOWERS, Followers, seconds};
use crate::{Outcome, Pace};

/// SENTINEL FAILOVER.
pub(crate) async fn behind_sentinels(pace: Pace) -> Outcome<Vec<Figure>> {
    let deployment = place::sentinels(pace.silence()).await;
    let [old, replicas @ ..] = &*deployment.servers else { return Err("no servers".into()) };
    let replicas: Vec<_> = replicas.iter().map(|server| &**server).collect();
    let followers = Followers::connect(|| place::behind(&deployment), str::to_owned).await?;
    deployment.is_synced().await;
    let announced = deployment.first_report().await;
    deployment.fail_over().await;
    let (announced_at, at_new) =
        tokio::time::timeout(LIMIT, async { tokio::join!(announced, followers.are_at(&replicas)) })
            .await?;
    let refused_at = refuses_writes(old).await;
    let lost = followers.end().await;
    let figure = |what: &str, of, unit, value| {
        Figure::new(2, format!("Sentinel, SENTINEL FAILOVER: {what}"), of, unit, value)
    };
    let moved =
        format!("from the announcement until all of {FOLLOWERS} clients use the new master");
    Ok(vec![
        figure(&moved, "leasehold", Unit::Seconds, seconds(announced_at, at_new))
            .aim(Aim::AtMost(0.2)),
        figure("locks lost", "leasehold", Unit::Number, lost as f64).aim(Aim::AtMost(0.0)),
        figure(
            "from the announcement until the old master refuses writes",
            "the servers",
            Unit::Seconds,
            seconds(announced_at, refused_at),
        ),
    ])
}

async fn refuses_writes(server: &Server) -> Instant {
    eventually(LIMIT, "it refuses writes", async || {
        server.try_command(&["SET", "written", "1"]).await.is_err()
    })
    .await;
    Instant::now()
}

/// CLUSTER FAILOVER, there and back, while tasks take locks of that master and others hold some.
pub(crate) async fn in_a_cluster(pace: Pace) -> Outcome<Vec<Figure>> {
    let cluster = place::cluster(pace.silence()).await;
    let builder = || {
        let builder = leasehold::Client::builder().cluster(cluster.urls());
        builder.restart_quarantine(Duration::ZERO)
    };
    let followers = Followers::connect(builder, |stem| cluster.name_on(0, stem)).await?;
    let load = Load::begin(async |number| {
        let client = builder().connect().await?;
        Ok((0..TASKS)
            .map(|task| client.mutex(cluster.name_on(0, &format!("busy:{number}:{task}"))))
            .collect())
    })
    .await?;
    let mut figures = Vec::new();
    // Not more than once each: the masters do not vote twice for replicas of the same one within two node timeouts.
    for new in [cluster.replica(0), cluster.master(0)] {
        let before = load.seen_in(async { tokio::time::sleep(AROUND * 2).await }).await;
        let during = load
            .seen_in(async {
                tokio::time::sleep(AROUND).await;
                cluster.promote(new).await;
                tokio::time::sleep(AROUND).await;
            })
            .await;
        figures.extend(of_load(before, during));
    }
    load.end().await;
    let lost = followers.end().await;
    let what = format!("{WHAT}: of {FOLLOWERS} held locks lost");
    figures
        .push(Figure::new(3, what, "leasehold", Unit::Number, lost as f64).aim(Aim::AtMost(0.0)));
    Ok(figures)
}

fn of_load(before: Seen, during: Seen) -> Vec<Figure> {
    let figure =
        |what: &str, of, unit, value| Figure::new(3, format!("{WHAT}: {what}"), of, unit, value);
    let longest = "the longest call";
    vec![
        figure("errors that callers see", "leasehold", Unit::Number, during.errors as f64)
            .aim(Aim::AtMost(0.0)),
        figure(
            longest,
            "the same load, no failover",
            Unit::Seconds,
            before.longest_us as f64 / 1e6,
        ),
        figure(longest, "leasehold", Unit::Seconds, during.longest_us as f64 / 1e6)
            .beside(before.longest_us as f64 / 1e6),
    ]
}

/// Tasks of several clients that take and free locks without a pause.
struct Load {
    tasks: JoinSet<()>,
    seen: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct Shared {
    errors: AtomicU64,
    longest_us: AtomicU64,
}

/// What the callers have seen in a span of time.
#[derive(Clone, Copy)]
struct Seen {
    errors: u64,
    longest_us: u64,
}

impl Load {
    async fn begin(locks: impl AsyncFn(usize) -> Outcome<Vec<Mutex>>) -> Outcome<Self> {
        let (seen, stop) = (Arc::<Shared>::default(), Arc::<AtomicBool>::default());
        let mut tasks = JoinSet::new();
        for client in 0..CLIENTS {
            for lock in locks(client).await? {
                tasks.spawn(busy(lock, seen.clone(), stop.clone()));
            }
        }
        Ok(Self { tasks, seen, stop })
    }

    async fn seen_in(&self, span: impl Future<Output = ()>) -> Seen {
        let take = |number: &AtomicU64| number.swap(0, Ordering::Relaxed);
        let Shared { errors, longest_us } = &*self.seen;
        for number in [errors, longest_us] {
            take(number);
        }
        span.await;
        Seen { errors: take(errors), longest_us: take(longest_us) }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
    }
}

async fn busy(lock: Mutex, seen: Arc<Shared>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let began_at = Instant::now();
        let locked = lock.lock().await;
        seen.note(began_at, locked.is_ok());
        if let Ok(guard) = locked {
            let began_at = Instant::now();
            seen.note(began_at, guard.unlock().await.is_ok());
        }
    }
}

impl Shared {
    fn note(&self, began_at: Instant, is_ok: bool) {
        let us = began_at.elapsed().as_micros() as u64;
        self.errors.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }
}

const WHAT: &str = "Cluster, CLUSTER FAILOVER under the load of 32 tasks";
const CLIENTS: usize = 2;
const TASKS: usize = 16;
const AROUND: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(30);
