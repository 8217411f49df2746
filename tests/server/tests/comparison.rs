//! It answers as a real server does: the same commands on both, scripts included.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use leasehold_test::Server;
use leasehold_test::emulator::resp::Value;
use leasehold_test::emulator::{Rng, Server as Emulated};

/// A real server on a port of its own, ended on drop.
struct Real {
    process: Child,
    port: u16,
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Real {
    fn start() -> Self {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = free.local_addr().expect("an address").port();
            drop(free);
            let mut command = std::process::Command::new("redis-server");
            command
                .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
                .args(["--bind", "127.0.0.1"])
                .stdout(Stdio::null());
            let process = command.spawn().expect("redis-server is installed: scripts/setup");
            let mut real = Self { process, port };
            // Another server may have been faster with this port; then this one ends.
            while real.process.try_wait().expect("a child").is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() && real.listens() {
                    return real;
                }
                assert!(Instant::now() < until, "the server does not start");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// It is this process that answers, and no other.
    fn listens(&self) -> bool {
        // Whoever else has the port may answer nothing.
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(b"INFO server\r\nQUIT\r\n")?;
            let mut info = String::new();
            stream.read_to_string(&mut info)?;
            Ok(info)
        };
        ask().is_ok_and(|info| info.contains(&format!("process_id:{}\r", self.process.id())))
    }
}

/// A connection to either of them.
struct Connection(TcpStream);

impl Connection {
    fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        stream.set_nodelay(true).expect("set");
        Self(stream)
    }

    fn ask(&mut self, command: &[Vec<u8>]) -> Value {
        self.send(command);
        self.reply()
    }

    fn send(&mut self, command: &[Vec<u8>]) {
        let mut wire = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            wire.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            wire.extend_from_slice(word);
            wire.extend_from_slice(b"\r\n");
        }
        self.0.write_all(&wire).expect("written");
    }

    /// A number that a real server has; zero where the key is something else.
    fn count(&mut self, command: &[&str]) -> i64 {
        match self.ask(&words(command)) {
            Value::Int(number) => number,
            _ => 0,
        }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).expect("an answer in time");
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    fn bytes(&mut self, length: &str) -> Vec<u8> {
        let mut bytes = vec![0; length.parse::<usize>().expect("a length") + 2];
        self.0.read_exact(&mut bytes).expect("an answer in time");
        bytes.truncate(bytes.len() - 2);
        bytes
    }

    fn list(&mut self, length: &str) -> Vec<Value> {
        let count: usize = length.parse().expect("a length");
        (0..count).map(|_| self.reply()).collect()
    }

    fn reply(&mut self) -> Value {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(rest.parse().expect("a number")),
            "_" => Value::Nil,
            "$" | "*" if rest == "-1" => Value::Nil,
            "$" => Value::Bulk(self.bytes(rest)),
            "=" => Value::Verbatim(String::from_utf8_lossy(&self.bytes(rest)[4..]).into_owned()),
            "*" => Value::Array(self.list(rest)),
            ">" => Value::Push(self.list(rest)),
            "%" => {
                let count: usize = rest.parse().expect("a length");
                Value::Map((0..count).map(|_| (self.reply(), self.reply())).collect())
            }
            _ => panic!("not an answer: {line}"),
        }
    }
}

fn mailbox() -> String {
    format!("leasehold_mailbox:c:{LISTENS}")
}

/// What may differ is made equal: numbers near a time to live or a clock, and where in a script an error was.
fn normalised(value: &Value) -> Value {
    match value {
        Value::Int(number) if *number > 1_000_000_000_000_000 => Value::Int(-77),
        // A time to live, of a lock that was granted from the queue, or longer: some of it has passed on the one or the
        // other.
        Value::Int(100..=5_000) => Value::Int(2_000),
        Value::Int(number) if *number > 5_000 => Value::Int((number + 5_000) / 10_000),
        Value::Bulk(bytes) if is_clock(bytes) => Value::bulk("a clock"),
        Value::Bulk(bytes) if is_content(bytes) => Value::bulk(bytes_behind(bytes, b':')),
        Value::Error(text) => {
            let end = text.find(" script: ").unwrap_or(text.len());
            Value::Error(text[..end].to_owned())
        }
        Value::Array(items) => Value::Array(items.iter().map(normalised).collect()),
        Value::Map(pairs) => Value::Array(
            pairs.iter().flat_map(|(key, value)| [normalised(key), normalised(value)]).collect(),
        ),
        Value::Verbatim(text) => Value::bulk(text),
        other => other.clone(),
    }
}

fn is_clock(bytes: &[u8]) -> bool {
    bytes.len() >= 16 && bytes.iter().all(u8::is_ascii_digit)
}

/// What a queue has of an item: how often it was delivered, when, and its payload.
fn is_content(bytes: &[u8]) -> bool {
    let head = bytes.split(|byte| *byte == b':').next().unwrap_or_default();
    let mut words = head.split(|byte| *byte == b' ');
    words.next().is_some_and(|number| number.iter().all(u8::is_ascii_digit))
        && words.next().is_some_and(is_clock)
}

fn bytes_behind(bytes: &[u8], byte: u8) -> Vec<u8> {
    let at = bytes.iter().position(|other| *other == byte).unwrap_or(0);
    bytes[at..].to_vec()
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// The end of the name of a mailbox that somebody listens to, and of one that nobody does.
const LISTENS: &str = "0123456789abcdef";
const GONE: &str = "fedcba9876543210";

/// A random call of a script.
fn script_call(rng: &mut Rng) -> Vec<Vec<u8>> {
    let lock = ["a", "b", "text"][rng.below(3) as usize];
    let (token, channel) = (format!("token:{lock}"), format!("channel:{lock}"));
    let queue = format!("queue:{lock}");
    let id = ["c:1", "c:2", "c:3"][rng.below(3) as usize];
    let count = ["1", "2", "7"][rng.below(3) as usize];
    let ttl = ["20000", "40000", "0", "-1", "never"]
        [rng.weighted(&[(0, 9), (1, 9), (2, 1), (3, 1), (4, 1)])];
    let retention = ["60000", "0"][rng.below(2) as usize];
    let grain = ["1", "10000000"][rng.below(2) as usize];
    let verb = ["PUBLISH", "NOSUCH"][usize::from(rng.chance(100))];
    let keep = ["0", "10000"][usize::from(rng.chance(300))];
    let age = ["", "0", "60000000"][rng.weighted(&[(0, 5), (1, 4), (2, 1)])];
    let entry = match rng.below(4) {
        0 => String::new(),
        1 => format!("30000 3 {LISTENS} {id}"),
        2 => format!("2500 1 {LISTENS} {id}"),
        _ => format!("30000 3 {GONE} {id}"),
    };
    let granted = ["", "1"][usize::from(!entry.is_empty() && rng.chance(500))];
    let said = rng.below(8) as usize;
    let end = ["1", "9007199254740000"][rng.below(2) as usize];
    let (name, mut keys, args): (_, Vec<&str>, Vec<&str>) = match rng.below(8) {
        0..3 => (
            "lock_acquire",
            vec![lock, &token],
            behind(&[id, ttl], &["3", &entry, retention, grain, "2"], said),
        ),
        3 => ("lock_renew", vec![lock], vec![id, count, ttl]),
        4 => (
            "lock_release",
            vec![lock, &token],
            behind(&[id, &channel], &[verb, keep, retention, &entry, granted], said),
        ),
        5 => ("lock_status", vec![lock, &token], vec![&channel, "3"]),
        6 if rng.chance(500) => ("preflight", vec![], vec!["probe", verb]),
        6 => ("fence_raise", vec![lock, &token], vec![id, end, retention]),
        _ => ("force_unlock", vec![lock, &token], vec![id, verb, &channel, age, retention]),
    };
    let may_queue = ["lock_acquire", "lock_release", "lock_status", "force_unlock"].contains(&name);
    if may_queue && rng.chance(800) {
        keys.push(&queue);
    }
    eval(rng, name, &keys, &args)
}

/// Arguments, and the first so many of those that may be left away.
fn behind<'a>(first: &[&'a str], optional: &[&'a str], said: usize) -> Vec<&'a str> {
    [first, &optional[..said.min(optional.len())]].concat()
}

/// A random call of a script of another kind of lock.
fn kind_call(rng: &mut Rng) -> Vec<Vec<u8>> {
    let id = ["c:1", "c:2", "c:3"][rng.below(3) as usize];
    let ttl = ["20000", "40000"][rng.below(2) as usize];
    let reads = rng.chance(500);
    let side = if reads { "read" } else { "write" };
    let retention = ["60000", "0"][rng.below(2) as usize];
    let verb = ["PUBLISH", "NOSUCH"][usize::from(rng.chance(100))];
    let weight = ["1", "2", "3"][rng.below(3) as usize];
    let of_permits = rng.chance(500);
    let block = if of_permits { weight } else { ["3", "0"][usize::from(reads)] };
    let entry = match rng.below(4) {
        0 => String::new(),
        1 => format!("30000 {block} {GONE} {id}"),
        _ => format!("30000 {block} {LISTENS} {id}"),
    };
    let granted = ["", "1"][usize::from(!entry.is_empty() && rng.chance(500))];
    let from = ["c:1", "c:2"][rng.below(2) as usize];
    let from: &[&str] = if reads && rng.chance(300) { &[from] } else { &[] };
    let age = ["", "0"][rng.below(2) as usize];
    let (permits, initial) =
        (["sem", "{sem}:timeout", "queue:sem"], ["", "4"][rng.below(2) as usize]);
    let lock = ["rw", "a"][usize::from(rng.chance(100))];
    let mut locks = vec![lock, "token:rw", "queue:rw"];
    if rng.chance(200) {
        locks.pop();
    }
    let keep = ["0", "10000"][usize::from(rng.chance(300))];
    let (name, keys, args): (_, &[&str], Vec<&str>) = match (of_permits, rng.below(8)) {
        (false, 0..3) => (
            "rw_acquire",
            &locks,
            [
                &[
                    id,
                    "1",
                    ttl,
                    block,
                    retention,
                    "1",
                    "channel:rw",
                    &entry,
                    "2",
                    "NUMSUB",
                    side,
                    verb,
                ],
                from,
            ]
            .concat(),
        ),
        (false, 3 | 4) => {
            let args = [id, verb, "channel:rw", side, retention, &entry, granted];
            ("rw_release", &locks, behind(&args, &[keep], rng.below(2) as usize))
        }
        (false, 5) if rng.chance(500) => ("read_renew", &locks[..1], vec![id, ttl]),
        (false, 5) => {
            let tokens = ["1", "9007199254740000"][usize::from(rng.chance(100))];
            ("rw_reclaim", &locks, vec![id, "1", ttl, "1", tokens, retention, &entry, side])
        }
        (false, 6) => ("rw_status", &locks, vec!["channel:rw", "3", "NUMSUB"]),
        (false, _) => ("rw_force_unlock", &locks, vec![id, verb, "channel:rw", age, retention]),
        (true, 0..3) => (
            "permit_acquire",
            &permits,
            vec![id, weight, ttl, verb, "channel:sem", initial, &entry, "2", "NUMSUB"],
        ),
        (true, 3 | 4) => (
            "permit_release",
            &permits,
            vec![id, weight, keep, verb, "channel:sem", "", &entry, granted],
        ),
        (true, 5) => ("permit_renew", &permits[1..2], vec![id, weight, ttl]),
        (true, 6) => ("permit_reclaim", &permits, vec![id, weight, ttl, initial, &entry]),
        (true, _) => ("permit_status", &permits, vec!["channel:sem", "3", "NUMSUB"]),
    };
    eval(rng, name, keys, &args)
}

/// A random call of a script of a queue of items, a latch, a signal or a group of signals.
fn coordination_call(rng: &mut Rng) -> Vec<Vec<u8>> {
    // What ends one after the other ends in that order on both.
    let number = rng.below(3) as usize;
    let (id, ttl) = (["c:1", "c:2", "c:3"][number], ["20000", "40000", "60000"][number]);
    let how = ["1", "2", "5"][rng.below(3) as usize];
    let entry = match rng.below(3) {
        0 => String::new(),
        1 => format!("{ttl} {how} {LISTENS} {id}"),
        _ => format!("{ttl} {how} {GONE} {id}"),
    };
    let verb = ["PUBLISH", "NOSUCH"][usize::from(rng.chance(100))];
    let items = ["jobs", "lent:jobs", "queue:jobs", "items:jobs", "dead:jobs"];
    let latch = [["latch", "text", "a"][rng.below(3) as usize]];
    // Numbers that nobody reaches, and one that everybody has passed.
    let seen = ["", "0", "9007199254740000"][rng.below(3) as usize];
    let lent_at = ["", "1700000000000000"][usize::from(rng.chance(200))];
    let outcome = ["ack", "reject", "undo", "retry"][[3, 1, 0][number].min(rng.below(4) as usize)];
    let (name, keys, args): (_, &[&str], Vec<&str>) = match rng.below(16) {
        0 | 1 => ("item_push", &items, vec![["0", "4"][rng.below(2) as usize], "x", "y:\0z"]),
        2..5 => ("item_pop", &items, vec![id, how, ttl, &entry, "2"]),
        5 => ("item_renew", &[items[1], items[3]], vec![id, ttl, ["", "1"][rng.below(2) as usize]]),
        6 | 7 => ("item_settle", &items, vec![id, outcome, ttl, &entry, lent_at]),
        8 => ("item_status", &items, vec!["3", "2"]),
        9 => ("item_redrive", &items, vec!["2"]),
        10 if rng.chance(300) => ("latch_delete", &latch, vec![verb, "channel:latch"]),
        10 => {
            ("latch_set", &latch, vec!["3", ["0", "40000"][rng.below(2) as usize], verb, "channel"])
        }
        11 => ("latch_count_down", &latch, vec![verb, "channel:latch"]),
        12 => ("latch_status", &latch, vec![]),
        13 if rng.chance(500) => {
            ("signal_notify", &["signal"], vec!["data", "60000", verb, "channel:signal"])
        }
        13 => ("signal_status", &["signal"], vec![seen, "60000"]),
        14 => {
            let most = ["3", "100"][rng.below(2) as usize];
            let names = ["m1", "m2", "m3"];
            let (one, other) = (names[number], names[rng.below(3) as usize]);
            ("group_notify", &["group"], vec!["60000", verb, "channel:group", most, one, other])
        }
        _ => ("group_status", &["group"], vec![seen, "60000"]),
    };
    eval(rng, name, keys, &args)
}

fn eval(rng: &mut Rng, name: &str, keys: &[&str], args: &[&str]) -> Vec<Vec<u8>> {
    let (_, body) = leasehold::seam::scripts().find(|(known, _)| *known == name).expect("a script");
    let body = body.as_bytes();
    let mut command = match rng.chance(300) {
        true => vec![b"EVALSHA".to_vec(), leasehold_test::emulator::sha1(body).into_bytes()],
        false => vec![b"EVAL".to_vec(), body.to_vec()],
    };
    command.push(keys.len().to_string().into_bytes());
    command.extend(words(keys));
    command.extend(words(args));
    command
}

/// A random command.
fn command(rng: &mut Rng) -> Vec<Vec<u8>> {
    let key = ["a", "b", "text", "token:a", "queue:a", "gone"][rng.below(6) as usize];
    let field = ["c:1", "c:2"][rng.below(2) as usize];
    let number = ["17000", "40000", "0", "-5", "x", "9223372036854775807"][rng.below(6) as usize];
    match rng.below(52) {
        0 => words(&["GET", key]),
        1 => words(&["SET", key, "5"]),
        2 => words(&["set", key, "6", "px", number]),
        3 => words(&["SET", key, "7", "PX", number, "GET"]),
        4 => words(&["SET", key, "8", ["NOSUCH", "KEEPTTL"][rng.below(2) as usize]]),
        5 => words(&["INCR", key]),
        6 => words(&["DEL", key, "gone"]),
        7 => words(&["EXISTS", key, key]),
        8 => words(&["TYPE", key]),
        9 | 10 => words(&["PTTL", key]),
        11 => words(&["PEXPIRE", key, number]),
        12 => words(&["PERSIST", key]),
        13 => words(&["HSET", key, field, "1"]),
        14 => words(&["HSET", key, field, "1", field]),
        15 => words(&["HGET", key, field]),
        16 => words(&["HDEL", key, field, "c:9"]),
        17 => words(&["HEXISTS", key, field]),
        18 => words(&["HLEN", key]),
        19 => words(&["HGETALL", key]),
        20 => words(&["PUBSUB", "NUMSUB", "channel:a"]),
        21 => words(&["PUBLISH", "channel:a", "0"]),
        22 => words(&["SCRIPT", "FLUSH"]),
        23 => words(&["ZADD", key, "17", "m1", "5", "m2"]),
        24 => words(&["ZADD", key, "nx", "5", field, "4", "m1"]),
        25 => words(&["ZADD", key, "NX", "odd", field]),
        26 => words(&["ZREM", key, field, "m1"]),
        27 => words(&["ZPOPMIN", key]),
        28 => words(&["ZRANK", key, field]),
        29 => words(&["ZRANGE", key, number, "-1", "withscores"]),
        30 => words(&["ZCARD", key]),
        31 => words(&["ZRANGE", key, "0", "-2"]),
        32 => words(&["ZADD", key, "xx", "GT", "7", "m1", "3", "m2"]),
        33 => words(&["ZADD", key, "LT", "6", "m1", "4", field]),
        34 => words(&["ZADD", key, "GT", "LT", "6", "m1"]),
        35 => words(&["ZADD", key, "XX", "6", field]),
        36 => words(&["ZRANGE", key, "-inf", "6", "BYSCORE", "LIMIT", "0", "2"]),
        37 => words(&["ZRANGE", key, "(5", "+inf", "byscore", "limit", "1", "-1", "WITHSCORES"]),
        38 => words(&["ZRANGE", key, "(x", "7", "BYSCORE", "LIMIT", "0", "2"]),
        39 => words(&["HRANDFIELD", key, ["17000", "0", "x"][rng.below(3) as usize], "withvalues"]),
        40 => words(&["ZRANGE", key, "(5", "+inf", "BYSCORE"]),
        41 => words(&["ZRANGE", key, "-inf", "6", "BYSCORE", "WITHSCORES"]),
        42 => words(&["ZPOPMIN", key, ["2", "0", "-1", "x"][rng.below(4) as usize]]),
        43 => words(&["RPUSH", key, "e1"]),
        44 => words(&["RPUSH", key, "e2", "e3", field]),
        45 => words(&["LPOP", key]),
        46 => words(&["RPOP", key]),
        47 => words(&["LLEN", key]),
        48 => words(&["LINDEX", key, ["0", "1", "-1", "-9", "x"][rng.below(5) as usize]]),
        49 | 50 => words(&["LRANGE", key, "0", ["-1", "1", "x"][rng.below(3) as usize]]),
        _ => words(&["GET"]),
    }
}

#[test]
fn it_answers_as_a_real_one_does() {
    let (real, fake) = (Real::start(), Server::start());
    let fake_port = port_of(&fake);
    let [mut expecting, mut finding] = [real.port, fake_port].map(Connection::to);
    let mut listeners = [real.port, fake_port].map(Connection::to);
    for listener in &mut listeners {
        listener.ask(&words(&["SUBSCRIBE", &mailbox()]));
    }
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        for connection in [&mut expecting, &mut finding] {
            connection.ask(&words(&["FLUSHALL"]));
            connection.ask(&words(&["SCRIPT", "FLUSH"]));
        }
        let mut log = String::new();
        for _ in 0..150 {
            let command = match rng.below(5) {
                0 => kind_call(&mut rng),
                1 => script_call(&mut rng),
                2 => coordination_call(&mut rng),
                _ => command(&mut rng),
            };
            let shown: Vec<String> = command
                .iter()
                .map(|word| String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned())
                .collect();
            let sorts = [&b"HGETALL"[..], b"HRANDFIELD"].contains(&&*command[0]);
            let expected = in_order(normalised(&expecting.ask(&command)), sorts);
            let found = in_order(normalised(&finding.ask(&command)), sorts);
            log.push_str(&format!("{shown:?}\n  real {expected:?}\n  fake {found:?}\n"));
            if expected == found {
                continue;
            }
            let fields = ["a", "b", "text"].map(|lock| expecting.count(&["HLEN", lock]));
            let two_fields =
                fields.iter().any(|count| *count > 1) || expecting.count(&["HLEN", "rw"]) > 2;
            let several_out = expecting.count(&["ZCARD", "{sem}:timeout"]) > 1;
            let same = (two_fields && same_but_holder(&expected, &found))
                || (several_out && without_permits(&expected) == without_permits(&found));
            assert!(same, "seed {seed}\n{log}");
        }
    }
}

/// What clients ask besides scripts, in both versions of the protocol, with and without rights.
#[test]
fn it_speaks_as_a_real_one_does() {
    let (real, fake) = (Real::start(), Server::start());
    let fake_port = port_of(&fake);
    let [mut admin, mut other] = [real.port, fake_port].map(Connection::to);
    let mut different = Vec::new();
    for version in ["2", "3"] {
        let [mut expecting, mut finding] = [real.port, fake_port].map(Connection::to);
        let mut same = |line: &str| {
            let command = words(&line.split(' ').collect::<Vec<_>>());
            let [expected, found] = [&mut expecting, &mut finding].map(|it| it.ask(&command));
            let [expected, found] = [expected, found].map(|reply| without_ids(&reply));
            if expected != found {
                different
                    .push(format!("RESP{version}: {line}\n  real {expected:?}\n  fake {found:?}"));
            }
        };
        same("HELLO 4");
        same("HELLO x");
        same(&format!("HELLO {version}"));
        for line in [
            "HELLO",
            "CLIENT SETINFO LIB-NAME redis-rs",
            "CLIENT SETNAME leasehold",
            "PING",
            "PING hello",
            "SELECT 0",
            "SELECT 99",
            "SELECT x",
            "GET nothing",
            "HSET h f v",
            "HGETALL h",
            "CONFIG GET maxmemory-policy",
            "CONFIG GET appendonly",
            "SCRIPT FLUSH SYNC",
            "SCRIPT EXISTS abc",
            "SCRIPT EXISTS abc def",
            "SCRIPT EXISTS",
            "EVALSHA abc 0",
            "EVAL x 7",
            "RPUSH l a b c d e f",
            "LPOP l 2",
            "RPOP l 2",
            "LPOP l 0",
            "LPOP l -1",
            "RPOP l x",
            "LPOP l 9223372036854775807",
            "LPOP l 1",
            "RPOP l 1",
            "LPOP l -1",
            "WAIT 0 1",
            "PUBSUB NUMSUB c d",
            "UNSUBSCRIBE",
            "SUBSCRIBE c",
            "PUBSUB NUMSUB c",
            "GET nothing",
            "PING",
            "UNSUBSCRIBE c",
            "GET nothing",
            "DEL h",
        ] {
            same(line);
        }
        let rights = ["publish", "get", "client|kill", "script|exists", "subscribe", "evalsha"];
        for right in rights {
            admin.ask(&words(&["ACL", "SETUSER", "default", &format!("-{right}")]));
            fake.deny(right);
        }
        for line in [
            "PUBLISH c m",
            "GET a",
            "CLIENT KILL ID 77",
            "SCRIPT EXISTS abc",
            "SUBSCRIBE c",
            "EVALSHA abc 0",
            "EVAL return{redis.pcall('GET',KEYS[1]).err} 1 k",
            "EVAL return{redis.pcall('PUBLISH','c','m').err} 0",
        ] {
            same(line);
        }
        admin.ask(&words(&["ACL", "SETUSER", "default", "+@all"]));
        fake.allow_all();
        let pairs = [(&mut admin, &mut expecting), (&mut other, &mut finding)];
        let told = pairs.map(|(admin, connection)| {
            connection.ask(&words(&["SUBSCRIBE", "c"]));
            admin.ask(&words(&["PUBLISH", "c", "message"]));
            connection.reply()
        });
        assert_eq!(told[0], told[1], "RESP{version}");
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Whatever the order, and however many at a time.
#[test]
fn it_lists_keys_and_channels_as_a_real_one_does() {
    let (real, fake) = (Real::start(), Server::start());
    let mut both = [real.port, port_of(&fake)].map(Connection::to);
    let mut listeners = [real.port, port_of(&fake)].map(Connection::to);
    let id = "other:01234567-89ab-4def-8123-456789abcdef";
    for connection in &mut both {
        connection.ask(&words(&["FLUSHALL"]));
        for number in 0..40 {
            connection.ask(&words(&["HSET", &format!("orders:{number}"), id, "1"]));
            connection.ask(&words(&["HSET", &format!("user:{number}"), "mode", "dark"]));
            connection.ask(&words(&["ZADD", &format!("leasehold_queue:{{{number}}}"), "1", id]));
        }
        connection.ask(&words(&["HSET", "orders:*", id, "1"]));
        connection.ask(&words(&["HSET", "orders:rw", "mode", "read", id, "1"]));
        connection.ask(&words(&["SET", "orders:text", id]));
    }
    for listener in &mut listeners {
        for name in ["redisson_lock__channel:{a}", "redisson_lock__channel:{b}", "news"] {
            listener.ask(&words(&["SUBSCRIBE", name]));
        }
    }
    let mut same = |list: &dyn Fn(&mut Connection) -> Vec<String>| {
        let [expected, found] = both.each_mut().map(list);
        assert_eq!(found, expected);
        expected.len()
    };
    for (options, count) in [
        ("COUNT 7", 123),
        ("MATCH orders:* COUNT 1000 TYPE hash", 42),
        (r"MATCH orders:\* TYPE hash", 1),
        ("MATCH *:1? COUNT 3", 20),
        ("MATCH leasehold_*queue:* TYPE zset COUNT 10", 40),
        ("TYPE STRING", 1),
        ("TYPE list COUNT 100", 0),
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let listed = same(&|connection| {
            pages(connection, &|cursor| words(&[&["SCAN", cursor], &options[..]].concat()), 1)
        });
        assert_eq!(listed, count, "{options:?}");
    }
    for (pattern, of, count) in [("orders:*", "hash", 42), ("*", "zset", 40)] {
        let (_, body) = leasehold::seam::scripts().find(|it| it.0 == "list_page").expect("there");
        let call = |cursor: &str| words(&["EVAL", body, "0", cursor, "10", pattern, of]);
        assert_eq!(same(&|connection| pages(connection, &call, 3)), 2 * count, "{pattern}");
    }
    for (pattern, count) in [("*", 3), ("redisson_lock__channel:*", 2), ("n[aeo]ws", 1)] {
        let call = words(&["PUBSUB", "CHANNELS", pattern]);
        assert_eq!(same(&|connection| sorted(&connection.ask(&call))), count, "{pattern}");
    }
    for wrong in ["SCAN x", "SCAN 0 COUNT", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 NOSUCH x"] {
        let wrong = words(&wrong.split(' ').collect::<Vec<_>>());
        same(&|connection| vec![format!("{:?}", connection.ask(&wrong))]);
    }
}

/// Everything in the list at `place` of the answers, from the beginning to the end.
fn pages(
    connection: &mut Connection,
    call: &dyn Fn(&str) -> Vec<Vec<u8>>,
    place: usize,
) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = connection.ask(&call(&cursor));
        let Value::Array(reply) = reply else { panic!("no page: {reply:?}") };
        found.extend(sorted(&reply[place]));
        let Value::Bulk(next) = &reply[0] else { panic!("no cursor: {reply:?}") };
        cursor = String::from_utf8(next.clone()).expect("a number");
        if cursor == "0" {
            found.sort();
            return found;
        }
    }
}

fn sorted(reply: &Value) -> Vec<String> {
    let Value::Array(items) = reply else { panic!("no list: {reply:?}") };
    let shown = |item: &Value| match item {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    let mut items: Vec<String> = items.iter().map(shown).collect();
    items.sort();
    items
}

fn port_of(server: &Server) -> u16 {
    server.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// A connection's number, and what is behind a point in an error, may differ.
fn without_ids(value: &Value) -> Value {
    let is_id = |key: &Value| *key == Value::bulk("id");
    match value {
        Value::Map(pairs) => Value::Map(
            pairs
                .iter()
                .map(|(key, value)| {
                    (key.clone(), if is_id(key) { Value::Nil } else { value.clone() })
                })
                .collect(),
        ),
        Value::Array(items) => {
            let after_id = |at: usize| at > 0 && is_id(&items[at - 1]);
            let item = |(at, item): (usize, &Value)| match after_id(at) {
                true => Value::Nil,
                false => item.clone(),
            };
            Value::Array(items.iter().enumerate().map(item).collect())
        }
        other => other.clone(),
    }
}

/// The fields of a hash come in any order.
fn in_order(value: Value, sorts: bool) -> Value {
    match value {
        Value::Array(items) if sorts => {
            let mut pairs: Vec<&[Value]> = items.chunks(2).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Value::Array(pairs.concat())
        }
        value => value,
    }
}

/// Where a hash has several fields, any of them may be named.
fn same_but_holder(expected: &Value, found: &Value) -> bool {
    let shape = |value: &Value| match value {
        Value::Array(items) => {
            let is_holder =
                |item: &&Value| matches!(item, Value::Bulk(text) if text.starts_with(b"c:"));
            let holders = items.iter().filter(is_holder).count();
            Some((items.len(), items.first().cloned(), holders))
        }
        _ => None,
    };
    shape(expected).is_some() && shape(expected) == shape(found)
}

/// Of permits that end within a millisecond, any may be the first. A script names them in hexadecimal digits.
fn without_permits(value: &Value) -> Value {
    match value {
        Value::Bulk(name) if name.starts_with(b"633a") => Value::bulk("a permit"),
        Value::Array(items) => Value::Array(items.iter().map(without_permits).collect()),
        other => other.clone(),
    }
}

/// Both answer with lists in lists. How deep that goes is not the same.
#[test]
fn a_table_that_contains_itself_ends_with_an_error_and_ends_no_server() {
    let (real, fake) = (Real::start(), Server::start());
    let script = "local t = {} t[1] = t return t";
    let told = [real.port, port_of(&fake)].map(|port| {
        let mut connection = Connection::to(port);
        connection.send(&words(&["EVAL", script, "0"]));
        let mut line = connection.line();
        while line == "*1" {
            line = connection.line();
        }
        assert_eq!(connection.ask(&words(&["PING"])), Value::Status("PONG".to_owned()), "{line}");
        line
    });
    assert_eq!(told, ["-ERR reached lua stack limit"; 2]);
}

#[test]
fn a_key_ends_when_its_time_is_over_and_not_before() {
    let mut fake = Emulated::new(Rng::new(1), 1_000_000);
    fake.accept(1);
    fake.execute_value(1, &words(&["SET", "a", "1", "PX", "100"]), 1_000_000);
    let at = |fake: &mut Emulated, ms: u64| {
        fake.execute_value(1, &words(&["PTTL", "a"]), 1_000_000 + ms * 1000)
    };
    assert_eq!(at(&mut fake, 99), Value::Int(1));
    assert_eq!(at(&mut fake, 100), Value::Int(0));
    assert_eq!(at(&mut fake, 101), Value::Int(-2));
}

/// Whoever reaches the port can send a script.
#[test]
fn a_script_reaches_nothing_but_the_server() {
    let script = "local found = {}
        for _, name in ipairs({'io', 'os', 'package', 'debug', 'dofile', 'load', 'loadfile', 'loadstring', 'module', 'print', \
                  'require'}) do
            if rawget(_G, name) then
                found[#found + 1] = name
            end
        end
        return found";
    let mut fake = Emulated::new(Rng::new(1), 1_000_000);
    let mut eval = |script: &[u8]| {
        let command = vec![b"EVAL".to_vec(), script.to_vec(), b"0".to_vec()];
        fake.execute_value(1, &command, 1_000_000)
    };
    assert_eq!(eval(script.as_bytes()), Value::Array(Vec::new()));
    let Value::Bulk(compiled) = eval(b"return string.dump(function() return 7 end)") else {
        panic!("no code")
    };
    assert!(matches!(eval(&compiled), Value::Error(_)));
}

#[test]
fn an_error_that_a_script_caught_does_not_hide_its_later_one() {
    let mut fake = Emulated::new(Rng::new(1), 1_000_000);
    let mut told = |script: &str| match fake.execute_value(1, &words(&["EVAL", script, "0"]), 1) {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    };
    let caught = told("pcall(redis.call, 'GET') error('of my own')");
    assert!(caught.contains("of my own"), "{caught}");
    let arity = "ERR wrong number of arguments for 'get' command";
    assert_eq!(told("redis.call('GET')"), arity);
    assert_eq!(told("pcall(redis.call, 'NOSUCH') redis.call('GET')"), arity);
    assert_eq!(told("local _, problem = pcall(redis.call, 'GET') error(problem)"), arity);
}

#[test]
fn a_count_is_no_promise_that_so_many_elements_are_there() {
    let mut fake = Emulated::new(Rng::new(1), 1_000_000);
    let mut ask = |line: &str| {
        let command = words(&line.split(' ').collect::<Vec<_>>());
        fake.execute_value(1, &command, 1_000_000)
    };
    ask("RPUSH l a b c");
    let positive = Value::error("ERR value is out of range, must be positive");
    assert_eq!(ask("LPOP l -1"), positive);
    let list = |items: &[&str]| Value::Array(items.iter().map(Value::bulk).collect());
    assert_eq!(ask("RPOP l 1"), list(&["c"]));
    assert_eq!(ask("LPOP l 9223372036854775807"), list(&["a", "b"]));
    assert_eq!(ask("EXISTS l"), Value::Int(0));
    assert_eq!(ask("LPOP l 1"), Value::Nil);
}

#[test]
fn a_greeting_without_a_version_changes_none() {
    let mut fake = Emulated::new(Rng::new(1), 1_000_000);
    fake.accept(1);
    let mut greeting = |line: &str| {
        let command = words(&line.split(' ').collect::<Vec<_>>());
        let answer = fake.execute(1, &command, 1_000_000).reply;
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert!(greeting("HELLO 3").starts_with('%'));
    assert!(greeting("HELLO").starts_with('%'));
    let problem = "-ERR Protocol version is not an integer or out of range\r\n";
    assert_eq!(greeting("HELLO x"), problem);
    assert_eq!(greeting("SCRIPT EXISTS abc def"), "*2\r\n:0\r\n:0\r\n");
}

/// A right with a typing error would deny nothing, and its test would test nothing.
#[test]
fn only_a_command_that_is_there_can_be_denied() {
    for right in ["publish", "GET", "client|kill", "script|exists", "evalsha", "rpop"] {
        assert!(Emulated::has_command(right), "{right}");
    }
    for wrong in ["publsh", "client|kil", "", "|", "@all", "get|x"] {
        assert!(!Emulated::has_command(wrong), "{wrong}");
    }
}
