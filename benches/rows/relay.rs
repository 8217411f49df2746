//! Row 6: a lock that goes from client to client, each of which holds it for a millisecond.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{Client, Error, Mutex};
use tokio::task::{AbortHandle, JoinSet};

use crate::by_hand::{ByHand, Keys, TTL_MS, channel};
use crate::clock::{self, Window};
use crate::figures::{Unit, fewest_to_most, percentile};
use crate::server::SCRIPTS;
use crate::table::{Aim, Figure};
use crate::worker::{self, Worker};
use crate::{Bench, Outcome};

pub(crate) const RELAY: &str = "relay";
pub(crate) const BY_HAND: &str = "relay-by-hand";

/// Who takes part in a relay.
struct Relay {
    what: &'static str,
    processes: u32,
    /// How many clients each process has.
    clients: u32,
    /// Subscribers of the lock's channel that never ask for it.
    listeners: u32,
    /// Clients besides that wait for a few milliseconds, give up and come again.
    impatient: u32,
    span: Duration,
    aims: bool,
}

const RELAYS: [Relay; 6] = [
    Relay { what: "2 processes", processes: 2, ..PLAIN },
    Relay { what: "4 processes", processes: 4, ..PLAIN },
    Relay { what: "8 processes", processes: 8, ..PLAIN },
    Relay {
        what: "64 clients in one process",
        processes: 1,
        clients: 64,
        span: Duration::from_secs(4),
        aims: false,
        ..PLAIN
    },
    Relay {
        what: "8 processes and 2 subscribers that never ask",
        processes: 8,
        listeners: 2,
        aims: false,
        ..PLAIN
    },
    Relay {
        what: "8 processes and 4 clients that give up after 3 ms",
        processes: 8,
        impatient: 4,
        aims: false,
        ..PLAIN
    },
];

const PLAIN: Relay = Relay {
    what: "",
    processes: 1,
    clients: 1,
    listeners: 0,
    impatient: 0,
    span: Duration::from_millis(1500),
    aims: true,
};

/// What a relay came to.
struct Run {
    /// Seconds from the call of one holder's unlock until the next one holds the lock.
    hand_overs: Vec<f64>,
    /// How often each client had the lock.
    turns: Vec<u64>,
    scripts: f64,
}

/// A hold: from when until when.
type Hold = (Duration, Duration);

/// Row 6. In the floor just as many clients send the scripts by hand, and each knows when its turn is.
pub(crate) async fn relays(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for (number, relay) in RELAYS.iter().enumerate() {
        let name = format!("relay:{round}:{number}");
        let floor = relay.floor(bench, &format!("{name}:floor")).await?;
        figures.extend(relay.figures(&relay.run(bench, &name).await?, &floor));
    }
    Ok(figures)
}

impl Relay {
    async fn run(&self, bench: &Bench, name: &str) -> Outcome<Run> {
        let mut workers = Vec::new();
        let clients = self.clients.to_string();
        for _ in 0..self.processes {
            let args = [RELAY, bench.url(), name, &clients, FOR_EVER_MS];
            workers.push(Worker::start(&args).await?);
        }
        if self.impatient > 0 {
            let clients = self.impatient.to_string();
            let args = [RELAY, bench.url(), name, &clients, IMPATIENT_MS];
            workers.push(Worker::start(&args).await?);
        }
        let mut listeners = Vec::new();
        for _ in 0..self.listeners {
            listeners.push(Listener::start(bench.url(), name).await?);
        }
        let mut run = run(bench, workers, self.span).await?;
        // The impatient come last, and are not expected to get as many turns.
        run.turns.truncate((self.processes * self.clients) as usize);
        Ok(run)
    }

    async fn floor(&self, bench: &Bench, name: &str) -> Outcome<Run> {
        let mut workers = Vec::new();
        let clients = self.clients.to_string();
        let all = (self.processes * self.clients).to_string();
        for number in 0..self.processes {
            let first = (number * self.clients).to_string();
            let args = [BY_HAND, bench.url(), name, &first, &clients, &all];
            workers.push(Worker::start(&args).await?);
        }
        run(bench, workers, FLOOR_SPAN).await
    }

    fn figures(&self, run: &Run, floor: &Run) -> Vec<Figure> {
        let what = |part: &str| format!("relay, {}: {part}", self.what);
        let (p50, p99) = quantiles(run);
        let (floor_p50, floor_p99) = quantiles(floor);
        let aim = |figure: Figure, aim: Aim| if self.aims { figure.aim(aim) } else { figure };
        vec![
            aim(
                Figure::new(what("hand-over above the hold, p50"), Unit::Seconds, p50)
                    .floor(floor_p50),
                Aim::Under(250e-6),
            ),
            Figure::new(what("hand-over above the hold, p99"), Unit::Seconds, p99).floor(floor_p99),
            aim(
                Figure::new(what("scripts per acquisition"), Unit::Number, run.scripts_per_turn())
                    .floor(floor.scripts_per_turn()),
                Aim::Under(7.0),
            ),
            aim(
                Figure::new(
                    what("fewest / most"),
                    Unit::Number,
                    fewest_to_most(run.turns.iter().map(|turns| *turns as f64)),
                ),
                Aim::Over(0.8),
            ),
        ]
    }
}

impl Run {
    fn scripts_per_turn(&self) -> f64 {
        self.scripts / (self.hand_overs.len() + 1) as f64
    }
}

fn quantiles(run: &Run) -> (f64, f64) {
    let at = |share| percentile(&run.hand_overs, share).unwrap_or(f64::NAN);
    (at(0.5), at(0.99))
}

/// Lets the workers run, and puts together what they measured.
async fn run(bench: &Bench, mut workers: Vec<Worker>, span: Duration) -> Outcome<Run> {
    let window = Window::soon(bench.span(span));
    for worker in &mut workers {
        worker.go(window).await?;
    }
    let scripts = bench.server.work_in(window).await?.calls(&SCRIPTS);

    let mut holds: Vec<Hold> = Vec::new();
    let mut turns = Vec::new();
    for worker in &mut workers {
        // For each client how many holds it had, then their beginnings and ends.
        let mut report = worker.report::<u64>(window).await?.into_iter();
        while let Some(count) = report.next() {
            turns.push(count);
            for _ in 0..count {
                let (Some(from), Some(until)) = (report.next(), report.next()) else {
                    return Err("a worker's report is too short".into());
                };
                holds.push((Duration::from_nanos(from), Duration::from_nanos(until)));
            }
        }
    }
    holds.sort();
    let mut hand_overs = Vec::new();
    for pair in holds.windows(2) {
        let gap = pair[1].0.checked_sub(pair[0].1);
        let gap = gap.ok_or("two clients held the lock at the same time")?;
        hand_overs.push(gap.as_secs_f64());
    }
    Ok(Run { hand_overs, turns, scripts })
}

/// One of the processes, with one or more clients. Patience 0: for ever.
pub(crate) async fn runner(url: &str, name: &str, clients: u32, patience_ms: u64) -> Outcome<()> {
    let mut connected = Vec::new();
    for number in 0..clients {
        let client = Client::builder()
            .nodes([url])
            .name(format!("runner-{}-{number}", std::process::id()))
            .connect()
            .await?;
        connected.push(client);
    }
    let window = worker::ready().await?;
    let mut runners = JoinSet::new();
    for client in connected {
        let lock = client.mutex(name);
        runners.spawn(async move {
            let holds = take_turns(&lock, window, patience_ms).await?;
            client.shutdown().await;
            Outcome::Ok(holds)
        });
    }
    let mut all = Vec::new();
    while let Some(holds) = runners.join_next().await {
        all.push(holds??);
    }
    report(&all);
    Ok(())
}

async fn take_turns(lock: &Mutex, window: Window, patience_ms: u64) -> Outcome<Vec<Hold>> {
    let mut holds = Vec::new();
    while clock::now() < window.until {
        let guard = if patience_ms == 0 {
            lock.lock().await?
        } else {
            match lock.try_lock_for(Duration::from_millis(patience_ms)).await {
                Ok(Some(guard)) => guard,
                // So short a wait may also end before the first answer.
                Ok(None) | Err(Error::Unavailable { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        };
        let held_at = clock::now();
        clock::hold().await?;
        let left_at = clock::now();
        guard.unlock().await?;
        if window.contains(held_at) {
            holds.push((held_at, left_at));
        }
    }
    Ok(holds)
}

/// One of the processes of the floor, with the clients from number `first` on, of `all`.
pub(crate) async fn by_hand(
    url: &str,
    name: &str,
    first: u64,
    clients: u64,
    all: u64,
) -> Outcome<()> {
    let mut connected = Vec::new();
    for number in first..first + clients {
        let mut subscriber = redis::Client::open(url)?.get_async_pubsub().await?;
        subscriber.subscribe(channel(name)).await?;
        connected.push((number, ByHand::connect(url).await?, subscriber.into_on_message()));
    }
    let keys = Keys::of(name);
    let window = worker::ready().await?;
    let mut runners = JoinSet::new();
    for (number, by_hand, mut messages) in connected {
        let keys = keys.clone();
        runners.spawn(async move {
            let mut holds = Vec::new();
            // Every release is heard by everybody: after n of them it is the turn of number n modulo all.
            let mut releases = 0;
            while clock::now() < window.until {
                if releases % all == number {
                    if !by_hand.acquire(&keys, TTL_MS).await? {
                        return Err("it was not this client's turn".into());
                    }
                    let held_at = clock::now();
                    clock::hold().await?;
                    let left_at = clock::now();
                    by_hand.release(&keys).await?;
                    if window.contains(held_at) {
                        holds.push((held_at, left_at));
                    }
                }
                // At the end somebody stops first.
                if tokio::time::timeout(TURN_LIMIT, messages.next()).await.is_ok() {
                    releases += 1;
                }
            }
            Outcome::Ok(holds)
        });
    }
    let mut all = Vec::new();
    while let Some(holds) = runners.join_next().await {
        all.push(holds??);
    }
    report(&all);
    Ok(())
}

fn report(clients: &[Vec<Hold>]) {
    let mut figures = Vec::new();
    for holds in clients {
        figures.push(holds.len() as u128);
        for (from, until) in holds {
            figures.extend([from.as_nanos(), until.as_nanos()]);
        }
    }
    worker::report(figures);
}

/// Hears what is said about a lock, and does nothing. Dropped it stops.
struct Listener {
    task: AbortHandle,
}

impl Listener {
    async fn start(url: &str, name: &str) -> Outcome<Self> {
        let mut subscriber = redis::Client::open(url)?.get_async_pubsub().await?;
        subscriber.subscribe(channel(name)).await?;
        let mut messages = subscriber.into_on_message();
        let listen = async move { while messages.next().await.is_some() {} };
        Ok(Self { task: tokio::spawn(listen).abort_handle() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const FOR_EVER_MS: &str = "0";
const IMPATIENT_MS: &str = "3";
const FLOOR_SPAN: Duration = Duration::from_millis(700);
const TURN_LIMIT: Duration = Duration::from_millis(50);
