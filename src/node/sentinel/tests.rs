use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{ErrorKind, RedisError};

use super::*;
use crate::config::{Address, Config};
use crate::node::connector::{Connecting, Connector, Network};

/// Servers that refuse every connection, and count them.
#[derive(Clone, Default)]
struct Refusing(Arc<AtomicU64>);

impl Network for Refusing {
    fn connector(&self, _: &str) -> Arc<dyn Connector> {
        Arc::new(self.clone())
    }
}

impl Connector for Refusing {
    fn commands(&self, _: Arc<Notify>) -> Connecting<MultiplexedConnection> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let error = RedisError::from((ErrorKind::Io, "it is not there"));
        Box::pin(std::future::ready(Err(error)))
    }

    fn subscriptions(&self) -> Connecting<PubSub> {
        Box::pin(std::future::pending())
    }
}

/// Otherwise one that is back would go unheard for as long as it was away.
#[tokio::test(start_paused = true)]
async fn a_sentinel_that_is_away_for_long_is_asked_each_second_all_the_same() {
    const AWAY: Duration = Duration::from_secs(600);
    let nowhere = Address::parse("redis://nowhere").expect("a valid URL");
    let watched = Watched {
        master: "m".into(),
        sentinels: vec![nowhere.clone()],
        servers: nowhere,
        address_map: None,
    };
    let refusing = Refusing::default();
    let network: Arc<dyn Network> = Arc::new(refusing.clone());
    let dial = Dial::of(Some(&network), &Config::default());
    let (clock, limits) = (Clock::of_this_runtime(), [Duration::from_secs(1); 2]);
    let started = Sentinels::start(&watched, dial, &clock, limits, &TaskTracker::new());
    let sentinels = started.expect("it connects to nothing");
    tokio::time::sleep(AWAY).await;
    let asked = refusing.0.load(Ordering::Relaxed);
    assert!(asked >= AWAY.as_secs(), "{asked} times in {AWAY:?}");
    sentinels.close();
}
