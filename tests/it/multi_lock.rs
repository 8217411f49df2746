//! Several locks that are taken together: all or none, in no fixed order of their names, and lost together.

mod bad_input;
mod blocking;
mod cancelling;
mod crowds;
mod deployments;
mod losses;
mod owners;
mod terms;
mod waiting;

use std::time::Duration;

use leasehold::{Client, MultiGuard, MultiLock};

use crate::checks::{connect, nothing_left, setup, setup_with_proxy, soon};
use crate::support::{Spy, eventually};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = crate::checks::LIMIT;

/// Waits until somebody holds each of these locks, or nobody does.
async fn are_held(client: &Client, names: &[&str], held: bool) {
    for name in names {
        let as_wanted = async || {
            let locked = client.mutex(name).is_locked().await;
            locked.expect("an answer") == held
        };
        eventually(LIMIT, &format!("{name} is held: {held}"), as_wanted).await;
    }
}

async fn taken(locks: &MultiLock) -> MultiGuard {
    soon("all are taken", locks.lock()).await.expect("all are free")
}

fn names(guard: &MultiGuard) -> Vec<&str> {
    guard.tokens().map(|(name, _)| name).collect()
}

fn token(guard: &MultiGuard, of: &str) -> u64 {
    guard.tokens().find(|(name, _)| *name == of).expect("it is one of them").1
}

#[tokio::test]
async fn all_are_held_and_given_back_together() {
    let (server, [client, other]) = setup().await;
    let locks = client.multi_lock(["b", "a", "c"]);
    assert_eq!(locks.names().collect::<Vec<_>>(), ["b", "a", "c"]);
    let guard = taken(&locks).await;
    assert!(guard.is_held() && guard.remaining() > Duration::from_secs(20));
    assert_eq!(names(&guard), ["b", "a", "c"], "in the order in which they were given");
    for (name, token) in guard.tokens() {
        assert!(other.mutex(name).try_lock().await.expect("an answer").is_none(), "{name}");
        let status = other.mutex(name).status().await.expect("an answer");
        assert_eq!(status.last_token, Some(token), "{name}");
    }
    assert_eq!(client.holds().len(), 3);
    let status = other.multi_lock(["c", "a"]).status().await.expect("an answer");
    assert_eq!(status.iter().map(|lock| &*lock.name).collect::<Vec<_>>(), ["c", "a"]);
    assert!(status.iter().all(|lock| lock.holder.is_some()));
    let before = token(&guard, "a");
    guard.unlock().await.expect("held");
    are_held(&other, &["a", "b", "c"], false).await;
    let again = locks.try_lock().await.expect("an answer").expect("free");
    assert!(token(&again, "a") > before);
    drop(again);
    nothing_left(&server, &client).await;
}

/// All requests are at the server before the first answer has left it, and there are no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_locks_cost_one_round_trip_together() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    taken(&client.multi_lock(["x"])).await.unlock().await.expect("held"); // the scripts are known
    let spy = Spy::on(&server).await;
    proxy.hold_replies();
    let waiting = tokio::spawn(client.multi_lock(["c", "a", "d", "b"]).lock());
    let all_there = async || spy.count("lock_acquire") == 4;
    eventually(LIMIT, "all requests are there", all_there).await;
    assert!(!waiting.is_finished());
    proxy.release_replies();
    let guard = soon("they are held", waiting).await.expect("no panic").expect("free");
    assert_eq!(spy.runs().len(), 4, "{:?}", spy.runs());
    guard.unlock().await.expect("held");
    assert_eq!(spy.count("lock_release"), 4);
}

#[tokio::test]
async fn one_that_is_held_elsewhere_keeps_all_others_free() {
    let (server, [client, other]) = setup().await;
    for busy in ["a", "b", "c"] {
        let held = other.mutex(busy).lock().await.expect("free");
        let locks = client.multi_lock(["a", "b", "c"]);
        assert!(locks.try_lock().await.expect("an answer").is_none());
        let free: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != busy).collect();
        are_held(&other, &free, false).await;
        assert!(client.holds().is_empty());
        held.unlock().await.expect("held");
        taken(&locks).await.unlock().await.expect("held");
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn locks_of_several_clients_and_servers_are_taken_together() {
    let (here, [one]) = setup().await;
    let (there, [two]) = setup().await;
    let both = MultiLock::of([two.mutex("b"), one.fair_mutex("a")]);
    let guard = taken(&both).await;
    assert_eq!(names(&guard), ["b", "a"]);
    let (one_more, two_more) = (connect(&here).await, connect(&there).await);
    assert!(one_more.mutex("a").is_locked().await.expect("an answer"));
    assert!(two_more.mutex("b").is_locked().await.expect("an answer"));
    guard.unlock().await.expect("held");
    let held = two_more.mutex("b").lock().await.expect("free");
    assert!(both.try_lock().await.expect("an answer").is_none());
    held.unlock().await.expect("held");
    nothing_left(&here, &one).await;
    nothing_left(&there, &two).await;
}

#[tokio::test]
async fn a_prefix_is_part_of_each_name() {
    let (server, [plain]) = setup().await;
    let builder = Client::builder().nodes([server.url()]).name_prefix("app:");
    let client = builder.connect().await.expect("connected");
    let guard = taken(&client.multi_lock(["a", "b"])).await;
    assert_eq!(names(&guard), ["app:a", "app:b"]);
    assert!(plain.multi_lock(["app:b", "app:a"]).try_lock().await.expect("an answer").is_none());
    guard.unlock().await.expect("held");
}
