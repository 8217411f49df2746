//! One part of the run: how it was called, how it ended, and what it said.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug)]
pub struct Part {
    pub name: String,
    pub run: Run,
    log: String,
}

/// As `scripts/reliability` writes it.
#[derive(Debug, Deserialize)]
pub struct Run {
    pub command: String,
    pub commit: String,
    pub began: String,
    pub seconds: u64,
    pub status: i32,
}

/// A fault that was planted, and whether it was caught.
#[derive(Debug)]
pub struct Planted<'a> {
    pub caught: bool,
    pub name: &'a str,
    pub breaks: &'a str,
    pub by: &'a str,
}

impl Part {
    /// `None` if it was not run.
    pub fn read(results: &Path, name: &str) -> Option<Self> {
        let dir = results.join(name);
        let run = serde_json::from_str(&fs::read_to_string(dir.join("part.json")).ok()?);
        Some(Self {
            name: name.to_owned(),
            run: run.expect("as scripts/reliability writes it"),
            log: fs::read_to_string(dir.join("log")).expect("a part has a log"),
        })
    }

    /// The sum that the last line is; nothing if the run broke off before.
    pub fn sum(&self) -> Value {
        let last = self.log.lines().rev().find(|line| line.starts_with('{'));
        last.and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
    }

    /// How many tests passed, and how many did not.
    pub fn tests(&self) -> (u64, u64) {
        let results = self.log.lines().filter_map(|line| line.strip_prefix("test result: "));
        results.fold((0, 0), |(passed, failed), line| {
            (passed + number_before(line, " passed"), failed + number_before(line, " failed"))
        })
    }

    /// The cases of the model: outcome, and how many states were looked at.
    pub fn cases(&self) -> Vec<(&str, u64)> {
        let rows = self.log.lines().filter_map(|line| line.split_once("| "));
        rows.filter_map(|(_, row)| match row.split(" | ").collect::<Vec<_>>()[..] {
            [_, _, outcome, states, seconds] if seconds.ends_with(" s |") => {
                Some((outcome, states.parse().ok()?))
            }
            _ => None,
        })
        .collect()
    }

    /// How processes ended, and in how many runs something was left behind.
    pub fn endings(&self) -> Vec<Value> {
        let rows =
            self.log.lines().filter_map(|line| line.find("{\"ending\"").map(|at| &line[at..]));
        rows.filter_map(|row| serde_json::from_str(row).ok()).collect()
    }

    pub fn planted(&self) -> Vec<Planted<'_>> {
        let tried = self.log.lines().filter_map(|line| {
            let (caught, rest) = match line.strip_prefix("caught  ") {
                Some(rest) => (true, rest),
                None => (false, line.strip_prefix("MISSED  ")?),
            };
            let (name, rest) = rest.split_once(": ")?;
            let (breaks, by) = rest.rsplit_once(" (by ").unwrap_or((rest, "nothing"));
            Some(Planted { caught, name, breaks, by: by.trim_end_matches(')') })
        });
        tried.collect()
    }
}

fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
