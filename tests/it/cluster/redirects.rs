//! Redirects that lead nowhere, in circles, or away from a request whose caller has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, Error};

use super::is_idle;
use crate::checks::soon;
use crate::support::{Cluster, Twister, eventually, slot_of};

const TTL: Duration = Duration::from_secs(2);

/// A cluster whose first master is reached through something that answers scripts about some lock in its own words.
struct Twisted {
    cluster: Cluster,
    client: Client,
    /// While it is true.
    on: Arc<AtomicBool>,
    /// How often it did.
    times: Arc<AtomicU32>,
    name: String,
    _twister: Twister,
}

async fn twisted(answer: impl Fn(&Cluster, u16) -> String, verb: &'static str) -> Twisted {
    let cluster = Cluster::start().await;
    let name = cluster.name_on(0, "twisted");
    let (on, times) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let twist = {
        let (on, times, name) = (on.clone(), times.clone(), name.clone());
        let answer = answer(&cluster, slot_of(&name));
        move |words: &[String]| {
            let ours = words[0] == verb && words.contains(&name) && on.load(Ordering::SeqCst);
            ours.then(|| {
                times.fetch_add(1, Ordering::SeqCst);
                answer.clone()
            })
        }
    };
    let inside = cluster.master(0).port();
    let twister = Twister::start(inside, twist).await;
    let outside = twister.port();
    let client = Client::builder()
        .cluster([cluster.master(1).url()])
        .address_map(move |host, port| {
            (host.to_owned(), if port == inside { outside } else { port })
        })
        .ttl(TTL)
        .restart_quarantine(Duration::ZERO)
        .connect()
        .await
        .expect("the cluster accepts the client");
    Twisted { cluster, client, on, times, name, _twister: twister }
}

#[tokio::test]
async fn a_circle_of_redirects_and_a_dead_target_end_in_time_and_a_release_stays_owed() {
    // The others send it back here: none of them has the slot.
    let moved = |cluster: &Cluster, slot: u16| {
        format!("MOVED {slot} 127.0.0.1:{}", cluster.master(1).port())
    };
    let Twisted { client, on, times, name, cluster, _twister } = twisted(moved, "EVALSHA").await;
    let lock = client.mutex(&name);
    let guard = soon("the lock", lock.lock()).await.expect("free");
    soon("unlocking", guard.unlock()).await.expect("held");

    on.store(true, Ordering::SeqCst);
    let error = soon("an answer", lock.try_lock()).await.expect_err("nobody has it");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let asked = times.swap(0, Ordering::SeqCst);
    assert!((1..400).contains(&asked), "asked {asked} times within a second");
    on.store(false, Ordering::SeqCst);
    // A release that is sent round in a circle goes on by itself, and so does the next one.
    for _ in 0..2 {
        let guard = soon("the lock", lock.lock()).await.expect("free");
        times.store(0, Ordering::SeqCst);
        on.store(true, Ordering::SeqCst);
        drop(guard);
        eventually(Duration::from_secs(5), "it is owed", async || {
            client.stats().releases_pending > 0
        })
        .await;
        let redirected = async || times.load(Ordering::SeqCst) > 5;
        eventually(Duration::from_secs(5), "it is redirected", redirected).await;
        on.store(false, Ordering::SeqCst);
        let guard = soon("the lock", lock.lock()).await.expect("freed by what was owed");
        soon("unlocking", guard.unlock()).await.expect("held");
        is_idle(&client).await;
    }
    drop(cluster);
}

#[tokio::test]
async fn a_slot_that_is_said_to_go_to_a_dead_node_is_waited_for() {
    let ask = |_: &Cluster, slot: u16| format!("ASK {slot} 127.0.0.1:1");
    let Twisted { client, on, times, name, .. } = &twisted(ask, "EVALSHA").await;
    let lock = client.mutex(name);
    let guard = soon("the lock", lock.lock()).await.expect("free");
    on.store(true, Ordering::SeqCst);
    // It is renewed again once the server answers, and is not lost before its time.
    eventually(TTL, "a renewal is redirected", async || times.load(Ordering::SeqCst) > 0).await;
    on.store(false, Ordering::SeqCst);
    tokio::time::sleep(TTL).await;
    assert!(guard.is_held());
    on.store(true, Ordering::SeqCst);
    times.store(0, Ordering::SeqCst);
    drop(guard);
    eventually(TTL, "the release is redirected", async || times.load(Ordering::SeqCst) > 0).await;
    on.store(false, Ordering::SeqCst);
    soon("the lock", lock.lock()).await.expect("freed").unlock().await.expect("held");
    eventually(TTL * 5, "nothing is owed", async || client.stats().releases_pending == 0).await;
}
