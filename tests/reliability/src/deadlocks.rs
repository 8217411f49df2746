//! The part of the page about owners that wait for each other.

use std::fmt;

use crate::page::{Page, grouped, row, rule};

impl Page {
    /// What came of deadlocks, in the simulation and between real processes.
    pub(crate) fn deadlocks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n## Deadlocks\n\n{DEADLOCKS}\n")?;
        let heads = COLUMNS.map(|(_, head)| head);
        row(f, &[&[""], &heads[..]].concat())?;
        rule(f, 1 + COLUMNS.len())?;
        for (part, what) in PARTS {
            let found = &self.sum(part)["deadlocks"];
            let cell = |(key, _): (&str, &str)| match (key, found[key].as_u64()) {
                (_, None) => "**not run**".to_owned(),
                ("longest_ms", Some(ms)) => format!("{:.1} s", ms as f64 / 1000.0),
                (_, Some(number)) => grouped(number),
            };
            let cells = COLUMNS.map(cell);
            let cells: Vec<&str> = [what].into_iter().chain(cells.iter().map(|it| &**it)).collect();
            row(f, &cells)?;
        }
        Ok(())
    }
}

const PARTS: [(&str, &str); 2] =
    [("sim", "in the simulation"), ("deadlocks", "between real processes")];

/// The keys of a summary, and what they are.
const COLUMNS: [(&str, &str); 7] = [
    ("runs", "runs"),
    ("came_about", "came about"),
    ("told", "told"),
    ("told_inside", "of these inside one process"),
    ("never_real", "told, and never real"),
    ("missed", "real for 10 s in a calm, and not told"),
    ("longest_ms", "longest in a calm until it was told"),
];

const DEADLOCKS: &str = "\
Owners take two or three locks one under the other, in any order, so they wait for each other all the time. Real processes are stopped
and killed meanwhile, their connections break, and what they send is lost; in the simulation everything happens that is in the
table below. What is told is compared with what every process observed. A deadlock also ends if somebody in it loses interest,
loses a lock or is killed, so not all that came about are told.";
