//! A use of several locks, dropped after each of its polls: nothing of any of them stays, and the next one gets them.

use std::pin::Pin;
use std::time::Duration;

use leasehold::{Client, Error, Guard, MultiLock};

use super::MS;
use crate::cancellation::drop_after;
use crate::checks::{setup_with_proxy, soon};
use crate::support::{Proxy, Server, nothing_is_left};

type Use = fn(MultiLock) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

const NAMES: [&str; 3] = ["a", "b", "c"];

const USES: [(&str, Use); 4] = [
    ("lock", |locks| Box::pin(async move { locks.lock().await?.unlock().await })),
    ("lock_with_timeout", |locks| {
        Box::pin(async move {
            match locks.lock_with_timeout(Duration::from_secs(5)).await {
                Ok(guard) => guard.unlock().await,
                Err(error) => Err(error),
            }
        })
    }),
    ("try_lock", |locks| {
        Box::pin(async move {
            match locks.try_lock().await? {
                Some(guard) => guard.unlock().await,
                None => Ok(()),
            }
        })
    }),
    ("run", |locks| {
        Box::pin(async move {
            locks.run(async |guard| assert!(guard.is_held())).await?;
            let guard = locks.lock().await?;
            guard.run_until_lost(tokio::time::sleep(MS)).await?;
            guard.unlock().await
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

    async fn check(&self) {
        for name in NAMES {
            nothing_is_left(&self.server, &self.client, name).await;
        }
        let all = soon("the next one gets them", self.client.multi_lock(NAMES).lock()).await;
        all.expect("free").unlock().await.expect("held");
    }

    /// Drops a use after its first poll, its second, and so on, until it ends by itself, behind locks that are held.
    async fn sweep(&self, what: &str, usage: Use, hold: impl AsyncFn() -> Vec<Guard>) {
        for steps in 0..400 {
            let held = hold().await;
            let freeing = async {
                tokio::time::sleep(Duration::from_millis(12)).await;
                for guard in held {
                    guard.unlock().await.expect("held");
                }
            };
            let used = drop_after(usage(self.client.multi_lock(["c", "a", "b"])), steps);
            let (ended, ()) = tokio::join!(used, freeing);
            self.check().await;
            if let Some(result) = ended {
                result.expect("a use without a drop succeeds");
                println!("{what}: ended after {} polls", steps / 2);
                assert!(steps >= 4, "{what} was never dropped half-way");
                return;
            }
        }
        panic!("{what} does not end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_locks_survive_a_drop_after_every_poll() {
    let scene = Scene::set().await;
    for (name, usage) in USES {
        scene.sweep(name, usage, async || Vec::new()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_held_elsewhere_survive_a_drop_after_every_poll() {
    let scene = Scene::set().await;
    let hold = async || {
        let mut held = Vec::new();
        for name in ["b", "c"] {
            held.push(scene.other.mutex(name).lock().await.expect("free"));
        }
        held
    };
    for (name, usage) in USES {
        scene.sweep(name, usage, &hold).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_this_process_holds_survives_a_drop_after_every_poll() {
    let scene = Scene::set().await;
    let hold = async || vec![scene.client.mutex("b").lock().await.expect("free")];
    for (name, usage) in USES {
        scene.sweep(name, usage, &hold).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_that_is_dropped_half_way_still_frees_all() {
    let scene = Scene::set().await;
    for steps in 0..100 {
        let guard = scene.client.multi_lock(NAMES).lock().await.expect("free");
        let ended = drop_after(guard.unlock(), steps).await;
        scene.check().await;
        if let Some(result) = ended {
            result.expect("held");
            assert!(steps >= 4, "unlock was never dropped half-way");
            return;
        }
    }
    panic!("it does not end");
}
