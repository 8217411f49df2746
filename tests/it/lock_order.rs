//! Locks that are taken one under the other in different orders are told of once, although nobody waits. All tests of this program
//! are one process, so the names here are used nowhere else.

use leasehold::{Client, LockOrder, Owner, blocking};

use crate::{
    checks::{nothing_left, setup, soon},
    logging::Log,
    support::Server,
};

const MESSAGE: &str = "locks are taken in another order than before";

async fn connect(server: &Server, reaction: LockOrder) -> Client {
    let builder = Client::builder().nodes([server.url()]).lock_order(reaction);
    builder.connect().await.expect("connected")
}

/// Takes one lock under another one. Returns the lines of code that did, as the log has them.
async fn nest(client: &Client, outer: &str, inner: &str) -> [String; 2] {
    let outer = client.mutex(outer).lock().await.expect("free");
    let first = line!() - 1;
    let inner = client.mutex(inner).lock().await.expect("free");
    let second = line!() - 1;
    inner.unlock().await.expect("held");
    outer.unlock().await.expect("held");
    [first, second].map(|line| format!("{}:{line}:", file!()))
}

fn told(log: &Log) -> Vec<String> {
    log.text().lines().filter(|line| line.contains(MESSAGE)).map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn another_order_is_told_once_with_all_lines_of_code() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let (client, other) =
        (connect(&server, LockOrder::Warn).await, connect(&server, LockOrder::Warn).await);
    nest(&client, "told-shelf:1", "told-box:1").await;
    nest(&client, "told-box:2", "told-label").await;
    nest(&client, "told-shelf:3", "told-box:3").await;
    assert_eq!(told(&log), [""; 0], "one order");
    let [outer, inner] = nest(&other, "told-label", "told-shelf:2").await;
    let [line] = &told(&log)[..] else { panic!("one line: {}", log.text()) };
    for part in [
        format!("now=`told-shelf:2` ({inner}"),
        format!("under `told-label` ({outer}"),
        format!("before=\"`told-box:1` ({inner}"),
        "under `told-shelf:1` (".to_owned(),
        "`told-label` (".to_owned(),
        "under `told-box:2` (".to_owned(),
        "WARN".to_owned(),
        "lock=\"told-shelf:2\"".to_owned(),
    ] {
        assert!(line.contains(&part), "no {part} in {line}");
    }
    nest(&client, "told-label", "told-shelf:9").await;
    assert_eq!(told(&log).len(), 1, "it is known");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn within_a_class_the_names_go_one_way() {
    let (log, _listening) = Log::listen();
    let (_server, [client]) = setup().await;
    for (outer, inner) in [("way:9", "way:10"), ("way:10", "way:11"), ("way:2", "way:9")] {
        nest(&client, outer, inner).await;
    }
    assert_eq!(told(&log), [""; 0], "that is the default of a debug build, and they go up");
    nest(&client, "way:11", "way:2").await;
    let [line] = &told(&log)[..] else { panic!("one line: {}", log.text()) };
    assert!(line.contains("now=`way:2`") && line.contains("under `way:11`"), "{line}");
}

#[tokio::test]
async fn what_cannot_deadlock_is_not_told() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let client = connect(&server, LockOrder::Warn).await;
    nest(&client, "quiet-a", "quiet-b").await;
    let b = client.mutex("quiet-b").lock().await.expect("free");
    // A single attempt waits for nobody.
    let a = client.mutex("quiet-a").try_lock().await.expect("an answer").expect("free");
    a.unlock().await.expect("held");
    b.unlock().await.expect("held");
    // Whoever enters again does not either.
    let a = client.mutex("quiet-a").owned_by(&Owner::named("again"));
    let outer = a.lock().await.expect("free");
    let b = client.mutex("quiet-b").lock().await.expect("free");
    a.lock().await.expect("ours").unlock().await.expect("held");
    b.unlock().await.expect("held");
    outer.unlock().await.expect("held");
    // Nor do those who are together in any order.
    let both = client.multi_lock(["quiet-b", "quiet-a"]).lock().await.expect("free");
    both.unlock().await.expect("held");
    // A task that holds it no more, another owner in another task, and a client that does not look.
    client.mutex("quiet-b").lock().await.expect("free").unlock().await.expect("held");
    nest(&client, "quiet-c", "quiet-a").await;
    let b = client.mutex("quiet-b").owned_by(&Owner::named("x")).lock().await.expect("free");
    let another = client.mutex("quiet-a");
    tokio::spawn(async move { another.lock().await.map(drop) })
        .await
        .expect("no panic")
        .expect("free");
    b.unlock().await.expect("held");
    let off = connect(&server, LockOrder::Off).await;
    nest(&off, "quiet-b", "quiet-a").await;
    assert_eq!(told(&log), [""; 0], "{}", log.text());
    nest(&client, "quiet-b", "quiet-a").await;
    assert_eq!(told(&log).len(), 1, "but this is");
}

#[tokio::test]
async fn threads_and_named_owners_are_told() {
    let server = Server::start().await;
    let client = connect(&server, LockOrder::Warn).await;
    let url = server.url();
    let text = tokio::task::spawn_blocking(move || {
        let (log, _listening) = Log::listen();
        let threads = blocking::Client::connect(&url).expect("connected");
        for (outer, inner) in [("thread-a", "thread-b"), ("thread-b", "thread-a")] {
            let _outer = threads.mutex(outer).lock().expect("free");
            let _inner = threads.mutex(inner).lock().expect("free");
        }
        told(&log)
    });
    assert_eq!(text.await.expect("no panic").len(), 1);
    // The owner holds one lock, wherever it asks for the other.
    let (log, _listening) = Log::listen();
    let owner = Owner::named("x");
    for (outer, inner) in [("owner-a", "owner-b"), ("owner-b", "owner-a")] {
        let outer = client.mutex(outer).owned_by(&owner);
        let outer = tokio::spawn(outer.lock()).await.expect("no panic").expect("free");
        let inner = client.mutex(inner).owned_by(&owner).lock().await.expect("free");
        inner.unlock().await.expect("held");
        outer.unlock().await.expect("held");
    }
    assert_eq!(told(&log).len(), 1, "{}", log.text());
}

#[tokio::test]
async fn what_was_given_back_is_held_no_more_although_somebody_would_learn_of_its_loss() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let client = connect(&server, LockOrder::Warn).await;
    nest(&client, "watched-a", "watched-b").await;
    let b = client.mutex("watched-b").lock().await.expect("free");
    let lost = b.lost();
    b.unlock().await.expect("held");
    let a = client.mutex("watched-a").lock().await.expect("free");
    a.unlock().await.expect("held");
    // Nor is one that was lost, once its guard is gone.
    let gone = client.mutex("watched-b").lock().await.expect("free");
    server.command(&["DEL", "watched-b"]).await;
    let loss = gone.lost();
    soon("it is lost", gone.lost()).await;
    drop(gone);
    let a = client.mutex("watched-a").lock().await.expect("free");
    a.unlock().await.expect("held");
    assert_eq!(told(&log), [""; 0], "{}", log.text());
    drop((lost, loss));
    nest(&client, "watched-b", "watched-a").await;
    assert_eq!(told(&log).len(), 1, "but this is");
}
