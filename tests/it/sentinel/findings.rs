//! What `check` finds on a replicated deployment, and which rights the client needs there.

use std::time::Duration;

use leasehold::{Client, FindingKind};

use crate::{
    checks::{LIMIT, soon},
    support::{Connects, Deployment, MASTER, Pretender, Proxy, Server, eventually},
};

/// The findings that are about failovers.
async fn found(client: &Client) -> Vec<FindingKind> {
    let findings = client.check().await.expect("answered").into_iter().map(|found| found.kind);
    let is_about_disks = |kind: &FindingKind| {
        matches!(kind, FindingKind::NotPersistent | FindingKind::NotWrittenThrough { .. })
    };
    findings.filter(|kind| !is_about_disks(kind)).collect()
}

#[tokio::test]
async fn what_lets_an_old_master_grant_beside_the_new_one_is_found() {
    let deployment = Deployment::with(2, 1, &[]).await;
    let client = deployment.connect().await;
    let [master, sentinel] = [deployment.master(), &deployment.sentinels[0]];
    assert!(found(&client).await.contains(&FindingKind::Unfenced));
    master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    // That turns it off.
    master.command(&["CONFIG", "SET", "min-replicas-max-lag", "0"]).await;
    assert!(found(&client).await.contains(&FindingKind::Unfenced));
    master.command(&["CONFIG", "SET", "min-replicas-max-lag", "2"]).await;
    let kinds = found(&client).await;
    assert!(!kinds.contains(&FindingKind::Unfenced), "{kinds:?}");
    let is_late = |kind: &FindingKind| {
        matches!(kind, FindingKind::FencedLate { max_lag: 2, down_after_ms: 500, .. })
    };
    assert!(kinds.iter().any(is_late), "{kinds:?}");
    let set = ["SENTINEL", "SET", MASTER, "down-after-milliseconds", "4000"];
    sentinel.command(&set).await;
    let kinds = found(&client).await;
    assert!(!kinds.iter().any(|kind| matches!(kind, FindingKind::FencedLate { .. })), "{kinds:?}");
    deployment.servers[2].command(&["CONFIG", "SET", "replica-priority", "50"]).await;
    eventually(LIMIT, "the Sentinel has asked the replica", async || {
        let unequal = |kind: &FindingKind| {
            matches!(kind, FindingKind::ReplicaPriority { priorities, .. }
                if priorities.contains(&50) && priorities.contains(&100))
        };
        found(&client).await.iter().any(unequal)
    })
    .await;
}

/// The rights of `SECURITY.md`.
const LEAST: &str = "reset on >p +hello +sentinel|get-master-addr-by-name";
const USUAL: &str = "reset resetchannels on >p +hello +subscribe &+switch-master \
                     +sentinel|get-master-addr-by-name +sentinel|master +sentinel|slaves";

#[tokio::test]
async fn a_user_of_the_sentinels_needs_few_rights() {
    let deployment = Deployment::with(1, 1, &[]).await;
    let [sentinel] = &deployment.sentinels[..] else { panic!("one") };
    for (user, rules) in [("least", LEAST), ("usual", USUAL), ("none", "reset on >p +hello")] {
        let words: Vec<&str> =
            ["ACL", "SETUSER", user].into_iter().chain(rules.split(' ')).collect();
        sentinel.command(&words).await;
    }
    let builder = |user| deployment.builder().sentinel(MASTER, [sentinel.url_as(user, "p")]);
    let error = builder("none").connect().await.expect_err("it may ask nothing").to_string();
    for word in ["denies sentinel", "Sentinel redis://"] {
        assert!(error.contains(word), "no {word:?} in {error}");
    }
    let least = builder("least").connect().await.expect("that is enough");
    let usual = builder("usual").connect().await.expect("that is enough");
    let is_unknown = |kind: &FindingKind| {
        matches!(kind, FindingKind::Unknown { setting: "the Sentinels' settings", .. })
    };
    assert!(found(&least).await.iter().any(is_unknown));
    assert!(!found(&usual).await.iter().any(is_unknown));
    deployment.fail_over().await;
    let new: &Server = &deployment.servers[1];
    for client in [&least, &usual] {
        eventually(LIMIT, "it is at the new master", async || {
            *client.nodes()[0].address == *new.url() && client.is_ready()
        })
        .await;
        soon("a lock", client.mutex("n").lock()).await.expect("free").unlock().await.expect("held");
    }
}

#[tokio::test]
async fn a_user_of_the_servers_that_may_not_end_connections_is_told() {
    let deployment = Deployment::with(0, 1, &[]).await;
    let is_told = async |client: &Client| {
        found(client).await.iter().any(|kind| matches!(kind, FindingKind::KillRefused { .. }))
    };
    for one_of_both in ["+client|id", "+client|kill"] {
        let rules = ["on", ">p", "~*", "&*", "+@all", "-client", one_of_both];
        let rules = [&["ACL", "SETUSER", "u", "reset"], &rules[..]].concat();
        deployment.master().command(&rules).await;
        let limited = deployment.builder().server_login("u", "p").connect().await;
        assert!(is_told(&limited.expect("connected")).await, "{one_of_both}");
    }
    assert!(!is_told(&deployment.connect().await).await);
}

#[tokio::test]
async fn a_fence_of_fewer_than_half_of_the_replicas_is_found() {
    let deployment = Deployment::with(3, 1, &[]).await;
    let client = deployment.connect().await;
    let is_few = |kind: &FindingKind| {
        matches!(kind, FindingKind::FencedByFew { min_replicas: 1, replicas: 3, .. })
    };
    for (least, is_found) in [("1", true), ("2", false)] {
        deployment.master().command(&["CONFIG", "SET", "min-replicas-to-write", least]).await;
        let kinds = found(&client).await;
        assert_eq!(kinds.iter().any(is_few), is_found, "{kinds:?}");
    }
}

/// As with a copied configuration: one of three watches another deployment by the same name, in a higher epoch.
#[tokio::test]
async fn sentinels_that_name_different_masters_for_long_are_found() {
    let [master, stranger] = [Server::start().await, Server::start().await];
    let sentinels = [
        Pretender::start(master.port(), Some(3)).await,
        Pretender::start(master.port(), Some(3)).await,
        Pretender::start(stranger.port(), Some(9)).await,
    ];
    let connect = async |urls: Vec<String>| {
        let builder = Client::builder().sentinel(MASTER, urls);
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    // One server by two addresses is no disagreement.
    let proxy = Proxy::start(master.port()).await;
    let watch = async |port| {
        Server::sentinel(&format!("sentinel monitor {MASTER} 127.0.0.1 {port} 2\n")).await
    };
    let watching = [watch(master.port()).await, watch(proxy.port()).await];
    let agreed = connect(watching.iter().map(Server::url).collect()).await;
    let split = connect(sentinels.iter().map(Pretender::url).collect()).await;
    let disagreement = async |client: &Client| {
        found(client).await.into_iter().find_map(|kind| match kind {
            FindingKind::SentinelsDisagree { named, .. } => Some(named),
            _ => None,
        })
    };
    assert_eq!(disagreement(&split).await, None, "it may be a failover");
    let limit = LIMIT * 2;
    eventually(limit, "it is found", async || disagreement(&split).await.is_some()).await;
    let ports = [master.port(), master.port(), stranger.port()];
    let named = sentinels.iter().zip(ports);
    let named = named.map(|(one, port)| (one.url().into(), format!("127.0.0.1:{port}")));
    assert_eq!(disagreement(&split).await, Some(named.collect()));
    sentinels[2].says(master.port(), Some(9));
    eventually(limit, "it is over", async || disagreement(&split).await.is_none()).await;
    assert_eq!(disagreement(&agreed).await, None);
}

/// It refuses every write, and not that key alone.
#[tokio::test]
async fn a_master_that_waits_for_its_replicas_is_not_said_to_refuse_its_mark() {
    let server = Server::with(&["--min-replicas-to-write", "1"]).await;
    let grace = Duration::from_secs(60);
    let builder = Client::builder().nodes([server.url()]).restart_quarantine(grace);
    let client = builder.connect().await.expect("it answers");
    let kinds = found(&client).await;
    assert!(!kinds.iter().any(|kind| matches!(kind, FindingKind::MarkRefused { .. })), "{kinds:?}");
}

/// That takes until the end of the check, and says nothing about the master's clock.
#[tokio::test]
async fn sentinels_that_do_not_answer_do_not_set_the_clock_of_the_master_back() {
    let deployment = Deployment::with(0, 1, &[]).await;
    let client = deployment.connect().await;
    deployment.sentinels[0].pause();
    let kinds = found(&client).await;
    let is_unknown = |kind: &FindingKind| {
        matches!(kind, FindingKind::Unknown { setting: "the Sentinels' settings", .. })
    };
    assert!(kinds.iter().any(is_unknown), "the Sentinel has answered: {kinds:?}");
    let is_off = |kind: &FindingKind| matches!(kind, FindingKind::ClockAhead { .. });
    assert!(!kinds.iter().any(is_off), "{kinds:?}");
    deployment.sentinels[0].resume();
}
