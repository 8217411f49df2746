//! Every future of a semaphore, dropped wherever it can be: all permits come back, and nobody stays in the queue.

use std::{future::Future, pin::Pin, time::Duration};

use leasehold::{Client, Error, Semaphore};

use super::{MS, all_are_back, api};
use crate::cancellation::drop_after;
use crate::checks::{connect, setup_with_proxy};

const PERMITS: u32 = 3;

type Attempt = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
type Use = fn(Semaphore) -> Attempt;

/// Ways to use a semaphore, each as one future that ends with all permits given back.
const USES: [(&str, Use); 7] = [
    ("acquire", |semaphore| Box::pin(async move { semaphore.acquire().await?.release().await })),
    ("acquire_many", |semaphore| {
        Box::pin(async move { semaphore.acquire_many(3).await?.release().await })
    }),
    ("acquire_with_timeout", |semaphore| {
        Box::pin(async move {
            match semaphore.acquire_with_timeout(40 * MS).await {
                Ok(permit) => permit.release().await,
                Err(Error::Timeout { .. } | Error::Unavailable { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }),
    ("try_acquire_many", |semaphore| {
        Box::pin(async move {
            match semaphore.try_acquire_many(2).await? {
                Some(permit) => permit.release().await,
                None => Ok(()),
            }
        })
    }),
    ("run", |semaphore| {
        Box::pin(async move { semaphore.run(async |permit| assert!(permit.is_held())).await })
    }),
    ("extend", |semaphore| {
        Box::pin(async move {
            let permit = semaphore.with_lease(Duration::from_secs(20)).acquire().await?;
            permit.extend(Duration::from_secs(25)).await?;
            permit.release().await
        })
    }),
    ("status", |semaphore| Box::pin(async move { semaphore.status().await.map(drop) })),
];

/// Drops a use after its first poll, its second, and so on, until it ends by itself.
async fn sweep(name: &str, mut round: impl AsyncFnMut(usize) -> Option<Result<(), Error>>) {
    for steps in 0..400 {
        if let Some(result) = round(steps).await {
            result.expect("a use without a drop succeeds");
            assert!(steps >= 4, "{name} was never dropped half-way");
            return;
        }
    }
    panic!("{name} does not end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_permits_survive_a_drop_after_every_poll() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    api(&client, PERMITS).set_permits(PERMITS).await.expect("an answer");
    proxy.delay_replies(2 * MS);
    for (name, usage) in USES {
        sweep(name, async |steps| {
            let ended = drop_after(usage(api(&client, PERMITS)), steps).await;
            all_are_back(&server, &client, PERMITS).await;
            ended
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_others_have_survive_a_drop_after_every_poll() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let other = connect(&server).await;
    proxy.delay_replies(MS);
    for (name, usage) in USES {
        sweep(name, async |steps| {
            let held = api(&other, PERMITS).acquire_many(2).await.expect("they are back");
            let freeing = async {
                tokio::time::sleep(10 * MS).await;
                held.release().await.expect("held");
            };
            let (ended, ()) =
                tokio::join!(drop_after(usage(api(&client, PERMITS)), steps), freeing);
            all_are_back(&server, &client, PERMITS).await;
            ended
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_dropped_half_way_still_gives_back_and_a_forgetting_still_forgets() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let semaphore = api(&client, PERMITS);
    proxy.delay_replies(2 * MS);
    for forgets in [false, true] {
        for steps in 0.. {
            semaphore.set_permits(PERMITS).await.expect("an answer");
            let permit = semaphore.acquire_many(2).await.expect("they are back");
            let ended = match forgets {
                true => drop_after(permit.forget(), steps).await,
                false => drop_after(permit.release(), steps).await,
            };
            all_are_back(&server, &client, if forgets { PERMITS - 2 } else { PERMITS }).await;
            if let Some(result) = ended {
                result.expect("they were held");
                assert!(steps >= 4, "never dropped half-way");
                break;
            }
        }
    }
}
