//! Which owner an acquisition belongs to, where several could be meant.

use std::time::Duration;

use leasehold::{Error, Guard, Owner};

use crate::{
    checks::{LIMIT, nothing_left, setup, soon},
    support::eventually,
};

#[tokio::test]
async fn two_waiters_by_the_owner_of_a_guard_hold_together() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    // An owner that nobody named: it comes from a plain acquisition.
    let first = client.mutex("other").lock().await.expect("free");
    let lock_of_first = lock.owned_by(&first.owner().clone());

    let held = lock.lock().await.expect("free");
    let waiting = tokio::spawn(async move {
        let both = async { tokio::join!(lock_of_first.lock(), lock_of_first.lock()) };
        let (one, two) = soon("neither waits for the other", both).await;
        (one.expect("free"), two.expect("the same owner"))
    });
    eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
    held.unlock().await.expect("held");
    let (one, two) = waiting.await.expect("no panic");
    assert_eq!((one.hold_count(), two.token()), (2, one.token()));
    drop((one, two, first));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn two_waiters_in_the_scope_of_a_guards_owner_hold_together() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let first = client.mutex("other").lock().await.expect("free");
    let held = lock.lock().await.expect("free");
    let (owner, scoped) = (first.owner().clone(), lock.clone());
    let waiting = tokio::spawn(async move {
        let both = owner.scope(async { tokio::join!(scoped.lock(), scoped.lock()) });
        soon("neither waits for the other", both).await
    });
    eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
    held.unlock().await.expect("held");
    let (one, two) = waiting.await.expect("no panic");
    drop((one.expect("free"), two.expect("the same owner"), first));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn inside_a_run_inside_a_scope_the_lock_belongs_to_the_run() {
    let (server, [client]) = setup().await;
    let (lock, other) = (client.mutex("n"), client.mutex("other"));
    let (around, of_run) = (Owner::named("around"), Owner::named("of the run"));
    let counts = around
        .scope(lock.owned_by(&of_run).run(async |guard: &Guard| {
            let nested = lock.lock_with_timeout(Duration::from_millis(300)).await?;
            assert_eq!(nested.owner(), guard.owner());
            // Any other lock belongs to the scope as before.
            let beside = other.lock().await?;
            assert_eq!(beside.owner(), &around);
            Ok::<_, Error>(nested.hold_count())
        }))
        .await
        .expect("held");
    assert_eq!(counts.expect("it does not wait for itself"), 2);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn inside_a_scope_inside_a_run_the_lock_belongs_to_the_scope() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let (inner, of_run) = (Owner::named("inner"), Owner::named("of the run"));
    let answer = lock
        .owned_by(&of_run)
        .run(async |_: &Guard| inner.scope(lock.try_lock()).await)
        .await
        .expect("held");
    assert!(answer.expect("an answer").is_none(), "another owner got in");
    let answer = lock
        .owned_by(&of_run)
        .run(async |_: &Guard| inner.scope(of_run.scope(lock.try_lock())).await)
        .await
        .expect("held");
    assert!(answer.expect("an answer").is_some(), "the innermost scope names the holder");
    nothing_left(&server, &client).await;
}
