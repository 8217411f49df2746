//! What the Sentinels report about a deployment, for `Client::check`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::views::Announced;
use super::{Sentinels, State};
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::node::commands::Commands;
use crate::script::Reply;

/// What decides about a failover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchFacts {
    /// How long the master may be silent before it counts as down.
    pub(crate) down_after: Option<Duration>,
    /// The priority of each replica: the lowest number is promoted first.
    pub(crate) priorities: Vec<u64>,
}

/// Sentinels, each with the master that it names.
pub(crate) struct NamedMasters<'a>(pub(crate) &'a [(Arc<str>, String)]);

impl fmt::Display for NamedMasters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (sentinel, master)) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{sentinel} names {master}")?;
        }
        Ok(())
    }
}

impl Sentinels {
    /// Returns who names which master, if they have disagreed for long. Asks nobody.
    pub(in crate::node) fn disagreement(&self) -> Option<Vec<(Arc<str>, String)>> {
        let (state, now) = (self.state.lock(), self.clock.now());
        state.views.disagree(now).then(|| self.named(&state, now))
    }

    /// Returns the Sentinels that answer, each with the master that it names.
    pub(super) fn named(&self, state: &State, now: Timestamp) -> Vec<(Arc<str>, String)> {
        let named = state.views.named(now);
        named.map(|(index, at)| (self.sentinels[index].address.clone(), at.to_string())).collect()
    }

    /// Returns what the first of them reports that answers within `limit`. `None` if none of them lets the user ask.
    pub(in crate::node) async fn facts(&self, limit: Duration) -> Option<WatchFacts> {
        let until = self.clock.now().plus(limit);
        let all = (0..self.sentinels.len()).map(|index| self.facts_of(index, limit, until));
        let mut all: FuturesUnordered<_> = all.collect();
        while let Some(facts) = all.next().await {
            if let Ok(facts) = facts {
                return Some(facts);
            }
        }
        None
    }

    async fn facts_of(
        &self,
        index: usize,
        limit: Duration,
        until: Timestamp,
    ) -> Result<WatchFacts, Fault> {
        let sentinel = &self.sentinels[index];
        let made = sentinel.commands(&self.clock, &Arc::default(), limit, until).await?;
        let commands = Commands::new(made, sentinel.greeting.secrets.clone());
        let [master, replicas] = ["MASTER", "SLAVES"].map(|verb| commands.send(self.about(verb)));
        let silence = || Err(Fault::NoAnswer(limit));
        let master = self.clock.until(until, master).await.unwrap_or_else(silence)?;
        let replicas = self.clock.until(until, replicas).await.unwrap_or_else(silence)?;
        let down_after = number_in(&master, "down-after-milliseconds").map(Duration::from_millis);
        let replicas = replicas.list().unwrap_or_default().iter();
        let priorities =
            replicas.filter_map(|replica| number_in(replica, "slave-priority")).collect();
        Ok(WatchFacts { down_after, priorities })
    }
}

/// Returns the number with this name in a list of names and values.
pub(super) fn number_in(reply: &Reply, name: &str) -> Option<u64> {
    value_in(reply, name)?.number()?.try_into().ok()
}

/// Returns the run of the server at `at`, if what a Sentinel tells about the master is about that server: during a failover
/// it may still be about the old one.
pub(super) fn run_of(at: &Announced, about: &Reply) -> Option<Arc<str>> {
    let is_it = value_in(about, "ip")?.text()? == &*at.host
        && number_in(about, "port")? == u64::from(at.port);
    // It is empty before the Sentinel has heard from the server.
    let run = value_in(about, "runid")?.text().filter(|run| is_it && !run.is_empty());
    run.map(Arc::from)
}

fn value_in<'a>(reply: &'a Reply, name: &str) -> Option<&'a Reply> {
    let mut pairs = reply.list()?.chunks_exact(2);
    pairs.find(|pair| pair[0].text() == Some(name)).map(|pair| &pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_name_and_not_by_a_value() {
        let words = ["quorum", "epoch", "epoch", "7", "flags", "master", "odd"];
        let reply = Reply::List(words.map(|word| Reply::Text(word.to_owned())).to_vec());
        assert_eq!(number_in(&reply, "epoch"), Some(7));
        for name in ["quorum", "flags", "odd", "none"] {
            assert_eq!(number_in(&reply, name), None, "{name}");
        }
        assert_eq!(number_in(&Reply::Nil, "epoch"), None);
    }

    #[test]
    fn a_run_is_that_of_the_server_that_was_named() {
        let run = |ip: &str, port: &str, run: &str| {
            let words = ["ip", ip, "port", port, "runid", run];
            let about = Reply::List(words.map(|word| Reply::Text(word.to_owned())).to_vec());
            run_of(&Announced::read("a", 7).expect("an address"), &about)
        };
        assert_eq!(run("a", "7", "f00").as_deref(), Some("f00"));
        for other in [run("b", "7", "f00"), run("a", "8", "f00"), run("a", "7", "")] {
            assert_eq!(other, None);
        }
        let at = Announced::read("a", 7).expect("an address");
        assert_eq!(run_of(&at, &Reply::List(Vec::new())), None);
    }
}
