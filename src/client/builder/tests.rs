use serde_json::json;

use super::*;

/// All that a file can set, as text.
fn shown(builder: &ClientBuilder) -> String {
    let ClientBuilder { named, config, findings_at_connect, .. } = builder;
    let Named { nodes, sentinel, cluster, access, .. } = named;
    let access = access.as_ref().map(|access| (&access.login, access.tls, access.database));
    format!("{nodes:?} {sentinel:?} {cluster:?} {access:?} {findings_at_connect:?} {config:?}")
}

#[test]
fn what_a_file_sets_is_what_the_method_of_that_name_sets() {
    let new = ClientBuilder::default;
    let ms = Duration::from_millis;
    let order = match LockOrder::default() {
        LockOrder::Off => LockOrder::Warn,
        LockOrder::Warn => LockOrder::Off,
    };
    let sentinel = json!({ "master": "m", "urls": "redis://a" });
    let login = json!({ "user": "u", "password": "p" });
    let settings = [
        ("nodes", json!("redis://a"), new().nodes(["redis://a"])),
        ("sentinel", sentinel, new().sentinel("m", ["redis://a"])),
        ("cluster", json!("redis://a"), new().cluster(["redis://a"])),
        ("server_login", login, new().server_login("u", "p")),
        ("server_tls", json!(true), new().server_tls(true)),
        ("server_database", json!(2), new().server_database(2)),
        ("name", json!("n"), new().name("n")),
        ("name_prefix", json!("p:"), new().name_prefix("p:")),
        ("masters_name", json!("m"), new().masters_name("m")),
        ("ttl", json!("7ms"), new().ttl(ms(7))),
        ("response_timeout", json!("7ms"), new().response_timeout(ms(7))),
        ("connect_timeout", json!("7ms"), new().connect_timeout(ms(7))),
        ("unavailable_after", json!("7ms"), new().unavailable_after(ms(7))),
        ("handoff_window", json!("7ms"), new().handoff_window(ms(7))),
        ("token_retention", json!("7ms"), new().token_retention(ms(7))),
        ("redisson_fencing", json!(true), new().redisson_fencing(true)),
        ("restart_quarantine", json!("7ms"), new().restart_quarantine(ms(7))),
        ("min_validity", json!("7ms"), new().min_validity(ms(7))),
        ("synced", json!(2), new().synced(2)),
        ("pubsub", json!("plain"), new().pubsub(PubSub::Plain)),
        ("self_wait", json!("fail"), new().self_wait(SelfWait::Fail)),
        ("warn_held_after", json!("7ms"), new().warn_held_after(ms(7))),
        ("deadlocks", json!("off"), new().deadlocks(Deadlocks::Off)),
        ("lock_order", json!(format!("{order:?}")), new().lock_order(order)),
        ("log_findings", json!(false), new().log_findings(false)),
    ];
    let (_, fields) = FILE.split_once("struct Settings {").expect("the fields");
    let (fields, _) = fields.split_once("#[serde(flatten)]").expect("the end of them");
    let fields = fields.lines().filter_map(|line| line.trim().split_once(": Option<"));
    let fields: Vec<&str> = fields.map(|(name, _)| name).collect();
    assert_eq!(settings.each_ref().map(|(name, ..)| *name)[..], fields[..], "each is here");
    for (name, value, made) in settings {
        let read: ClientBuilder = serde_json::from_value(json!({ name: value })).expect(name);
        assert_eq!(shown(&read), shown(&made), "{name}");
        assert_ne!(shown(&made), shown(&new()), "{name} is the default");
    }
}

/// What reads them.
const FILE: &str = include_str!("../../settings.rs");
