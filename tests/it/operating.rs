//! What `docs/operating.md` tells operators, tried: passwords that change, and an address that leads to another server.

use std::time::{Duration, Instant};

use leasehold::{Client, NodeState};

use crate::{
    checks::{LIMIT, nothing_left, soon},
    support::{Proxy, Server, eventually},
};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_password_is_changed_without_an_error_while_the_user_has_both() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let user = ["ACL", "SETUSER", "locks", "on", "~*", "&*", "+@all"];
    server.command(&[&user[..], &[">old"]].concat()).await;
    let url = |password: &str| format!("redis://locks:{password}@127.0.0.1:{}", proxy.port());
    let builder = |password: &str| Client::builder().nodes([url(password)]).ttl(TTL);
    let client = builder("old").connect().await.expect("the password is right");
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");

    server.command(&["ACL", "SETUSER", "locks", ">new"]).await;
    let renewed = builder("new").connect().await.expect("it has both passwords");
    let before = client.stats().connections_made;
    proxy.cut();
    let again = async || client.stats().connections_made > before && client.is_ready();
    eventually(LIMIT, "the old one connects again, too", again).await;

    // What is connected stays so. A new connection is refused, and says why.
    server.command(&["ACL", "SETUSER", "locks", "<old"]).await;
    let other = client.mutex("other");
    soon("a lock", other.lock()).await.expect("free").unlock().await.expect("held");
    guard.unlock().await.expect("held");
    proxy.cut();
    let mut why = None;
    eventually(LIMIT, "it is refused", async || {
        let node = client.nodes().remove(0);
        why = node.last_error;
        node.state == NodeState::Down && why.as_deref().is_some_and(|why| why.contains("password"))
    })
    .await;
    let guard = soon("the lock", renewed.mutex("n").lock()).await.expect("free");
    guard.unlock().await.expect("held");
    nothing_left(&server, &renewed).await;
}

/// The address leads to another master. The client holds a lock and asks for nothing, so only renewals tell it.
#[tokio::test]
async fn a_holder_notices_that_its_address_leads_elsewhere_with_its_next_renewal_at_the_latest() {
    type Cause = fn(&Server, &Proxy);
    // The old server ends its connections, or is not heard of any more.
    let causes: [(&str, Cause, Duration); 2] = [
        ("closed", |_, proxy| proxy.cut(), Duration::from_secs(1)),
        ("silent", |server, _| server.pause(), TTL / 3 + Duration::from_secs(2)),
    ];
    for (what, cause, limit) in causes {
        let (old, new) = (Server::start().await, Server::start().await);
        let proxy = Proxy::start(old.port()).await;
        let builder = Client::builder().nodes([proxy.url()]).ttl(TTL);
        let client = builder.connect().await.expect("it accepts the client");
        let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
        proxy.lead_new_ones_to(new.port());
        let since = Instant::now();
        cause(&old, &proxy);
        soon("it is told", guard.lost()).await;
        let took = since.elapsed();
        assert!(took < new.widened(limit), "{what}: {took:?}");
        println!("an address that leads elsewhere, old server {what}: told after {took:?}");
    }
}
