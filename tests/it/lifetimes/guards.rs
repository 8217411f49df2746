//! Guards that end in an unusual place: another runtime, a panic, an aborted task.

use leasehold::Guard;
use tokio::runtime::Builder;

use super::{MS, gone_in_the_end, runtime};
use crate::{
    checks::{LIMIT, exists, no_connection_left, nothing_left, setup},
    support::eventually,
};

#[tokio::test]
async fn a_guard_keeps_being_renewed_after_its_client_is_dropped() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
    let inner = guard.reenter().expect("held");
    drop(client);
    // Several TTLs: what is tested is that it stays held.
    let lost = tokio::time::timeout(2_000 * MS, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(guard.is_held() && exists(&server, "n").await);
    drop(guard);
    assert!(inner.is_held() && exists(&server, "n").await);
    drop(inner);
    gone_in_the_end(&server, "n").await;
    no_connection_left(&server).await;
}

#[tokio::test]
async fn an_unlock_after_the_client_is_dropped_is_confirmed() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").lock().await.expect("free");
    drop(client);
    guard.unlock().await.expect("held");
    assert!(!exists(&server, "n").await);
    no_connection_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_outside_of_any_runtime_releases() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").lock().await.expect("free");
    std::thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        assert!(guard.is_held());
        drop(guard);
    })
    .join()
    .expect("no panic");
    nothing_left(&server, &client).await;
}

#[test]
fn a_guard_dropped_on_another_runtime_that_ends_at_once_releases() {
    let tasks = runtime();
    let (server, client, guard) = tasks.block_on(async {
        let (server, [client]) = setup().await;
        let guard = client.mutex("n").lock().await.expect("free");
        (server, client, guard)
    });
    Builder::new_current_thread().build().expect("a runtime").block_on(async move { drop(guard) });
    tasks.block_on(nothing_left(&server, &client));
}

#[tokio::test]
async fn a_panic_releases_what_it_unwinds_through() {
    let (server, [client]) = setup().await;
    let task = tokio::spawn({
        let lock = client.mutex("n");
        async move {
            let _guard = lock.lock().await.expect("free");
            std::panic::resume_unwind(Box::new("a panic without a message"));
        }
    });
    let end: Result<(), _> = task.await;
    assert!(end.expect_err("it panicked").is_panic());
    nothing_left(&server, &client).await;

    let task = tokio::spawn(client.mutex("n").run(async |_guard: &Guard| {
        tokio::task::yield_now().await;
        std::panic::resume_unwind(Box::new("a panic without a message"));
    }));
    let end: Result<Result<(), _>, _> = task.await;
    assert!(end.expect_err("it panicked").is_panic());
    nothing_left(&server, &client).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
}

#[tokio::test]
async fn a_guard_in_an_aborted_task_is_released() {
    let (server, [client]) = setup().await;
    let task = tokio::spawn({
        let lock = client.mutex("n");
        async move {
            let _guard = lock.lock().await.expect("free");
            std::future::pending::<()>().await;
        }
    });
    eventually(LIMIT, "it holds", async || exists(&server, "n").await).await;
    task.abort();
    nothing_left(&server, &client).await;
}
