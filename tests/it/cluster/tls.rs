//! A cluster whose servers speak TLS, also with each other.

use std::{net::TcpListener, sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold::{Client, ClientBuilder};

use super::is_idle;
use crate::{
    checks::{LIMIT, exists, soon},
    support::{Cluster, Server, eventually, free_port, slot_of},
};

const TTL: Duration = Duration::from_secs(2);

struct OverTls {
    cluster: Cluster,
    /// The certificate that all servers have, and trust.
    pem: String,
    /// Keeps the directory with the certificate.
    _keeper: Server,
}

impl OverTls {
    async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
        let keeper = Server::start().await;
        let file = |name: &str, text: String| {
            let path = keeper.dir().join(name);
            std::fs::write(&path, text).expect("written");
            path.to_str().expect("text").to_owned()
        };
        let pem = made.cert.pem();
        let certificate = file("crt", pem.clone());
        let key = file("key", made.signing_key.serialize_pem());
        let start = async || {
            // The servers talk to each other on the port that is 10 000 above, which may be somebody else's.
            let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
            let ports = std::iter::repeat_with(free_port);
            let mut free = ports.filter(|port| is_free(*port) && is_free(port + 10_000));
            let port = free.next().expect("endless").to_string();
            let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
            let trusts = ["--tls-ca-cert-file", &certificate, "--tls-auth-clients", "no"];
            let tls = ["--tls-port", &port, "--tls-cluster", "yes", "--tls-replication", "yes"];
            let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
            Server::with(&[&files[..], &trusts, &tls, &cluster].concat()).await
        };
        let servers = join_all((0..6).map(|_| start())).await;
        let cluster = Cluster::of(servers.into_iter().map(Arc::new).collect()).await;
        Self { cluster, pem, _keeper: keeper }
    }

    fn url_of(server: &Server) -> String {
        format!("rediss://127.0.0.1:{}", server.cluster_port())
    }

    /// A client that knows one server, and trusts nobody yet.
    fn strange(&self) -> ClientBuilder {
        let seed = Self::url_of(self.cluster.replica(1));
        Client::builder().cluster([seed]).restart_quarantine(Duration::ZERO).ttl(TTL)
    }

    async fn connect(&self) -> Client {
        let builder = self.strange().root_certificates(self.pem.clone());
        builder.connect().await.expect("the servers are trusted")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_taken_over_tls_wherever_their_slots_are() {
    let servers = OverTls::start().await;
    over_all_slots(&servers).await;
    trusted_or_not(&servers).await;
    redirected(&servers).await;
}

/// They are taken, waited for, renewed and released.
async fn over_all_slots(servers: &OverTls) {
    let (one, two) = (servers.connect().await, servers.connect().await);
    let names = [0, 1, 2].map(|shard| servers.cluster.name_on(shard, "lock"));
    let (mut guards, mut waiting) = (Vec::new(), Vec::new());
    for name in &names {
        guards.push(soon(name, one.mutex(name).lock()).await.expect("free"));
        waiting.push(tokio::spawn(two.mutex(name).lock()));
        eventually(LIMIT, "it waits", async || {
            one.mutex(name).status().await.is_ok_and(|status| status.waiting.len() == 1)
        })
        .await;
    }
    for client in [&one, &two] {
        let mut nodes: Vec<String> =
            client.nodes().iter().map(|node| node.address.to_string()).collect();
        let mut masters = [0, 1, 2].map(|shard| OverTls::url_of(servers.cluster.master(shard)));
        nodes.sort();
        masters.sort();
        assert_eq!(nodes, masters, "all are reached over TLS");
    }
    // They are lost if nobody renews them.
    tokio::time::sleep(TTL * 2).await;
    assert!(
        guards.iter().all(|guard| guard.is_held()) && !waiting.iter().any(|it| it.is_finished())
    );
    for (guard, waiting) in guards.into_iter().zip(waiting) {
        soon("unlocking", guard.unlock()).await.expect("held");
        let turn = soon("its turn", waiting).await.expect("no panic").expect("the lock");
        soon("unlocking", turn.unlock()).await.expect("held");
    }
    let lock = one.rw_lock(&names[1]);
    let reading = soon("the reader", lock.read()).await.expect("free");
    assert!(two.rw_lock(&names[1]).try_write().await.expect("an answer").is_none());
    reading.unlock().await.expect("held");
    for client in [&one, &two] {
        is_idle(client).await;
    }
}

/// A slot that has moved and a failover lead to other ports for TLS.
async fn redirected(servers: &OverTls) {
    let cluster = &servers.cluster;
    let client = servers.connect().await;
    let name = cluster.name_on(0, "lock");
    let lock = client.mutex(&name);
    let guard = soon("the lock", lock.lock()).await.expect("free");
    cluster.move_slot(slot_of(&name), cluster.master(0), cluster.master(1)).await;
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held() && exists(cluster.master(1), &name).await, "it is renewed there");
    soon("unlocking", guard.unlock()).await.expect("held");
    cluster.fail_over(2).await;
    let name = cluster.name_on(2, "lock");
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    assert!(exists(cluster.replica(2), &name).await);
    let url = OverTls::url_of(cluster.replica(2));
    let nodes = client.nodes();
    assert!(nodes.iter().any(|node| *node.address == *url), "no {url} in {nodes:?}");
    soon("unlocking", guard.unlock()).await.expect("held");
}

/// Whoever does not trust the servers is told, and others need no TLS.
async fn trusted_or_not(servers: &OverTls) {
    let strange = servers.strange().connect_timeout(Duration::from_millis(500));
    let error = strange.connect().await.expect_err("nobody trusts them").to_string();
    assert!(error.contains(&OverTls::url_of(servers.cluster.replica(1))), "{error}");
    let plain = Client::builder().cluster(servers.cluster.urls());
    let plain = plain.restart_quarantine(Duration::ZERO).connect().await.expect("they do both");
    let over_tls = servers.connect().await;
    for name in [0, 1, 2].map(|shard| servers.cluster.name_on(shard, "lock")) {
        let guard = soon(&name, plain.mutex(&name).lock()).await.expect("free");
        let theirs = over_tls.mutex(&name).status().await.expect("an answer");
        assert_eq!(theirs.last_token, Some(guard.token()));
        soon("unlocking", guard.unlock()).await.expect("held");
    }
    assert!(plain.nodes().iter().all(|node| node.address.starts_with("redis://")));
}
