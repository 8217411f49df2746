//! The figures of all trials, and the table of their medians and of the worst.

use std::fmt;

use leasehold_testkit::bench::aim::Aim;
use leasehold_testkit::bench::figures::{Unit, median};

/// One figure of one trial.
pub(crate) struct Figure {
    row: u8,
    what: String,
    /// Whose it is.
    of: &'static str,
    unit: Unit,
    /// Infinite if it did not happen while it was waited for.
    value: f64,
    beside: Option<f64>,
    aim: Option<Aim>,
}

impl Figure {
    pub(crate) fn new(
        row: u8,
        what: impl Into<String>,
        of: &'static str,
        unit: Unit,
        value: f64,
    ) -> Self {
        Self { row, what: what.into(), of, unit, value, beside: None, aim: None }
    }

    /// The figure of the same trial that it is compared with.
    pub(crate) fn beside(mut self, other: f64) -> Self {
        self.beside = Some(other);
        self
    }

    pub(crate) fn aim(mut self, aim: Aim) -> Self {
        self.aim = Some(aim);
        self
    }
}

/// The figures of a run, by rows, and within a row in the order in which they came first.
#[derive(Default)]
pub(crate) struct Table {
    lines: Vec<Line>,
}

struct Line {
    row: u8,
    what: String,
    of: &'static str,
    unit: Unit,
    aim: Option<Aim>,
    values: Vec<f64>,
    ratios: Vec<f64>,
}

impl Table {
    pub(crate) fn add(&mut self, figures: Vec<Figure>) {
        for figure in figures {
            let line = self.line(&figure);
            line.values.push(figure.value);
            line.ratios.extend(figure.beside.map(|beside| figure.value / beside));
        }
    }

    fn line(&mut self, figure: &Figure) -> &mut Line {
        let is_its =
            |line: &Line| (line.row, &line.what, line.of) == (figure.row, &figure.what, figure.of);
        let at = self.lines.iter().position(is_its).unwrap_or_else(|| {
            let at = self.lines.partition_point(|line| line.row <= figure.row);
            let line = Line {
                row: figure.row,
                what: figure.what.clone(),
                of: figure.of,
                unit: figure.unit,
                aim: figure.aim,
                values: Vec::new(),
                ratios: Vec::new(),
            };
            self.lines.insert(at, line);
            at
        });
        &mut self.lines[at]
    }
}

impl Line {
    /// More is better of rates only.
    fn worst(&self) -> f64 {
        let values = self.values.iter().copied();
        match self.unit {
            Unit::PerSecond => values.fold(f64::INFINITY, f64::min),
            _ => values.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn show(&self, value: f64) -> String {
        match self.unit {
            _ if value.is_infinite() => "too long".to_owned(),
            Unit::Seconds if value.abs() >= 1.0 => format!("{value:.2} s"),
            unit => unit.show(value),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| row | what | of | median | worst | trials | ratio | aim |")?;
        writeln!(f, "|----:|------|----|-------:|------:|-------:|------:|-----|")?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = median(&self.ratios).filter(|ratio| ratio.is_finite());
        let aim = match self.aim {
            None => String::new(),
            // The worst trial must meet it, or the median of the ratios.
            Some(aim) => {
                let missed = if aim.is_met(Some(self.worst()), ratio) { "" } else { ", missed" };
                aim.show(self.unit) + missed
            }
        };
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} | {aim} |",
            self.row,
            self.what,
            self.of,
            self.show(median(&self.values).unwrap_or_default()),
            self.show(self.worst()),
            self.values.len(),
            ratio.map_or(String::new(), |ratio| Unit::Number.show(ratio)),
        )
    }
}
