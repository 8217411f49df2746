//! What the Sentinels report about a deployment, for `Client::check`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::Sentinels;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::node::link::Commands;
use crate::script::Reply;

/// What decides about a failover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchFacts {
    /// How long the master may be silent before it counts as down.
    pub(crate) down_after: Option<Duration>,
    /// The priority of each replica: the lowest number is promoted first.
    pub(crate) priorities: Vec<u64>,
}

impl Sentinels {
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
    let pairs = reply.list()?.chunks_exact(2);
    let mut named = pairs.filter(|pair| pair[0].text() == Some(name));
    named.next()?[1].number()?.try_into().ok()
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
}
