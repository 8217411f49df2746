//! Re-entry: each lock nests by its owner.

use leasehold::{Error, Owner};

use super::{are_held, taken, token};
use crate::checks::{nothing_left, setup, soon};

#[tokio::test]
async fn an_owner_that_holds_some_of_them_nests() {
    let (server, [client, other]) = setup().await;
    let me = client.owner();
    let outer = client.mutex("b").owned_by(&me).lock().await.expect("free");
    let locks = client.multi_lock(["a", "b"]).owned_by(&me);
    let both = taken(&locks).await;
    assert_eq!((token(&both, "b"), outer.hold_count()), (outer.token(), 2));
    let again = locks.try_lock().await.expect("an answer").expect("nested");
    assert_eq!(outer.hold_count(), 3);
    again.unlock().await.expect("held");
    both.unlock().await.expect("held");
    assert_eq!(outer.hold_count(), 1);
    assert!(outer.is_held());
    are_held(&other, &["a"], false).await;
    assert!(client.multi_lock(["a", "b"]).try_lock().await.expect("an answer").is_none());
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn each_of_them_nests_inside_the_body_of_run() {
    let (server, [client]) = setup().await;
    let locks = client.multi_lock(["a", "b"]);
    let nested = locks.run(async |guard| {
        let a = soon("a nests", client.mutex("a").lock()).await.expect("nested");
        let b =
            soon("b nests", client.mutex("b").try_lock()).await.expect("asked").expect("nested");
        assert_eq!((a.token(), b.token()), (token(guard, "a"), token(guard, "b")));
        let all = soon("both nest", client.multi_lock(["b", "a"]).lock()).await.expect("nested");
        assert_eq!((a.hold_count(), b.hold_count()), (3, 3));
        all.unlock().await.expect("held");
        client
            .mutex("c")
            .run(async |_| {
                // The body around it still counts.
                client.mutex("a").lock().await.expect("nested").hold_count()
            })
            .await
            .expect("held")
    });
    assert_eq!(soon("it ends", nested).await.expect("held"), 3);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_body_of_one_lock_nests_in_several() {
    let (server, [client]) = setup().await;
    let count = client.mutex("a").run(async |guard| {
        let both = soon("a nests", client.multi_lock(["a", "b"]).lock()).await.expect("nested");
        assert_eq!(token(&both, "a"), guard.token());
        guard.hold_count()
    });
    assert_eq!(count.await.expect("held"), 2);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_scope_owns_all_of_them() {
    let (server, [client]) = setup().await;
    let me = Owner::named("req-17");
    me.scope(async {
        let both = taken(&client.multi_lock(["a", "b"])).await;
        assert!(client.holds().iter().all(|hold| hold.owner == me));
        let nested = soon("it nests", client.mutex("b").lock()).await.expect("nested");
        assert_eq!(nested.token(), token(&both, "b"));
    })
    .await;
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn one_acquisition_is_one_owner() {
    let (_server, [client]) = setup().await;
    let guard = taken(&client.multi_lock(["a", "b", "c"])).await;
    let owners: Vec<Owner> = client.holds().into_iter().map(|hold| hold.owner).collect();
    assert!(owners.len() == 3 && owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
    let other = client.multi_lock(["c"]).try_lock().await.expect("an answer");
    assert!(other.is_none(), "another acquisition is another owner");
    guard.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outer_hold_that_was_lost_is_told() {
    let (server, [client, other]) = setup().await;
    let me = client.owner();
    let outer = client.mutex("a").with_ttl(super::MS * 300).owned_by(&me);
    let outer = outer.lock().await.expect("free");
    assert!(other.mutex("a").force_unlock().await.expect("an answer"));
    soon("it is told", outer.lost()).await;
    let error = client.multi_lock(["a", "b"]).owned_by(&me).lock().await.expect_err("it was lost");
    assert!(matches!(&error, Error::Lost { lock, .. } if &**lock == "a"), "{error:?}");
    drop(outer);
    nothing_left(&server, &client).await;
}
