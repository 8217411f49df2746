//! A replicated deployment whose first master is killed.

use std::time::Duration;

use leasehold::{Client, ClientBuilder};
use leasehold_testkit::{Cluster, Deployment, MASTER, Server, eventually};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sentinel,
    Cluster,
}

pub(crate) enum Place {
    /// A master with two replicas, and three Sentinels.
    Sentinel(Deployment),
    /// Three masters with one replica each. It is the first of them that is killed, and all locks are there.
    Cluster(Cluster),
}

impl Place {
    /// Starts one that replaces a master which is silent for so long.
    pub(crate) async fn start(kind: Kind, silence: Duration) -> Self {
        match kind {
            Kind::Sentinel => Self::Sentinel(sentinels(silence).await),
            Kind::Cluster => Self::Cluster(cluster(silence).await),
        }
    }

    /// Clients without a grace; their servers have just started.
    pub(crate) fn builder(&self) -> ClientBuilder {
        match self {
            Self::Sentinel(deployment) => behind(deployment),
            Self::Cluster(cluster) => {
                Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO)
            }
        }
    }

    /// How Redisson is told of it.
    pub(crate) fn told_to_redisson(&self) -> (&'static str, Vec<String>) {
        match self {
            Self::Sentinel(deployment) => {
                let mut nodes = vec![MASTER.to_owned()];
                nodes.extend(deployment.sentinel_urls());
                ("sentinel", nodes)
            }
            Self::Cluster(cluster) => ("cluster", cluster.urls()),
        }
    }

    /// The command that counts the listeners of a lock's channel.
    pub(crate) fn count_listeners(&self) -> &'static str {
        match self {
            Self::Sentinel(_) => "NUMSUB",
            Self::Cluster(_) => "SHARDNUMSUB",
        }
    }

    pub(crate) fn master(&self) -> &Server {
        match self {
            Self::Sentinel(deployment) => deployment.master(),
            Self::Cluster(cluster) => cluster.master(0),
        }
    }

    /// One of them takes over.
    pub(crate) fn replicas(&self) -> Vec<&Server> {
        match self {
            Self::Sentinel(deployment) => {
                deployment.servers[1..].iter().map(|server| &**server).collect()
            }
            Self::Cluster(cluster) => vec![cluster.replica(0)],
        }
    }

    /// A name of a lock that the master has.
    pub(crate) fn name(&self, stem: &str) -> String {
        match self {
            Self::Sentinel(_) => stem.to_owned(),
            Self::Cluster(cluster) => cluster.name_on(0, stem),
        }
    }

    /// Waits until the replicas have everything that was written so far.
    pub(crate) async fn is_followed(&self) {
        let (mark, replicas) = (self.name("followed"), self.replicas().len() as u64);
        eventually(Duration::from_secs(30), "the replicas follow", async || {
            let mut raw = self.master().raw().await;
            let mut pipeline = redis::pipe();
            pipeline.cmd("SET").arg(&mark).arg(1).ignore().cmd("WAIT").arg(replicas).arg(100);
            let (acked,): (u64,) = pipeline.query_async(&mut raw).await.expect("answered");
            acked == replicas
        })
        .await;
    }
}

/// Clients without a grace, which ask the Sentinels for the master.
pub(crate) fn behind(deployment: &Deployment) -> ClientBuilder {
    let builder = Client::builder().sentinel(MASTER, deployment.sentinel_urls());
    builder.restart_quarantine(Duration::ZERO)
}

/// A master with two replicas, and Sentinels that wait for so long until they consider it down.
pub(crate) async fn sentinels(down_after: Duration) -> Deployment {
    let deployment = Deployment::with(2, 3, &[]).await;
    let ms = down_after.as_millis().to_string();
    for sentinel in &deployment.sentinels {
        sentinel.command(&["SENTINEL", "SET", MASTER, "down-after-milliseconds", &ms]).await;
        // The tests make them talk more often. Servers before 7.0 do not know it.
        let usual = ["SENTINEL", "DEBUG", "INFO-PERIOD", "10000", "PUBLISH-PERIOD", "2000"];
        let _ = sentinel.try_command(&usual).await;
    }
    deployment
}

/// Masters of a cluster that wait for so long until they consider another one down.
pub(crate) async fn cluster(node_timeout: Duration) -> Cluster {
    let cluster = Cluster::start().await;
    let ms = node_timeout.as_millis().to_string();
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "cluster-node-timeout", &ms]).await;
    }
    cluster
}
