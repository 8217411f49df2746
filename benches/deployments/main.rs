//! What replicated deployments cost: how long locks are away when a master fails, what callers see when one is replaced
//! or a slot moves, and the price of replicas that must confirm.
//!
//! `scripts/bench-deployments` runs it and prints one table, which `benches/README.md` keeps. Every trial has servers of
//! its own. The table has the median and the worst of all trials. Nothing here fails because something is slow.

mod contender;
mod killed;
mod library;
mod moved;
mod place;
mod replaced;
mod shards;
mod synced;
mod table;
mod watching;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use leasehold_testkit::Server;
use leasehold_testkit::bench::{Outcome, machine};
use leasehold_testkit::java::Version;
use tokio::signal::unix::{SignalKind, signal};

use place::Kind;
use table::{Figure, Table};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let run = async { bench(&Settings::parse(&args)?).await };
    // What a run that is stopped has started ends with it.
    let outcome = tokio::select! {
        outcome = run => outcome,
        () = stopped() => Err("stopped".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-deployments: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn stopped() {
    let (Ok(mut ended), Ok(mut interrupted)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = ended.recv() => {}
        _ = interrupted.recv() => {}
    }
}

async fn bench(settings: &Settings) -> Outcome<()> {
    if settings.parts.iter().any(|part| part.has_redisson()) {
        // Maven may have to fetch it: that is no part of the time limit.
        tokio::task::spawn_blocking(|| REDISSON.class_path()).await?;
    }
    let began_at = Instant::now();
    let limit = settings.pace.limit();
    let (mut table, mut problems) = (Table::default(), Vec::new());
    for round in 1..=settings.pace.rounds() {
        for part in &settings.parts {
            let left = limit.saturating_sub(began_at.elapsed());
            if left < part.usual(settings.pace) {
                eprintln!("round {round}, {part:?} does not fit into {limit:?}");
                continue;
            }
            eprintln!("round {round}, {part:?}, {:.0} s so far", began_at.elapsed().as_secs_f64());
            // The tests' servers panic if something is wrong. The other trials are worth having all the same.
            let trial = AssertUnwindSafe(part.trial(settings.pace)).catch_unwind();
            match tokio::time::timeout(left.min(TRIAL_LIMIT), trial).await {
                Ok(Ok(Ok(figures))) => table.add(figures),
                Ok(Ok(Err(error))) => problems.push(format!("round {round}, {part:?}: {error}")),
                Ok(Err(_)) => problems.push(format!("round {round}, {part:?} panicked")),
                Err(_) => problems.push(format!("round {round}, {part:?} took too long")),
            }
        }
    }
    println!("{table}");
    let server = Server::start().await;
    let info: String = redis::from_redis_value(server.command(&["INFO", "server"]).await)?;
    println!(
        "{}; {}, Redisson {}, all on the same machine. {:.0} s in all.",
        machine::machine(),
        machine::server(&info),
        REDISSON.number(),
        began_at.elapsed().as_secs_f64()
    );
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

struct Settings {
    parts: Vec<Part>,
    pace: Pace,
}

impl Settings {
    fn parse(args: &[String]) -> Outcome<Self> {
        let mut pace = Pace::Full;
        let mut rows: Vec<u8> = Vec::new();
        for arg in args {
            match arg.parse() {
                Ok(row) if ROWS.contains(&row) => rows.push(row),
                _ if arg == "--quick" => pace = Pace::Quick,
                // What cargo itself adds.
                _ if arg == "--bench" => {}
                _ => {
                    return Err(format!(
                        "usage: scripts/bench-deployments [--quick] [rows, 1 to 5], not {arg:?}"
                    )
                    .into());
                }
            }
        }
        let is_wanted = |part: &Part| rows.is_empty() || rows.contains(&part.row());
        let parts = PARTS.into_iter().filter(is_wanted).collect();
        Ok(Self { parts, pace })
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Full,
    Quick,
}

impl Pace {
    fn rounds(self) -> u32 {
        match self {
            Self::Full => 5,
            Self::Quick => 1,
        }
    }

    /// A run ends with the trial that fits in here.
    fn limit(self) -> Duration {
        match self {
            Self::Full => Duration::from_secs(460),
            Self::Quick => Duration::from_secs(115),
        }
    }

    /// For how long a master must be silent before it is replaced.
    fn silence(self) -> Duration {
        match self {
            Self::Full => Duration::from_secs(5),
            Self::Quick => Duration::from_secs(1),
        }
    }

    /// How often something short is repeated in a trial.
    fn times(self, times: u32) -> u32 {
        match self {
            Self::Full => times,
            Self::Quick => times.div_ceil(4),
        }
    }
}

/// What a trial is about.
#[derive(Clone, Copy, Debug)]
enum Part {
    Killed(Kind),
    SentinelFailover,
    ClusterFailover,
    SlotMoved,
    Synced,
    Shards,
}

impl Part {
    async fn trial(self, pace: Pace) -> Outcome<Vec<Figure>> {
        match self {
            Self::Killed(kind) => killed::trial(kind, pace).await,
            Self::SentinelFailover => replaced::behind_sentinels(pace).await,
            Self::ClusterFailover => replaced::in_a_cluster(pace).await,
            Self::SlotMoved => moved::trial(pace).await,
            Self::Synced => synced::trial(pace).await,
            Self::Shards => shards::trial(pace).await,
        }
    }

    /// The first row that it has a figure for.
    fn row(self) -> u8 {
        match self {
            Self::Killed(_) => 1,
            Self::SentinelFailover => 2,
            Self::ClusterFailover | Self::SlotMoved => 3,
            Self::Synced => 4,
            Self::Shards => 5,
        }
    }

    fn has_redisson(self) -> bool {
        matches!(self, Self::Killed(_))
    }

    /// About how long a trial takes: without that much time it is not begun.
    fn usual(self, pace: Pace) -> Duration {
        match self {
            Self::Killed(_) => pace.silence() * 3 + Duration::from_secs(20),
            Self::SentinelFailover => Duration::from_secs(18),
            _ => Duration::from_secs(10),
        }
    }
}

const PARTS: [Part; 7] = [
    Part::Killed(Kind::Sentinel),
    Part::Killed(Kind::Cluster),
    Part::SentinelFailover,
    Part::ClusterFailover,
    Part::SlotMoved,
    Part::Synced,
    Part::Shards,
];
const ROWS: std::ops::RangeInclusive<u8> = 1..=5;
/// The servers of the tests end a process that has them for four minutes.
const TRIAL_LIMIT: Duration = Duration::from_secs(180);
const REDISSON: Version = Version::V4_7_0;
