//! The locks in Rust, each used as its documentation says.

use std::future::Future;
use std::time::Duration;

use leasehold::{Client, Guard, Mutex};
use rlock::async_lock::{RLock, RLockGuard};
use rslock::{LockGuard, LockManager};

use crate::Outcome;

/// A lock of some name.
pub(crate) trait Lock: Clone + Send + Sync + 'static {
    type Guard: Send;

    fn take(&self) -> impl Future<Output = Outcome<Self::Guard>> + Send;
    fn give_back(guard: Self::Guard) -> impl Future<Output = Outcome<()>> + Send;
}

/// A client of each library: a process has one, whatever the number of its tasks.
pub(crate) struct Clients {
    pub(crate) leasehold: Client,
    pub(crate) rslock: LockManager,
    pub(crate) rlock: RLock,
}

impl Clients {
    pub(crate) async fn connect(url: &str) -> Outcome<Self> {
        Ok(Self {
            leasehold: Client::connect(url).await?,
            rslock: LockManager::new(vec![url]),
            rlock: RLock::new(url).await?,
        })
    }
}

impl Lock for Mutex {
    type Guard = Guard;

    async fn take(&self) -> Outcome<Guard> {
        Ok(self.lock().await?)
    }

    async fn give_back(guard: Guard) -> Outcome<()> {
        Ok(guard.unlock().await?)
    }
}

#[derive(Clone)]
pub(crate) struct Rslock {
    pub(crate) manager: LockManager,
    pub(crate) name: String,
}

impl Lock for Rslock {
    type Guard = LockGuard;

    async fn take(&self) -> Outcome<LockGuard> {
        Ok(self.manager.acquire(self.name.as_str(), RSLOCK_TTL).await?)
    }

    async fn give_back(guard: LockGuard) -> Outcome<()> {
        guard.release().await;
        Ok(())
    }
}

#[derive(Clone)]
pub(crate) struct Rlock {
    pub(crate) manager: RLock,
    pub(crate) name: String,
}

impl Lock for Rlock {
    type Guard = RLockGuard;

    async fn take(&self) -> Outcome<RLockGuard> {
        Ok(self.manager.acquire_mutex(&self.name).await?)
    }

    async fn give_back(mut guard: RLockGuard) -> Outcome<()> {
        Ok(guard.release().await?)
    }
}

/// It has no default. This is that of leasehold and of Redisson.
const RSLOCK_TTL: Duration = Duration::from_secs(30);
