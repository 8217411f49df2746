//! The rights that the servers' user needs in a cluster.

use std::time::Duration;

use leasehold::{Client, Error};

use super::is_idle;
use crate::checks::soon;
use crate::support::{Cluster, eventually, slot_of};

const LIMIT: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(2);

/// The words of SECURITY.md between two others.
fn documented(from: &str, to: &str) -> Vec<&'static str> {
    let page = include_str!("../../../SECURITY.md");
    let (_, rest) = page.split_once(from).expect("the page says so");
    let (words, _) = rest.split_once(to).expect("the page goes on");
    words.split(|c: char| c.is_whitespace() || c == '`' || c == ',' || c == '.').collect()
}

#[tokio::test]
async fn the_documented_rights_are_enough_in_a_cluster() {
    let cluster = Cluster::start().await;
    let mut rights = documented("ACL SETUSER locks reset on >password", "```");
    rights.extend(documented("In a Redis Cluster, the user also needs", "Without"));
    let is_right = |word: &&str| word.starts_with(['+', '~', '&']);
    let rights: Vec<&str> = rights.into_iter().filter(is_right).collect();
    assert!(rights.contains(&"+spublish") && rights.contains(&"+evalsha"), "{rights:?}");
    let start = ["ACL", "SETUSER", "locks", "reset", "on", ">password"];
    for server in cluster.servers() {
        server.command(&[&start[..], &rights].concat()).await;
    }
    let connecting = || {
        let urls = cluster.servers().iter().map(|server| server.url_as("locks", "password"));
        let builder = Client::builder().cluster(urls).name_prefix("orders:").ttl(TTL);
        builder.restart_quarantine(Duration::ZERO).connect()
    };
    let [one, two] = [connecting().await, connecting().await].map(|it| it.expect("allowed"));
    let (source, target) = (cluster.master(0), cluster.master(1));
    let name = cluster.name_on(0, "orders");
    let lock = one.mutex(name.strip_prefix("orders:").expect("it begins so"));
    let guard = soon("the lock", lock.lock()).await.expect("allowed");
    let other = two.mutex(name.strip_prefix("orders:").expect("it begins so"));
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually(LIMIT, "it waits", async || crate::support::waiting(source, &name).await == 1).await;
    // With ASKING, too.
    let slot = slot_of(&name);
    cluster.open(slot, source, target).await;
    cluster.migrate_all(slot, source, target).await;
    soon("unlocking", guard.unlock()).await.expect("allowed");
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
    let guard = soon("its turn", waiting).await.expect("no panic").expect("allowed");
    soon("unlocking", guard.unlock()).await.expect("held");
    is_idle(&one).await;

    for server in cluster.servers() {
        server.command(&["ACL", "SETUSER", "locks", "-spublish"]).await;
    }
    let denied = connecting().await.expect_err("it may not tell releases");
    assert!(matches!(&denied, Error::Denied { what, .. } if &**what == "spublish"), "{denied:?}");
}
