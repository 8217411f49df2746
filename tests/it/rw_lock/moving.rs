//! On a cluster while a slot moves: for a while, some keys of a lock are on one master and some on the other.

use std::time::Duration;

use leasehold::{Client, ReadGuard, RwLock};

use super::{MS, queued};
use crate::{
    checks::soon,
    support::{Cluster, Server, slot_of},
};

const TTL: Duration = Duration::from_secs(3);
/// Nothing is renewed in between.
const LONG: Duration = Duration::from_secs(60);

async fn connect(cluster: &Cluster) -> Client {
    let builder = Client::builder().cluster(cluster.urls()).ttl(TTL);
    let builder = builder.restart_quarantine(Duration::ZERO);
    builder.connect().await.expect("the cluster accepts the client")
}

/// A slot on its way from the first master to the second.
struct Move<'a> {
    cluster: &'a Cluster,
    name: &'a str,
}

impl<'a> Move<'a> {
    async fn begin(cluster: &'a Cluster, name: &'a str) -> Self {
        let this = Self { cluster, name };
        let [source, target] = this.ends();
        cluster.open(slot_of(name), source, target).await;
        this
    }

    fn ends(&self) -> [&'a Server; 2] {
        [self.cluster.master(0), self.cluster.master(1)]
    }

    async fn take(&self, keys: &[&str]) {
        let [source, target] = self.ends();
        self.cluster.migrate(keys, source, target).await;
    }

    /// Takes all keys but the readers' own ends.
    async fn take_lock(&self) {
        let name = self.name;
        let (token, queue) =
            (format!("leasehold_token:{{{name}}}"), format!("leasehold_rw_queue:{{{name}}}"));
        self.take(&[name, &token, &queue]).await;
    }

    async fn end(self) {
        let [source, target] = self.ends();
        self.cluster.migrate_all(slot_of(self.name), source, target).await;
        self.cluster.close(slot_of(self.name), source, target).await;
    }
}

/// The key that ends with a reader.
fn own_end(guard: &ReadGuard) -> String {
    format!("{{{}}}:{}:rwlock_timeout:1", guard.name(), guard.holder().as_str())
}

async fn read(lock: &RwLock) -> ReadGuard {
    soon("the reader", lock.read()).await.expect("nobody writes")
}

async fn is_refused(lock: &RwLock) {
    let taken = soon("an answer", lock.try_write_for(200 * MS)).await;
    assert!(!taken.is_ok_and(|taken| taken.is_some()), "a writer beside readers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_kept_and_writers_wait_while_their_slots_move() {
    let cluster = Cluster::start().await;
    let clients = [connect(&cluster).await, connect(&cluster).await, connect(&cluster).await];
    readers_keep(&cluster, &clients).await;
    a_writer_keeps(&cluster, &clients).await;
    nobody_is_beside_a_writer(&cluster, &clients).await;
    others_stay_when_a_reader_leaves(&cluster, &clients).await;
    nothing_is_lost_that_is_ended(&cluster, &clients).await;
    who_is_ended_by_force_is_ended(&cluster, &clients).await;
}

/// What readers have is not lost, whatever moves first.
async fn readers_keep(cluster: &Cluster, [a, b, c]: &[Client; 3]) {
    for ends_first in [false, true] {
        let name = cluster.name_on(0, &format!("read:{ends_first}"));
        let reading = [read(&a.rw_lock(&name)).await, read(&b.rw_lock(&name)).await];
        let moving = Move::begin(cluster, &name).await;
        match ends_first {
            true => moving.take(&[&own_end(&reading[0]), &own_end(&reading[1])]).await,
            false => moving.take(&[&name]).await,
        }
        // Renewals have no answer meanwhile.
        tokio::time::sleep(TTL / 2).await;
        assert!(reading.iter().all(|guard| guard.is_held()), "ends first: {ends_first}");
        is_refused(&c.rw_lock(&name)).await;
        moving.end().await;
        tokio::time::sleep(TTL * 3 / 2).await;
        assert!(reading.iter().all(|guard| guard.is_held()), "they are renewed there");
        is_refused(&c.rw_lock(&name)).await;
        for guard in reading {
            soon("unlocking", guard.unlock()).await.expect("held");
        }
        let writing = soon("the writer", c.rw_lock(&name).write()).await.expect("free");
        soon("unlocking", writing.unlock()).await.expect("held");
    }
}

async fn a_writer_keeps(cluster: &Cluster, [a, b, _]: &[Client; 3]) {
    let name = cluster.name_on(0, "written");
    let writing = soon("the writer", a.rw_lock(&name).write()).await.expect("free");
    let waits = tokio::spawn(b.rw_lock(&name).read());
    queued(&a.rw_lock(&name), 1).await;
    let moving = Move::begin(cluster, &name).await;
    moving.take(&[&name]).await;
    tokio::time::sleep(TTL * 3 / 2).await;
    assert!(writing.is_held() && !waits.is_finished());
    moving.end().await;
    let token = writing.token();
    soon("unlocking", writing.unlock()).await.expect("held");
    let reading = soon("its turn", waits).await.expect("no panic").expect("free");
    assert!(reading.token() >= token, "{reading:?}");
    soon("unlocking", reading.unlock()).await.expect("held");
}

/// A master that has the lock, but not yet the readers' own ends, does not take the readers for dead.
async fn nobody_is_beside_a_writer(cluster: &Cluster, [a, b, c]: &[Client; 3]) {
    let name = cluster.name_on(0, "waited-for");
    let lock = a.rw_lock(&name).with_ttl(LONG);
    let reading = read(&lock).await;
    let waits = tokio::spawn(b.rw_lock(&name).write());
    queued(&lock, 1).await;
    let moving = Move::begin(cluster, &name).await;
    moving.take_lock().await;
    for _ in 0..5 {
        is_refused(&c.rw_lock(&name)).await;
        let status = soon("an answer", lock.status()).await;
        assert!(status.is_err() || status.is_ok_and(|status| status.readers.len() == 1));
    }
    assert!(reading.is_held() && !waits.is_finished());
    moving.end().await;
    is_refused(&c.rw_lock(&name)).await;
    soon("unlocking", reading.unlock()).await.expect("held all the time");
    let writing = soon("its turn", waits).await.expect("no panic").expect("free");
    soon("unlocking", writing.unlock()).await.expect("held");
}

/// The release of one reader ends no other, although the other's own end is elsewhere.
async fn others_stay_when_a_reader_leaves(cluster: &Cluster, [a, b, c]: &[Client; 3]) {
    let name = cluster.name_on(0, "left");
    let locks = [a, b].map(|client| client.rw_lock(&name).with_ttl(LONG));
    let [leaves, stays] = [read(&locks[0]).await, read(&locks[1]).await];
    let moving = Move::begin(cluster, &name).await;
    moving.take_lock().await;
    soon("unlocking", leaves.unlock()).await.expect("a release never fails");
    moving.end().await;
    is_refused(&c.rw_lock(&name)).await;
    soon("unlocking", stays.unlock()).await.expect("held all the time");
    let writing = soon("the writer", c.rw_lock(&name).write()).await.expect("free");
    soon("unlocking", writing.unlock()).await.expect("held");
}

/// A master that has all of the lock refuses to make anew what the release deletes.
async fn nothing_is_lost_that_is_ended(cluster: &Cluster, [a, b, _]: &[Client; 3]) {
    for (writes, waited_for) in [(false, false), (false, true), (true, false), (true, true)] {
        let case = format!("ended:{writes}:{waited_for}");
        let name = cluster.name_on(0, &case);
        let lock = a.rw_lock(&name).with_ttl(LONG);
        let held = match writes {
            true => Err(soon("the writer", lock.write()).await.expect("free")),
            false => Ok(read(&lock).await),
        };
        let waits = waited_for.then(|| tokio::spawn(b.rw_lock(&name).write()));
        queued(&lock, usize::from(waited_for)).await;
        let moving = Move::begin(cluster, &name).await;
        let unlocked = match held {
            Ok(reading) => soon("unlocking", reading.unlock()).await,
            Err(writing) => soon("unlocking", writing.unlock()).await,
        };
        unlocked.unwrap_or_else(|error| panic!("{case}: {error}"));
        moving.end().await;
        let next = match waits {
            Some(waits) => soon("its turn", waits).await.expect("no panic"),
            None => soon("the writer", b.rw_lock(&name).write()).await,
        };
        soon("unlocking", next.expect("free").unlock()).await.expect("held");
    }
}

/// So it is with what is freed by force, and the caller is told that it was there.
async fn who_is_ended_by_force_is_ended(cluster: &Cluster, [a, b, c]: &[Client; 3]) {
    for (writes, only_one) in [(false, false), (false, true), (true, false), (true, true)] {
        let case = format!("forced:{writes}:{only_one}");
        let name = cluster.name_on(0, &case);
        let lock = a.rw_lock(&name).with_ttl(LONG);
        let (holder, _held) = match writes {
            true => {
                let writing = soon("the writer", lock.write()).await.expect("free");
                (writing.holder(), Err(writing))
            }
            false => {
                let reading = read(&lock).await;
                (reading.holder(), Ok(reading))
            }
        };
        let waits = tokio::spawn(b.rw_lock(&name).write());
        queued(&lock, 1).await;
        let moving = Move::begin(cluster, &name).await;
        let seen = c.rw_lock(&name);
        let freed = match only_one {
            true => soon("freeing", seen.force_unlock_if(&holder)).await,
            false => soon("freeing", seen.force_unlock()).await,
        };
        assert!(freed.unwrap_or_else(|error| panic!("{case}: {error}")), "{case}");
        moving.end().await;
        let next = soon("its turn", waits).await.expect("no panic");
        soon("unlocking", next.expect("free").unlock()).await.expect("held");
    }
}
