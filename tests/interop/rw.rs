//! Read-write locks: Redisson's RReadWriteLock and ours of the same name.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Client, LossReason, RwLock};
use leasehold_testkit::{
    Server, Watch, Worker, eventually, in_time,
    java::{Call, Failure, Java, Version, hex},
};
use redis::Value;

use crate::{
    leases::lateness,
    side::{Of, Side, Table},
    stampede::{Crew, Made, Record},
    with_each_redisson,
};

with_each_redisson!(
    each_keeps_the_other_out_and_wakes_it,
    a_killed_holder_is_succeeded_at_its_end,
    a_paused_holder_is_succeeded_and_told,
    a_killed_waiter_delays_nobody,
    a_downgrade_of_ours_wakes_java,
    a_writer_of_ours_hears_readers_of_java_that_came_in_unheard,
    a_writer_of_java_gets_in_beside_overlapping_readers_of_ours,
    a_reader_of_ours_stands_behind_a_writer_of_ours_that_readers_of_java_pass,
    a_reader_of_java_keeps_writers_out_for_as_long_as_it_reads,
    a_reader_of_java_that_is_gone_keeps_writers_out_until_the_lock_ends,
    a_watchdog_of_less_time_than_our_ttl_breaks_our_read_lock,
    no_reader_is_inside_beside_a_writer,
);

/// Waits until somebody listens for releases.
async fn somebody_waits(table: &Table, name: &str) {
    table.listen(&format!("redisson_rwlock:{{{name}}}"), 1).await;
}

/// Waits until `who` waits. Java's threads do not hear of a writer's release until they are asleep.
async fn waits(table: &Table, side: &Side, who: &str, name: &str) {
    somebody_waits(table, name).await;
    if let Side::Java(java) = side {
        let is_parked = format!("is-parked {who}");
        let sleeps = async || java.number("operator", &is_parked).await == 1;
        eventually(LIMIT, "Java waits", sleeps).await;
    }
}

/// All of these are let in by a release, and not by their timers.
async fn wakes(watch: &Watch, freed: Call, waits: impl IntoIterator<Item = Call>) {
    let freed = freed.done().await;
    for wait in waits {
        let next = in_time(LIMIT, "it is let in", wait.done()).await;
        let late = Duration::from_micros(next.ended_us.saturating_sub(freed.ended_us));
        assert!(late <= watch.widened(WOKEN), "let in {late:?} after the release");
        assert_eq!(next.value(), 1);
    }
    assert_eq!(freed.value(), 1);
}

/// Neither the lock nor an end of a reader.
async fn nothing_is_left(server: &Server, name: &str) {
    let is_left = server.command(&["KEYS", &format!("*{name}*rwlock_timeout*")]).await;
    assert_eq!(is_left, Value::Array(Vec::new()));
    assert_eq!(server.command(&["EXISTS", name]).await, Value::Int(0));
}

async fn each_keeps_the_other_out_and_wakes_it(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    for (holder, other) in table.both_ways() {
        let name = &format!("held-by-{}", holder.name());
        // Readers share, and keep writers out.
        assert_eq!(holder.take(Of::Read, "a", name).value().await, 1);
        assert_eq!(other.try_take(Of::Read, "b", name, NOW).value().await, 1);
        for side in [holder, other] {
            for wait in [NOW, Duration::from_millis(50)] {
                assert_eq!(side.try_take(Of::Write, "c", name, wait).value().await, 0);
            }
        }
        assert_eq!(other.leave(Of::Read, "b", name).value().await, 1);
        let wait = other.take(Of::Write, "b", name);
        waits(&table, other, "b", name).await;
        wakes(&watch, holder.leave(Of::Read, "a", name), [wait]).await;
        // A writer keeps all others out.
        for side in [holder, other] {
            for of in [Of::Read, Of::Write] {
                assert_eq!(side.try_take(of, "c", name, NOW).value().await, 0);
            }
        }
        let wait = holder.take(Of::Write, "a", name);
        waits(&table, holder, "a", name).await;
        wakes(&watch, other.leave(Of::Write, "b", name), [wait]).await;
        // Readers of both come in at once.
        let readers = [other.take(Of::Read, "b", name), holder.take(Of::Read, "c", name)];
        waits(&table, other, "b", name).await;
        waits(&table, holder, "c", name).await;
        wakes(&watch, holder.leave(Of::Write, "a", name), readers).await;
        assert_eq!(other.leave(Of::Read, "b", name).value().await, 1);
        assert_eq!(other.try_take(Of::Write, "b", name, NOW).value().await, 0, "one reads still");
        assert_eq!(holder.leave(Of::Read, "c", name).value().await, 1);
        nothing_is_left(&table.server, name).await;
    }
}

async fn a_killed_holder_is_succeeded_at_its_end(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, SHORT).await;
    for of in [Of::Read, Of::Write] {
        let (name, next, java) = java_holds(&table, version, of).await;
        java.java().kill();
        let late = lateness(&table.server, &name, SHORT, next.done()).await;
        assert!(late <= watch.widened(LATENESS), "ours had it {late:?} after the end");
        assert_eq!(table.rust.leave(Of::Write, "b", &name).value().await, 1);

        let (name, next, mut worker) = rust_holds(&table, of).await;
        worker.kill();
        let late = lateness(&table.server, &name, SHORT, next.done()).await;
        assert!(late <= watch.widened(LATENESS), "Java had it {late:?} after the end");
        assert_eq!(table.java.leave(Of::Write, "b", &name).value().await, 1);
        nothing_is_left(&table.server, &name).await;
    }
}

async fn a_paused_holder_is_succeeded_and_told(version: Version) {
    let table = Table::lay(version, SHORT).await;
    for of in [Of::Read, Of::Write] {
        let (name, next, java) = java_holds(&table, version, of).await;
        java.java().pause();
        assert_eq!(in_time(LIMIT, "ours has it", next.value()).await, 1);
        java.java().resume();
        assert_eq!(java.leave(of, "a", &name).done().await.outcome, Err(Failure::NotHeld));
        assert_eq!(java.try_take(Of::Read, "a", &name, NOW).value().await, 0);
        assert!(table.rust().look("b", &name, |guard| guard.is_held()));
        assert_eq!(table.rust.leave(Of::Write, "b", &name).value().await, 1);

        let (name, next, mut worker) = rust_holds(&table, of).await;
        worker.pause();
        assert_eq!(in_time(LIMIT, "Java has it", next.value()).await, 1);
        worker.resume();
        worker.tell("say hello");
        assert_eq!(worker.answer(), ["hello"]);
        // For as long as its renewals would come.
        assert_eq!(table.rust.try_take(Of::Read, "c", &name, SHORT).value().await, 0);
        assert_eq!(table.java.leave(Of::Write, "b", &name).value().await, 1);
        nothing_is_left(&table.server, &name).await;
    }
}

/// Another process of Java holds one side for more than one renewal, and ours waits to write.
async fn java_holds(table: &Table, version: Version, of: Of) -> (String, Call, Side) {
    let name = format!("{of:?}-of-java");
    let java = Side::Java(Java::connect(version, &table.server.url(), SHORT).await);
    assert_eq!(java.take(of, "a", &name).value().await, 1);
    let next = table.rust.take(Of::Write, "b", &name);
    somebody_waits(table, &name).await;
    tokio::time::sleep(SHORT * 2 / 3).await;
    (name, next, java)
}

/// Another process of ours holds one side for more than one renewal, and Java waits to write.
async fn rust_holds(table: &Table, of: Of) -> (String, Call, Worker) {
    let name = format!("{of:?}-of-rust");
    let kind = if of == Of::Read { "read" } else { "write" };
    let mut worker = Worker::start();
    worker.tell(&format!("hold {kind} {} {name} {}", table.server.url(), SHORT.as_millis()));
    assert_eq!(worker.answer(), ["held"]);
    let next = table.java.take(Of::Write, "b", &name);
    somebody_waits(table, &name).await;
    tokio::time::sleep(SHORT * 2 / 3).await;
    (name, next, worker)
}

async fn a_killed_waiter_delays_nobody(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let url = table.server.url();
    for of in [Of::Read, Of::Write] {
        assert_eq!(table.rust.take(Of::Write, "a", "n").value().await, 1);
        let java = Side::Java(Java::connect(version, &url, TTL).await);
        let kind = if of == Of::Read { "read" } else { "write" };
        // Nobody waits for its answer.
        drop(java.java().ask("b", &format!("lock {kind} 6e")));
        somebody_waits(&table, "n").await;
        let ours = table.rust.take(of, "b", "n");
        java.java().kill();
        wakes(&watch, table.rust.leave(Of::Write, "a", "n"), [ours]).await;
        assert_eq!(table.rust.leave(of, "b", "n").value().await, 1);

        assert_eq!(table.java.take(Of::Write, "a", "n").value().await, 1);
        let mut worker = Worker::start();
        worker.tell(&format!("hold {kind} {url} n {}", TTL.as_millis()));
        let queued = ["ZCARD", "leasehold_rw_queue:{n}"];
        let is_queued = async || table.server.command(&queued).await == Value::Int(1);
        eventually(LIMIT, "ours waits", is_queued).await;
        let javas = table.java.take(of, "b", "n");
        waits(&table, &table.java, "b", "n").await;
        worker.kill();
        wakes(&watch, table.java.leave(Of::Write, "a", "n"), [javas]).await;
        assert_eq!(table.java.leave(of, "b", "n").value().await, 1);
        nothing_is_left(&table.server, "n").await;
    }
}

async fn a_downgrade_of_ours_wakes_java(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let writer = table.rust().client.rw_lock("n").write().await.expect("free");
    let wait = table.java.take(Of::Read, "a", "n");
    waits(&table, &table.java, "a", "n").await;
    let reader = writer.downgrade().await.expect("held");
    assert_eq!(in_time(watch.widened(WOKEN), "Java reads", wait.value()).await, 1);
    assert!(reader.is_held());
    assert_eq!(table.java.try_take(Of::Write, "b", "n", NOW).value().await, 0);
    reader.unlock().await.expect("held");
    assert_eq!(table.java.leave(Of::Read, "a", "n").value().await, 1);

    // Java's wakes nobody: ours finds out by looking.
    for of in [Of::Write, Of::Read] {
        assert_eq!(table.java.take(of, "a", "n").value().await, 1);
    }
    let wait = table.rust.take(Of::Read, "b", "n");
    somebody_waits(&table, "n").await;
    assert_eq!(table.java.leave(Of::Write, "a", "n").value().await, 1);
    assert_eq!(in_time(watch.widened(LOOK), "ours reads", wait.value()).await, 1);
    for side in [&table.java, &table.rust] {
        let who = if side.name() == "java" { "a" } else { "b" };
        assert_eq!(side.leave(Of::Read, who, "n").value().await, 1);
    }
    nothing_is_left(&table.server, "n").await;
}

/// When it began to wait only ours read, of whom it hears without the channel.
async fn a_writer_of_ours_hears_readers_of_java_that_came_in_unheard(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let client = Client::connect(&table.server.url()).await.expect("connected");
    let reader = client.rw_lock("n").read().await.expect("free");
    let wait = table.rust.take(Of::Write, "b", "n");
    let queued = ["ZCARD", "leasehold_rw_queue:{n}"];
    let is_queued = async || table.server.command(&queued).await == Value::Int(1);
    eventually(LIMIT, "ours waits", is_queued).await;
    assert_eq!(table.java.take(Of::Read, "a", "n").value().await, 1);
    reader.unlock().await.expect("held");
    in_time(watch.widened(WOKEN), "it listens", somebody_waits(&table, "n")).await;
    wakes(&watch, table.java.leave(Of::Read, "a", "n"), [wait]).await;
    assert_eq!(table.rust.leave(Of::Write, "b", "n").value().await, 1);
    nothing_is_left(&table.server, "n").await;
}

/// Without a break, one of our readers at least is inside.
async fn a_writer_of_java_gets_in_beside_overlapping_readers_of_ours(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut readers = Vec::new();
    for _ in 0..3 {
        let client = Client::connect(&table.server.url()).await.expect("connected");
        let (lock, stopped) = (client.rw_lock("n"), stopped.clone());
        readers.push(tokio::spawn(async move {
            let (mut turns, mut longest) = (0, Duration::ZERO);
            while !*stopped.borrow() {
                let began = Instant::now();
                let guard = lock.read().await.expect("its turn comes");
                longest = longest.max(began.elapsed());
                tokio::time::sleep(READ).await;
                guard.unlock().await.expect("held until then");
                turns += 1;
            }
            (turns, longest)
        }));
    }
    tokio::time::sleep(READ * 2).await;
    let mut waits = Vec::new();
    for _ in 0..5 {
        let call = in_time(LIMIT, "it writes", table.java.take(Of::Write, "a", "n").done()).await;
        waits.push(call.took());
        assert_eq!(table.java.leave(Of::Write, "a", "n").value().await, 1);
        // Our readers overlap again.
        tokio::time::sleep(READ * 2).await;
    }
    stop.send(true).expect("they read");
    for reader in readers {
        let (turns, longest) = reader.await.expect("no panic");
        println!("{version:?}: {turns} reads, the longest wait {longest:?}");
        assert!(longest <= watch.widened(LET_IN), "ours waited {longest:?}");
    }
    println!("{version:?}: Java waited {waits:?}");
    let longest = waits.into_iter().max().expect("it waited");
    assert!(longest <= watch.widened(LET_IN), "Java waited {longest:?}");
    nothing_is_left(&table.server, "n").await;
}

async fn a_reader_of_ours_stands_behind_a_writer_of_ours_that_readers_of_java_pass(
    version: Version,
) {
    let table = Table::lay(version, TTL).await;
    assert_eq!(table.java.take(Of::Read, "a", "n").value().await, 1);
    let wait = table.rust.take(Of::Write, "b", "n");
    somebody_waits(&table, "n").await;
    assert_eq!(table.java.take(Of::Read, "c", "n").value().await, 1);
    assert_eq!(table.rust.try_take(Of::Read, "d", "n", LOOK).value().await, 0);
    for reader in ["a", "c"] {
        assert_eq!(table.java.leave(Of::Read, reader, "n").value().await, 1);
    }
    assert_eq!(in_time(LIMIT, "ours writes", wait.value()).await, 1);
    assert_eq!(table.rust.leave(Of::Write, "b", "n").value().await, 1);
    nothing_is_left(&table.server, "n").await;
}

/// Whether its watchdog renews one level of it or two, of one lock or of two: some versions forget ends then.
async fn a_reader_of_java_keeps_writers_out_for_as_long_as_it_reads(version: Version) {
    let table = Table::lay(version, LONGER).await;
    let client = Client::connect(&table.server.url()).await.expect("connected");
    let locks = ["once", "twice", "of-two"];
    for name in ["once", "twice", "twice", "of-two"] {
        assert_eq!(table.java.take(Of::Read, "a", name).value().await, 1);
    }
    for _ in 0..8 {
        tokio::time::sleep(LONGER / 5).await;
        for name in locks {
            let lock = client.rw_lock(name).with_ttl(LONGER);
            assert!(lock.try_write().await.expect("an answer").is_none(), "beside {name}");
            // A reader of ours that comes and goes changes nothing.
            let reader = lock.try_read().await.expect("an answer").expect("readers share");
            reader.unlock().await.expect("held");
            assert!(lock.try_write_for(MOMENT).await.expect("an answer").is_none(), "{name}");
        }
    }
    for name in ["twice", "once", "twice", "of-two"] {
        assert_eq!(table.java.leave(Of::Read, "a", name).value().await, 1);
    }
    for name in locks {
        let writer = client.rw_lock(name).try_write().await.expect("an answer");
        writer.expect("free").unlock().await.expect("held");
        nothing_is_left(&table.server, name).await;
    }
}

/// A version that forgets the ends of readers that live makes no difference between them and readers that are gone.
async fn a_reader_of_java_that_is_gone_keeps_writers_out_until_the_lock_ends(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, SHORT * 3).await;
    assert_eq!(table.java.take(Of::Write, "a", "n").value().await, 1);
    let read = format!("lock-for read {} 100", hex("n"));
    assert_eq!(table.java().call("a", &read).value().await, 1);
    assert_eq!(table.java.leave(Of::Write, "a", "n").value().await, 1);
    let ends = ["KEYS", "*rwlock_timeout*"];
    let has_ended = async || table.server.command(&ends).await == Value::Array(Vec::new());
    eventually(LIMIT, "its end comes", has_ended).await;
    for side in [&table.rust, &table.java] {
        assert_eq!(side.try_take(Of::Write, "b", "n", NOW).value().await, 0, "the lock lives");
    }
    let next = table.rust.take(Of::Write, "b", "n");
    let late = lateness(&table.server, "n", SHORT * 3, next.done()).await;
    assert!(late <= watch.widened(LATENESS), "ours had it {late:?} after the end");
    assert_eq!(table.rust.leave(Of::Write, "b", "n").value().await, 1);
    nothing_is_left(&table.server, "n").await;
}

/// The rule of the documentation is there for a reason: our TTL is 30 s here, Java's is not.
async fn a_watchdog_of_less_time_than_our_ttl_breaks_our_read_lock(version: Version) {
    let table = Table::lay(version, SHORT).await;
    let java = Side::Java(Java::connect(version, &table.server.url(), SHORT).await);
    let client = Client::connect(&table.server.url()).await.expect("connected");
    let reader = client.rw_lock("n").read().await.expect("free");
    assert_eq!(java.take(Of::Read, "a", "n").value().await, 1);
    let is_short = async || match table.server.command(&["PTTL", "n"]).await {
        Value::Int(left_ms) => left_ms <= SHORT.as_millis() as i64,
        other => panic!("not a time: {other:?}"),
    };
    assert!(!is_short().await, "Java has not renewed it yet");
    eventually(LIMIT, "Java's watchdog cuts the lock short", is_short).await;
    java.java().kill();
    let next = table.java.take(Of::Write, "b", "n");
    assert_eq!(in_time(SHORT * 4, "Java writes beside our reader", next.value()).await, 1);
    assert!(reader.is_held(), "it cannot know");
    // At its next renewal, a third of its TTL after it came.
    assert_eq!(in_time(LIMIT, "it is told", reader.lost()).await, LossReason::Gone);
    assert_eq!(table.java.leave(Of::Write, "b", "n").value().await, 1);
}

/// Writers of both take turns at one record, and readers of both look whether it changes under them.
async fn no_reader_is_inside_beside_a_writer(version: Version) {
    const TOTAL: u64 = 1_500;
    let table = Table::lay(version, TTL).await;
    let record = Record::in_folder(table.server.dir(), TOTAL);
    let name = crate::stampede::NAME;
    let [writes, reads] = [("write", 3), ("read", 3)].map(|(kind, threads)| {
        let thread = format!("stampede-{kind}");
        table.java().ask(&thread, &record.command(kind, threads, 1))
    });
    let [ours, looks] = [2, 0].map(|mark| Arc::new(Crew::of(&record, mark)));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(&table.server.url()).await.expect("connected");
        for _ in 0..2 {
            tasks.push(tokio::spawn(write(client.rw_lock(name), ours.clone())));
            tasks.push(tokio::spawn(read(client.rw_lock(name), looks.clone())));
        }
    }
    for task in tasks {
        in_time(LIMIT, "its turns", task).await.expect("no panic");
    }
    let by_java = Made::parse(&writes.await.value());
    let seen = [looks.made(), Made::parse(&reads.await.value())];
    let made = [by_java, ours.made()];
    println!("{version:?}: turns {made:?}, looks {seen:?} {}", record.describe_runs());
    record.check(&made);
    let mut all = made.iter().chain(&seen);
    assert!(all.all(|made| made.turns >= TOTAL / 20), "one of them hardly came in");
    assert!(seen.iter().all(Made::is_clean), "a reader saw half a turn: {seen:?}");
    nothing_is_left(&table.server, name).await;
}

async fn write(lock: RwLock, crew: Arc<Crew>) {
    let record = crew.open();
    let mut more = true;
    while more {
        let guard = lock.write().await.expect("its turn comes");
        more = crew.take_turn(&record, guard.token());
        guard.unlock().await.expect("held until then");
    }
}

async fn read(lock: RwLock, crew: Arc<Crew>) {
    let record = crew.open();
    let mut more = true;
    while more {
        let guard = lock.read().await.expect("its turn comes");
        more = crew.look(&record);
        guard.unlock().await.expect("held until then");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const TTL: Duration = Duration::from_secs(30);
/// Of watchdogs whose end is waited for.
const SHORT: Duration = Duration::from_millis(1200);
/// How long a reader reads.
const READ: Duration = Duration::from_millis(300);
/// The second in which readers join, those that are there then, and turns that others were quicker to take.
const LET_IN: Duration = Duration::from_secs(4);
/// A watchdog that may be late by seconds.
const LONGER: Duration = Duration::from_secs(5);
const NOW: Duration = Duration::ZERO;
const MOMENT: Duration = Duration::from_millis(20);
/// Far below the TTL, and below the times at which either side looks by itself.
const WOKEN: Duration = Duration::from_millis(1500);
/// How late ours looks at a lock of which it hears nothing, at the latest.
const LOOK: Duration = Duration::from_millis(4200);
/// What a wait for an end may take longer.
const LATENESS: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(120);
