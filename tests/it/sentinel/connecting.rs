//! How a client finds the master, and what it says if it does not.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, blocking};

use crate::{
    checks::{LIMIT, exists, soon, told},
    support::{Connects, Deployment, MASTER, Pretender, Proxy, Server, eventually, free_port},
};

/// Why a client cannot connect, and how long it took to say so.
async fn refused(master: &str, urls: &[String]) -> (Error, Duration) {
    let builder = Client::builder().sentinel(master, urls).connect_timeout(Duration::from_secs(2));
    let began_at = Instant::now();
    let error = builder.connect().await.expect_err("it must not connect");
    (error, began_at.elapsed())
}

#[tokio::test]
async fn a_lock_is_taken_on_the_master_that_the_sentinels_name() {
    let deployment = Deployment::with(1, 1, &[]).await;
    let client = deployment.connect().await;
    let [node] = &client.nodes()[..] else { panic!("one node") };
    assert_eq!(
        (&*node.address, node.master.as_deref()),
        (&*deployment.master().url(), Some(MASTER))
    );
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    assert!(exists(deployment.master(), "n").await);
    guard.unlock().await.expect("held");
    let fair = client.fair_mutex("n");
    soon("the fair lock", fair.lock()).await.expect("free").unlock().await.expect("held");
    client.shutdown().await;
}

#[tokio::test]
async fn one_url_names_the_master_and_its_sentinels() {
    let server = Server::with(&["--requirepass", "secret"]).await;
    let sentinels =
        [Pretender::start(server.port(), None).await, Pretender::start(server.port(), None).await];
    let hosts = sentinels.each_ref().map(|one| one.url().replace("redis://", ""));
    let url = format!("redis+sentinel://:secret@{}/{MASTER}/2", hosts.join(","));
    let builder = Client::builder().nodes([url]).restart_quarantine(Duration::ZERO);
    let client = builder.connect().await.expect("connected");
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    assert_eq!(client.nodes()[0].master.as_deref(), Some(MASTER));
    for sentinel in &sentinels {
        eventually(LIMIT, "each is asked", async || sentinel.questions() > 0).await;
    }
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn a_client_for_threads_finds_the_master_too() {
    let server = Server::start().await;
    let sentinel = Pretender::start(server.port(), None).await;
    let url = sentinel.url();
    let used = tokio::task::spawn_blocking(move || {
        let builder = blocking::Client::builder().sentinel(MASTER, [url]);
        let builder = builder.restart_quarantine(Duration::ZERO);
        let client = builder.connect_blocking().expect("connected");
        client.mutex("n").lock().expect("free").unlock().expect("held");
        client.nodes().remove(0).address
    });
    assert_eq!(*soon("it is used", used).await.expect("no panic"), *server.url());
}

#[tokio::test]
async fn sentinels_and_servers_have_logins_and_a_database_of_their_own() {
    let server = Server::with(&["--requirepass", "of-the-servers"]).await;
    let auth = format!("sentinel auth-pass {MASTER} of-the-servers\n");
    let lines = format!("sentinel monitor {MASTER} 127.0.0.1 {} 1\n{auth}", server.port());
    let sentinel = Server::sentinel_with(&lines, &["--requirepass", "of-the-sentinels"]).await;
    let builder =
        |url: String| Client::builder().sentinel(MASTER, [url]).restart_quarantine(Duration::ZERO);
    let right = builder(sentinel.url()).server_login("default", "of-the-servers");
    let client = right.clone().server_database(3).connect().await.expect("both are right");
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    let keyspace = server.command(&["INFO", "keyspace"]).await;
    let keyspace: String = redis::from_redis_value(keyspace).expect("a text");
    assert!(keyspace.contains("db3:"), "{keyspace}");
    guard.unlock().await.expect("held");

    let no_sentinel_login = format!("redis://127.0.0.1:{}", sentinel.port());
    for (builder, at_the_sentinel) in [
        (builder(no_sentinel_login.clone()).server_login("default", "of-the-servers"), true),
        (builder(sentinel.url_as("default", "of-the-servers")), true),
        (builder(sentinel.url()), false),
        (builder(sentinel.url()).server_login("default", "of-the-sentinels"), false),
    ] {
        let error = builder.connect().await.expect_err("a login is wrong");
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        assert_eq!(error.to_string().contains("Sentinel"), at_the_sentinel, "{error}");
        assert!(!told(&error).contains("of-the"), "{error:?}");
    }
}

#[tokio::test]
async fn servers_are_reached_where_the_map_says() {
    let deployment = Deployment::with(1, 1, &[]).await;
    let [master, replica] = [&deployment.servers[0], &deployment.servers[1]];
    let proxies = [Proxy::start(master.port()).await, Proxy::start(replica.port()).await];
    let ports = [(master.port(), proxies[0].port()), (replica.port(), proxies[1].port())];
    let builder = deployment.builder().address_map(move |host, port| {
        assert_eq!(host, "127.0.0.1");
        let mapped = ports.iter().find(|(announced, _)| *announced == port);
        ("localhost".to_owned(), mapped.expect("a port of the deployment").1)
    });
    let client = builder.connect().await.expect("the proxy leads to the master");
    let behind = |proxy: &Proxy| format!("redis://localhost:{}", proxy.port());
    assert_eq!(*client.nodes()[0].address, behind(&proxies[0]));
    deployment.fail_over().await;
    eventually(LIMIT, "it is connected to the other", async || {
        *client.nodes()[0].address == behind(&proxies[1]) && client.is_ready()
    })
    .await;
    let _guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    assert!(exists(replica, "n").await);
}

#[tokio::test]
async fn what_cannot_be_is_refused_at_once() {
    let server = Server::start().await;
    let lines = format!("sentinel monitor {MASTER} 127.0.0.1 {} 1\n", server.port());
    let sentinel = Server::sentinel(&lines).await;
    for (master, url, words) in [
        ("other", sentinel.url(), ["watches no master called \"other\"", &sentinel.url()]),
        (MASTER, server.url(), ["not a Sentinel", &server.url()]),
    ] {
        let (error, took) = refused(master, &[url]).await;
        for word in words {
            assert!(error.to_string().contains(word), "no {word:?} in {error}");
        }
        assert!(took < server.widened(Duration::from_secs(1)), "{took:?}");
    }
    for builder in [
        Client::builder().sentinel("", [sentinel.url()]),
        Client::builder().sentinel(MASTER, [""; 0]),
        Client::builder().sentinel(MASTER, ["localhost:26379"]),
        Client::builder().sentinel(MASTER, [sentinel.url()]).nodes([server.url()]),
        Client::builder().nodes([server.url()]).server_login("u", "p"),
    ] {
        let error = builder.connect().await.expect_err("it cannot be");
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    }
}

/// The URLs are those of the Sentinels, so no hint may speak of them.
#[tokio::test]
async fn a_server_that_refuses_is_named_with_the_setting_that_helps() {
    let (locked, plain) = (Server::with(&["--requirepass", "secret"]).await, Server::start().await);
    let nobody = free_port();
    for (port, tls, words) in [
        (locked.port(), false, &["NOAUTH", "`server_login`"][..]),
        (nobody, false, &["refused", "the Sentinels announce", "`address_map`"]),
        #[cfg(feature = "tls")]
        (plain.port(), true, &["TLS", "`server_tls`"]),
    ] {
        let sentinel = Pretender::start(port, None).await;
        let builder = Client::builder().sentinel(MASTER, [sentinel.url()]).server_tls(tls);
        let connecting = builder.connect_timeout(Duration::from_secs(1)).connect();
        let error = soon("an answer", connecting).await.expect_err("it must not connect");
        let address = format!("127.0.0.1:{port}");
        for word in [&[&*address], words].concat() {
            assert!(error.to_string().contains(word), "no {word:?} in {error}");
        }
        assert!(!error.to_string().contains("URL"), "{error}");
        assert!(!error.to_string().contains("redis://`"), "{error}");
    }
    drop(plain);
}

#[tokio::test]
async fn without_an_answer_each_sentinel_is_named_with_its_reason() {
    let urls = [free_port(), free_port()].map(|port| format!("redis://127.0.0.1:{port}"));
    let builder = Client::builder().sentinel(MASTER, &urls);
    let builder = builder.connect_timeout(Duration::from_millis(300));
    let error = builder.connect().await.expect_err("there is none");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    for word in [MASTER, &*urls[0], &*urls[1], "no Sentinel says"] {
        assert!(error.to_string().contains(word), "no {word:?} in {error}");
    }
}

#[tokio::test]
async fn a_sentinel_that_is_still_starting_is_waited_for() {
    let server = Server::start().await;
    let lines = format!("sentinel monitor {MASTER} 127.0.0.1 {} 1\n", server.port());
    let sentinel = Server::sentinel(&lines).await;
    sentinel.kill();
    let connecting = {
        let builder = Client::builder().sentinel(MASTER, [sentinel.url()]);
        tokio::spawn(builder.restart_quarantine(Duration::ZERO).connect())
    };
    sentinel.restart().await;
    let client = soon("it connects", connecting).await.expect("no panic").expect("it is there");
    soon("the lock", client.mutex("n").lock()).await.expect("free").unlock().await.expect("held");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn sentinels_and_servers_have_tls_of_their_own() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
    let plain = Server::start().await;
    let [certificate, key] = ["crt", "key"].map(|name| plain.dir().join(name));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let [certificate, key] =
        [&certificate, &key].map(|path| path.to_str().expect("text").to_owned());
    let ports = [free_port().to_string(), free_port().to_string()];
    let args = |port| {
        let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
        [&["--tls-port", port, "--tls-auth-clients", "no"], &files[..]].concat()
    };
    let server = Server::with(&args(&ports[0])).await;
    let lines = format!("sentinel monitor {MASTER} 127.0.0.1 {} 1\n", server.port());
    let sentinel = Server::sentinel_with(&lines, &args(&ports[1])).await;
    // The Sentinel announces the port without TLS.
    let tls_port = ports[0].parse::<u16>().expect("a port");
    let over_tls = format!("rediss://127.0.0.1:{}", ports[1]);
    for (url, server_tls) in [(&over_tls, true), (&over_tls, false), (&sentinel.url(), true)] {
        let builder = Client::builder().sentinel(MASTER, [url]).root_certificates(made.cert.pem());
        let builder = builder.restart_quarantine(Duration::ZERO).server_tls(server_tls);
        let builder = builder.address_map(move |host, port| {
            (host.to_owned(), if server_tls { tls_port } else { port })
        });
        let client = builder.connect().await.expect("both are trusted");
        assert_eq!(client.nodes()[0].address.starts_with("rediss://"), server_tls);
        let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
        guard.unlock().await.expect("held");
    }
    let strange = Client::builder().sentinel(MASTER, [&over_tls]).server_tls(true);
    let strange = strange.connect_timeout(Duration::from_millis(500)).connect().await;
    let error = strange.expect_err("nobody trusts it").to_string();
    assert!(error.contains(&over_tls), "{error}");
}
