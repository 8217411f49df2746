//! A server, the scripts, and what they answer as text.

use std::fmt;

use futures_util::StreamExt;
use redis::{
    Client, RedisError, RedisResult, Value,
    aio::{MultiplexedConnection, PubSub},
};

use crate::support::{Server, lua};

pub(crate) const NAME: &str = "orders";
pub(crate) const TOKEN: &str = "leasehold_token:{orders}";
pub(crate) const CHANNEL: &str = "redisson_lock__channel:{orders}";

/// One run of a script.
#[derive(Clone)]
pub(crate) struct Call {
    script: &'static str,
    keys: Vec<String>,
    args: Vec<String>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = lua::ALL.iter().find(|(_, text)| *text == self.script);
        let name = known.map_or("a script of Redisson", |(name, _)| name);
        write!(f, "{name} {:?} {:?}", self.keys, self.args)
    }
}

impl Call {
    pub(crate) fn new(script: &'static str, keys: &[&str], args: &[&str]) -> Self {
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Self { script, keys: owned(keys), args: owned(args) }
    }

    /// The same with another token key: Redisson's, say.
    pub(crate) fn with_token_key(mut self, key: &str) -> Self {
        self.keys[1] = key.to_owned();
        self
    }

    /// The same with another key and more arguments.
    pub(crate) fn and(mut self, key: &str, args: &[&str]) -> Self {
        self.keys.push(key.to_owned());
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    fn command(&self) -> redis::Cmd {
        let mut eval = redis::cmd("EVAL");
        eval.arg(self.script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        eval
    }

    /// The same with one more argument.
    pub(crate) fn and_arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// The same with another argument at `index`.
    fn with(mut self, index: usize, arg: impl ToString) -> Self {
        self.args[index] = arg.to_string();
        self
    }
}

/// An acquire of one hold for 30 s, of one token that is kept for a day.
pub(crate) fn acquire(id: &str) -> Call {
    let args = [id, "30000", "1", "", "86400000", "1"];
    Call::new(lua::LOCK_ACQUIRE, &[NAME, TOKEN], &args)
}

/// What an acquire may differ in.
impl Call {
    pub(crate) fn ttl_ms(self, ttl_ms: u64) -> Self {
        self.with(1, ttl_ms)
    }

    pub(crate) fn block(self, block: u32) -> Self {
        self.with(2, block)
    }

    pub(crate) fn entry(self, entry: &str) -> Self {
        self.with(3, entry)
    }

    pub(crate) fn retention_ms(self, retention_ms: u64) -> Self {
        self.with(4, retention_ms)
    }
}

pub(crate) fn renew(id: &str, count: u32, ttl_ms: u64) -> Call {
    Call::new(lua::LOCK_RENEW, &[NAME], &[id, &count.to_string(), &ttl_ms.to_string()])
}

pub(crate) fn release(id: &str) -> Call {
    release_by(id, "PUBLISH")
}

pub(crate) fn release_by(id: &str, publish_verb: &str) -> Call {
    Call::new(lua::LOCK_RELEASE, &[NAME, TOKEN], &[id, CHANNEL, publish_verb, "0"])
}

pub(crate) fn release_later(id: &str, keep_ms: u64) -> Call {
    let args = [id, CHANNEL, "PUBLISH", &keep_ms.to_string()];
    Call::new(lua::LOCK_RELEASE, &[NAME, TOKEN], &args)
}

pub(crate) fn force_unlock() -> Call {
    Call::new(lua::FORCE_UNLOCK, &[NAME, TOKEN], &["", "PUBLISH", CHANNEL, ""])
}

pub(crate) fn force_unlock_if(id: &str) -> Call {
    force_unlock_if_old(id, 0)
}

/// Only if the lock was taken so long ago.
pub(crate) fn force_unlock_if_old(id: &str, age_us: u64) -> Call {
    let args = [id, "PUBLISH", CHANNEL, &age_us.to_string()];
    Call::new(lua::FORCE_UNLOCK, &[NAME, TOKEN], &args)
}

pub(crate) fn status() -> Call {
    Call::new(lua::LOCK_STATUS, &[NAME, TOKEN], &[CHANNEL])
}

/// Puts so many entries of clients that are gone into a queue.
pub(crate) async fn crowd_of_the_gone(bench: &mut Bench, queue: &str, entry: &str, number: u32) {
    bench.server.keeps(queue);
    let fill = "for i = 1, ARGV[2] do redis.call('ZADD', KEYS[1], i, ARGV[1] .. i) end";
    let call = Call::new(fill, &[queue], &[entry, &number.to_string()]);
    bench.run(&call).await.expect("the script runs");
}

/// A server of its own for a test, and a connection on which it runs the scripts.
pub(crate) struct Bench {
    pub(crate) server: Server,
    connection: MultiplexedConnection,
    /// How often subscribers were asked.
    asked: u32,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let server = Server::start().await;
        // A caller may ask for a counter without an end; tests here do, and make some by hand.
        server.keeps(TOKEN);
        let connection = server.raw().await;
        Self { server, connection, asked: 0 }
    }

    /// Runs the script as a user whose rights are `rules`, from nothing.
    pub(crate) async fn run_as(&self, rules: &[&str], call: &Call) -> RedisResult<Value> {
        self.server.command(&["ACL", "SETUSER", "limited", "reset", "on", ">secret"]).await;
        self.server.command(&[&["ACL", "SETUSER", "limited"], rules].concat()).await;
        let mut connection = self.server.raw_as("limited", "secret").await;
        eval(&mut connection, call).await
    }

    pub(crate) async fn run(&mut self, call: &Call) -> RedisResult<Value> {
        eval(&mut self.connection, call).await
    }

    /// Runs a script, and compares what it answers and how it leaves the lock.
    pub(crate) async fn expect(&mut self, call: &Call, reply: &str, state: &str) {
        let answered = answer(self.run(call).await);
        assert_eq!(answered, reply, "the reply of {call:?}");
        assert_eq!(self.state().await, state, "the state after {call:?}");
    }

    /// Runs a script twice, which must be as if it ran once.
    pub(crate) async fn expect_twice(&mut self, call: &Call, replies: [&str; 2], state: &str) {
        for reply in replies {
            self.expect(call, reply, state).await;
        }
    }

    /// Runs a command that must succeed, written as one line.
    pub(crate) async fn command(&mut self, line: &str) -> Value {
        let mut words = line.split_whitespace();
        let mut command = redis::cmd(words.next().expect("a command has a name"));
        command.arg(words.collect::<Vec<_>>());
        match command.query_async(&mut self.connection).await {
            Ok(reply) => reply,
            Err(error) => panic!("{line}: {error}"),
        }
    }

    /// What a command answers, which is a number.
    pub(crate) async fn number(&mut self, line: &str) -> i64 {
        redis::from_redis_value(self.command(line).await).expect("a number")
    }

    /// What a command answers, which is a number, at once after a script: no time passes for the server in between.
    pub(crate) async fn number_after(&mut self, call: &Call, line: &str) -> i64 {
        let mut words = line.split_whitespace();
        let mut both = redis::pipe();
        both.atomic().add_command(call.command()).ignore();
        both.cmd(words.next().expect("a command has a name")).arg(words.collect::<Vec<_>>());
        let (number,): (i64,) = both.query_async(&mut self.connection).await.expect("both run");
        number
    }

    /// As [`command`](Self::command), with the reply as text.
    pub(crate) async fn ask(&mut self, line: &str) -> String {
        text(&self.command(line).await)
    }

    /// The lock's key as text: its fields and what is left of its lease, or its type where it is no hash.
    pub(crate) async fn state(&mut self) -> String {
        match self.ask(&format!("TYPE {NAME}")).await.as_str() {
            "hash" => {
                let fields = self.ask(&format!("HGETALL {NAME}")).await;
                format!("{fields} {}", self.ask(&format!("PTTL {NAME}")).await)
            }
            other => other.to_owned(),
        }
    }

    /// The last token that was taken, read with all its digits.
    pub(crate) async fn counter(&mut self, key: &str) -> i64 {
        let counter = self.command(&format!("GET {key}")).await;
        redis::from_redis_value(counter).expect("the counter is a number")
    }

    /// Acquires, and returns the end of the token block.
    pub(crate) async fn acquired(&mut self, call: &Call) -> i64 {
        let reply = self.run(call).await.expect("the script runs");
        match &reply {
            Value::Int(end) => *end,
            Value::Array(items) => match items[..] {
                [Value::Int(1), Value::Int(end)]
                | [Value::Int(1), Value::Int(end), Value::Int(_)] => end,
                _ => panic!("{call:?} answered {reply:?}"),
            },
            _ => panic!("{call:?} answered {reply:?}"),
        }
    }

    /// Acquires `count` holds on one lease, and returns the end of the token block.
    pub(crate) async fn acquired_deep(&mut self, id: &str, count: u32) -> i64 {
        let end = self.acquired(&acquire(id)).await;
        self.run(&renew(id, count, 0)).await.expect("the script runs");
        end
    }

    /// A subscriber of the lock's channel.
    pub(crate) async fn subscriber(&self) -> Subscriber {
        self.subscriber_of(CHANNEL).await
    }

    pub(crate) async fn subscriber_of(&self, channel: &str) -> Subscriber {
        let client = Client::open(self.server.url()).expect("the address is valid");
        let mut connection = client.get_async_pubsub().await.expect("the server accepts");
        connection.subscribe(channel).await.expect("the server subscribes");
        Subscriber { connection, channel: channel.to_owned() }
    }

    /// What the subscriber was told since it was asked last.
    pub(crate) async fn messages(&mut self, subscriber: &mut Subscriber) -> Vec<String> {
        // Messages come in order: none is on its way any more when this one is there.
        self.asked += 1;
        let mark = format!("{MARK}{}", self.asked);
        self.command(&format!("PUBLISH {} {mark}", subscriber.channel)).await;
        let mut told = Vec::new();
        loop {
            let message = subscriber.connection.on_message().next().await;
            let message = message.expect("the subscription lasts");
            let payload: String = message.get_payload().expect("the message is text");
            if payload == mark {
                return told;
            }
            // Other subscribers' marks are no scripts' messages.
            if !payload.starts_with(MARK) {
                told.push(payload);
            }
        }
    }
}

pub(crate) struct Subscriber {
    connection: PubSub,
    channel: String,
}

async fn eval(connection: &mut MultiplexedConnection, call: &Call) -> RedisResult<Value> {
    call.command().query_async(connection).await
}

/// A script's answer as text.
pub(crate) fn answer(reply: RedisResult<Value>) -> String {
    match reply {
        Ok(reply) => text(&reply),
        Err(error) => refusal(&error).to_owned(),
    }
}

/// An error by its kind; that of a refused right is worded differently by each version.
fn refusal(error: &RedisError) -> &'static str {
    let message = error.to_string();
    let kinds = [
        ("WRONGTYPE", "WRONGTYPE"),
        ("OOM", "OOM"),
        ("has no permissions to run", "NOPERM"),
        ("can't run this command", "NOPERM"),
    ];
    let found = kinds.iter().find(|(words, _)| message.contains(words));
    found.unwrap_or_else(|| panic!("not an error that a test expects: {message}")).1
}

fn text(reply: &Value) -> String {
    match reply {
        Value::Nil => "nil".into(),
        Value::Okay => "OK".into(),
        Value::Int(number) => number_text(*number),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            text.parse().map_or_else(|_| text.replace(OURS, ""), number_text)
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(text).collect();
            format!("[{}]", items.join(", "))
        }
        other => panic!("not a reply that a test expects: {other:?}"),
    }
}

pub(crate) fn number_text(number: i64) -> String {
    if number < 100 {
        return number.to_string();
    }
    // Any value from the last shorter lease up to this one counts as this one: tests may be slow.
    let lease = LEASES.iter().find(|(ttl_ms, _)| number <= *ttl_ms);
    lease.map_or("token", |(_, name)| name).to_owned()
}

/// What shows that an id is one of ours, where that matters: it ends as a UUID does. It is not written out in what tests expect.
pub(crate) const OURS: &str = "-0-0-0-0";
/// How the message begins that ends a list of messages.
const MARK: &str = "asked-";
const LEASES: [(i64, &str); 7] = [
    (2_000, "2s"),
    (5_000, "5s"),
    (13_500, "13.5s"),
    (30_000, "30s"),
    (60_000, "60s"),
    (300_000, "300s"),
    (86_400_000, "1d"),
];
