//! Several processes on one lock: woken by each other, taking over from one that was killed.

use std::time::{Duration, Instant};

use leasehold::{Client, Error};
use redis::Value;

use crate::{
    checks::{LIMIT, nothing_left, setup, soon},
    support::{Server, Worker, eventually, heard, shared_clock_us, waiting},
};

/// Hundreds of waiters over several processes, thousands of hand-overs, while the connections that bring the
/// messages are killed again and again: with others waiting, the lock is never free for as long as a waiter
/// rests that nobody wakes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_while_subscriptions_are_killed() {
    const PROCESSES: usize = 4;
    const TASKS: usize = 75;
    const TURNS: usize = 10;
    let server = Server::start().await;
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start()).collect();
    for worker in &mut workers {
        worker.tell(&format!("turns {} n {TASKS} {TURNS}", server.url()));
    }
    for worker in &mut workers {
        assert_eq!(worker.answer(), ["ready"]);
    }
    let reports = tokio::task::spawn_blocking(move || {
        workers.iter_mut().map(Worker::answers).collect::<Vec<_>>()
    });
    let mut killed = 0;
    while !reports.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Value::Int(count) = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await {
            killed += count;
        }
    }
    let reports = reports.await.expect("no panic");
    let mut turns = Vec::new();
    let mut stall_us = 0;
    for report in reports.into_iter().flatten() {
        match report.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["stall", us] => stall_us = u64::max(stall_us, us.parse().expect("a number")),
            [token, from, to] => {
                let number = |word: &str| word.parse::<u64>().expect("a number");
                turns.push((number(from), number(to), number(token)));
            }
            _ => panic!("not a line of a report: {report:?}"),
        }
    }
    turns.sort();
    assert_eq!(turns.len(), PROCESSES * TASKS * TURNS);
    let mut longest_free_us = 0;
    for pair in turns.windows(2) {
        let ((_, freed_at, token), (held_from, _, next)) = (pair[0], pair[1]);
        assert!(token < next, "token {next} after {token}");
        longest_free_us = longest_free_us.max(held_from.saturating_sub(freed_at));
    }
    println!(
        "{} turns, {killed} subscriptions killed, free for {:.1} ms at most, longest stall {:.1} ms",
        turns.len(),
        longest_free_us as f64 / 1e3,
        stall_us as f64 / 1e3
    );
    assert!(killed > 20, "only {killed} subscriptions were killed");
    // Between two connections a client hears nothing for up to a quarter of a second, and some connections break before
    // the server has confirmed the subscription. A waiter that nobody wakes asks after two seconds at the earliest.
    assert!(longest_free_us <= 1_000_000 + stall_us, "free for {longest_free_us} us");
}

/// A holder that is killed: the waiter has the lock at most 50 ms after the key's end, by the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_succeeded_when_its_key_expires() {
    const TTL_MS: i64 = 1000;
    let server = Server::start().await;
    for round in 0..3 {
        let name = format!("n{round}");
        let mut holder = Worker::start();
        holder.tell(&format!("hold {} {name} {TTL_MS}", server.url()));
        let held = holder.answer();
        assert_eq!(held[0], "held");
        let token: u64 = held[1].parse().expect("a token");
        let mut successor = Worker::start();
        successor.tell(&format!("hold {} {name} {TTL_MS}", server.url()));
        let limit = Duration::from_secs(20);
        let waits = async || waiting(&server, &name).await == 1;
        eventually(limit, "the successor waits", waits).await;
        // Past the first renewal, so that what ends is a renewed lease.
        tokio::time::sleep(Duration::from_millis(TTL_MS as u64 * 2 / 3)).await;
        holder.kill();
        let expires_at_us = expiry_us(&server, &name).await;
        let left_ms = (expires_at_us - shared_clock_us() as i64) / 1000;
        assert!((1..=TTL_MS).contains(&left_ms), "{left_ms} ms left after the kill");
        let succeeded = successor.answer();
        let late_us = succeeded[2].parse::<i64>().expect("a time") - expires_at_us;
        println!("round {round}: {:.1} ms after the key's end", late_us as f64 / 1e3);
        assert!(late_us >= 0, "taken before the key's end");
        let limit = server.widened(Duration::from_millis(50));
        assert!(late_us as u128 <= limit.as_micros(), "{late_us} us after the key's end");
        assert!(succeeded[1].parse::<u64>().expect("a token") > token);
    }
}

/// The server grants the lock to a process that is stopped: it is passed over when its first lease ends, once. When it
/// runs again it has not got the lock, and waits for its next turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_at_the_head_of_the_queue_is_passed_over_once() {
    let (server, [client, other]) = setup().await;
    let lock = client.mutex("n");
    let in_queue = async |count| {
        let queued = async || waiting(&server, "n").await == count;
        eventually(LIMIT, "so many are in the queue", queued).await;
    };
    let held = lock.lock().await.expect("free");
    let mut head = Worker::start();
    head.tell(&format!("hold {} n {}", server.url(), HOLD.as_millis()));
    in_queue(1).await;
    // Whom nobody can reach yet would be passed over at once.
    are_heard(&server, 1).await;
    head.pause();
    let waiter = tokio::spawn(other.mutex("n").lock());
    in_queue(2).await;
    let released_at = Instant::now();
    held.unlock().await.expect("held");
    let guard = soon("the waiter has its turn", waiter).await.expect("no panic").expect("free");
    let passed_after = released_at.elapsed();
    println!("passed over after {passed_after:.1?}");
    let limit = server.widened_by(4, SHORT_LEASE + Duration::from_millis(500));
    assert!(passed_after < limit, "passed over after {passed_after:?}");

    let waiter = tokio::spawn(lock.lock());
    in_queue(1).await;
    are_heard(&server, 3).await;
    let first_token = guard.token();
    head.resume();
    // It queues again, behind who came meanwhile.
    in_queue(2).await;
    guard.unlock().await.expect("held by one only");
    let guard = soon("the next has its turn", waiter).await.expect("no panic").expect("free");
    assert!(guard.token() > first_token);
    let last_token = guard.token();
    guard.unlock().await.expect("held by one only");
    let answer = tokio::task::spawn_blocking(move || (head.answer(), head));
    let (held, _head) = soon("the process has its turn", answer).await.expect("no panic");
    assert_eq!(held[0], "held");
    assert!(held[1].parse::<u64>().expect("a token") > last_token);
}

/// A process that stands still, with many places in a queue.
struct Stopped<'a, Q: AsyncFn() -> usize> {
    server: &'a Server,
    process: Worker,
    /// How many wait.
    queued: Q,
    places: usize,
}

impl<'a, Q: AsyncFn() -> usize> Stopped<'a, Q> {
    /// Lines up, and stands still.
    async fn with(server: &'a Server, kind: &str, name: &str, places: usize, queued: Q) -> Self {
        let mut process = Worker::start();
        process.tell(&format!("line-up {kind} {} {name} {places}", server.url()));
        let stopped = Self { server, process, queued, places };
        stopped.are_queued(places, 1).await;
        stopped.process.pause();
        stopped
    }

    /// Waits until so many are in the queue, and so many clients can be told.
    async fn are_queued(&self, places: usize, clients: usize) {
        let so_many = async || (self.queued)().await == places;
        eventually(LIMIT, "so many are in the queue", so_many).await;
        are_heard(self.server, clients).await;
    }

    /// One waits behind it.
    async fn has_one_behind(&self) {
        self.are_queued(self.places + 1, 2).await;
    }

    /// Checks how long that one waited, which is not once for each place.
    fn delays_once(&self, delay: Duration) {
        println!("passed over after {delay:.1?}");
        let limit =
            self.server.widened_by(4, SHORT_LEASE + LONGEST_POLL + Duration::from_millis(500));
        assert!(delay < limit, "passed over after {delay:?}");
    }

    /// It went on: each of its places has its turn.
    async fn has_all_turns(self) {
        let Self { mut process, places, .. } = self;
        let answer = tokio::task::spawn_blocking(move || (process.answer(), process));
        let (turns, _process) = soon("all of it have a turn", answer).await.expect("no panic");
        assert_eq!(turns, ["turns", &places.to_string()]);
    }
}

/// Each of its places is granted the lock by a message, which ends after two seconds. It loses all of them with the first, and asks
/// anew when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_with_many_places_delays_the_others_once() {
    const PLACES: usize = 8;
    let (server, [client, other]) = setup().await;
    let queued = async || waiting(&server, "n").await as usize;
    let held = client.fair_mutex("n").lock().await.expect("free");
    let stopped = Stopped::with(&server, "mutex", "n", PLACES, queued).await;
    let waiter = tokio::spawn(other.fair_mutex("n").lock());
    stopped.has_one_behind().await;
    let released_at = Instant::now();
    held.unlock().await.expect("held");
    let guard = soon("the waiter has its turn", waiter).await.expect("no panic").expect("free");
    stopped.delays_once(released_at.elapsed());
    assert_eq!(waiting(&server, "n").await, 0, "it keeps places");

    stopped.process.resume();
    stopped.are_queued(PLACES, 2).await;
    guard.unlock().await.expect("held by one only");
    stopped.has_all_turns().await;
    nothing_left(&server, &client).await;
}

/// It has no permit but the one that it was granted by a message, and keeps no place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_with_many_places_delays_the_others_once_at_a_semaphore() {
    let (server, [client, other]) = setup().await;
    let api = client.semaphore("api").with_permits(1);
    let queued = async || api.status().await.expect("an answer").waiting.len();
    let held = api.acquire().await.expect("free");
    let stopped = Stopped::with(&server, "permit", "api", 8, queued).await;
    let waiter = tokio::spawn(other.semaphore("api").acquire());
    stopped.has_one_behind().await;
    let released_at = Instant::now();
    held.release().await.expect("held");
    let permit = soon("the waiter has its turn", waiter).await.expect("no panic").expect("free");
    stopped.delays_once(released_at.elapsed());
    permit.release().await.expect("held");
    stopped.process.resume();
    stopped.has_all_turns().await;
}

/// An item that is lent to it by a message comes to a worker that lives, long before it was delivered so often that it is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_with_many_places_takes_no_item_from_the_others() {
    const PLACES: usize = 12;
    let (server, [client]) = setup().await;
    let jobs = client.queue("jobs");
    let queued = async || jobs.status().await.expect("an answer").waiting.len();
    let stopped = Stopped::with(&server, "item", "jobs", PLACES, queued).await;
    let worker = tokio::spawn(jobs.pop());
    stopped.has_one_behind().await;
    let pushed_at = Instant::now();
    jobs.push("x").await.expect("an answer");
    let delivery = soon("the worker has it", worker).await.expect("no panic").expect("an item");
    stopped.delays_once(pushed_at.elapsed());
    assert_eq!(delivery.deliveries(), 2, "once in vain");
    delivery.ack().await.expect("held");
    stopped.process.resume();
    jobs.push_many((0..PLACES).map(|item| item.to_string())).await.expect("an answer");
    stopped.has_all_turns().await;
    assert_eq!(jobs.status().await.expect("an answer").dead_items, 0);
}

/// Waits until so many clients can be told something.
async fn are_heard(server: &Server, clients: usize) {
    eventually(LIMIT, "so many can be told", async || heard(server).await == clients).await;
}

/// The longest time between two asks of one who is in the queue.
const LONGEST_POLL: Duration = Duration::from_secs(4);
/// For how long a process holds the lock that stopped for a while.
const HOLD: Duration = Duration::from_secs(30);
/// The most that a grant by message lasts before it is renewed.
const SHORT_LEASE: Duration = Duration::from_secs(2);

/// When a key ends, in microseconds of the server's clock, which is this host's.
async fn expiry_us(server: &Server, name: &str) -> i64 {
    let script = "local t = redis.call('TIME') \
                  return t[1] * 1000000 + t[2] + redis.call('PTTL', KEYS[1]) * 1000";
    match server.command(&["EVAL", script, "1", name]).await {
        Value::Int(us) => us,
        other => panic!("not a time: {other:?}"),
    }
}

/// Waiters that come and go leave no subscription, and never keep the lock from the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_give_up_stand_in_nobodys_way() {
    let (server, [impatient]) = setup().await;
    let giving_up = tokio::spawn({
        let lock = impatient.mutex("n");
        async move {
            let mut gave_up = 0;
            for _ in 0..150 {
                match lock.try_lock_for(Duration::from_millis(3)).await {
                    Ok(Some(guard)) => guard.unlock().await.expect("held"),
                    // A busy machine may keep even the first answer for longer.
                    Ok(None) | Err(Error::Unavailable { .. }) => gave_up += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            gave_up
        }
    });
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = Client::connect(&server.url()).await.expect("connected");
        tasks.push(tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for _ in 0..60 {
                let from = std::time::Instant::now();
                let guard = client.mutex("n").lock().await.expect("held");
                longest = longest.max(from.elapsed());
                tokio::time::sleep(Duration::from_millis(2)).await;
                guard.unlock().await.expect("held");
            }
            longest
        }));
    }
    for task in tasks {
        let longest = task.await.expect("no panic");
        let limit = server.widened(Duration::from_millis(500));
        assert!(longest < limit, "waited for {longest:?}");
    }
    let gave_up = giving_up.await.expect("no panic");
    assert!(gave_up > 0, "nobody gave up");
    crate::support::nothing_is_left(&server, &impatient, "n").await;
}

/// Ctrl-C, a time limit or a crash of a test run: its servers end with it.
#[tokio::test]
async fn a_test_server_ends_with_the_process_that_started_it() {
    let mut starter = Worker::start();
    starter.tell("serve");
    let answer = starter.answer();
    let [serves, port] = &answer[..] else { panic!("{answer:?}") };
    assert_eq!(serves, "serves");
    let accepts =
        async || tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.is_ok();
    assert!(accepts().await);
    starter.kill();
    eventually(Duration::from_secs(10), "its server ends", async || !accepts().await).await;
}
