//! `preflight.lua`

use redis::Value;

use super::{
    bench::{Bench, Call, acquire, answer, force_unlock, force_unlock_if, release, renew, status},
    sources,
};
use crate::support::lua;

fn preflight(verb: &str) -> Call {
    Call::new(lua::PREFLIGHT, &[], &["leasehold_preflight", verb])
}

/// A user who may run exactly these commands, on any key and channel.
fn rules(commands: &[String]) -> Vec<String> {
    let mut rules = vec!["~*".to_owned(), "&*".to_owned(), "-@all".to_owned(), "+eval".to_owned()];
    rules.extend(commands.iter().map(|command| format!("+{command}")));
    rules
}

async fn denied(bench: &Bench, verb: &str, commands: &[String]) -> Vec<String> {
    let rules = rules(commands);
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let reply = bench.run_as(&rules, &preflight(verb)).await.expect("the script runs");
    redis::from_redis_value(reply).expect("a list of names")
}

/// The commands of all scripts, as an access list writes them.
fn needed() -> Vec<String> {
    let mut needed = sources::commands();
    needed.insert("publish".to_owned());
    let with_subcommand = |name: String| match name.as_str() {
        "pubsub" => "pubsub|numsub".to_owned(),
        _ => name,
    };
    needed.into_iter().map(with_subcommand).collect()
}

#[tokio::test]
async fn a_user_with_all_rights_lacks_nothing() {
    let mut bench = Bench::start().await;
    for _ in 0..2 {
        assert_eq!(bench.run(&preflight("PUBLISH")).await, Ok(Value::Array(Vec::new())));
    }
    assert_eq!(bench.ask("DBSIZE").await, "0", "it leaves nothing behind");
}

#[tokio::test]
async fn exactly_the_needed_commands_are_enough() {
    let bench = Bench::start().await;
    let needed = needed();
    assert!(denied(&bench, "PUBLISH", &needed).await.is_empty());

    let rules = rules(&needed);
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let story = [
        (acquire("a"), "token"),
        (acquire("a"), "token"),
        (acquire("b"), "[0, 30s, a, 0]"),
        (renew("a", 2, 300_000), "1"),
        (status(), "[300s, a, 2, token, 0]"),
        (release("a"), "1"),
        (acquire("b").retention_ms(0), "token"),
        (force_unlock_if("b"), "1"),
        (force_unlock(), "0"),
    ];
    for (call, reply) in story {
        assert_eq!(answer(bench.run_as(&rules, &call).await), reply, "{call:?}");
    }
}

#[tokio::test]
async fn each_missing_command_is_named() {
    let bench = Bench::start().await;
    let needed = needed();
    for lacking in &needed {
        let others: Vec<_> = needed.iter().filter(|command| *command != lacking).cloned().collect();
        let name = lacking.split('|').next().unwrap_or(lacking).to_uppercase();
        assert_eq!(denied(&bench, "PUBLISH", &others).await, [name], "without {lacking}");
    }
}

#[tokio::test]
async fn the_verb_for_sharded_channels_is_asked_for_where_it_is_used() {
    let bench = Bench::start().await;
    let without = needed();
    let with = [&without[..], &["spublish".to_owned()]].concat();
    let deaf: Vec<_> = with.iter().filter(|right| *right != "pubsub|numsub").cloned().collect();
    assert!(denied(&bench, "PUBLISH", &without).await.is_empty());
    assert_eq!(denied(&bench, "SPUBLISH", &without).await, ["SPUBLISH"]);
    assert!(denied(&bench, "SPUBLISH", &with).await.is_empty());
    assert_eq!(denied(&bench, "SPUBLISH", &deaf).await, ["PUBSUB"]);
}

#[tokio::test]
async fn all_missing_commands_are_named_at_once() {
    let mut bench = Bench::start().await;
    let mut missing = denied(&bench, "PUBLISH", &[]).await;
    missing.sort_unstable();
    let mut needed: Vec<_> = needed()
        .iter()
        .map(|command| command.split('|').next().unwrap_or(command).to_uppercase())
        .collect();
    needed.sort_unstable();
    assert_eq!(missing, needed);
    assert_eq!(bench.ask("DBSIZE").await, "0");
}

#[tokio::test]
async fn a_server_out_of_memory_denies_no_right() {
    let mut bench = Bench::start().await;
    bench.command("CONFIG SET maxmemory 1").await;
    assert_eq!(answer(bench.run(&preflight("PUBLISH")).await), "[]");
}
