//! Servers that forget what they granted, and do not look it.

use std::time::Duration;

use leasehold::{Client, ClientBuilder, Guard, NodeState};
use redis::Value;

use super::deployment::{MS, Masters, Ways, connected, states_become};
use crate::{
    checks::LIMIT,
    support::{Outage, Proxy, Server, eventually, subscribers},
};

use NodeState::{Down, Quarantined, Up};

const QUARANTINE: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(1);
/// Written through, as it says.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

fn careful(builder: ClientBuilder) -> ClientBuilder {
    builder.restart_quarantine(QUARANTINE).ttl(TTL)
}

/// Three servers that have been up for long, and a client that holds `n` on 0 and 1, and cannot reach 2.
struct Held {
    masters: Masters,
    _ways: Ways,
    holder: Client,
}

impl Held {
    async fn with(args: &[&str]) -> Self {
        let masters = Masters::with(3, args).await;
        for server in &masters.0 {
            super::deployment::seasoned(server, QUARANTINE).await;
        }
        let ways = masters.ways().await;
        let holder = connected(careful(ways.builder())).await;
        ways.close(&[2], true);
        states_become(&holder, &[Up, Up, Down]).await;
        Self { masters, _ways: ways, holder }
    }

    /// A client of all three.
    async fn other(&self) -> Client {
        connected(careful(self.masters.builder())).await
    }

    /// Not renewed, and so not put back where it is missing: then there would be nothing to see.
    async fn hold(&self) -> Guard {
        let lock = self.holder.mutex("n").with_lease(QUARANTINE);
        let guard = lock.lock().await.expect("two of three");
        self.masters.are_held("n", &[0, 1]).await;
        guard
    }

    /// Server 1 has forgotten the lock: while it is held `other` does not get it, and afterwards it does.
    async fn is_not_given_again(&self, guard: Guard, other: &Client) {
        assert_eq!(self.masters.which_have("n").await, [0], "server 1 has forgotten it");
        let mut asked = 0;
        while guard.is_held() {
            let answer = other.mutex("n").lock_with_timeout(100 * MS).await;
            assert!(!guard.is_held() || answer.is_err(), "held twice");
            asked += 1;
        }
        assert!(asked > 1, "it was asked for while it was held");
        let token = guard.token();
        drop(guard);
        let next = other.mutex("n").lock_with_timeout(LIMIT).await.expect("its time is over");
        assert!(next.token() > token, "{} after {token}", next.token());
        next.unlock().await.expect("held");
    }
}

/// Makes a server a replica of an empty one until it has that one's data, then a master again: in the same run.
async fn resynchronise(server: &Server) {
    let source = Server::start().await;
    source.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await;
    server.command(&["REPLICAOF", "127.0.0.1", &source.port().to_string()]).await;
    let synchronised = async || says(server, "replication", "master_link_status:up").await;
    eventually(LIMIT, "it has no data any more", synchronised).await;
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
}

async fn says(server: &Server, section: &str, what: &str) -> bool {
    let info: String =
        redis::from_redis_value(server.command(&["INFO", section]).await).expect("text");
    info.contains(what)
}

/// S1: whatever it shows at a first meeting, the run before may have kept nothing.
#[tokio::test]
async fn an_append_only_file_at_the_first_meeting_says_nothing_of_the_run_before() {
    let held = Held::with(&[]).await;
    let guard = held.hold().await;
    held.masters.0[1].kill();
    held.masters.0[1].restart_with(DURABLE).await;
    let other = careful(held.masters.builder()).connect().await.expect("a majority is there");
    states_become(&other, &[Up, Quarantined, Up]).await;
    held.is_not_given_again(guard, &other).await;
}

/// S3: what was so when the server was met need not be so when it ends.
#[tokio::test]
async fn an_append_only_file_that_was_switched_off_meanwhile_keeps_nothing() {
    let held = Held::with(DURABLE).await;
    let other = held.other().await;
    held.masters.0[1].command(&["CONFIG", "SET", "appendonly", "no"]).await;
    let guard = held.hold().await;
    held.masters.0[1].kill();
    held.masters.0[1].restart().await;
    states_become(&other, &[Up, Quarantined, Up]).await;
    held.is_not_given_again(guard, &other).await;
}

/// S4: a disk that ends with the process, as that of a container without a volume.
#[tokio::test]
async fn an_append_only_file_on_a_disk_that_is_lost_keeps_nothing() {
    let held = Held::with(DURABLE).await;
    let other = held.other().await;
    let guard = held.hold().await;
    let server = &held.masters.0[1];
    server.kill();
    std::fs::remove_dir_all(server.dir().join("appendonlydir")).expect("it had a file");
    server.restart().await;
    states_become(&other, &[Up, Quarantined, Up]).await;
    held.is_not_given_again(guard, &other).await;
}

/// S2: its connections live through it, and its run is the same.
#[tokio::test]
async fn a_server_that_was_demoted_resynchronised_and_promoted_is_not_trusted() {
    let held = Held::with(&[]).await;
    let other = held.other().await;
    let run_id = other.nodes()[1].run_id.clone();
    let guard = held.hold().await;
    resynchronise(&held.masters.0[1]).await;
    held.is_not_given_again(guard, &other).await;
    assert_eq!(other.nodes()[1].run_id, run_id, "it did not restart");
}

/// S2: for all it says it may have been promoted a moment ago.
#[tokio::test]
async fn a_server_met_first_that_followed_another_is_not_trusted_however_long_it_has_been_up() {
    let held = Held::with(&[]).await;
    let guard = held.hold().await;
    resynchronise(&held.masters.0[1]).await;
    let other = careful(held.masters.builder()).connect().await.expect("a majority is there");
    states_become(&other, &[Up, Quarantined, Up]).await;
    held.is_not_given_again(guard, &other).await;
}

/// What the rules of `past.rs` rest on.
#[tokio::test]
async fn a_promotion_always_begins_another_history() {
    let server = Server::start().await;
    let history = async || {
        let info = server.command(&["INFO", "replication"]).await;
        let info: redis::InfoDict = redis::from_redis_value(info).expect("fields");
        let id = |name| info.get::<String>(name).expect("an id");
        (id("master_replid"), id("master_replid2"))
    };
    let no_other = "0".repeat(40);
    let first = history().await;
    assert_eq!(first.1, no_other);
    // Demoted and promoted before anything was heard of the other.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(history().await, first, "as long as it has its own data");
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    let second = history().await;
    assert_eq!(second.1, first.0);
    assert_ne!(second.0, first.0);
    // It is a master already: nothing changes.
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(history().await, second);
    resynchronise(&server).await;
    let third = history().await;
    assert!(third.0 != second.0 && third.0 != first.0 && third.1 != no_other, "{third:?}");
    assert_eq!(server.command(&["DBSIZE"]).await, Value::Int(0));
}

/// L17: not at its next renewal, which is ten seconds away; a fixed lease has none.
#[tokio::test]
async fn a_holder_is_told_at_once_when_its_server_comes_back_without_its_lock() {
    let server = Server::start().await;
    let client = Client::builder().nodes([server.url()]).ttl(30 * 1000 * MS).connect().await;
    let client = client.expect("connected");
    let test = async |outage: &Outage<'_>| {
        let watched = client.mutex("watched").lock().await.expect("free");
        let fixed = client.mutex("fixed").with_lease(30 * 1000 * MS).lock().await.expect("free");
        outage.begins();
        outage.ends().await;
        for guard in [&watched, &fixed] {
            tokio::time::timeout(SOON, guard.lost())
                .await
                .expect("told when it is connected again");
        }
    };
    Outage::killed([&server]).twice(test).await;
}

/// L17: of three servers one forgets; it has the lease again at once.
#[tokio::test]
async fn a_server_that_comes_back_empty_gets_the_lease_at_once() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(30 * 1000 * MS)).await;
    // One by one: the server knows a script from the first who sends it whole.
    for lock in [client.mutex("n"), client.mutex("n").with_lease(30 * 1000 * MS)] {
        let test = async |outage: &Outage<'_>| {
            let guard = lock.lock().await.expect("free");
            masters.are_held("n", &[0, 1, 2]).await;
            outage.begins();
            outage.ends().await;
            let healed = async || masters.which_have("n").await == [0, 1, 2];
            eventually(SOON, "it is put back", healed).await;
            guard.unlock().await.expect("held");
            // A master that does not know the script frees it later than the others, and would refuse the next one.
            masters.are_held("n", &[]).await;
            states_become(&client, &[Up, Up, Up]).await;
        };
        Outage::killed([&masters.0[1]]).twice(test).await;
    }
}

/// The first try is refused, and no renewal is to come that would be another one.
#[tokio::test]
async fn a_fixed_lease_is_put_back_when_its_server_takes_it() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).ttl(TTL).restart_quarantine(SOON);
    let client = builder.connect().await.expect("connected");
    let guard = client.mutex("n").with_lease(SOON).lock().await.expect("free");
    server.kill();
    server.restart_with(&["--min-replicas-to-write", "1"]).await;
    // The server's mark is refused, too.
    let refused = async || {
        let errors = server.command(&["INFO", "errorstats"]).await;
        let errors: redis::InfoDict = redis::from_redis_value(errors).expect("fields");
        let count: Option<String> = errors.get("errorstat_NOREPLICAS");
        count.is_some_and(|count| count != "count=1")
    };
    eventually(SOON, "it cannot be put back", refused).await;
    let is_there = async || server.command(&["EXISTS", "n"]).await == Value::Int(1);
    assert!(!is_there().await && guard.is_held());
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    eventually(SOON, "it is put back", is_there).await;
    guard.unlock().await.expect("held");
}

/// L13: behind one name there is another server by now, and the connection for messages still leads to the old one.
#[tokio::test]
async fn messages_are_heard_from_the_server_that_commands_go_to() {
    let (old, new) = tokio::join!(Server::start(), Server::start());
    let way = Proxy::start(old.port()).await;
    let client = Client::builder().nodes([way.url()]).connect().await.expect("connected");
    old.command(&["HSET", "n", "somebody", "1"]).await;
    new.command(&["HSET", "n", "somebody", "1"]).await;
    let waiting = client.mutex("n");
    let waiting = tokio::spawn(async move { waiting.lock_with_timeout(LIMIT).await });
    let channel = "redisson_lock__channel:{n}";
    let listens_at = async |server: &Server| subscribers(server, channel).await == 1;
    eventually(LIMIT, "it listens", async || listens_at(&old).await).await;
    way.lead_new_ones_to(new.port());
    old.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    eventually(LIMIT, "it listens at the new one", async || listens_at(&new).await).await;
    new.command(&["DEL", "n"]).await;
    new.command(&["PUBLISH", channel, "0"]).await;
    waiting.await.expect("no panic").expect("free").unlock().await.expect("held");
}

/// Long enough to connect again, and to look twice or three times for answers that come behind those of a majority, a second
/// later each time. The next renewal is due after 10 s.
const SOON: Duration = Duration::from_secs(8);
