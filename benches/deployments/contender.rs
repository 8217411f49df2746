//! One library's holder and waiters, who want to go on when their master dies.

use std::sync::Arc;
use std::time::Duration;

use leasehold::ClientBuilder;
use leasehold_testkit::java::{Call, Failure, Java};
use leasehold_testkit::{eventually, waiting};

use crate::library::{Guards, Library};
use crate::place::Place;
use crate::{Outcome, REDISSON};

pub(crate) struct Contender {
    pub(crate) of: &'static str,
    holder: Arc<Library>,
    waiter: Arc<Library>,
    /// The holder has it, and the waiter waits for it.
    held: String,
    /// Nobody has it.
    free: String,
    waits: Call,
}

/// What a contender saw of the death. Times are in seconds, infinite if it did not happen within [`LIMIT`].
pub(crate) struct Fate {
    granted: f64,
    granted_free: f64,
    errors: f64,
}

impl Fate {
    const NEVER: f64 = f64::INFINITY;

    /// From the death until the waiter had the lock that its holder freed then.
    pub(crate) fn granted(&self) -> f64 {
        self.granted
    }

    /// From the death until a caller that wanted a free lock then had it.
    pub(crate) fn granted_free(&self) -> f64 {
        self.granted_free
    }

    /// How often a call failed, and was made again.
    pub(crate) fn errors(&self) -> f64 {
        self.errors
    }
}

impl Contender {
    /// Two clients of ours.
    pub(crate) async fn ours(
        place: &Place,
        of: &'static str,
        stem: &str,
        settings: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Outcome<Self> {
        let mut clients = Vec::new();
        for _ in 0..2 {
            let client = settings(place.builder()).connect().await?;
            clients.push(Arc::new(Library::Rust(client, Guards::default())));
        }
        let [holder, waiter] = <[_; 2]>::try_from(clients).map_err(|_| "BUG: two were made")?;
        Ok(Self::begin(place, of, stem, holder, waiter).await)
    }

    /// One client of Redisson, whose threads are owners.
    pub(crate) async fn redisson(place: &Place, of: &'static str, stem: &str) -> Self {
        let (kind, nodes) = place.told_to_redisson();
        let java = Java::connect_to_deployment(REDISSON, kind, &nodes, REDISSONS_TTL).await;
        let java = Arc::new(Library::Java(java));
        Self::begin(place, of, stem, java.clone(), java).await
    }

    async fn begin(
        place: &Place,
        of: &'static str,
        stem: &str,
        holder: Arc<Library>,
        waiter: Arc<Library>,
    ) -> Self {
        let [held, free] = ["held", "free"].map(|which| place.name(&format!("{stem}:{which}")));
        for (library, who) in [(&holder, "a"), (&waiter, "b"), (&waiter, "c")] {
            // All that is loaded at the first use is there.
            for _ in 0..WARM_UP {
                assert_eq!(library.lock(who, &held).value().await, 1);
                assert_eq!(library.unlock(who, &held).value().await, 1);
            }
        }
        assert_eq!(holder.lock("a", &held).value().await, 1);
        let waits = waiter.lock("b", &held);
        let (server, count) = (place.master(), place.count_listeners());
        let channel = format!("redisson_lock__channel:{{{held}}}");
        eventually(LIMIT, "it waits", async || match &*waiter {
            Library::Rust(..) => waiting(server, &held).await == 1,
            Library::Java(_) => {
                let counts = server.command(&["PUBSUB", count, &channel]).await;
                let (_, count): (String, i64) = redis::from_redis_value(counts).expect("a count");
                count == 1
            }
        })
        .await;
        // Redisson asks once more when it has subscribed.
        tokio::time::sleep(SETTLED).await;
        Self { of, holder, waiter, held, free, waits }
    }

    /// The master is dead: the holder frees its lock, and the waiter also wants one that is free.
    pub(crate) async fn outlives(self, killed_us: u64) -> Fate {
        let Self { holder, waiter, held, free, waits, .. } = self;
        let since = |at_us: u64| at_us.saturating_sub(killed_us) as f64 / 1e6;
        let asked = waiter.lock("c", &free);
        let all = async {
            tokio::join!(
                freed(&holder, &held),
                taken(&waiter, "b", &held, waits),
                taken(&waiter, "c", &free, asked),
            )
        };
        let fate = match tokio::time::timeout(LIMIT, all).await {
            Ok((freed, (granted, of_waiter), (granted_free, of_asker))) => Fate {
                granted: since(granted),
                granted_free: since(granted_free),
                errors: f64::from(freed + of_waiter + of_asker),
            },
            Err(_) => Fate { granted: Fate::NEVER, granted_free: Fate::NEVER, errors: Fate::NEVER },
        };
        for library in [holder, waiter] {
            if let Library::Rust(client, _) = &*library {
                client.shutdown().await;
            }
        }
        fate
    }
}

/// Frees a lock. Returns how often that failed.
async fn freed(library: &Library, name: &str) -> u32 {
    let mut errors = 0;
    loop {
        match (library.unlock("a", name).done().await.outcome, library) {
            (Ok(_), _) => return errors,
            // Another attempt may have done it.
            (Err(Failure::NotHeld), Library::Java(_)) if errors > 0 => return errors,
            // Ours goes on with it by itself.
            (Err(_), Library::Rust(..)) => return errors + 1,
            (Err(_), Library::Java(_)) => errors += 1,
        }
        tokio::time::sleep(BETWEEN_ATTEMPTS).await;
    }
}

/// Waits for a lock, and asks again when that fails. Returns when it was granted, and how often it failed before.
async fn taken(library: &Library, who: &str, name: &str, first: Call) -> (u64, u32) {
    let (mut call, mut errors) = (first, 0);
    loop {
        let done = call.done().await;
        if done.outcome.is_ok() {
            return (done.ended_us, errors);
        }
        errors += 1;
        tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        call = library.lock(who, name);
    }
}

/// Its default, and ours.
const REDISSONS_TTL: Duration = Duration::from_secs(30);
const WARM_UP: u32 = 10;
const SETTLED: Duration = Duration::from_millis(200);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
/// A lock that nobody frees is free after 30 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(45);
