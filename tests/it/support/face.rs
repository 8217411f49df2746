//! The client for tasks and the client for threads behind one face, for tests that hold for both.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use leasehold::{Client, Error, Guard, NodeStatus, Owner, Stats, blocking};

/// A client of either kind. Without an owner each acquisition is its own.
pub(crate) trait Face: Clone + Send + Sync + 'static {
    type Guard: Held;

    fn open(url: &str, ttl: Duration) -> impl Future<Output = Self> + Send {
        Self::open_nodes(vec![url.to_owned()], ttl)
    }

    /// A client that trusts servers that have just started.
    fn open_nodes(urls: Vec<String>, ttl: Duration) -> impl Future<Output = Self> + Send;

    fn lock(
        &self,
        name: &str,
        owner: Option<&Owner>,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send {
        self.lock_within(name, owner, Duration::MAX)
    }

    fn lock_within(
        &self,
        name: &str,
        owner: Option<&Owner>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;

    /// As [`lock_within`](Self::lock_within), and how long that took where the call was made.
    fn timed_lock_within(
        &self,
        name: &str,
        timeout: Duration,
    ) -> impl Future<Output = (Result<Self::Guard, Error>, Duration)> + Send;

    fn stats(&self) -> Stats;

    fn nodes(&self) -> Vec<NodeStatus>;

    /// How many threads must be run, one after the other, for a wait to end: each may be stalled.
    const HOPS: u32;
}

/// A guard of either kind.
pub(crate) trait Held: Send + Sync + 'static {
    fn token(&self) -> u64;
    fn is_held(&self) -> bool;
    fn hold_count(&self) -> u32;
    fn unlock(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Face for Client {
    type Guard = Guard;

    async fn open_nodes(urls: Vec<String>, ttl: Duration) -> Self {
        let builder = Self::builder().nodes(urls).ttl(ttl).restart_quarantine(Duration::ZERO);
        builder.connect().await.expect("connected")
    }

    fn lock_within(
        &self,
        name: &str,
        owner: Option<&Owner>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Guard, Error>> + Send {
        let lock = self.mutex(name);
        owner.map_or(lock.clone(), |owner| lock.owned_by(owner)).lock_with_timeout(timeout)
    }

    async fn timed_lock_within(
        &self,
        name: &str,
        timeout: Duration,
    ) -> (Result<Guard, Error>, Duration) {
        let began_at = Instant::now();
        let answer = self.lock_within(name, None, timeout).await;
        (answer, began_at.elapsed())
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        Self::nodes(self)
    }

    const HOPS: u32 = 1;
}

impl Held for Guard {
    fn token(&self) -> u64 {
        Self::token(self)
    }

    fn is_held(&self) -> bool {
        Self::is_held(self)
    }

    fn hold_count(&self) -> u32 {
        Self::hold_count(self)
    }

    fn unlock(self) -> impl Future<Output = Result<(), Error>> + Send {
        Self::unlock(self)
    }
}

impl Face for blocking::Client {
    type Guard = blocking::Guard<blocking::NamedOwner>;

    async fn open_nodes(urls: Vec<String>, ttl: Duration) -> Self {
        let builder = Self::builder().nodes(urls).ttl(ttl).restart_quarantine(Duration::ZERO);
        on_a_thread(|| builder.connect_blocking()).await.expect("connected")
    }

    async fn lock_within(
        &self,
        name: &str,
        owner: Option<&Owner>,
        timeout: Duration,
    ) -> Result<Self::Guard, Error> {
        let lock = self.mutex(name).owned_by(&owner.cloned().unwrap_or_else(Owner::new));
        on_a_thread(move || lock.lock_with_timeout(timeout)).await
    }

    async fn timed_lock_within(
        &self,
        name: &str,
        timeout: Duration,
    ) -> (Result<Self::Guard, Error>, Duration) {
        let lock = self.mutex(name).owned_by(&Owner::new());
        on_a_thread(move || {
            let began_at = Instant::now();
            let answer = lock.lock_with_timeout(timeout);
            (answer, began_at.elapsed())
        })
        .await
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        Self::nodes(self)
    }

    /// The client's, which has the timer, and the caller's.
    const HOPS: u32 = 2;
}

impl Held for blocking::Guard<blocking::NamedOwner> {
    fn token(&self) -> u64 {
        Self::token(self)
    }

    fn is_held(&self) -> bool {
        Self::is_held(self)
    }

    fn hold_count(&self) -> u32 {
        Self::hold_count(self)
    }

    async fn unlock(self) -> Result<(), Error> {
        on_a_thread(|| Self::unlock(self)).await
    }
}

async fn on_a_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.expect("no panic")
}
