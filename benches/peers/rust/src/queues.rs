//! Queues and latches of leasehold, of Redisson and of apalis-redis, one after the other: `scripts/bench-peers --queues`.

use std::fmt;
use std::time::{Duration, Instant};

use leasehold_testkit::bench::clock::Window;
use leasehold_testkit::bench::figures::{Unit, median, percentile};
use leasehold_testkit::bench::machine::machine;

use crate::Outcome;
use crate::cell::{Bench, NANOS, limit};
use crate::peer::{Peer, Program};
use crate::worker::{APALIS, TASKS};
use crate::workers::order;

const APALIS_REDIS: &str = "1.0.0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Leasehold,
    Redisson,
    Apalis,
}

impl Library {
    const ALL: [Self; 3] = [Self::Leasehold, Self::Redisson, Self::Apalis];

    fn program(self) -> Program {
        if self == Self::Redisson { Program::Java } else { Program::Rust }
    }

    /// What it is called in the workers' orders.
    fn word(self) -> &'static str {
        if self == Self::Apalis { APALIS } else { Peer::Leasehold.word() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    HandOver,
    Many,
    Latch,
}

impl Row {
    const ALL: [Self; 3] = [Self::HandOver, Self::Many, Self::Latch];

    fn what(self) -> String {
        match self {
            Self::HandOver => {
                "a push until a worker that waits in another process has the item".into()
            }
            Self::Many => {
                format!(
                    "{TASKS} producers in a process and {TASKS} workers in another, {EACH} items each"
                )
            }
            Self::Latch => {
                "the last count of a latch until who waits in another process goes on".into()
            }
        }
    }

    /// What the process that changes something does, and the one that waits for it.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::HandOver => ["offer", "take"],
            Self::Many => ["fill", "empty"],
            Self::Latch => ["open", "wait"],
        }
    }

    fn has(self, library: Library) -> bool {
        self != Self::Latch || library != Library::Apalis
    }

    async fn values(self, bench: &mut Bench, library: Library, round: u32) -> Outcome<Vec<f64>> {
        // apalis reads a colon in a name as its end.
        let name = format!("queues-{round}-{self:?}-{library:?}");
        let program = library.program();
        bench.workers.need(program, 2).await?;
        let window = Window::soon(if bench.quick { QUICK_SPAN } else { SPAN });
        let each = if bench.quick { EACH / 4 } else { EACH };
        let orders = self.words().map(|word| order(word, library.word(), &name, each, window));
        let reports = bench.workers.ask(program, &orders, limit(window)).await?;
        match self {
            Self::HandOver => Ok(reports[1].iter().map(|span| span / NANOS).collect()),
            Self::Many => {
                let done_at = reports[1].first().ok_or("no time")? / NANOS;
                Ok(vec![(TASKS * each) as f64 / (done_at - window.from.as_secs_f64())])
            }
            Self::Latch => Ok(spans(&reports[0], &reports[1])),
        }
    }
}

/// From when each latch was opened until its waiter went on, of those that the waiter had begun to wait for clearly before.
fn spans(opened: &[f64], waits: &[f64]) -> Vec<f64> {
    let waits = waits.chunks_exact(2);
    let spans = opened.iter().zip(waits).filter(|(opened, wait)| {
        let began_at = wait[0] + CLEARLY * NANOS;
        (began_at..wait[1]).contains(*opened)
    });
    spans.map(|(opened, wait)| (wait[1] - opened) / NANOS).collect()
}

/// All of it: a short run of its own.
pub(crate) async fn bench(bench: &mut Bench, rounds: u32) -> Outcome<()> {
    let began_at = Instant::now();
    let mut table = Table::default();
    // Java's code is compiled in the first one, whose figures are not kept.
    for round in 0..=rounds {
        for row in Row::ALL {
            eprintln!("round {round}, {}", row.what());
            let mut libraries = Library::ALL;
            // Whoever comes first after another row should not always be the same.
            libraries.rotate_left(round as usize % Library::ALL.len());
            for library in libraries.into_iter().filter(|library| row.has(*library)) {
                match row.values(bench, library, round).await {
                    Ok(values) if round > 0 => table.cells.push((row, library, values)),
                    Ok(_) => {}
                    Err(error) => {
                        let failure =
                            format!("{}, {library:?}: {error} (round {round})", row.what());
                        eprintln!("{failure}");
                        table.failures.push(failure);
                    }
                }
            }
        }
    }
    println!("{table}");
    println!(
        "Of {rounds} rounds; in brackets how many times leasehold's figure that is. {} s in all.",
        began_at.elapsed().as_secs()
    );
    println!(
        "{}; {}, on the same machine; {}; apalis-redis {APALIS_REDIS}.\n",
        machine(),
        bench.server.version().await?,
        bench.workers.say()
    );
    print!("{}", promises());
    Ok(())
}

/// The values of all rounds.
#[derive(Default)]
struct Table {
    cells: Vec<(Row, Library, Vec<f64>)>,
    failures: Vec<String>,
}

impl Table {
    fn values(&self, row: Row, library: Library) -> Vec<f64> {
        let cells = self.cells.iter().filter(|cell| cell.0 == row && cell.1 == library);
        cells.flat_map(|cell| cell.2.iter().copied()).collect()
    }

    fn line(
        &self,
        row: Row,
        what: &str,
        unit: Unit,
        sum_up: impl Fn(&[f64]) -> Option<f64>,
    ) -> String {
        let mut line = format!("{what} |");
        let ours = sum_up(&self.values(row, Library::Leasehold));
        for library in Library::ALL {
            let value = sum_up(&self.values(row, library));
            line += &match (value, ours) {
                _ if !row.has(library) => " – (has none) |".to_owned(),
                (None, _) => " none |".to_owned(),
                (Some(value), Some(ours)) if library != Library::Leasehold => {
                    format!(" {} ({}) |", unit.show(value), Unit::Number.show(value / ours))
                }
                (Some(value), _) => format!(" {} |", unit.show(value)),
            };
        }
        line
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| queues and latches | figure | leasehold | Redisson | apalis-redis |")?;
        writeln!(f, "|-----|--------|-----:|-----:|-----:|")?;
        for row in Row::ALL {
            let what = row.what();
            if row == Row::Many {
                let line = self.line(row, "items done", Unit::PerSecond, median);
                writeln!(f, "| {what} | {line}")?;
                continue;
            }
            let middle = self.line(row, "p50", Unit::Seconds, median);
            let longest = self.line(row, "p99", Unit::Seconds, |all| percentile(all, 0.99));
            writeln!(f, "| {what} | {middle}\n|  | {longest}")?;
        }
        for failure in &self.failures {
            writeln!(f, "\nNot measured: {failure}")?;
        }
        Ok(())
    }
}

/// What each of them promises. Read in the sources of the versions that a test here and one of `promises.rs` name.
fn promises() -> String {
    let questions = [
        "an item whose worker dies",
        "a worker that has lost its item",
        "what fails again and again",
        "a message that is lost",
        "used here",
    ];
    let answers = [
        (
            "leasehold `Queue`",
            [
                "is delivered again when its lease ends: the lease lasts for 30 s and is renewed every 10 s",
                "is told: `lost()`, `run_until_lost`; its `ack` fails, and the item stays with the next one",
                "`reject`, or `with_max_deliveries`: dead letters, which can be listed and delivered again",
                "a poll every 2 to 4 s",
                "`push`, `pop`, `ack`, default settings",
            ],
        ),
        (
            "Redisson `RBlockingQueue`",
            [
                "is lost: `take` removes it from the server",
                "cannot be told, as nothing is lent",
                "nothing",
                "sends none: the server answers who waits",
                "`put`, `take`, `StringCodec`, default settings; there is nothing to acknowledge",
            ],
        ),
        (
            "apalis-redis",
            [
                "goes back when another worker sees that this one has sent no heartbeat for 300 s",
                "is not told; the script that writes its result fails, which ends the worker",
                "tried again after as many seconds as it was tried before, 25 times at most, then dead; what is done stays on the server until `vacuum`",
                "sends none for an item that is pushed: a worker polls, or looks every 30 s only",
                "`push`; one worker with `poll_with_interval` of 10 ms and `parallelize(tokio::spawn)`, default settings: it takes ten at \
                 once, acknowledges several by one script, and an item counts as done before that",
            ],
        ),
        (
            "leasehold `Latch`",
            [
                "–",
                "–",
                "a latch that ends or is lost with its server does not open: who waits gets `Error::Lost`",
                "a poll every 2 to 4 s",
                "`try_set_count(1, 60 s)`, `count_down`, `wait`",
            ],
        ),
        (
            "Redisson `RCountDownLatch`",
            [
                "–",
                "–",
                "a latch has no end of its own; one that its server has lost is open",
                "no timer: `await()` waits for the next message",
                "`trySetCount(1)`, `countDown()`, `await()`",
            ],
        ),
    ];
    let mut text =
        format!("| | {} |\n|{}\n", questions.join(" | "), "---|".repeat(1 + questions.len()));
    for (who, answers) in answers {
        text += &format!("| {who} | {} |\n", answers.join(" | "));
    }
    text
}

/// Items of each producer.
const EACH: usize = 200;
/// Long beside the subscription of who waits.
const CLEARLY: f64 = 0.002;
const SPAN: Duration = Duration::from_secs(1);
const QUICK_SPAN: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latch_counts_if_it_was_opened_while_somebody_waited() {
        let [at, early, late] = [10e6, 20e6, 30e6];
        let opened = [at, early, late];
        let waits = [1e6, 10.5e6, 19e6, 21e6, 20e6, 29e6];
        assert_eq!(spans(&opened, &waits), [0.5e-3]);
    }

    #[test]
    fn the_version_that_was_read_is_the_one_that_runs() {
        let locked = include_str!("../../../../Cargo.lock");
        let entry = format!("name = \"apalis-redis\"\nversion = \"{APALIS_REDIS}\"\n");
        assert!(locked.contains(&entry), "apalis-redis {APALIS_REDIS} is not what runs");
    }

    #[test]
    fn a_library_without_latches_has_no_figure_there() {
        let mut table = Table::default();
        table.cells.push((Row::Latch, Library::Leasehold, vec![1e-3]));
        table.cells.push((Row::Latch, Library::Redisson, vec![2e-3]));
        let line = table.line(Row::Latch, "p50", Unit::Seconds, median);
        assert_eq!(line, "p50 | 1.00 ms | 2.00 ms (2.00) | – (has none) |");
    }
}
