//! Runs scenarios: sim [--hours H | --minutes M] [--seed S] [--only NAME]
//!
//! Without a name all of them in turn, each with another seed, until together they have simulated that long. The
//! last line is the sum, in JSON.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use leasehold_sim::outcome::{Outcome, Summary};
use leasehold_sim::scenario::Scenario;
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
    let mut good = failed.is_empty();
    let all = options.only.is_none();
    for outcome in outcomes.iter().filter(|outcome| all && outcome.proves_nothing()) {
        println!("too little happened for a promise to be broken: {}", outcome.line());
        good = false;
    }
    let summary = Summary::of(&outcomes, began.elapsed());
    println!("{}", serde_json::to_string(&summary).expect("plain data"));
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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

/// On as many threads as there are processors; each run has one for itself. Told and given back in their order.
fn run_all(runs: Vec<(Scenario, u64, u64)>) -> Vec<Outcome> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let queue = Mutex::new(runs.into_iter().enumerate());
    let (done, ended) = mpsc::channel();
    let mut outcomes = BTreeMap::new();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (queue, done) = (&queue, done.clone());
            scope.spawn(move || {
                loop {
                    let next = queue.lock().expect("no panic").next();
                    let Some((number, (scenario, seed, minutes))) = next else { return };
                    done.send((number, scenario.run(seed, minutes))).expect("it is heard");
                }
            });
        }
        drop(done);
        let mut told = 0;
        for (number, outcome) in ended {
            outcomes.insert(number, outcome);
            while let Some(outcome) = outcomes.get(&told) {
                println!("{}", outcome.line());
                told += 1;
            }
        }
    });
    outcomes.into_values().collect()
}

/// About how long a run is.
const MINUTES: u64 = 10;
