//! Runs the tests that reach a mutant with that mutant on, the most telling first, until one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::plant::Mutant;

/// A test, how long it takes, and the mutants that it reaches.
struct Test<'a> {
    binary: &'a str,
    name: String,
    took: Duration,
    reaches: BTreeSet<usize>,
}

/// Prints `killed`, `unreached` or `survived` for each mutant, first for those of which `done` says it. Ends with 0 whatever
/// came of it.
pub fn sweep(list: &str, done: &str, seconds: u64, binaries: &[&str]) -> ExitCode {
    let mut mutants = Mutant::read(list);
    for line in fs::read_to_string(done).unwrap_or_default().lines() {
        let text = line.split_once('\t').map_or("", |(_, text)| text);
        if let Some(at) = mutants.iter().position(|mutant| mutant.text == text) {
            mutants.remove(at);
            println!("{line}");
        }
    }
    let tests = tests(list, binaries);
    println!("{} tests, {} mutants", tests.len(), mutants.len());
    let budget = Duration::from_secs(seconds);
    each(&mutants, |_, mutant| {
        println!("{}\t{}", outcome(mutant.number, &tests, budget), mutant.text);
    });
    ExitCode::SUCCESS
}

/// All tests that pass without a mutant. First come those that take little time and reach few mutants: a test of one function
/// says more about it than a test that passes through most of the library.
fn tests<'a>(list: &str, binaries: &[&'a str]) -> Vec<Test<'a>> {
    let mut all = Vec::new();
    for &binary in binaries {
        let names = Command::new(binary).arg("--list").output().expect("a test binary");
        let names = String::from_utf8_lossy(&names.stdout).into_owned();
        let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
        all.extend(names.map(|name| (binary, name.to_owned())));
    }
    let (tests, failed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    each(&all, |at, (binary, name)| match recorded(&format!("{list}.{at}"), binary, name) {
        Some(test) => tests.lock().expect("no panic").push(test),
        None => failed.lock().expect("no panic").push((*binary, name.clone())),
    });
    let mut tests = tests.into_inner().expect("no panic");
    // A test that the others kept from its deadline passes alone.
    for (binary, name) in failed.into_inner().expect("no panic") {
        match recorded(&format!("{list}.again"), binary, &name) {
            Some(test) => tests.push(test),
            None => eprintln!("fails without a mutant, and is left out: {name}"),
        }
    }
    tests.sort_by_key(|test| test.took * test.reaches.len() as u32);
    tests
}

/// Runs a test without a mutant, which writes those that it reaches into the file `reached`. `None`: it fails.
fn recorded<'a>(reached: &str, binary: &'a str, name: &str) -> Option<Test<'a>> {
    let _ = fs::remove_file(reached);
    let began = Instant::now();
    let mut command = command(binary, &[name]);
    command.env("LEASEHOLD_MUTANTS_REACHED", reached);
    let passed = passes(command, Duration::from_secs(120));
    let took = began.elapsed();
    let reaches = fs::read_to_string(reached).unwrap_or_default();
    let _ = fs::remove_file(reached);
    let reaches = reaches.lines().filter_map(|line| line.parse().ok()).collect();
    passed.then(|| Test { binary, name: name.to_owned(), took, reaches })
}

/// Does something with each of `items`, some of them at a time: tests wait more than they compute.
fn each<T: Sync>(items: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(at)
                {
                    work(at, item);
                }
            });
        }
    });
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

/// Whether one of these tests fails because of the mutant. On a busy machine some fail now and then: so it must fail again
/// alone, and pass without the mutant right afterwards.
fn fails(mutant: usize, batch: &[&Test<'_>]) -> bool {
    let Err(said) = together(mutant, batch) else { return false };
    let failed = |test: &&&Test<'_>| said.contains(&format!("test {} ... FAILED\n", test.name));
    let mut suspects: Vec<&Test<'_>> = batch.iter().filter(failed).copied().collect();
    if suspects.is_empty() {
        // It hung, or ended in the middle.
        suspects = batch.to_vec();
    }
    suspects.iter().any(|test| {
        let alone = std::slice::from_ref(test);
        together(mutant, alone).is_err() && together(NONE, alone).is_ok()
    })
}

/// Runs these tests in one process. If they do not all pass, returns what it said.
fn together(mutant: usize, batch: &[&Test<'_>]) -> Result<(), String> {
    let names: Vec<&str> = batch.iter().map(|test| &*test.name).collect();
    let mut command = command(batch[0].binary, &names);
    command.env("LEASEHOLD_MUTANT", mutant.to_string());
    let output = std::env::temp_dir().join(format!(
        "leasehold-mutants-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    command.stdout(fs::File::create(&output).expect("a file"));
    let usual: Duration = batch.iter().map(|test| test.took).sum();
    let passed = passes(command, usual * 3 + Duration::from_secs(10));
    let said = fs::read_to_string(&output).unwrap_or_default();
    let _ = fs::remove_file(&output);
    if passed { Ok(()) } else { Err(said) }
}

fn command(binary: &str, names: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["--test-threads", THREADS, "--exact"])
        .args(names)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
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
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    if !passed {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = child.wait();
    }
    passed
}

/// How many tests of a mutant run in one process.
const BATCH: usize = 8;
const AT_A_TIME: usize = 3;
/// How many of them at a time.
const THREADS: &str = "4";
/// The number of no mutant.
const NONE: usize = usize::MAX;
