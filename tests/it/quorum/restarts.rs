//! Delayed restart: a server that may have forgotten its locks grants none that count for a while.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{Client, ClientBuilder, Error, Guard, NodeState};

use super::deployment::{
    MS, Masters, Ways, all_up, connected, failures, names_just, seasoned, states_become,
};
use crate::{
    checks::{AT_ONCE, LIMIT, soon},
    support::{Outage, Server, eventually},
};

use NodeState::{Down, Quarantined, Up};

const QUARANTINE: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(1);

fn careful(builder: ClientBuilder) -> ClientBuilder {
    builder.restart_quarantine(QUARANTINE).ttl(TTL)
}

/// A holds {0, 1, 2} of five, for it cannot reach the others, and 2 forgets it.
async fn forgotten_by_one(
    masters: &Masters,
    settings: fn(ClientBuilder) -> ClientBuilder,
) -> (Ways, Client, Guard, Client) {
    let ways = masters.ways().await;
    let a = connected(settings(ways.builder())).await;
    let b = connected(settings(masters.builder())).await;
    ways.close(&[3, 4], true);
    states_become(&a, &[Up, Up, Up, Down, Down]).await;
    // Not renewed, and so not put back where it is missing: then there would be nothing to see.
    let guard = a.mutex("n").with_lease(QUARANTINE).lock().await.expect("three of five");
    masters.are_held("n", &[0, 1, 2]).await;
    let before = b.nodes()[2].run_id.clone();
    masters.0[2].kill();
    masters.0[2].restart().await;
    let met = async || b.nodes()[2].run_id != before && b.nodes()[2].state != Down;
    eventually(LIMIT, "it is met again", met).await;
    (ways, a, guard, b)
}

#[tokio::test]
async fn a_lock_that_a_restarted_server_forgot_is_not_given_again() {
    let masters = Masters::seasoned(5, QUARANTINE).await;
    let (_ways, a, guard, b) = forgotten_by_one(&masters, careful).await;
    assert_eq!(b.nodes()[2].state, Quarantined);
    let mut refusals = 0;
    while guard.is_held() {
        // Two of five say that it is held, two are free, and the fifth does not count.
        let answer = b.mutex("n").lock_with_timeout(100 * MS).await;
        assert!(!guard.is_held() || answer.is_err(), "held twice");
        refusals += usize::from(matches!(answer, Err(Error::Timeout { .. })));
    }
    assert!(refusals > 1, "it was refused, and not only unavailable");
    drop((guard, a));
    let guard = b.mutex("n").lock_with_timeout(LIMIT).await.expect("its time is over");
    guard.unlock().await.expect("held");
}

/// The negative control of the test above.
#[tokio::test]
async fn without_quarantine_it_is_given_again() {
    let masters = Masters::start(5).await;
    let (_ways, _a, guard, b) = forgotten_by_one(&masters, |builder| builder).await;
    assert_eq!(b.nodes()[2].state, Up);
    let again = b.mutex("n").lock_with_timeout(LIMIT).await.expect("three of five");
    assert!(guard.is_held() && again.is_held(), "held twice");
    masters.are_held("n", &[0, 1, 2, 3, 4]).await;
}

#[tokio::test]
async fn servers_that_have_just_started_are_not_trusted_until_their_time_is_over() {
    let masters = Masters::start(3).await;
    let client = careful(masters.builder()).connect().await.expect("they are there");
    states_become(&client, &[Quarantined; 3]).await;
    let nodes = client.nodes();
    for node in &nodes {
        let until = node.quarantined_until.expect("until when");
        assert!(until > SystemTime::now() && until < SystemTime::now() + QUARANTINE + 1100 * MS);
    }
    let lock = client.mutex("n");
    for timeout in [Duration::ZERO, 300 * MS] {
        let began_at = Instant::now();
        let answer = lock.lock_with_timeout(timeout).await;
        assert!(began_at.elapsed() >= timeout, "it waits for as long as it may");
        for (_, said) in failures(answer.as_ref().map_err(Clone::clone)) {
            assert!(said.contains("restarted"), "{said}");
        }
        names_just(answer, &masters.urls());
    }
    // At most a second more than the quarantine, for servers count in whole seconds.
    let waiting = tokio::spawn(lock.lock());
    all_up(&client).await;
    for (node, before) in client.nodes().iter().zip(nodes) {
        assert_eq!(node.quarantined_until, None);
        let until = before.quarantined_until.expect("seen above");
        assert!(SystemTime::now() >= until - 5 * MS, "not before its time");
    }
    let guard = soon("its wait ends with the quarantine", waiting).await.expect("no panic");
    guard.expect("trusted").unlock().await.expect("held");
}

/// Two of three restart at once: no majority can grant, until they can.
#[tokio::test]
async fn a_majority_in_quarantine_is_named_with_its_time() {
    let masters = Masters::seasoned(3, QUARANTINE).await;
    let client = connected(careful(masters.builder())).await;
    let test = async |outage: &Outage<'_>| {
        let guard = client.mutex("held").lock().await.expect("free");
        masters.are_held("held", &[0, 1, 2]).await;
        // Both are away before one is back: else a renewal in between puts the lock back on that one, and it is kept.
        outage.begins();
        outage.ends().await;
        states_become(&client, &[Up, Quarantined, Quarantined]).await;
        let answer = client.mutex("n").lock_with_timeout(Duration::ZERO).await;
        let waiting = tokio::spawn(client.mutex("n").lock());
        for (_, said) in failures(answer.as_ref().map_err(Clone::clone)) {
            assert!(said.contains("restarted"), "{said}");
        }
        names_just(answer, &masters.urls()[1..]);
        // Two of three forgot it.
        soon("it is told", guard.lost()).await;
        assert!(!waiting.is_finished(), "nothing is granted yet");
        let guard = soon("the quarantine ends", waiting).await.expect("no panic").expect("trusted");
        guard.unlock().await.expect("held");
        all_up(&client).await;
    };
    Outage::killed(&masters.0[1..]).twice(test).await;
}

/// Server 0 has a key without an end, 1 is free, and 2 comes out of its quarantine: only that can wake a waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_quarantine_wakes_those_who_wait() {
    let masters = Masters::seasoned(3, TTL).await;
    // Shorter than the pause between two polls.
    let client = connected(masters.builder().ttl(TTL).restart_quarantine(TTL)).await;
    masters.0[0].command(&["HSET", "n", "somebody", "1"]).await;
    masters.0[2].kill();
    masters.0[2].restart().await;
    states_become(&client, &[Up, Up, Quarantined]).await;
    let until = client.nodes()[2].quarantined_until.expect("seen just now");
    let refused = client.mutex("n").try_lock().await.expect("an answer, not a failure");
    assert!(refused.is_none());
    let guard = client.mutex("n").lock_with_timeout(LIMIT).await.expect("two of three");
    let late = SystemTime::now().duration_since(until + 5 * MS).unwrap_or_default();
    assert!(late < masters.widened(150 * MS), "{late:?} after its end");
    assert!(SystemTime::now() >= until - 5 * MS, "before its end");
    guard.unlock().await.expect("held");
}

/// With data that is kept a lock outlives its servers' restarts, and their grants count a quarantine later.
#[tokio::test]
async fn a_lock_outlives_restarts_of_servers_that_keep_their_data() {
    let masters = Masters::keeping(3).await;
    for server in &masters.0 {
        seasoned(server, QUARANTINE).await;
    }
    let client = connected(careful(masters.builder())).await;
    let guard = client.mutex("n").lock().await.expect("trusted");
    masters.are_held("n", &[0, 1, 2]).await;
    for server in &masters.0[..2] {
        server.kill();
        server.restart().await;
    }
    states_become(&client, &[Quarantined, Quarantined, Up]).await;
    all_up(&client).await;
    assert!(guard.is_held());
    masters.are_held("n", &[0, 1, 2]).await;
    guard.unlock().await.expect("held");
    client.mutex("n").lock().await.expect("trusted").unlock().await.expect("held");
}

/// A promoted replica has another id, and has been up for long.
#[tokio::test]
async fn another_server_at_a_nodes_address_is_not_trusted_however_long_it_has_been_up() {
    let masters = Masters::seasoned(3, QUARANTINE).await;
    let (keeping, forgetting) = tokio::join!(
        Server::with(&["--appendonly", "yes", "--appendfsync", "always"]),
        Server::start(),
    );
    seasoned(&forgetting, QUARANTINE).await;
    seasoned(&keeping, QUARANTINE).await;
    for promoted in [&forgetting, &keeping] {
        let ways = masters.ways().await;
        let client = connected(careful(ways.builder())).await;
        client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
        let met_at = SystemTime::now();
        ways.0[1].lead_to(promoted.port());
        states_become(&client, &[Up, Quarantined, Up]).await;
        let until = client.nodes()[1].quarantined_until.expect("seen just now");
        assert!(until >= met_at + QUARANTINE - 5 * MS, "in full");
        all_up(&client).await;
        assert!(SystemTime::now() >= until - 5 * MS, "not before its time");
    }
}

#[tokio::test]
async fn one_server_alone_can_have_a_quarantine_too() {
    let server = Server::start().await;
    seasoned(&server, QUARANTINE).await;
    let builder = || Client::builder().nodes([server.url()]).ttl(TTL);
    let off = builder().connect().await.expect("connected");
    let on = builder().restart_quarantine(QUARANTINE).connect().await.expect("connected");
    let guard = on.mutex("n").lock().await.expect("up for long enough");
    server.kill();
    server.restart().await;
    states_become(&on, &[Quarantined]).await;
    states_become(&off, &[Up]).await;
    let began_at = Instant::now();
    let answer = on.mutex("other").try_lock().await;
    names_just(answer.map(|guard| guard.expect("free")), &[server.url()]);
    assert!(began_at.elapsed() < AT_ONCE);
    off.mutex("other").lock().await.expect("not asked for").unlock().await.expect("held");
    eventually(LIMIT, "it is put back", async || on.stats().reclaimed == 1).await;
    assert!(guard.is_held());
    guard.unlock().await.expect("held");
    let waited = soon("it is trusted", on.mutex("n").lock()).await.expect("it waits for that");
    assert_eq!(on.nodes()[0].state, Up);
    waited.unlock().await.expect("held");
}

#[tokio::test]
async fn no_lease_may_be_longer_than_the_quarantine() {
    let masters = Masters::start(3).await;
    let invalid = |answer: Result<Guard, Error>| match answer {
        Err(Error::InvalidConfig { problem, .. }) => {
            assert!(problem.contains("restart_quarantine"), "{problem}");
        }
        other => panic!("{other:?}"),
    };
    let answer = masters.builder().restart_quarantine(QUARANTINE).connect().await;
    assert!(matches!(answer, Err(Error::InvalidConfig { .. })), "a ttl of 30 s: {answer:?}");
    let client = careful(masters.builder()).connect().await.expect("connected");
    let lock = client.mutex("n");
    invalid(lock.with_lease(QUARANTINE + MS).lock().await);
    invalid(lock.with_ttl(QUARANTINE + MS).lock().await);
    all_up(&client).await;
    let guard = lock.with_lease(QUARANTINE).lock().await.expect("as long as it");
    let answer = guard.extend(QUARANTINE + MS).await;
    assert!(matches!(answer, Err(Error::InvalidArgument { .. })), "{answer:?}");
    guard.extend(QUARANTINE).await.expect("as long as it");
    // Over several servers it is on unless it is turned off.
    let answer = Client::builder().nodes(masters.urls()).ttl(61_000 * MS).connect().await;
    assert!(matches!(answer, Err(Error::InvalidConfig { .. })), "{answer:?}");
}

/// The first grants, and that does not count; the second answers that this is no lock.
#[tokio::test]
async fn causes_of_both_kinds_are_named_in_the_order_of_the_servers() {
    let masters = Masters::seasoned(3, QUARANTINE).await;
    let ways = masters.ways().await;
    let client = connected(careful(ways.builder())).await;
    masters.0[1].command(&["SET", "n", "no lock"]).await;
    masters.0[0].kill();
    masters.0[0].restart().await;
    states_become(&client, &[Quarantined, Up, Up]).await;
    // The grant is there before the others' answers.
    ways.0[1..].iter().for_each(|way| way.delay_replies(40 * MS));
    let said = failures(client.mutex("n").try_lock().await);
    let named: Vec<&String> = said.iter().map(|(node, _)| node).collect();
    assert_eq!(named, ways.urls()[..2].iter().collect::<Vec<_>>(), "{said:?}");
    assert!(said[0].1.contains("do not count"), "{said:?}");
}
