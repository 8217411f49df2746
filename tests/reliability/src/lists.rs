//! The part of the page about masters that change.

use std::fmt;

use crate::page::{FAULTS, Page, counts, each, grouped, row, rule, table};

impl Page {
    /// What happened while an operator made other servers the masters. Nothing, if that was not run.
    pub(crate) fn lists(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part("lists").is_none() {
            return Ok(());
        }
        let sum = self.sum("lists");
        let faults = counts(&sum, "faults");
        writeln!(f, "\n## What locks survive when the masters change\n\n{LISTS}\n")?;
        row(f, &["fault", "what happens", "times"])?;
        rule(f, 3)?;
        for (kinds, what) in table(FAULTS, "## What locks survive when the masters change") {
            row(f, &[kinds, what, &each(&faults, kinds)])?;
        }
        let named = counts(&sum, "checked").get("M1").copied();
        for (what, number) in [
            ("clients that named masters, in use or not", named),
            ("holds", sum["holds"].as_u64()),
            ("**violations**", sum["violations"].as_u64()),
        ] {
            row(f, &[what, "", &number.map_or("?".to_owned(), grouped)])?;
        }
        Ok(())
    }
}

const LISTS: &str = "\
An operator exchanges masters and adds some, one at a time, as `docs/deployments.md` says. Processes with the old list and with the
new one run side by side, are killed, and come back with either, while servers restart and connections break. Whoever names masters
that are not in use must be refused, and told what to do.";
