//! Addresses that lead nowhere, or to what keeps no locks: the message says what was met, and what to write instead.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, FindingKind};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    checks::{AT_ONCE, LIMIT, connect, nothing_left, told},
    support::{Server, Twister, eventually},
};

/// What a client that is patient for a short time says of an address, and how long it took.
async fn refused(url: &str) -> (Error, Duration) {
    let builder = Client::builder().nodes([url]).connect_timeout(Duration::from_secs(2));
    let started_at = Instant::now();
    let error = builder.connect().await.expect_err(url);
    (error, started_at.elapsed())
}

/// The address is refused at once, and in these words.
async fn refused_at_once(url: &str, words: &[&str]) {
    let (error, took) = refused(url).await;
    for word in words {
        assert!(error.to_string().contains(word), "{url}: no {word:?} in {error}");
    }
    assert!(took < AT_ONCE, "{url}: {took:?}");
}

#[tokio::test]
async fn an_address_that_is_no_url_of_redis_is_corrected() {
    for (url, words) in [
        ("localhost:6379", ["no scheme", "redis://localhost:6379"]),
        ("localhost", ["no scheme", "redis://localhost:6379"]),
        ("user:zqzq@localhost:6379", ["no scheme", "redis://localhost:6379"]),
        ("http://localhost:6379", ["scheme is none of", "redis://localhost:6379"]),
        (
            "redis-sentinel://localhost:26379/mymaster",
            ["ClientBuilder::sentinel", "redis://host:26379"],
        ),
        ("redis-cluster://localhost:7000", ["ClientBuilder::cluster", "redis://host:6379"]),
        ("redis://::1:6379", ["brackets", "redis://[::1]:6379"]),
        ("redis://:zqzq@fe80::1", ["brackets", "redis://[::1]:6379"]),
        ("redis://0.0.0.0:6379", ["where a server listens", "redis://localhost:6379"]),
        ("redis://localhost/one", ["the number of a database", "redis://localhost:6379/2"]),
        ("redis://user:zq/zq@localhost", ["cannot be parsed", "%2F"]),
        ("redis://user:z@zq/zq@localhost", ["cannot be parsed", "%40"]),
        ("redis://a:1,b:2", ["several hosts", "ClientBuilder::nodes"]),
        ("redis://localhost?timeout=5", ["`timeout` is not supported", "ClientBuilder"]),
        (
            "unix:///a?pass=zqzq&protocol=resp3",
            ["what follows `pass=` and an `&`", "write `&` as %26"],
        ),
        ("redis://localhost#zq", ["after the `#` is not supported", "%23"]),
        ("redis+cluster://a,b?timeout=5", ["`timeout` is not supported", "ClientBuilder"]),
        ("redis://", ["names no host", "redis://localhost:6379"]),
    ] {
        let (error, _) = refused(url).await;
        assert!(matches!(error, Error::InvalidConfig { .. }), "{url}: {error:?}");
        refused_at_once(url, &words).await;
        assert!(!told(&error).contains("zq"), "{error}");
    }
}

#[tokio::test]
async fn an_ipv6_address_is_shown_with_its_brackets() {
    let builder = Client::builder().nodes(["redis://[::1]:1"]);
    let error = builder.connect_timeout(Duration::from_millis(50)).connect().await;
    let error = error.expect_err("nobody is there").to_string();
    assert!(error.contains("redis://[::1]:1:"), "{error}");
}

#[tokio::test]
async fn a_replica_is_refused_and_its_master_named() {
    let master = Server::start().await;
    let of = ["--replicaof", &format!("127.0.0.1 {}", master.port())];
    let replica = Server::with(&of).await;
    let name = format!("127.0.0.1:{}", master.port());
    refused_at_once(&replica.url(), &["it is a replica of", &name, "master instead"]).await;
    let others = [Server::start().await, Server::start().await];
    let urls = [replica.url(), others[0].url(), others[1].url()];
    let builder = Client::builder().nodes(urls).restart_quarantine(Duration::ZERO);
    let client = builder.connect().await.expect("two are a majority");
    eventually(LIMIT, "its status says why it is not used", async || {
        let why = client.nodes()[0].last_error.clone().unwrap_or_default();
        why.contains("replica of") && why.contains(&name)
    })
    .await;
}

#[tokio::test]
async fn a_sentinel_is_refused_and_named() {
    let master = Server::start().await;
    let lines = format!("sentinel monitor mymaster 127.0.0.1 {} 1\n", master.port());
    let sentinel = Server::sentinel(&lines).await;
    refused_at_once(&sentinel.url(), &["Sentinel", "ClientBuilder::sentinel"]).await;
}

#[tokio::test]
async fn a_server_that_runs_no_scripts_is_refused_though_it_says_nothing_of_itself() {
    let server = Server::start().await;
    let twister = Twister::start(server.port(), |words| match &*words[0] {
        "INFO" | "EVALSHA" | "EVAL" => Some(format!("ERR unknown command '{}'", words[0])),
        _ => None,
    })
    .await;
    refused_at_once(&twister.url(), &["runs no scripts", "Sentinel", "EVALSHA"]).await;
}

async fn cluster_node(slots: [&str; 2]) -> Server {
    let server = Server::with(&["--cluster-enabled", "yes"]).await;
    server.command(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]).await;
    server
}

async fn cluster_is(server: &Server, words: [&str; 2]) {
    eventually(LIMIT, words[1], async || {
        let info = server.command(&["CLUSTER", "INFO"]).await;
        let info: String = redis::from_redis_value(info).expect("a text");
        words.iter().all(|word| info.contains(word))
    })
    .await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused_and_named() {
    let one = cluster_node(["0", "8191"]).await;
    let two = cluster_node(["8192", "16383"]).await;
    one.command(&["CLUSTER", "MEET", "127.0.0.1", &two.port().to_string()]).await;
    cluster_is(&one, ["cluster_state:ok", "cluster_size:2"]).await;
    refused_at_once(&one.url(), &["Redis Cluster with 2 shards", "in no cluster"]).await;
}

/// All locks are on the one node: it works as a server of its own does, as long as it stays the only one.
#[tokio::test]
async fn a_cluster_of_one_shard_is_used_and_found_by_a_check() {
    let server = cluster_node(["0", "16383"]).await;
    cluster_is(&server, ["cluster_state:ok", "cluster_size:1"]).await;
    let client = connect(&server).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    let findings = client.check().await.expect("an answer");
    let found = findings.iter().find(|finding| finding.kind == FindingKind::OneShard);
    assert!(found.expect("it is found").to_string().contains("one shard"), "{findings:?}");
    nothing_left(&server, &client).await;
    // What a node says of a lock that is another's.
    let twister = Twister::start(server.port(), |words| {
        let ours = words.iter().any(|word| word == "theirs");
        ours.then(|| "MOVED 1234 127.0.0.1:7001".to_owned())
    })
    .await;
    let client = Client::connect(&twister.url()).await.expect("one shard");
    let error = client.mutex("theirs").try_lock().await.expect_err("it is elsewhere").to_string();
    assert!(
        error.contains("node of a Redis Cluster") && error.contains("another one keeps this lock"),
        "{error}"
    );
}

/// Answers with `greeting` whatever it is sent, and hangs up.
async fn stranger(greeting: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut buffer = [0; 1024];
            let _ = client.read(&mut buffer).await;
            let _ = client.write_all(greeting.as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn what_is_not_redis_at_all_is_refused() {
    for greeting in [
        "HTTP/1.1 400 Bad Request\r\n\r\n<html>",
        "SSH-2.0-OpenSSH_9.2p1\r\n",
        "220 mail ready\r\n",
    ] {
        let port = stranger(greeting).await;
        let words = ["does not speak the Redis protocol", "rediss://"];
        refused_at_once(&format!("redis://127.0.0.1:{port}"), &words).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_at_once_may_be_one_for_tls() {
    let port = stranger("").await;
    let (error, _) = refused(&format!("redis://127.0.0.1:{port}")).await;
    assert!(error.to_string().contains("if that port is for TLS, write `rediss://`"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_plain_port_is_told_from_one_for_tls() {
    let server = Server::start().await;
    let url = server.url().replace("redis://", "rediss://");
    // A server that waits for the end of the line that TLS seems to begin says nothing; others close.
    let (error, _) = refused(&url).await;
    assert!(error.to_string().contains("write `redis://`"), "{error}");
    let port = stranger("-ERR Protocol error: invalid bulk length\r\n").await;
    refused_at_once(&format!("rediss://127.0.0.1:{port}"), &["does not speak TLS", "`redis://`"])
        .await;
}
