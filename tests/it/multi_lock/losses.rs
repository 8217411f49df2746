//! The loss of one lock is the loss of all.

use std::time::Duration;

use leasehold::{Client, Error, LossReason, MultiLock};

use super::{LIMIT, MS, are_held, taken, token};
use crate::checks::{nothing_left, setup, setup_with_proxy, soon};
use crate::support::{Server, eventually, waiting};

const TTL: Duration = Duration::from_millis(600);

async fn client_of(server: &Server) -> Client {
    Client::builder().nodes([server.url()]).ttl(TTL).connect().await.expect("connected")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_lost_fails_the_guard_and_the_others_go_with_it() {
    let (server, [other]) = setup().await;
    let client = client_of(&server).await;
    for gone in ["a", "b", "c"] {
        let guard = taken(&client.multi_lock(["a", "b", "c"])).await;
        let lost = guard.lost();
        assert!(other.mutex(gone).force_unlock().await.expect("an answer"));
        let error = soon("it is told", lost).await;
        let Error::Lost { lock, reason, .. } = &error else { panic!("{error:?}") };
        assert_eq!((&**lock, *reason), (gone, LossReason::Gone));
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let again = soon("it is known", guard.run_until_lost(std::future::pending::<()>())).await;
        assert!(matches!(&again, Err(Error::Lost { lock, .. }) if &**lock == gone), "{again:?}");
        // The others are kept for what has to be brought to an end.
        let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != gone).collect();
        are_held(&other, &others, true).await;
        let error = soon("all are released", guard.unlock()).await.expect_err("one was lost");
        assert!(matches!(&error, Error::Lost { lock, .. } if &**lock == gone), "{error:?}");
        are_held(&other, &["a", "b", "c"], false).await;
    }
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_cancelled_when_one_of_its_locks_is_lost() {
    let (server, [other]) = setup().await;
    let client = client_of(&server).await;
    let outcome = client.multi_lock(["a", "b"]).run(async |guard| {
        assert!(guard.is_held());
        assert!(other.mutex("b").force_unlock().await.expect("an answer"));
        std::future::pending::<()>().await;
    });
    let error = soon("it is cancelled", outcome).await.expect_err("it was lost");
    assert!(matches!(&error, Error::Lost { lock, .. } if &**lock == "b"), "{error:?}");
    are_held(&other, &["a", "b"], false).await;
    nothing_left(&server, &client).await;
}

/// What was kept while another lock was waited for may be gone when that comes: then it is taken again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_lost_while_another_is_waited_for_is_taken_again() {
    let (server, [other]) = setup().await;
    let client = client_of(&server).await;
    let held = other.mutex("c").lock().await.expect("free");
    let waits = tokio::spawn(client.multi_lock(["a", "b", "c"]).lock());
    let queued = async || waiting(&server, "c").await == 1;
    eventually(LIMIT, "it waits", queued).await;
    are_held(&other, &["a", "b"], true).await;
    assert!(other.mutex("a").force_unlock().await.expect("an answer"));
    let taken_away = soon("a is free", other.mutex("a").lock()).await.expect("free");
    eventually(LIMIT, "the loss is known", async || client.holds().len() == 1).await;
    held.unlock().await.expect("held");
    eventually(LIMIT, "a is waited for", async || waiting(&server, "a").await == 1).await;
    // It comes before the others, so they are free while it is waited for.
    are_held(&other, &["b", "c"], false).await;
    let before = taken_away.token();
    taken_away.unlock().await.expect("held");
    let guard = soon("all are taken", waits).await.expect("no panic").expect("free");
    assert!(guard.is_held() && token(&guard, "a") > before);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_lost_at_the_first_deadline_if_no_server_answers() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).ttl(TTL);
    let client = builder.connect().await.expect("connected");
    let guard = taken(&client.multi_lock(["a", "b"])).await;
    proxy.black_hole(true);
    let error = soon("it is told", guard.lost()).await;
    assert!(matches!(error, Error::Lost { reason: LossReason::NotRenewed, .. }), "{error:?}");
    assert!(!guard.is_held());
    proxy.black_hole(false);
    proxy.cut();
    assert!(guard.unlock().await.expect_err("it was lost").is_lost());
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_unlock_that_nobody_confirms_is_told_and_goes_on() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let guard = taken(&client.multi_lock(["a", "b"])).await;
    proxy.drop_replies(true);
    let error = soon("it ends", guard.unlock()).await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    proxy.drop_replies(false);
    proxy.cut();
    nothing_left(&server, &client).await;
    let lost = taken(&client.multi_lock(["a", "b"])).await.lost();
    // The guard is gone, and was not lost.
    assert!(tokio::time::timeout(20 * MS, lost).await.is_err());
}

/// A body that has run under locks that were held all the time is done, whatever becomes of their release. One under a lock that
/// was lost is not.
#[tokio::test]
async fn a_loss_is_told_although_another_server_does_not_answer() {
    let (here, [one, other]) = setup().await;
    let (there, proxy) = setup_with_proxy().await;
    let two = Client::connect(&proxy.url()).await.expect("connected");
    let fails = async || {
        assert!(other.mutex("a").force_unlock().await.expect("an answer"));
        proxy.drop_replies(true);
    };
    let (a, b) = (one.mutex("a"), two.mutex("b"));
    for order in [[a.clone(), b.clone()], [b, a]] {
        let locks = MultiLock::of(order);
        for runs in [false, true] {
            let ended = if runs {
                soon("it ends", locks.run(async |_| fails().await)).await
            } else {
                let guard = taken(&locks).await;
                fails().await;
                soon("it ends", guard.unlock()).await
            };
            let error = ended.expect_err("one was lost");
            assert!(matches!(&error, Error::Lost { lock, .. } if &**lock == "a"), "{error:?}");
            proxy.drop_replies(false);
            nothing_left(&there, &two).await;
        }
    }
    nothing_left(&here, &one).await;
}
