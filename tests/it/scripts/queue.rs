//! `queue.lua`, in the scripts that grant the lock: the queue of those who wait for it on one server.
//!
//! The clients are `a`, `b`, `c`. Each has one lease: `a:1`, `b:1`, `c:1`. A message is compared as text, as replies
//! are: `grant b:1 token 2s token` is a grant of 2 s.

mod granting;
mod leaving;
mod ordering;
mod sharing;
mod troubles;
mod wanting;

use super::bench::{
    Bench, CHANNEL, Call, Subscriber, acquire, force_unlock, force_unlock_if, number_text, release,
    release_later, status,
};

const QUEUE: &str = "leasehold_queue:{orders}";
const NONCE: &str = "0123456789abcdef";

fn entry(id: &str) -> String {
    format!("30000 1 {NONCE} {id}")
}

/// An acquire that queues.
fn ask(id: &str) -> Call {
    acquire(id).entry(&entry(id)).and(QUEUE, &[])
}

/// An acquire that does not queue.
fn try_once(id: &str) -> Call {
    acquire(id).and(QUEUE, &["0"])
}

/// A release of a lease that has queued. It came by an answer.
fn leave(id: &str) -> Call {
    release(id).and(QUEUE, &["86400000", &entry(id)])
}

/// A release of a lease that came by message.
fn leave_granted(id: &str) -> Call {
    release(id).and(QUEUE, &["86400000", &entry(id), "1"])
}

fn leave_later(id: &str, keep_ms: u64) -> Call {
    release_later(id, keep_ms).and(QUEUE, &["86400000", &entry(id)])
}

fn force() -> Call {
    force_unlock().and(QUEUE, &["86400000"])
}

fn force_if(id: &str) -> Call {
    force_unlock_if(id).and(QUEUE, &["86400000"])
}

fn look(show: u32) -> Call {
    status().and(QUEUE, &[&show.to_string()])
}

fn mailbox(client: &str) -> String {
    format!("leasehold_mailbox:{client}:{NONCE}")
}

/// The mailbox of a client that lives.
async fn listen(bench: &Bench, client: &str) -> Subscriber {
    bench.subscriber_of(&mailbox(client)).await
}

/// What a client was told since it was asked last.
async fn told(bench: &mut Bench, mailbox: &mut Subscriber) -> Vec<String> {
    let messages = bench.messages(mailbox).await;
    let shown = |word: &str| word.parse().map_or_else(|_| word.to_owned(), number_text);
    messages
        .iter()
        .map(|message| message.split(' ').map(shown).collect::<Vec<_>>().join(" "))
        .collect()
}

/// The ids in the queue, the first one first.
async fn queued(bench: &mut Bench) -> String {
    let entries = bench.command(&format!("ZRANGE {QUEUE} 0 -1")).await;
    let entries: Vec<String> = redis::from_redis_value(entries).expect("a list of entries");
    let ids = entries.iter().map(|entry| entry.rsplit(' ').next().expect("an id"));
    ids.collect::<Vec<_>>().join(" ")
}

/// `a` holds the lock, and the others wait in this order. Returns their mailboxes.
async fn line<const N: usize>(bench: &mut Bench, waiting: [&str; N]) -> [Subscriber; N] {
    let mut mailboxes = Vec::new();
    bench.acquired(&ask("a:1")).await;
    for client in waiting {
        mailboxes.push(listen(bench, client).await);
        bench.run(&ask(&format!("{client}:1"))).await.expect("the script runs");
    }
    mailboxes.try_into().unwrap_or_else(|_| unreachable!("one for each"))
}
