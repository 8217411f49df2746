//! Stored state: what may lie at a lock's key, at its counter's and at its queue's when a client comes by, on a real
//! server, so that the scripts themselves meet it. `REDIS_URL` names the server; `scripts/fuzz` starts a private one.
//!
//! Checked:
//! * A key of another type is `WrongType`, a hash with any fields is held by one of them, nothing is free.
//! * A counter of any content never makes two holds' tokens go back, never leaves a lock behind an error, and
//!   never makes an attempt hang.
//! * Entries of a queue that nobody listens for, of any text, keep nobody from the lock. A queue of another type is
//!   `WrongType` to whoever needs it.
//! * `status`, `remaining_ttl` and `force_unlock` say what is stored.
//!
//! A finding again: `scripts/fuzz stored FILE`, with the file that libFuzzer wrote.
#![no_main]

use std::cell::OnceCell;
use std::time::Duration;

use arbitrary::Arbitrary;
use leasehold::{Client, Error, Mutex};
use libfuzzer_sys::fuzz_target;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

#[derive(Arbitrary, Clone, Debug)]
enum Text {
    Empty,
    Zero,
    One,
    Number(i64),
    /// Ahead of any clock, within what tokens may be.
    Ahead(u32),
    Double(f64),
    Ours,
    Javas,
    Entry,
    Any(Vec<u8>),
}

impl Text {
    fn bytes(&self) -> Vec<u8> {
        let text = |text: &str| text.as_bytes().to_vec();
        match self {
            Self::Empty => Vec::new(),
            Self::Zero => text("0"),
            Self::One => text("1"),
            Self::Number(number) => text(&number.to_string()),
            Self::Ahead(by) => text(&((1_u64 << 52) + u64::from(*by)).to_string()),
            Self::Double(number) => text(&number.to_string()),
            Self::Ours => text("billing-7:01234567-89ab-4def-8123-456789abcdef"),
            Self::Javas => text("01234567-89ab-4def-8123-456789abcdef:77"),
            Self::Entry => {
                text("2000 16 00000000000000aa billing-7:01234567-89ab-4def-8123-456789abcdef")
            }
            Self::Any(bytes) => bytes.clone(),
        }
    }
}

#[derive(Arbitrary, Clone, Debug)]
enum Stored {
    Nothing,
    String(Text),
    List(Text),
    Set(Text),
    Stream,
    Hash(Text, Text, Vec<(Text, Text)>),
    Sorted(Text, Vec<(Text, u32)>),
}

#[derive(Arbitrary, Debug)]
struct Plan {
    lock: Stored,
    /// Milliseconds beyond a minute; `None`: no end.
    ttl: Option<u32>,
    counter: Stored,
    queue: Stored,
    force: bool,
    wait: bool,
}

const LOCK: &str = "fuzz-stored";
const COUNTER: &str = "leasehold_token:{fuzz-stored}";
const QUEUE: &str = "leasehold_queue:{fuzz-stored}";

struct Side {
    runtime: Runtime,
    client: Client,
    redis: MultiplexedConnection,
}

impl Side {
    fn new() -> Self {
        let url = std::env::var("REDIS_URL").expect("REDIS_URL: use scripts/fuzz");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (client, redis) = runtime.block_on(async {
            let client = Client::builder().nodes([url.as_str()]).handoff_window(Duration::ZERO);
            let redis = redis::Client::open(url.as_str()).expect("a URL");
            // The limit of a whole run is enough: a busy processor may take half a second from one request.
            let patient = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None);
            let redis = redis.get_multiplexed_async_connection_with_config(&patient);
            let redis = redis.await.expect("a connection");
            (client.connect().await.expect("a client"), redis)
        });
        Self { runtime, client, redis }
    }
}

async fn put(redis: &mut MultiplexedConnection, key: &str, stored: &Stored) {
    let mut command = match stored {
        Stored::Nothing => return,
        Stored::String(_) => redis::cmd("SET"),
        Stored::List(_) => redis::cmd("RPUSH"),
        Stored::Set(_) => redis::cmd("SADD"),
        Stored::Stream => redis::cmd("XADD"),
        Stored::Hash(..) => redis::cmd("HSET"),
        Stored::Sorted(..) => redis::cmd("ZADD"),
    };
    command.arg(key);
    match stored {
        Stored::Nothing => {}
        Stored::String(text) | Stored::List(text) | Stored::Set(text) => {
            command.arg(text.bytes());
        }
        Stored::Stream => {
            command.arg("*").arg("f").arg("v");
        }
        Stored::Hash(field, value, more) => {
            command.arg(field.bytes()).arg(value.bytes());
            for (field, value) in more.iter().take(8) {
                command.arg(field.bytes()).arg(value.bytes());
            }
        }
        Stored::Sorted(member, more) => {
            command.arg(7).arg(member.bytes());
            for (member, score) in more.iter().take(8) {
                command.arg(*score).arg(member.bytes());
            }
        }
    }
    command.exec_async(redis).await.expect("the state");
}

async fn exists(redis: &mut MultiplexedConnection, key: &str) -> bool {
    let mut command = redis::cmd("EXISTS");
    command.arg(key).query_async(redis).await.expect("an answer")
}

async fn play(plan: Plan, client: &Client, mut redis: MultiplexedConnection) {
    let mut clean = redis::cmd("DEL");
    clean.arg(LOCK).arg(COUNTER).arg(QUEUE);
    clean.exec_async(&mut redis).await.expect("an answer");
    put(&mut redis, LOCK, &plan.lock).await;
    put(&mut redis, COUNTER, &plan.counter).await;
    put(&mut redis, QUEUE, &plan.queue).await;
    let ttl = plan.ttl.map(|ms| 60_000 + u64::from(ms));
    if let Some(ttl) = ttl {
        let mut expire = redis::cmd("PEXPIRE");
        expire.arg(LOCK).arg(ttl).exec_async(&mut redis).await.expect("an answer");
    }
    let mutex = client.mutex(LOCK);
    if !matches!(plan.queue, Stored::Nothing | Stored::Sorted(..)) {
        return foreign_queue(&mutex, &mut redis).await;
    }
    match &plan.lock {
        Stored::Nothing => free(&plan, &mutex, &mut redis).await,
        Stored::Hash(field, _, more) => {
            let fields: Vec<String> = std::iter::once(field)
                .chain(more.iter().take(8).map(|(field, _)| field))
                .map(|field| String::from_utf8_lossy(&field.bytes()).into_owned())
                .collect();
            held(&plan, &mutex, &fields, ttl).await;
            assert_eq!(exists(&mut redis, LOCK).await, !plan.force);
        }
        _ => {
            let is_wrong_type = |error| matches!(error, Some(Error::WrongType { .. }));
            assert!(is_wrong_type(mutex.try_lock().await.err()));
            assert!(is_wrong_type(mutex.lock().await.err()));
            assert!(is_wrong_type(mutex.status().await.err()));
            assert!(is_wrong_type(mutex.force_unlock().await.err()));
            assert!(exists(&mut redis, LOCK).await, "a foreign key was deleted");
        }
    }
}

/// Somebody else's key lies where the queue should be: nobody gets the lock.
async fn foreign_queue(mutex: &Mutex, redis: &mut MultiplexedConnection) {
    let is_wrong_type = |error| matches!(error, Some(Error::WrongType { .. }));
    assert!(is_wrong_type(mutex.try_lock().await.err()));
    assert!(is_wrong_type(mutex.lock().await.err()));
    assert!(is_wrong_type(mutex.status().await.err()));
    assert!(exists(redis, QUEUE).await, "a foreign key was deleted");
}

/// Nothing is stored but perhaps the counter, and a queue.
async fn free(plan: &Plan, mutex: &Mutex, redis: &mut MultiplexedConnection) {
    if let Ok(status) = mutex.status().await {
        let entries = match &plan.queue {
            Stored::Sorted(_, more) => 1 + more.len().min(8),
            _ => 0,
        };
        assert!(status.waiting.len() <= entries, "{:?} of {entries}", status.waiting);
        assert!(status.holder.is_none() && status.remaining.is_none() && status.hold_count == 0);
    }
    let mut last = match &plan.counter {
        Stored::String(text) => match std::str::from_utf8(&text.bytes()).map(str::parse::<u64>) {
            Ok(Ok(number)) if number < 1 << 53 => number,
            _ => 0,
        },
        _ => 0,
    };
    for _ in 0..2 {
        match mutex.try_lock().await {
            Ok(Some(guard)) => {
                assert!(guard.token() > last, "token {} after {last}", guard.token());
                last = guard.token();
                guard.unlock().await.expect("a release");
            }
            Ok(None) => panic!("held by nobody"),
            // The counter is none, or at its end: beyond 2^53 Lua cannot count.
            Err(error) => {
                let at_end = last + 1 >= 1 << 53;
                let bad = !matches!(plan.counter, Stored::Nothing) && (last == 0 || at_end);
                assert!(bad, "{error}, though the counter is sound");
                // What the script did is undone in the background.
                let gone = async {
                    while exists(redis, LOCK).await {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                let gone = tokio::time::timeout(Duration::from_secs(5), gone).await;
                gone.expect("a lock stays behind an error");
            }
        }
    }
    assert!(!exists(redis, LOCK).await);
}

/// A hash is stored, and so the lock is held.
async fn held(plan: &Plan, mutex: &Mutex, fields: &[String], ttl: Option<u64>) {
    assert!(mutex.try_lock().await.expect("an answer").is_none(), "taken from another");
    if plan.wait {
        match mutex.lock_with_timeout(Duration::from_millis(5)).await {
            Err(Error::Timeout { holder: Some(holder), remaining, .. }) => {
                assert!(fields.iter().any(|field| field == holder.as_str()), "{holder}");
                assert_eq!(remaining.is_some(), ttl.is_some());
            }
            // The server was busy elsewhere.
            Err(Error::Unavailable { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    match mutex.status().await {
        Ok(status) => {
            let holder = status.holder.expect("a holder");
            assert!(fields.iter().any(|field| field == holder.as_str()), "{holder}");
            assert!(status.remaining <= ttl.map(Duration::from_millis));
            assert_eq!(status.remaining.is_some(), ttl.is_some());
        }
        Err(error) => {
            let is_foreign = !matches!(plan.counter, Stored::Nothing | Stored::String(_));
            assert!(is_foreign, "{error}");
        }
    }
    if plan.force {
        assert!(mutex.force_unlock().await.expect("an answer"));
    }
}

thread_local! {
    static SIDE: OnceCell<Side> = const { OnceCell::new() };
}

fuzz_target!(|plan: Plan| {
    SIDE.with(|side| {
        let side = side.get_or_init(Side::new);
        let limit = Duration::from_secs(20);
        side.runtime.block_on(async {
            let played = play(plan, &side.client, side.redis.clone());
            tokio::time::timeout(limit, played).await.expect("a call that hangs");
        });
    });
});
