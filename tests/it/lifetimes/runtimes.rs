//! The runtime of a client ends.

use std::sync::{Arc, OnceLock};

use leasehold::monitor::{Event, Monitor};
use leasehold::{Client, ClosedReason, Error};

use super::{MS, at_once, gone_in_the_end, is_closed, runtime};
use crate::{
    checks::{LIMIT, connect, exists, no_connection_left, nothing_left, setup},
    support::{Server, eventually},
};

/// The classic trap: two tests, each with a runtime of its own, and one client in a `static`.
#[test]
fn a_client_in_a_static_is_closed_at_once_on_the_second_runtime() {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    let servers = runtime();
    let server = servers.block_on(Server::start());

    let first = runtime();
    let (guard, lost) = first.block_on(async {
        let client = connect(&server).await;
        let client = CLIENT.get_or_init(|| client);
        let guard = client.mutex("n").with_ttl(700 * MS).lock().await.expect("free");
        let lost = guard.lost();
        (guard, lost)
    });
    drop(first);

    runtime().block_on(async {
        let client = CLIENT.get().expect("it was made");
        let lock = client.mutex("m");
        assert!(is_closed(&at_once("lock", lock.lock()).await, ClosedReason::RuntimeEnded));
        assert!(is_closed(&at_once("try_lock", lock.try_lock()).await, ClosedReason::RuntimeEnded));
        assert!(is_closed(
            &at_once("try_lock_for", lock.try_lock_for(LIMIT)).await,
            ClosedReason::RuntimeEnded
        ));
        assert!(is_closed(
            &at_once("lock_with_timeout", lock.lock_with_timeout(LIMIT)).await,
            ClosedReason::RuntimeEnded
        ));
        assert!(is_closed(
            &at_once("run", lock.run(async |_| ())).await,
            ClosedReason::RuntimeEnded
        ));
        assert!(is_closed(&at_once("status", lock.status()).await, ClosedReason::RuntimeEnded));
        assert!(is_closed(
            &at_once("force_unlock", lock.force_unlock()).await,
            ClosedReason::RuntimeEnded
        ));
        assert!(is_closed(&at_once("check", client.check()).await, ClosedReason::RuntimeEnded));
        assert!(is_closed(
            &at_once("the held lock", client.mutex("n").lock()).await,
            ClosedReason::RuntimeEnded
        ));

        at_once("lost", lost).await;
        assert!(at_once("extend", guard.extend(LIMIT)).await.is_err());
        let inner = guard.reenter();
        drop(inner);
        eventually(LIMIT, "the hold ends at its deadline", async || !guard.is_held()).await;
        assert!(guard.reenter().is_err());
        let left = at_once("unlock", guard.unlock()).await;
        assert!(matches!(left, Err(Error::Lost { .. } | Error::Closed { .. })), "{left:?}");
        let _ = (client.stats(), client.holds(), format!("{client:?}"));
        let text = lock.lock().await.expect_err("its runtime has ended").to_string();
        assert!(text.contains("#[tokio::test]"), "it names the usual cause: {text}");
        at_once("shutdown", client.shutdown()).await;
    });
    servers.block_on(gone_in_the_end(&server, "n"));
    servers.block_on(no_connection_left(&server));
}

#[test]
fn waiters_get_closed_and_holders_are_told_when_the_clients_runtime_is_dropped() {
    let servers = runtime();
    let (server, other) = servers.block_on(async {
        let (server, [other]) = setup().await;
        (server, other)
    });
    let held = servers.block_on(other.mutex("theirs").lock()).expect("free");

    let first = runtime();
    let client = first.block_on(connect(&server));
    let second = runtime();
    let (guard, lost, waits) = second.block_on(async {
        let guard = client.mutex("ours").lock().await.expect("free");
        let lost = tokio::spawn(guard.lost());
        let waits = [
            tokio::spawn(client.mutex("theirs").lock()),
            tokio::spawn(client.mutex("theirs").lock_with_timeout(2 * LIMIT)),
            tokio::spawn(client.mutex("ours").lock()),
        ];
        eventually(LIMIT, "all wait", async || client.stats().waiters == 3).await;
        (guard, lost, waits)
    });
    drop(first);
    second.block_on(async {
        for wait in waits {
            let answer = at_once("a wait", wait).await.expect("no panic");
            assert!(is_closed(&answer, ClosedReason::RuntimeEnded), "{answer:?}");
        }
        at_once("lost", lost).await.expect("no panic");
        // Without its runtime nothing can be sent: the lock lasts until its TTL.
        drop(guard);
    });
    servers.block_on(async {
        held.unlock().await.expect("held");
        other.mutex("ours").force_unlock().await.expect("an answer");
        nothing_left(&server, &other).await;
    });
}

#[test]
fn a_client_on_a_named_runtime_outlives_the_one_that_connected() {
    let tasks = runtime();
    let (server, client) = runtime().block_on(async {
        let server = Server::start().await;
        let builder = Client::builder().nodes([server.url()]).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        (server, client)
    });
    runtime().block_on(async {
        let guard = client.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
        let held = tokio::time::timeout(2_000 * MS, guard.lost()).await;
        assert!(held.is_err(), "it is renewed there: {held:?}");
        guard.unlock().await.expect("held");
        nothing_left(&server, &client).await;
        drop(client);
        eventually(LIMIT, "its tasks end", async || tasks.metrics().num_alive_tasks() == 0).await;
    });
}

/// What somebody gives to his client, and looks for afterwards.
struct Owned;

impl Monitor for Owned {
    fn on(&self, _: &Event<'_>) {}
}

/// Nobody sends the release, or waits for its answer: what it would tell keeps nothing.
#[test]
fn a_client_whose_runtime_ended_before_its_guards_is_dropped_whole() {
    let servers = runtime();
    let server = servers.block_on(Server::start());
    for listened in [false, true] {
        let first = runtime();
        let owned = Arc::new(Owned);
        let watched = Arc::downgrade(&owned);
        let (client, guard, listening) = first.block_on(async {
            let builder = Client::builder().nodes([server.url()]).monitor(owned);
            let client = builder.handoff_window(1000 * MS).connect().await.expect("connected");
            // What is given back while others listen is remembered for a while.
            let other = redis::Client::open(server.url()).expect("a valid URL");
            let mut listening = other.get_async_pubsub().await.expect("connected");
            if listened {
                listening.subscribe("redisson_lock__channel:{m}").await.expect("subscribed");
                drop(client.mutex("m").lock().await.expect("free"));
                let released = async || !exists(&server, "m").await;
                eventually(LIMIT, "it is released", released).await;
                let answered = async || client.stats().releases_pending == 0;
                eventually(LIMIT, "its answer is there", answered).await;
            }
            let guard = client.mutex("n").lock().await.expect("free");
            (client, guard, listening)
        });
        drop(listening);
        drop(first);
        drop(guard);
        drop(client);
        assert_eq!(watched.strong_count(), 0, "a client is left, listened={listened}");
    }
    servers.block_on(async { drop(server) });
}
