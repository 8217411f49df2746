//! What the processes do that tests start.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Client, blocking};
use leasehold_testkit::worker;
use parking_lot::Mutex;

use super::{Server, Watch, nester::nest, shared_clock_us};

#[test]
fn a_worker_answers() {
    worker::both_sides(serve);
}

fn serve(commands: &mut dyn Iterator<Item = String>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut kept = Vec::new();
    for line in commands {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["say", word] => println!("@{word}"),
            ["hold", url, name, ttl_ms] => runtime.block_on(hold(url, name, number(ttl_ms))),
            ["hold-permit", url, name, ttl_ms] => {
                runtime.block_on(hold_permit(url, name, number(ttl_ms)));
            }
            ["nest", servers, how, names @ ..] => nest(&runtime, servers, how, names),
            ["turns", url, name, tasks, turns] => {
                runtime.block_on(turns_of(url, name, number(tasks), number(turns)));
            }
            ["together", url, names, wanted, tasks, turns, seed] => {
                let [names, wanted, tasks, turns, seed] =
                    [names, wanted, tasks, turns, seed].map(|word| number(word));
                runtime.block_on(together(url, names, wanted, tasks, turns, seed));
            }
            ["hold-together", url, ttl_ms, names @ ..] => {
                runtime.block_on(hold_together(url, number(ttl_ms), names));
            }
            ["pop", url, name, ttl_ms, tasks, seed] => {
                let [ttl_ms, tasks, seed] = [ttl_ms, tasks, seed].map(|word| number(word));
                runtime.block_on(pop(url, name, ttl_ms, tasks, seed));
            }
            ["lead", url, name, ttl_ms] => runtime.block_on(lead(url, name, number(ttl_ms))),
            ["line-up", kind, url, name, places] => {
                runtime.block_on(line_up(kind, url, name, number(places)));
            }
            ["keep", url, name, ttl_ms] => kept.push(keep(url, name, number(ttl_ms))),
            ["let-go"] => {
                kept.clear();
                println!("@threads {}", threads_left());
            }
            ["shut-down"] => {
                kept.iter().for_each(|(client, _)| client.shutdown().expect("it may wait"));
                std::process::exit(0);
            }
            ["exit"] => std::process::exit(0),
            ["life", url, name] => life(url, name),
            ["serve"] => {
                let server = runtime.block_on(Server::start());
                println!("@serves {}", server.port());
                std::mem::forget(server);
            }
            other => panic!("not a command: {other:?}"),
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// Takes a lock and keeps it for as long as the process runs: `@held <token> <when>`. With commas between
/// them, `urls` are several masters.
async fn hold(urls: &str, name: &str, ttl_ms: u64) {
    let ttl = Duration::from_millis(ttl_ms);
    let builder = Client::builder().nodes(urls.split(',')).restart_quarantine(Duration::ZERO);
    let client = builder.ttl(ttl).connect().await.expect("connected");
    let guard = client.mutex(name).lock().await.expect("held");
    println!("@held {} {}", guard.token(), shared_clock_us());
    std::mem::forget(guard);
    // The runtime goes on renewing while the next command is waited for.
    std::mem::forget(client);
}

/// Takes a permit, and keeps it for as long as the process runs: `@held`.
async fn hold_permit(url: &str, name: &str, ttl_ms: u64) {
    let builder = Client::builder().nodes([url]).ttl(Duration::from_millis(ttl_ms));
    let client = builder.connect().await.expect("connected");
    std::mem::forget(client.semaphore(name).acquire().await.expect("held"));
    println!("@held");
    // Its runtime runs on, and renews it.
    std::mem::forget(client);
}

/// So many tasks wait for a fair lock, and have a turn each: `@turns <how many>` behind the last.
async fn line_up(kind: &str, url: &str, name: &str, places: u64) {
    let client = Client::connect(url).await.expect("connected");
    let turn = |_| {
        let (kind, client, name) = (kind.to_owned(), client.clone(), name.to_owned());
        tokio::spawn(async move {
            let given_back = match &*kind {
                "mutex" => client.fair_mutex(name).lock().await.expect("free").unlock().await,
                "permit" => client.semaphore(name).acquire().await.expect("free").release().await,
                "item" => client.queue(name).pop().await.expect("one").ack().await,
                other => panic!("not a kind: {other}"),
            };
            given_back.expect("held");
        })
    };
    let turns = futures_util::future::join_all((0..places).map(turn)).await;
    println!("@turns {}", turns.iter().filter(|turn| turn.is_ok()).count());
}

/// A thread takes a lock and keeps it: `@held <token>`.
fn keep(url: &str, name: &str, ttl_ms: u64) -> (blocking::Client, blocking::Guard) {
    let ttl = Duration::from_millis(ttl_ms);
    let builder = blocking::Client::builder().nodes([url]).ttl(ttl);
    let client = builder.connect_blocking().expect("connected");
    let guard = client.mutex(name).lock().expect("held");
    println!("@held {}", guard.token());
    (client, guard)
}

/// The life of blocking clients in steps: `@<step> <threads of clients> <1 if the key exists>` after each.
fn life(url: &str, name: &str) {
    let mut raw = redis::Client::open(url).and_then(|raw| raw.get_connection()).expect("connected");
    let mut tell = |step: &str, threads: usize| {
        let exists: u32 = redis::cmd("EXISTS").arg(name).query(&mut raw).expect("an answer");
        println!("@{step} {threads} {exists}");
    };
    let connect = || blocking::Client::connect(url).expect("connected");
    tell("before", client_threads());
    let client = connect();
    tell("connected", client_threads());
    let clone = client.clone();
    tell("cloned", client_threads());
    let lock = clone.mutex(name);
    let guard = lock.lock().expect("free");
    tell("held", client_threads());
    drop((client, clone, lock));
    tell("handles-dropped", client_threads());
    drop(guard);
    tell("guard-dropped", threads_left());
    let lock = connect().mutex(name);
    drop(lock.lock().expect("free").unlock());
    tell("handle-kept", client_threads());
    drop(lock);
    for _ in 0..20 {
        drop(connect().mutex(name).lock().expect("free"));
    }
    tell("many", threads_left());
    blocking::Client::connect("redis://127.0.0.1:1").expect_err("nobody is there");
    tell("unreachable", threads_left());
}

/// How many threads of blocking clients this process has.
fn client_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names = threads.map(|thread| {
        // It may end between the two.
        let comm = thread.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        comm.and_then(|comm| comm).unwrap_or_default()
    });
    names.filter(|name| name.trim_end() == "leasehold").count()
}

/// The same, once they have had the time to end.
fn threads_left() -> usize {
    let asked_at = Instant::now();
    while client_threads() > 0 && asked_at.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    client_threads()
}

/// Tasks that each take the lock some times: a line `@<token> <held from> <freed at>` for each turn, then
/// `@stall <longest, in microseconds>` and `@end`.
async fn turns_of(url: &str, name: &str, tasks: u64, turns: u64) {
    let client = Client::connect(url).await.expect("connected");
    let watch = Watch::begin();
    let record = Arc::new(Mutex::new(Vec::new()));
    println!("@ready");
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (lock, record) = (client.mutex(name), record.clone());
            tokio::spawn(async move {
                for _ in 0..turns {
                    let guard = lock.lock().await.expect("held");
                    let held_from = shared_clock_us();
                    let token = guard.token();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    guard.unlock().await.expect("held until then");
                    record.lock().push((token, held_from, shared_clock_us()));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    for (token, from, to) in record.lock().iter() {
        println!("@{token} {from} {to}");
    }
    println!("@stall {}", watch.longest_stall().as_micros());
    println!("@end");
}

/// Leads for as long as the process runs: `@leads <term>`.
async fn lead(url: &str, name: &str, ttl_ms: u64) {
    let builder = Client::builder().nodes([url]).ttl(Duration::from_millis(ttl_ms));
    let client = builder.connect().await.expect("connected");
    let leadership = client.election(name).campaign().await.expect("it leads");
    println!("@leads {}", leadership.term());
    std::mem::forget((client, leadership));
}

/// Takes several locks together, and keeps them for as long as the process runs: `@held`.
async fn hold_together(url: &str, ttl_ms: u64, names: &[&str]) {
    let builder = Client::builder().nodes([url]).ttl(Duration::from_millis(ttl_ms));
    let client = builder.connect().await.expect("connected");
    let guard = client.multi_lock(names).lock().await.expect("held");
    println!("@held");
    std::mem::forget((client, guard));
}

/// Tasks that each take `wanted` of `names` locks together some times, in any order: for each turn and lock a line
/// `@<name> <held from> <freed at>`, then `@end`.
async fn together(url: &str, names: u64, wanted: u64, tasks: u64, turns: u64, seed: u64) {
    let client = Client::connect(url).await.expect("connected");
    let record = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (client, record) = (client.clone(), record.clone());
            let mut random = seed * 100 + task + 1;
            tokio::spawn(async move {
                for _ in 0..turns {
                    let mut left: Vec<u64> = (0..names).collect();
                    let mut picked = Vec::new();
                    while picked.len() < wanted as usize {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        picked.push(left.remove((random >> 33) as usize % left.len()));
                    }
                    let named = picked.iter().map(|name| format!("n{name}"));
                    let guard = client.multi_lock(named).lock().await.expect("its turn comes");
                    let held_from = shared_clock_us();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let freed_at = shared_clock_us();
                    guard.unlock().await.expect("held until then");
                    let turn = picked.into_iter().map(|name| (name, held_from, freed_at));
                    record.lock().extend(turn);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    for (name, from, to) in record.lock().iter() {
        println!("@n{name} {from} {to}");
    }
    println!("@end");
}

/// Tasks that take items of a queue for as long as the process runs, and do all that workers do with them. Of each item:
/// `@kept <item> <from> <until>`, two times between which it was held without a break; then, if it is acknowledged,
/// `@acks <item>`, and `@done <item> <when>` once that is confirmed.
async fn pop(url: &str, name: &str, ttl_ms: u64, tasks: u64, seed: u64) {
    let builder = Client::builder().nodes([url]).ttl(Duration::from_millis(ttl_ms));
    let client = builder.connect().await.expect("connected");
    let queue = client.queue(name).with_max_deliveries(None);
    let tasks = (0..tasks).map(|task| {
        let (queue, mut random) = (queue.clone(), seed * 100 + task + 1);
        let mut roll = move |sides: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % sides
        };
        tokio::spawn(async move {
            loop {
                let limit = Duration::from_millis(1 + roll(500));
                // Some are dropped at any moment.
                let Ok(Ok(delivery)) = tokio::time::timeout(limit, queue.pop()).await else {
                    continue;
                };
                let item = String::from_utf8_lossy(delivery.payload()).into_owned();
                if !delivery.is_held() {
                    continue;
                }
                let from = shared_clock_us();
                tokio::time::sleep(Duration::from_millis(roll(20))).await;
                let until = shared_clock_us();
                if delivery.is_held() {
                    println!("@kept {item} {from} {until}");
                }
                match roll(8) {
                    0 => drop(delivery),
                    1 => drop(delivery.retry(Duration::from_millis(roll(30))).await),
                    _ => {
                        println!("@acks {item}");
                        if delivery.ack().await.is_ok() {
                            println!("@done {item} {}", shared_clock_us());
                        }
                    }
                }
            }
        })
    });
    futures_util::future::join_all(tasks).await;
}
