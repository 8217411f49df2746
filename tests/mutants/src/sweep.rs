//! Runs the tests that reach a mutant with that mutant on, the fast ones first, until one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::plant::Mutant;

/// A test, how long it takes, and the mutants that it reaches.
struct Test<'a> {
    binary: &'a str,
    name: String,
    took: Duration,
    reaches: BTreeSet<usize>,
}

/// Prints `killed`, `unreached` or `survived` for each mutant, and at last the count. Ends with 0 whatever came of it.
pub fn sweep(list: &str, seconds: u64, binaries: &[&str]) -> ExitCode {
    let mutants = Mutant::read(list);
    let tests = tests(list, binaries);
    println!("{} tests, {} mutants", tests.len(), mutants.len());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for mutant in &mutants {
        let outcome = outcome(mutant.number, &tests, Duration::from_secs(seconds));
        *counts.entry(outcome).or_default() += 1;
        println!("{outcome}\t{}", mutant.text);
    }
    let count = |outcome| counts.get(outcome).copied().unwrap_or(0);
    println!(
        "mutants: {} planted, {} killed, {} survived, {} unreached",
        mutants.len(),
        count("killed"),
        count("survived"),
        count("unreached"),
    );
    ExitCode::SUCCESS
}

/// All tests that pass without a mutant, the fast ones first.
fn tests<'a>(list: &str, binaries: &[&'a str]) -> Vec<Test<'a>> {
    let reached = format!("{list}.reached");
    let mut tests = Vec::new();
    for binary in binaries {
        let names = Command::new(binary).arg("--list").output().expect("a test binary");
        let names = String::from_utf8_lossy(&names.stdout).into_owned();
        for name in names.lines().filter_map(|line| line.strip_suffix(": test")) {
            let _ = fs::remove_file(&reached);
            let began = Instant::now();
            let mut command = command(binary, &[name]);
            command.env("LEASEHOLD_MUTANTS_REACHED", &reached);
            if !passes(command, Duration::from_secs(120)) {
                eprintln!("fails without a mutant, and is left out: {name}");
                continue;
            }
            let took = began.elapsed();
            let reaches = fs::read_to_string(&reached).unwrap_or_default();
            let reaches = reaches.lines().filter_map(|line| line.parse().ok()).collect();
            tests.push(Test { binary, name: name.to_owned(), took, reaches });
        }
    }
    tests.sort_by_key(|test| test.took);
    tests
}

/// Runs tests for `budget` at most, as measured without the mutant.
fn outcome(mutant: usize, tests: &[Test<'_>], budget: Duration) -> &'static str {
    let mut took = Duration::ZERO;
    let mut reached = false;
    let mut batches: BTreeMap<&str, Vec<&Test<'_>>> = BTreeMap::new();
    for test in tests.iter().filter(|test| test.reaches.contains(&mutant)) {
        if reached && took + test.took > budget {
            break;
        }
        reached = true;
        took += test.took;
        let batch = batches.entry(test.binary).or_default();
        batch.push(test);
        if batch.len() == BATCH {
            if fails(mutant, batch) {
                return "killed";
            }
            batch.clear();
        }
    }
    if batches.values().any(|batch| !batch.is_empty() && fails(mutant, batch)) {
        return "killed";
    }
    if reached { "survived" } else { "unreached" }
}

fn fails(mutant: usize, batch: &[&Test<'_>]) -> bool {
    let names: Vec<&str> = batch.iter().map(|test| &*test.name).collect();
    let mut command = command(batch[0].binary, &names);
    command.env("LEASEHOLD_MUTANT", mutant.to_string());
    let usual: Duration = batch.iter().map(|test| test.took).sum();
    !passes(command, usual * 3 + Duration::from_secs(10))
}

fn command(binary: &str, names: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.arg("--exact").args(names).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Whether it ends well in time. What it started ends with it.
fn passes(mut command: Command, limit: Duration) -> bool {
    let began = Instant::now();
    let mut child = command.process_group(0).spawn().expect("a test binary");
    let passed = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status.success(),
            None if began.elapsed() > limit => break false,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if !passed {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = child.wait();
    }
    passed
}

const BATCH: usize = 8;
