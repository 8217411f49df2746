//! Two of five masters fail, each pair of them, in each way that servers fail: two clients that contend all the
//! time go on, and no two holds are ever held at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use leasehold::{Client, ClientBuilder, Error};
use parking_lot::Mutex;

use super::deployment::{MS, Masters, Ways, all_up, connected};
use crate::{checks::LIMIT, support::eventually};

/// How two servers fail, and come back.
struct Fault {
    name: &'static str,
    begin: fn(&Masters, &Ways, usize),
    end: for<'a> fn(&'a Masters, &'a Ways, usize) -> Ending<'a>,
}

type Ending<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

const KILLED: Fault = Fault {
    name: "killed",
    begin: |masters, _, index| masters.0[index].kill(),
    end: |masters, _, index| Box::pin(masters.0[index].restart()),
};

const STOPPED: Fault = Fault {
    name: "stopped",
    begin: |masters, _, index| masters.0[index].pause(),
    end: |masters, _, index| Box::pin(async move { masters.0[index].resume() }),
};

const PARTITIONED: Fault = Fault {
    name: "partitioned",
    begin: |_, ways, index| ways.0[index].black_hole(true),
    end: |_, ways, index| Box::pin(async move { ways.0[index].black_hole(false) }),
};

const REPLIES_LOST: Fault = Fault {
    name: "replies lost",
    begin: |_, ways, index| ways.0[index].drop_replies(true),
    end: |_, ways, index| Box::pin(async move { ways.0[index].drop_replies(false) }),
};

/// Its grants do not count for a while: what is to go on then goes on without it.
const DATA_LOST: Fault = Fault {
    name: "restarted empty",
    begin: |masters, _, index| masters.0[index].kill(),
    end: KILLED.end,
};

/// Leases are longer than a hold by far, so that none ends by itself.
const TTL: Duration = Duration::from_millis(900);
const QUARANTINE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pair_of_five_can_be_killed_and_come_back_with_its_data() {
    let masters = Masters::keeping(5).await;
    // For servers that are known to keep their data there is no quarantine.
    each_pair(&KILLED, &masters, |builder| builder.restart_quarantine(Duration::ZERO)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pair_of_five_can_be_stopped() {
    each_pair(&STOPPED, &Masters::start(5).await, |builder| builder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pair_of_five_can_be_partitioned_away() {
    each_pair(&PARTITIONED, &Masters::start(5).await, |builder| builder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pair_of_five_can_lose_its_replies() {
    each_pair(&REPLIES_LOST, &Masters::start(5).await, |builder| builder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pair_of_five_can_come_back_empty() {
    let masters = Masters::seasoned(5, QUARANTINE).await;
    each_pair(&DATA_LOST, &masters, |builder| builder.restart_quarantine(QUARANTINE)).await;
}

/// From the grant until the last moment at which the guard said that it is held.
type Hold = (Instant, Instant, u64);

#[derive(Default)]
struct History {
    holds: Mutex<Vec<Hold>>,
    failures: Mutex<Vec<Error>>,
    lost: AtomicUsize,
    turns: [AtomicUsize; 2],
    over: AtomicBool,
}

async fn each_pair(
    fault: &Fault,
    masters: &Masters,
    settings: impl Fn(ClientBuilder) -> ClientBuilder,
) {
    let ways = masters.ways().await;
    let history = Arc::new(History::default());
    let (mut clients, mut contenders) = (Vec::new(), Vec::new());
    for contender in 0..2 {
        let builder = ways.builder().ttl(TTL).response_timeout(200 * MS);
        let client = connected(settings(builder)).await;
        contenders.push(tokio::spawn(contend(client.clone(), history.clone(), contender)));
        clients.push(client);
    }
    let began_at = Instant::now();
    let mut pairs = 0;
    for one in 0..5 {
        for other in one + 1..5 {
            let what = format!("both clients go on with {one} and {other} {}", fault.name);
            (fault.begin)(masters, &ways, one);
            (fault.begin)(masters, &ways, other);
            both_advance(&history, &what).await;
            tokio::join!((fault.end)(masters, &ways, one), (fault.end)(masters, &ways, other));
            for client in &clients {
                all_up(client).await;
            }
            pairs += 1;
        }
    }
    let took = began_at.elapsed();
    history.over.store(true, SeqCst);
    for contender in contenders {
        contender.await.expect("no panic");
    }
    masters.nothing_left(&clients.iter().collect::<Vec<_>>()).await;

    let mut holds = history.holds.lock().clone();
    holds.sort();
    for pair in holds.windows(2) {
        let ((_, until, token), (from, _, next_token)) = (pair[0], pair[1]);
        assert!(until <= from, "two holds at once, for {:?}", until - from);
        assert!(token < next_token, "token {next_token} after {token}");
    }
    let failures = history.failures.lock();
    assert!(failures.is_empty(), "with two of five away a lock can be had: {failures:?}");
    assert!(holds.len() >= 2 * pairs * LEAST);
    println!(
        "{} {}: {} holds in {took:?}, {} of them lost",
        fault.name,
        pairs,
        holds.len(),
        history.lost.load(SeqCst)
    );
}

/// How often each client gets in while a pair is away.
const LEAST: usize = 3;

async fn both_advance(history: &History, what: &str) {
    let turns = || history.turns.each_ref().map(|turns| turns.load(SeqCst));
    let before = turns();
    let advanced = async || turns().iter().zip(before).all(|(now, before)| *now >= before + LEAST);
    eventually(LIMIT, what, advanced).await;
}

async fn contend(client: Client, history: Arc<History>, contender: usize) {
    let lock = client.mutex("n");
    while !history.over.load(SeqCst) {
        let guard = match lock.lock_with_timeout(LIMIT).await {
            Ok(guard) => guard,
            Err(error) => {
                history.failures.lock().push(error);
                continue;
            }
        };
        let granted_at = Instant::now();
        let mut held_until = granted_at;
        while granted_at.elapsed() < 4 * MS {
            let asked_at = Instant::now();
            if !guard.is_held() {
                break;
            }
            held_until = asked_at;
            tokio::time::sleep(MS).await;
        }
        history.holds.lock().push((granted_at, held_until, guard.token()));
        history.turns[contender].fetch_add(1, SeqCst);
        if guard.unlock().await.is_err() {
            history.lost.fetch_add(1, SeqCst);
        }
    }
}
