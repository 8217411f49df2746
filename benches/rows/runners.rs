//! The runners of a relay: clients that take turns, each in a process of its own or several in one.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{Client, Error, Mutex};
use leasehold_testkit::bench::by_hand::{ByHand, Keys, TTL_MS, channel, open};
use leasehold_testkit::bench::clock::{self, Window};
use redis::AsyncConnectionConfig;
use tokio::task::JoinSet;

use crate::{Outcome, watched, worker};

pub(crate) const RELAY: &str = "relay";
pub(crate) const BY_HAND: &str = "relay-by-hand";
pub(crate) const IN_ORDER: &str = "relay-in-order";

/// A hold: from when until when.
type Hold = (Duration, Duration);

/// One of the processes, with one or more clients. Patience 0: for ever.
pub(crate) async fn runner(
    url: &str,
    name: &str,
    clients: u32,
    patience_ms: u64,
    holds: bool,
) -> Outcome<()> {
    let mut connected = Vec::new();
    for number in 0..clients {
        let builder = Client::builder().nodes([url]);
        let builder = builder.name(format!("runner-{}-{number}", std::process::id()));
        let client = watched::as_ordered(builder).connect().await?;
        connected.push(client);
    }
    let window = worker::ready().await?;
    let mut runners = JoinSet::new();
    for client in connected {
        let lock = client.mutex(name);
        runners.spawn(async move {
            let turns = take_turns(&lock, window, patience_ms, holds).await?;
            client.shutdown().await;
            Outcome::Ok(turns)
        });
    }
    report_all(runners).await
}

async fn take_turns(
    lock: &Mutex,
    window: Window,
    patience_ms: u64,
    holds: bool,
) -> Outcome<Vec<Hold>> {
    let mut turns = Vec::new();
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
        let turn = hold(holds).await?;
        guard.unlock().await?;
        if window.contains(turn.0) {
            turns.push(turn);
        }
    }
    Ok(turns)
}

pub(crate) async fn hold(holds: bool) -> Outcome<Hold> {
    let held_at = clock::now();
    if holds {
        clock::hold().await?;
    }
    Ok((held_at, clock::now()))
}

/// One of the processes of the floor, with the clients from number `first` on, of `all`.
pub(crate) async fn by_hand(
    url: &str,
    name: &str,
    first: u64,
    clients: u64,
    all: u64,
    holds: bool,
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
            let mut turns = Vec::new();
            // Every release is heard by everybody: after n of them it is the turn of number n modulo all.
            let mut releases = 0;
            while clock::now() < window.until {
                if releases % all == number {
                    if !by_hand.acquire(&keys, TTL_MS).await? {
                        return Err("it was not this client's turn".into());
                    }
                    let turn = hold(holds).await?;
                    by_hand.release(&keys).await?;
                    if window.contains(turn.0) {
                        turns.push(turn);
                    }
                }
                // At the end somebody stops first.
                if tokio::time::timeout(TURN_LIMIT, messages.next()).await.is_ok() {
                    releases += 1;
                }
            }
            Outcome::Ok(turns)
        });
    }
    report_all(runners).await
}

/// A client without this library that waits for its turn in order of arrival: the server gives a list's element to
/// whoever has asked for one longest.
pub(crate) async fn in_order(url: &str, list: &str) -> Outcome<()> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
    let window = worker::ready().await?;
    let mut turns = Vec::new();
    while clock::now() < window.until {
        let mut take = redis::cmd("BLPOP");
        let taken =
            take.arg(list).arg(PATIENCE_S).query_async::<Option<[String; 2]>>(&mut connection);
        let [_, token] = taken.await?.ok_or("its turn did not come")?;
        let turn = hold(true).await?;
        let mut give_back = redis::cmd("LPUSH");
        give_back.arg(list).arg(token).query_async::<u64>(&mut connection).await?;
        if window.contains(turn.0) {
            turns.push(turn);
        }
    }
    report(&[turns]);
    Ok(())
}

/// Waits for all runners, and reports the turns of each.
async fn report_all(mut runners: JoinSet<Outcome<Vec<Hold>>>) -> Outcome<()> {
    let mut all = Vec::new();
    while let Some(turns) = runners.join_next().await {
        all.push(turns??);
    }
    report(&all);
    Ok(())
}

pub(crate) fn report(clients: &[Vec<Hold>]) {
    let mut figures = Vec::new();
    for turns in clients {
        figures.push(turns.len() as u128);
        for (from, until) in turns {
            figures.extend([from.as_nanos(), until.as_nanos()]);
        }
    }
    worker::report(figures);
}

pub(crate) const TURN_LIMIT: Duration = Duration::from_millis(50);
const PATIENCE_S: u64 = 5;
