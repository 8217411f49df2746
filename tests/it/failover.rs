//! One deployment whose server changes: restarts without data, promotions that lost the last writes, an address that leads
//! elsewhere. Holders put their leases back, and nobody else gets the lock before the grace is over.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{Client, ClientBuilder, Error, Guard, LossReason, Mutex, NodeState, RwLock};
use redis::Value;

use crate::{
    checks::{AT_ONCE, LIMIT, exists, soon},
    support::{Outage, Proxy, Server, eventually, subscribers, there_and_back},
};

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_secs(4);
const QUEUE: &str = "leasehold_queue:{n}";

/// A master, a replica that follows it, and an address that leads to one of them.
struct Pair {
    master: Server,
    replica: Server,
    address: Proxy,
}

impl Pair {
    async fn start() -> Self {
        let master = Server::with(&["--repl-diskless-sync-delay", "0"]).await;
        let replica = Server::start().await;
        let address = Proxy::start(master.port()).await;
        let pair = Self { master, replica, address };
        follow(&pair.replica, &pair.master).await;
        // A master that gets its first replica begins another history. Nobody has met it before.
        pair.season().await;
        pair
    }

    /// Waits until a first client is not kept waiting by the master's short life, or by its first replica.
    async fn season(&self) {
        let client = self.client().await;
        eventually(LIMIT, "its grants count", async || client.is_ready()).await;
        client.shutdown().await;
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder().nodes([self.address.url()]).ttl(TTL).restart_quarantine(GRACE)
    }

    async fn client(&self) -> Client {
        connected(self.builder()).await
    }

    /// What is written from now on does not reach the replica.
    async fn cut_replication(&self) {
        part(&self.master, &self.replica).await;
    }

    /// The master is dead, and then its replica is promoted.
    async fn promote(&self) {
        replace(&self.master, &self.replica).await;
    }

    fn switch(&self) {
        self.address.lead_to(self.replica.port());
    }
}

async fn connected(builder: ClientBuilder) -> Client {
    builder.connect().await.expect("the server accepts the client")
}

async fn follow(replica: &Server, master: &Server) {
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).await;
    eventually(LIMIT, "it follows", async || {
        info(replica).await.contains("master_link_status:up")
            && info(master).await.contains("state=online")
    })
    .await;
}

/// What is written from now on does not reach the replica.
async fn part(master: &Server, replica: &Server) {
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let is_alone = async || info(master).await.contains("connected_slaves:0");
    eventually(LIMIT, "it is not followed", is_alone).await;
}

/// The master is dead, and then its replica is promoted.
async fn replace(master: &Server, replica: &Server) {
    master.kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]).await;
}

async fn info(server: &Server) -> String {
    redis::from_redis_value(server.command(&["INFO", "replication"]).await).expect("a text")
}

async fn holder_on(server: &Server, name: &str) -> String {
    let fields = server.command(&["HKEYS", name]).await;
    let fields: Vec<String> = redis::from_redis_value(fields).expect("a list");
    fields.concat()
}

/// The time until which the grants of its only server do not count.
fn grace_of(client: &Client) -> Option<SystemTime> {
    client.nodes()[0].quarantined_until
}

async fn in_grace(client: &Client) {
    let quarantined = async || client.nodes()[0].state == NodeState::Quarantined;
    eventually(LIMIT, "it has met the server", quarantined).await;
}

/// The lease was put back with the same id, and the guard never noticed.
async fn keeps(guard: &Guard, client: &Client, server: &Server, leases: u64) {
    let put_back = async || {
        assert!(guard.is_held(), "it is never lost");
        client.stats().reclaimed == leases
    };
    eventually(LIMIT, "it is put back", put_back).await;
    assert!(is_on(guard, server).await);
}

async fn is_on(guard: &Guard, server: &Server) -> bool {
    holder_on(server, guard.name()).await == *guard.holder().as_str()
}

fn waiting(lock: Mutex) -> tokio::task::JoinHandle<(Result<Guard, Error>, SystemTime)> {
    tokio::spawn(async move {
        let guard = lock.lock().await;
        (guard, SystemTime::now())
    })
}

#[tokio::test]
async fn a_holder_keeps_its_lock_over_a_promotion_that_lost_it_and_nobody_else_gets_it() {
    let pair = Pair::start().await;
    let (holder, other) = (pair.client().await, pair.client().await);
    let mut failovers = 0;
    let test = async |[old, new]: [&Server; 2]| {
        part(old, new).await;
        let guard = holder.mutex("n").lock().await.expect("free");
        let token = guard.token();
        let waiter = waiting(other.mutex("n"));
        eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;

        replace(old, new).await;
        assert!(!exists(new, "n").await, "the write was lost");
        pair.address.lead_to(new.port());
        failovers += 1;
        keeps(&guard, &holder, new, failovers).await;
        assert_eq!(guard.token(), token);
        in_grace(&other).await;
        let until = grace_of(&other).expect("seen just now");
        let error = other.mutex("m").try_lock().await.expect_err("its grants do not count");
        assert!(error.to_string().contains("do not count for another"), "{error}");
        assert!(matches!(error, Error::Unavailable { .. }) && error.is_retryable());

        soon("it is held", guard.unlock()).await.expect("held");
        let (next, at) = soon("the grace ends", waiter).await.expect("it runs");
        let next = next.expect("free");
        assert!(at >= until, "not before its end");
        assert!(at.duration_since(until).expect("after it") < AT_ONCE, "woken at its end");
        assert!(next.token() > token, "{} after {token}", next.token());
        next.unlock().await.expect("held");
        assert_eq!(holder.stats().lost_in_failovers, 0);

        old.restart().await;
        follow(old, new).await;
        // With its first replica a master has another history.
        for client in [&holder, &other] {
            let lock = client.mutex("after").lock_with_timeout(LIMIT).await;
            lock.expect("free").unlock().await.expect("held");
        }
    };
    there_and_back([&pair.master, &pair.replica], test).await;
}

#[tokio::test]
async fn a_restart_without_data_takes_no_lock_away() {
    let server = Server::start().await;
    let client =
        connected(Client::builder().nodes([server.url()]).ttl(TTL).restart_quarantine(GRACE));
    let client = client.await;
    eventually(LIMIT, "its grants count", async || client.is_ready()).await;
    let me = client.owner();
    let lock = client.mutex("watched").owned_by(&me);
    let test = async |outage: &Outage<'_>| {
        let watched = lock.lock().await.expect("free");
        let fixed = client.mutex("fixed").with_lease(GRACE).lock().await.expect("free");
        let nested = lock.lock().await.expect("its own");
        // So that there is less left of both than when they were taken.
        tokio::time::sleep(300 * MS).await;
        let killed_at = Instant::now();
        let fixed_until = killed_at + fixed.remaining();
        outage.begins();
        outage.ends().await;
        let both_back = async || client.stats().reclaimed == 2 * u64::from(outage.number());
        eventually(LIMIT, "both are put back", both_back).await;
        for guard in [&watched, &fixed] {
            assert!(guard.is_held());
            assert!(is_on(guard, &server).await);
        }
        let put_back_until = [&watched, &fixed].map(|guard| Instant::now() + guard.remaining());
        assert!(put_back_until[0] > killed_at + TTL - 100 * MS, "as long as after any renewal");
        assert!(put_back_until[1] < fixed_until + 100 * MS, "no longer than it would have lasted");
        assert_eq!(
            server.command(&["HVALS", "watched"]).await,
            Value::Array(vec![Value::BulkString(b"2".into())])
        );
        let left = server.command(&["PTTL", "fixed"]).await;
        let rest = fixed.remaining();
        let within = rest.as_millis() as i64..GRACE.as_millis() as i64;
        assert!(matches!(left, Value::Int(ms) if within.contains(&ms)), "{left:?} of {rest:?}");
        soon("its lease ends", fixed.lost()).await;
        assert_eq!(fixed.lost().await, LossReason::Ended);
        drop((nested, fixed));
        watched.unlock().await.expect("held");
        eventually(LIMIT, "it is free", async || !exists(&server, "watched").await).await;
        eventually(LIMIT, "the grace is over", async || client.is_ready()).await;
    };
    Outage::killed([&server]).twice(test).await;
}

/// It is not renewed any more, so it ends there when it would have ended anyway.
#[tokio::test]
async fn a_lease_whose_longest_hold_is_over_is_put_back_for_the_rest_only() {
    let pair = Pair::start().await;
    let holder = pair.client().await;
    pair.cut_replication().await;
    let taken_at = Instant::now();
    let guard = holder.mutex("n").with_max_hold(100 * MS).lock().await.expect("free");
    let until = Instant::now() + guard.remaining();
    assert!(until > taken_at + TTL / 2, "{until:?}");
    // So that the rest is far shorter than the lease.
    tokio::time::sleep_until((until - TTL / 2).into()).await;
    pair.promote().await;
    pair.switch();
    keeps(&guard, &holder, &pair.replica, 1).await;
    let left = pair.replica.command(&["PTTL", "n"]).await;
    let rest = until.saturating_duration_since(Instant::now());
    let within = 1..(rest + 500 * MS).as_millis() as i64;
    assert!(matches!(left, Value::Int(ms) if within.contains(&ms)), "{left:?} of {rest:?}");
    assert_eq!(soon("it ends", guard.lost()).await, LossReason::Ended);
}

/// Less is left of the lease than it asks for.
#[tokio::test]
async fn an_extension_that_finds_its_lease_forgotten_puts_it_back_for_as_long_as_it_asks() {
    let pair = Pair::start().await;
    let holder = pair.client().await;
    pair.cut_replication().await;
    let guard = holder.mutex("n").with_lease(TTL).lock().await.expect("free");
    pair.promote().await;
    // The client itself asks about the lease at once. It is told that it is gone only when the extension was sent, too.
    pair.address.delay_replies(30 * MS);
    pair.switch();
    let mut began_at = Instant::now();
    let extended = async || {
        began_at = Instant::now();
        let answer = guard.extend(GRACE).await;
        assert!(matches!(answer, Ok(()) | Err(Error::Unavailable { .. })), "{answer:?}");
        answer.is_ok()
    };
    eventually(LIMIT, "it is extended", extended).await;
    let lasts = began_at.elapsed() + guard.remaining();
    assert!(lasts > GRACE * 9 / 10, "{lasts:?} of {GRACE:?}");
    assert!(is_on(&guard, &pair.replica).await);
}

/// A counter at the first token of a lease is as new as its grant, so who holds the lock there came after it.
#[tokio::test]
async fn whether_the_lease_of_another_is_older_is_told_to_the_very_token() {
    const OURS: &str = "client:0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f03";
    let pair = Pair::start().await;
    let holder = pair.client().await;
    pair.cut_replication().await;
    let locks = [("newer", 0), ("older", 1)];
    let mut guards = Vec::new();
    for (name, _) in locks {
        guards.push(holder.mutex(name).lock().await.expect("free"));
    }
    pair.promote().await;
    for ((name, before), guard) in locks.iter().zip(&guards) {
        pair.replica.command(&["HSET", name, OURS, "1"]).await;
        pair.replica.command(&["PEXPIRE", name, "30000"]).await;
        let (counter, last) = (format!("leasehold_token:{{{name}}}"), guard.token() - before);
        pair.replica.command(&["SET", &counter, &last.to_string(), "PX", "60000"]).await;
    }
    pair.switch();
    assert_eq!(soon("it is told", guards[0].lost()).await, LossReason::Failover);
    assert_eq!(holder_on(&pair.replica, "newer").await, OURS);
    keeps(&guards[1], &holder, &pair.replica, 1).await;
}

/// The data of the new master is from before the last release and the last grant, which were one write.
#[tokio::test]
async fn the_lease_before_it_does_not_keep_a_holder_from_its_lock() {
    let pair = Pair::start().await;
    let (first, second) = (pair.client().await, pair.client().await);
    let before = first.mutex("n").lock().await.expect("free");
    eventually(LIMIT, "the replica has it", async || is_on(&before, &pair.replica).await).await;
    let stale = holder_on(&pair.replica, "n").await;
    pair.cut_replication().await;
    let waiter = waiting(second.mutex("n"));
    eventually(LIMIT, "it waits", async || second.stats().waiters == 1).await;
    before.unlock().await.expect("held");
    let guard = soon("its turn", waiter).await.expect("it runs").0.expect("free");

    pair.promote().await;
    assert_eq!(holder_on(&pair.replica, "n").await, stale);
    pair.switch();
    keeps(&guard, &second, &pair.replica, 1).await;
    guard.unlock().await.expect("held");
}

/// The new master has the token of the last writer but one.
#[tokio::test]
async fn who_reads_or_writes_after_a_promotion_knows_of_a_writer_that_the_new_master_forgot() {
    let pair = Pair::start().await;
    let (first, second) = (pair.client().await, pair.client().await);
    let write = async |lock: &RwLock| {
        let guard = lock.write().await.expect("free");
        let token = guard.token();
        guard.unlock().await.expect("held");
        token
    };
    let [read_first, written_first] = ["n", "m"].map(|name| first.rw_lock(name));
    let cached = [write(&read_first).await, write(&written_first).await];
    let seen = written_first.read().await.expect("free").version();
    let is_there = async || {
        let counter = pair.replica.command(&["GET", "leasehold_token:{m}"]).await;
        counter == Value::BulkString(cached[1].to_string().into())
    };
    eventually(LIMIT, "the replica has it", is_there).await;
    pair.cut_replication().await;
    let forgotten = [write(&read_first).await, write(&written_first).await];

    pair.promote().await;
    pair.switch();
    let reader = soon("its turn", read_first.read()).await.expect("free");
    assert!(reader.token() > forgotten[0], "{} after {forgotten:?}", reader.token());
    let (token, version) = (reader.token(), reader.version());
    let other = second.rw_lock("n").read().await.expect("free");
    assert_eq!(other.token(), token, "nobody has written since");
    drop((reader, other));
    let writer = soon("its turn", second.rw_lock("n").write()).await.expect("free");
    assert!(writer.token() > token, "{} after {token}", writer.token());
    assert!(writer.unchanged_since(version), "nobody has written since");

    let writer = soon("its turn", written_first.write()).await.expect("free");
    assert!(writer.token() > forgotten[1] && !writer.unchanged_since(seen));
}

#[tokio::test]
async fn a_client_that_comes_long_after_a_promotion_does_not_wait() {
    let pair = Pair::start().await;
    pair.promote().await;
    pair.switch();
    let first = connected(pair.builder()).await;
    assert!(!first.is_ready(), "it cannot know when the server was promoted");
    let until = grace_of(&first).expect("it waits");
    let second = connected(pair.builder()).await;
    let also_until = grace_of(&second).expect("it waits, too");
    assert!(also_until < until + 500 * MS, "the first began the grace for all");
    eventually(LIMIT, "the grace is over", async || first.is_ready()).await;
    // The clocks of the client and the server may differ in rate.
    let over = async || SystemTime::now() > until + GRACE / 50;
    eventually(LIMIT, "it is over by any clock", over).await;

    let late = connected(pair.builder()).await;
    assert!(late.is_ready() && grace_of(&late).is_none());
    let guard = late.mutex("n").try_lock().await.expect("it counts at once").expect("free");
    guard.unlock().await.expect("held");

    // A mark that was lost costs a grace, and no more.
    pair.replica.command(&["DEL", "leasehold_mark"]).await;
    let late = connected(pair.builder()).await;
    assert!(grace_of(&late).is_some());
}

#[tokio::test]
async fn who_finds_another_holder_loses_the_lock_at_once() {
    const REDISSON: &str = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f03:42";
    let pair = Pair::start().await;
    let holder = pair.client().await;
    pair.cut_replication().await;
    let guard = holder.mutex("n").lock().await.expect("free");
    pair.promote().await;
    pair.replica.command(&["HSET", "n", REDISSON, "1"]).await;
    pair.replica.command(&["PEXPIRE", "n", "30000"]).await;
    let switched_at = Instant::now();
    pair.switch();
    assert_eq!(soon("it is told", guard.lost()).await, LossReason::Failover);
    assert!(switched_at.elapsed() < TTL / 3, "it did not wait for the next renewal");
    assert_eq!((holder.stats().reclaimed, holder.stats().lost_in_failovers), (0, 1));
    let error = guard.unlock().await.expect_err("it is lost");
    assert!(matches!(error, Error::Lost { reason: LossReason::Failover, .. }), "{error:?}");
    assert_eq!(holder_on(&pair.replica, "n").await, REDISSON);
}

#[tokio::test]
async fn without_a_grace_a_lost_lock_is_told_at_once() {
    let pair = Pair::start().await;
    let holder = connected(pair.builder().restart_quarantine(Duration::ZERO)).await;
    pair.cut_replication().await;
    let guard = holder.mutex("n").lock().await.expect("free");
    let mark = pair.replica.command(&["GET", "leasehold_mark"]).await;
    pair.promote().await;
    pair.switch();
    assert_eq!(soon("it is told", guard.lost()).await, LossReason::Failover);
    assert_eq!(holder.stats().reclaimed, 0);
    let again = holder.mutex("n").try_lock().await.expect("its grants count").expect("free");
    again.unlock().await.expect("held");
    assert_eq!(pair.replica.command(&["GET", "leasehold_mark"]).await, mark, "it leaves none");
}

/// Cuts the client off, and begins an unlock that no server hears of before the way is open again.
async fn owed_unlock(
    pair: &Pair,
    holder: &Client,
    guard: Guard,
) -> tokio::task::JoinHandle<Result<(), Error>> {
    pair.address.refuse(true);
    pair.address.cut();
    let down = async || holder.nodes()[0].state == NodeState::Down;
    eventually(LIMIT, "the connection is lost", down).await;
    let unlocking = tokio::spawn(guard.unlock());
    let owed = async || holder.stats().releases_pending == 1;
    eventually(LIMIT, "the release is owed", owed).await;
    unlocking
}

#[tokio::test]
async fn an_unlock_that_finds_nothing_on_the_new_master_says_why() {
    let pair = Pair::start().await;
    let holder = connected(pair.builder().restart_quarantine(Duration::ZERO)).await;
    pair.cut_replication().await;
    let guard = holder.mutex("n").lock().await.expect("free");
    let unlocking = owed_unlock(&pair, &holder, guard).await;
    pair.promote().await;
    pair.switch();
    pair.address.refuse(false);
    let error = soon("it is answered", unlocking).await.expect("no panic").expect_err("lost");
    assert!(matches!(error, Error::Lost { reason: LossReason::Failover, .. }), "{error:?}");
}

/// The new master lacks the lease, and nobody else can have had the lock: no grant counts there before the end of the grace.
#[tokio::test]
async fn an_unlock_on_a_new_master_that_lacks_the_lease_is_no_loss_in_the_grace() {
    let pair = Pair::start().await;
    let holder = pair.client().await;
    pair.cut_replication().await;
    for name in ["n", "m"] {
        let guard = holder.mutex(name).with_lease(TTL).lock().await.expect("free");
        let unlocking = owed_unlock(&pair, &holder, guard).await;
        let removed = name == "m";
        if removed {
            // On the server that granted it last: then somebody did that on purpose.
            pair.replica.command(&["DEL", name]).await;
        } else {
            pair.promote().await;
            assert!(!exists(&pair.replica, name).await, "the write was lost");
            pair.switch();
        }
        pair.address.refuse(false);
        let answer = soon("it is answered", unlocking).await.expect("no panic");
        match (removed, answer) {
            (false, Ok(())) => {}
            (true, Err(Error::Lost { reason: LossReason::Gone, .. })) => {}
            (_, answer) => panic!("{name}: {answer:?}"),
        }
        eventually(LIMIT, "its grants count", async || holder.is_ready()).await;
    }
}

/// A promotion has lost the lease, its holder has put it back, and then somebody removes it.
async fn removed_after_it_was_put_back(pair: &Pair, holder: &Client) -> Guard {
    pair.cut_replication().await;
    let guard = holder.mutex("n").lock().await.expect("free");
    pair.promote().await;
    pair.switch();
    keeps(&guard, holder, &pair.replica, 1).await;
    pair.replica.command(&["DEL", "n"]).await;
    guard
}

/// What somebody removed stays removed, before a promotion and in the grace after it.
#[tokio::test]
async fn a_lease_that_was_removed_is_not_put_back() {
    let pair = Pair::start().await;
    let holder = pair.client().await;
    let guard = holder.mutex("n").lock().await.expect("free");
    pair.master.command(&["DEL", "n"]).await;
    assert_eq!(soon("it is told", guard.lost()).await, LossReason::Gone);
    drop(guard);

    let guard = removed_after_it_was_put_back(&pair, &holder).await;
    assert_eq!(soon("it is told", guard.lost()).await, LossReason::Gone);
    assert_eq!(holder.stats().reclaimed, 1);
}

/// A new master has forgotten what it never confirmed. What it confirmed in the grace, and lacks afterwards, was removed.
#[tokio::test]
async fn an_unlock_of_what_was_removed_after_it_was_put_back_is_a_loss() {
    let pair = Pair::start().await;
    let holder = pair.client().await;
    let guard = removed_after_it_was_put_back(&pair, &holder).await;
    let error = soon("it is answered", guard.unlock()).await.expect_err("it was removed");
    assert!(matches!(error, Error::Lost { reason: LossReason::Gone, .. }), "{error:?}");
    assert!(!holder.is_ready(), "the grace is not over");
}

/// Connections and subscriptions stay open on the old master, which is a replica from then on.
#[tokio::test]
async fn a_coordinated_failover_is_noticed_by_no_holder() {
    let pair = Pair::start().await;
    let (holder, other) = (pair.client().await, pair.client().await);
    let guard = holder.mutex("n").lock().await.expect("free");
    let token = guard.token();
    let waiter = waiting(other.mutex("n"));
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;
    pair.master.command(&["FAILOVER"]).await;
    let over = async || info(&pair.replica).await.contains("role:master");
    eventually(LIMIT, "the replica is the master", over).await;
    pair.address.lead_new_ones_to(pair.replica.port());
    in_grace(&holder).await;
    eventually(LIMIT, "the other has left, too", async || grace_of(&other).is_some()).await;
    assert!(guard.is_held());
    assert_eq!((guard.token(), holder.stats().reclaimed), (token, 0), "it was there");
    assert!(is_on(&guard, &pair.replica).await);
    guard.unlock().await.expect("held");
    let next = soon("the grace ends", waiter).await.expect("it runs").0.expect("free");
    assert!(next.token() > token);
}

/// A release on the new master hands the lock to the next in the queue, by a message: it does not count in the grace.
#[tokio::test]
async fn a_grant_by_message_in_the_grace_does_not_count() {
    let pair = Pair::start().await;
    let (holder, other) = (pair.client().await, pair.client().await);
    let guard = holder.mutex("n").lock().await.expect("free");
    let waiter = waiting(other.mutex("n"));
    let queued = async || pair.replica.command(&["ZCARD", QUEUE]).await == Value::Int(1);
    eventually(LIMIT, "it stands in the queue, also on the replica", queued).await;
    pair.promote().await;
    pair.switch();
    in_grace(&other).await;
    in_grace(&holder).await;
    let until = grace_of(&other).expect("seen just now");
    let entry = pair.replica.command(&["ZRANGE", QUEUE, "0", "0"]).await;
    let entry: Vec<String> = redis::from_redis_value(entry).expect("a list");
    let mut words = entry[0].split(' ');
    let nonce = words.nth(2).expect("a nonce");
    let id = words.next().expect("an id");
    let client = id.split_once(':').expect("client:uuid").0;
    let mailbox = format!("leasehold_mailbox:{client}:{nonce}");
    let listens = async || subscribers(&pair.replica, &mailbox).await == 1;
    eventually(LIMIT, "it hears its mailbox there", listens).await;
    guard.unlock().await.expect("held");
    // Its message is lost if the mailbox is just being subscribed again.
    let granted = async || pair.replica.command(&["HEXISTS", "n", id]).await == Value::Int(1);
    eventually(LIMIT, "it is granted the lock", granted).await;
    let (next, at) = soon("the grace ends", waiter).await.expect("it runs");
    next.expect("free").unlock().await.expect("held");
    assert!(at >= until, "not before its end");
}

/// A message does not tell whether the server was replaced since the last answer, and the connection may have stayed.
#[tokio::test]
async fn a_grant_by_message_counts_once_the_server_has_confirmed_it() {
    let pair = Pair::start().await;
    let (holder, other) = (pair.client().await, pair.client().await);
    // The first turn may be given by the answer to an ask: the mailbox is only being opened then.
    for _ in 0..3 {
        let guard = holder.mutex("n").lock().await.expect("free");
        let waiter = waiting(other.mutex("n"));
        let queued = async || pair.master.command(&["ZCARD", QUEUE]).await == Value::Int(1);
        eventually(LIMIT, "it stands in the queue", queued).await;
        eventually(LIMIT, "it waits for messages", async || {
            let pattern = "leasehold_mailbox:*";
            let mailboxes = pair.master.command(&["PUBSUB", "CHANNELS", pattern]).await;
            matches!(&mailboxes, Value::Array(channels) if !channels.is_empty())
        })
        .await;
        guard.unlock().await.expect("held");
        let next = soon("its turn", waiter).await.expect("it runs").0.expect("free");
        next.unlock().await.expect("held");
    }
    let stats = other.stats();
    assert!(stats.grants_by_message > 0, "{stats:?}");
    assert_eq!(stats.grants_confirmed, stats.grants_by_message);
}

#[tokio::test]
async fn a_wait_that_ends_in_the_grace_says_how_long_that_lasts() {
    let pair = Pair::start().await;
    pair.promote().await;
    pair.switch();
    let client = connected(pair.builder()).await;
    let began_at = Instant::now();
    let error = client.mutex("n").lock_with_timeout(500 * MS).await.expect_err("in the grace");
    assert!((500 * MS..500 * MS + AT_ONCE).contains(&began_at.elapsed()));
    let text = error.to_string();
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("do not count"), "{text}");
    assert!(!text.contains("another 4s"), "the time that is left: {text}");
}
