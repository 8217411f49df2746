//! The hold count at the server after whatever changes it.

use std::time::Duration;

use leasehold::{Client, Guard, NodeState, Owner};

use crate::{
    checks::{LIMIT, connect, nothing_left, setup, setup_with_proxy, soon},
    support::{Server, Spy, eventually},
};

const MS: Duration = Duration::from_millis(1);

/// Waits until everybody can see that the lock `n` is held that often.
async fn count_is(server: &Server, client: &Client, count: u32) {
    let seen = async || {
        let status = client.mutex("n").status().await.expect("an answer");
        let values = server.command(&["HVALS", "n"]).await;
        let values: Vec<u32> = redis::from_redis_value(values).expect("a count");
        values == [count] && status.hold_count == count
    };
    eventually(LIMIT, &format!("the count is {count}"), seen).await;
}

/// Several who wait for one owner get the lock at once, by a hand-off and by a release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_to_several_waiters_of_one_owner_is_counted_at_the_server() {
    let (server, [observer]) = setup().await;
    for window in [Duration::from_secs(1), Duration::ZERO] {
        let builder = Client::builder().nodes([server.url()]).handoff_window(window);
        let client = builder.connect().await.expect("connected");
        let (lock, me) = (client.mutex("n"), Owner::new());
        let first = lock.lock().await.expect("free");
        let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(lock.owned_by(&me).lock())).collect();
        eventually(LIMIT, "all wait", async || client.stats().waiters == 3).await;
        first.unlock().await.expect("held");
        let mut guards: Vec<Guard> = Vec::new();
        for waiting in waiting {
            let guard = soon("its turn comes", waiting).await;
            guards.push(guard.expect("no panic").expect("theirs"));
        }
        while let Some(guard) = guards.pop() {
            count_is(&server, &observer, guards.len() as u32 + 1).await;
            guard.unlock().await.expect("held");
        }
        nothing_left(&server, &client).await;
    }
}

/// The one who asks is an owner for whom others have come to wait meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_to_the_first_who_asked_counts_those_who_came_meanwhile() {
    let (server, proxy) = setup_with_proxy().await;
    let observer = connect(&server).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let lock = client.mutex("n").owned_by(&Owner::new());
    proxy.hold_replies();
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(lock.lock())).collect();
    eventually(LIMIT, "one asks, two wait", async || client.stats().waiters == 2).await;
    proxy.release_replies();
    let mut guards = Vec::new();
    for waiting in waiting {
        let guard = soon("its turn comes", waiting).await;
        guards.push(guard.expect("no panic").expect("theirs"));
    }
    count_is(&server, &observer, 3).await;
    drop(guards.pop());
    count_is(&server, &observer, 2).await;
    drop(guards);
    nothing_left(&server, &client).await;
}

/// An update of the count that did not arrive is made up for by the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_did_not_arrive_is_written_by_the_next_renewal() {
    let (server, proxy) = setup_with_proxy().await;
    let observer = connect(&server).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let lock = client.mutex("n").owned_by(&Owner::new()).with_ttl(6000 * MS);
    let first = lock.lock().await.expect("free");
    count_is(&server, &observer, 1).await;
    proxy.black_hole(true);
    let second = lock.lock().await.expect("re-entered, without asking anybody");
    // It ends the connection on which the update was sent.
    proxy.black_hole(false);
    count_is(&server, &observer, 2).await;
    drop(second);
    count_is(&server, &observer, 1).await;
    first.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Nothing renews a fixed lease: the next change of the count writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_count_that_did_not_arrive_the_next_one_does() {
    let (server, proxy) = setup_with_proxy().await;
    let observer = connect(&server).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let lock = client.mutex("n").owned_by(&Owner::new()).with_lease(Duration::from_secs(30));
    let first = lock.lock().await.expect("free");
    proxy.black_hole(true);
    let second = first.reenter().expect("held");
    proxy.black_hole(false);
    let again = async || client.mutex("n").is_locked().await.is_ok();
    eventually(LIMIT, "it is connected again", again).await;
    // The update of before has failed by now, or does so soon.
    let mut more = Vec::new();
    let written = async || {
        more.push(first.reenter().expect("held"));
        tokio::time::sleep(20 * MS).await;
        let expected = first.hold_count();
        observer.mutex("n").status().await.expect("an answer").hold_count == expected
    };
    eventually(LIMIT, "the count is written", written).await;
    drop((more, second));
    count_is(&server, &observer, 1).await;
    first.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// What an extension wrote is known, too: nobody renews a fixed lease, and the next change is made up for by nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_an_extension_wrote_is_taken_back_by_the_next_change() {
    let hour = Duration::from_secs(3600);
    let (server, proxy) = setup_with_proxy().await;
    let observer = connect(&server).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let first = client.mutex("n").with_lease(hour).lock().await.expect("free");
    let state_is = async |state: NodeState| {
        eventually(LIMIT, "the server", async || client.nodes()[0].state == state).await;
    };
    proxy.refuse(true);
    proxy.cut();
    state_is(NodeState::Down).await;
    // No update can be sent.
    let second = first.reenter().expect("held");
    proxy.refuse(false);
    state_is(NodeState::Up).await;
    first.extend(hour).await.expect("held");
    count_is(&server, &observer, 2).await;
    drop(second);
    count_is(&server, &observer, 1).await;
    first.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_often_the_count_changes_one_update_is_on_its_way() {
    let (server, proxy) = setup_with_proxy().await;
    let observer = connect(&server).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let first = client.mutex("n").with_ttl(60_000 * MS).lock().await.expect("free");
    // The scripts are known from here on.
    let second = first.reenter().expect("held");
    count_is(&server, &observer, 2).await;
    drop(second);
    count_is(&server, &observer, 1).await;
    client.check().await.expect("the answers are there");
    let spy = Spy::on(&server).await;
    proxy.hold_replies();
    let nested: Vec<Guard> = (0..5).map(|_| first.reenter().expect("held")).collect();
    eventually(LIMIT, "an update is sent", async || spy.count("lock_renew") > 0).await;
    proxy.release_replies();
    let written = async || spy.runs().last().is_some_and(|run| run.words[2] == "6");
    eventually(LIMIT, "the last count is written", written).await;
    assert_eq!(spy.count("lock_renew"), 2, "the first and the last: {:?}", spy.runs());
    count_is(&server, &observer, 6).await;
    drop(nested);
    first.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
