//! A run: the rounds, and what is said of them.

use std::time::{Duration, Instant};

use leasehold_testkit::bench::machine::machine;
use leasehold_testkit::bench::server::Server;

use crate::Outcome;
use crate::cell::{Bench, Row};
use crate::kinds::{self, Kinds};
use crate::mixed::{self, Together};
use crate::peer::{Peer, Program};
use crate::promises;
use crate::queues;
use crate::table::Table;
use crate::workers::{Programs, Workers};

pub(crate) struct Settings {
    quick: bool,
    queues: bool,
    programs: Programs,
}

impl Settings {
    pub(crate) fn parse(args: &[String]) -> Outcome<Self> {
        let (mut quick, mut queues) = (false, false);
        let (mut class_path, mut go) = (None, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => quick = true,
                "--queues" => queues = true,
                "--class-path" => class_path = args.next().cloned(),
                "--go" => go = args.next().cloned(),
                _ => {
                    let usage = "scripts/bench-peers [--queues] [--quick]";
                    return Err(format!("usage: {usage}, not {arg:?}").into());
                }
            }
        }
        let (class_path, go) = class_path.zip(go).ok_or("scripts/bench-peers runs this program")?;
        Ok(Self { quick, queues, programs: Programs { class_path, go } })
    }

    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { 5 }
    }

    fn warm_up(&self) -> Duration {
        if self.quick { Duration::from_millis(500) } else { Duration::from_secs(3) }
    }
}

pub(crate) async fn bench(settings: &Settings) -> Outcome<()> {
    let began_at = Instant::now();
    let server = Server::start().await?;
    let workers = Workers::new(server.url(), settings.programs.clone(), settings.warm_up());
    let mut bench = Bench { server, workers, quick: settings.quick };
    if settings.queues {
        return queues::bench(&mut bench, settings.rounds()).await;
    }
    let mut table = Table::default();
    let mut together = Together::default();
    let mut kinds = Kinds::default();
    eprintln!("starting the workers");
    for program in Program::ALL {
        bench.workers.need(program, Row::most_processes()).await?;
    }
    if !settings.quick {
        // Java once through all rows, so that their code is compiled too. Its figures are not kept.
        let java = Peer::ALL.into_iter().filter(|peer| peer.program() == Program::Java).collect();
        round(&mut bench, &mut Table::default(), 0, java, began_at).await;
        kinds::round(&mut bench, &mut Kinds::default(), &[Program::Java], 0).await;
    }
    let mut rounds = 0;
    let mut longest = Duration::ZERO;
    while rounds < settings.rounds() && began_at.elapsed() + longest < LIMIT {
        let round_began_at = Instant::now();
        rounds += 1;
        let mut peers = Peer::ALL.to_vec();
        // Whoever comes first after another row should not always be the same.
        peers.rotate_left(rounds as usize % Peer::ALL.len());
        round(&mut bench, &mut table, rounds, peers, began_at).await;
        mixed::round(&mut bench, &mut together, rounds).await;
        kinds::round(&mut bench, &mut kinds, &kinds::COMPARED, rounds).await;
        longest = longest.max(round_began_at.elapsed());
    }
    println!("{table}");
    println!(
        "{}; in brackets how many times leasehold's figure that is. {} s in all.",
        if settings.quick {
            "One short round, for a first look".to_owned()
        } else {
            format!("Medians of {rounds} rounds")
        },
        began_at.elapsed().as_secs()
    );
    println!(
        "{}; {}, on the same machine; {}.\n",
        machine(),
        bench.server.version().await?,
        bench.workers.say()
    );
    println!("{together}");
    println!("{kinds}");
    print!("{}", promises::text());
    Ok(())
}

async fn round(
    bench: &mut Bench,
    table: &mut Table,
    round: u32,
    peers: Vec<Peer>,
    began_at: Instant,
) {
    for row in Row::ALL {
        eprintln!("round {round}, {}, {} s so far", row.what(), began_at.elapsed().as_secs());
        for &peer in &peers {
            // What has failed once takes no more of the time of others.
            if row.cannot(peer).is_some() || table.has_failed(row, peer) {
                continue;
            }
            match bench.cell(row, peer, round).await {
                Ok(figures) => table.add(row, peer, round, figures),
                Err(error) => {
                    eprintln!("round {round}, {}, {peer}: {error}", row.what());
                    table.fail(row, peer, format!("{error} (round {round})"));
                }
            }
        }
    }
}

/// A run ends with the round that fits in here.
const LIMIT: Duration = Duration::from_secs(720);
