//! The figures of all rounds, and the table of their medians.

use std::fmt;

pub(crate) use leasehold_testkit::bench::aim::Aim;
use leasehold_testkit::bench::figures::{Unit, median};

/// One figure of one round.
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    floor: Option<f64>,
    pub(crate) ours: f64,
    aim: Option<Aim>,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, unit: Unit, ours: f64) -> Self {
        Self { what: what.into(), unit, floor: None, ours, aim: None }
    }

    pub(crate) fn floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }

    pub(crate) fn aim(mut self, aim: impl Into<Option<Aim>>) -> Self {
        self.aim = aim.into();
        self
    }
}

/// The figures of a run, in the order in which they came first.
pub(crate) struct Table {
    /// What the figures of each line are.
    heads: [&'static str; 2],
    lines: Vec<Line>,
}

struct Line {
    row: u8,
    what: String,
    unit: Unit,
    aim: Option<Aim>,
    floors: Vec<f64>,
    ours: Vec<f64>,
    ratios: Vec<f64>,
}

impl Table {
    pub(crate) fn new(heads: [&'static str; 2]) -> Self {
        Self { heads, lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: u8, figures: Vec<Figure>) {
        for figure in figures {
            let line = self.line(row, &figure);
            line.ours.push(figure.ours);
            if let Some(floor) = figure.floor {
                line.floors.push(floor);
                line.ratios.push(figure.ours / floor);
            }
        }
    }

    fn line(&mut self, row: u8, figure: &Figure) -> &mut Line {
        let known = self.lines.iter().position(|line| line.row == row && line.what == figure.what);
        let at = known.unwrap_or_else(|| {
            self.lines.push(Line {
                row,
                what: figure.what.clone(),
                unit: figure.unit,
                aim: figure.aim,
                floors: Vec::new(),
                ours: Vec::new(),
                ratios: Vec::new(),
            });
            self.lines.len() - 1
        });
        &mut self.lines[at]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.heads;
        writeln!(f, "| row | what | {first} | {second} | ratio | aim |")?;
        writeln!(f, "|----:|------|------:|-----:|------:|-----|")?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, ratio) = (median(&self.ours), median(&self.ratios));
        let shown =
            |value: Option<f64>, unit: Unit| value.map_or(String::new(), |value| unit.show(value));
        let aim = match self.aim {
            None => String::new(),
            Some(aim) => {
                let missed = if aim.is_met(ours, ratio) { "" } else { ", missed" };
                aim.show(self.unit) + missed
            }
        };
        write!(
            f,
            "| {} | {} | {} | {} | {} | {aim} |",
            self.row,
            self.what,
            shown(median(&self.floors), self.unit),
            shown(ours, self.unit),
            shown(ratio, Unit::Number),
        )
    }
}
