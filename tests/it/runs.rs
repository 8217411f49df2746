//! Bodies that run under a lock: what becomes of their results, and where they can be spawned.

use std::{pin::Pin, sync::Arc, time::Duration};

use leasehold::{Client, Error, Guard, Holder, LossReason, Mutex, Outcome, blocking};
use tokio::task::JoinHandle;

use crate::checks::{LIMIT, nothing_left, setup, setup_with_proxy, soon};

const MS: Duration = Duration::from_millis(1);

fn is_gone<T>(outcome: &Outcome<T>) -> bool {
    matches!(&outcome.released, Err(Error::Lost { reason: LossReason::Gone, .. }))
}

#[tokio::test]
async fn a_body_whose_lock_was_lost_behind_its_back_keeps_its_result_and_its_error() {
    let (server, [client, other]) = setup().await;
    let lock = client.mutex("n");
    let take_away = async || assert!(other.mutex("n").force_unlock().await.expect("an answer"));
    let outcome = lock
        .run_with_outcome(async |_: &Guard| {
            take_away().await;
            Err::<(), _>("its own error")
        })
        .await
        .expect("it ran to its end");
    assert!(is_gone(&outcome), "{outcome:?}");
    assert_eq!(outcome.output, Err("its own error"));

    // The plain form has room for one of the two.
    let lost = lock.run(async |_: &Guard| take_away().await).await;
    assert!(lost.as_ref().is_err_and(Error::is_lost), "{lost:?}");

    let outcome = lock.run_with_outcome(async |guard: &Guard| guard.token()).await.expect("free");
    assert!(outcome.released.is_ok() && outcome.output > 0, "{outcome:?}");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_body_that_is_cancelled_by_the_loss_has_no_outcome() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n").with_lease(50 * MS);
    let forever = lock.run_with_outcome(async |_: &Guard| std::future::pending::<()>().await);
    let outcome = soon("it is cancelled", forever).await;
    assert!(outcome.as_ref().is_err_and(Error::is_lost), "{outcome:?}");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_release_that_nobody_confirms_in_time_is_no_error_of_a_body() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(100 * MS);
    let client = builder.connect().await.expect("connected");
    let outcome = client
        .mutex("n")
        .run_with_outcome(async |_: &Guard| {
            proxy.drop_replies(true);
            7
        })
        .await
        .expect("it ran to its end");
    assert!(outcome.released.is_ok() && outcome.output == 7, "{outcome:?}");
    proxy.drop_replies(false);
    proxy.cut();
    nothing_left(&server, &client).await;
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Knows nothing of the job but what it says here.
fn spawn_under<T, F>(lock: &Mutex, job: F) -> JoinHandle<Result<T, Error>>
where
    T: Send + 'static,
    F: for<'a> FnOnce(&'a Guard) -> Boxed<'a, T> + Send + 'static,
{
    tokio::spawn(lock.run_boxed(job))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generic_code_spawns_a_boxed_body() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let inside = lock.clone();
    let job = spawn_under(&lock, move |guard| {
        Box::pin(async move {
            let nested = inside.lock().await.expect("its own lock");
            (guard.hold_count(), nested.token() == guard.token())
        })
    });
    assert_eq!(job.await.expect("no panic").expect("held"), (2, true));

    let (dropped, seen) = tokio::sync::oneshot::channel::<()>();
    let job = spawn_under(&lock.with_lease(50 * MS), |_| {
        Box::pin(async move {
            let _dropped = dropped;
            std::future::pending::<()>().await;
        })
    });
    let answer = soon("it ends", job).await.expect("no panic");
    assert!(answer.as_ref().is_err_and(Error::is_lost), "{answer:?}");
    seen.await.expect_err("the body was dropped");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_on_a_thread_keeps_its_result_after_a_loss() {
    let (server, [other]) = setup().await;
    let url = server.url();
    let (held, is_held) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let client = blocking::Client::connect(&url).expect("connected");
        client.mutex("n").run_with_outcome(|guard| {
            held.send(()).expect("the test waits");
            goes_on.recv_timeout(LIMIT).expect("the test goes on");
            guard.token()
        })
    });
    tokio::task::block_in_place(|| is_held.recv_timeout(LIMIT)).expect("it is held");
    assert!(other.mutex("n").force_unlock().await.expect("an answer"));
    go_on.send(()).expect("the thread waits");
    let outcome = thread.join().expect("no panic").expect("it ran to its end");
    assert!(is_gone(&outcome) && outcome.output > 0, "{outcome:?}");
    assert!(outcome.into_result().is_err_and(|error| error.is_lost()));
}

#[tokio::test]
async fn names_come_as_any_text_and_errors_say_how_to_react() {
    let (server, [client]) = setup().await;
    let owned = String::from("n");
    let shared: Arc<str> = "n".into();
    let names = [
        client.mutex(&owned).name().to_owned(),
        client.mutex(&shared).name().to_owned(),
        client.mutex(shared).name().to_owned(),
        client.mutex(owned).name().to_owned(),
    ];
    assert!(names.iter().all(|name| name == "n"), "{names:?}");

    let guard = client.mutex("n").lock().await.expect("free");
    let timeout = client.mutex("n").lock_with_timeout(10 * MS).await.expect_err("it is held");
    assert!(timeout.is_timeout() && timeout.is_retryable() && !timeout.is_lost());
    assert_eq!(timeout.holder(), Some(&guard.holder()));
    // What a test of a program makes itself is as good as what a server said.
    let holder = Holder::named(guard.holder().as_str());
    assert_eq!((&holder, holder.client()), (&guard.holder(), Some(client.name())));
    let stranger = Holder::named("somebody:else");
    assert!(!client.mutex("n").force_unlock_if(&stranger).await.expect("an answer"));
    assert!(client.mutex("n").force_unlock_if(&holder).await.expect("an answer"));
    let lost = guard.unlock().await.expect_err("it was taken away");
    assert!(lost.is_lost() && !lost.is_retryable() && lost.holder().is_none());
    let denied = client.mutex("").lock().await.expect_err("no name");
    assert!(!denied.is_retryable() && !denied.is_timeout(), "{denied:?}");
    server.kill();
    let away = client.mutex("n").lock_with_timeout(300 * MS).await.expect_err("nobody answers");
    assert!(away.is_retryable() && !away.is_timeout(), "{away:?}");
}
