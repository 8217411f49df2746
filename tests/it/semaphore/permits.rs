//! Permits are leases: renewed, lost, ended, and given back by whoever crashes.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, LossReason};

use super::{HOLDERS, MS, all_are_back, api, are_waiting};
use crate::checks::{LIMIT, connect, setup, setup_with_proxy, soon};
use crate::support::{Server, eventually};

async fn with_ttl(url: &str, ttl: Duration) -> Client {
    Client::builder().nodes([url]).ttl(ttl).connect().await.expect("connected")
}

/// As by a `select!` that another branch has won.
#[tokio::test]
async fn permits_are_forgotten_by_the_call_though_its_future_is_never_polled() {
    let (server, [client]) = setup().await;
    let pool = api(&client, 3);
    drop(pool.acquire_many(2).await.expect("there are three").forget());
    all_are_back(&server, &client, 1).await;
}

#[tokio::test]
async fn there_are_as_many_permits_as_were_given() {
    let (server, [one, two]) = setup().await;
    let (here, there) = (api(&one, 3), api(&two, 3));
    let a = soon("a permit", here.acquire()).await.expect("there are three");
    let b = soon("two", there.acquire_many(2)).await.expect("there are two");
    assert_eq!((a.weight(), b.weight(), a.name()), (1, 2, "api"));
    assert!(a.is_held() && b.is_held() && a.remaining() > Duration::from_secs(20));
    assert!(here.try_acquire().await.expect("an answer").is_none());
    assert_eq!(here.available_permits().await.expect("an answer"), 0);
    let waited = there.acquire_with_timeout(300 * MS).await.expect_err("there is none");
    let Error::Timeout { holder: Some(holder), remaining, .. } = waited else {
        panic!("{waited:?}")
    };
    assert!(holder == a.holder() || holder == b.holder(), "{holder}");
    assert!(remaining.is_some());
    b.release().await.expect("held");
    assert!(here.try_acquire_many(3).await.expect("an answer").is_none());
    let both = here.try_acquire_many(2).await.expect("an answer").expect("two are back");
    drop((a, both));
    all_are_back(&server, &one, 3).await;
    all_are_back(&server, &two, 3).await;
}

/// A semaphore of no permits wakes one of those who wait: nobody holds any of them.
#[tokio::test]
async fn a_wait_in_vain_for_what_nobody_holds_names_no_holder() {
    let (server, [client]) = setup().await;
    for semaphore in [api(&client, 0), client.semaphore("unmade")] {
        for timeout in [Duration::ZERO, 300 * MS] {
            let waited = semaphore.acquire_with_timeout(timeout).await.expect_err("there is none");
            let Error::Timeout { holder: None, remaining: None, .. } = &waited else {
                panic!("{waited:?}")
            };
            let text = waited.to_string();
            assert!(
                text.ends_with("too few permits are free, and none is known to be held"),
                "{text}"
            );
        }
    }
    // As if a client of Redisson had two of them by an `RSemaphore`, which notes no holder.
    let semaphore = api(&client, 3);
    semaphore.set_permits(1).await.expect("an answer");
    let one = semaphore.acquire().await.expect("there is one");
    let waited = semaphore.acquire_with_timeout(300 * MS).await.expect_err("there is none");
    let Error::Timeout { holder: None, remaining: Some(_), .. } = &waited else {
        panic!("{waited:?}")
    };
    assert!(
        waited.to_string().contains("it is not known who has the others; one ends"),
        "{waited}"
    );
    one.release().await.expect("held");
    drop(server);
}

#[tokio::test]
async fn a_status_shows_holders_and_waiters() {
    let (server, [client]) = setup().await;
    let semaphore = api(&client, 3);
    let unmade = semaphore.status().await.expect("an answer");
    assert_eq!((unmade.available, unmade.held), (3, 0), "what it will be");
    let two = semaphore.acquire_many(2).await.expect("there are three");
    let waiting = tokio::spawn(semaphore.acquire_many(3));
    are_waiting(&semaphore, 1).await;
    let status = semaphore.status().await.expect("an answer");
    assert_eq!((status.available, status.held, status.permits()), (1, 2, 3));
    assert_eq!((status.waiting_clients, &*status.waiting[0].client), (1, client.name()));
    let [holder] = &status.holders[..] else { panic!("{status:?}") };
    assert_eq!((&holder.holder, holder.permits), (&two.holder(), 2));
    assert!(holder.remaining.is_some_and(|remaining| remaining <= Duration::from_secs(30)));
    let holds = client.holds();
    assert_eq!((holds.len(), &*holds[0].name, holds[0].token), (1, "api", None));
    two.release().await.expect("held");
    let all = soon("its turn", waiting).await.expect("no panic").expect("all are back");
    assert!(!client.drain(Duration::ZERO).await, "it is held");
    all.release().await.expect("held");
    assert!(client.drain(LIMIT).await);
    assert!(matches!(semaphore.acquire().await, Err(Error::Closed { .. })));
    drop(server);
}

#[tokio::test]
async fn the_watchdog_renews_permits_for_longer_than_their_ttl() {
    let server = Server::start().await;
    let client = with_ttl(&server.url(), 900 * MS).await;
    let permits = api(&client, 4).acquire_many(4).await.expect("there are four");
    let other = connect(&server).await;
    let until = Instant::now() + 2_000 * MS;
    while Instant::now() < until {
        assert!(api(&other, 4).try_acquire().await.expect("an answer").is_none());
        tokio::time::sleep(20 * MS).await;
    }
    assert!(permits.is_held());
    permits.release().await.expect("held");
    all_are_back(&server, &client, 4).await;
}

/// The waiter's timer is the first end, so nothing but the lease's own time passes.
#[tokio::test]
async fn the_permits_of_one_who_crashed_go_to_a_waiter_when_their_lease_ends() {
    const TTL: Duration = Duration::from_millis(700);
    let (server, proxy) = setup_with_proxy().await;
    let (crashes, lives) = (with_ttl(&proxy.url(), TTL).await, connect(&server).await);
    let lost = api(&crashes, 2).acquire_many(2).await.expect("there are two");
    let waiting = tokio::spawn(api(&lives, 2).acquire());
    are_waiting(&lives.semaphore("api"), 1).await;
    proxy.black_hole(true);
    let crashed_at = Instant::now();
    let permit = soon("its turn", waiting).await.expect("no panic").expect("they came back");
    let took = crashed_at.elapsed();
    assert!(took <= server.widened(TTL + 50 * MS), "{took:?}");
    assert!(!lost.is_held(), "its own deadline came before");
    assert_eq!(soon("the loss", lost.lost()).await, LossReason::NotRenewed);
    proxy.black_hole(false);
    let error = lost.release().await.expect_err("it was lost");
    assert!(error.is_lost(), "{error}");
    permit.release().await.expect("held");
    all_are_back(&server, &lives, 2).await;
}

#[tokio::test]
async fn a_permit_is_lost_when_somebody_takes_it_back() {
    let server = Server::start().await;
    let client = with_ttl(&server.url(), 900 * MS).await;
    let other = connect(&server).await;
    let semaphore = api(&client, 2);
    let forced = semaphore.acquire().await.expect("there are two");
    let body = semaphore.run(async |permit| {
        let holders = api(&other, 2).status().await.expect("an answer").holders;
        let holder = holders.iter().find(|holder| holder.holder == permit.holder());
        let holder = holder.expect("it is listed");
        assert!(other.semaphore("api").force_release(holder).await.expect("an answer"));
        assert!(!other.semaphore("api").force_release(holder).await.expect("an answer"));
        std::future::pending::<()>().await
    });
    let error = soon("the loss", body).await.expect_err("it is taken back");
    let Error::Lost { reason, .. } = error else { panic!("{error:?}") };
    assert_eq!(reason, LossReason::Gone);
    let holders = semaphore.status().await.expect("an answer").holders;
    assert!(semaphore.force_release(&holders[0]).await.expect("an answer"));
    assert!(!forced.is_held(), "a permit of this client is lost at once");
    drop(forced);
    all_are_back(&server, &client, 2).await;
}

/// It was listed by another semaphore than the one that is asked, by mistake.
#[tokio::test]
async fn a_holder_of_another_semaphore_keeps_its_permits() {
    let (server, [client]) = setup().await;
    let semaphore = api(&client, 2);
    let held = semaphore.acquire().await.expect("there are two");
    let holders = semaphore.status().await.expect("an answer").holders;
    let other = client.semaphore("other").with_permits(2);
    assert!(!other.force_release(&holders[0]).await.expect("an answer"));
    assert!(held.is_held(), "nobody has taken it back");
    held.release().await.expect("held");
    all_are_back(&server, &client, 2).await;
}

/// One of them was removed by hand. So the answer is that it had not all, and the rest is taken back all the same.
#[tokio::test]
async fn a_holder_of_this_client_learns_at_once_that_the_rest_of_its_permits_is_taken_back() {
    let (server, [client]) = setup().await;
    let semaphore = api(&client, 3);
    let held = semaphore.acquire_many(2).await.expect("there are three");
    let holders = semaphore.status().await.expect("an answer").holders;
    let second = format!("{}:2", held.holder().as_str());
    assert_eq!(server.command(&["ZREM", HOLDERS, &second]).await, redis::Value::Int(1));
    server.command(&["INCR", "api"]).await;
    assert!(!semaphore.force_release(&holders[0]).await.expect("an answer"));
    assert!(!held.is_held(), "it has none any more");
    drop(held);
    all_are_back(&server, &client, 3).await;
}

#[tokio::test]
async fn permits_on_a_server_that_lost_its_data_are_lost() {
    let server = Server::start().await;
    let client = with_ttl(&server.url(), 900 * MS).await;
    let permit = api(&client, 2).acquire().await.expect("there are two");
    server.command(&["FLUSHALL"]).await;
    assert_eq!(soon("the loss", permit.lost()).await, LossReason::Gone);
    let both = api(&client, 2).acquire_many(2).await.expect("it is made again");
    drop(permit);
    both.release().await.expect("held");
    all_are_back(&server, &client, 2).await;
}

#[tokio::test]
async fn a_fixed_lease_ends_and_may_be_extended_before() {
    let (server, [client]) = setup().await;
    let semaphore = api(&client, 1);
    let short = semaphore.with_lease(200 * MS).acquire().await.expect("there is one");
    let next = soon("the end", semaphore.acquire()).await.expect("it ended");
    assert!(!short.is_held());
    assert_eq!(soon("the loss", short.lost()).await, LossReason::Ended);
    assert!(short.extend(Duration::from_secs(1)).await.expect_err("it ended").is_lost());
    drop(short);
    next.release().await.expect("held");
    let extended = semaphore.with_lease(5_000 * MS).acquire().await.expect("there is one");
    extended.extend(Duration::from_secs(20)).await.expect("held");
    assert!(extended.remaining() > Duration::from_secs(15));
    extended.release().await.expect("held");
    let limited = semaphore.with_ttl(900 * MS).with_max_hold(1_500 * MS).acquire().await;
    let limited = limited.expect("there is one");
    assert_eq!(soon("the loss", limited.lost()).await, LossReason::Ended);
    drop(limited);
    all_are_back(&server, &client, 1).await;
}

#[tokio::test]
async fn a_forgotten_permit_never_comes_back_and_one_that_was_not_forgotten_does() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let work = client.semaphore("api");
    let worker = tokio::spawn({
        let work = work.clone();
        async move {
            let first = work.acquire().await.expect("some work");
            first.forget().await.expect("held");
            // It ends before it is done with the second one.
            drop(work.acquire().await.expect("more work"));
        }
    });
    are_waiting(&work, 1).await;
    work.add_permits(2).await.expect("an answer");
    soon("the worker", worker).await.expect("no panic");
    all_are_back(&server, &client, 1).await;
    assert_eq!(work.status().await.expect("an answer").permits(), 1);
}

/// The worker kept its thread for longer than its lease. So nothing has noticed the loss when it forgets the permit, and the
/// server has taken back nothing yet.
#[tokio::test]
async fn a_permit_that_was_lost_unnoticed_is_not_forgotten() {
    let (server, [client]) = setup().await;
    let work = client.semaphore("api");
    work.set_permits(1).await.expect("an answer");
    let permit = work.with_lease(200 * MS).acquire().await.expect("some work");
    std::thread::sleep(300 * MS);
    assert!(permit.forget().await.expect_err("it was lost").is_lost());
    all_are_back(&server, &client, 1).await;
}

/// It was decided in time, and not sent: who is told of the loss has forgotten nothing.
#[tokio::test]
async fn a_permit_that_is_lost_before_forget_is_sent_is_not_forgotten() {
    let (server, [client, other]) = setup().await;
    let work = client.semaphore("api");
    work.set_permits(2).await.expect("an answer");
    let forgetting = work.with_lease(200 * MS).acquire().await.expect("some work").forget();
    std::thread::sleep(300 * MS);
    assert!(forgetting.await.expect_err("it was lost").is_lost());
    let forgetting = work.acquire().await.expect("some work").forget();
    client.shutdown().await;
    assert!(forgetting.await.expect_err("it was lost").is_lost());
    all_are_back(&server, &other, 2).await;
}

#[tokio::test]
async fn a_shutdown_gives_everything_back_and_ends_the_waits() {
    let (server, [client, other]) = setup().await;
    let held = api(&client, 1).acquire().await.expect("there is one");
    let waiting = tokio::spawn(api(&client, 1).acquire());
    are_waiting(&other.semaphore("api"), 1).await;
    soon("the shutdown", client.shutdown()).await;
    assert!(matches!(waiting.await.expect("no panic"), Err(Error::Closed { .. })));
    assert!(!held.is_held());
    assert_eq!(soon("the loss", held.lost()).await, LossReason::Shutdown);
    all_are_back(&server, &other, 1).await;
}

/// An answer that is lost says nothing: the permits that it granted come back.
#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_given_back() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let other = connect(&server).await;
    // The server knows the scripts from here on.
    api(&client, 2).acquire().await.expect("there are two").release().await.expect("held");
    proxy.hold_replies();
    let attempt = api(&client, 2).try_acquire_many(2);
    let cut = async {
        eventually(LIMIT, "it is granted", async || {
            other.semaphore("api").available_permits().await.expect("an answer") == 0
        })
        .await;
        proxy.cut();
        proxy.release_replies();
    };
    let (attempted, ()) = tokio::join!(attempt, cut);
    let error = attempted.expect_err("no answer comes");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    eventually(LIMIT, "it was granted and given back", async || {
        let status = other.semaphore("api").status().await.expect("an answer");
        status.available == 2
    })
    .await;
    let exists = server.command(&["EXISTS", HOLDERS]).await;
    assert_eq!(exists, redis::Value::Int(0));
}
