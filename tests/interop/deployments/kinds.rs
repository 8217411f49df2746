//! Read-write locks and semaphores on a Redis Cluster. Each side keeps the other out and wakes it, also when the master is
//! replaced while both hold something and wait for something.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Permit, Semaphore};
use leasehold_testkit::{
    Cluster, Server, eventually, in_time,
    java::{Call, Done, Java, Version, hex},
    shared_clock_us,
};
use tokio::task::JoinHandle;

use super::{
    Both, LIMIT, NOW, TOLD_WITHIN,
    cluster::{connect, start},
    is_renewed,
};
use crate::side::{Of, Side};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_write_locks_and_permits_stay_with_their_holders_when_a_master_is_replaced() {
    let cluster = start().await;
    let [old, new] = [cluster.master(0), cluster.replica(0)];
    in_time(LIMIT * 3, "all go on", async {
        let mut all = Vec::new();
        for version in Version::ALL {
            let both = connect(&cluster, version).await;
            let names = Names { cluster: &cluster, version };
            turns_are_passed_on(&both, old, names).await;
            let read_write = ReadWrite::begin(&both, old, names).await;
            let permits = Permits::begin(&both, old, names).await;
            all.push((both, names, read_write, permits));
        }
        cluster.fail_over(0).await;
        join_all(all.into_iter().map(|(both, names, read_write, permits)| async move {
            both.have_arrived_at(new, &names.of("probe")).await;
            read_write.go_on(&both, old, new).await;
            permits.go_on(&both, old, new).await;
            turns_are_passed_on(&both, new, names).await;
        }))
        .await;
    })
    .await;
}

/// The names on the first shard that are for one version of Redisson.
#[derive(Clone, Copy)]
struct Names<'a> {
    cluster: &'a Cluster,
    version: Version,
}

impl Names<'_> {
    fn of(self, what: &str) -> String {
        self.cluster.name_on(0, &format!("{what}-{}", self.version.number()))
    }
}

async fn turns_are_passed_on(both: &Both, server: &Server, names: Names<'_>) {
    for (holder, other) in both.both_ways() {
        readers_and_writers_let_each_other_in(server, &names.of("rw"), holder, other).await;
    }
    for sort in [PLAIN, EXPIRABLE] {
        a_permit_goes_to_and_fro(both, server, &names.of("permit"), sort).await;
    }
}

async fn readers_and_writers_let_each_other_in(
    server: &Server,
    name: &str,
    holder: &Side,
    other: &Side,
) {
    assert_eq!(holder.take(Of::Read, "a", name).value().await, 1);
    assert_eq!(other.try_take(Of::Read, "b", name, NOW).value().await, 1);
    assert_eq!(other.leave(Of::Read, "b", name).value().await, 1);
    assert_eq!(other.try_take(Of::Write, "c", name, NOW).value().await, 0);
    let wait = other.take(Of::Write, "b", name);
    waits(other, "b", &[server], &rw_channel(name)).await;
    wakes(server, holder.leave(Of::Read, "a", name), wait).await;
    for of in [Of::Read, Of::Write] {
        assert_eq!(holder.try_take(of, "c", name, NOW).value().await, 0);
    }
    let wait = holder.take(Of::Read, "a", name);
    waits(holder, "a", &[server], &rw_channel(name)).await;
    wakes(server, other.leave(Of::Write, "b", name), wait).await;
    assert_eq!(holder.leave(Of::Read, "a", name).value().await, 1);
}

async fn a_permit_goes_to_and_fro(both: &Both, server: &Server, name: &str, sort: &str) {
    let (java, semaphore) = (both.java(), semaphore(both, name));
    let ours = semaphore.acquire().await.expect("there is one");
    let wait = acquire(java, "b", sort, name);
    waits(&both.java, "b", &[server], &permit_channel(name)).await;
    let id = hears(server, ours, wait).await;
    assert!(semaphore.try_acquire().await.expect("an answer").is_none());
    assert!(is_refused(java, sort, name).await);
    let wait = acquire_ours(&semaphore);
    waits(&both.rust, "b", &[server], &permit_channel(name)).await;
    is_heard(server, java, sort, name, &id, wait).await.release().await.expect("held");
}

/// Each side writes, and the other waits to. Both read.
struct ReadWrite {
    /// Written by Java, and by ours.
    written: [String; 2],
    waits: [Call; 2],
    read: String,
}

impl ReadWrite {
    async fn begin(both: &Both, server: &Server, names: Names<'_>) -> Self {
        let written = [names.of("java-writes"), names.of("rust-writes")];
        let mut all = Vec::new();
        for ((holder, other), name) in both.both_ways().into_iter().zip(&written) {
            assert_eq!(holder.take(Of::Write, "a", name).value().await, 1);
            all.push(other.take(Of::Write, "w", name));
            waits(other, "w", &[server], &rw_channel(name)).await;
        }
        let read = names.of("both-read");
        for side in [&both.java, &both.rust] {
            assert_eq!(side.take(Of::Read, "a", &read).value().await, 1);
        }
        let waits = all.try_into().unwrap_or_else(|_| unreachable!("BUG: one for each"));
        Self { written, waits, read }
    }

    async fn go_on(self, both: &Both, old: &Server, new: &Server) {
        let Self { written, waits: waiting, read } = self;
        for side in [&both.java, &both.rust] {
            for name in &written {
                assert_eq!(side.try_take(Of::Read, "c", name, NOW).value().await, 0, "{name}");
            }
            assert_eq!(side.try_take(Of::Write, "c", &read, NOW).value().await, 0, "{read}");
            assert_eq!(side.try_take(Of::Read, "c", &read, NOW).value().await, 1, "{read}");
            assert_eq!(side.leave(Of::Read, "c", &read).value().await, 1);
        }
        let kept = written.iter().chain([&read]);
        join_all(kept.map(|name| is_renewed(new, name, LIMIT))).await;
        for (((holder, other), name), wait) in
            both.both_ways().into_iter().zip(&written).zip(waiting)
        {
            assert!(!wait.is_finished(), "{name} was not freed");
            waits(other, "w", &[old, new], &rw_channel(name)).await;
            wakes(new, holder.leave(Of::Write, "a", name), wait).await;
            assert_eq!(holder.try_take(Of::Read, "a", name, NOW).value().await, 0);
            assert_eq!(other.leave(Of::Write, "w", name).value().await, 1);
        }
        assert_eq!(both.rust.leave(Of::Read, "a", &read).value().await, 1);
        let wait = both.rust.take(Of::Write, "a", &read);
        waits(&both.rust, "a", &[new], &rw_channel(&read)).await;
        wakes(new, both.java.leave(Of::Read, "a", &read), wait).await;
        assert_eq!(both.rust.leave(Of::Write, "a", &read).value().await, 1);
    }
}

/// Each side has the only permit of a semaphore, for which the other waits.
struct Permits {
    by_java: String,
    id: String,
    ours_waits: JoinHandle<OurPermit>,
    by_rust: String,
    ours: Permit,
    java_waits: JoinHandle<Done<String>>,
}

impl Permits {
    async fn begin(both: &Both, server: &Server, names: Names<'_>) -> Self {
        let (by_java, by_rust) = (names.of("java-has-it"), names.of("rust-has-it"));
        let waited_for = semaphore(both, &by_java);
        waited_for.set_permits(1).await.expect("an answer");
        let id =
            in_time(LIMIT, "Java has it", acquire(both.java(), "a", EXPIRABLE, &by_java)).await;
        let id = id.expect("no panic").value();
        let ours_waits = acquire_ours(&waited_for);
        waits(&both.rust, "p", &[server], &permit_channel(&by_java)).await;
        let ours = semaphore(both, &by_rust).acquire().await.expect("there is one");
        let java_waits = acquire(both.java(), "p", EXPIRABLE, &by_rust);
        waits(&both.java, "p", &[server], &permit_channel(&by_rust)).await;
        Self { by_java, id, ours_waits, by_rust, ours, java_waits }
    }

    async fn go_on(self, both: &Both, old: &Server, new: &Server) {
        let Self { by_java, id, ours_waits, by_rust, ours, java_waits } = self;
        let java = both.java();
        for name in [&by_java, &by_rust] {
            assert!(is_refused(java, EXPIRABLE, name).await, "{name}");
            let refused = semaphore(both, name).try_acquire().await.expect("an answer");
            assert!(refused.is_none(), "{name}");
        }
        assert!(ours.is_held(), "it was kept");
        assert!(!ours_waits.is_finished() && !java_waits.is_finished(), "nothing was given back");
        waits(&both.rust, "p", &[old, new], &permit_channel(&by_java)).await;
        let more = is_heard(new, java, EXPIRABLE, &by_java, &id, ours_waits).await;
        more.release().await.expect("held");
        waits(&both.java, "p", &[old, new], &permit_channel(&by_rust)).await;
        let id = hears(new, ours, java_waits).await;
        release(java, EXPIRABLE, &by_rust, &id).await;
    }
}

/// Waits until `who` waits, who listens at one of these.
async fn waits(side: &Side, who: &str, servers: &[&Server], channel: &str) {
    let listens = async || {
        let mut listening = 0;
        for server in servers {
            let counts = server.command(&["PUBSUB", "SHARDNUMSUB", channel]).await;
            let (_, count): (String, i64) = redis::from_redis_value(counts).expect("a count");
            listening += count;
        }
        listening > 0
    };
    eventually(LIMIT, "it listens", listens).await;
    if let Side::Java(java) = side {
        let is_parked = format!("is-parked {who}");
        let sleeps = async || java.number("operator", &is_parked).await == 1;
        eventually(LIMIT, "Java sleeps", sleeps).await;
    }
}

/// Who waits is let in by the release, and not by a timer.
async fn wakes(server: &Server, freed: Call, wait: Call) {
    let freed = freed.done().await;
    let next = in_time(LIMIT, "it is let in", wait.done()).await;
    is_soon(server, freed.began_us, next.ended_us);
    assert_eq!((freed.value(), next.value()), (1, 1));
}

fn is_soon(server: &Server, freed_us: u64, had_us: u64) {
    let late = Duration::from_micros(had_us.saturating_sub(freed_us));
    assert!(late < server.widened(TOLD_WITHIN), "let in {late:?} after the release");
}

/// Java has the permit that we give back.
async fn hears(server: &Server, ours: Permit, wait: JoinHandle<Done<String>>) -> String {
    let freed_us = shared_clock_us();
    ours.release().await.expect("held");
    let next = in_time(LIMIT, "Java has it", wait).await.expect("no panic");
    is_soon(server, freed_us, next.ended_us);
    next.value()
}

/// Ours has the permit that Java gives back.
async fn is_heard(
    server: &Server,
    java: &Java,
    sort: &str,
    name: &str,
    id: &str,
    wait: JoinHandle<OurPermit>,
) -> Permit {
    let freed_us = shared_clock_us();
    release(java, sort, name, id).await;
    let permit = in_time(LIMIT, "ours has it", wait).await.expect("no panic").expect("a permit");
    is_soon(server, freed_us, shared_clock_us());
    permit
}

/// A semaphore with one permit.
fn semaphore(both: &Both, name: &str) -> Semaphore {
    both.rust().client.semaphore(name).with_permits(1)
}

type OurPermit = Result<Permit, leasehold::Error>;

fn acquire_ours(semaphore: &Semaphore) -> JoinHandle<OurPermit> {
    tokio::spawn(semaphore.acquire())
}

fn acquire(java: &Java, thread: &str, sort: &str, name: &str) -> JoinHandle<Done<String>> {
    tokio::spawn(java.ask(thread, &format!("acquire {sort} {}", hex(name))))
}

async fn is_refused(java: &Java, sort: &str, name: &str) -> bool {
    java.text("c", &format!("try-acquire {sort} {}", hex(name))).await == "none"
}

async fn release(java: &Java, sort: &str, name: &str, id: &str) {
    assert_eq!(java.text("c", &format!("release {sort} {} {id}", hex(name))).await, "1");
}

fn rw_channel(name: &str) -> String {
    format!("redisson_rwlock:{{{name}}}")
}

fn permit_channel(name: &str) -> String {
    format!("redisson_sc:{{{name}}}")
}

/// Java's sorts, as its helper calls them. Nothing is held until the end of a lease.
const PLAIN: &str = "plain";
const EXPIRABLE: &str = "expirable=600000";
