//! The part of the page about servers that replicate.

use std::fmt;

use serde_json::Value;

use crate::{
    page::{FAULTS, Page, counts, each, grouped, row, rule, table},
    part::Part,
};

impl Page {
    /// What servers survive that replicate: each fault, and how often it was there on each version.
    fn replicated(
        &self,
        f: &mut fmt::Formatter<'_>,
        deployment: &str,
        heading: &str,
    ) -> fmt::Result {
        let parts: Vec<&Part> = self
            .parts
            .iter()
            .filter(|part| part.name.split('-').next() == Some(deployment))
            .collect();
        let sums: Vec<Value> = parts.iter().map(|part| part.sum()).collect();
        let columns = |cell: &dyn Fn(&Value) -> String| sums.iter().map(cell).collect::<Vec<_>>();
        let wide = |first: [&str; 2], cells: Vec<String>| {
            first.into_iter().map(str::to_owned).chain(cells).collect::<Vec<_>>().join(" | ")
        };
        let server = |sum: &Value| format!("on {}", sum["server"].as_str().unwrap_or("?"));
        row(f, &[&wide(["fault", "what happens"], columns(&server))])?;
        rule(f, 2 + sums.len())?;
        for (kinds, what) in table(FAULTS, heading) {
            let times = |sum: &Value| each(&counts(sum, "faults"), kinds);
            row(f, &[&wide([kinds, what], columns(&times))])?;
        }
        for (key, what) in [("holds", "holds"), ("violations", "**violations**")] {
            let number = |sum: &Value| sum[key].as_u64().map_or("?".to_owned(), grouped);
            row(f, &[&wide([what, ""], columns(&number))])?;
        }
        Ok(())
    }

    pub(crate) fn deployments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part("sentinel").is_none() && self.part("cluster").is_none() {
            return Ok(());
        }
        writeln!(f, "\n## What locks survive where servers replicate\n\n{REPLICATED}")?;
        for (deployment, name, heading) in [
            ("sentinel", "Sentinels", "## What locks survive with Sentinels"),
            ("cluster", "A cluster", "## What locks survive in a cluster"),
        ] {
            writeln!(f, "\n### {name}\n")?;
            self.replicated(f, deployment, heading)?;
        }
        let overlaps = counts(&self.sum("unfenced"), "not_survived");
        let each: Vec<String> =
            overlaps.iter().map(|(name, times)| format!("`{name}` ({times})")).collect();
        writeln!(f, "\n{UNFENCED} {}.", each.join(", "))
    }
}

const REPLICATED: &str = "\
Real Sentinels and real clusters, each fault on each version of the servers, with the settings that `docs/deployments.md` asks
for and the grace on. Contenders are on both sides of every cut. A fault ends when the servers agree again and the grace is over.";

const UNFENCED: &str = "\
Without `min-replicas-to-write` and without a grace, an old master that lives on grants a lock that the new one grants, too, and
the checker finds the two holders:";
