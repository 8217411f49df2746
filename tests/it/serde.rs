//! The feature `serde`: status as values, settings from a configuration.

use std::time::Duration;

use leasehold::{Client, ClientBuilder, ClosedReason, Error, LockKind, LossReason};
use serde_json::{Value, json};

use crate::{
    checks::setup,
    support::{MASTER, Pretender, Server},
};

fn value(of: impl serde::Serialize) -> Value {
    serde_json::to_value(of).expect("a value")
}

#[tokio::test]
async fn what_operators_ask_for_can_be_serialized() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n").with_ttl(Duration::from_secs(20));
    let free = value(lock.status().await.expect("asked"));
    assert_eq!((&free["holder"], &free["remaining"]), (&Value::Null, &Value::Null));
    assert_eq!(free["waiting"], json!([]));

    let owner = leasehold::Owner::named("billing");
    let guard = lock.owned_by(&owner).lock().await.expect("free");
    let holder = json!(guard.holder().to_string());
    let status = value(lock.status().await.expect("asked"));
    assert_eq!((&status["name"], &status["holder"]), (&json!("n"), &holder));
    let remaining = status["remaining"].as_f64().expect("seconds");
    assert!((15.0..=20.0).contains(&remaining), "{remaining} s");
    let since = status["since"].as_f64().expect("seconds since 1970");
    assert!(since > 1.7e9, "{since}");

    let held = value(client.holds());
    assert_eq!((&held[0]["holder"], &held[0]["token"]), (&holder, &json!(guard.token())));
    assert_eq!(held[0]["owner"], json!(owner.to_string()));
    assert!(held[0]["held_for"].as_f64().expect("seconds") < 15.0);
    let permit = client.semaphore("s").with_permits(1).acquire().await.expect("there is one");
    client.queue("q").push("1").await.expect("pushed");
    let delivery = client.queue("q").pop().await.expect("an item");
    let held = value(client.holds());
    let tokens = [1, 2].map(|at| (&held[at]["name"], &held[at]["token"]));
    assert_eq!(tokens, [(&json!("s"), &Value::Null), (&json!("q"), &Value::Null)]);
    permit.release().await.expect("held");
    delivery.reject().await.expect("held");
    let dead = value(client.queue("q").dead(9).await.expect("asked"));
    assert_eq!(dead, json!([{ "payload": [49] }]));
    let nodes = value(client.nodes());
    assert_eq!((&nodes[0]["address"], &nodes[0]["state"]), (&json!(server.url()), &json!("up")));
    assert!(nodes[0]["round_trip"].as_f64().is_some_and(|it| it > 0.0), "{nodes}");
    let unasked = Client::connect(&server.url()).await.expect("connected");
    assert_eq!(value(unasked.nodes())[0]["round_trip"], Value::Null);
    assert_eq!(value(client.stats())["releases_pending"], json!(0));
    let findings = value(client.check().await.expect("asked"));
    let kinds: Vec<&Value> =
        findings.as_array().expect("a list").iter().map(|it| &it["kind"]).collect();
    assert!(kinds.contains(&&json!("not_persistent")), "{findings}");
    assert_eq!(value(LossReason::NotRenewed), json!("not_renewed"));
    assert_eq!(value(ClosedReason::RuntimeEnded), json!("runtime_ended"));
    assert_eq!(value(LockKind::RwLock), json!("rw_lock"));
}

#[tokio::test]
async fn a_finding_has_its_kind_and_the_fields_of_it_beside_its_node() {
    let settings = ["--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl"];
    let server = Server::with(&[&settings[..], &["--appendonly", "yes"]].concat()).await;
    let client = Client::connect(&server.url()).await.expect("connected");
    let found = value(client.check().await.expect("asked"));
    let evicts = json!({ "node": server.url(), "kind": "eviction", "policy": "volatile-ttl" });
    let is_late = json!({ "node": server.url(), "kind": "not_written_through" });
    assert_eq!(found, json!([evicts, is_late]));
}

#[tokio::test]
async fn every_setting_can_come_from_a_configuration() {
    let server = Server::start().await;
    let settings = json!({
        "nodes": [server.url()], "name": "billing-7", "name_prefix": "shop:", "ttl": 12.5,
        "response_timeout": 0.5, "connect_timeout": 2, "unavailable_after": 3, "handoff_window": 0.01,
        "token_retention": 3600, "redisson_fencing": true, "restart_quarantine": 0, "min_validity": 0.25, "synced": 0,
        "self_wait": "Fail", "deadlocks": "Warn", "warn_held_after": 60, "log_findings": false,
    });
    let builder: ClientBuilder = serde_json::from_value(settings).expect("settings");
    let client = builder.connect().await.expect("connected");
    assert_eq!(client.name(), "billing-7");
    let of_masters = json!({ "nodes": [server.url()], "masters_name": "a b" });
    let builder: ClientBuilder = serde_json::from_value(of_masters).expect("settings");
    let refused = builder.connect().await;
    assert!(matches!(refused, Err(Error::InvalidName { .. })), "{refused:?}");
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    assert!(guard.remaining() <= Duration::from_millis(12_500), "{:?}", guard.remaining());
    assert!(guard.remaining() > Duration::from_secs(10), "{:?}", guard.remaining());
    let counter = server.command(&["PTTL", "redisson_lock_token:{shop:n}"]).await;
    assert_eq!(counter, redis::Value::Int(-1), "the counter that never expires");
    assert!(matches!(lock.lock().await, Err(Error::SelfWait { .. })));
}

#[tokio::test]
async fn durations_have_units_and_one_url_needs_no_list() {
    let server = Server::start().await;
    let settings = json!({
        "nodes": server.url(), "ttl": "12500ms", "response_timeout": "0.5s", "connect_timeout": "2 s",
        "unavailable_after": "3s", "handoff_window": "10ms", "token_retention": "1h", "restart_quarantine": "0s",
        "min_validity": "250ms", "self_wait": "fail", "deadlocks": "warn", "warn_held_after": "1m",
    });
    let builder: ClientBuilder = serde_json::from_value(settings).expect("settings");
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    assert!(guard.remaining() <= Duration::from_millis(12_500), "{:?}", guard.remaining());
    assert!(guard.remaining() > Duration::from_secs(10), "{:?}", guard.remaining());
    assert!(matches!(lock.lock().await, Err(Error::SelfWait { .. })));
}

/// The first block of the page in that language.
fn example<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, text) = page.split_once(&format!("```{language}\n")).expect("an example");
    text.split_once("```").expect("its end").0
}

#[tokio::test]
async fn the_examples_of_the_page_are_settings() {
    let page = include_str!("../../docs/settings.md");
    let server = Server::start().await;
    let text = example(page, "toml").replace("redis://127.0.0.1:6379", &server.url());
    let builder: ClientBuilder = toml::from_str(&text).expect("settings");
    let client = builder.connect().await.expect("connected");
    let guard = client.mutex("n").lock().await.expect("free");
    assert!(guard.remaining() > Duration::from_secs(20), "{:?}", guard.remaining());
    assert_eq!(server.command(&["EXISTS", "shop:n"]).await, redis::Value::Int(1));

    let server = Server::with(&["--requirepass", "s3cret"]).await;
    let sentinel = Pretender::start(server.port(), None).await;
    let urls = r#"["redis://a:26379", "redis://b:26379", "redis://c:26379"]"#;
    let text = example(page, "yaml").replace(urls, &sentinel.url());
    let text = text.replace("master: shop", &format!("master: {MASTER}"));
    let text = text.replace("user: billing", "user: default").replace("synced: 1", "synced: 0");
    let builder: ClientBuilder = serde_yaml_ng::from_str(&text).expect("settings");
    let client = builder.connect().await.expect("connected");
    assert_eq!(client.nodes()[0].master.as_deref(), Some(MASTER));
    let guard = client.mutex("n").lock().await.expect("free");
    assert!(guard.remaining() <= Duration::from_secs(20), "{:?}", guard.remaining());
}

#[test]
fn a_duration_that_is_none_is_refused_by_the_name_of_its_setting() {
    let problem = |text: &str| {
        toml::from_str::<ClientBuilder>(text).map(|_| ()).expect_err("refused").to_string()
    };
    for (text, words) in [
        (
            "ttl = \"30\"",
            "ttl: \"30\" is not a duration: write a number and its unit, as in \"30s\"",
        ),
        ("min_validity = \"30 parsecs\"", "min_validity: \"30 parsecs\" is not a duration"),
        ("connect_timeout = -1", "connect_timeout: -1 seconds is not a duration"),
        ("ttl = [30]", "a duration such as \"30s\" or \"500ms\", or a number of seconds"),
        ("nodes = 7", "a URL, or a list of them"),
    ] {
        let problem = problem(text);
        assert!(problem.contains(words), "no {words:?} in {problem}");
    }
}

#[tokio::test]
async fn a_leader_is_its_holder_its_term_and_its_value() {
    let (_server, [client]) = setup().await;
    let election = client.election("n").with_value("here");
    let leadership = election.campaign().await.expect("nobody leads");
    let leader = value(election.leader().await.expect("asked").expect("it leads"));
    let (holder, term) = (leadership.holder().to_string(), leadership.term());
    assert_eq!(leader, json!({ "holder": holder, "term": term, "value": "here" }));
    let led = json!({ "state": "led", "holder": holder, "term": term, "value": "here" });
    assert_eq!(value(election.state().await.expect("asked")), led);
    leadership.resign().await.expect("it leads");
    assert_eq!(value(election.state().await.expect("asked")), json!({ "state": "vacant" }));
    let silent = client.mutex("n").lock().await.expect("free");
    let state = value(election.state().await.expect("asked"));
    assert_eq!(state, json!({ "state": "silent", "holder": silent.holder().to_string() }));
}

#[tokio::test]
async fn a_cluster_can_come_from_a_configuration() {
    let server = Server::start().await;
    let text = format!(r#"{{"cluster": ["{}"], "pubsub": "Plain"}}"#, server.url());
    let builder: ClientBuilder = serde_json::from_str(&text).expect("valid settings");
    let error = builder.connect().await.expect_err("it is in no cluster").to_string();
    assert!(error.contains("no Redis Cluster"), "{error}");
    let elsewhere = format!(r#"{{"nodes": ["{}"], "pubsub": "Sharded"}}"#, server.url());
    let builder: ClientBuilder = serde_json::from_str(&elsewhere).expect("valid settings");
    assert!(matches!(builder.connect().await, Err(Error::InvalidConfig { .. })));
    assert!(serde_json::from_str::<ClientBuilder>(r#"{"pubsub": "Loud"}"#).is_err());
}

#[tokio::test]
async fn sentinels_can_come_from_a_configuration() {
    let server = Server::with(&["--requirepass", "secret"]).await;
    let sentinel = Pretender::start(server.port(), None).await;
    let settings = json!({
        "sentinel": { "master": MASTER, "urls": [sentinel.url()] },
        "server_login": { "user": "default", "password": "secret" },
        "server_tls": false, "server_database": 2,
    });
    let builder: ClientBuilder = serde_json::from_value(settings).expect("settings");
    let client = builder.connect().await.expect("connected");
    assert_eq!(client.nodes()[0].master.as_deref(), Some(MASTER));
    let read = |text: &str| serde_json::from_str::<ClientBuilder>(text).map(|_| ());
    for text in [r#"{"sentinel": "m"}"#, r#"{"sentinel": {"urls": []}}"#, r#"{"server_login": 7}"#]
    {
        assert!(read(text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    let read =
        |text: &str| serde_json::from_str::<ClientBuilder>(text).err().map(|it| it.to_string());
    assert_eq!(read("{}"), None);
    let unknown = read(r#"{"tll": 30}"#).expect("refused");
    assert!(unknown.contains("unknown field `tll`"), "{unknown}");
    for seconds in ["-1", "1e300"] {
        let problem = read(&format!(r#"{{"ttl": {seconds}}}"#)).expect("refused");
        assert!(problem.contains("seconds is not a duration"), "{problem}");
    }
    let empty: ClientBuilder = serde_json::from_str("{}").expect("settings");
    assert!(matches!(empty.connect().await, Err(Error::InvalidConfig { .. })));
    let short: ClientBuilder =
        serde_json::from_str(r#"{"nodes": ["redis://127.0.0.1:1"], "ttl": 0.001}"#)
            .expect("settings");
    assert!(matches!(short.connect().await, Err(Error::InvalidConfig { .. })));
    assert!(Client::builder().connect().await.is_err());
}

/// Whoever writes a login in a form that is none finds no part of it in a log.
#[test]
fn an_error_of_the_configuration_repeats_no_login() {
    for (setting, value) in [
        ("server_login", r#""locks:s3cret""#),
        ("server_login", r#"{"user": "locks", "s3cret": "password"}"#),
        ("server_login", r#"{"user": "locks", "password": ["s3cret"]}"#),
        ("server_login", r#"{"user": "locks", "password": 47110815}"#),
        ("sentinel", r#""redis://:s3cret@h/m""#),
        ("sentinel", r#"{"master": "m", "urls": {"redis://:s3cret@h": 1}}"#),
        ("nodes", r#"{"redis://:s3cret@h": 1}"#),
    ] {
        let text = format!(r#"{{"{setting}": {value}}}"#);
        let in_json = serde_json::from_str::<ClientBuilder>(&text).expect_err("refused");
        // What is JSON is YAML, too.
        let in_yaml = serde_yaml_ng::from_str::<ClientBuilder>(&text).expect_err("refused");
        for error in [in_json.to_string(), in_yaml.to_string()] {
            assert!(!["s3cret", "47110815"].iter().any(|it| error.contains(it)), "{error}");
            let says_what = ["user and a password", "name and the URLs", "a URL"];
            assert!(says_what.iter().any(|it| error.contains(it)), "{error}");
        }
    }
    // The errors of TOML show the line that was read.
    for (text, says) in [
        ("server_login = \"locks:s3cret\"", "user and a password"),
        ("server_login = { user = \"locks\", pasword = \"s3cret\" }", "user and a password"),
        ("[server_login]\nuser = 7\npassword = \"s3cret\"", "user and a password"),
        ("sentinel = { master = 7, urls = \"redis://:s3cret@h\" }", "name and the URLs"),
        ("sentinel = { master = \"m\", urls = [\"redis://:s3cret@h\", 7] }", "name and the URLs"),
        ("nodes = [\"redis://:s3cret@h\", 7]", "nodes: it must be a URL, or a list of them"),
        ("server_logn = { user = \"locks\", password = \"s3cret\" }", "field `server_logn`"),
    ] {
        let error = toml::from_str::<ClientBuilder>(text).expect_err("refused").to_string();
        assert!(!error.contains("s3cret") && error.contains(says), "{text}: {error}");
    }
}
