//! Clients that name different masters, and operators who change them.

use std::time::Duration;

use leasehold::{Client, ClientBuilder, Error, FindingKind, NodeState};

use super::deployment::{MS, Masters, all_up, connected, states_become};
use crate::{
    checks::{LIMIT, connect, exists, soon},
    support::{Server, eventually},
};

const KEY: &str = "leasehold_masters";

/// A client to be of these servers, which have no name but their addresses.
fn naming(urls: impl IntoIterator<Item = String>) -> ClientBuilder {
    Client::builder().nodes(urls).restart_quarantine(Duration::ZERO).response_timeout(300 * MS)
}

impl Masters {
    /// A client to be of some of the servers.
    fn some(&self, which: &[usize]) -> ClientBuilder {
        naming(which.iter().map(|index| self.0[*index].url()))
    }

    /// The list of some of the servers, as an operator types it.
    fn list(&self, which: &[usize]) -> String {
        let addresses: Vec<String> =
            which.iter().map(|index| format!("127.0.0.1:{}", self.0[*index].port())).collect();
        addresses.join(" ")
    }

    /// Types the same command on some of the servers.
    async fn type_on(&self, which: &[usize], words: &[&str]) {
        for index in which {
            self.0[*index].command(words).await;
        }
    }

    /// What a server keeps.
    async fn kept(&self, index: usize) -> Option<String> {
        let kept = self.0[index].command(&["GET", KEY]).await;
        redis::from_redis_value(kept).expect("a text or nothing")
    }
}

/// The sentence with which a client is refused.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(error @ Error::InvalidConfig { .. }) => error.to_string(),
        other => panic!("it is not refused: {other:?}"),
    }
}

async fn locks(client: &Client) {
    let guard = soon("a lock", client.mutex("n").lock()).await.expect("free");
    guard.unlock().await.expect("held");
}

/// The holder has its lock from two of three, and a client that names one of these and two others might have it, too.
#[tokio::test]
async fn a_client_that_names_other_masters_is_refused_and_told_what_to_do() {
    let masters = Masters::start(5).await;
    let slow = masters.ways().await.0.remove(1);
    let url = |index: usize| if index == 1 { slow.url() } else { masters.0[index].url() };
    let some = |which: &[usize]| naming(which.iter().map(|index| url(*index)).collect::<Vec<_>>());
    let holder = connected(some(&[0, 1, 2])).await;
    slow.delay_replies(500 * MS);
    let guard = holder.mutex("n").lock().await.expect("two of three");
    for which in [&[0, 1, 3][..], &[0, 1, 2, 3, 4], &[4, 2, 0, 3]] {
        let told = refused(some(which).connect().await);
        for part in [url(0), url(2), url(3)].iter().map(|url| url.trim_start_matches("redis://")) {
            assert!(told.contains(part), "{told}");
        }
        assert!(told.contains("SET leasehold_masters '127.0.0.1:"), "{told}");
        assert!(told.contains("docs/deployments.md") && told.contains("masters_name"), "{told}");
    }
    assert!(guard.is_held());
    // The order does not matter.
    let same = some(&[2, 0, 1]).connect().await.expect("the same servers");
    slow.delay_replies(Duration::ZERO);
    guard.unlock().await.expect("held");
    locks(&same).await;
}

/// Two of three are others, which are a majority.
#[tokio::test]
async fn a_client_that_shares_one_server_only_is_refused_as_soon_as_that_has_answered() {
    let masters = Masters::start(5).await;
    let holder = connected(masters.some(&[0, 1, 2])).await;
    let guard = holder.mutex("n").lock().await.expect("free");
    let is_refused = async || match masters.some(&[0, 3, 4]).connect().await {
        Ok(client) => {
            states_become(&client, &[NodeState::OtherMasters, NodeState::Up, NodeState::Up]).await;
            assert!(!client.is_ready());
            let findings = client.check().await.expect("a majority answers");
            let others = |kind: &FindingKind| matches!(kind, FindingKind::OtherMasters { .. });
            assert!(findings.iter().any(|finding| others(&finding.kind)), "{findings:?}");
            let waiting = refused(soon("an answer", client.mutex("n").lock()).await);
            waiting == refused(client.mutex("m").try_lock().await)
        }
        answer => !refused(answer).is_empty(),
    };
    assert!(is_refused().await);
    // They keep other lists now, but the first has the lock.
    assert!(guard.is_held() && is_refused().await);
    let told = match masters.some(&[0, 3, 4]).connect().await {
        // The others were a majority before that one had answered.
        Ok(client) => refused(soon("an answer", client.mutex("n").lock()).await),
        answer => refused(answer),
    };
    assert!(told.contains("127.0.0.1"), "both lists are named: {told}");
}

#[tokio::test]
async fn masters_with_a_name_are_compared_by_name_and_number() {
    let masters = Masters::start(5).await;
    let ways = masters.ways().await;
    let first = connected(masters.some(&[0, 1, 2]).masters_name("locks-eu")).await;
    let urls = || ways.urls().into_iter().take(3);
    let second = connected(naming(urls()).masters_name("locks-eu")).await;
    locks(&first).await;
    locks(&second).await;
    assert_eq!(masters.kept(1).await.as_deref(), Some("locks-eu/3"));
    for builder in [
        naming(urls()).masters_name("locks-us"),
        naming(ways.urls()).masters_name("locks-eu"),
        naming(urls()),
    ] {
        assert!(refused(builder.connect().await).contains("locks-eu/3"));
    }
    for name in ["", "a b", "a/3"] {
        let answer = naming(urls()).masters_name(name).connect().await;
        assert!(matches!(answer, Err(Error::InvalidName { .. })), "{answer:?}");
    }
    let alone = Client::builder().nodes([masters.0[0].url()]).masters_name("a").connect().await;
    assert!(refused(alone).contains("masters_name"));
}

/// Clients with another prefix have other locks.
#[tokio::test]
async fn each_prefix_has_a_list_of_its_own_and_one_server_has_none() {
    let masters = Masters::start(4).await;
    let shop = connected(masters.some(&[0, 1, 2]).name_prefix("shop:")).await;
    let news = connected(masters.some(&[1, 2, 3]).name_prefix("news:")).await;
    locks(&shop).await;
    locks(&news).await;
    for key in ["leasehold_masters:{shop:}", "leasehold_masters:{news:}"] {
        assert!(exists(&masters.0[1], key).await, "{key}");
    }
    refused(masters.some(&[1, 2, 3]).name_prefix("shop:").connect().await);
    let server = Server::start().await;
    let alone = connect(&server).await;
    locks(&alone).await;
    assert!(!exists(&server, KEY).await);
}

/// What clients have seen there they write back at once. A stranger waits until its grants would count.
#[tokio::test]
async fn a_server_that_lost_its_list_gets_it_back_before_a_stranger_writes_another() {
    const QUARANTINE: Duration = Duration::from_secs(2);
    let masters = Masters::start(4).await;
    let builder = |which: &[usize], name: &str| {
        let builder = masters.some(which).masters_name(name).ttl(Duration::from_secs(1));
        builder.restart_quarantine(QUARANTINE)
    };
    let first = builder(&[0, 1, 2], "first").connect().await.expect("connected");
    let ready = async || first.is_ready();
    eventually(LIMIT, "its quarantine is over", ready).await;
    all_up(&first).await;
    locks(&first).await;
    let kept = async || masters.kept(2).await.as_deref() == Some("first/3");
    eventually(LIMIT, "the first grant has written the list", kept).await;
    // The answer to the first one may not have been read any more.
    let second = builder(&[0, 1, 2], "first").connect().await.expect("connected");
    all_up(&second).await;
    masters.0[2].kill();
    masters.0[2].restart().await;
    let began_at = std::time::Instant::now();
    eventually(LIMIT, "it is written back", kept).await;
    assert!(began_at.elapsed() < QUARANTINE, "{:?}", began_at.elapsed());

    masters.0[2].kill();
    masters.0[0].kill();
    // A client that is shut down keeps its connections until it is dropped.
    for client in [first, second] {
        client.shutdown().await;
        drop(client);
    }
    masters.0[2].restart().await;
    let stranger = builder(&[2, 3, 1], "stranger").restart_quarantine(60 * QUARANTINE);
    let stranger = stranger.connect().await;
    let told = match stranger {
        Ok(stranger) => refused(soon("an answer", stranger.mutex("n").lock()).await),
        answer => refused(answer),
    };
    assert!(told.contains("first/3"), "{told}");
    assert_eq!(masters.kept(2).await, None, "its grants do not count yet");
}

#[tokio::test]
async fn servers_that_were_flushed_get_their_list_back_with_the_next_grant() {
    let masters = Masters::start(3).await;
    let client = connected(masters.some(&[0, 1, 2])).await;
    locks(&client).await;
    masters.type_on(&[0, 1, 2], &["FLUSHALL"]).await;
    locks(&client).await;
    // Where the others are faster, the answer of the last one is not waited for.
    let all = async || {
        drop(client.mutex("n").try_lock().await);
        let kept = [masters.kept(0).await, masters.kept(1).await, masters.kept(2).await];
        kept.iter().flatten().count() == 3
    };
    all_up(&client).await;
    locks(&client).await;
    eventually(LIMIT, "all keep it again", all).await;
}

#[tokio::test]
async fn a_user_without_the_right_to_the_list_takes_locks_and_is_reported() {
    let masters = Masters::start(3).await;
    let rules = ["on", ">pw", "+@all", "&*", "~n", "~leasehold_token:*", "~leasehold_mark"];
    masters.type_on(&[0, 1, 2], &[&["ACL", "SETUSER", "u"][..], &rules].concat()).await;
    let urls = masters.0.iter().map(|server| server.url_as("u", "pw"));
    let client = connected(naming(urls)).await;
    locks(&client).await;
    let findings = client.check().await.expect("answers");
    let told = findings.iter().filter(|it| matches!(it.kind, FindingKind::MastersRefused { .. }));
    assert_eq!(told.count(), 3, "{findings:?}");
}

/// The list is read behind each grant, so a client that an operator forgot takes no lock any more.
#[tokio::test]
async fn a_list_that_is_changed_stops_those_who_run_with_the_old_one_until_it_is_changed_back() {
    let masters = Masters::start(4).await;
    let client = connected(masters.some(&[0, 1, 2])).await;
    locks(&client).await;
    let [old, new] = [masters.list(&[0, 1, 2]), masters.list(&[0, 1, 3])];
    masters.type_on(&[0, 1, 3], &["SET", KEY, &new]).await;
    let answer = client.mutex("n").try_lock().await;
    assert!(!matches!(answer, Ok(Some(_))), "two of its three servers have another list");
    states_become(&client, &[NodeState::OtherMasters, NodeState::OtherMasters, NodeState::Up])
        .await;
    let told = refused(client.mutex("n").try_lock().await);
    assert!(told.contains(&new), "{told}");
    masters.type_on(&[0, 1, 3], &["SET", KEY, &old]).await;
    all_up(&client).await;
    locks(&client).await;
}

#[tokio::test]
async fn what_a_server_says_of_its_masters_holds_while_it_is_away() {
    let masters = Masters::start(3).await;
    let client = connected(masters.some(&[0, 1, 2])).await;
    masters.type_on(&[0], &["SET", KEY, "a b c"]).await;
    // Where the others are faster, its answer is not waited for.
    let is_refused = async || {
        drop(client.mutex("n").try_lock().await);
        client.nodes()[0].state == NodeState::OtherMasters
    };
    eventually(LIMIT, "it is heard", is_refused).await;
    masters.0[0].kill();
    // It is tried again once a second.
    for _ in 0..4 {
        assert!(refused(client.mutex("n").try_lock().await).contains("`a b c`"));
        tokio::time::sleep(400 * MS).await;
    }
    masters.0[0].restart().await;
    all_up(&client).await;
    locks(&client).await;
}

/// Each lock has its majority, and is over, before the answer comes.
#[tokio::test]
async fn a_master_that_always_answers_last_is_heard_when_its_list_is_changed() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(naming(ways.urls())).await;
    locks(&client).await;
    ways.0[0].delay_replies(100 * MS);
    masters.type_on(&[0], &["SET", KEY, "a b c"]).await;
    locks(&client).await;
    states_become(&client, &[NodeState::OtherMasters, NodeState::Up, NodeState::Up]).await;
    assert!(refused(client.mutex("n").try_lock().await).contains("`a b c`"));
}

/// Docs: "To change the masters", one server at a time.
#[tokio::test]
async fn an_operator_replaces_a_master_and_nobody_waits() {
    let masters = Masters::start(4).await;
    let old = connected(masters.some(&[0, 1, 2])).await;
    let guard = old.mutex("held").lock().await.expect("free");
    let token = guard.token();
    let [abc, abcd, abd] = [&[0, 1, 2][..], &[0, 1, 2, 3], &[0, 1, 3]];

    // From three to four.
    let both = format!("{} | {}", masters.list(abc), masters.list(abcd));
    masters.type_on(abcd, &["SET", KEY, &both]).await;
    let between = connected(masters.some(abcd)).await;
    for client in [&between, &old] {
        locks(client).await;
    }
    assert!(between.mutex("held").try_lock().await.expect("an answer").is_none());
    guard.unlock().await.expect("it was held all the time");
    old.shutdown().await;
    masters.type_on(abcd, &["SET", KEY, &masters.list(abcd)]).await;
    refused(masters.some(abc).connect().await);

    // From four to the new three.
    let both = format!("{} | {}", masters.list(abcd), masters.list(abd));
    masters.type_on(abcd, &["SET", KEY, &both]).await;
    let new = connected(masters.some(abd)).await;
    for client in [&new, &between] {
        locks(client).await;
    }
    between.shutdown().await;
    masters.type_on(abd, &["SET", KEY, &masters.list(abd)]).await;
    let guard = new.mutex("held").lock().await.expect("free");
    assert!(guard.token() > token, "{} after {token}", guard.token());
    masters.0[2].kill();
    refused(masters.some(abcd).connect().await);
    guard.unlock().await.expect("held");
}

/// Docs: "To change the masters": a client that took no lock since gives the server back the list that it saw there.
#[tokio::test]
async fn a_server_that_forgets_while_the_masters_change_is_told_the_list_again() {
    let masters = Masters::start(4).await;
    let [abc, abcd] = [&[0, 1, 2][..], &[0, 1, 2, 3]];
    let idle = connected(masters.some(abc)).await;
    locks(&idle).await;
    let both = format!("{} | {}", masters.list(abc), masters.list(abcd));
    masters.type_on(abcd, &["SET", KEY, &both]).await;
    masters.0[2].kill();
    masters.0[2].restart().await;
    let old = async || masters.kept(2).await == Some(masters.list(abc));
    eventually(LIMIT, "it gets the list before back", old).await;
    let told = match masters.some(abcd).connect().await {
        // The others were a majority before that one had answered.
        Ok(client) => refused(soon("an answer", client.mutex("n").lock()).await),
        answer => refused(answer),
    };
    assert!(told.contains(&masters.0[2].port().to_string()), "{told}");
    masters.type_on(&[2], &["SET", KEY, &both]).await;
    let new = connected(masters.some(abcd)).await;
    for client in [&new, &idle] {
        locks(client).await;
    }
}

/// Docs: "To change the masters", one server at a time.
#[tokio::test]
async fn an_operator_grows_from_three_to_five_by_way_of_four() {
    let masters = Masters::start(5).await;
    let mut client = connected(masters.some(&[0, 1, 2])).await;
    locks(&client).await;
    for count in [4, 5] {
        let all: Vec<usize> = (0..count).collect();
        let new = masters.list(&all);
        let both = format!("{} | {new}", masters.list(&all[..count - 1]));
        masters.type_on(&all, &["SET", KEY, &both]).await;
        let next = connected(masters.some(&all)).await;
        locks(&client).await;
        locks(&next).await;
        client.shutdown().await;
        masters.type_on(&all, &["SET", KEY, &new]).await;
        client = next;
    }
    masters.0[0].kill();
    masters.0[1].kill();
    locks(&client).await;
}

/// Docs: "To change the masters", all at once.
#[tokio::test]
async fn an_operator_stops_all_clients_and_changes_two_masters() {
    let masters = Masters::start(5).await;
    let old = connected(masters.some(&[0, 1, 2])).await;
    locks(&old).await;
    let both = format!("{} | {}", masters.list(&[0, 1, 2]), masters.list(&[0, 3, 4]));
    masters.type_on(&[0, 1, 2, 3, 4], &["SET", KEY, &both]).await;
    let told = refused(masters.some(&[0, 3, 4]).connect().await);
    assert!(told.contains("one server at a time"), "{told}");
    let answer = old.mutex("n").try_lock().await;
    assert!(!matches!(answer, Ok(Some(_))), "so do those that run: {answer:?}");
    old.shutdown().await;
    masters.type_on(&[0, 1, 2, 3, 4], &["SET", KEY, &masters.list(&[0, 3, 4])]).await;
    locks(&connected(masters.some(&[0, 3, 4])).await).await;
}

/// Docs: "To replace a master", with the address.
#[tokio::test]
async fn an_operator_replaces_a_server_behind_its_address() {
    let masters = Masters::start(4).await;
    let ways = masters.ways().await;
    let urls = || ways.urls().into_iter().take(3);
    let client = connected(naming(urls())).await;
    let guard = client.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
    masters.0[2].kill();
    ways.0[2].lead_to(masters.0[3].port());
    all_up(&client).await;
    eventually(LIMIT, "it is put back", async || exists(&masters.0[3], "n").await).await;
    assert_eq!(masters.kept(3).await, masters.kept(0).await);
    connected(naming(urls())).await;
    assert!(guard.is_held());
    guard.unlock().await.expect("held");
}
