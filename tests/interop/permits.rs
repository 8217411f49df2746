//! Permits: Redisson's RPermitExpirableSemaphore and RSemaphore, and our semaphore of the same name.

use std::time::Duration;

use leasehold::{Client, Permit, Semaphore};
use leasehold_testkit::{
    Watch, Worker, eventually, in_time,
    java::{Java, Version},
    shared_clock_us,
};
use redis::Value;

use crate::{side::Table, with_each_redisson};

with_each_redisson!(
    each_counts_the_permits_of_the_others_and_wakes_them,
    there_are_never_more_permits_out_than_there_are,
    permits_of_killed_processes_come_back,
    a_waiter_of_ours_hears_permits_of_java_that_were_taken_unheard,
    a_paused_process_has_lost_its_permit,
    a_killed_waiter_delays_nobody,
);

/// Java's sorts, as its helper calls them.
const PLAIN: &str = "plain";
const EXPIRABLE: &str = "expirable=20000";
const SHORT_LEASE: &str = "expirable=1200";

async fn acquire(java: &Java, sort: &str) -> String {
    java.text("a", &format!("acquire {sort} 6e")).await
}

async fn is_refused(java: &Java, sort: &str) -> bool {
    java.text("a", &format!("try-acquire {sort} 6e")).await == "none"
}

async fn release(java: &Java, sort: &str, id: &str) {
    assert_eq!(java.text("a", &format!("release {sort} 6e {id}")).await, "1");
}

/// A permit of ours, within the time that a message takes.
async fn woken(watch: &Watch, wait: tokio::task::JoinHandle<OurPermit>) -> Permit {
    let permit = in_time(watch.widened(WOKEN), "ours is woken", wait).await;
    permit.expect("no panic").expect("a permit")
}

type OurPermit = Result<Permit, leasehold::Error>;

/// All permits are there, and nobody has one.
async fn all_are_back(table: &Table, count: i64) {
    let semaphore = table.rust().client.semaphore("n");
    let status = semaphore.status().await.expect("an answer");
    assert_eq!((status.available, status.held), (count, 0), "{status:?}");
    assert_eq!(table.java().number("a", "permits 6e").await, count);
    assert_eq!(table.server.command(&["ZCARD", "{n}:timeout"]).await, Value::Int(0));
}

async fn somebody_waits(table: &Table) {
    table.listen(CHANNEL, 1).await;
}

async fn each_counts_the_permits_of_the_others_and_wakes_them(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let java = table.java();
    let semaphore = table.rust().client.semaphore("n").with_permits(3);
    let mut ours = semaphore.acquire().await.expect("there are three");
    let plain = acquire(java, PLAIN).await;
    let expirable = acquire(java, EXPIRABLE).await;
    let status = semaphore.status().await.expect("an answer");
    assert_eq!((status.available, status.held), (0, 2), "one has no owner: {status:?}");
    assert!(status.holders.iter().any(|it| it.holder.to_string() == expirable), "{status:?}");
    let mut ids = Vec::new();
    for (sort, id) in [(PLAIN, plain), (EXPIRABLE, expirable)] {
        assert!(is_refused(java, PLAIN).await && is_refused(java, EXPIRABLE).await);
        assert!(semaphore.try_acquire().await.expect("an answer").is_none());
        let wait = tokio::spawn(semaphore.acquire());
        somebody_waits(&table).await;
        release(java, sort, &id).await;
        let more = woken(&watch, wait).await;
        let wait = java.ask("b", &format!("acquire {sort} 6e"));
        somebody_waits(&table).await;
        std::mem::replace(&mut ours, more).release().await.expect("held");
        let next = in_time(watch.widened(WOKEN), "Java is woken", wait).await;
        ids.push((sort, next.value()));
    }
    // Several at once wait for the last of Java's.
    ours.release().await.expect("held");
    let wait = tokio::spawn(semaphore.acquire_many(3));
    somebody_waits(&table).await;
    for (sort, id) in &ids {
        assert!(!wait.is_finished());
        release(java, sort, id).await;
    }
    let all = woken(&watch, wait).await;
    assert!(is_refused(java, PLAIN).await && is_refused(java, EXPIRABLE).await);
    all.release().await.expect("held");
    all_are_back(&table, 3).await;
}

async fn permits_of_killed_processes_come_back(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let semaphore = table.rust().client.semaphore("n").with_permits(1);
    semaphore.set_permits(1).await.expect("an answer");

    let java = connect(&table, version).await;
    let asked_us = shared_clock_us();
    acquire(&java, SHORT_LEASE).await;
    let wait = tokio::spawn(semaphore.acquire());
    somebody_waits(&table).await;
    java.kill();
    let permit = in_time(watch.widened(SHORT + LATENESS), "its lease ends", wait).await;
    assert!(shared_clock_us() - asked_us >= SHORT.as_micros() as u64, "before its end");
    permit.expect("no panic").expect("a permit").release().await.expect("held");

    // Java waits for the end of ours; its plain semaphore does not know of it.
    let mut worker = holder(&table);
    assert!(is_refused(table.java(), PLAIN).await);
    let wait = table.java().ask("b", &format!("acquire {EXPIRABLE} 6e"));
    somebody_waits(&table).await;
    worker.kill();
    let next = in_time(watch.widened(SHORT + LATENESS), "its TTL ends", wait).await;
    release(table.java(), EXPIRABLE, &next.value()).await;
    let mut worker = holder(&table);
    worker.kill();
    tokio::time::sleep(SHORT + LATENESS).await;
    assert!(is_refused(table.java(), PLAIN).await, "it looks at no ends");
    let permit = semaphore.try_acquire().await.expect("an answer");
    permit.expect("ours does").release().await.expect("held");

    // A plain permit has no end: it is lost until somebody says how many there are.
    let java = connect(&table, version).await;
    acquire(&java, PLAIN).await;
    java.kill();
    let wait = table.java().ask("b", &format!("acquire {PLAIN} 6e"));
    somebody_waits(&table).await;
    assert!(semaphore.try_acquire().await.expect("an answer").is_none());
    semaphore.set_permits(1).await.expect("an answer");
    let next = in_time(watch.widened(WOKEN), "Java is woken", wait).await;
    release(table.java(), PLAIN, &next.value()).await;
    all_are_back(&table, 1).await;
}

/// Java takes what is too little for the first in the queue, and tells nobody.
async fn a_waiter_of_ours_hears_permits_of_java_that_were_taken_unheard(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let semaphore = table.rust().client.semaphore("n").with_permits(2);
    for sort in [PLAIN, EXPIRABLE] {
        let ours = semaphore.acquire().await.expect("there are two");
        let wait = tokio::spawn(semaphore.acquire_many(2));
        let queued = ["ZCARD", "leasehold_permit_queue:{n}"];
        let waits = async || table.server.command(&queued).await == Value::Int(1);
        eventually(LIMIT, "ours waits", waits).await;
        let id = acquire(table.java(), sort).await;
        ours.release().await.expect("held");
        // Sooner than it asks by itself.
        in_time(watch.widened(WOKEN), "it listens", table.listen(CHANNEL, 1)).await;
        release(table.java(), sort, &id).await;
        woken(&watch, wait).await.release().await.expect("held");
        all_are_back(&table, 2).await;
    }
}

async fn a_paused_process_has_lost_its_permit(version: Version) {
    let table = Table::lay(version, TTL).await;
    let semaphore = table.rust().client.semaphore("n").with_permits(1);
    semaphore.set_permits(1).await.expect("an answer");
    let java = connect(&table, version).await;
    let id = acquire(&java, SHORT_LEASE).await;
    java.pause();
    let permit = in_time(LIMIT, "ours has it", semaphore.acquire()).await.expect("a permit");
    java.resume();
    let late = java.ask("a", &format!("release {SHORT_LEASE} 6e {id}")).await.outcome;
    assert!(late.is_err(), "it had a permit still: {late:?}");
    assert!(permit.is_held() && is_refused(&java, EXPIRABLE).await);
    permit.release().await.expect("held");

    let mut worker = holder(&table);
    worker.pause();
    let id = in_time(LIMIT, "Java has it", acquire(table.java(), EXPIRABLE)).await;
    worker.resume();
    worker.tell("say hello");
    assert_eq!(worker.answer(), ["hello"]);
    // For as long as its renewals would come.
    let more = semaphore.try_acquire_for(SHORT).await.expect("an answer");
    assert!(more.is_none(), "two have one permit");
    release(table.java(), EXPIRABLE, &id).await;
    all_are_back(&table, 1).await;
}

async fn a_killed_waiter_delays_nobody(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let semaphore = table.rust().client.semaphore("n").with_permits(1);
    for sort in [PLAIN, EXPIRABLE] {
        let permit = semaphore.acquire().await.expect("there is one");
        let java = connect(&table, version).await;
        drop(java.ask("a", &format!("acquire {sort} 6e")));
        somebody_waits(&table).await;
        let wait = tokio::spawn(semaphore.acquire());
        java.kill();
        permit.release().await.expect("held");
        woken(&watch, wait).await.release().await.expect("held");

        let id = acquire(table.java(), sort).await;
        let mut worker = Worker::start();
        worker.tell(&format!("hold permit {} n {}", table.server.url(), SHORT.as_millis()));
        let queued = ["ZCARD", "leasehold_permit_queue:{n}"];
        let waits = async || table.server.command(&queued).await == Value::Int(1);
        eventually(LIMIT, "ours waits", waits).await;
        let wait = table.java().ask("b", &format!("acquire {sort} 6e"));
        table.listen(CHANNEL, 2).await;
        worker.kill();
        release(table.java(), sort, &id).await;
        let next = in_time(watch.widened(WOKEN), "Java is woken", wait).await;
        release(table.java(), sort, &next.value()).await;
        all_are_back(&table, 1).await;
    }
}

/// Another process of Java.
async fn connect(table: &Table, version: Version) -> Java {
    Java::connect(version, &table.server.url(), TTL).await
}

/// Another process of ours that has a permit.
fn holder(table: &Table) -> Worker {
    let mut worker = Worker::start();
    worker.tell(&format!("hold permit {} n {}", table.server.url(), SHORT.as_millis()));
    assert_eq!(worker.answer(), ["held"]);
    worker
}

/// When a permit was had, and until when.
type Turn = (u64, u64);

/// Both of Java's sorts and two clients of ours, each with several that take turns.
async fn there_are_never_more_permits_out_than_there_are(version: Version) {
    const PERMITS: u32 = 3;
    const TURNS: usize = 60;
    let table = Table::lay(version, TTL).await;
    let semaphore = table.rust().client.semaphore("n");
    semaphore.set_permits(PERMITS).await.expect("an answer");
    let turns = |sort: &str| table.java().ask(sort, &format!("permit-turns {sort} 6e 3 {TURNS}"));
    let of_java = [turns(PLAIN), turns(EXPIRABLE)];
    let url = table.server.url();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(&url).await.expect("connected");
        tasks.extend((0..3).map(|_| tokio::spawn(take_turns(client.semaphore("n"), TURNS))));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(in_time(LIMIT, "its turns", task).await.expect("no panic"));
    }
    for turns in of_java {
        let turns = turns.await.value();
        all.extend(turns.split(' ').map(|turn| {
            let (from, to) = turn.split_once('-').expect("two times");
            let [from, to] = [from, to].map(|word| word.parse::<u64>().expect("a time"));
            (from, to)
        }));
    }
    assert_eq!(all.len(), 12 * TURNS);
    let most = most_at_once(&all);
    println!("{version:?}: {} turns, {most} at once at most", all.len());
    assert!((1..=PERMITS).contains(&most), "{most} had a permit at once");
    all_are_back(&table, PERMITS.into()).await;
}

async fn take_turns(semaphore: Semaphore, turns: usize) -> Vec<Turn> {
    let mut record = Vec::new();
    for _ in 0..turns {
        let permit = semaphore.acquire().await.expect("its turn comes");
        let from_us = shared_clock_us();
        tokio::time::sleep(Duration::from_millis(2)).await;
        record.push((from_us, shared_clock_us()));
        permit.release().await.expect("held until then");
    }
    record
}

fn most_at_once(turns: &[Turn]) -> u32 {
    // An end comes before a beginning at the same microsecond.
    let mut steps: Vec<(u64, i32)> =
        turns.iter().flat_map(|&(from, to)| [(from, 1), (to, -1)]).collect();
    steps.sort_unstable();
    let mut now = 0;
    let most = steps.iter().map(|(_, step)| {
        now += step;
        now
    });
    most.max().unwrap_or(0).try_into().expect("more begin than end")
}

const TTL: Duration = Duration::from_secs(30);
/// Of leases whose end is waited for.
const SHORT: Duration = Duration::from_millis(1200);
/// Far below the TTL, and below the times at which either side looks by itself.
const WOKEN: Duration = Duration::from_millis(1500);
/// What a wait for an end may take longer.
const LATENESS: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(120);
const CHANNEL: &str = "redisson_sc:{n}";
