//! Many workers that do all that workers do: no item is lost, and none is in two live deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Queue};

use super::{MS, all_are_done, jobs, places};
use crate::checks::{LIMIT, connect, setup_with_proxy, soon};
use crate::support::eventually;

const ITEMS: u32 = 120;

/// Who has an item now, and which items were reported as done.
#[derive(Default)]
struct Ledger {
    held: BTreeMap<Vec<u8>, Arc<leasehold::Delivery>>,
    /// The server may have heard of these, or has.
    reported: BTreeSet<Vec<u8>>,
    /// Of those, the ones that it has confirmed.
    done: BTreeSet<Vec<u8>>,
    is_over: bool,
}

/// Works until it is over.
async fn work(queue: Queue, ledger: Arc<Mutex<Ledger>>, seed: u32) {
    let mut dice = seed;
    let mut roll = move |sides: u32| {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (dice >> 16) % sides
    };
    while !ledger.lock().expect("no panic").is_over {
        let limit = Duration::from_millis(roll(60).into());
        // Some give up at any moment.
        let popped = tokio::time::timeout(limit, queue.try_pop_for(500 * MS)).await;
        let Ok(Ok(Some(delivery))) = popped else { continue };
        let payload = delivery.payload().to_vec();
        let delivery = Arc::new(delivery);
        {
            let mut ledger = ledger.lock().expect("no panic");
            if let Some(other) = ledger.held.insert(payload.clone(), delivery.clone()) {
                assert!(!(other.is_held() && delivery.is_held()), "two have {payload:?}");
            }
            assert!(!ledger.done.contains(&payload), "{payload:?} was done");
        }
        tokio::time::sleep(Duration::from_millis(roll(4).into())).await;
        ledger.lock().expect("no panic").held.remove(&payload);
        let Ok(delivery) = Arc::try_unwrap(delivery) else { continue };
        match roll(4) {
            0 => drop(delivery),
            1 => drop(delivery.retry(Duration::from_millis(roll(20).into())).await),
            _ => {
                ledger.lock().expect("no panic").reported.insert(payload.clone());
                if delivery.ack().await.is_ok() {
                    ledger.lock().expect("no panic").done.insert(payload);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_item_is_done_once_whatever_workers_do() {
    let (server, proxy) = setup_with_proxy().await;
    let steady = connect(&server).await;
    let shaken = Client::connect(&proxy.url()).await.expect("connected");
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut workers = Vec::new();
    for seed in 0..8 {
        let client = if seed % 2 == 0 { &steady } else { &shaken };
        let queue = jobs(client).with_ttl(400 * MS).with_max_deliveries(None);
        workers.push(tokio::spawn(work(queue, ledger.clone(), seed)));
    }
    for number in 0..ITEMS {
        jobs(&steady).push(number.to_string()).await.expect("pushed");
        if number % 30 == 29 {
            proxy.cut();
        }
    }
    // A report whose answer was cut off counts, too: the item may be done, and then nobody gets it again.
    let queue = jobs(&steady);
    eventually(LIMIT, "all items are done", async || places(&queue).await == [0; 4]).await;
    ledger.lock().expect("no panic").is_over = true;
    for worker in workers {
        soon("the workers end", worker).await.expect("no violation");
    }
    let pushed: BTreeSet<_> = (0..ITEMS).map(|number| number.to_string().into_bytes()).collect();
    assert_eq!(ledger.lock().expect("no panic").reported, pushed, "an item is lost");
    all_are_done(&server, &steady).await;
}
