//! Whether a writer knows that nobody has written since somebody read.

use std::time::Duration;

use leasehold::{Client, Holder, Owner, ReadVersion, RwLock, WriteGuard};

use super::queued;
use crate::{
    checks::{LIMIT, nothing_left, setup, soon},
    fair::make_heard,
    support::{Server, eventually},
    synced::{connect, replicated, synced},
};

/// The version of a reader that is through.
async fn read(lock: &RwLock) -> ReadVersion {
    let reading = soon("the reader", lock.read()).await.expect("nobody writes");
    let version = reading.version().expect("it is a reader");
    reading.unlock().await.expect("held");
    version
}

async fn write(lock: &RwLock) -> WriteGuard {
    soon("the writer", lock.write()).await.expect("free")
}

#[tokio::test]
async fn a_writer_sees_who_wrote_since_a_reader() {
    let (server, [a, b]) = setup().await;
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let first = read(&one).await;
    assert_eq!(read(&other).await, first, "nobody wrote yet");
    let writing = write(&one).await;
    assert!(writing.unchanged_since(first));
    let nested = one.owned_by(writing.owner()).write().await.expect("it nests");
    assert!(nested.unchanged_since(first), "it is the same hold");
    drop(nested);
    writing.unlock().await.expect("held");

    let writing = write(&other).await;
    assert!(!writing.unchanged_since(first), "one wrote since");
    // Going on as a reader, it reads what it has written.
    let reading = writing.downgrade().await.expect("held");
    let second = reading.version();
    reading.unlock().await.expect("held");
    let writing = write(&one).await;
    assert!(writing.unchanged_since(second) && !writing.unchanged_since(first));
    drop(writing);
    let third = read(&other).await;
    server.command(&["DEL", "leasehold_token:{n}"]).await;
    let writing = write(&one).await;
    assert!(!writing.unchanged_since(third), "nobody knows");
    drop(writing);
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

/// Its owner may write after it has read.
#[tokio::test]
async fn a_reader_within_a_writer_has_no_version() {
    let (server, [client]) = setup().await;
    let lock = client.rw_lock("n").owned_by(&Owner::new());
    let writing = write(&lock).await;
    let within = lock.read().await.expect("nested");
    assert_eq!(within.version(), None);
    let beside = writing.downgrade().await.expect("held");
    assert_eq!(beside.version(), None, "the lock stays locked for writing");
    assert_eq!(beside.reenter().expect("held").version(), None);
    let seen = [within.version(), beside.version(), None];
    drop((within, beside));
    nothing_left(&server, &client).await;
    let writing = write(&client.rw_lock("n")).await;
    assert!(seen.into_iter().all(|seen| !writing.unchanged_since(seen)));
    let reading = writing.downgrade().await.expect("held");
    let seen = reading.version().expect("it is a reader now");
    assert_eq!(reading.reenter().expect("held").version(), Some(seen));
    reading.unlock().await.expect("held");
    assert!(write(&lock).await.unchanged_since(seen));
}

/// A writer of `waiting` that waits while somebody of `holding` reads, and one that waits while another writes.
async fn in_their_turns(holding: &Client, waiting: &Client) {
    let (lock, theirs) = (holding.rw_lock("n"), waiting.rw_lock("n"));
    let reading = soon("the reader", lock.read()).await.expect("free");
    let seen = reading.version();
    let waits = tokio::spawn(theirs.write());
    queued(&lock, 1).await;
    reading.unlock().await.expect("held");
    let writing = soon("its turn", waits).await.expect("no panic").expect("granted");
    assert!(writing.unchanged_since(seen));
    writing.unlock().await.expect("held");

    let seen = read(&theirs).await;
    let writing = write(&lock).await;
    let waits = tokio::spawn(theirs.write());
    queued(&lock, 1).await;
    writing.unlock().await.expect("held");
    let writing = soon("its turn", waits).await.expect("no panic").expect("granted");
    assert!(!writing.unchanged_since(seen), "the one before wrote");
    writing.unlock().await.expect("held");
}

#[tokio::test]
async fn a_writer_that_had_to_wait_sees_it_too() {
    let (server, [a, b]) = setup().await;
    make_heard(&server, &[&a, &b]).await;
    in_their_turns(&a, &b).await;
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

/// There, the grant that a message told is confirmed by an ask.
#[tokio::test]
async fn a_grant_that_was_confirmed_tells_it_too() {
    let (master, _replica) = replicated().await;
    let (a, b) = (connect(synced(&master)).await, connect(synced(&master)).await);
    make_heard(&master, &[&a, &b]).await;
    in_their_turns(&a, &b).await;
    nothing_left(&master, &a).await;
    nothing_left(&master, &b).await;
}

/// Each server has a counter of its own.
#[tokio::test]
async fn over_several_servers_no_writer_is_missed() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let open = async || {
        let builder = Client::builder().nodes(servers.iter().map(Server::url));
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    let (a, b) = (open().await, open().await);
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let mut noticed = 0;
    for _ in 0..20 {
        let seen = read(&one).await;
        let first = write(&other).await;
        // Where the counters differ, it may be false.
        noticed += u32::from(first.unchanged_since(seen));
        first.unlock().await.expect("held");
        let second = write(&one).await;
        assert!(!second.unchanged_since(seen), "the other has written");
        second.unlock().await.expect("held");
    }
    assert!(noticed > 0, "the counters differ seldom");
}

#[tokio::test]
async fn after_a_hand_off_the_one_before_has_written() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let (lock, theirs) = (client.rw_lock("n"), crate::checks::connect(&server).await.rw_lock("n"));
    let reading = soon("the reader", theirs.read()).await.expect("free");
    let seen = reading.version();
    let mut waits = Vec::new();
    for waiters in 1..=3 {
        waits.push(tokio::spawn(lock.write()));
        eventually(LIMIT, "it waits", async || client.stats().waiters == waiters).await;
    }
    queued(&theirs, 1).await;
    reading.unlock().await.expect("held");
    let mut before: Option<Holder> = None;
    for waits in waits {
        let writing = soon("its turn", waits).await.expect("no panic").expect("granted");
        assert_eq!(writing.unchanged_since(seen), before.is_none(), "{writing:?}");
        if let Some(holder) = before {
            assert_eq!(writing.holder(), holder, "it is the same lease");
        }
        before = Some(writing.holder());
        writing.unlock().await.expect("held");
    }
    nothing_left(&server, &client).await;
}
