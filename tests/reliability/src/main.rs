//! `leasehold-reliability RESULTS MINUTES SEED`: the page of what `scripts/reliability` has run, on standard output. Ends with 1
//! if a part failed or is missing.
//!
//! It counts nothing itself: each part ends with its sum as a line of JSON, or says line by line what it did.

mod deadlocks;
mod deployments;
mod lists;
mod page;
mod part;

use std::{path::Path, process::ExitCode};

use page::Page;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [results, minutes, seed, page_file, runs_file, planted_file] = &arguments[..] else {
        eprintln!("usage: leasehold-reliability RESULTS MINUTES SEED PAGE RUNS PLANTED");
        return ExitCode::from(2);
    };
    let short = minutes == "0";
    let parts = if short { &SHORT[..] } else { &LONG[..] };
    let again = if short {
        "scripts/reliability".to_owned()
    } else {
        format!("scripts/reliability --minutes {minutes} --seed {seed}")
    };
    let page = Page::read(Path::new(results), parts, &EXTRA, again);
    for (file, text) in [
        (page_file, page.to_string()),
        (runs_file, page.runs().to_string()),
        (planted_file, page.faults().to_string()),
    ] {
        if let Err(error) = std::fs::write(file, text) {
            eprintln!("{file}: {error}");
            return ExitCode::from(2);
        }
    }
    if page.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const SHORT: [&str; 6] = ["faults", "model", "sim", "fuzz", "endings", "planted"];
const LONG: [&str; 24] = [
    "faults",
    "faults-valkey",
    "deadlocks",
    "unfenced",
    "sentinel",
    "sentinel-redis-6.2",
    "sentinel-redis-8",
    "sentinel-valkey-8",
    "sentinel-valkey-9",
    "cluster",
    "cluster-redis-6.2",
    "cluster-redis-8",
    "cluster-valkey-8",
    "cluster-valkey-9",
    "cluster-10s",
    "cluster-15s",
    "short-grace-10s",
    "short-grace-15s",
    "model",
    "sim",
    "fuzz",
    "endings",
    "planted",
    "tests-valkey",
];
/// Shown if they were run: only when that is asked for, or not in results from before there was such a part.
const EXTRA: [&str; 2] = ["lists", "mutants"];
