//! How long acquisitions of all kinds wait, and what they return when that is over.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard, Leadership, MultiGuard, Owner, Permit, ReadGuard};
use leasehold::{WriteGuard, blocking};
use tokio::task::JoinHandle;

use crate::checks::{nothing_left, setup, soon};

const MS: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_millis(60);
/// What a handle is given behind its wait leaves that as it was.
const TTL: Duration = Duration::from_secs(20);

type Answer = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// Longer than the wait.
async fn work() {
    tokio::time::sleep(WAIT * 2).await;
}

macro_rules! way {
    ($handle:ident, $answer:expr) => {{
        let $handle = $handle.clone();
        (stringify!($answer), Box::pin(async move { $answer }))
    }};
}

/// Each way of waiting that names no time, on a handle that does.
fn ways(client: &Client) -> Vec<(&'static str, Answer)> {
    let mutex = client.mutex("mutex").with_wait(WAIT);
    let fair = client.fair_mutex("mutex").with_wait(WAIT);
    let both = client.multi_lock(["one", "two"]).with_wait(WAIT).with_ttl(TTL).with_max_hold(TTL);
    let rw = client.rw_lock("rw").with_wait(WAIT).with_ttl(TTL).with_max_hold(TTL);
    let permits = client.semaphore("permits").with_wait(WAIT).with_permits(2).with_ttl(TTL);
    let election = client.election("election").with_wait(WAIT).with_ttl(TTL).with_max_hold(TTL);
    vec![
        way!(mutex, mutex.lock().await?.release().await),
        way!(mutex, mutex.run(async |_| work().await).await),
        way!(mutex, mutex.run_with_outcome(async |_| work().await).await?.released),
        way!(mutex, mutex.run_boxed(|_| Box::pin(work())).await),
        way!(fair, fair.lock().await?.release().await),
        way!(both, both.lock().await?.release().await),
        way!(both, both.run(async |_| work().await).await),
        way!(rw, rw.read().await?.release().await),
        way!(rw, rw.write().await?.release().await),
        way!(rw, rw.run_read(async |_| work().await).await),
        way!(rw, rw.run_write(async |_| work().await).await),
        way!(permits, permits.acquire().await?.release().await),
        way!(permits, permits.acquire_many(2).await?.release().await),
        way!(permits, permits.run(async |_| work().await).await),
        way!(election, election.campaign().await?.release().await),
        way!(election, election.run(async |_| work().await).await),
        way!(election, election.run_each_term(async |_| work().await).await),
    ]
}

#[tokio::test]
async fn a_handle_limits_the_wait_and_not_the_body() {
    let (server, [holder, client]) = setup().await;
    let held = (
        holder.mutex("mutex").lock().await.expect("free"),
        holder.mutex("one").lock().await.expect("free"),
        holder.rw_lock("rw").write().await.expect("free"),
        holder.semaphore("permits").with_permits(2).acquire_many(2).await.expect("free"),
        holder.election("election").campaign().await.expect("nobody leads"),
    );
    let began_at = Instant::now();
    let refused = futures_util::future::join_all(
        ways(&client).into_iter().map(async |(name, way)| (name, soon("the answer", way).await)),
    );
    for (name, answer) in refused.await {
        let error = answer.expect_err(name);
        assert!(matches!(error, Error::Timeout { .. }), "{name}: {error:?}");
        assert!(error.holder().is_some(), "{name}: it names the holder");
    }
    assert!(began_at.elapsed() >= WAIT);
    // The time that a call names is longer.
    let patient = client.mutex("mutex").with_wait(Duration::ZERO).lock_with_timeout(WAIT * 50);
    let patient = tokio::spawn(patient);
    tokio::time::sleep(WAIT).await;
    drop(held);
    soon("its turn", patient)
        .await
        .expect("no panic")
        .expect("free")
        .release()
        .await
        .expect("held");
    for (name, way) in ways(&client) {
        soon("the end of the body", way).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    drop(server);
}

#[test]
fn a_handle_of_threads_limits_the_wait_and_not_the_body() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(crate::support::Server::start());
    let connect = || blocking::Client::connect(&server.url()).expect("connected");
    let (holder, client) = (connect(), connect());
    let held = (
        holder.mutex("mutex").lock().expect("free"),
        holder.mutex("one").lock().expect("free"),
        holder.rw_lock("rw").write().expect("free"),
        holder.semaphore("permits").with_permits(2).acquire().expect("free"),
        holder.election("election").campaign().expect("nobody leads"),
    );
    let mutex = client.mutex("mutex").with_wait(WAIT);
    let both = client.multi_lock(["one", "two"]).with_wait(WAIT).with_ttl(TTL).with_max_hold(TTL);
    let rw = client.rw_lock("rw").with_wait(WAIT).with_ttl(TTL).with_max_hold(TTL);
    let permits = client.semaphore("permits").with_wait(WAIT).with_permits(2).with_ttl(TTL);
    let election = client.election("election").with_wait(WAIT).with_ttl(TTL).with_max_hold(TTL);
    let work = || std::thread::sleep(WAIT * 2);
    let run_all = || {
        [
            mutex.run(|_| work()),
            both.run(|_| work()),
            rw.run_read(|_| work()),
            rw.run_write(|_| work()),
            permits.acquire_many(2).map(drop),
            permits.acquire_many_with_timeout(2, WAIT).map(drop),
            election.run(|_| work()),
            election.run_each_term(|_| work()),
            election.run_with_outcome(|_| work()).map(drop),
            both.run_with_outcome(|_| work()).map(drop),
        ]
    };
    for (place, answer) in run_all().into_iter().enumerate() {
        let error = answer.expect_err("it is held");
        assert!(error.is_timeout(), "{place}: {error:?}");
    }
    let owner = Owner::new();
    let refused = [
        both.owned_by(&owner).lock().map(drop),
        rw.owned_by(&owner).read().map(drop),
        rw.owned_by(&owner).write().map(drop),
    ];
    for answer in refused {
        assert!(answer.as_ref().is_err_and(Error::is_timeout), "{answer:?}");
    }
    assert!(election.try_campaign().expect("an answer").is_none());
    assert!(election.try_campaign_for(300 * MS).expect("an answer").is_none());
    assert!(permits.try_acquire_many_for(2, 300 * MS).expect("an answer").is_none());
    assert!(rw.is_locked().expect("an answer"));
    assert_eq!(rw.holder().expect("an answer"), Some(held.2.holder()));
    assert!(rw.remaining_ttl().expect("an answer").is_some_and(|left| left > 10 * MS));
    drop(held);
    for (place, answer) in run_all().into_iter().enumerate() {
        answer.unwrap_or_else(|error| panic!("{place}: {error:?}"));
    }
    drop(election.try_campaign().expect("an answer").expect("nobody leads"));
    assert!(!rw.is_locked().expect("an answer"));
}

#[tokio::test]
async fn permits_and_terms_are_tried_for_some_time() {
    let (server, [holder, client]) = setup().await;
    let (theirs, ours) = (holder.semaphore("n").with_permits(3), client.semaphore("n"));
    let one = theirs.acquire().await.expect("free");
    let refused = ours.acquire_many_with_timeout(3, 300 * MS).await.expect_err("two are left");
    assert!(refused.is_timeout(), "{refused:?}");
    assert!(ours.try_acquire_many_for(3, 300 * MS).await.expect("an answer").is_none());
    assert_eq!(ours.acquire_many_with_timeout(2, 300 * MS).await.expect("free").weight(), 2);
    let waits = tokio::spawn(ours.try_acquire_many_for(3, Duration::from_secs(10)));
    one.release().await.expect("held");
    let all = soon("its turn", waits).await.expect("no panic").expect("an answer").expect("free");
    assert_eq!(all.weight(), 3);
    all.release().await.expect("held");
    let out_of_range = ours.try_acquire_many_for(0, MS).await.expect_err("no permits");
    assert!(matches!(out_of_range, Error::InvalidArgument { .. }), "{out_of_range:?}");

    let leads = holder.election("e").campaign().await.expect("nobody leads");
    let election = client.election("e").with_value("next");
    assert!(election.try_campaign().await.expect("an answer").is_none());
    assert!(election.try_campaign_for(300 * MS).await.expect("an answer").is_none());
    let waits = tokio::spawn(election.try_campaign_for(Duration::from_secs(10)));
    leads.release().await.expect("held");
    let next =
        soon("its turn", waits).await.expect("no panic").expect("an answer").expect("it leads");
    let known = election.leader().await.expect("an answer").expect("it leads");
    assert_eq!((known.term, &*known.value), (next.term(), "next"));
    next.release().await.expect("held");
    drop(election.try_campaign().await.expect("an answer").expect("nobody leads"));
    client.semaphore("n").set_permits(0).await.expect("an answer");
    drop(server);
}

#[tokio::test]
async fn a_read_write_lock_says_who_has_it_and_for_how_long() {
    let (server, [client, other]) = setup().await;
    let (lock, theirs) = (client.rw_lock("n"), other.rw_lock("n"));
    assert!(!lock.is_locked().await.expect("an answer"));
    assert_eq!(lock.holder().await.expect("an answer"), None);
    assert_eq!(lock.remaining_ttl().await.expect("an answer"), None);
    for reads in [true, false] {
        let (reader, writer) = match reads {
            true => (Some(theirs.read().await.expect("free")), None),
            false => (None, Some(theirs.write().await.expect("free"))),
        };
        let holder = reader.as_ref().map(ReadGuard::holder);
        let holder = holder.or(writer.as_ref().map(WriteGuard::holder)).expect("held");
        assert!(lock.is_locked().await.expect("an answer"));
        assert_eq!(lock.holder().await.expect("an answer"), Some(holder));
        let left = lock.remaining_ttl().await.expect("an answer").expect("it is held");
        assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(30), "{left:?}");
        drop((reader, writer));
        nothing_left(&server, &other).await;
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// It has to compile: tasks whose bodies are known by no more than this.
macro_rules! spawned {
    ($name:ident, $handle:ty, $run:ident, $guard:ty $(, $clone:ident)?) => {
        fn $name<T, F>(handle: &$handle, body: F) -> JoinHandle<Result<T, Error>>
        where
            T: Send + 'static,
            F: for<'a> FnOnce(&'a $guard) -> Boxed<'a, T> + Send + 'static $(+ $clone)?,
        {
            tokio::spawn(handle.$run(body))
        }
    };
}

spawned!(several, leasehold::MultiLock, run_boxed, MultiGuard);
spawned!(reading, leasehold::RwLock, run_read_boxed, ReadGuard);
spawned!(writing, leasehold::RwLock, run_write_boxed, WriteGuard);
spawned!(permitted, leasehold::Semaphore, run_boxed, Permit);
spawned!(leading, leasehold::Election, run_boxed, Leadership);
spawned!(each_term, leasehold::Election, run_each_term_boxed, Leadership, Clone);
spawned!(locked, leasehold::Mutex, run_boxed, Guard);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generic_code_spawns_a_body_of_each_kind() {
    let (server, [client]) = setup().await;
    let rw = client.rw_lock("rw");
    let inside = rw.clone();
    let jobs = [
        locked(&client.mutex("n"), |held| Box::pin(async move { held.is_held() })),
        several(&client.multi_lock(["a", "b"]), |held| Box::pin(async move { held.is_held() })),
        permitted(&client.semaphore("s").with_permits(1), |held| {
            Box::pin(async move { held.is_held() })
        }),
        leading(&client.election("e"), |held| Box::pin(async move { held.is_held() })),
        each_term(&client.election("e"), |held| Box::pin(async move { held.is_held() })),
        reading(&rw, |held| Box::pin(async move { held.is_held() })),
        // The same lock is entered again inside.
        writing(&rw, move |held| {
            Box::pin(async move {
                inside.write().await.is_ok_and(|inner| held.holder() == inner.holder())
            })
        }),
    ];
    for job in jobs {
        assert!(soon("its end", job).await.expect("no panic").expect("held"));
    }
    drop(server);
}

/// A body whose lock goes behind its back keeps its result, whatever it runs under.
#[tokio::test]
async fn a_body_of_each_kind_keeps_its_result_after_a_loss() {
    let (server, [client, other]) = setup().await;
    let take = async |name: &str| other.mutex(name).force_unlock().await.expect("an answer");
    let both = client.multi_lock(["a", "b"]);
    let outcomes = [
        both.run_with_outcome(async |_| take("b").await).await,
        client.election("e").run_with_outcome(async |_| take("e").await).await,
        client
            .rw_lock("rw")
            .run_read_with_outcome(async |_| {
                other.rw_lock("rw").force_unlock().await.expect("an answer")
            })
            .await,
        client
            .rw_lock("rw")
            .run_write_with_outcome(async |_| {
                other.rw_lock("rw").force_unlock().await.expect("an answer")
            })
            .await,
        client
            .semaphore("s")
            .with_permits(1)
            .run_with_outcome(async |_| {
                let semaphore = other.semaphore("s");
                let status = semaphore.status().await.expect("an answer");
                semaphore.force_release(&status.holders[0]).await.expect("an answer")
            })
            .await,
    ];
    for (place, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.expect("it ran to its end");
        assert!(outcome.output, "{place}");
        assert!(outcome.released.is_err_and(|error| error.is_lost()), "{place}");
    }
    let lost = client.election("e").run(async |_| take("e").await).await;
    assert!(lost.is_err_and(|error| error.is_lost()), "it does not begin again");
    drop(server);
}
