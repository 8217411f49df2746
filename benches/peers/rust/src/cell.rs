//! One row of one lock: what is asked of the workers, and what their figures mean.

use std::time::Duration;

use leasehold_testkit::bench::clock::{self, Window};
use leasehold_testkit::bench::figures::{Unit, fewest_to_most, median};
use leasehold_testkit::bench::server::{Server, Work};

use crate::Outcome;
use crate::peer::Peer;
use crate::table::Figure;
use crate::workers::{Workers, order};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    Free,
    Nested,
    Crowd,
    Own,
    Drain,
    /// Between so many processes.
    Relay(usize),
    /// The same, with nothing done inside.
    Empty(usize),
}

impl Row {
    pub(crate) const ALL: [Self; 9] = [
        Self::Free,
        Self::Nested,
        Self::Crowd,
        Self::Own,
        Self::Drain,
        Self::Relay(2),
        Self::Relay(4),
        Self::Relay(8),
        Self::Empty(4),
    ];

    pub(crate) fn what(self) -> String {
        match self {
            Self::Free => "free lock".into(),
            Self::Nested => "nested".into(),
            Self::Crowd => format!("{TASKS} on one lock"),
            Self::Own => format!("{TASKS} locks, one each"),
            Self::Drain => format!("{WAITERS} waiters, 1 ms each"),
            Self::Relay(processes) => format!("relay, {processes} processes"),
            Self::Empty(processes) => format!("{processes} processes, nothing done inside"),
        }
    }

    /// Why a lock has no figures here.
    pub(crate) fn cannot(self, peer: Peer) -> Option<&'static str> {
        (self == Self::Nested && !peer.is_reentrant()).then_some("not reentrant")
    }

    fn span(self, quick: bool) -> Duration {
        let (full, short) = match self {
            Self::Free | Self::Nested => (400, 250),
            Self::Crowd => (700, 200),
            Self::Own | Self::Empty(_) => (500, 200),
            Self::Drain | Self::Relay(_) => (1500, 400),
        };
        Duration::from_millis(if quick { short } else { full })
    }

    fn processes(self) -> usize {
        match self {
            Self::Relay(processes) | Self::Empty(processes) => processes,
            _ => 1,
        }
    }

    pub(crate) fn most_processes() -> usize {
        Self::ALL.into_iter().map(Self::processes).max().unwrap_or(1)
    }
}

/// What all cells use.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) workers: Workers,
    pub(crate) quick: bool,
}

/// What is measured, and when.
struct Cell {
    row: Row,
    peer: Peer,
    /// New, so that no cell sees what another one left.
    name: String,
    window: Window,
}

impl Cell {
    /// An order for each of the row's processes.
    fn orders(&self, word: &str, tasks: usize) -> Vec<String> {
        vec![order(word, self.peer.word(), &self.name, tasks, self.window); self.row.processes()]
    }
}

impl Bench {
    /// Measures a row of a lock once.
    pub(crate) async fn cell(&mut self, row: Row, peer: Peer, round: u32) -> Outcome<Vec<Figure>> {
        self.workers.need(peer.program(), row.processes()).await?;
        let name = format!("peers:{round}:{}:{}", row.what().replace(' ', "-"), peer.word());
        let window = Window::soon(row.span(self.quick));
        let cell = Cell { row, peer, name, window };
        match row {
            Row::Free => self.pairs(&cell, "pairs").await,
            Row::Nested => self.pairs(&cell, "nested").await,
            Row::Crowd => self.rush(&cell, "crowd").await,
            Row::Own => self.rush(&cell, "own").await,
            Row::Drain => self.drain(&cell).await,
            Row::Relay(_) => self.relay(&cell, "relay").await,
            Row::Empty(_) => self.relay(&cell, "empty").await,
        }
    }

    async fn pairs(&mut self, cell: &Cell, word: &str) -> Outcome<Vec<Figure>> {
        let (mut reports, work) = self.in_window(cell, &cell.orders(word, 1)).await?;
        let (count, p50) = count_and_p50(&mut reports)?;
        let mut figures = vec![Figure::new("lock + unlock, p50", Unit::Seconds, p50)];
        if cell.row == Row::Free {
            figures.push(self.floor(cell.peer).await?);
        }
        figures.extend(cost(cell.peer, &work, count));
        Ok(figures)
    }

    /// Two round trips of a script that does nothing, from the same process.
    async fn floor(&mut self, peer: Peer) -> Outcome<Figure> {
        let window = Window::soon(Row::Free.span(self.quick) / 2);
        let orders = [order("floor", peer.word(), "-", 1, window)];
        let mut reports = self.workers.ask(peer.program(), &orders, limit(window)).await?;
        let (_, p50) = count_and_p50(&mut reports)?;
        Ok(Figure::new("floor: two empty EVALSHA, p50", Unit::Seconds, p50).alone())
    }

    async fn rush(&mut self, cell: &Cell, word: &str) -> Outcome<Vec<Figure>> {
        let (mut reports, work) = self.in_window(cell, &cell.orders(word, TASKS)).await?;
        let turns = only(&mut reports)?;
        let all: f64 = turns.iter().sum();
        let rate = all / cell.window.seconds();
        let mut figures = vec![Figure::new("acquisitions", Unit::PerSecond, rate)];
        if cell.row == Row::Crowd {
            let share = fewest_to_most(turns.iter().copied());
            figures.push(Figure::new("fewest / most of a task", Unit::Number, share).alone());
        }
        figures.extend(cost(cell.peer, &work, all));
        Ok(figures)
    }

    async fn drain(&mut self, cell: &Cell) -> Outcome<Vec<Figure>> {
        let orders = cell.orders("drain", WAITERS);
        let before = self.server.work().await?;
        let mut reports =
            self.workers.ask(cell.peer.program(), &orders, limit(cell.window)).await?;
        let work = self.server.work().await?.since(&before);
        let mut gaps = only(&mut reports)?;
        let taken = gaps.remove(0);
        let gap = median(&gaps).unwrap_or(f64::NAN) / NANOS;
        let mut figures = vec![Figure::new("a turn, beyond the hold", Unit::Seconds, gap)];
        figures.extend(cost(cell.peer, &work, taken));
        Ok(figures)
    }

    async fn relay(&mut self, cell: &Cell, word: &str) -> Outcome<Vec<Figure>> {
        let (reports, work) = self.in_window(cell, &cell.orders(word, 1)).await?;
        let relay = Relay::of(&reports)?;
        let mut figures = relay.figures(cell.window);
        figures.extend(cost(cell.peer, &work, relay.turns.iter().sum()));
        Ok(figures)
    }

    /// What the workers report, and what the server did in the window.
    async fn in_window(
        &mut self,
        cell: &Cell,
        orders: &[String],
    ) -> Outcome<(Vec<Vec<f64>>, Work)> {
        let reports = self.workers.ask(cell.peer.program(), orders, limit(cell.window));
        tokio::try_join!(reports, self.server.work_in(cell.window))
    }
}

/// How long a row in this window may take from now on, before it is given up.
pub(crate) fn limit(window: Window) -> Duration {
    window.until.saturating_sub(clock::now()) + PATIENCE
}

fn count_and_p50(reports: &mut Vec<Vec<f64>>) -> Outcome<(f64, f64)> {
    match only(reports)?[..] {
        [count, p50] => Ok((count, p50 / NANOS)),
        _ => Err("a report of the wrong length".into()),
    }
}

/// The report of the only worker that was asked.
fn only(reports: &mut Vec<Vec<f64>>) -> Outcome<Vec<f64>> {
    match reports.pop() {
        Some(report) if !report.is_empty() => Ok(report),
        _ => Err("an empty report".into()),
    }
}

/// What the server had to do for each time that the lock was taken.
fn cost(peer: Peer, work: &Work, taken: f64) -> [Figure; 2] {
    [
        Figure::new(
            "commands sent per acquisition",
            Unit::Number,
            work.calls(peer.sends()) / taken,
        ),
        Figure::new("server time per acquisition", Unit::Seconds, work.cpu / taken),
    ]
}

/// The holds of all processes.
struct Relay {
    /// How often each had the lock.
    turns: Vec<f64>,
    /// From the call of one process' unlock until another one holds the lock, in seconds.
    hand_overs: Vec<f64>,
    /// The others: a process that had it takes it again.
    retakes: usize,
}

impl Relay {
    /// Each report has the beginnings and ends of a process' holds.
    fn of(reports: &[Vec<f64>]) -> Outcome<Self> {
        let mut holds = Vec::new();
        for (process, report) in reports.iter().enumerate() {
            holds.extend(report.chunks_exact(2).map(|hold| (hold[0], hold[1], process)));
        }
        holds.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut hand_overs, mut retakes) = (Vec::new(), 0);
        for pair in holds.windows(2) {
            let [(_, left_at, giver), (held_at, _, taker)] = *pair else { continue };
            if held_at < left_at {
                return Err("two processes held the lock at the same time".into());
            }
            if giver == taker {
                retakes += 1;
            } else {
                hand_overs.push((held_at - left_at) / NANOS);
            }
        }
        let turns = reports.iter().map(|report| (report.len() / 2) as f64).collect();
        Ok(Self { turns, hand_overs, retakes })
    }

    fn figures(&self, window: Window) -> Vec<Figure> {
        let rate = self.turns.iter().sum::<f64>() / window.seconds();
        let what = "hand-over to another process, p50";
        let hand_over = match median(&self.hand_overs) {
            Some(p50) => Figure::new(what, Unit::Seconds, p50),
            None => Figure::none(what, Unit::Seconds),
        };
        let passed = self.hand_overs.len() as f64 / (self.hand_overs.len() + self.retakes) as f64;
        let share = fewest_to_most(self.turns.iter().copied());
        vec![
            hand_over,
            Figure::new("share of turns that went to another process", Unit::Number, passed)
                .alone(),
            Figure::new("turns of all processes", Unit::PerSecond, rate),
            Figure::new("fewest / most turns of a process", Unit::Number, share).alone(),
        ]
    }
}

const TASKS: usize = 64;
const WAITERS: usize = 16;
/// How much longer than its window a row may take. Locks whose waiters poll need some of it to come to an end.
const PATIENCE: Duration = Duration::from_secs(15);
/// In a second.
pub(crate) const NANOS: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_of_process_are_hand_overs() {
        let relay = Relay::of(&[vec![0.0, 1e9, 2e9, 3e9], vec![3.5e9, 4e9]]).unwrap();
        assert_eq!(relay.hand_overs, [0.5]);
        assert_eq!(relay.retakes, 1);
        assert_eq!(relay.turns, [2.0, 1.0]);
    }

    #[test]
    fn a_lock_held_twice_is_an_error() {
        assert!(Relay::of(&[vec![0.0, 1e9], vec![0.9e9, 2e9]]).is_err());
    }
}
