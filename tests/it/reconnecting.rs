//! What it costs to connect again, and again, and what is repeated on a new connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::{Client, ClientBuilder, FindingKind, Guard, NodeState};

use crate::{
    checks::{LIMIT, client_is_idle, exists, setup, setup_with_proxy, soon},
    support::{Server, Spy, Twister, eventually},
};

const MS: Duration = Duration::from_millis(1);

/// A user who may do all but end connections.
async fn who_may_not_kill(server: &Server) -> ClientBuilder {
    let rules = ["ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all", "-@admin"];
    server.command(&rules).await;
    Client::builder().nodes([server.url_as("u", "pw")])
}

/// Ends the connections of that user, and waits until the client has another.
async fn break_connection(server: &Server, client: &Client) {
    let made = client.stats().connections_made;
    server.command(&["CLIENT", "KILL", "USER", "u"]).await;
    eventually(LIMIT, "it connects again", async || {
        client.stats().connections_made > made && client.mutex("?").is_locked().await.is_ok()
    })
    .await;
}

/// How often a user was refused a `CLIENT` command.
async fn refusals(server: &Server) -> u32 {
    let stats = server.command(&["INFO", "commandstats"]).await;
    let stats: String = redis::from_redis_value(stats).expect("a text");
    let counts = stats.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("cmdstat_client")?.split_once("rejected_calls=")?;
        rest.split(',').next()?.parse::<u32>().ok()
    });
    counts.sum()
}

#[tokio::test]
async fn each_connection_asks_once_to_end_its_predecessor_though_it_never_may() {
    const BREAKS: u32 = 8;
    let server = Server::start().await;
    let client = who_may_not_kill(&server).await.connect().await.expect("connected");
    let before = refusals(&server).await;
    for _ in 0..BREAKS {
        break_connection(&server, &client).await;
    }
    assert_eq!(refusals(&server).await - before, BREAKS);
}

/// What an older connection was sent may come late in any lease's first TTL on the new one, and not much after.
#[tokio::test]
async fn a_release_long_after_a_broken_connection_is_not_repeated() {
    let server = Server::start().await;
    let client = who_may_not_kill(&server).await.connect().await.expect("connected");
    let guard = client.mutex("n").with_ttl(1500 * MS).lock().await.expect("free");
    break_connection(&server, &client).await;
    let reconnected_at = Instant::now();
    eventually(LIMIT, "a TTL is over", async || reconnected_at.elapsed() > 1600 * MS).await;
    let spy = Spy::on(&server).await;
    guard.unlock().await.expect("held");
    eventually(LIMIT, "nothing is owed", async || client.stats().releases_pending == 0).await;
    let releases = spy.count("lock_release");
    // The one that found the script unknown, that script whole, and once more from the list of what is owed.
    assert!(releases <= 3, "{releases} releases");
}

/// What was sent on the older connection may come late, although the lease was over before there was a new one.
#[tokio::test]
async fn a_release_that_was_owed_for_longer_than_its_lease_is_repeated_on_the_new_connection() {
    let (server, proxy) = setup_with_proxy().await;
    let url = format!("redis://u:pw@127.0.0.1:{}", proxy.port());
    let builder = who_may_not_kill(&server).await.nodes([url]);
    let client = builder.connect().await.expect("connected");
    // From then on the server knows the script.
    client.mutex("m").lock().await.expect("free").unlock().await.expect("held");
    let guard = client.mutex("n").with_ttl(1500 * MS).lock().await.expect("free");
    proxy.refuse(true);
    proxy.cut();
    let is_down = async || client.nodes()[0].state == NodeState::Down;
    eventually(LIMIT, "the connection is gone", is_down).await;
    drop(guard);
    let dropped_at = Instant::now();
    eventually(LIMIT, "a TTL is over", async || dropped_at.elapsed() > 1600 * MS).await;
    assert_eq!(client.stats().releases_pending, 1);
    let spy = Spy::on(&server).await;
    proxy.refuse(false);
    eventually(LIMIT, "nothing is owed", async || client.stats().releases_pending == 0).await;
    let releases = spy.count("lock_release");
    assert!(releases >= 3, "{releases} releases");
}

#[tokio::test]
async fn answered_releases_are_repeated_ever_more_rarely() {
    const LOCKS: usize = 20;
    let server = Server::start().await;
    let client = who_may_not_kill(&server).await.connect().await.expect("connected");
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..LOCKS {
        guards.push(client.mutex(format!("n{n}")).lock().await.expect("free"));
    }
    break_connection(&server, &client).await;
    let spy = Spy::on(&server).await;
    let began_at = Instant::now();
    drop(guards);
    eventually(LIMIT, "four seconds are over", async || began_at.elapsed() > 4000 * MS).await;
    let releases = spy.count("lock_release");
    assert!((2 * LOCKS..=12 * LOCKS).contains(&releases), "{releases} releases");
    assert_eq!(client.stats().releases_pending, LOCKS, "they are repeated for a TTL");
}

/// The server is asked for a lock that it does not keep: as a node of a cluster does, without the script being run.
#[tokio::test]
async fn a_release_that_is_refused_for_ever_is_owed_for_a_ttl_at_most() {
    let server = Server::with(&["--cluster-enabled", "yes"]).await;
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually(LIMIT, "the cluster is ready", async || {
        server.try_command(&["SET", "x", "1"]).await.is_ok()
    })
    .await;
    let client = Client::connect(&server.url()).await.expect("connected");
    let guard = client.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
    server.command(&["CLUSTER", "DELSLOTSRANGE", "0", "16383"]).await;
    drop(guard);
    eventually(LIMIT, "nothing is owed", async || client.stats().releases_pending == 0).await;
    client_is_idle(&client).await;
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually(LIMIT, "the lock has ended", async || {
        server.try_command(&["SET", "x", "1"]).await.is_ok() && !exists(&server, "n").await
    })
    .await;
}

// Servers that accept a connection and refuse all that follows.

/// The client does not see the role, and connects again and again.
#[tokio::test]
async fn a_server_that_refuses_after_each_handshake_is_met_ever_more_rarely() {
    let server = Server::start().await;
    let rules = ["ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all", "-info"];
    server.command(&rules).await;
    let client = Client::connect(&server.url_as("u", "pw")).await.expect("connected");
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let before = client.stats().connections_made;
    let began_at = Instant::now();
    while began_at.elapsed() < 3000 * MS {
        client.mutex("n").try_lock().await.expect_err("it takes no writes");
        tokio::time::sleep(5 * MS).await;
    }
    let made = client.stats().connections_made - before;
    assert!((2..=25).contains(&made), "{made} connections");
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    let guard = client.mutex("n").lock_with_timeout(LIMIT).await.expect("a master again");
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn subscriptions_that_break_at_once_are_made_ever_more_rarely() {
    let (server, [client]) = setup().await;
    let held = Client::connect(&server.url()).await.expect("connected").mutex("n").lock().await;
    let held = held.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it listens", async || client.stats().connections_made >= 3).await;
    let before = client.stats().connections_made;
    let began_at = Instant::now();
    let mut raw = server.raw().await;
    while began_at.elapsed() < 3000 * MS {
        let kill = ["KILL", "TYPE", "pubsub"];
        redis::cmd("CLIENT").arg(&kill).query_async::<()>(&mut raw).await.expect("it may");
        tokio::time::sleep(MS).await;
    }
    let made = client.stats().connections_made - before;
    assert!((2..=50).contains(&made), "{made} connections");
    held.unlock().await.expect("held");
    let guard = soon("no hang", waiter).await.expect("no panic");
    guard.expect("free").unlock().await.expect("held");
}

/// The words of Redis 6.2 for what a script was refused.
#[tokio::test]
async fn a_demoted_server_is_left_though_only_a_script_tells_of_it() {
    let server = Server::start().await;
    for refusal in [
        "READONLY You can't write against a read only replica.",
        "NOREPLICAS Not enough good replicas to write.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    ] {
        let is_demoted = Arc::new(AtomicBool::new(false));
        let twister = Twister::start(server.port(), {
            let is_demoted = is_demoted.clone();
            let error = format!(
                "ERR Error running script (call to f_4a2b): @user_script:12: @user_script: 12: -{refusal}"
            );
            move |words| {
                let is_acquire = words.iter().any(|word| word == "n");
                (is_acquire && is_demoted.load(Ordering::SeqCst)).then(|| error.clone())
            }
        })
        .await;
        let client = Client::connect(&twister.url()).await.expect("connected");
        client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
        let before = client.stats().connections_made;
        is_demoted.store(true, Ordering::SeqCst);
        client.mutex("n").try_lock().await.expect_err("refused");
        eventually(LIMIT, "it connects again", async || client.stats().connections_made > before)
            .await;
        is_demoted.store(false, Ordering::SeqCst);
        let guard = client.mutex("n").lock_with_timeout(LIMIT).await.expect("a master again");
        guard.unlock().await.expect("held");
    }
}

// Servers that say little.

/// Managed services refuse what they do not offer in words of their own.
#[tokio::test]
async fn what_a_server_refuses_to_say_of_itself_is_not_known_in_whatever_words() {
    let server = Server::start().await;
    for refusal in [
        "ERR unknown command 'CONFIG'",
        "ERR This command is not available in this service",
        "DENIED not for you",
        "NOPERM no",
        "FORBIDDEN",
    ] {
        let twister = Twister::start(server.port(), move |words| {
            ["INFO", "CONFIG", "CLIENT"].contains(&&*words[0]).then(|| refusal.to_owned())
        })
        .await;
        let client = Client::connect(&twister.url()).await.expect(refusal);
        client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
        let findings = client.check().await.expect(refusal);
        let unknown = findings.iter().filter(|it| matches!(it.kind, FindingKind::Unknown { .. }));
        assert_eq!(unknown.count(), 3, "{findings:?}");
    }
    // Several need to know which server each is.
    let others = [Server::start().await, Server::start().await, Server::start().await];
    let mut twisters = Vec::new();
    for server in &others {
        let silent = |words: &[String]| {
            let refused = ["CONFIG", "CLIENT"].contains(&&*words[0]);
            refused.then(|| "ERR This command is not available in this service".to_owned())
        };
        twisters.push(Twister::start(server.port(), silent).await);
    }
    let builder = Client::builder().nodes(twisters.iter().map(Twister::url));
    let client = builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected");
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_waited_for() {
    let server = Server::start().await;
    let refusals = Arc::new(AtomicUsize::new(0));
    let twister = Twister::start(server.port(), {
        let refusals = refusals.clone();
        move |words| {
            let is_busy = words[0] == "INFO" && refusals.fetch_add(1, Ordering::SeqCst) < 4;
            is_busy.then(|| "BUSY Redis is busy running a script.".to_owned())
        }
    })
    .await;
    let client = Client::connect(&twister.url()).await.expect("it is not busy for long");
    assert!(refusals.load(Ordering::SeqCst) > 4);
    assert!(client.is_ready());
}

/// It has as many connections as `maxclients` allows, and others end before long.
#[tokio::test]
async fn a_server_that_is_full_is_waited_for_and_says_so() {
    const FULL: &str = "ERR max number of clients reached";
    let server = Server::start().await;
    let refusals = Arc::new(AtomicUsize::new(0));
    let full_at_first = Twister::start(server.port(), {
        let refusals = refusals.clone();
        move |words| {
            let is_full = words[0] == "HELLO" && refusals.fetch_add(1, Ordering::SeqCst) < 4;
            is_full.then(|| FULL.to_owned())
        }
    })
    .await;
    let client = Client::connect(&full_at_first.url()).await.expect("it is not full for long");
    assert!(refusals.load(Ordering::SeqCst) > 4 && client.is_ready());
    let is_full = |words: &[String]| (words[0] == "HELLO").then(|| FULL.to_owned());
    let full = Twister::start(server.port(), is_full).await;
    let builder = Client::builder().nodes([full.url()]).connect_timeout(2000 * MS);
    let error = builder.connect().await.expect_err("it is full");
    assert!(error.is_retryable() && error.to_string().contains("maxclients"), "{error:?}");
}

// Servers that start later, and far ones.

#[tokio::test]
async fn a_server_that_starts_a_second_later_is_waited_for() {
    let server = Server::start().await;
    server.kill();
    let connecting = tokio::spawn(Client::builder().nodes([server.url()]).connect());
    let started_at = Instant::now();
    eventually(LIMIT, "a second is over", async || started_at.elapsed() > 1000 * MS).await;
    assert!(!connecting.is_finished(), "it gave up");
    server.restart().await;
    let client = connecting.await.expect("no panic").expect("it is there now");
    assert!(client.is_ready());
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
}

#[tokio::test]
async fn several_servers_that_start_a_second_later_are_waited_for() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    servers[1].kill();
    servers[2].kill();
    let builder = Client::builder().nodes(servers.iter().map(Server::url));
    let connecting = tokio::spawn(builder.restart_quarantine(Duration::ZERO).connect());
    let started_at = Instant::now();
    eventually(LIMIT, "a second is over", async || started_at.elapsed() > 1000 * MS).await;
    assert!(!connecting.is_finished(), "one of three is no majority");
    servers[1].restart().await;
    let client = connecting.await.expect("no panic").expect("two are a majority");
    assert!(client.is_ready());
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
}

#[tokio::test]
async fn a_client_is_ready_while_locks_can_be_taken() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let urls = servers.each_ref().map(Server::url);
    let builder = Client::builder().nodes(urls.clone()).restart_quarantine(Duration::ZERO);
    let client = builder.connect().await.expect("connected");
    assert!(client.is_ready());
    servers[0].kill();
    client.mutex("n").lock().await.expect("two are there").unlock().await.expect("held");
    assert!(client.is_ready(), "two are a majority");
    servers[1].kill();
    eventually(LIMIT, "one is none", async || !client.is_ready()).await;
    servers[1].restart().await;
    eventually(LIMIT, "it is back", async || client.is_ready()).await;
    let threads = tokio::task::spawn_blocking({
        let url = urls[1].clone();
        move || leasehold::blocking::Client::connect(&url).expect("connected").is_ready()
    });
    assert!(threads.await.expect("no panic"));
    client.shutdown().await;
    assert!(!client.is_ready(), "it is closed");

    let quarantined = Client::builder().nodes(urls).connect().await.expect("connected");
    assert!(!quarantined.is_ready(), "their grants do not count yet");
}

#[tokio::test]
async fn a_client_of_four_servers_needs_three_of_them_to_be_ready() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let builder = Client::builder().nodes(servers.each_ref().map(Server::url));
    let client = builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected");
    let are_up = async |count: usize| {
        eventually(LIMIT, "so many are connected", async || {
            let nodes = client.nodes();
            nodes.iter().filter(|node| node.state == NodeState::Up).count() == count
        })
        .await;
    };
    are_up(4).await;
    assert!(client.is_ready());
    servers[0].kill();
    are_up(3).await;
    assert!(client.is_ready(), "three are a majority");
    servers[1].kill();
    are_up(2).await;
    assert!(!client.is_ready(), "two are none");
}

#[tokio::test]
async fn a_check_of_a_far_server_is_one_round_trip() {
    const AWAY: Duration = Duration::from_millis(160);
    let (server, proxy) = setup_with_proxy().await;
    proxy.delay_replies(AWAY);
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let started_at = Instant::now();
    let findings = client.check().await.expect("an answer");
    assert!(started_at.elapsed() < server.widened(3 * AWAY), "{:?}", started_at.elapsed());
    assert!(findings.iter().any(|it| it.kind == FindingKind::NotPersistent), "{findings:?}");
    assert!(!findings.iter().any(|it| matches!(it.kind, FindingKind::ClockAhead { .. })));
    // Slower than any answer about a lock may be.
    proxy.delay_replies(10 * AWAY);
    client.check().await.expect("an answer");
}

/// What was asked before another call was answered may only have to wait for its turn.
#[tokio::test]
async fn a_server_that_answers_late_but_goes_on_answering_keeps_its_connection() {
    let (_server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(2000 * MS);
    let client = builder.connect().await.expect("accepted");
    let ask = || {
        let lock = client.mutex("n");
        async move { lock.is_locked().await }
    };
    soon("an answer", ask()).await.expect("free");
    let connections = client.stats().connections_made;
    proxy.delay_replies(1500 * MS);
    let early = tokio::spawn(ask());
    // Its reply must have got its delay before that changes.
    tokio::time::sleep(200 * MS).await;
    proxy.delay_replies(3000 * MS);
    let late = tokio::spawn(ask());
    soon("the first", early).await.expect("no panic").expect("in time");
    proxy.delay_replies(Duration::ZERO);
    soon("the second", late).await.expect("no panic").expect_err("too late");
    soon("the third", ask()).await.expect("behind the second");
    assert_eq!(client.stats().connections_made, connections, "the connection was given up");
}
