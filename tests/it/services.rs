//! Managed services: what they leave out or answer in other words, on servers that do the same.
//!
//! Commands are renamed on a real server, or something in front of it answers them as the documentation of a service says.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{Client, ClientBuilder, Error, FindingKind, NodeState};

use crate::{
    checks::{LIMIT, client_is_idle_with, exists, nothing_left, soon, told},
    support::{Cluster, Proxy, Server, Twisted, Twister, eventually, slot_of},
};

const TTL: Duration = Duration::from_secs(1);

/// A server that does not know these commands.
async fn without(commands: &[&str]) -> Server {
    let options = commands.iter().flat_map(|command| ["--rename-command", command, ""]);
    Server::with(&options.collect::<Vec<_>>()).await
}

async fn kinds(client: &Client) -> Vec<FindingKind> {
    let findings = soon("a check", client.check()).await.expect("an answer");
    findings.into_iter().map(|finding| finding.kind).collect()
}

#[tokio::test]
async fn without_config_eviction_and_persistence_are_read_from_info() {
    let kinds_of = async |policy: &str, file: &str| {
        let rename = ["--rename-command", "CONFIG", ""];
        let memory = ["--maxmemory", "100mb", "--maxmemory-policy", policy, "--appendonly", file];
        let server = Server::with(&[&rename[..], &memory].concat()).await;
        kinds(&Client::connect(&server.url()).await.expect("connected")).await
    };
    let found = kinds_of("volatile-lru", "no").await;
    assert!(
        matches!(&found[..], [FindingKind::Eviction { policy, .. }, FindingKind::NotPersistent]
            if policy == "volatile-lru"),
        "{found:?}"
    );
    let found = kinds_of("noeviction", "yes").await;
    assert!(
        matches!(found[..], [FindingKind::Unknown { setting: "the persistence", .. }]),
        "how often it syncs: {found:?}"
    );
}

/// Some services refuse whole families of commands. What was sent on a connection that cannot be ended is followed by a
/// release for a TTL.
#[tokio::test]
async fn without_client_config_and_cluster_releases_are_repeated_and_settings_are_unknown() {
    let server = without(&["CLIENT", "CONFIG", "CLUSTER", "WAIT", "ROLE"]).await;
    let proxy = Proxy::start(server.port()).await;
    let client = Client::builder().nodes([proxy.url()]).ttl(TTL).connect().await;
    let client = client.expect("it needs none of them");
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    let found = kinds(&client).await;
    assert_eq!(found, [FindingKind::NotPersistent], "INFO says the rest");
    proxy.cut();
    drop(guard);
    eventually(LIMIT, "the release is sent again", async || !exists(&server, "n").await).await;
    eventually(LIMIT, "no release is owed", async || client.stats().releases_pending == 0).await;
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn without_wait_a_client_that_asks_for_replicas_is_refused() {
    let server = without(&["WAIT"]).await;
    let connecting = Client::builder().nodes([server.url()]).synced(1).connect();
    let error = soon("an answer", connecting).await.expect_err("nobody can wait for replicas");
    assert!(told(&error).contains("WAIT"), "{error}");
}

/// As proxies do that know no connection of one client.
#[tokio::test]
async fn without_subscriptions_or_scripts_a_server_is_refused_at_once() {
    for commands in [&["SUBSCRIBE"][..], &["EVAL", "EVALSHA"]] {
        let server = without(commands).await;
        let url = server.url();
        let error = soon("an answer", Client::connect(&url)).await.expect_err("locks need them");
        let why = told(&error);
        assert!(commands.iter().any(|command| why.contains(command)), "{why}");
    }
}

/// INFO as a proxy gives it that stands for several servers.
fn info_of_a_proxy(words: &[String]) -> Option<Twisted> {
    let text = match [&*words[0], words.get(1).map_or("", |word| word)] {
        ["INFO", "server"] => "redis_version:7.4.0\nredis_mode:standalone\nuptime_in_seconds:100",
        ["INFO", "replication"] => "role:master\nconnected_slaves:1",
        ["CONFIG", _] => return Some(Twisted::Value("{}".into())),
        ["ROLE" | "CLUSTER", _] => {
            return Some(Twisted::Error(format!("ERR unknown command '{}'", words[0])));
        }
        _ => return None,
    };
    Some(Twisted::Value(format!("[==[{text}]==]")))
}

#[tokio::test]
async fn a_server_whose_run_nobody_can_name_is_never_taken_for_the_same() {
    let server = Server::start().await;
    let twister = Twister::start(server.port(), info_of_a_proxy).await;
    let client = Client::builder().nodes([twister.url()]).ttl(TTL).connect().await;
    let client = client.expect("with one server it need not be known");
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    let found = kinds(&client).await;
    assert!(
        matches!(
            found[..],
            [FindingKind::NotPersistent, FindingKind::Replicas { replicas: 1, .. }]
        ),
        "{found:?}"
    );
    // It may be another server behind the same proxy: no connection there is ours to end.
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    drop(guard);
    eventually(LIMIT, "the release is sent again", async || !exists(&server, "n").await).await;
    eventually(LIMIT, "no release is owed", async || client.stats().releases_pending == 0).await;
    assert_eq!(server.calls("client|kill").await, 1, "only this test's");

    let connecting =
        Client::builder().nodes([twister.url()]).restart_quarantine(Duration::from_secs(30));
    let error = soon("an answer", connecting.connect()).await.expect_err("it must be known");
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "info"), "{error:?}");
    nothing_left(&server, &client).await;
}

/// A cluster of one server, of which only CLUSTER SLOTS can be asked. It names a host, and the port of what is in front.
struct OneEndpoint {
    server: Server,
    twister: Twister,
    /// How often a script shall meet a key that is not there.
    strays: Arc<AtomicUsize>,
}

impl OneEndpoint {
    async fn start() -> Self {
        let server = Server::with(&["--cluster-enabled", "yes"]).await;
        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        eventually(LIMIT, "it serves all slots", async || {
            let info = server.command(&["CLUSTER", "INFO"]).await;
            redis::from_redis_value::<String>(info).expect("a text").contains("cluster_state:ok")
        })
        .await;
        let (port, strays) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicUsize::new(0)));
        let twist = {
            let (port, strays) = (port.clone(), strays.clone());
            move |words: &[String]| match [&*words[0], words.get(1).map_or("", |word| word)] {
                ["CLUSTER", "SLOTS"] => {
                    let port = port.load(SeqCst);
                    Some(Twisted::Value(format!("{{{{0, 16383, {{'localhost', {port}}}}}}}")))
                }
                ["CLUSTER" | "ASKING" | "CONFIG" | "CLIENT", word]
                | ["PUBSUB", word @ "SHARDNUMSUB"] => {
                    let text = format!("ERR unknown command '{} {word}'", words[0]);
                    Some(Twisted::Error(text))
                }
                ["EVALSHA", _] if words.iter().any(|word| word == "astray") => {
                    let left = strays.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                    left.ok().map(|_| Twisted::Error(ASTRAY.into()))
                }
                _ => None,
            }
        };
        let twister = Twister::start(server.port(), twist).await;
        port.store(twister.port(), SeqCst);
        Self { server, twister, strays }
    }

    fn builder(&self) -> ClientBuilder {
        let builder = Client::builder().cluster([self.twister.url()]).ttl(TTL);
        builder.restart_quarantine(Duration::ZERO)
    }
}

const ASTRAY: &str = "ERR Script attempted to access a non local key in a cluster node script: 0";

#[tokio::test]
async fn a_cluster_behind_one_endpoint_tells_its_slots_and_nothing_else() {
    let endpoint = OneEndpoint::start().await;
    let [one, two] = [endpoint.builder().connect().await, endpoint.builder().connect().await];
    let [one, two] = [one, two].map(|client| client.expect("CLUSTER SLOTS is enough"));
    for name in ["a", "b", "c", "d"] {
        let guard = soon("the lock", one.mutex(name).lock()).await.expect("free");
        let waiting = tokio::spawn(two.mutex(name).lock());
        eventually(LIMIT, "it waits", async || {
            crate::support::waiting(&endpoint.server, name).await == 1
        })
        .await;
        soon("unlocking", guard.unlock()).await.expect("held");
        let guard = soon("its turn", waiting).await.expect("no panic").expect("free");
        soon("unlocking", guard.unlock()).await.expect("held");
    }
    let nodes = one.nodes();
    let expected = format!("redis://localhost:{}", endpoint.twister.port());
    assert_eq!((nodes.len(), &*nodes[0].address, nodes[0].state), (1, &*expected, NodeState::Up));
    // A key that is there later.
    endpoint.strays.store(3, SeqCst);
    let guard = soon("the lock", one.mutex("astray").lock()).await.expect("it tries again");
    assert_eq!(endpoint.strays.load(SeqCst), 0);
    soon("unlocking", guard.unlock()).await.expect("held");
    for client in [&one, &two] {
        client_is_idle_with(client, 2 + 3).await;
    }
}

/// A cluster may name its nodes by host names, or not at all: then their host is that of the node that was asked.
#[tokio::test]
async fn a_cluster_that_announces_host_names_or_none_is_followed() {
    let cluster = Cluster::start().await;
    let set = async |name: &str, value: &str| {
        for server in cluster.servers() {
            server.command(&["CONFIG", "SET", name, value]).await;
        }
    };
    set("cluster-announce-hostname", "localhost").await;
    for (kind, host) in [("hostname", "localhost"), ("unknown-endpoint", "127.0.0.1")] {
        set("cluster-preferred-endpoint-type", kind).await;
        eventually(LIMIT, "every node knows the host names", async || {
            for server in cluster.servers() {
                let slots = format!("{:?}", server.command(&["CLUSTER", "SLOTS"]).await);
                if kind == "hostname" && slots.matches("localhost").count() < 6 {
                    return false;
                }
            }
            true
        })
        .await;
        let builder = Client::builder().cluster(cluster.urls()).ttl(TTL);
        let client = builder.restart_quarantine(Duration::ZERO).connect().await;
        let client = client.expect("the cluster accepts the client");
        for shard in 0..3 {
            let lock = client.mutex(cluster.name_on(shard, kind));
            soon("the lock", lock.lock()).await.expect("free").unlock().await.expect("held");
        }
        let of_host = format!("redis://{host}:");
        let is_known = |node: &leasehold::NodeStatus| node.address.starts_with(&of_host);
        assert!(client.nodes().iter().all(is_known), "{kind}: {:?}", client.nodes());
        let name = cluster.name_on(0, kind);
        let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
        let (source, target) = (cluster.master(0), cluster.master(1));
        cluster.move_slot(slot_of(&name), source, target).await;
        assert!(soon("an answer", client.mutex(&name).is_locked()).await.expect("an answer"));
        soon("unlocking", guard.unlock()).await.expect("it is redirected");
        assert!(!exists(target, &name).await, "{kind}");
        assert!(client.nodes().iter().all(is_known), "{kind}: {:?}", client.nodes());
    }
}
