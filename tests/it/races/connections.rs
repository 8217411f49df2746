//! Requests that outlive their connection, and connections that break half-way.

use std::time::{Duration, Instant};

use leasehold::Error;

use super::{MS, builder, connect_through, know_scripts};
use crate::{
    checks::{LIMIT, exists, nothing_left, setup_with_proxy},
    support::{LateNetwork, Server, Spy, eventually},
};

/// Answers later than a third of a short lease are too late for that lease, and for nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_too_short_for_the_network_breaks_no_connection() {
    let (server, proxy) = setup_with_proxy().await;
    let client = connect_through(&proxy).await;
    proxy.delay_replies(20 * MS);
    let before = client.stats().connections_made;
    let short = tokio::spawn({
        let lock = client.mutex("short").with_lease(30 * MS);
        async move {
            let mut unanswered = 0;
            for _ in 0..30 {
                unanswered += usize::from(lock.try_lock().await.is_err());
            }
            unanswered
        }
    });
    while !short.is_finished() {
        client.mutex("long").lock().await.expect("free").unlock().await.expect("held");
    }
    assert!(short.await.expect("no panic") > 20, "its answers are late");
    assert_eq!(client.stats().connections_made, before);
    nothing_left(&server, &client).await;
}

/// What the first connection sent is still in the network. The second breaks when it is about to kill the
/// first; the third must do so, or repeat the release: else the acquire runs behind it, and nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_late_in_the_network_is_released_although_a_handshake_broke() {
    let server = Server::start().await;
    let network = LateNetwork::before(&server).await;
    let builder = builder(network.url()).response_timeout(300 * MS).ttl(Duration::from_secs(60));
    let client = builder.connect().await.expect("connected");
    // What a client asks about its server at first is answered: what is late from now on is a lock.
    know_scripts(&client).await;
    network.be_late();
    let error = client.mutex("n").try_lock().await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let broken = async || network.kills() >= 1;
    eventually(LIMIT, "a handshake breaks at the kill", broken).await;
    let settled = async || {
        let connections = network.connections();
        connections >= 3 && client.mutex("m").is_locked().await.is_ok()
    };
    eventually(LIMIT, "there is a new connection", settled).await;
    let deciding = Instant::now();
    while client.stats().releases_pending > 0 && deciding.elapsed() < 500 * MS {
        tokio::time::sleep(5 * MS).await;
    }
    network.deliver();
    let delivered = async || network.has_delivered();
    eventually(LIMIT, "what was late arrives, or is refused", delivered).await;
    nothing_left(&server, &client).await;
}

/// The runtime ends while an acquire is late in the network: no release of the supervisor's can follow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_late_in_the_network_does_not_run_behind_the_farewell() {
    let server = Server::start().await;
    let network = LateNetwork::before(&server).await;
    network.spare_all();
    let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let tasks = tasks.expect("a runtime");
    let builder = builder(network.url()).runtime(tasks.handle().clone());
    let client = builder.connect().await.expect("connected");
    know_scripts(&client).await;
    network.be_late();
    let mut attempt = Box::pin(client.mutex("n").try_lock());
    assert!(futures_util::poll!(&mut attempt).is_pending());
    let on_its_way = async || network.kept() > 0;
    eventually(LIMIT, "the acquire is in the network", on_its_way).await;
    tasks.shutdown_background();
    let ended = async || client.stats().tasks == 0;
    eventually(LIMIT, "the tasks are gone", ended).await;
    drop(attempt);
    let released = async || client.stats().releases_pending == 0;
    eventually(LIMIT, "it is released", released).await;
    network.deliver();
    let delivered = async || network.has_delivered();
    eventually(LIMIT, "what was late arrives, or is refused", delivered).await;
    assert!(!exists(&server, "n").await, "it ran behind its release");
}

/// Who may not kill its first connection releases again and again, for as long as that one may still run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_late_in_the_network_is_released_by_a_user_who_may_not_kill() {
    let server = Server::start().await;
    let rules = ["on", ">pw", "~*", "&*", "+@all", "-client"];
    server.command(&[&["ACL", "SETUSER", "u"], &rules[..]].concat()).await;
    let network = LateNetwork::before(&server).await;
    let builder = builder(network.url_as("u", "pw")).response_timeout(300 * MS);
    let client = builder.ttl(Duration::from_secs(60)).connect().await.expect("connected");
    know_scripts(&client).await;
    let spy = Spy::on(&server).await;
    network.be_late();
    let error = client.mutex("n").try_lock().await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let released = async || spy.count("lock_release") >= 1;
    eventually(LIMIT, "it is released on the next connection", released).await;
    network.deliver();
    let came = async || spy.count("lock_acquire") == 1;
    eventually(LIMIT, "the acquire comes after that", came).await;
    let gone = async || !exists(&server, "n").await;
    eventually(LIMIT, "it is released again", gone).await;
    let last = spy.runs().last().map(|run| run.script);
    assert_eq!(last, Some("lock_release"), "{:?}", spy.runs());
}

/// A server that was started anew counts its connections anew: the number of our last one is another's there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_connection_with_the_number_of_our_last_is_left_alone() {
    let (server, proxy) = setup_with_proxy().await;
    // More than it takes to see that a server has started.
    for _ in 0..100 {
        number(&mut server.raw().await).await.expect("a number");
    }
    let client = connect_through(&proxy).await;
    let ours = number(&mut server.raw().await).await.expect("a number");
    proxy.refuse(true);
    server.kill();
    server.restart().await;
    let mut strangers = vec![server.raw().await];
    let first = number(&mut strangers[0]).await.expect("a number");
    assert!(first < 100, "they have all our numbers: the first is {first}");
    while number(strangers.last_mut().expect("one")).await.expect("a number") < ours {
        strangers.push(server.raw().await);
    }
    proxy.refuse(false);
    let connected = async || client.mutex("n").is_locked().await.is_ok();
    eventually(LIMIT, "it is connected again", connected).await;
    for stranger in &mut strangers {
        assert!(number(stranger).await.is_ok(), "its connection was killed");
    }
}

async fn number(connection: &mut redis::aio::MultiplexedConnection) -> redis::RedisResult<u64> {
    redis::cmd("CLIENT").arg("ID").query_async(connection).await
}
