//! Real processes that wait for each other: the one whose hold is the youngest is told, and no other.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, FindingKind, Owner};
use redis::Value;

use crate::{
    checks::{LIMIT, setup, soon},
    support::{Cluster, Deployment, Server, Worker, eventually, slot_of, waiting},
};

/// Processes that each hold the first of some names, and wait for the last.
struct Nests(Vec<Worker>);

impl Nests {
    /// In this order they take what they hold.
    fn start(servers: &str, all: &[(&str, &str)]) -> Self {
        let nests = all.iter().map(|(how, names)| {
            let mut worker = Worker::start();
            worker.tell(&format!("nest {servers} {how} {names}"));
            assert_eq!(worker.answer(), ["held"], "{names}");
            worker
        });
        Self(nests.collect())
    }

    fn ends(&mut self) -> Vec<String> {
        self.0.iter_mut().map(|worker| worker.answer().join(" ")).collect()
    }
}

fn nodes(server: &Server) -> String {
    format!("nodes:{}", server.url())
}

/// How many notes are beside a lock.
async fn notes(server: &Server, lock: &str) -> i64 {
    match server.command(&["HLEN", &format!("leasehold_wait:{{{lock}}}")]).await {
        Value::Int(count) => count,
        other => panic!("not a number: {other:?}"),
    }
}

async fn noted(server: &Server, locks: &[&str], count: i64) {
    for lock in locks {
        eventually(LIMIT, "the wait of the holder is noted", async || {
            notes(server, lock).await == count
        })
        .await;
    }
}

async fn nothing_is_noted(server: &Server) {
    eventually(LIMIT, "no note is left", async || {
        matches!(server.command(&["KEYS", "leasehold_wait:*"]).await, Value::Array(keys) if keys.is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_the_younger_fails_and_the_other_goes_on() {
    let server = Server::start().await;
    for how in ["thread", "task"] {
        let mut nests = Nests::start(&nodes(&server), &[(how, "a b"), (how, "b a")]);
        assert_eq!(nests.ends(), ["got", "deadlock b>a a>b"], "{how}");
        nothing_is_noted(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_the_youngest_fails_and_the_others_go_on_also_past_one_that_waits_behind() {
    let server = Server::start().await;
    let mut nests = Nests::start(
        &nodes(&server),
        &[("task", "c a"), ("thread", "d c"), ("task", "a x b"), ("task", "b c")],
    );
    assert_eq!(nests.ends(), ["got", "got", "got", "deadlock b>c c>a a>b"]);
    nothing_is_noted(&server).await;
}

/// Readers: each of them is in the writer's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_behind_a_reader_that_waits_for_it() {
    let server = Server::start().await;
    let all = [("task", "r/l a"), ("task", "a w/l")];
    let mut nests = Nests::start(&nodes(&server), &all);
    assert_eq!(nests.ends(), ["got", "deadlock a>l l>a"]);
    nothing_is_noted(&server).await;
}

/// They share a lease, and only the second of them waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_behind_two_readers_of_a_process_of_which_one_waits_for_it() {
    let (server, [client]) = setup().await;
    let (lock, owner) = (client.rw_lock("l"), client.owner());
    let first = tokio::spawn(lock.read()).await.expect("no panic").expect("free");
    let second = lock.owned_by(&owner).read().await.expect("they share");
    let mut nests = Nests::start(&nodes(&server), &[("task", "a w/l")]);
    let waiting = tokio::spawn(client.mutex("a").owned_by(&owner).lock());
    let guard = soon("the other one gives way", waiting).await.expect("no panic").expect("freed");
    assert_eq!(nests.ends(), ["deadlock a>l l>a"]);
    guard.unlock().await.expect("held");
    second.unlock().await.expect("held");
    first.unlock().await.expect("held");
    nothing_is_noted(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_over_several_masters_and_with_sentinels() {
    let cluster = Cluster::start().await;
    let masters = [Server::start().await, Server::start().await, Server::start().await];
    let deployment = Deployment::start().await;
    let listed = |kind: &str, urls: Vec<String>| format!("{kind}:{}", urls.join(","));
    let sentinels = deployment.sentinels.iter().map(|sentinel| sentinel.url()).collect();
    for servers in [
        listed("cluster", cluster.urls()),
        listed("nodes", masters.iter().map(Server::url).collect()),
        listed("sentinel", sentinels),
    ] {
        let mut nests = Nests::start(&servers, &[("task", "a b"), ("thread", "b a")]);
        let ends = nests.ends();
        assert_eq!(
            ends,
            ["deadlock a>b b>a", "got"],
            "a thread fails only with threads: {servers}"
        );
        let mut nests = Nests::start(&servers, &[("thread", "a b"), ("thread", "b a")]);
        let ends = nests.ends();
        // Tokens of several masters do not follow the time, so either may be the younger one.
        let one = [["got", "deadlock b>a a>b"], ["deadlock a>b b>a", "got"]];
        assert!(one.iter().any(|one| *one == *ends), "{servers}: {ends:?}");
    }
}

/// Nothing can be noted while the lock is on one master and its notes would be on the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_is_told_once_a_slot_that_moves_has_arrived() {
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let [one, two] = ["one", "two"].map(|stem| cluster.name_on(0, stem));
    let servers = format!("cluster:{}", cluster.urls().join(","));
    let there = format!("{one} {two}");
    let mut first = Nests::start(&servers, &[("thread", &there)]);
    let slot = slot_of(&one);
    cluster.open(slot, source, target).await;
    cluster.migrate(&[&one], source, target).await;
    let back = format!("{two} {one}");
    let mut second = Nests::start(&servers, &[("thread", &back)]);
    noted(source, &[&two], 1).await;
    let noted = source.command(&["KEYS", "leasehold_wait:*"]).await;
    assert!(matches!(&noted, Value::Array(keys) if keys.len() == 1), "{noted:?}");
    let noted = target.command(&["KEYS", "leasehold_wait:*"]).await;
    assert_eq!(noted, Value::Array(Vec::new()), "the lock is there, and its notes cannot be");
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
    assert_eq!(first.ends(), ["got"]);
    assert_eq!(second.ends(), [format!("deadlock {two}>{one} {one}>{two}")]);
    nothing_is_noted(source).await;
    nothing_is_noted(target).await;
}

/// Nobody is told of a circle that one of them will leave, or has left.
/// What is over within a second costs the servers nothing, and permits are in no circle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_is_noted_after_a_second_and_not_beside_permits() {
    let (server, [client, other]) = setup().await;
    let theirs = other.mutex("theirs").lock().await.expect("free");
    let nested = tokio::spawn(async move {
        let _permit = client.semaphore("pool").with_permits(1).acquire().await?;
        let _guard = client.mutex("ours").lock().await?;
        client.mutex("theirs").lock().await.map(drop)
    });
    let began_at = Instant::now();
    eventually(LIMIT, "it waits", async || waiting(&server, "theirs").await == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let notes_by_now = notes(&server, "ours").await;
    assert!(notes_by_now == 0 || began_at.elapsed() > Duration::from_millis(900));
    noted(&server, &["ours"], 1).await;
    assert_eq!(notes(&server, "pool").await, 0);
    theirs.unlock().await.expect("held");
    nested.await.expect("no panic").expect("its turn");
    nothing_is_noted(&server).await;
}

/// It is only told. The circle may be left, and the wait be part of another one then. No wait of its client was noted before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_closes_a_circle_inside_its_process_is_noted_if_it_goes_on() {
    let (server, [one, two]) = setup().await;
    let (x, y) = (Owner::named("x"), Owner::named("y"));
    let _a = one.mutex("a").owned_by(&x).lock().await.expect("free");
    let _b = two.mutex("b").owned_by(&y).lock().await.expect("free");
    let first = tokio::spawn(two.mutex("a").owned_by(&y).lock());
    eventually(LIMIT, "it waits", async || two.stats().waiters == 1).await;
    let last = tokio::spawn(one.mutex("b").owned_by(&x).lock());
    noted(&server, &["a", "b"], 1).await;
    first.abort();
    last.abort();
    nothing_is_noted(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_with_a_limit_is_no_deadlock() {
    let server = Server::start().await;
    let all = [("task", "a b"), ("limited", "b a")];
    let mut nests = Nests::start(&nodes(&server), &all);
    assert_eq!(nests.ends(), ["got", "late"]);
    nothing_is_noted(&server).await;
}

/// Its wait is noted, and its lease is renewed by nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_is_in_no_circle_and_its_notes_end_by_themselves() {
    let server = Server::start().await;
    // It has been noted before the other one begins to wait, which closes the circle.
    let mut nests = Nests::start(&nodes(&server), &[("task", "b a"), ("task", "c b")]);
    let outside = Nests::start(&nodes(&server), &[("task", "a x")]);
    noted(&server, &["b", "c"], 1).await;
    nests.0[0].kill();
    drop(outside);
    noted(&server, &["b"], 0).await;
    // It gets the lock when the lease of the killed one has ended, which is later than its notes.
    assert_eq!(nests.0[1].answer(), ["got"]);
    nothing_is_noted(&server).await;
}

/// A stopped process says nothing, so nobody can tell that it waits still; when it goes on, it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_circle_is_told_through_a_stopped_process_before_it_goes_on() {
    let server = Server::start().await;
    let mut nests = Nests::start(&nodes(&server), &[("task", "b a"), ("task", "a b")]);
    nests.0[1].pause();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(notes(&server, "a").await, 0, "they end by themselves");
    nests.0[1].resume();
    assert_eq!(nests.ends(), ["got", "deadlock a>b b>a"]);
    nothing_is_noted(&server).await;
}

/// A user without that right has all other rights, and waits on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_note_waits_all_else_goes_on() {
    let server = Server::start().await;
    let keys = ["~NAME", "~leasehold_token:{NAME}", "~leasehold_queue:{NAME}"];
    let servers = format!("nodes:{}", with_rights(&server, &["a", "b"], &keys).await);
    let mut nests = Nests::start(&servers, &[("task", "a b"), ("limited", "b a")]);
    assert_eq!(nests.ends(), ["got", "late"]);
    nothing_is_noted(&server).await;
}

/// The URL for a user who may use such keys of these locks, and no others.
async fn with_rights(server: &Server, locks: &[&str], keys: &[&str]) -> String {
    let keys = locks.iter().flat_map(|lock| keys.iter().map(move |key| key.replace("NAME", lock)));
    let keys: Vec<String> = keys.collect();
    let mut rules = vec!["ACL", "SETUSER", "u", "on", ">p", "&*", "+@all"];
    rules.extend(keys.iter().map(String::as_str));
    server.command(&rules).await;
    server.url_as("u", "p")
}

/// The other reader is no part of the circle, and what it waits for is none of this user's business.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_that_leads_to_a_lock_without_rights_hides_no_circle() {
    let server = Server::start().await;
    let keys = [
        "~NAME",
        "~{NAME}*",
        "~leasehold_token:{NAME}",
        "~leasehold_queue:{NAME}",
        "~leasehold_rw_queue:{NAME}",
        "~leasehold_wait:{NAME}",
    ];
    let url = with_rights(&server, &["a", "l"], &keys).await;
    let other = Client::connect(&server.url()).await.expect("all rights");
    let outside = other.mutex("y").lock().await.expect("free");
    let mut readers = Nests::start(&nodes(&server), &[("task", "r/l a"), ("task", "r/l y")]);
    noted(&server, &["l"], 1).await;
    let mut writer = Nests::start(&format!("nodes:{url}"), &[("task", "a w/l")]);
    assert_eq!(writer.ends(), ["deadlock a>l l>a"]);
    assert_eq!(readers.0[0].answer(), ["got"]);
    let client = Client::connect(&url).await.expect("all that is needed");
    eventually(LIMIT, "what may be read is listed", async || {
        let parts = client.blocked(["l"]).await.expect("an answer");
        let shown = parts.iter().map(|part| format!("{}>{}", part.holds, part.waits_for));
        shown.collect::<Vec<_>>() == ["l>y"]
    })
    .await;
    let refused = client.blocked(["y"]).await;
    assert!(matches!(refused, Err(Error::Denied { .. })), "{refused:?}");
    outside.unlock().await.expect("held");
    assert_eq!(readers.0[1].answer(), ["got"]);
    nothing_is_noted(&server).await;
}

async fn is_refused(client: &Client) -> bool {
    let findings = client.check().await.expect("an answer");
    findings.iter().any(|finding| matches!(finding.kind, FindingKind::NotesRefused { .. }))
}

/// Waits until the server has refused a note. It refuses other things, too, when a client connects.
async fn refused(server: &Server) {
    eventually(LIMIT, "it was refused", async || {
        let told = server.command(&["ACL", "LOG", "100"]).await;
        format!("{told:?}").contains("leasehold_wait:")
    })
    .await;
}

/// A task of the client holds `x`, and waits for what another client holds, until `told` has ended.
async fn waits_in_vain(server: &Server, client: &Client, told: impl Future<Output = ()>) {
    let other = Client::connect(&server.url()).await.expect("all rights");
    let _a = other.mutex("a").lock().await.expect("free");
    let waiter = client.clone();
    let waiter = tokio::spawn(async move {
        let _x = waiter.mutex("x").lock().await;
        waiter.mutex("a").lock().await.map(drop)
    });
    told.await;
    waiter.abort();
}

/// What is missing is found, before it is needed and afterwards, and once it is there, so are the circles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_given_later_is_used_by_those_who_wait_already() {
    let server = Server::start().await;
    let most = ["~a", "~b", "~x", "~leasehold_token:*", "~leasehold_queue:*", "&*", "+@all"];
    server.command(&[&["ACL", "SETUSER", "u", "on", ">p"], &most[..]].concat()).await;
    let url = server.url_as("u", "p");
    let client = Client::connect(&url).await.expect("all that is needed");
    assert!(!is_refused(&client).await, "nothing is known of it");
    let held = client.mutex("x").lock().await.expect("free");
    assert!(is_refused(&client).await);
    held.unlock().await.expect("held");
    assert!(!is_refused(&client).await, "it was never needed");
    server.command(&["ACL", "LOG", "RESET"]).await;
    waits_in_vain(&server, &client, refused(&server)).await;
    eventually(LIMIT, "it is known for later", async || {
        client.holds().is_empty() && is_refused(&client).await
    })
    .await;
    let servers = format!("nodes:{url}");
    server.command(&["ACL", "LOG", "RESET"]).await;
    let mut nests = Nests::start(&servers, &[("thread", "a b"), ("thread", "b a")]);
    refused(&server).await;
    server.command(&["ACL", "SETUSER", "u", "~leasehold_wait:*"]).await;
    assert_eq!(nests.ends(), ["got", "deadlock b>a a>b"]);
    // The client tries it again by now.
    waits_in_vain(&server, &client, noted(&server, &["x"], 1)).await;
    eventually(LIMIT, "it is known that it may be done", async || {
        client.holds().is_empty() && !is_refused(&client).await
    })
    .await;
    let _held = client.mutex("x").lock().await.expect("free");
    assert!(!is_refused(&client).await);
}

/// Whoever holds one lock and waits for another, and who holds that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_lists_who_waits_for_what_from_a_lock_on() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.expect("connected");
    let nests = [("task", "c x"), ("task", "b c"), ("task", "a b")];
    let outside = client.mutex("x").lock().await.expect("free");
    let mut nests = Nests::start(&nodes(&server), &nests);
    noted(&server, &["a", "b", "c"], 1).await;
    for (from, expected) in [
        (&["a"][..], "a>b b>c c>x"),
        (&["b", "b"], "b>c c>x"),
        (&["x", "", "leasehold_wait:{a}"], ""),
    ] {
        // Under load, a note may be over before it is made again.
        let mut parts = Vec::new();
        eventually(LIMIT, "all of it is listed", async || {
            parts = client.blocked(from).await.expect("an answer");
            let shown = parts.iter().map(|part| format!("{}>{}", part.holds, part.waits_for));
            shown.collect::<Vec<_>>().join(" ") == expected
        })
        .await;
        for part in &parts {
            let status = client.mutex(&*part.holds).status().await.expect("an answer");
            assert_eq!(status.holder.as_ref().and_then(|it| it.client()), Some(&*part.client));
            assert_eq!(status.last_token, part.token);
        }
    }
    outside.unlock().await.expect("held");
    assert_eq!(nests.ends(), ["got"; 3]);
    nothing_is_noted(&server).await;
    assert_eq!(client.blocked(["a", "b", "c"]).await.expect("an answer"), []);
}
