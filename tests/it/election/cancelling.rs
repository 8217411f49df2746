//! Every future of an election, dropped after each of its polls: nobody leads then, and the next candidate can.

use std::pin::Pin;
use std::time::Duration;

use leasehold::{Client, Election, Error};

use super::{MS, leading};
use crate::cancellation::drop_after;
use crate::checks::{setup_with_proxy, soon};
use crate::support::{Proxy, Server, nothing_is_left};

type Use = fn(Election) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

const USES: [(&str, Use); 6] = [
    ("campaign", |election| {
        Box::pin(async move {
            let leadership = election.campaign().await?;
            leadership.proclaim("new").await?;
            leadership.resign().await
        })
    }),
    ("campaign_with_timeout", |election| {
        Box::pin(async move {
            drop(election.campaign_with_timeout(Duration::from_secs(5)).await?);
            Ok(())
        })
    }),
    ("run_each_term", |election| {
        Box::pin(async move {
            election.run_each_term(async |leadership| assert!(leadership.is_held())).await
        })
    }),
    ("run", |election| {
        Box::pin(
            async move { election.run(async |leadership| assert!(leadership.is_held())).await },
        )
    }),
    ("leader", |election| Box::pin(async move { election.leader().await.map(drop) })),
    ("observe", |election| {
        Box::pin(async move {
            let mut observer = election.observe();
            observer.changed().await?;
            let leadership = election.with_value("seen").campaign().await?;
            while observer.changed().await?.is_none_or(|leader| &*leader.value != "seen") {}
            leadership.resign().await
        })
    }),
];

struct Scene {
    server: Server,
    // It delays the answers for as long as it lives.
    _proxy: Proxy,
    client: Client,
    other: Client,
}

impl Scene {
    async fn set() -> Self {
        let (server, proxy) = setup_with_proxy().await;
        let client = Client::connect(&proxy.url()).await.expect("connected");
        let other = Client::connect(&server.url()).await.expect("connected");
        proxy.delay_replies(MS);
        Self { server, _proxy: proxy, client, other }
    }

    /// Drops a use after its first poll, its second, and so on, until it ends by itself.
    async fn sweep(&self, name: &str, usage: Use, behind_another: bool) {
        for steps in 0..400 {
            let led = match behind_another {
                true => Some(leading(&self.other.election(name)).await),
                false => None,
            };
            let resigning = async {
                tokio::time::sleep(Duration::from_millis(12)).await;
                if let Some(led) = led {
                    led.resign().await.expect("held");
                }
            };
            let used = drop_after(usage(self.client.election(name)), steps);
            let (ended, ()) = tokio::join!(used, resigning);
            nothing_is_left(&self.server, &self.client, name).await;
            let next = soon("the next leads", self.client.election(name).campaign()).await;
            next.expect("nobody else leads").resign().await.expect("held");
            if let Some(result) = ended {
                result.expect("a use without a drop succeeds");
                println!("{name}: ended after {} polls", steps / 2);
                assert!(steps >= 4, "{name} was never dropped half-way");
                return;
            }
        }
        panic!("{name} does not end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_without_a_leader_survives_a_drop_after_every_poll() {
    let scene = Scene::set().await;
    for (name, usage) in USES {
        scene.sweep(name, usage, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_with_a_leader_survives_a_drop_after_every_poll() {
    let scene = Scene::set().await;
    for (name, usage) in USES {
        scene.sweep(name, usage, true).await;
    }
}
