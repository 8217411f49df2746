//! This program as a worker: it does what it is told on its standard input, line by line.
//!
//! It says `ready` and the time of its clock, and answers each order by a line: `ok` and numbers, or `error`
//! and what happened. It ends when its input does, whatever it is doing.

use std::time::Duration;

use leasehold_testkit::bench::clock::{self, Window};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

use crate::locks::{Clients, Lock, Rlock, Rslock};
use crate::peer::Peer;
use crate::queueing::{self, Push};
use crate::{Outcome, sharing, work};

/// Our lock by a fair handle, which has no column of its own.
pub(crate) const FAIR: &str = "leasehold-fair";
/// A queue that is no lock's.
pub(crate) const APALIS: &str = "apalis";
/// How many tasks push items, and how many do them.
pub(crate) const TASKS: usize = 16;
/// The first argument of a worker.
pub(crate) const COMMAND: &str = "worker";

pub(crate) async fn serve() -> Outcome<()> {
    println!("ready {}", clock::now().as_nanos());
    let (orders, mut queue) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = input.next_line().await {
            let _ = orders.send(line);
        }
        // Nobody is there any more to wait for an answer.
        std::process::exit(0);
    });
    let mut worker = Worker::default();
    while let Some(order) = queue.recv().await {
        let words: Vec<&str> = order.split(' ').collect();
        match worker.follow(&words).await {
            Ok(figures) => println!("ok {}", figures.join(" ")),
            Err(error) => println!("error {}", error.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}

#[derive(Default)]
struct Worker {
    url: String,
    clients: Option<Clients>,
}

impl Worker {
    async fn follow(&mut self, order: &[&str]) -> Outcome<Vec<String>> {
        match *order {
            ["connect", url] => {
                self.url = url.to_owned();
                self.clients = Some(Clients::connect(url).await?);
                Ok(Vec::new())
            }
            [row, peer, name, tasks, from, until] => {
                let window = Window {
                    from: Duration::from_nanos(from.parse()?),
                    until: Duration::from_nanos(until.parse()?),
                };
                self.row(row, peer, name, tasks.parse()?, window).await
            }
            _ => Err(format!("not an order: {order:?}").into()),
        }
    }

    async fn row(
        &self,
        row: &str,
        peer: &str,
        name: &str,
        tasks: usize,
        window: Window,
    ) -> Outcome<Vec<String>> {
        let clients = self.clients.as_ref().ok_or("not connected")?;
        let is = |kind: Peer| kind.word() == peer;
        if row == "floor" {
            return work::floor(&self.url, window).await;
        } else if row == "nested" && is(Peer::Leasehold) {
            return work::nested(&clients.leasehold, name, window).await;
        }
        let ours = &clients.leasehold;
        match row {
            "read" => return sharing::readers(&ours.rw_lock(name), tasks, window).await,
            "write" => return sharing::writer(&ours.rw_lock(name), window).await,
            "permits" => {
                // The number is that of the permits.
                let semaphore = ours.semaphore(name).with_permits(tasks.try_into()?);
                return sharing::permits(&semaphore, window).await;
            }
            "open" => return queueing::open(ours, name, window).await,
            "wait" => return queueing::wait(ours, name, window).await,
            "offer" | "take" | "fill" | "empty" => {
                return self.queued(row, peer, name, tasks, window).await;
            }
            _ => {}
        }
        if is(Peer::Leasehold) {
            locked(row, |name| clients.leasehold.mutex(name), name, tasks, window).await
        } else if peer == FAIR {
            locked(row, |name| clients.leasehold.fair_mutex(name), name, tasks, window).await
        } else if is(Peer::Rslock) {
            let lock = |name: String| Rslock { manager: clients.rslock.clone(), name };
            locked(row, lock, name, tasks, window).await
        } else if is(Peer::Rlock) {
            let lock = |name: String| Rlock { manager: clients.rlock.clone(), name };
            locked(row, lock, name, tasks, window).await
        } else {
            Err(format!("not a lock: {peer}").into())
        }
    }

    /// The number is how many items each task pushes or does.
    async fn queued(
        &self,
        row: &str,
        peer: &str,
        name: &str,
        each: usize,
        window: Window,
    ) -> Outcome<Vec<String>> {
        if peer == APALIS {
            return match row {
                "take" => queueing::take_by_apalis(&self.url, name).await,
                "empty" => queueing::empty_by_apalis(&self.url, name, TASKS * each).await,
                _ => {
                    let storage = queueing::storage(&self.url, name).await?;
                    pushed(row, storage, each, window).await
                }
            };
        }
        let queue = self.clients.as_ref().ok_or("not connected")?.leasehold.queue(name);
        match row {
            "take" => queueing::take(&queue).await,
            "empty" => queueing::empty(queue, TASKS, each).await,
            _ => pushed(row, queue, each, window).await,
        }
    }
}

async fn pushed(row: &str, queue: impl Push, each: usize, window: Window) -> Outcome<Vec<String>> {
    match row {
        "offer" => queueing::offer(queue, window).await,
        _ => queueing::fill(queue, TASKS, each, window).await,
    }
}

async fn locked<L: Lock>(
    row: &str,
    lock: impl Fn(String) -> L,
    name: &str,
    tasks: usize,
    window: Window,
) -> Outcome<Vec<String>> {
    match row {
        "pairs" => work::pairs(&lock(name.to_owned()), window).await,
        "crowd" => work::rush(vec![lock(name.to_owned()); tasks], window).await,
        "own" => {
            work::rush((0..tasks).map(|task| lock(format!("{name}:{task}"))).collect(), window)
                .await
        }
        "drain" => work::drain(&lock(name.to_owned()), tasks, window).await,
        "relay" => work::relay(&lock(name.to_owned()), window, true).await,
        "empty" => work::relay(&lock(name.to_owned()), window, false).await,
        _ => Err(format!("not a row: {row}").into()),
    }
}
