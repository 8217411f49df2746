//! The figures of all rounds, and the table of their medians: a line for each figure, a column for each lock.

use std::fmt;

use leasehold_testkit::bench::figures::{LEAST, Unit, digits, median};

use crate::cell::Row;
use crate::peer::Peer;

/// One figure of one round.
pub(crate) struct Figure {
    what: &'static str,
    unit: Unit,
    /// `None` where there was nothing to measure.
    value: Option<f64>,
    /// To ours.
    compared: bool,
}

impl Figure {
    pub(crate) fn new(what: &'static str, unit: Unit, value: f64) -> Self {
        Self { what, unit, value: value.is_finite().then_some(value), compared: true }
    }

    pub(crate) fn none(what: &'static str, unit: Unit) -> Self {
        Self { what, unit, value: None, compared: true }
    }

    /// It is not compared to ours: a share of one, or no lock's.
    pub(crate) fn alone(self) -> Self {
        Self { compared: false, ..self }
    }
}

/// The figures of a run, in the order in which they came first.
#[derive(Default)]
pub(crate) struct Table {
    lines: Vec<Line>,
    failures: Vec<Failure>,
}

struct Line {
    row: Row,
    what: &'static str,
    unit: Unit,
    compared: bool,
    figures: Vec<(Peer, u32, Option<f64>)>,
}

struct Failure {
    row: Row,
    peer: Peer,
    why: String,
}

impl Table {
    pub(crate) fn add(&mut self, row: Row, peer: Peer, round: u32, figures: Vec<Figure>) {
        for Figure { what, unit, value, compared } in figures {
            let known = self.lines.iter().position(|line| line.row == row && line.what == what);
            let at = known.unwrap_or_else(|| {
                self.lines.push(Line { row, what, unit, compared, figures: Vec::new() });
                self.lines.len() - 1
            });
            self.lines[at].figures.push((peer, round, value));
        }
    }

    /// A cell without figures from now on.
    pub(crate) fn fail(&mut self, row: Row, peer: Peer, why: String) {
        self.failures.push(Failure { row, peer, why });
    }

    pub(crate) fn has_failed(&self, row: Row, peer: Peer) -> bool {
        self.failures.iter().any(|failure| failure.row == row && failure.peer == peer)
    }

    fn cell(&self, line: &Line, peer: Peer) -> String {
        if let Some(why) = line.row.cannot(peer) {
            return format!("– ({why})");
        }
        let failure = self.failures.iter().position(|f| f.row == line.row && f.peer == peer);
        if let Some(number) = failure {
            return format!("– [{}]", number + 1);
        }
        let Some(value) = median(&line.values(peer)) else {
            return "none".into();
        };
        let shown = line.unit.show(value);
        match median(&line.ratios(peer)) {
            Some(ratio) if peer != Peer::Leasehold => format!("{shown} ({})", short(ratio)),
            _ => shown,
        }
    }
}

impl Line {
    fn values(&self, peer: Peer) -> Vec<f64> {
        self.figures.iter().filter(|of| of.0 == peer).filter_map(|of| of.2).collect()
    }

    /// How many times ours it was, in each round.
    fn ratios(&self, peer: Peer) -> Vec<f64> {
        if !self.compared {
            return Vec::new();
        }
        let find = |peer: Peer, round: u32| {
            self.figures.iter().find(|of| of.0 == peer && of.1 == round).and_then(|of| of.2)
        };
        let ratio = |of: &(Peer, u32, Option<f64>)| {
            // A multiple of nearly nothing says nothing.
            let least = if self.unit == Unit::Number { LEAST } else { 0.0 };
            let ours = find(Peer::Leasehold, of.1).filter(|ours| *ours > least)?;
            Some(of.2? / ours)
        };
        self.figures.iter().filter(|of| of.0 == peer).filter_map(ratio).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| row | figure |")?;
        for peer in Peer::ALL {
            write!(f, " {peer} |")?;
        }
        writeln!(f, "\n|-----|--------|{}", "-----:|".repeat(Peer::ALL.len()))?;
        let mut last = None;
        for line in &self.lines {
            let row = if last == Some(line.row) { String::new() } else { line.row.what() };
            last = Some(line.row);
            write!(f, "| {row} | {} |", line.what)?;
            for peer in Peer::ALL {
                write!(f, " {} |", self.cell(line, peer))?;
            }
            writeln!(f)?;
        }
        for (number, Failure { row, peer, why }) in self.failures.iter().enumerate() {
            writeln!(f, "\n[{}] {peer}, {}: {why}", number + 1, row.what())?;
        }
        Ok(())
    }
}

/// A large number in few digits.
fn short(value: f64) -> String {
    if value >= 1e3 { digits(value / 1e3) + " k" } else { digits(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        let mut table = Table::default();
        for (round, ours, theirs) in [(1, 1.0, 2.0), (2, 2.0, 8.0), (3, 1.0, 3.0)] {
            for (peer, value) in [(Peer::Leasehold, ours), (Peer::RLock, theirs)] {
                let figure = Figure::new("lock", Unit::Seconds, value * 1e-6);
                table.add(Row::Free, peer, round, vec![figure]);
            }
        }
        assert_eq!(table.cell(&table.lines[0], Peer::Leasehold), "1.00 µs");
        assert_eq!(table.cell(&table.lines[0], Peer::RLock), "3.00 µs (3.00)");
    }

    #[test]
    fn what_failed_or_cannot_be_done_shows_no_figure() {
        let mut table = Table::default();
        table.add(Row::Nested, Peer::RLock, 1, vec![Figure::new("lock", Unit::Seconds, 1.0)]);
        table.fail(Row::Nested, Peer::RLock, "not done".into());
        assert_eq!(table.cell(&table.lines[0], Peer::RLock), "– [1]");
        assert_eq!(table.cell(&table.lines[0], Peer::Rslock), "– (not reentrant)");
        assert_eq!(table.cell(&table.lines[0], Peer::Leasehold), "none");
    }
}
