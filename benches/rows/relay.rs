//! Row 6: a lock that goes from client to client, each of which holds it for a millisecond.

use std::time::Duration;

use leasehold_testkit::bench::clock::Window;
use leasehold_testkit::bench::figures::{Unit, fewest_to_most, percentile};
use leasehold_testkit::bench::holds::hand_overs;
use leasehold_testkit::bench::server::SCRIPTS;

use crate::bystanders::Bystander;
use crate::runners;
use crate::table::{Aim, Figure};
use crate::worker::Worker;
use crate::{Bench, Outcome, watched};

/// Who takes part in a relay.
struct Relay {
    what: &'static str,
    processes: u32,
    /// How many clients each process has.
    clients: u32,
    /// Subscribers of the lock's channel that never ask for it, as Redisson's waiters are for a moment.
    listeners: u32,
    /// Waiters that are gone: their places in the queue are taken again and again.
    dead: usize,
    /// Clients besides that wait for a few milliseconds, give up and come again.
    impatient: u32,
    /// Whether each holds the lock for a millisecond; otherwise nothing is done inside.
    holds: bool,
    span: Duration,
    aims: Aims,
}

/// What the figures of a relay should be.
#[derive(Clone, Copy)]
struct Aims {
    p50: Option<Aim>,
    p99: Option<Aim>,
    scripts: Option<Aim>,
    subscribing: Option<Aim>,
    evenness: Option<Aim>,
    turns: Option<Aim>,
}

const RELAYS: [Relay; 8] = [
    Relay { what: "2 processes", processes: 2, ..PLAIN },
    Relay { what: "4 processes", processes: 4, ..PLAIN },
    Relay {
        what: "8 processes",
        processes: 8,
        aims: Aims { turns: Some(Aim::Over(800.0)), ..PLAIN.aims },
        ..PLAIN
    },
    Relay { what: "64 clients in one process", clients: 64, span: Duration::from_secs(4), ..PLAIN },
    Relay {
        what: "8 processes and 2 subscribers that never ask",
        processes: 8,
        listeners: 2,
        aims: NO_AIMS,
        ..PLAIN
    },
    Relay {
        what: "8 processes and 2 dead waiters",
        processes: 8,
        dead: 2,
        aims: Aims { p99: Some(Aim::RatioUnder(1.2)), ..NO_AIMS },
        ..PLAIN
    },
    Relay {
        what: "8 processes and 4 clients that give up after 3 ms",
        processes: 8,
        impatient: 4,
        aims: Aims { p99: Some(Aim::RatioUnder(1.2)), ..NO_AIMS },
        ..PLAIN
    },
    Relay {
        what: "4 processes, nothing done inside",
        processes: 4,
        holds: false,
        span: Duration::from_secs(1),
        aims: Aims { evenness: Some(Aim::Over(0.95)), turns: Some(Aim::Over(9000.0)), ..NO_AIMS },
        ..PLAIN
    },
];

const PLAIN: Relay = Relay {
    what: "",
    processes: 1,
    clients: 1,
    listeners: 0,
    dead: 0,
    impatient: 0,
    holds: true,
    span: Duration::from_millis(1500),
    aims: Aims {
        p50: Some(Aim::RatioUnder(0.8)),
        p99: None,
        scripts: Some(Aim::AtMost(2.1)),
        subscribing: Some(Aim::AtMost(0.0)),
        evenness: Some(Aim::Over(0.95)),
        turns: None,
    },
};

const NO_AIMS: Aims =
    Aims { p50: None, p99: None, scripts: None, subscribing: None, evenness: None, turns: None };

/// What a relay came to.
pub(crate) struct Run {
    /// Seconds from the call of one holder's unlock until the next one holds the lock.
    hand_overs: Vec<f64>,
    /// How often each client had the lock.
    pub(crate) turns: Vec<u64>,
    /// How many holds there were.
    holds: usize,
    scripts: f64,
    /// Commands about subscriptions.
    subscribing: f64,
    pub(crate) seconds: f64,
}

/// Row 6. In the floor just as many clients send the scripts by hand, and each knows when its turn is.
pub(crate) async fn relays(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    let relays = if watched::are_compared() { &RELAYS[..2] } else { &RELAYS[..] };
    for (number, relay) in relays.iter().enumerate() {
        let name = format!("relay:{round}:{number}");
        let floor = relay.floor(bench, &format!("{name}:floor")).await?;
        figures.extend(relay.figures(&relay.run(bench, &name).await?, &floor));
    }
    Ok(figures)
}

impl Relay {
    async fn run(&self, bench: &Bench, name: &str) -> Outcome<Run> {
        let mut workers = Vec::new();
        let (clients, holds) = (self.clients.to_string(), self.holds.to_string());
        for _ in 0..self.processes {
            let args = [runners::RELAY, bench.url(), name, &clients, FOR_EVER_MS, &holds];
            workers.push(Worker::start(&args).await?);
        }
        if self.impatient > 0 {
            let clients = self.impatient.to_string();
            let args = [runners::RELAY, bench.url(), name, &clients, IMPATIENT_MS, &holds];
            workers.push(Worker::start(&args).await?);
        }
        let mut bystanders = Vec::new();
        for _ in 0..self.listeners {
            bystanders.push(Bystander::listener(bench.url(), name).await?);
        }
        for number in 0..self.dead {
            bystanders.push(Bystander::dead_waiter(bench.url(), name, number).await?);
        }
        let mut run = run(bench, workers, self.span, 1).await?;
        // The impatient come last, and are not expected to get as many turns.
        run.turns.truncate((self.processes * self.clients) as usize);
        Ok(run)
    }

    async fn floor(&self, bench: &Bench, name: &str) -> Outcome<Run> {
        let mut workers = Vec::new();
        let (clients, holds) = (self.clients.to_string(), self.holds.to_string());
        let all = (self.processes * self.clients).to_string();
        for number in 0..self.processes {
            let first = (number * self.clients).to_string();
            let args = [runners::BY_HAND, bench.url(), name, &first, &clients, &all, &holds];
            workers.push(Worker::start(&args).await?);
        }
        run(bench, workers, FLOOR_SPAN, 1).await
    }

    fn figures(&self, run: &Run, floor: &Run) -> Vec<Figure> {
        let figure = |part: &str, unit: Unit, ours: f64, aim: Option<Aim>| {
            Figure::new(format!("relay, {}: {part}", self.what), unit, ours).aim(aim)
        };
        let aims = &self.aims;
        let (p50, p99) = run.quantiles();
        let (floor_p50, floor_p99) = floor.quantiles();
        vec![
            figure("hand-over above the hold, p50", Unit::Seconds, p50, aims.p50).floor(floor_p50),
            figure("hand-over above the hold, p99", Unit::Seconds, p99, aims.p99).floor(floor_p99),
            figure("turns of all", Unit::PerSecond, run.rate(), aims.turns).floor(floor.rate()),
            figure("scripts per turn", Unit::Number, run.scripts_per_turn(), aims.scripts)
                .floor(floor.scripts_per_turn()),
            figure(
                "SUBSCRIBE and UNSUBSCRIBE per turn",
                Unit::Number,
                run.per_turn(run.subscribing),
                aims.subscribing,
            ),
            figure("fewest / most", Unit::Number, run.evenness(), aims.evenness),
        ]
    }
}

impl Run {
    pub(crate) fn scripts_per_turn(&self) -> f64 {
        self.per_turn(self.scripts)
    }

    fn per_turn(&self, commands: f64) -> f64 {
        commands / self.all_turns()
    }

    pub(crate) fn rate(&self) -> f64 {
        self.all_turns() / self.seconds
    }

    /// With those of clients that are not expected to get as many.
    fn all_turns(&self) -> f64 {
        self.holds as f64
    }

    pub(crate) fn evenness(&self) -> f64 {
        fewest_to_most(self.turns.iter().map(|turns| *turns as f64))
    }

    pub(crate) fn quantiles(&self) -> (f64, f64) {
        let at = |share| percentile(&self.hand_overs, share).unwrap_or(f64::NAN);
        (at(0.5), at(0.99))
    }
}

/// Lets the workers run, and puts together what they measured. So many of them may hold it `at_once`.
pub(crate) async fn run(
    bench: &Bench,
    mut workers: Vec<Worker>,
    span: Duration,
    at_once: usize,
) -> Outcome<Run> {
    let window = Window::soon(bench.span(span));
    for worker in &mut workers {
        worker.go(window).await?;
    }
    let work = bench.server.work_in(window).await?;

    let mut holds = Vec::new();
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
                holds.push((from as f64 / 1e9, until as f64 / 1e9));
            }
        }
    }
    Ok(Run {
        hand_overs: hand_overs(&holds, at_once)?,
        turns,
        holds: holds.len(),
        scripts: work.calls(&SCRIPTS),
        subscribing: work.calls(&SUBSCRIBING),
        seconds: window.seconds(),
    })
}

pub(crate) const FOR_EVER_MS: &str = "0";
const IMPATIENT_MS: &str = "3";
pub(crate) const FLOOR_SPAN: Duration = Duration::from_millis(700);
/// The server counts each as one, whatever the number of its channels.
const SUBSCRIBING: [&str; 4] = ["subscribe", "unsubscribe", "psubscribe", "punsubscribe"];
