//! What locks cost, each figure beside its floor: the same work without this library, in the same run.
//!
//! `scripts/bench` runs it and prints one table, which `benches/README.md` keeps. Every row is measured in rounds, floor and ours by turns in
//! each round, and the table has the medians: on a machine that does other things too, the ratios are what
//! can be compared. Nothing here fails because something is slow.
//!
//! The server is private and ends with the run. Rows with several processes start this program again.

mod bystanders;
mod crowd;
mod elections;
mod far;
mod free;
mod held;
mod inside;
mod notices;
mod pairs;
mod permits;
mod processes;
mod queues;
mod quorum;
mod readers;
mod relay;
mod runners;
mod slow;
mod table;
mod together;
mod waits;
mod watched;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_testkit::bench::Outcome;
use leasehold_testkit::bench::machine::machine;
use leasehold_testkit::bench::server::Server;

use quorum::Last;
use table::{Figure, Table};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // On a task of the runtime, as the library's users are: `main` itself runs on a thread of its own.
    let run = tokio::spawn(async move {
        match args.split_first() {
            Some((first, order)) if first == worker::COMMAND => worker::serve(order).await,
            _ => bench(&Settings::parse(&args)?).await,
        }
    });
    match run.await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
        Err(panic) => {
            eprintln!("bench: {panic}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(settings: &Settings) -> Outcome<()> {
    let began_at = Instant::now();
    let server = Server::start().await?;
    let server = Arc::new(server);
    let bench = |client| Bench { server: server.clone(), client, quick: settings.quick };
    let (bench, watched) = if settings.watched {
        let [off, on] = watched::clients(server.url()).await?;
        (bench(off), Some(bench(on)))
    } else {
        (bench(Client::connect(server.url()).await?), None)
    };
    let heads = if settings.watched { ["all off", "all on"] } else { ["floor", "ours"] };
    let mut table = Table::new(heads);
    let mut failures = Vec::new();
    for round in 1..=settings.rounds {
        for &row in &settings.rows {
            eprintln!(
                "round {round} of {}, row {row}, {:.0} s so far",
                settings.rounds,
                began_at.elapsed().as_secs_f64()
            );
            let figures = match &watched {
                None => bench.row(row, round).await,
                Some(on) => watched::compare(&bench, on, row, round).await,
            };
            match figures {
                Ok(figures) => table.add(row, figures),
                // The other rows are worth having all the same.
                Err(error) => failures.push(format!("round {round}, row {row}: {error}")),
            }
        }
    }
    for bench in [&bench].into_iter().chain(&watched) {
        bench.client.shutdown().await;
    }
    println!("{table}");
    println!(
        "{}; {}, on the same machine; median of {} rounds.",
        machine(),
        bench.server.version().await?,
        settings.rounds
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

struct Settings {
    rows: Vec<u8>,
    rounds: u32,
    quick: bool,
    /// Everything on beside everything off, in the first rows.
    watched: bool,
}

impl Settings {
    fn parse(args: &[String]) -> Outcome<Self> {
        let quick = args.iter().any(|arg| arg == "--quick");
        let watched = args.iter().any(|arg| arg == "--watched");
        let all = 1..=if watched { LAST_WATCHED } else { LAST };
        let mut rows = Vec::new();
        for arg in args {
            match arg.parse() {
                Ok(row) if all.contains(&row) => rows.push(row),
                // The last is what cargo itself adds.
                _ if ["--quick", "--watched", "--bench"].contains(&arg.as_str()) => {}
                _ => {
                    return Err(format!(
                        "usage: scripts/bench [--quick] [--watched] [rows, 1 to {}], not {arg:?}",
                        all.end()
                    )
                    .into());
                }
            }
        }
        if rows.is_empty() {
            rows.extend(all);
        }
        Ok(Self { rows, rounds: if quick { 1 } else { 5 }, quick, watched })
    }
}

/// What all rows use.
struct Bench {
    server: Arc<Server>,
    client: Client,
    quick: bool,
}

impl Bench {
    async fn row(&self, row: u8, round: u32) -> Outcome<Vec<Figure>> {
        match row {
            1 => free::pair(self).await,
            2 => free::nested(self).await,
            3 => inside::contend(self).await,
            4 => inside::hand_over(self).await,
            5 => processes::contend(self, round).await,
            6 => relay::relays(self, round).await,
            7 => free::many(self).await,
            8 => held::held(self, round).await,
            9 => free::on_a_thread(self).await,
            10 => quorum::pair(self, 3, Last::Healthy).await,
            11 => quorum::pair(self, 5, Last::Healthy).await,
            12 => quorum::pair(self, 5, Last::Hanging).await,
            13 => quorum::pair(self, 3, Last::Slow).await,
            14 => far::far(self, round).await,
            15 => waits::stopped_head(self, round).await,
            16 => waits::in_line(self, round).await,
            17 => together::free(self).await,
            18 => together::contend(self, round).await,
            19 => elections::follow(self, round).await,
            20 => readers::alone(self).await,
            21 => readers::join(self).await,
            22 => permits::contend(self, round).await,
            23 => crowd::beside(self, round).await,
            24 => queues::hand_over(self, round).await,
            25 => queues::many(self, round).await,
            26 => notices::latch(self, round).await,
            _ => notices::signal(self, round).await,
        }
    }

    fn url(&self) -> &str {
        self.server.url()
    }

    /// How often something is repeated.
    fn times(&self, times: u32) -> u32 {
        if self.quick { times.div_ceil(4) } else { times }
    }

    /// For how long something is repeated.
    fn span(&self, span: Duration) -> Duration {
        if self.quick { span / 4 } else { span }
    }
}

const LAST: u8 = 27;
const LAST_WATCHED: u8 = 6;
