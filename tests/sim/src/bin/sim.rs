//! Runs scenarios: sim [--hours H | --minutes M] [--seed S] [--only NAME]
//!
//! Without a name all of them in turn, each with another seed, until together they have simulated that long.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use leasehold_sim::scenario::{Outcome, Scenario};
use leasehold_sim::shapes;

struct Options {
    minutes: u64,
    seed: u64,
    only: Option<String>,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("sim: {problem} (there are --hours H, --minutes M, --seed S, --only NAME)");
            return ExitCode::from(2);
        }
    };
    let runs = match plan(&options) {
        Ok(runs) => runs,
        Err(problem) => {
            eprintln!("sim: {problem}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let outcomes = run_all(runs);
    let failed: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| !outcome.violations.is_empty()).collect();
    for outcome in &failed {
        println!("{}", outcome.report());
    }
    let sum = |what: fn(&Outcome) -> u64| outcomes.iter().map(what).sum::<u64>();
    let counted = |what: &str| {
        let of = |outcome: &Outcome| outcome.counts.get(what).copied().unwrap_or(0);
        outcomes.iter().map(of).sum::<u64>()
    };
    let faults = outcomes.iter().flat_map(|outcome| &outcome.counts);
    let faults: u64 =
        faults.filter(|(what, _)| what.starts_with("fault_")).map(|(_, times)| times).sum();
    println!(
        "sim-total runs={} failed={} simulated_ms={} holds={} scripts={} faults={faults} real_ms={}",
        outcomes.len(),
        failed.len(),
        sum(|outcome| outcome.simulated_ms),
        counted("holds"),
        counted("scripts"),
        began.elapsed().as_millis(),
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Result<Options, String> {
    let mut options = Options { minutes: 190, seed: 1, only: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
        let number = || value.parse::<f64>().map_err(|_| format!("{value} is no number"));
        match &*word {
            "--hours" => options.minutes = (number()? * 60.0).ceil() as u64,
            "--minutes" => options.minutes = number()?.ceil() as u64,
            "--seed" => options.seed = value.parse().map_err(|_| format!("{value} is no seed"))?,
            "--only" => options.only = Some(value),
            _ => return Err(format!("not an option: {word}")),
        }
    }
    Ok(options)
}

/// What to run: scenario, seed and minutes.
fn plan(options: &Options) -> Result<Vec<(Scenario, u64, u64)>, String> {
    if let Some(name) = &options.only {
        let scenario =
            shapes::named(name).ok_or_else(|| format!("no scenario is called {name}"))?;
        return Ok(vec![(scenario, options.seed, options.minutes)]);
    }
    let mut scenarios = shapes::covered();
    scenarios.extend(shapes::excluded());
    let runs = options.minutes.div_ceil(MINUTES).max(scenarios.len() as u64);
    let minutes = options.minutes.div_ceil(runs);
    let scenarios = scenarios.iter().cycle().cloned();
    Ok(scenarios
        .zip(options.seed..options.seed + runs)
        .map(|(one, seed)| (one, seed, minutes))
        .collect())
}

/// On as many threads as there are processors; each run has one for itself.
fn run_all(runs: Vec<(Scenario, u64, u64)>) -> Vec<Outcome> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let queue = Mutex::new(runs.into_iter());
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no panic").next();
                    let Some((scenario, seed, minutes)) = next else { return };
                    let outcome = scenario.run(seed, minutes);
                    println!("{}", outcome.line());
                    outcomes.lock().expect("no panic").push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no panic")
}

/// About how long a run is.
const MINUTES: u64 = 10;
