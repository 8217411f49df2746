//! Rows 1 and 2: a master is killed, and its replica takes over.

use std::time::{Duration, Instant};

use futures_util::future::{LocalBoxFuture, join_all};
use leasehold_testkit::bench::aim::Aim;
use leasehold_testkit::bench::figures::Unit;
use leasehold_testkit::{Server, shared_clock_us};

use crate::contender::{Contender, Fate, LIMIT};
use crate::place::{Kind, Place};
use crate::table::Figure;
use crate::watching::{FOLLOWERS, Followers, promoted, refused, seconds};
use crate::{Outcome, Pace};

/// All contend on one deployment, so that they outlive the same death.
pub(crate) async fn trial(kind: Kind, pace: Pace) -> Outcome<Vec<Figure>> {
    let place = Place::start(kind, pace.silence()).await;
    let loser = place.builder().connect().await?;
    let lost = loser.mutex(place.name("lost")).lock().await?;
    place.is_followed().await;
    for replica in place.replicas() {
        forget_all(replica).await;
    }
    let contenders = contenders(&place, pace).await?;
    let of: Vec<_> = contenders.iter().map(|contender| contender.of).collect();
    let followers = Followers::connect(|| place.builder(), |stem| place.name(stem)).await?;
    place.is_followed().await;

    let (servers, replicas) = (Servers::watch(&place).await, place.replicas());
    let (killed_us, killed_at) = (shared_clock_us(), Instant::now());
    place.master().kill();
    let fates = join_all(contenders.into_iter().map(|contender| contender.outlives(killed_us)));
    let told = async {
        lost.lost().await;
        Instant::now()
    };
    let watched = async { tokio::join!(servers, followers.are_at(&replicas), told) };
    let (fates, watched) = tokio::join!(fates, tokio::time::timeout(LIMIT, watched));
    let (servers, at_new, told_at) = watched?;
    drop(lost);
    loser.shutdown().await;
    followers.end().await;

    let silence = pace.silence().as_secs();
    let what = match kind {
        Kind::Sentinel => format!("Sentinel, down-after {silence} s, master killed"),
        Kind::Cluster => format!("Cluster, node-timeout {silence} s, master killed"),
    };
    let mut figures = servers.figures(&what, killed_at);
    figures.extend(of_contenders(&what, &of, &fates));
    let since = |then: &str, at| {
        let what = format!("{what}: from the announcement until {then}");
        Figure::new(2, what, "leasehold", Unit::Seconds, seconds(servers.announced_at, at))
            .aim(Aim::AtMost(0.2))
    };
    figures.push(since(&format!("all of {FOLLOWERS} clients use the new one"), at_new));
    figures.push(since("the holder of a lock that it lacks is told", told_at));
    Ok(figures)
}

async fn contenders(place: &Place, pace: Pace) -> Outcome<Vec<Contender>> {
    let (grace, with_grace) = match pace {
        Pace::Full => (6, "leasehold, grace of 6 s"),
        Pace::Quick => (3, "leasehold, grace of 3 s"),
    };
    let grace = Duration::from_secs(grace);
    Ok(vec![
        Contender::ours(place, "leasehold, no grace", "ours", |builder| builder).await?,
        Contender::ours(place, with_grace, "graced", |builder| {
            builder.ttl(grace).restart_quarantine(grace)
        })
        .await?,
        Contender::redisson(place, "Redisson", "redisson").await,
    ])
}

/// Removes all locks from a replica only, as if its master had died before they were replicated.
async fn forget_all(replica: &Server) {
    let read_only = async |value| {
        replica.command(&["CONFIG", "SET", "replica-read-only", value]).await;
    };
    read_only("no").await;
    replica.command(&["FLUSHALL"]).await;
    read_only("yes").await;
}

fn of_contenders(what: &str, of: &[&'static str], fates: &[Fate]) -> Vec<Figure> {
    let figures = [
        ("a waiter has the lock that was then freed", Unit::Seconds, Fate::granted as fn(&_) -> _),
        ("a caller has a free lock", Unit::Seconds, Fate::granted_free),
        ("errors that these callers see", Unit::Number, Fate::errors),
    ];
    let mut all = Vec::new();
    for (then, unit, figure) in figures {
        let redissons = fates.last().map(figure).filter(|value| value.is_finite() && *value > 0.0);
        for (of, fate) in of.iter().zip(fates) {
            let line = Figure::new(1, format!("{what}: {then}"), of, unit, figure(fate));
            all.push(match redissons {
                Some(value) if unit == Unit::Seconds && *of != "Redisson" => line.beside(value),
                _ => line,
            });
        }
    }
    all
}

/// What the servers do by themselves, and when.
struct Servers {
    steps: Vec<(&'static str, Instant)>,
    announced_at: Instant,
    /// For how long the other masters of a cluster refuse all requests.
    refused_for: Option<Duration>,
}

impl Servers {
    /// Begins to watch.
    async fn watch(place: &Place) -> LocalBoxFuture<'_, Self> {
        let replicas = place.replicas();
        match place {
            Place::Sentinel(deployment) => {
                let down = deployment.first_report_of("+odown").await;
                let switched = deployment.first_report().await;
                Box::pin(async move {
                    let (down_at, promoted_at, announced_at) =
                        tokio::join!(down, promoted(&replicas), switched);
                    let steps = vec![
                        ("the Sentinels agree on that (+odown)", down_at),
                        ("a replica is promoted", promoted_at),
                        ("the first Sentinel announces it (+switch-master)", announced_at),
                    ];
                    Self { steps, announced_at, refused_for: None }
                })
            }
            Place::Cluster(cluster) => Box::pin(async move {
                let name = cluster.name_on(1, "looked at");
                let ((down_at, up_at), promoted_at) =
                    tokio::join!(refused(cluster.master(1), &name), promoted(&replicas));
                let steps = vec![
                    ("the other masters agree on that (CLUSTERDOWN)", down_at),
                    ("its replica is promoted, and announces it", promoted_at),
                ];
                let refused_for = Some(up_at.saturating_duration_since(down_at));
                Self { steps, announced_at: promoted_at, refused_for }
            }),
        }
    }

    fn figures(&self, what: &str, killed_at: Instant) -> Vec<Figure> {
        let figure = |then: &str, seconds| {
            Figure::new(1, format!("{what}: {then}"), "the servers", Unit::Seconds, seconds)
        };
        let steps = self.steps.iter().map(|(then, at)| figure(then, seconds(killed_at, *at)));
        let refused_for = self.refused_for.map(|refused_for| {
            figure("for so long the other masters refuse requests", refused_for.as_secs_f64())
        });
        steps.chain(refused_for).collect()
    }
}
