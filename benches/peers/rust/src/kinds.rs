//! Locks that several may hold at once, of leasehold and of Redisson, one after the other.

use std::fmt;
use std::time::Duration;

use leasehold_testkit::bench::clock::Window;
use leasehold_testkit::bench::figures::{Unit, fewest_to_most, median, percentile};
use leasehold_testkit::bench::holds::hand_overs;
use leasehold_testkit::bench::server::Work;

use crate::Outcome;
use crate::cell::{Bench, NANOS, limit};
use crate::peer::Program;
use crate::workers::order;

/// Whose locks are compared.
pub(crate) const COMPARED: [Program; 2] = [Program::Rust, Program::Java];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Readers,
    Permits,
}

/// Measures each kind once, for the programs that are named.
pub(crate) async fn round(bench: &mut Bench, kinds: &mut Kinds, programs: &[Program], round: u32) {
    for row in [Row::Readers, Row::Permits] {
        eprintln!("round {round}, {}", row.what());
        for &program in programs {
            match row.figures(bench, program, round).await {
                Ok(figures) => kinds.add(row, program, figures),
                Err(error) => {
                    let failure = format!("{}, {program:?}: {error} (round {round})", row.what());
                    eprintln!("{failure}");
                    kinds.failures.push(failure);
                }
            }
        }
    }
}

impl Row {
    fn what(self) -> String {
        match self {
            Self::Readers => format!(
                "{} readers in {READING} processes, for 2 ms each, and a writer every 50 ms",
                READING * READERS
            ),
            Self::Permits => format!("{PERMITS} permits, {TAKING} processes, for 1 ms each"),
        }
    }

    async fn figures(
        self,
        bench: &mut Bench,
        program: Program,
        round: u32,
    ) -> Outcome<Vec<Figure>> {
        let name = format!("kinds:{round}:{self:?}:{program:?}");
        let window = Window::soon(if bench.quick { QUICK_SPAN } else { SPAN });
        let order = |word: &str, number: usize| order(word, "-", &name, number, window);
        let orders = match self {
            Self::Readers => {
                let mut orders = vec![order("read", READERS); READING];
                orders.push(order("write", 1));
                orders
            }
            Self::Permits => vec![order("permits", PERMITS); TAKING],
        };
        bench.workers.need(program, orders.len()).await?;
        let reports = bench.workers.ask(program, &orders, limit(window));
        let (reports, work) = tokio::try_join!(reports, bench.server.work_in(window))?;
        match self {
            Self::Readers => read(&reports, &work, window),
            Self::Permits => took(&reports, &work, window),
        }
    }
}

/// Each report of a process that reads has how often each reader read; that of the writer, the last one, when it asked for
/// each write and when it wrote.
fn read(reports: &[Vec<f64>], work: &Work, window: Window) -> Outcome<Vec<Figure>> {
    let (writes, readers) = reports.split_last().ok_or("no reports")?;
    let reads: f64 = readers.iter().flatten().sum();
    // Readers may keep the writer out for longer than the window is.
    let until = window.until.as_nanos() as f64;
    let written = writes.chunks_exact(2).filter(|write| write[1] < until).count();
    let waits: Vec<f64> =
        writes.chunks_exact(2).map(|write| (write[1] - write[0]) / NANOS).collect();
    let (per_second, seconds) = (Unit::PerSecond, Unit::Seconds);
    Ok(vec![
        Figure::new("reads", per_second, [reads / window.seconds()]).aim(Aim::TimesRedisson(10.0)),
        Figure::new("writes", per_second, [written as f64 / window.seconds()]),
        Figure::new("the writer's wait, p50", seconds, waits.clone()),
        Figure::new("the writer's wait, p99", seconds, waits).aim(Aim::Under(0.04)),
        Figure::new("server time per read", seconds, [work.cpu / reads]),
    ])
}

/// Each report has the beginnings and ends of a process' holds.
fn took(reports: &[Vec<f64>], work: &Work, window: Window) -> Outcome<Vec<Figure>> {
    let holds: Vec<(f64, f64)> = reports
        .iter()
        .flat_map(|report| report.chunks_exact(2))
        .map(|hold| (hold[0] / NANOS, hold[1] / NANOS))
        .collect();
    let hand_overs = hand_overs(&holds, PERMITS)?;
    let taken = holds.len() as f64;
    let (per_second, seconds) = (Unit::PerSecond, Unit::Seconds);
    let share = fewest_to_most(reports.iter().map(|report| report.len() as f64));
    Ok(vec![
        Figure::new("acquisitions", per_second, [taken / window.seconds()]),
        Figure::new("hand-over, p50", seconds, hand_overs.clone()),
        Figure::new("hand-over, p99", seconds, hand_overs),
        Figure::new("fewest / most of a process", Unit::Number, [share]).alone(),
        Figure::new("server time per acquisition", seconds, [work.cpu / taken]),
    ])
}

/// One figure of one round.
struct Figure {
    what: &'static str,
    unit: Unit,
    aim: Option<Aim>,
    /// Redisson's to ours.
    compared: bool,
    /// One, or one of each wait.
    values: Vec<f64>,
}

impl Figure {
    fn new(what: &'static str, unit: Unit, values: impl Into<Vec<f64>>) -> Self {
        Self { what, unit, aim: None, compared: true, values: values.into() }
    }

    fn aim(self, aim: Aim) -> Self {
        Self { aim: Some(aim), ..self }
    }

    fn alone(self) -> Self {
        Self { compared: false, ..self }
    }
}

/// What our figure should be.
#[derive(Clone, Copy)]
enum Aim {
    TimesRedisson(f64),
    Under(f64),
}

impl Aim {
    fn is_met(self, ours: Option<f64>, redissons: Option<f64>) -> bool {
        match self {
            Self::TimesRedisson(times) => {
                ours.zip(redissons).is_some_and(|(ours, redissons)| ours > times * redissons)
            }
            Self::Under(most) => ours.is_some_and(|ours| ours < most),
        }
    }

    fn show(self, unit: Unit) -> String {
        match self {
            Self::TimesRedisson(times) => format!("over {times} times Redisson's"),
            Self::Under(most) => format!("under {}", unit.show(most)),
        }
    }
}

/// The figures of all rounds, in the order in which they came first.
#[derive(Default)]
pub(crate) struct Kinds {
    lines: Vec<Line>,
    failures: Vec<String>,
}

struct Line {
    row: Row,
    what: &'static str,
    unit: Unit,
    aim: Option<Aim>,
    compared: bool,
    ours: Vec<f64>,
    redissons: Vec<f64>,
}

impl Kinds {
    fn add(&mut self, row: Row, program: Program, figures: Vec<Figure>) {
        for Figure { what, unit, aim, compared, values } in figures {
            let known = self.lines.iter().position(|line| line.row == row && line.what == what);
            let at = known.unwrap_or_else(|| {
                let (ours, redissons) = (Vec::new(), Vec::new());
                self.lines.push(Line { row, what, unit, aim, compared, ours, redissons });
                self.lines.len() - 1
            });
            let line = &mut self.lines[at];
            let of = if program == Program::Java { &mut line.redissons } else { &mut line.ours };
            of.extend(values);
        }
    }
}

impl Line {
    fn sum_up(&self, values: &[f64]) -> Option<f64> {
        // Of a wait the longest are what counts; a round has many.
        let values =
            if self.what.ends_with("p99") { percentile(values, 0.99) } else { median(values) };
        values.filter(|value| value.is_finite())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, redissons) = (self.sum_up(&self.ours), self.sum_up(&self.redissons));
        let show = |value: Option<f64>| value.map_or("none".into(), |value| self.unit.show(value));
        write!(f, "{} | {} | {}", self.what, show(ours), show(redissons))?;
        let ratio = redissons.zip(ours).map(|(redissons, ours)| redissons / ours);
        if let Some(ratio) = ratio.filter(|ratio| self.compared && ratio.is_finite()) {
            write!(f, " ({})", Unit::Number.show(ratio))?;
        }
        match self.aim {
            None => write!(f, " |"),
            Some(aim) => {
                let missed = if aim.is_met(ours, redissons) { "" } else { ", missed" };
                write!(f, " | {}{missed}", aim.show(self.unit))
            }
        }
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| held by several at once | figure | leasehold | Redisson | aim |")?;
        writeln!(f, "|-----|--------|-----:|-----:|-----|")?;
        let mut last = None;
        for line in &self.lines {
            let row = if last == Some(line.row) { String::new() } else { line.row.what() };
            last = Some(line.row);
            writeln!(f, "| {row} | {line} |")?;
        }
        for failure in &self.failures {
            writeln!(f, "\nNot measured: {failure}")?;
        }
        Ok(())
    }
}

/// How many processes read, and how many readers each has.
const READING: usize = 4;
const READERS: usize = 16;
const PERMITS: usize = 2;
/// How many processes take permits.
const TAKING: usize = 8;
const SPAN: Duration = Duration::from_secs(2);
const QUICK_SPAN: Duration = Duration::from_millis(700);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_holds_at_once_the_third_waits_for_the_first_that_ends() {
        let holds = [(0.0, 4.0), (1.0, 2.0), (2.5, 5.0), (4.25, 6.0)];
        assert_eq!(hand_overs(&holds, 2), Ok(vec![0.5, 0.25]));
        assert!(hand_overs(&holds, 1).is_err(), "two held it at once");
        assert_eq!(hand_overs(&[], 2), Ok(vec![]));
    }

    #[test]
    fn a_write_that_began_after_the_window_is_a_wait_only() {
        let window = Window { from: Duration::ZERO, until: Duration::from_secs(1) };
        let writes = vec![0.0, 0.5 * NANOS, 0.75 * NANOS, 1.25 * NANOS];
        let work = Work::default();
        let figures = read(&[vec![10.0, 20.0], vec![30.0], writes], &work, window).unwrap();
        let values: Vec<&[f64]> = figures.iter().map(|figure| &figure.values[..]).collect();
        assert_eq!(values[..3], [&[60.0][..], &[1.0], &[0.5, 0.5]]);
    }

    #[test]
    fn an_aim_beside_redisson_needs_both_figures() {
        let shown = |redissons: &[f64]| {
            let mut kinds = Kinds::default();
            let figure = |value: &[f64]| {
                vec![Figure::new("reads", Unit::PerSecond, value).aim(Aim::TimesRedisson(10.0))]
            };
            kinds.add(Row::Readers, Program::Rust, figure(&[200.0, 300.0, 400.0]));
            kinds.add(Row::Readers, Program::Java, figure(redissons));
            kinds.to_string()
        };
        assert!(
            shown(&[20.0])
                .contains("reads | 300 /s | 20.0 /s (0.0667) | over 10 times Redisson's |")
        );
        assert!(shown(&[40.0]).contains("40.0 /s (0.13) | over 10 times Redisson's, missed |"));
        assert!(shown(&[]).contains("none | over 10 times Redisson's, missed |"));
    }
}
