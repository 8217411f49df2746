//! The page: what was run, what was injected, what was checked, what locks do not survive.

use std::{collections::BTreeMap, fmt, path::Path, process::Command};

use serde_json::Value;

use crate::part::Part;

#[derive(Debug)]
pub struct Page {
    pub(crate) parts: Vec<Part>,
    /// What was to be run, and was not.
    missing: Vec<String>,
    /// The command that repeats it.
    again: String,
}

impl Page {
    /// From the parts with these `names`, and those of `extra` that were run.
    pub fn read(results: &Path, names: &[&str], extra: &[&str], again: String) -> Self {
        let (mut parts, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match Part::read(results, name) {
                Some(part) => parts.push(part),
                None => missing.push((*name).to_owned()),
            }
        }
        parts.extend(extra.iter().filter_map(|name| Part::read(results, name)));
        Self { parts, missing, again }
    }

    pub fn is_good(&self) -> bool {
        self.missing.is_empty() && self.parts.iter().all(|part| part.run.status == 0)
    }

    pub(crate) fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }

    pub(crate) fn sum(&self, part: &str) -> Value {
        self.part(part).map(Part::sum).unwrap_or_default()
    }

    /// The numbers under `key` of the fault runs on Redis and on Valkey together.
    fn on_both(&self, key: &str) -> BTreeMap<String, u64> {
        let mut both = counts(&self.sum("faults"), key);
        for (what, times) in counts(&self.sum("faults-valkey"), key) {
            *both.entry(what).or_default() += times;
        }
        both
    }

    fn parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, &["part", "command", "commit", "began (UTC)", "took", "what", "outcome"])?;
        rule(f, 7)?;
        for part in &self.parts {
            let run = &part.run;
            let took = format!("{} min {} s", run.seconds / 60, run.seconds % 60);
            let outcome = if run.status == 0 { "good" } else { "**failed**" };
            let command = format!("`{}`", run.command);
            let what = amount(part);
            row(f, &[&part.name, &command, &run.commit, &run.began, &took, &what, outcome])?;
        }
        for name in &self.missing {
            row(f, &[name, "", "", "", "", "", "**not run**"])?;
        }
        Ok(())
    }

    fn survived(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns =
            [counts(&self.sum("faults"), "faults"), counts(&self.sum("faults-valkey"), "faults")];
        row(f, &["fault", "what happens", "on Redis", "on Valkey"])?;
        rule(f, 4)?;
        for (kinds, what) in table(FAULTS, "## What locks survive") {
            let [redis, valkey] = columns.each_ref().map(|counts| each(counts, kinds));
            row(f, &[kinds, what, &redis, &valkey])?;
        }
        Ok(())
    }

    fn simulated(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = counts(&self.sum("sim"), "faults");
        row(f, &["fault", "what happens", "times"])?;
        rule(f, 3)?;
        for (kinds, what) in table(SIMULATED, "## What goes wrong") {
            row(f, &[kinds, what, &each(&counts, kinds)])?;
        }
        Ok(())
    }

    fn not_survived(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.on_both("not_survived");
        row(f, &["arrangement", "what breaks", "what its user learns", "times"])?;
        rule(f, 4)?;
        for (arrangement, rest) in table(EXCLUDED, "//! What locks do not survive") {
            let times = names(arrangement).filter_map(|name| shown.get(name)).sum::<u64>();
            row(f, &[arrangement, rest, &times.to_string()])?;
        }
        Ok(())
    }

    /// How often two held one lock in the simulation, in the scenarios that bring it about.
    fn overlaps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overlaps = counts(&self.sum("sim"), "not_survived");
        let each =
            overlaps.iter().map(|(scenario, times)| format!("{} in `{scenario}`", grouped(*times)));
        let each = each.collect::<Vec<_>>().join(", ");
        writeln!(
            f,
            "\nIn the simulation, two clients held one lock this often in scenarios that provoke it: {each}."
        )
    }

    fn endings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FACES: [&str; 3] = ["current_thread", "multi_thread", "blocking"];
        row(f, &["how the process ends", FACES[0], FACES[1], FACES[2]])?;
        rule(f, 4)?;
        let rows: Vec<Value> =
            self.part("endings").iter().flat_map(|part| part.endings()).collect();
        for (ending, words) in ENDINGS {
            let found = rows.iter().find(|row| row["ending"] == ending);
            let left = FACES.map(|face| match found {
                Some(row) => match row[face].as_u64() {
                    Some(left) => format!("{left} of {}", row["runs"]),
                    None => "-".to_owned(),
                },
                None => "**not run**".to_owned(),
            });
            row(f, &[words, &left[0], &left[1], &left[2]])?;
        }
        Ok(())
    }

    fn checked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut checked = self.on_both("checked");
        for part in ["deadlocks", "lists"] {
            for (what, times) in counts(&self.sum(part), "checked") {
                *checked.entry(what).or_default() += times;
            }
        }
        statements(f, &checked, CHECKER, "//! Says whether a history")
    }

    fn checked_in_simulation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        statements(f, &counts(&self.sum("sim"), "checked"), SIMULATED, "## What is checked")
    }

    fn planted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, &["fault", "what it breaks", "caught by"])?;
        rule(f, 3)?;
        for fault in self.part("planted").iter().flat_map(|part| part.planted()) {
            let by =
                if fault.caught { fault.by.replace(' ', ", ") } else { "**nothing**".to_owned() };
            row(f, &[&format!("`{}`", fault.name), fault.breaks, &by])?;
        }
        Ok(())
    }
}

impl Page {
    /// The amounts that a reader wants first.
    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, what) in SUMMARY {
            if let Some(part) = self.part(name) {
                writeln!(f, "* **{what}:** {}.", amount(part))?;
            }
        }
        let failed = self.parts.iter().filter(|part| part.run.status != 0);
        let failed = failed.map(|part| &*part.name).chain(self.missing.iter().map(|name| &**name));
        let failed = failed.collect::<Vec<_>>();
        if failed.is_empty() {
            return Ok(());
        }
        writeln!(f, "* **Failed or not run:** {}.", failed.join(", "))
    }

    /// The page with every run.
    pub fn runs(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            writeln!(f, "# The runs of the reliability report\n\n{RUNS}\n")?;
            writeln!(f, "```sh\n{}\n```\n", self.again)?;
            self.parts(f)
        })
    }

    /// The page with every planted fault.
    pub fn faults(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            writeln!(f, "# Planted faults\n\n{PLANTED}\n")?;
            self.planted(f)
        })
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Reliability\n")?;
        writeln!(f, "{INTRODUCTION}\n")?;
        self.summary(f)?;
        writeln!(
            f,
            "\n{}\n\n{REPEATED}\n",
            versions(&self.sum("faults"), &self.sum("faults-valkey"))
        )?;
        writeln!(f, "```sh\n{}\n```\n", self.again)?;
        writeln!(f, "## What locks do not survive\n\n{NOT_SURVIVED}\n")?;
        self.not_survived(f)?;
        self.overlaps(f)?;
        writeln!(f, "\n## What a process leaves behind\n\n{ENDED}\n")?;
        self.endings(f)?;
        writeln!(f, "\n## What locks survive\n\n{SURVIVED}\n")?;
        self.survived(f)?;
        self.lists(f)?;
        self.deployments(f)?;
        self.deadlocks(f)?;
        writeln!(f, "\n## What locks survive in the simulation\n\n{IN_SIMULATION}\n")?;
        self.simulated(f)?;
        writeln!(f, "\n## What was checked\n\n{CHECKED}\n")?;
        self.checked(f)?;
        writeln!(f, "\nThe simulation checks these statements after every step:\n")?;
        self.checked_in_simulation(f)?;
        writeln!(f, "\n## Every await point\n\n{AWAITS}")?;
        writeln!(f, "\n## What went wrong elsewhere\n\n{ELSEWHERE}")
    }
}

/// What a part did, in words.
fn amount(part: &Part) -> String {
    let sum = part.sum();
    let number = |key: &str| grouped(sum[key].as_u64().unwrap_or_default());
    let all_faults = || grouped(counts(&sum, "faults").values().sum());
    match &*part.name {
        "model" => {
            let cases = part.cases();
            let exhausted = cases.iter().filter(|(outcome, _)| *outcome == "exhausted").count();
            let states = grouped(cases.iter().map(|(_, states)| states).sum());
            format!(
                "{exhausted} cases explored to the end, {} that show what must happen or must go wrong; {states} states",
                cases.len() - exhausted,
            )
        }
        "sim" => format!(
            "{:.1} simulated hours, {} runs (seeds {}), {} holds, {} faults, {} violations",
            sum["simulated_hours"].as_f64().unwrap_or_default(),
            number("runs"),
            span(&sum["seeds"]),
            number("holds"),
            all_faults(),
            number("violations"),
        ),
        name if is_faults(name) => format!(
            "{} histories (seeds {}) of {} events, {} calls, {} holds, {} faults, {} violations",
            number("histories"),
            span(&sum["seeds"]),
            number("events"),
            number("calls"),
            number("holds"),
            all_faults(),
            number("violations"),
        ),
        "planted" => {
            let planted = part.planted();
            let caught = planted.iter().filter(|fault| fault.caught).count();
            format!("{caught} of {} caught", planted.len())
        }
        "mutants" => format!(
            "{} mutations in {} files: {} caught, {} not, of which {} are explained; a run goes on where the last one ended",
            number("planted"),
            sum["files"],
            number("killed"),
            grouped(["survived", "unreached"].iter().filter_map(|key| sum[*key].as_u64()).sum()),
            number("explained"),
        ),
        "fuzz" => {
            let executions = counts(&sum, "executions");
            let number = grouped(executions.values().sum());
            format!("{} targets, {number} inputs, {} findings", executions.len(), sum["findings"])
        }
        _ => {
            let (passed, failed) = part.tests();
            format!("{passed} tests passed, {failed} failed")
        }
    }
}

fn is_faults(name: &str) -> bool {
    ["faults", "deadlocks", "lists", "unfenced", "sentinel", "cluster", "short"]
        .contains(&name.split('-').next().unwrap_or(name))
}

/// The first and the last of a list of seeds.
fn span(seeds: &Value) -> String {
    let seeds = seeds.as_array().map(Vec::as_slice).unwrap_or_default();
    match seeds {
        [] => "none".to_owned(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first} to {last}"),
    }
}

fn versions(redis: &Value, valkey: &Value) -> String {
    let server = |sum: &Value| sum["server"].as_str().map(str::to_owned);
    let mut versions: Vec<String> = server(redis).into_iter().chain(server(valkey)).collect();
    versions.push(said(Command::new("rustc").arg("--version")));
    versions.push(said(Command::new("uname").arg("-sr")));
    let processors = std::thread::available_parallelism().map_or(0, |count| count.get());
    format!("With {}, {processors} processors.", versions.join(", "))
}

fn said(command: &mut Command) -> String {
    let output = command.output().expect("a program that is there");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The numbers under `key`, by what they count.
pub(crate) fn counts(sum: &Value, key: &str) -> BTreeMap<String, u64> {
    let counts = sum[key].as_object().into_iter().flatten();
    counts.filter_map(|(what, times)| Some((what.clone(), times.as_u64()?))).collect()
}

/// The rows of the first table behind `heading`: the first cell, and the others.
pub(crate) fn table<'a>(text: &'a str, heading: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let (_, behind) = text.split_once(heading).expect("the heading is there");
    let lines = behind.lines().map(|line| line.trim_start_matches("//! "));
    let rows =
        lines.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).filter_map(|row| row.trim_matches(['|', ' ']).split_once(" | "))
}

/// What is checked, and how often it had something to say.
fn statements(
    f: &mut fmt::Formatter<'_>,
    counted: &BTreeMap<String, u64>,
    text: &str,
    heading: &str,
) -> fmt::Result {
    row(f, &["", "statement", "times"])?;
    rule(f, 3)?;
    for (invariant, rest) in table(text, heading) {
        let times = counted.get(invariant).copied().unwrap_or(0);
        let statement = rest.split(" | ").next().unwrap_or_default();
        row(f, &[invariant, statement, &grouped(times)])?;
    }
    Ok(())
}

/// How often each of the kinds in a cell was there.
pub(crate) fn each(counts: &BTreeMap<String, u64>, kinds: &str) -> String {
    let times = names(kinds).map(|kind| grouped(counts.get(kind).copied().unwrap_or(0)));
    times.collect::<Vec<_>>().join(", ")
}

/// The names between backticks.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

pub(crate) fn row(f: &mut fmt::Formatter<'_>, cells: &[&str]) -> fmt::Result {
    writeln!(f, "| {} |", cells.join(" | "))
}

pub(crate) fn rule(f: &mut fmt::Formatter<'_>, columns: usize) -> fmt::Result {
    writeln!(f, "|{}", "---|".repeat(columns))
}

/// 1234567 as 1 234 567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

pub(crate) const FAULTS: &str = include_str!("../../faults/README.md");
const EXCLUDED: &str = include_str!("../../faults/src/excluded/mod.rs");
const SIMULATED: &str = include_str!("../../sim/README.md");
const CHECKER: &str = include_str!("../../faults/src/checker/mod.rs");

const INTRODUCTION: &str = "\
Can two clients hold a lock at once, can a lock leak, can a waiter get stuck? This page reports what happened when we tried to
cause these failures: with real processes on real servers that fail, a simulation of the real client, a model of the protocol,
hostile input, and faults planted in the library to see whether the tests notice them.";

/// The parts whose amounts come first, and what each of them is.
const SUMMARY: [(&str, &str); 6] = [
    ("faults", "Processes on failing servers, Redis"),
    ("faults-valkey", "The same on Valkey"),
    ("sim", "Simulation"),
    ("model", "Model"),
    ("fuzz", "Hostile input"),
    ("planted", "Planted faults"),
];

const REPEATED: &str = "\
`tests/reliability/RUNS.md` lists every run with its commit and command, and `tests/planted/REPORT.md` every planted fault. This
command repeats the runs and writes the three pages:";

const RUNS: &str = "\
What was run for `RELIABILITY.md`, each part with its commit. A commit that ends in `-dirty` had changes that were not committed
yet. This command repeats the runs:";

const IN_SIMULATION: &str = "\
The simulation (`tests/sim/README.md`) injects these faults. `clear-one`, `clear-all`, `force-unlock`, and crashes that lose
data without a quarantine occur only in scenarios that locks do not survive.";

const AWAITS: &str = "\
The tests drop each public future after its first poll, its second, and so on until it ends, and check that nothing is left:
`tests/it/cancellation.rs` and `tests/it/quorum/refusals.rs` on real servers, `tests/sim/tests/all/sweep.rs` with locks that are
free or held and servers that are slow or dead.";

const SURVIVED: &str = "\
These faults are injected one or two at a time, on one, three and five servers, and each run has its seed
(`tests/faults/README.md`). Locks of all kinds are contended for, permits of a semaphore on one server only. A single violation
of what is checked fails the run.";

const NOT_SURVIVED: &str = "\
Each of these situations is set up so that it certainly happens; the run fails if the lock does *not* break, or if its user does
not learn what this table says. If a holder learns of its loss too late, the token protects the resource
(`examples/fencing_in_sql.rs`).";

const ENDED: &str = "\
A process takes locks and ends. The table shows in how many runs a lock was left on the server, for the rest of its TTL,
after the process had ended (`tests/it/endings.rs`), for each runtime that it used and for the blocking client.";

/// As the tests name them, and in words.
const ENDINGS: [(&str, &str); 11] = [
    ("error", "`main` ends with `?` while a guard lives"),
    ("guard-dropped", "dropping a guard is the last thing done"),
    ("panic", "`main` panics and unwinds while a guard lives"),
    ("guard-in-task", "`main` ends while a task holds a guard"),
    ("guard-outlives-runtime", "a guard is dropped after its runtime"),
    ("many-guards", "a thousand guards are dropped at the end"),
    ("cut-acquisition", "an acquisition is cut off at the end"),
    ("cut-unlock", "an `unlock` is cut off at the end"),
    ("test", "a `#[tokio::test]` ends with one guard alive and one just dropped"),
    ("exit", "`std::process::exit` while a guard lives"),
    ("kill", "SIGKILL while a guard lives"),
];

const CHECKED: &str = "\
Separate processes check these statements against what every process observed and when, on one clock. A fault run that never
tests one of them fails.";

const PLANTED: &str = "\
Each fault breaks one rule of the library in one place, in a copy of the source (`tests/planted/README.md`). A fault that no test
catches is a gap in the tests.";

const ELSEWHERE: &str = "\
[Known failures][known-failures] lists reports about other lock libraries, each with the test that fails if the same happens
here.

[known-failures]: docs/known-failures.md";
