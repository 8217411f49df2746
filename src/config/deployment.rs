//! The kinds of deployments that keep locks, and what differs between them.

use std::time::Duration;

use crate::error::Error;

/// What keeps the locks of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// One server, at the address that the user names.
    #[default]
    Server,
    /// Several independent masters, each at its address (Redlock). There are never one or two.
    Masters(usize),
    /// The masters of a Redis Cluster: each lock is on one of them, which may change.
    Cluster,
    /// The master of a replicated deployment, which its Sentinels name.
    Sentinel,
}

/// The kind of channels on which a [cluster](crate::ClientBuilder::cluster) tells waiters of releases; see
/// [`ClientBuilder::pubsub`](crate::ClientBuilder::pubsub).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[non_exhaustive]
pub enum PubSub {
    /// Sharded channels if the cluster has them (Redis 7 and later) and lets the user ask about them
    /// (`PUBSUB SHARDNUMSUB`), and plain ones otherwise.
    #[default]
    #[cfg_attr(feature = "serde", serde(alias = "auto"))]
    Auto,
    /// Plain channels (`PUBLISH`), whose messages go to all nodes.
    #[doc(alias = "Classic")]
    #[cfg_attr(feature = "serde", serde(alias = "plain"))]
    Plain,
    /// Sharded channels (`SPUBLISH`), whose messages stay at the lock's master and its replicas. Connecting fails if the
    /// cluster has none.
    #[cfg_attr(feature = "serde", serde(alias = "sharded"))]
    Sharded,
}

impl Deployment {
    /// Returns the deployment of the servers that a user named one by one.
    pub(crate) fn of_servers(count: usize) -> Self {
        if count == 1 { Self::Server } else { Self::Masters(count) }
    }

    /// Returns the number of nodes that vote on each lock.
    pub(crate) fn voters(self) -> usize {
        match self {
            Self::Server | Self::Sentinel | Self::Cluster => 1,
            Self::Masters(count) => count,
        }
    }

    /// Returns true if several nodes vote, so that they must agree.
    pub(crate) fn is_quorum(self) -> bool {
        self.voters() > 1
    }

    /// Returns the default for the time during which grants of a server that may have forgotten others do not count.
    pub(super) fn usual_quarantine(self) -> Duration {
        match self {
            Self::Server => Duration::ZERO,
            Self::Masters(_) => USUAL_QUARANTINE,
            Self::Sentinel => USUAL_GRACE,
            Self::Cluster => USUAL_GRACE_OF_CLUSTERS,
        }
    }

    /// Checks the number of nodes. Two nodes stop when either fails, so they are less available than one.
    pub(super) fn check(self) -> Result<(), Error> {
        let problem = match self {
            Self::Masters(0) => "no server was named: call `nodes`",
            Self::Masters(2) => {
                "two servers were named: a majority needs both, so the locks would be unavailable if either \
                 fails; name one, or three"
            }
            Self::Masters(count) if count > MOST_NODES => "more than 31 servers were named",
            _ => return Ok(()),
        };
        Err(Error::config(problem))
    }
}

/// Returns for how long a master of a cluster that is cut off may accept writes beside the one that has replaced it.
///
/// For a master, another one is gone when it has not answered a ping, nor said anything else, for the `cluster-node-timeout`.
/// Masters ping each other twice in that time, so the ping that stays without an answer may be sent up to half of it after the
/// cut. This is so on both sides: the others may replace the master when one such time is over, and it may stop by itself when
/// one and a half are. They look at this several times a second.
pub(crate) fn overlap(node_timeout: Duration) -> Duration {
    node_timeout / 2 + Duration::from_secs(1)
}

/// The default TTL, and as long as clients take at most to leave an old master that lives on, if all is well.
const USUAL_GRACE: Duration = Duration::from_secs(33);
/// The default TTL, and as long as a master that is cut off goes on beside the one that has replaced it, with the default
/// `cluster-node-timeout`: see [`overlap`].
const USUAL_GRACE_OF_CLUSTERS: Duration = Duration::from_secs(40);
/// Twice the default TTL.
const USUAL_QUARANTINE: Duration = Duration::from_secs(60);
/// The highest number of nodes: more would only be slower.
const MOST_NODES: usize = 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_or_three_to_31_can_be_named() {
        let problem = |count| {
            let checked = Deployment::of_servers(count).check();
            checked.map_or_else(|error| error.to_string(), |()| String::new())
        };
        for count in [1, 3, 4, 31] {
            assert_eq!(problem(count), "");
        }
        for (count, why) in [(0, "no server"), (2, "two servers"), (32, "more than 31")] {
            assert!(problem(count).contains(why), "{count}: {}", problem(count));
        }
    }

    #[test]
    fn the_default_quarantine_of_a_cluster_is_enough_for_its_default_timeout() {
        let [ttl, timeout] = [30, 15].map(Duration::from_secs);
        assert_eq!(overlap(timeout), Duration::from_millis(8500));
        assert!(Deployment::Cluster.usual_quarantine() >= ttl + overlap(timeout));
    }

    #[test]
    fn one_node_votes_unless_several_masters_were_named() {
        for (deployment, voters) in [
            (Deployment::of_servers(1), 1),
            (Deployment::of_servers(3), 3),
            (Deployment::Sentinel, 1),
            (Deployment::Cluster, 1),
        ] {
            assert_eq!((deployment.voters(), deployment.is_quorum()), (voters, voters > 1));
        }
    }
}
