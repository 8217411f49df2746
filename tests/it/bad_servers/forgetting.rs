//! Servers that forget their scripts or their data.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use leasehold::{Error, LossReason};

use super::{MS, somebody_waits};
use crate::checks::{LIMIT, exists, nothing_left, setup, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_under_load_are_not_noticed() {
    let (server, clients) = setup::<2>().await;
    let ttl = 300 * MS * server.slowness().await;
    let done = Arc::new(AtomicBool::new(false));
    let flushes = tokio::spawn({
        let done = done.clone();
        let mut raw = server.raw().await;
        async move {
            let mut flushes = 0;
            while !done.load(Ordering::Relaxed) {
                let flushed = redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut raw).await;
                flushed.expect("it may");
                flushes += 1;
            }
            flushes
        }
    });
    let inside: Arc<[AtomicU64; 3]> = Arc::default();
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let client = clients[n % 2].clone();
            let inside = inside.clone();
            tokio::spawn(async move {
                let place = n % 3;
                let lock = client.mutex(format!("n{place}")).with_ttl(ttl);
                for turn in 0..40 {
                    let guard = lock.lock().await?;
                    assert_eq!(inside[place].fetch_add(1, Ordering::SeqCst), 0, "not alone");
                    if turn == 0 {
                        // Two renewals and more.
                        tokio::time::sleep(ttl * 5 / 6).await;
                    }
                    assert!(guard.is_held());
                    inside[place].fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for task in tasks {
        let done = tokio::time::timeout(2 * LIMIT, task).await.expect("no hang");
        done.expect("no panic").expect("no error");
    }
    done.store(true, Ordering::Relaxed);
    let flushes = flushes.await.expect("no panic");
    assert!(flushes > 100, "{flushes} are no load");
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

#[tokio::test]
async fn flushed_data_is_told_to_the_holder_and_lets_the_waiter_in() {
    let (server, [holder, client]) = setup().await;
    let guard = holder.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    somebody_waits(&client.mutex("n")).await;
    server.command(&["FLUSHALL"]).await;
    let flushed_at = Instant::now();
    let reason = soon("it is told", guard.lost()).await;
    assert_eq!(reason, LossReason::Gone);
    assert!(flushed_at.elapsed() < server.widened(350 * MS), "{:?}", flushed_at.elapsed());
    let got = soon("no hang", waiter).await.expect("no panic");
    let got = got.expect("nobody holds it any more");
    assert!(flushed_at.elapsed() < server.widened(1000 * MS), "{:?}", flushed_at.elapsed());
    assert!(got.token() > guard.token(), "tokens grow past lost data");
    let error = guard.unlock().await.expect_err("lost");
    assert!(matches!(error, Error::Lost { reason: LossReason::Gone, .. }), "{error:?}");
    assert!(
        got.is_held() && exists(&server, "n").await,
        "the loser's release freed the winner's lock"
    );
    got.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &holder).await;
}
