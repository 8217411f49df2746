//! The part of the page about servers that replicate.

use std::fmt;

use serde_json::Value;

use crate::{
    page::{FAULTS, Page, counts, each, grouped, row, rule, table},
    part::Part,
};

impl Page {
    /// What servers survive that replicate: each fault, and how often it was there in each of these parts.
    fn replicated(
        &self,
        f: &mut fmt::Formatter<'_>,
        parts: &[&Part],
        heading: &str,
        column: impl Fn(&Part, &str) -> String,
    ) -> fmt::Result {
        let sums: Vec<Value> = parts.iter().map(|part| part.sum()).collect();
        let columns = |cell: &dyn Fn(&Value) -> String| sums.iter().map(cell).collect::<Vec<_>>();
        let wide = |first: [&str; 2], cells: Vec<String>| {
            first.into_iter().map(str::to_owned).chain(cells).collect::<Vec<_>>().join(" | ")
        };
        let server = |sum: &Value| sum["server"].as_str().unwrap_or("?").to_owned();
        let heads = parts.iter().zip(&sums).map(|(part, sum)| column(part, &server(sum)));
        row(f, &[&wide(["fault", "what happens"], heads.collect())])?;
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
            let is_of = |part: &&Part| {
                part.name.split('-').next() == Some(deployment) && node_timeout(part).is_none()
            };
            let parts: Vec<&Part> = self.parts.iter().filter(is_of).collect();
            self.replicated(f, &parts, heading, |_, server| format!("on {server}"))?;
        }
        let overlaps = counts(&self.sum("unfenced"), "not_survived");
        let each: Vec<String> =
            overlaps.iter().map(|(name, times)| format!("`{name}` ({times})")).collect();
        writeln!(f, "\n{UNFENCED} {}.", each.join(", "))?;
        self.real_timeouts(f)
    }

    /// What a cluster survives whose nodes take their time to give each other up.
    fn real_timeouts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n### A cluster with real timeouts\n\n{REAL_TIMEOUTS}\n")?;
        let (patient, short): (Vec<&Part>, Vec<&Part>) = self
            .parts
            .iter()
            .filter(|part| node_timeout(part).is_some())
            .partition(|part| part.name.starts_with("cluster-"));
        let heading = "## What locks survive in a cluster with real timeouts";
        self.replicated(f, &patient, heading, |part, server| {
            format!("{}, {server}", node_timeout(part).unwrap_or_default())
        })?;
        let found = short.iter().map(|part| {
            let sum = part.sum();
            let times = |key| counts(&sum, key).values().sum::<u64>();
            let cuts = counts(&sum, "faults").get("cut-off-between-pings").copied();
            let (found, cuts) = (times("not_survived"), cuts.unwrap_or(0));
            format!("{found} of {cuts} cuts at {}", node_timeout(part).unwrap_or_default())
        });
        writeln!(f, "\n{SHORT_GRACE} {}.", found.collect::<Vec<_>>().join(", "))
    }
}

/// As the part's name says: `15s`.
fn node_timeout(part: &Part) -> Option<&str> {
    let last = part.name.rsplit('-').next()?;
    let seconds = last.strip_suffix('s')?;
    seconds.parse::<u32>().is_ok().then_some(last)
}

const REAL_TIMEOUTS: &str = "\
With `cluster-node-timeout` 10000 and 15000, an old master goes on for seconds after its replica has taken over. The cuts come at
moments that make this long. With 10000, clients have the library's defaults: a TTL of 30 s, and a `restart_quarantine` of 40 s; with
15000, the shortest that are safe then: 35.25 s and 43.75 s.";

const SHORT_GRACE: &str = "\
With a `restart_quarantine` that is only as long as the TTL (8 s), two clients may hold one lock: if the old master goes
on for more than half a second. The checker found that after";

const REPLICATED: &str = "\
Real Sentinels and real clusters, each fault on each version of the servers, with the settings that `docs/deployments.md` asks
for and the grace on. Contenders are on both sides of every cut. A fault ends when the servers agree again and the grace is over.";

const UNFENCED: &str = "\
Without `min-replicas-to-write` and without a grace, an old master that lives on grants a lock that the new one grants, too, and
the checker finds the two holders:";
