//! Users who lack rights.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, FindingKind};

use super::{MS, somebody_waits, user};
use crate::{
    checks::{AT_ONCE, LIMIT, connect, exists, no_connection_left, nothing_left, soon},
    support::{Server, eventually, waiting},
};

#[tokio::test]
async fn each_missing_right_is_named_at_connect() {
    let server = Server::start().await;
    let commands = [
        "pttl",
        "exists",
        "hdel",
        "hexists",
        "zadd",
        "zpopmin",
        "zrange",
        "zrank",
        "zrem",
        "hrandfield",
        "hget",
        "hlen",
        "hset",
        "pexpire",
        "del",
        "get",
        "set",
        "time",
        "publish",
        "pubsub",
        "subscribe",
        "evalsha",
    ];
    for command in commands {
        let url = user(&server, "u", &["~*", "&*", "+@all", &format!("-{command}")]).await;
        let started_at = Instant::now();
        let error = Client::connect(&url).await.expect_err(command);
        assert!(started_at.elapsed() < AT_ONCE, "{command}");
        let Error::Denied { what, .. } = &error else { panic!("{command}: {error:?}") };
        assert_eq!(what.split('|').next(), Some(command), "{error:?}");
        assert!(error.to_string().contains(command), "{error}");
    }
    let url = user(&server, "u", &["~*", "&*", "+@all", "-hset", "-pexpire"]).await;
    let error = Client::connect(&url).await.expect_err("two rights are missing").to_string();
    assert!(error.contains("hset") && error.contains("pexpire"), "{error}");
    no_connection_left(&server).await;
    assert!(server.command(&["DBSIZE"]).await == redis::Value::Int(0), "a probe left something");
}

#[tokio::test]
async fn a_missing_right_to_load_scripts_is_named_at_connect() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all", "-eval"]).await;
    let error = Client::connect(&url).await.expect_err("nothing is loaded yet");
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "eval"), "{error:?}");
}

#[tokio::test]
async fn a_missing_right_to_load_scripts_is_named_also_where_another_has_loaded_them() {
    let server = Server::start().await;
    connect(&server).await.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    let url = user(&server, "u", &["~*", "&*", "+@all", "-eval"]).await;
    let error = Client::connect(&url).await.expect_err("after SCRIPT FLUSH it could do nothing");
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "eval"), "{error:?}");
}

#[tokio::test]
async fn rights_that_only_inform_are_not_needed() {
    let server = Server::start().await;
    let rules = [
        "~*",
        "&*",
        "-@all",
        "+eval",
        "+evalsha",
        "+pttl",
        "+exists",
        "+hdel",
        "+hexists",
        "+zadd",
        "+zpopmin",
        "+zrange",
        "+zrank",
        "+zrem",
        "+hrandfield",
        "+hget",
        "+hlen",
        "+hset",
        "+pexpire",
        "+del",
        "+get",
        "+set",
        "+time",
        "+publish",
        "+pubsub|numsub",
        "+subscribe",
        "+unsubscribe",
        "+ping",
    ];
    let url = user(&server, "least", &rules).await;
    let client = Client::connect(&url).await.expect("all that is needed");
    let holder = connect(&server).await;
    let held = holder.mutex("n").lock().await.expect("free");
    let lock = client.mutex("n").with_ttl(900 * MS);
    let waiter = tokio::spawn(lock.lock());
    somebody_waits(&holder.mutex("n")).await;
    let unlocked_at = Instant::now();
    held.unlock().await.expect("held");
    let guard = waiter.await.expect("no panic").expect("it may");
    assert!(unlocked_at.elapsed() < Duration::from_millis(1500), "it was not woken");
    let inner = guard.reenter().expect("held");
    // Longer than two TTLs: what is tested is that it stays held.
    tokio::time::sleep(2_000 * MS).await;
    assert!(inner.is_held());
    drop(inner);
    guard.unlock().await.expect("held");
    let findings = client.check().await.expect("an answer");
    assert!(
        findings.iter().any(|finding| matches!(finding.kind, FindingKind::Unknown { .. })),
        "{findings:?}"
    );
    nothing_left(&server, &client).await;
}

/// With the mark, clients that come after a failover do not wait again.
#[tokio::test]
async fn a_user_that_may_not_write_the_mark_is_told_and_tries_again_on_the_next_connection() {
    let server = Server::start().await;
    let rules = ["~n", "~leasehold_token:{n}", "~leasehold_queue:{n}", "&*", "+@all"];
    let url = user(&server, "u", &rules).await;
    let second = Duration::from_secs(1);
    let client = Client::builder().nodes([url]).ttl(second).restart_quarantine(second);
    let client = client.connect().await.expect("the mark is optional");
    let told = async || {
        let findings = client.check().await.ok()?;
        Some(findings.iter().any(|it| matches!(it.kind, FindingKind::MarkRefused { .. })))
    };
    assert_eq!(told().await, Some(true));
    assert!(!exists(&server, "leasehold_mark").await);
    soon("a lock", client.mutex("n").lock()).await.expect("free").unlock().await.expect("held");
    server.command(&["ACL", "SETUSER", "u", "~leasehold_mark"]).await;
    assert_eq!(told().await, Some(true), "it was not tried again");
    server.command(&["CLIENT", "KILL", "USER", "u"]).await;
    eventually(LIMIT, "it is written", async || told().await == Some(false)).await;
    assert!(exists(&server, "leasehold_mark").await);
}

#[tokio::test]
async fn a_right_taken_away_later_is_named_by_the_call_that_needs_it() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let client = Client::connect(&url).await.expect("all rights");
    let lock = client.mutex("n");
    lock.lock().await.expect("free").unlock().await.expect("held");
    for command in ["hset", "pexpire", "time"] {
        server.command(&["ACL", "SETUSER", "u", "+@all", &format!("-{command}")]).await;
        for answer in [lock.lock().await.map(Some), lock.try_lock().await] {
            // Older servers do not say which command a script may not run.
            assert!(matches!(answer, Err(Error::Denied { .. })), "{command}: {answer:?}");
        }
        assert!(!exists(&server, "n").await, "half a lock without {command}");
    }
    server.command(&["ACL", "SETUSER", "u", "+@all"]).await;
    lock.lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The script has put it there before it met the command that it may not run.
#[tokio::test]
async fn a_call_that_is_denied_in_the_middle_of_its_script_leaves_the_queue() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let (holder, client) = (connect(&server).await, Client::connect(&url).await.expect("rights"));
    let held = holder.mutex("n").lock().await.expect("free");
    for command in ["pttl", "pexpire", "hrandfield"] {
        server.command(&["ACL", "SETUSER", "u", "+@all", &format!("-{command}")]).await;
        let answer = soon("an answer", client.mutex("n").lock()).await;
        assert!(matches!(answer, Err(Error::Denied { .. })), "{command}: {answer:?}");
        server.command(&["ACL", "SETUSER", "u", "+@all"]).await;
        eventually(LIMIT, "it left the queue", async || waiting(&server, "n").await == 0).await;
    }
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn who_could_not_leave_the_queue_for_want_of_a_right_leaves_it_when_the_right_is_back() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let ttl = 300 * MS;
    let client = Client::builder().nodes([url]).ttl(ttl).connect().await.expect("all rights");
    let holder = connect(&server).await;
    let held = holder.mutex("n").lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock_with_timeout(500 * MS));
    eventually(LIMIT, "it waits", async || waiting(&server, "n").await == 1).await;
    server.command(&["ACL", "SETUSER", "u", "-evalsha"]).await;
    soon("its time ends", waiter).await.expect("no panic").expect_err("held by another");
    // The lease that it asked for would be over by now.
    tokio::time::sleep(3 * ttl).await;
    assert_eq!(waiting(&server, "n").await, 1, "it may not leave");
    server.command(&["ACL", "SETUSER", "u", "+@all"]).await;
    eventually(LIMIT, "it left the queue", async || waiting(&server, "n").await == 0).await;
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// That ask did not run, and the one before it did.
#[tokio::test]
async fn a_waiter_that_is_denied_its_next_ask_leaves_the_queue_when_the_right_is_back() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let (holder, client) = (connect(&server).await, Client::connect(&url).await.expect("rights"));
    // When it ends, the waiter asks again.
    let _held = holder.mutex("n").with_lease(3000 * MS).lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it waits", async || waiting(&server, "n").await == 1).await;
    server.command(&["ACL", "SETUSER", "u", "-evalsha"]).await;
    let answer = soon("it asks again", waiter).await.expect("no panic");
    assert!(matches!(answer, Err(Error::Denied { .. })), "{answer:?}");
    assert_eq!(waiting(&server, "n").await, 1, "it may not leave");
    server.command(&["ACL", "SETUSER", "u", "+@all"]).await;
    eventually(LIMIT, "it left the queue", async || waiting(&server, "n").await == 0).await;
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_key_out_of_bounds_is_denied_when_it_is_asked_for() {
    let server = Server::start().await;
    let rules = ["~mine:*", "~leasehold_token:{mine:*", "~leasehold_queue:{mine:*", "&*", "+@all"];
    let client = Client::connect(&user(&server, "u", &rules).await).await.expect("all commands");
    let lock = client.mutex("theirs");
    let started_at = Instant::now();
    let errors = [
        lock.lock().await.expect_err("denied"),
        lock.try_lock().await.expect_err("denied"),
        lock.lock_with_timeout(LIMIT).await.expect_err("denied"),
        lock.status().await.expect_err("denied"),
        lock.force_unlock().await.expect_err("denied"),
    ];
    assert!(started_at.elapsed() < AT_ONCE);
    for error in errors {
        assert!(matches!(&error, Error::Denied { what, .. } if &**what == "the key"), "{error:?}");
    }
    client.mutex("mine:1").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;

    // A lock's key without its counter's is not enough, and must not end in half a lock.
    let client = Client::connect(&user(&server, "v", &["~mine:*", "&*", "+@all"]).await).await;
    let client = client.expect("all commands");
    let error = client.mutex("mine:1").lock().await.expect_err("the counter is denied");
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "the key"), "{error:?}");
    nothing_left(&server, &client).await;
}

/// Without a right to the channel nobody is woken, and nobody waits for ever either.
#[tokio::test]
async fn without_the_channel_a_release_is_found_by_polling() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "resetchannels", "+@all"]).await;
    let (holder, client) = (connect(&server).await, Client::connect(&url).await.expect("rights"));
    let held = holder.mutex("n").lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it waits", async || waiting(&server, "n").await == 1).await;
    held.unlock().await.expect("held");
    let unlocked_at = Instant::now();
    let guard = soon("no hang", waiter).await.expect("no panic");
    let waited = unlocked_at.elapsed();
    assert!(waited < server.widened(Duration::from_millis(4100)), "{waited:?}");
    // Its own release cannot be told, and is a release all the same.
    guard.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Rights come and go while somebody mends them. Whoever waits hears again soon after.
#[tokio::test]
async fn a_right_to_the_channels_that_comes_back_is_used_soon() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let (holder, client) = (connect(&server).await, Client::connect(&url).await.expect("rights"));
    let held = holder.mutex("n").lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    let mailboxes = async || {
        let pattern = format!("leasehold_mailbox:{}:*", client.name());
        let channels = server.command(&["PUBSUB", "CHANNELS", &pattern]).await;
        redis::from_redis_value::<Vec<String>>(channels).expect("names").len()
    };
    eventually(LIMIT, "it listens", async || mailboxes().await == 1).await;
    // Ends the connection, too.
    server.command(&["ACL", "SETUSER", "u", "resetchannels"]).await;
    eventually(LIMIT, "it is deaf", async || mailboxes().await == 0).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    server.command(&["ACL", "SETUSER", "u", "&*"]).await;
    let given_at = Instant::now();
    eventually(LIMIT, "it listens again", async || mailboxes().await == 1).await;
    let deaf = given_at.elapsed();
    assert!(deaf < server.widened(Duration::from_millis(1500)), "deaf for {deaf:?} more");
    held.unlock().await.expect("held");
    soon("no hang", waiter).await.expect("no panic").expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
