//! Fencing tokens of Java's FencedLock and of ours: one counter, one order.

use std::time::Duration;

use leasehold::{Client, Mutex};
use leasehold_testkit::{
    Server,
    java::{Java, Version, hex},
};
use redis::Value;

use crate::with_each_redisson;

with_each_redisson!(tokens_of_both_grow_together, without_the_setting_each_counts_for_itself,);

async fn tokens_of_both_grow_together(version: Version) {
    let server = Server::start().await;
    let java = Java::connect(version, &server.url(), TTL).await;
    let builder = Client::builder().nodes([server.url()]).redisson_fencing(true);
    let client = builder.connect().await.expect("connected");
    for name in ["java-first", "rust-first", "tagged:{1}"] {
        let mut tokens = Vec::new();
        let lock = client.mutex(name);
        if name == "rust-first" {
            tokens.push(turn_of_ours(&lock).await);
        }
        for _ in 0..5 {
            tokens.extend(turns_of_java(&java, name).await);
            tokens.push(turn_of_ours(&lock).await);
            // Waiters of one client, among whom the lock may pass without asking Redis.
            tokens.extend(turns_of_our_tasks(&lock).await);
        }
        tokens.extend(turns_of_java(&java, name).await);
        assert!(tokens.is_sorted_by(|one, next| one < next), "{name}: {tokens:?}");
        let last = lock.status().await.expect("an answer").last_token;
        let counter = java.number("a", &format!("get-token fenced {}", hex(name))).await;
        assert_eq!(last, u64::try_from(counter).ok());
        assert_eq!(last, tokens.last().copied());
        // Redisson's counter has no end, and gets none from us.
        let braced = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
        let key = format!("redisson_lock_token:{braced}");
        assert_eq!(server.command(&["PTTL", &key]).await, Value::Int(-1));
    }
}

/// A hold in which it re-enters, and one that it tries for: Java's tokens grow at every acquisition.
async fn turns_of_java(java: &Java, name: &str) -> Vec<u64> {
    let name = hex(name);
    let mut tokens = Vec::new();
    for command in ["lock-and-get-token fenced {}", "try-lock-and-get-token fenced {} 1000"] {
        for _ in 0..2 {
            let token = java.number("a", &command.replace("{}", &name)).await;
            tokens.push(u64::try_from(token).expect("it was acquired"));
        }
        for _ in 0..2 {
            java.number("a", &format!("unlock fenced {name}")).await;
        }
    }
    tokens
}

async fn turn_of_ours(lock: &Mutex) -> u64 {
    let guard = lock.lock().await.expect("held");
    let nested = guard.reenter().expect("held");
    assert_eq!(nested.token(), guard.token());
    let token = guard.token();
    drop(nested);
    guard.unlock().await.expect("held");
    token
}

/// In the order in which they had the lock.
async fn turns_of_our_tasks(lock: &Mutex) -> Vec<u64> {
    let (sender, mut tokens) = tokio::sync::mpsc::unbounded_channel();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (lock, sender) = (lock.clone(), sender.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = lock.lock().await.expect("held");
                    sender.send(guard.token()).expect("somebody listens");
                    guard.unlock().await.expect("held");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    drop(sender);
    let mut turns = Vec::new();
    while let Some(token) = tokens.recv().await {
        turns.push(token);
    }
    assert_eq!(turns.len(), 20);
    turns
}

/// Without `redisson_fencing` the holds exclude each other, but their tokens have nothing to do with each other.
async fn without_the_setting_each_counts_for_itself(version: Version) {
    let server = Server::start().await;
    let java = Java::connect(version, &server.url(), TTL).await;
    let client = Client::connect(&server.url()).await.expect("connected");
    let lock = client.mutex("n");
    for turn in 1..=2 {
        assert_eq!(java.number("a", "lock-and-get-token fenced 6e").await, turn);
        assert!(lock.try_lock().await.expect("an answer").is_none());
        java.number("a", "unlock fenced 6e").await;
        let guard = lock.lock().await.expect("held");
        // Long enough for Java to subscribe: otherwise it throws.
        assert_eq!(java.number("a", "try-lock-and-get-token fenced 6e 300").await, -1);
        assert!(guard.token() > 1_000_000);
        guard.unlock().await.expect("held");
    }
}

const TTL: Duration = Duration::from_secs(30);
