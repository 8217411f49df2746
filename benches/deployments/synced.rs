//! Row 4: what it costs that a replica must have a grant.

use std::time::{Duration, Instant};

use leasehold::{Client, Mutex};
use leasehold_testkit::Deployment;
use leasehold_testkit::bench::aim::Aim;
use leasehold_testkit::bench::by_hand::{self, ByHand, Keys, TTL_MS};
use leasehold_testkit::bench::figures::{Unit, median};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use crate::table::Figure;
use crate::{Outcome, Pace};

pub(crate) async fn trial(pace: Pace) -> Outcome<Vec<Figure>> {
    let deployment = Deployment::with(1, 0, &[]).await;
    deployment.is_synced().await;
    let url = deployment.master().url();
    let blocks = pace.times(12);
    // On a task of the runtime, as users are.
    let measured = tokio::spawn(async move {
        let by_hand = ByHand::connect(&url).await?;
        let witness = Witness::connect(&url).await?;
        let plain = Client::connect(&url).await?;
        let synced = Client::builder().nodes([&url]).synced(1).connect().await?;
        let [plain_lock, synced_lock] = [&plain, &synced].map(|client| client.mutex(NAME));
        let mut each = [const { Vec::new() }; 3];
        for _ in 0..blocks {
            each[0].extend(median(&pairs_by_hand(&by_hand, &witness).await?));
            each[1].extend(median(&pairs(&synced_lock).await?));
            each[2].extend(median(&pairs(&plain_lock).await?));
        }
        plain.shutdown().await;
        synced.shutdown().await;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(each.map(|all| median(&all)))
    });
    let [by_hand, synced, plain] = measured.await??.map(Option::unwrap_or_default);
    let figure = |of, value| {
        let what = "a master with one replica: lock + unlock of a free lock";
        Figure::new(4, what, of, Unit::Seconds, value)
    };
    Ok(vec![
        figure("by hand, SET and WAIT on a second connection", by_hand),
        figure("leasehold, `synced(1)`", synced).beside(by_hand).aim(Aim::RatioUnder(1.2)),
        figure("leasehold, not synced", plain).beside(by_hand),
    ])
}

async fn pairs(lock: &Mutex) -> Outcome<Vec<f64>> {
    let mut each = Vec::new();
    for _ in 0..PAIRS {
        let began_at = Instant::now();
        lock.lock().await?.unlock().await?;
        each.push(began_at.elapsed().as_secs_f64());
    }
    Ok(each)
}

async fn pairs_by_hand(by_hand: &ByHand, witness: &Witness) -> Outcome<Vec<f64>> {
    let keys = Keys::of(NAME);
    let mut each = Vec::new();
    for _ in 0..PAIRS {
        let began_at = Instant::now();
        if !by_hand.acquire(&keys, TTL_MS).await? {
            return Err("a lock that nobody else uses was not free".into());
        }
        if witness.replicas().await? != 1 {
            return Err("the replica does not follow".into());
        }
        by_hand.release(&keys).await?;
        each.push(began_at.elapsed().as_secs_f64());
    }
    Ok(each)
}

/// The second connection: `WAIT` would keep the others waiting on the first one.
struct Witness(MultiplexedConnection);

impl Witness {
    async fn connect(url: &str) -> Outcome<Self> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let client = by_hand::open(url)?;
        Ok(Self(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    /// How many replicas have what was written until now.
    async fn replicas(&self) -> Outcome<u32> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg(KEY).arg(1).arg("PX").arg(1).ignore();
        pipeline.cmd("WAIT").arg(1).arg(WITHIN.as_millis() as u64);
        let (replicas,) = pipeline.query_async(&mut self.0.clone()).await?;
        Ok(replicas)
    }
}

const NAME: &str = "free";
const KEY: &str = "by-hand-witness";
const WITHIN: Duration = Duration::from_secs(5);
const PAIRS: u32 = 200;
