//! Which Sentinel is believed, and how soon. The Sentinels of these tests say what they are told to, and the servers are
//! masters that do not replicate, so it shows which of them a client uses.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

use leasehold::{Client, ClientBuilder, Error, Guard, LossReason, NodeState};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    checks::{LIMIT, exists, no_connection_left, soon},
    support::{MASTER, Pretender, Proxy, Server, eventually, free_port},
};

const TTL: Duration = Duration::from_secs(10);

async fn servers() -> [Server; 2] {
    let (old, new) = tokio::join!(Server::start(), Server::start());
    [old, new]
}

fn builder<'a>(sentinels: impl IntoIterator<Item = &'a Pretender>) -> ClientBuilder {
    let urls = sentinels.into_iter().map(Pretender::url);
    Client::builder().sentinel(MASTER, urls).ttl(TTL).restart_quarantine(Duration::ZERO)
}

async fn hold(client: &Client, name: &str) -> Guard {
    soon("the lock", client.mutex(name).lock()).await.expect("free")
}

async fn goes_to(client: &Client, server: &Server) {
    eventually(LIMIT, "the client is at the other server", async || {
        *client.nodes()[0].address == *server.url() && client.is_ready()
    })
    .await;
}

#[tokio::test]
async fn the_first_report_is_followed_although_the_old_master_still_answers() {
    let [old, new] = servers().await;
    let sentinel = Pretender::start(old.port(), Some(3)).await;
    let client = builder([&sentinel]).connect().await.expect("connected");
    let guard = hold(&client, "n").await;
    // Somebody waits, so that there is a subscription.
    let waiting = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it listens", async || sentinel.subscriptions() > 0).await;
    sentinel.reports(old.port(), new.port());
    let reported_at = Instant::now();
    let lost = soon("the holder is told", guard.lost()).await;
    let took = reported_at.elapsed();
    assert_eq!(lost, LossReason::Failover);
    // A renewal would have told after a third of the TTL.
    assert!(took < old.widened(Duration::from_millis(500)), "{took:?}");
    let next = soon("the next one", waiting).await.expect("no panic").expect("free there");
    assert!(exists(&new, "n").await && next.is_held());
    // Commands and messages come from the new one alone.
    no_connection_left(&old).await;
    assert_eq!(*client.nodes()[0].address, *new.url());
}

/// The user's function is asked again at the next answer of a Sentinel, and then the client follows.
#[tokio::test]
async fn a_panic_of_the_function_that_translates_addresses_only_delays_a_failover() {
    let [old, new] = servers().await;
    for epoch in [Some(3), None] {
        let sentinel = Pretender::start(old.port(), epoch).await;
        let (to, panicked) = (new.port(), AtomicBool::new(false));
        let map = move |host: &str, port: u16| {
            assert!(port != to || panicked.swap(true, SeqCst), "as a user's code may do");
            (host.to_owned(), port)
        };
        let client = builder([&sentinel]).address_map(map).connect().await.expect("connected");
        hold(&client, "n").await.unlock().await.expect("held");
        sentinel.reports(old.port(), new.port());
        goes_to(&client, &new).await;
        hold(&client, "n").await.unlock().await.expect("held");
    }
}

#[tokio::test]
async fn a_switch_is_seen_within_a_second_without_a_report_and_without_epochs() {
    let [old, new] = servers().await;
    let sentinel = Pretender::start(old.port(), None).await;
    let client = builder([&sentinel]).connect().await.expect("connected");
    hold(&client, "n").await.unlock().await.expect("held");
    sentinel.says(new.port(), None);
    let began_at = Instant::now();
    goes_to(&client, &new).await;
    let took = began_at.elapsed();
    assert!(took < old.widened(Duration::from_millis(1500)), "{took:?}");
}

#[tokio::test]
async fn sentinels_that_are_dead_hang_or_are_behind_neither_delay_nor_mislead() {
    let [old, new] = servers().await;
    let dead = format!("redis://127.0.0.1:{}", free_port());
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mute = format!("redis://{}", mute.local_addr().expect("it is bound"));
    for epochs in [[Some(3), Some(4)], [None, None]] {
        let liar = Pretender::start(old.port(), epochs[0]).await;
        let right = Pretender::start(old.port(), epochs[0]).await;
        let urls = [dead.clone(), mute.clone(), liar.url(), right.url()];
        let began_at = Instant::now();
        let builder = Client::builder().sentinel(MASTER, urls).restart_quarantine(Duration::ZERO);
        let client = builder.connect().await.expect("two answer");
        let took = began_at.elapsed();
        assert!(took < old.widened(Duration::from_secs(1)), "{took:?}");
        assert_eq!(*client.nodes()[0].address, *old.url());

        right.says(new.port(), epochs[1]);
        let began_at = Instant::now();
        goes_to(&client, &new).await;
        let took = began_at.elapsed();
        assert!(took < old.widened(Duration::from_millis(1500)), "{took:?}");
        let asked = liar.questions();
        eventually(LIMIT, "the other lies twice", async || liar.questions() > asked + 1).await;
        assert_eq!(*client.nodes()[0].address, *new.url());
        hold(&client, "n").await.unlock().await.expect("held");
    }
}

#[tokio::test]
async fn a_new_client_believes_the_highest_epoch_or_most_voices() {
    let [old, new] = servers().await;
    let liar = Pretender::start(old.port(), Some(3)).await;
    let right = Pretender::start(new.port(), Some(4)).await;
    let client = builder([&liar, &right]).connect().await.expect("connected");
    goes_to(&client, &new).await;
    liar.says(old.port(), None);
    right.says(new.port(), None);
    let another = Pretender::start(new.port(), None).await;
    let client = builder([&liar, &right, &another]).connect().await.expect("connected");
    goes_to(&client, &new).await;
}

#[tokio::test]
async fn a_server_that_calls_itself_a_replica_is_not_used() {
    let master = Server::start().await;
    let of = ["--replicaof", "127.0.0.1", &master.port().to_string()];
    let replica = Server::with(&of).await;
    let sentinel = Pretender::start(replica.port(), Some(3)).await;
    let limited = builder([&sentinel]).connect_timeout(Duration::from_millis(300));
    let error = limited.connect().await.expect_err("a replica").to_string();
    assert!(error.contains("replica") && error.contains("Sentinels name it"), "{error}");
    let right = Pretender::start(master.port(), None).await;
    sentinel.says(replica.port(), None);
    let client = builder([&sentinel, &right]).connect().await.expect("the other is right");
    assert_eq!(*client.nodes()[0].address, *master.url());
}

#[tokio::test]
async fn locks_go_on_while_no_sentinel_answers() {
    let [old, new] = servers().await;
    let sentinel = Pretender::start(old.port(), Some(3)).await;
    let client = builder([&sentinel]).ttl(Duration::from_millis(600)).connect().await;
    let client = client.expect("connected");
    let guard = hold(&client, "held").await;
    drop(sentinel);
    // Longer than a lease: it is renewed.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guard.is_held());
    hold(&client, "n").await.unlock().await.expect("held");
    // The same server again after a broken connection.
    old.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    hold(&client, "n").await.unlock().await.expect("held");
    guard.unlock().await.expect("held");
    drop(new);
}

#[tokio::test]
async fn a_server_that_hangs_does_not_delay_the_way_to_the_new_one() {
    let [old, new] = servers().await;
    let sentinel = Pretender::start(old.port(), Some(3)).await;
    let client = builder([&sentinel]).connect_timeout(Duration::from_secs(60)).connect().await;
    let client = client.expect("connected");
    let guard = hold(&client, "held").await;
    old.pause();
    let asking = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "the connection is given up", async || !client.is_ready()).await;
    sentinel.reports(old.port(), new.port());
    let began_at = Instant::now();
    let next = soon("the lock", asking).await.expect("no panic");
    let took = began_at.elapsed();
    let next = next.unwrap_or_else(|error| panic!("{error} after {took:?}"));
    assert!(took < old.widened(Duration::from_secs(1)), "{took:?}");
    soon("the holder is told", guard.lost()).await;
    assert!(next.is_held());
    old.resume();
}

/// It was sent before the client went to the new one, which has the lock, too.
#[tokio::test]
async fn a_release_that_the_old_master_does_not_answer_is_not_waited_for_there_twice() {
    const RESPONSE: Duration = Duration::from_secs(3);
    let [old, new] = servers().await;
    let proxy = Proxy::start(old.port()).await;
    let sentinel = Pretender::start(proxy.port(), Some(3)).await;
    let builder = builder([&sentinel]).ttl(6 * RESPONSE).response_timeout(RESPONSE);
    let client = builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected");
    // The server knows the scripts from then on.
    hold(&client, "n").await.unlock().await.expect("held");
    let guard = hold(&client, "n").await;
    let field = guard.holder().as_str().to_owned();
    new.command(&["HSET", "n", &field, "1"]).await;
    new.command(&["PEXPIRE", "n", "60000"]).await;
    proxy.hold_replies();
    let began_at = Instant::now();
    let unlocking = tokio::spawn(guard.unlock());
    eventually(LIMIT, "it was sent", async || !exists(&old, "n").await).await;
    sentinel.reports(proxy.port(), new.port());
    goes_to(&client, &new).await;
    eventually(LIMIT, "it is free there, too", async || !exists(&new, "n").await).await;
    let took = began_at.elapsed();
    // Twice would be 6 s.
    assert!(took < new.widened_by(2, RESPONSE + RESPONSE / 2), "{took:?}");
    let _: Result<(), Error> = soon("the unlock", unlocking).await.expect("no panic");
    proxy.release_replies();
}

#[tokio::test]
async fn who_comes_back_to_a_server_kills_what_it_left_there() {
    let [one, two] = servers().await;
    let sentinel = Pretender::start(one.port(), Some(3)).await;
    let client = builder([&sentinel]).connect().await.expect("connected");
    hold(&client, "n").await.unlock().await.expect("held");
    eventually(LIMIT, "it listens", async || sentinel.subscriptions() > 0).await;
    for (from, to) in [(&one, &two), (&two, &one), (&one, &two)] {
        sentinel.reports(from.port(), to.port());
        goes_to(&client, to).await;
        hold(&client, "n").await.unlock().await.expect("held");
    }
    let stats = client.stats();
    assert_eq!(stats.releases_pending, 0, "{stats:?}");
}

/// The answers of the old master come once the client is at the new one.
async fn only_the_new_one_grants(
    client: &Client,
    new: &Server,
    proxy: &Proxy,
    asking: JoinHandle<Result<Guard, Error>>,
) {
    goes_to(client, new).await;
    proxy.release_replies();
    let guard = soon("the lock", asking).await.expect("no panic").expect("free on the new master");
    assert!(guard.is_held() && exists(new, "n").await);
    guard.unlock().await.expect("held");
}

/// The connection was given up for its silence before the Sentinel named the new master.
#[tokio::test]
async fn nor_does_one_on_a_connection_that_was_given_up_before() {
    const PATIENCE: Duration = Duration::from_secs(6);
    let [old, new] = servers().await;
    let proxy = Proxy::start(old.port()).await;
    let sentinel = Pretender::start(proxy.port(), Some(3)).await;
    let builder = builder([&sentinel]).response_timeout(PATIENCE);
    let client = builder.connect().await.expect("connected");
    hold(&client, "n").await.unlock().await.expect("held");
    eventually(LIMIT, "it listens", async || sentinel.subscriptions() > 0).await;
    proxy.hold_replies();
    let looking = tokio::spawn({
        let lock = client.mutex("other");
        async move { lock.is_locked().await }
    });
    tokio::time::sleep(PATIENCE / 2).await;
    let asking = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "the old master has granted it", async || exists(&old, "n").await).await;
    proxy.refuse(true);
    let is_down = async || client.nodes()[0].state != NodeState::Up;
    eventually(LIMIT, "the connection is given up", is_down).await;
    sentinel.reports(proxy.port(), new.port());
    only_the_new_one_grants(&client, &new, &proxy, asking).await;
    drop(soon("looking", looking).await.expect("no panic"));
}

#[tokio::test]
async fn a_grant_that_the_old_master_answers_later_does_not_count() {
    let [old, new] = servers().await;
    let proxy = Proxy::start(old.port()).await;
    let sentinel = Pretender::start(proxy.port(), Some(3)).await;
    let client = builder([&sentinel]).connect().await.expect("connected");
    hold(&client, "n").await.unlock().await.expect("held");
    eventually(LIMIT, "it listens", async || sentinel.subscriptions() > 0).await;
    proxy.hold_replies();
    let asking = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "the old master has granted it", async || exists(&old, "n").await).await;
    sentinel.reports(proxy.port(), new.port());
    only_the_new_one_grants(&client, &new, &proxy, asking).await;
}
