//! One lock, used by leasehold and by Redisson at the same time: how they share it.

use std::fmt;
use std::time::Duration;

use leasehold_testkit::bench::clock::Window;
use leasehold_testkit::bench::figures::{Unit, median, percentile};

use crate::Outcome;
use crate::cell::{Bench, NANOS, limit};
use crate::peer::{Peer, Program};
use crate::worker;
use crate::workers::order;

/// Who shares the lock. All clients have their default settings.
struct Mixed {
    what: &'static str,
    /// Processes of each, and how many tasks or threads each process has.
    ours: usize,
    java: usize,
    tasks: usize,
    /// Whether each holds the lock for a millisecond; otherwise nothing is done inside.
    holds: bool,
    /// Whether ours take it by a fair handle.
    fair: bool,
}

const MIXED: [Mixed; 4] = [
    Mixed { what: "4 processes of each, for 1 ms", ours: 4, java: 4, ..ONE_EACH },
    Mixed {
        what: "a process of each with 8 tasks and 8 threads, nothing done inside",
        tasks: 8,
        holds: false,
        ..ONE_EACH
    },
    Mixed {
        what: "1 thread of Redisson beside 8 processes of leasehold, for 1 ms",
        ours: 8,
        ..ONE_EACH
    },
    Mixed { what: "the same with fair handles in leasehold", ours: 8, fair: true, ..ONE_EACH },
];

const ONE_EACH: Mixed = Mixed { what: "", ours: 1, java: 1, tasks: 1, holds: true, fair: false };

/// Lets them share the lock once in each way.
pub(crate) async fn round(bench: &mut Bench, together: &mut Together, round: u32) {
    for mixed in &MIXED {
        eprintln!("round {round}, together on one lock: {}", mixed.what);
        if let Err(error) = mixed.run(bench, together, round).await {
            eprintln!("round {round}, together on one lock: {}: {error}", mixed.what);
            together.failures.push(format!("{}: {error} (round {round})", mixed.what));
        }
    }
}

impl Mixed {
    async fn run(&self, bench: &mut Bench, together: &mut Together, round: u32) -> Outcome<()> {
        bench.workers.need(Program::Rust, self.ours).await?;
        bench.workers.need(Program::Java, self.java).await?;
        let span = if bench.quick { QUICK_SPAN } else { SPAN };
        let window = Window::soon(span);
        let name = format!("together:{round}:{}", self.what.replace(' ', "-"));
        let word = if self.holds { "relay" } else { "crowd" };
        let ours = if self.fair { worker::FAIR } else { Peer::Leasehold.word() };
        let ours = vec![order(word, ours, &name, self.tasks, window); self.ours];
        let java = vec![order(word, Peer::RLock.word(), &name, self.tasks, window); self.java];
        let (ours, java) = bench.workers.ask_together(&ours, &java, limit(window)).await?;

        let (our_turns, java_turns) = if self.holds {
            (count(&ours) / 2.0, count(&java) / 2.0)
        } else {
            (ours.iter().flatten().sum(), java.iter().flatten().sum())
        };
        let all: f64 = our_turns + java_turns;
        let share_aim = (!self.is_uneven()).then_some(Aim::Least(1.0 / 3.0));
        together.add(self.what, "turns", Unit::PerSecond, None, [all / window.seconds()]);
        together.add(self.what, "share of leasehold", Unit::Number, share_aim, [our_turns / all]);
        together.add(self.what, "share of Redisson", Unit::Number, share_aim, [java_turns / all]);
        if self.holds {
            self.add_order(together, Turn::all(&ours, &java)?);
        }
        Ok(())
    }

    /// One thread cannot get a third of the turns beside many who are served in order.
    fn is_uneven(&self) -> bool {
        self.ours != self.java
    }

    fn add_order(&self, together: &mut Together, turns: Vec<Turn>) {
        if self.is_uneven() {
            let what = "turns of leasehold between two of that thread, p99";
            let aim = Some(Aim::Less(10.0));
            together.add(self.what, what, Unit::Number, aim, waits(&turns));
        }
        if self.fair {
            let what = "turns of leasehold that others of it overtook";
            let aim = Some(Aim::Less(1.0));
            together.add(self.what, what, Unit::Number, aim, [overtaken(&turns)]);
        }
    }
}

/// A hold of the lock.
#[derive(Clone, Copy, Debug)]
struct Turn {
    held_at: f64,
    left_at: f64,
    /// The number of the process; `None` for Redisson's.
    of_ours: Option<usize>,
    /// When its process began to wait for it, at the earliest.
    asked_at: f64,
}

impl Turn {
    /// All turns in their order. Each report has the beginnings and ends of a process' holds.
    fn all(ours: &[Vec<f64>], java: &[Vec<f64>]) -> Outcome<Vec<Self>> {
        let ours = ours.iter().enumerate().map(|(process, report)| (Some(process), report));
        let mut turns = Vec::new();
        for (of_ours, report) in ours.chain(java.iter().map(|report| (None, report))) {
            let mut asked_at = 0.0;
            for hold in report.chunks_exact(2) {
                let (held_at, left_at) = (hold[0] / NANOS, hold[1] / NANOS);
                turns.push(Self { held_at, left_at, of_ours, asked_at });
                asked_at = left_at;
            }
        }
        turns.sort_by(|one, other| one.held_at.total_cmp(&other.held_at));
        if turns.windows(2).any(|pair| pair[1].held_at < pair[0].left_at) {
            return Err("two processes held the lock at the same time".into());
        }
        Ok(turns)
    }
}

/// How many turns of ours there were between each two of Redisson's.
fn waits(turns: &[Turn]) -> Vec<f64> {
    let mut waits: Vec<f64> =
        turns.split(|turn| turn.of_ours.is_none()).map(|between| between.len() as f64).collect();
    // The first and the last are not between two.
    waits.pop();
    if !waits.is_empty() {
        waits.remove(0);
    }
    waits
}

/// How many turns of ours came after one whose process had asked clearly later.
fn overtaken(turns: &[Turn]) -> f64 {
    let mut latest = f64::NEG_INFINITY;
    let mut overtaken = 0.0;
    for turn in turns.iter().filter(|turn| turn.of_ours.is_some()) {
        if turn.asked_at + CLEARLY < latest {
            overtaken += 1.0;
        }
        latest = latest.max(turn.asked_at);
    }
    overtaken
}

fn count(reports: &[Vec<f64>]) -> f64 {
    reports.iter().map(Vec::len).sum::<usize>() as f64
}

/// What a figure should be.
#[derive(Clone, Copy)]
enum Aim {
    Least(f64),
    Less(f64),
}

impl Aim {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::Least(least) => value >= least,
            Self::Less(most) => value < most,
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least(least) => write!(f, "at least {least:.2}"),
            Self::Less(most) => write!(f, "under {most}"),
        }
    }
}

/// The figures of all rounds, in the order in which they came first.
#[derive(Default)]
pub(crate) struct Together {
    lines: Vec<Line>,
    failures: Vec<String>,
}

struct Line {
    mixed: &'static str,
    what: &'static str,
    unit: Unit,
    aim: Option<Aim>,
    /// One of each round, or one of each wait.
    values: Vec<f64>,
}

impl Line {
    fn value(&self) -> Option<f64> {
        // Of a wait the longest are what counts; a round has many.
        if self.what.ends_with("p99") {
            percentile(&self.values, 0.99)
        } else {
            median(&self.values)
        }
    }
}

impl Together {
    fn add(
        &mut self,
        mixed: &'static str,
        what: &'static str,
        unit: Unit,
        aim: Option<Aim>,
        values: impl IntoIterator<Item = f64>,
    ) {
        let known = self.lines.iter().position(|line| line.mixed == mixed && line.what == what);
        let at = known.unwrap_or_else(|| {
            self.lines.push(Line { mixed, what, unit, aim, values: Vec::new() });
            self.lines.len() - 1
        });
        self.lines[at].values.extend(values);
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| leasehold and Redisson RLock on one lock | figure | value | aim |")?;
        writeln!(f, "|-----|--------|-----:|-----|")?;
        let mut last = "";
        for line in &self.lines {
            let mixed = if last == line.mixed { "" } else { line.mixed };
            last = line.mixed;
            let value = line.value();
            let shown = value.map_or_else(|| "none".to_owned(), |value| line.unit.show(value));
            write!(f, "| {mixed} | {} | {shown} | ", line.what)?;
            match line.aim {
                None => writeln!(f, "|")?,
                Some(aim) if value.is_some_and(|value| aim.is_met(value)) => {
                    writeln!(f, "{aim} |")?
                }
                Some(aim) => writeln!(f, "{aim}, missed |")?,
            }
        }
        for failure in &self.failures {
            writeln!(f, "\nNot measured: {failure}")?;
        }
        Ok(())
    }
}

/// Long beside the way of a request to the server, so that who asked so much later arrived later.
const CLEARLY: f64 = 0.005;
const SPAN: Duration = Duration::from_secs(2);
const QUICK_SPAN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of 10 ms at these hundredths of a second.
    fn turns(ours: &[&[u32]], java: &[&[u32]]) -> Vec<Turn> {
        let reports = |all: &[&[u32]]| -> Vec<Vec<f64>> {
            let report = |at: &&[u32]| {
                at.iter()
                    .flat_map(|at| [*at, at + 1])
                    .map(|at| f64::from(at) * NANOS / 100.0)
                    .collect()
            };
            all.iter().map(report).collect()
        };
        Turn::all(&reports(ours), &reports(java)).unwrap()
    }

    #[test]
    fn waits_are_between_two_turns_of_redisson() {
        assert_eq!(waits(&turns(&[&[0, 2, 3, 6]], &[&[1, 4, 5]])), [2.0, 0.0]);
        assert_eq!(waits(&turns(&[&[0, 2]], &[&[1]])), [0.0; 0]);
    }

    #[test]
    fn who_asked_later_overtakes_who_asked_before() {
        assert_eq!(overtaken(&turns(&[&[0, 3, 6], &[1, 4, 7], &[2, 5, 8]], &[])), 0.0);
        assert_eq!(overtaken(&turns(&[&[0, 3, 6], &[1, 5, 7], &[2, 4]], &[])), 1.0);
    }

    #[test]
    fn a_figure_is_a_median_and_a_wait_nearly_the_longest() {
        let mut together = Together::default();
        for values in [[0.2, 0.4], [0.5, 0.3]] {
            together.add("two", "share", Unit::Number, Some(Aim::Least(0.3)), values);
            together.add("two", "wait, p99", Unit::Number, Some(Aim::Less(0.5)), values);
        }
        let shown = together.to_string();
        assert!(shown.contains("| two | share | 0.40 | at least 0.30 |\n"), "{shown}");
        assert!(shown.contains("|  | wait, p99 | 0.50 | under 0.5, missed |\n"), "{shown}");
    }
}
