//! What cannot be taken together is refused, and nothing is taken then.

use std::time::Duration;

use leasehold::{Error, MultiLock};

use super::{MS, names, taken};
use crate::checks::{client_is_idle, lock_keys, setup};
use crate::support::Spy;

#[tokio::test]
async fn no_locks_at_all_are_refused() {
    let (_server, [client]) = setup().await;
    for locks in [client.multi_lock([""; 0]), MultiLock::of([])] {
        for result in [locks.lock().await.map(Some), locks.try_lock().await] {
            let error = result.expect_err("there are none");
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
            assert!(error.to_string().contains("at least"), "{error}");
        }
        assert!(locks.status().await.expect("nothing to ask").is_empty());
    }
}

#[tokio::test]
async fn a_name_that_is_given_twice_counts_once() {
    let (server, [client]) = setup().await;
    taken(&client.multi_lock(["x"])).await.unlock().await.expect("held"); // the scripts are known
    let spy = Spy::on(&server).await;
    let guard = taken(&client.multi_lock(["b", "a", "b", "a", "b"])).await;
    assert_eq!(names(&guard), ["b", "a"]);
    assert!(client.holds().iter().all(|hold| hold.hold_count == 1));
    guard.unlock().await.expect("held");
    assert_eq!((spy.count("lock_acquire"), spy.count("lock_release")), (2, 2));
}

#[tokio::test]
async fn a_bad_name_or_term_is_refused_before_anything_is_asked() {
    let (server, [client, other]) = setup().await;
    let spy = Spy::on(&server).await;
    let too_long = "x".repeat(4097);
    for bad in ["", &too_long, "leasehold_queue:{n}"] {
        let error = client.multi_lock(["a", bad]).lock().await.expect_err("a bad name");
        assert!(matches!(error, Error::InvalidName { .. }), "{bad:.20}: {error:?}");
    }
    let fixed = MultiLock::of([client.mutex("a"), client.mutex("b").with_lease(900 * MS)]);
    let two_clients = MultiLock::of([client.mutex("a"), other.mutex("a")]);
    let short = client.multi_lock(["a", "b"]).with_ttl(MS);
    let no_time = client.multi_lock(["a", "b"]).with_max_hold(Duration::ZERO);
    for (locks, why) in [
        (fixed, "lock \"b\" has a fixed lease"),
        (two_clients, "lock \"a\" of two clients"),
        (short, "ttl"),
        (no_time, "max_hold"),
    ] {
        let error = locks.lock().await.expect_err("refused");
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(spy.count("lock_acquire"), 0);
    client_is_idle(&client).await;
}

#[tokio::test]
async fn a_key_of_another_type_is_told_and_the_others_stay_free() {
    let (server, [client]) = setup().await;
    server.command(&["SET", "b", "text"]).await;
    let locks = client.multi_lock(["a", "b", "c"]);
    for result in [locks.lock().await.map(Some), locks.try_lock().await] {
        let error = result.expect_err("not a lock");
        assert!(matches!(&error, Error::WrongType { lock, .. } if &**lock == "b"), "{error:?}");
    }
    client_is_idle(&client).await;
    assert_eq!(lock_keys(&server).await, ["b"]);
}
