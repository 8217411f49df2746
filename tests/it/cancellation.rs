//! Every public future, dropped wherever it can be: nothing stays behind, and the next one gets in.
//!
//! Replies come late through a proxy, so that there is a poll at each await. A future is dropped after its
//! n-th poll, for every n until it ends by itself, and after random delays, thousands of times.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use leasehold::{Client, Error, Guard, Mutex};
use redis::Value;

use crate::{
    checks::setup_with_proxy,
    support::{Proxy, Server, eventually, nothing_is_left, subscribers},
};

/// Polls a future `steps / 2` times, then drops it: at once, when what it sent last may not be on the wire yet, or
/// after an odd number of steps a moment later, when it is. Its output, if it ended by then.
pub(crate) async fn drop_after<F: Future>(future: F, steps: usize) -> Option<F::Output> {
    let polls = steps / 2;
    let mut future = pin!(future);
    let mut polled = 0;
    let ended = std::future::poll_fn(|cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The last poll's wake-up would come too late: the drop is due at once.
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    if ended.is_none() && steps % 2 == 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ended
}

type Attempt = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A way to use a lock, as one future that ends with the lock given back.
pub(crate) type Use = fn(Mutex) -> Attempt;

pub(crate) const USES: [(&str, Use); 9] = [
    ("lock", |lock| Box::pin(async move { give_back(lock.lock().await?).await })),
    ("try_lock", |lock| {
        Box::pin(async move {
            match lock.try_lock().await? {
                Some(guard) => give_back(guard).await,
                None => Ok(()),
            }
        })
    }),
    ("try_lock_for", |lock| {
        Box::pin(async move {
            match lock.try_lock_for(Duration::from_millis(40)).await {
                Ok(Some(guard)) => give_back(guard).await,
                Ok(None) | Err(Error::Unavailable { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }),
    ("lock_with_timeout", |lock| {
        Box::pin(async move {
            match lock.lock_with_timeout(Duration::from_millis(40)).await {
                Ok(guard) => give_back(guard).await,
                Err(Error::Timeout { .. } | Error::Unavailable { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }),
    ("run", |lock| {
        Box::pin(async move {
            lock.run(async |guard| {
                assert!(guard.is_held());
                tokio::time::sleep(Duration::from_millis(1)).await;
            })
            .await
        })
    }),
    ("nested", |lock| {
        Box::pin(async move {
            let lock = lock.owned_by(&leasehold::Owner::new());
            let outer = lock.lock().await?;
            let inner = lock.with_ttl(Duration::from_secs(60)).lock().await?;
            drop(outer);
            give_back(inner).await
        })
    }),
    ("extend", |lock| {
        Box::pin(async move {
            let guard = lock.with_lease(Duration::from_secs(20)).lock().await?;
            guard.extend(Duration::from_secs(25)).await?;
            give_back(guard).await
        })
    }),
    ("run_until_lost", |lock| {
        Box::pin(async move {
            let guard = lock.lock().await?;
            guard.run_until_lost(tokio::time::sleep(Duration::from_millis(1))).await?;
            give_back(guard).await
        })
    }),
    ("status", |lock| {
        Box::pin(async move {
            lock.status().await?;
            lock.is_locked().await?;
            lock.holder().await?;
            lock.remaining_ttl().await.map(drop)
        })
    }),
];

async fn give_back(guard: Guard) -> Result<(), Error> {
    guard.unlock().await
}

struct Scene {
    server: Server,
    proxy: Proxy,
    client: Client,
}

impl Scene {
    async fn set(delay: Duration) -> Self {
        let (server, proxy) = setup_with_proxy().await;
        let client = Client::connect(&proxy.url()).await.expect("connected");
        proxy.delay_replies(delay);
        Self { server, proxy, client }
    }

    /// Nothing is left of the lock, and it can be had.
    async fn check(&self, name: &str) {
        nothing_is_left(&self.server, &self.client, name).await;
        let guard = self.client.mutex(name).lock_with_timeout(Duration::from_secs(5)).await;
        guard.expect("the next one gets in").unlock().await.expect("it was held");
    }
}

/// Drops a use of the lock `name` after its first poll, its second, and so on, until it ends by itself.
async fn sweep(
    scene: &Scene,
    name: &str,
    mut round: impl AsyncFnMut(usize) -> Option<Result<(), Error>>,
) {
    for steps in 0..400 {
        let ended = round(steps).await;
        scene.check(name).await;
        if let Some(result) = ended {
            result.expect("a use without a drop succeeds");
            println!("{name}: ended after {} polls", steps / 2);
            assert!(steps >= 4, "{name} was never dropped half-way");
            return;
        }
    }
    panic!("{name} does not end");
}

/// A use of a lock that `held` keeps for a while yet.
async fn behind(
    waiting: impl Future<Output = Option<Result<(), Error>>>,
    held: Guard,
) -> Option<Result<(), Error>> {
    let freeing = async {
        tokio::time::sleep(Duration::from_millis(15)).await;
        held.unlock().await.expect("it was held");
    };
    tokio::join!(waiting, freeing).0
}

/// It does not wait for the end of the hold that it waited behind, in another process or in this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_waiter_leaves_while_the_lock_is_held_still() {
    const SOON: Duration = Duration::from_secs(5);
    let scene = Scene::set(Duration::ZERO).await;
    let client = &scene.client;
    let other = Client::connect(&scene.server.url()).await.expect("connected");
    for holder in [&other, client] {
        let guard = holder.mutex("n").lock().await.expect("free");
        let waiting = tokio::spawn(client.mutex("n").lock());
        eventually(SOON, "it waits", async || client.stats().waiters == 1).await;
        waiting.abort();
        assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
        let left = async || {
            let stats = client.stats();
            stats.waiters == 0 && stats.subscriptions == 0
        };
        eventually(SOON, "nobody waits", left).await;
        let unheard = async || subscribers(&scene.server, "redisson_lock__channel:{n}").await == 0;
        eventually(SOON, "nobody listens", unheard).await;
        assert!(guard.is_held());
        guard.unlock().await.expect("held");
        scene.check("n").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_survives_a_drop_after_every_poll() {
    let scene = Scene::set(Duration::from_millis(2)).await;
    for (name, usage) in USES {
        let lock = scene.client.mutex(name);
        sweep(&scene, name, async |steps| drop_after(usage(lock.clone()), steps).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_held_elsewhere_survives_a_drop_after_every_poll() {
    let scene = Scene::set(Duration::from_millis(1)).await;
    let other = Client::connect(&scene.server.url()).await.expect("connected");
    for (name, usage) in USES {
        let lock = scene.client.mutex(name);
        sweep(&scene, name, async |steps| {
            let held = other.mutex(name).lock().await.expect("free");
            behind(drop_after(usage(lock.clone()), steps), held).await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_this_process_holds_survives_a_drop_after_every_poll() {
    let scene = Scene::set(Duration::from_millis(1)).await;
    for (name, usage) in USES {
        // One attempt behind a hold of this process asks nobody, and ends with its first poll.
        if name == "try_lock" {
            continue;
        }
        let lock = scene.client.mutex(name);
        sweep(&scene, name, async |steps| {
            let held = lock.lock().await.expect("free");
            behind(drop_after(usage(lock.clone()), steps), held).await
        })
        .await;
    }
}

/// On one thread, so that nothing is written to the connection before the drop.
#[tokio::test]
async fn an_unlock_that_is_dropped_before_it_is_written_still_frees_the_lock() {
    let scene = Scene::set(Duration::ZERO).await;
    let guard = scene.client.mutex("n").lock().await.expect("free");
    let polled_once = drop_after(guard.unlock(), 2).await;
    assert!(polled_once.is_none(), "it waits for an answer");
    scene.check("n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_that_is_dropped_half_way_still_frees_the_lock() {
    let scene = Scene::set(Duration::from_millis(2)).await;
    for steps in 0.. {
        let guard = scene.client.mutex("n").lock().await.expect("free");
        let ended = drop_after(guard.unlock(), steps).await;
        scene.check("n").await;
        if let Some(result) = ended {
            result.expect("it was held");
            assert!(steps >= 4, "unlock was never dropped half-way");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_unlock_that_is_dropped_half_way_leaves_nothing() {
    let scene = Scene::set(Duration::from_millis(2)).await;
    let lock = scene.client.mutex("n");
    for certain in [false, true] {
        for steps in 0.. {
            let guard = lock.lock().await.expect("free");
            let ended = match certain {
                true => drop_after(lock.force_unlock_if(&guard.holder()), steps).await,
                false => drop_after(lock.force_unlock(), steps).await,
            };
            drop(guard);
            // One that is still under way frees nothing that comes later: there is one connection.
            nothing_is_left(&scene.server, &scene.client, "n").await;
            if let Some(freed) = ended {
                assert!(freed.expect("the server answers"), "there was a holder");
                assert!(steps >= 4, "never dropped half-way");
                break;
            }
        }
        scene.check("n").await;
    }
}

/// A client that comes and goes: each of its own futures dropped after every poll leaves the server no connection of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_dropped_half_way_leaves_no_connection() {
    let server = Server::start().await;
    let connections = async || {
        let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).await;
        redis::from_redis_value::<String>(clients).expect("a list").lines().count()
    };
    let before = connections().await;
    let life = async |url: String| {
        let client = Client::connect(&url).await?;
        client.check().await?;
        let guard = client.mutex("n").lock().await?;
        let left = client.drain(Duration::from_millis(5)).await;
        drop((guard, left));
        client.shutdown().await;
        Ok::<_, Error>(())
    };
    for steps in 0..400 {
        let ended = drop_after(life(server.url()), steps).await;
        let gone = async || connections().await == before;
        eventually(Duration::from_secs(5), "no connection is left", gone).await;
        let free = async || server.command(&["EXISTS", "n"]).await == Value::Int(0);
        eventually(Duration::from_secs(5), "no lock is left", free).await;
        if let Some(result) = ended {
            result.expect("a life without a drop succeeds");
            // To connect, to check and to lock each wait for an answer at least once, however busy the machine is.
            assert!(steps >= 6, "{steps}: never dropped half-way");
            return;
        }
    }
    panic!("it does not end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_drops_after_random_delays_leave_nothing() {
    const ROUNDS: usize = 60;
    const AT_ONCE: usize = 50;
    let scene = Scene::set(Duration::from_millis(1)).await;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut dropped, mut ended) = (0, 0);
    for round in 0..ROUNDS {
        let mut tasks = Vec::new();
        for _ in 0..AT_ONCE {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (_, usage) = USES[(random >> 60) as usize % USES.len()];
            let delay = Duration::from_micros((random >> 40) % 12_000);
            let attempt = usage(scene.client.mutex(format!("n{}", (random >> 33) % 3)));
            tasks.push(tokio::spawn(async move { tokio::time::timeout(delay, attempt).await }));
        }
        for task in tasks {
            match task.await.expect("no panic") {
                Ok(result) => {
                    result.expect("a use without a drop succeeds");
                    ended += 1;
                }
                Err(_) => dropped += 1,
            }
        }
        if round % 20 == 19 {
            for name in ["n0", "n1", "n2"] {
                nothing_is_left(&scene.server, &scene.client, name).await;
            }
        }
    }
    println!("{dropped} dropped, {ended} ended");
    assert!(dropped > 1000 && ended > 10, "{dropped} dropped, {ended} ended");
    for name in ["n0", "n1", "n2"] {
        scene.check(name).await;
    }
    assert!(scene.proxy.connections() >= 1);
}
