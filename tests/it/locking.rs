//! Taking, nesting and giving back, on one server.

use std::time::Duration;

use leasehold::{Client, Error, Owner};

use crate::support::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smoke() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.expect("connected");
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    println!("{guard:?} {:?}", lock.status().await.unwrap());
    assert!(lock.try_lock().await.unwrap().is_none());
    let error = lock.lock_with_timeout(Duration::from_millis(50)).await.unwrap_err();
    println!("{error}");
    assert!(matches!(error, Error::Timeout { .. }));
    guard.unlock().await.expect("held");
    let me = Owner::new();
    let a = lock.owned_by(&me).lock().await.unwrap();
    let b = lock.owned_by(&me).lock().await.unwrap();
    assert_eq!(a.hold_count(), 2);
    drop(a);
    b.unlock().await.unwrap();
    let out = tokio::spawn({
        let lock = lock.clone();
        async move {
            lock.run(async |g| {
                let inner = lock.lock().await.unwrap();
                inner.token() == g.token()
            })
            .await
        }
    })
    .await
    .unwrap()
    .unwrap();
    assert!(out);
    let other = Client::connect(&server.url()).await.unwrap();
    let g = lock.lock().await.unwrap();
    let t0 = std::time::Instant::now();
    let h = tokio::spawn(async move {
        let g = other.mutex("n").lock().await.unwrap();
        let t = t0.elapsed();
        g.unlock().await.unwrap();
        t
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    g.unlock().await.unwrap();
    println!("{:?}", h.await.unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("{:?}", client.stats());
    println!("{:?}", client.check().await);
    client.shutdown().await;
}
