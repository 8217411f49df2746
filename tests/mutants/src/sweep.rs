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
#[derive(Debug, PartialEq)]
struct Test {
    binary: String,
    name: String,
    took: Duration,
    reaches: BTreeSet<usize>,
}

/// The tests that killed mutants of a function or of a file, the last one first.
type Killers<'a> = BTreeMap<&'a str, Vec<&'a Test>>;

/// Prints `killed`, `unreached` or `survived` for each mutant, first for those of which `done` says it. Ends with 0 whatever
/// came of it. What the tests reach is kept in `record`, for a sweep that goes on.
pub fn sweep(list: &str, done: &str, record: &str, seconds: u64, binaries: &[&str]) -> ExitCode {
    let mut mutants = Mutant::read(list);
    for line in fs::read_to_string(done).unwrap_or_default().lines() {
        let text = line.split_once('\t').map_or("", |(_, text)| text);
        if let Some(at) = mutants.iter().position(|mutant| mutant.text == text) {
            mutants.remove(at);
            println!("{line}");
        }
    }
    let mut tests: Vec<Test> =
        fs::read_to_string(record).unwrap_or_default().lines().filter_map(Test::read).collect();
    if tests.is_empty() {
        tests = passing(list, binaries);
        fs::write(record, tests.iter().map(Test::line).collect::<String>())
            .expect("it can be written");
    }
    sort(&mut tests);
    println!("{} tests, {} mutants", tests.len(), mutants.len());
    let budget = Duration::from_secs(seconds);
    let killers = Mutex::new(Killers::new());
    each(&mutants, |_, mutant| {
        println!("{}\t{}", outcome(mutant, &tests, budget, &killers), mutant.text);
    });
    ExitCode::SUCCESS
}

impl Test {
    fn line(&self) -> String {
        let reaches: Vec<String> = self.reaches.iter().map(usize::to_string).collect();
        format!(
            "{}\t{}\t{}\t{}\n",
            self.binary,
            self.name,
            self.took.as_micros(),
            reaches.join(" ")
        )
    }

    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        Some(Self {
            binary: fields.next()?.to_owned(),
            name: fields.next()?.to_owned(),
            took: Duration::from_micros(fields.next()?.parse().ok()?),
            reaches: fields.next()?.split(' ').filter_map(|number| number.parse().ok()).collect(),
        })
    }
}

/// First come those that take little time and reach few mutants: a test of one function says more about it than a test that
/// passes through most of the library. The tests of a module are alike, so each stands the further behind the more of its module
/// come before it.
fn sort(tests: &mut [Test]) {
    let cost = |test: &Test| test.took * test.reaches.len() as u32;
    tests.sort_by_key(cost);
    let mut of_module: BTreeMap<String, u32> = BTreeMap::new();
    tests.sort_by_cached_key(|test| {
        let module = test.name.rsplit_once("::").map_or("", |(module, _)| module);
        let rank = of_module.entry(module.to_owned()).or_default();
        *rank += 1;
        cost(test) * *rank
    });
}

/// All tests that pass without a mutant.
fn passing(list: &str, binaries: &[&str]) -> Vec<Test> {
    let mut all = Vec::new();
    for &binary in binaries {
        let names = Command::new(binary).arg("--list").output().expect("a test binary");
        let names = String::from_utf8_lossy(&names.stdout).into_owned();
        let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
        let names = names.filter(|name| !LONG.iter().any(|long| name.starts_with(long)));
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
    tests
}

/// Runs a test without a mutant, which writes those that it reaches into the file `reached`. `None`: it fails.
fn recorded(reached: &str, binary: &str, name: &str) -> Option<Test> {
    let _ = fs::remove_file(reached);
    let began = Instant::now();
    let mut command = command(binary, &[name]);
    command.env("LEASEHOLD_MUTANTS_REACHED", reached);
    let passed = passes(command, Duration::from_secs(120), || false);
    let took = began.elapsed();
    let reaches = fs::read_to_string(reached).unwrap_or_default();
    let _ = fs::remove_file(reached);
    let reaches = reaches.lines().filter_map(|line| line.parse().ok()).collect();
    passed.then(|| Test { binary: binary.to_owned(), name: name.to_owned(), took, reaches })
}

/// Does something with each of `items`, some of them at a time: tests wait more than they compute.
fn each<'a, T: Sync>(items: &'a [T], work: impl Fn(usize, &'a T) + Sync) {
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

/// Runs tests for `budget` at most, as measured without the mutant: first those that killed other mutants of the function, then
/// of the file.
fn outcome<'a>(
    mutant: &'a Mutant,
    tests: &'a [Test],
    budget: Duration,
    killers: &Mutex<Killers<'a>>,
) -> &'static str {
    let function = mutant.text.split_once(": ").map_or("", |(function, _)| function);
    let file = mutant.text.split_once(' ').map_or("", |(file, _)| file);
    let mut first: Vec<&Test> = Vec::new();
    for place in [function, file] {
        let killers = killers.lock().expect("no panic");
        for killer in killers.get(place).into_iter().flatten().take(MOST_KILLERS) {
            if !first.contains(killer) {
                first.push(killer);
            }
        }
    }
    let others = tests.iter().filter(|test| !first.contains(test));
    let mut took = Duration::ZERO;
    let mut chosen: Vec<&Test> = Vec::new();
    for test in
        first.iter().copied().chain(others).filter(|test| test.reaches.contains(&mutant.number))
    {
        if !chosen.is_empty() && took + test.took > budget {
            break;
        }
        took += test.took;
        chosen.push(test);
    }
    if chosen.is_empty() {
        return "unreached";
    }
    // The first few tests kill most mutants, so these run before the others begin.
    let mut rest = &chosen[..];
    let mut size = FIRST_BATCH;
    while let Some(next) = rest.first() {
        let count = rest.iter().take(size).take_while(|test| test.binary == next.binary).count();
        let (batch, later) = rest.split_at(count);
        if let Some(killer) = killer(mutant.number, batch) {
            let mut killers = killers.lock().expect("no panic");
            for place in [function, file] {
                let killers = killers.entry(place).or_default();
                killers.retain(|other| *other != killer);
                killers.insert(0, killer);
            }
            return "killed";
        }
        rest = later;
        size = LAST_BATCH.min(size * 2);
    }
    "survived"
}

/// The test that fails because of the mutant. On a busy machine some fail now and then: so it must fail again alone, and pass
/// without the mutant right afterwards.
fn killer<'a>(mutant: usize, batch: &[&'a Test]) -> Option<&'a Test> {
    let mut batch = batch.to_vec();
    while !batch.is_empty() {
        let failed = together(mutant, &batch).err()?;
        // None: it hung, or ended in the middle.
        let suspects = if failed.is_empty() { batch.clone() } else { failed };
        for &suspect in &suspects {
            if together(mutant, &[suspect]).is_err() && together(NONE, &[suspect]).is_ok() {
                return Some(suspect);
            }
        }
        batch.retain(|test| !suspects.contains(test));
    }
    None
}

/// Runs these tests in one process, until one fails. If they do not all pass, returns those that failed.
fn together<'a>(mutant: usize, batch: &[&'a Test]) -> Result<(), Vec<&'a Test>> {
    let names: Vec<&str> = batch.iter().map(|test| &*test.name).collect();
    let mut command = command(&batch[0].binary, &names);
    command.env("LEASEHOLD_MUTANT", mutant.to_string());
    let output = std::env::temp_dir().join(format!(
        "leasehold-mutants-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    command.stdout(fs::File::create(&output).expect("a file"));
    let all: Duration = batch.iter().map(|test| test.took).sum();
    let longest = batch.iter().map(|test| test.took).max().unwrap_or_default();
    let limit = (all / THREADS + longest) * 2 + Duration::from_secs(5);
    let said = || fs::read_to_string(&output).unwrap_or_default();
    let passed = passes(command, limit, || said().contains(FAILED));
    let said = said();
    let _ = fs::remove_file(&output);
    if passed {
        return Ok(());
    }
    let failed = |test: &&&Test| said.contains(&format!("test {}{FAILED}", test.name));
    Err(batch.iter().filter(failed).copied().collect())
}

fn command(binary: &str, names: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["--test-threads", &THREADS.to_string(), "--exact"])
        .args(names)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Whether it ends well in time, without anything that makes it `hopeless` before. What it started ends with it.
fn passes(mut command: Command, limit: Duration, hopeless: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    let mut child = command.process_group(0).spawn().expect("a test binary");
    let passed = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status.success(),
            None if began.elapsed() > limit || hopeless() => break false,
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

/// How many tests of a mutant run in one process: at first, and at most.
const FIRST_BATCH: usize = 2;
const LAST_BATCH: usize = 16;
const AT_A_TIME: usize = 4;
/// How many of a batch run at a time.
const THREADS: u32 = 4;
const MOST_KILLERS: usize = 6;
/// Those of the simulation that compute for a minute each.
const LONG: [&str; 2] = ["promises::", "determinism::"];
/// The number of no mutant.
const NONE: usize = usize::MAX;
/// What a test program prints after the name of a test that failed.
const FAILED: &str = " ... FAILED\n";
