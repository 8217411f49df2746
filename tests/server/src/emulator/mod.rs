//! What a server does: what clients and their scripts use of one, on a clock that is set from outside. It has no sockets and no
//! threads; the simulation and the fuzz targets use it as it is.

pub mod keyspace;
mod list;
mod lua;
pub mod resp;
mod rng;
mod scan;
pub mod shard;
mod sorted;
pub mod wire;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::keyspace::{Keyspace, arity, integer};
use self::lua::Scripts;
use self::resp::Value;
pub use self::rng::Rng;
use self::shard::Shard;
use self::wire::Command;

/// A connection, as the world counts them.
pub type LinkId = u64;

/// One server process after another at one address.
pub struct Server {
    core: Rc<RefCell<Core>>,
    scripts: Scripts,
    /// The bodies that this process knows by their hash.
    loaded: BTreeMap<String, Rc<[u8]>>,
    sessions: BTreeMap<LinkId, Session>,
    next_client_id: i64,
    run_id: String,
    started_at_us: u64,
    /// What its data comes from, and whether that was something else before.
    history: String,
    had_another: bool,
    /// It follows another, and refuses to write.
    replica: bool,
    /// Whether it says that it writes everything to a disk at once. What becomes of its data has nothing to do with it.
    pub durable: bool,
    /// Its part in a cluster, if it is in one.
    pub shard: Option<Shard>,
    /// The command that runs came behind ASKING.
    asking: bool,
    rng: Rng,
}

/// A server that follows another.
pub struct Replica {
    run_id: String,
    started_at_us: u64,
    /// What it has of the other's data, which is behind.
    data: Keyspace,
}

/// What scripts reach.
pub struct Core {
    pub keys: Keyspace,
    subscribers: BTreeMap<Vec<u8>, BTreeSet<LinkId>>,
    pushes: Vec<(LinkId, Value)>,
    /// What nobody may run: a command, or one with the word behind it, as in `client|kill`.
    denied: BTreeSet<String>,
    /// What was published, to whatever channel.
    published: Vec<Message>,
    /// The error that ended a script.
    raised: Option<String>,
    /// The server's part in a cluster, and whether its client came because of ASK, while a script runs whose slot is on its
    /// way.
    open: Option<(Shard, bool)>,
}

struct Session {
    client_id: i64,
    resp3: bool,
    /// It said ASKING just before.
    asking: bool,
}

/// What came of a command.
#[derive(Default)]
pub struct Executed {
    pub reply: Vec<u8>,
    /// For other connections.
    pub pushes: Vec<(LinkId, Vec<u8>)>,
    /// Connections that the server closes.
    pub closed: Vec<LinkId>,
    /// The script that ran, if it was one.
    pub ran: Option<Ran>,
    /// It did not run, since its keys are on another server of the cluster, or on their way.
    pub redirected: bool,
}

/// A message: its channel and its text.
pub type Message = (Vec<u8>, Vec<u8>);

/// One run of a script.
pub struct Ran {
    pub hash: String,
    pub keys: Vec<Vec<u8>>,
    pub args: Vec<Vec<u8>>,
    pub reply: Value,
    pub published: Vec<Message>,
}

impl Server {
    pub fn new(mut rng: Rng, now_us: u64) -> Self {
        let core = Rc::new(RefCell::new(Core {
            keys: Keyspace::new(now_us),
            subscribers: BTreeMap::new(),
            pushes: Vec::new(),
            denied: BTreeSet::new(),
            published: Vec::new(),
            raised: None,
            open: None,
        }));
        Self {
            scripts: Scripts::new(core.clone()),
            core,
            loaded: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_client_id: FIRST_CLIENT_ID,
            run_id: run_id(&mut rng),
            started_at_us: now_us,
            history: run_id(&mut rng),
            had_another: false,
            replica: false,
            durable: false,
            shard: None,
            asking: false,
            rng,
        }
    }

    /// Clients have known it since it started, and have left a note of that.
    pub fn known_since_start(&mut self) {
        let Self { run_id, history, started_at_us, core, .. } = self;
        let mark = format!("{run_id} {history} {started_at_us}");
        core.borrow_mut().keys.run("set", &[MARK.to_vec(), mark.into_bytes()]);
    }

    /// A new process at the same address, with or without what the last one knew. It may have other settings.
    pub fn restart(&mut self, now_us: u64, keeps_data: bool) {
        let mut core = self.core.borrow_mut();
        core.subscribers.clear();
        core.keys.now_us = now_us;
        if !keeps_data {
            core.keys.clear();
        }
        self.sessions.clear();
        self.loaded.clear();
        self.next_client_id = FIRST_CLIENT_ID;
        self.run_id = run_id(&mut self.rng);
        self.started_at_us = now_us;
        self.history = run_id(&mut self.rng);
        (self.had_another, self.replica) = (false, false);
        self.durable = self.rng.chance(500);
    }

    /// It follows an empty server. Its connections stay.
    pub fn demote(&mut self) {
        self.replica = true;
    }

    pub fn is_replica(&self) -> bool {
        self.replica
    }

    /// It has the data of the one that it followed, none, and is a master again, in the same run.
    pub fn promote(&mut self) {
        self.core.borrow_mut().keys.clear();
        self.history = run_id(&mut self.rng);
        (self.had_another, self.replica) = (true, false);
    }

    /// Another server takes this one's place: with the data of a replica that followed it, in a run of its own that has
    /// lasted for long. Returns the server that was here, and what it would be as the next one's replica.
    pub fn replaced_by(&mut self, replica: Replica, now_us: u64) -> (Self, Replica) {
        let mut next = Self::new(self.rng.fork(), now_us);
        (next.run_id, next.started_at_us) = (replica.run_id, replica.started_at_us);
        next.core.borrow_mut().keys = replica.data;
        next.had_another = true;
        next.durable = self.durable;
        next.core.borrow_mut().denied = self.core.borrow().denied.clone();
        let old = std::mem::replace(self, next);
        let data = old.core.borrow().keys.clone();
        let (run_id, started_at_us) = (old.run_id.clone(), old.started_at_us);
        (old, Replica { run_id, started_at_us, data })
    }

    /// A replica of it, which has no data yet.
    pub fn new_replica(&mut self) -> Replica {
        let data = Keyspace::default();
        Replica { run_id: run_id(&mut self.rng), started_at_us: self.started_at_us, data }
    }

    /// The replica takes over all of its data.
    pub fn replicate(&self, replica: &mut Replica) {
        replica.data = self.core.borrow().keys.clone();
    }

    pub fn accept(&mut self, link: LinkId) {
        let client_id = self.next_client_id;
        self.next_client_id += 1;
        self.sessions.insert(link, Session { client_id, resp3: false, asking: false });
    }

    /// The connection is gone, for whatever reason.
    pub fn forget(&mut self, link: LinkId) {
        self.sessions.remove(&link);
        let subscribers = &mut self.core.borrow_mut().subscribers;
        subscribers.retain(|_, links| {
            links.remove(&link);
            !links.is_empty()
        });
    }

    pub fn knows(&self, link: LinkId) -> bool {
        self.sessions.contains_key(&link)
    }

    pub fn flush_scripts(&mut self) {
        self.loaded.clear();
    }

    /// The keys, at the moment `now_us` of the server's clock.
    pub fn keys<T>(&self, now_us: u64, look: impl FnOnce(&mut Keyspace) -> T) -> T {
        let mut core = self.core.borrow_mut();
        core.keys.now_us = now_us;
        look(&mut core.keys)
    }

    /// The channels that somebody listens to.
    pub fn channels(&self) -> Vec<Vec<u8>> {
        self.core.borrow().subscribers.keys().cloned().collect()
    }

    /// Tells its subscribers what was published on another server of the cluster.
    pub fn relay(&mut self, (channel, message): &Message) -> Vec<(LinkId, Vec<u8>)> {
        self.core.borrow_mut().publish(channel, message);
        self.take_pushes()
    }

    /// What other connections are told, in the words of each.
    fn take_pushes(&mut self) -> Vec<(LinkId, Vec<u8>)> {
        let pushes = std::mem::take(&mut self.core.borrow_mut().pushes);
        let encoded = pushes.into_iter().map(|(link, push)| {
            let mut bytes = Vec::new();
            let resp3 = self.sessions.get(&link).is_some_and(|session| session.resp3);
            push.encode(resp3, &mut bytes);
            (link, bytes)
        });
        encoded.collect()
    }

    /// Whether a server knows this command, or one command with the word behind it, as in `client|kill`.
    pub fn has_command(right: &str) -> bool {
        let right = right.to_ascii_lowercase();
        Keyspace::has_command(&right) || COMMANDS.contains(&right.as_str())
    }

    /// Nobody may run `command` any more, or one command with the word behind it, as in `client|kill`.
    pub fn deny(&mut self, command: &str) {
        self.core.borrow_mut().denied.insert(command.to_ascii_lowercase());
    }

    /// Everybody may run every command.
    pub fn allow_all(&mut self) {
        self.core.borrow_mut().denied.clear();
    }

    /// Runs one command that came on `link`.
    pub fn execute(&mut self, link: LinkId, command: &Command, now_us: u64) -> Executed {
        let mut done = Executed::default();
        if command.is_empty() {
            return done;
        }
        let Some(session) = self.sessions.get_mut(&link) else { return done };
        self.asking = std::mem::take(&mut session.asking);
        self.core.borrow_mut().keys.now_us = now_us;
        let name = lower(&command[0]);
        let args = &command[1..];
        let replies = match self.refusal(link, &name, args) {
            Some(refusal) => vec![refusal],
            None if name == "subscribe" && !args.is_empty() => self.subscribe(link, args),
            None if name == "unsubscribe" => self.unsubscribe(link, args),
            None => vec![self.answer(link, &name, args, &mut done)],
        };
        let resp3 = self.sessions[&link].resp3;
        replies.iter().for_each(|reply| reply.encode(resp3, &mut done.reply));
        done.pushes = self.take_pushes();
        for link in &done.closed {
            self.forget(*link);
        }
        done
    }

    /// Runs a command of nobody's, whatever is denied.
    pub fn execute_unrestricted(&mut self, command: &Command, now_us: u64) -> (Value, Executed) {
        let denied = std::mem::take(&mut self.core.borrow_mut().denied);
        let reply = self.execute_value(0, command, now_us);
        self.core.borrow_mut().denied = denied;
        (reply, Executed { pushes: self.take_pushes(), ..Executed::default() })
    }

    /// The answer to one command, as a value.
    pub fn execute_value(&mut self, link: LinkId, command: &Command, now_us: u64) -> Value {
        self.core.borrow_mut().keys.now_us = now_us;
        self.answer(link, &lower(&command[0]), &command[1..], &mut Executed::default())
    }

    /// Why a command of this connection is not run, if there is a reason that has nothing to do with keys.
    fn refusal(&self, link: LinkId, name: &str, args: &[Vec<u8>]) -> Option<Value> {
        if let Some(what) = self.core.borrow().denied_of(name, args) {
            let text = format!("NOPERM this user has no permissions to run the '{what}' command");
            return Some(Value::error(text));
        }
        let is_allowed = ["subscribe", "unsubscribe", "ping", "quit"].contains(&name);
        if is_allowed || self.sessions[&link].resp3 || !self.is_subscribed(link) {
            return None;
        }
        let what = shown(name, args);
        Some(Value::error(format!(
            "ERR Can't execute '{what}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context"
        )))
    }

    fn is_subscribed(&self, link: LinkId) -> bool {
        self.core.borrow().subscribers.values().any(|links| links.contains(&link))
    }

    fn answer(&mut self, link: LinkId, name: &str, args: &[Vec<u8>], done: &mut Executed) -> Value {
        match name {
            "hello" => self.hello(link, args),
            "client" => self.client(link, args, done),
            "info" => Value::Verbatim(self.info()),
            "config" => self.config(args),
            "script" => self.script(args),
            "eval" | "evalsha" => self.eval(name, args, done),
            "ping" if self.is_subscribed(link) && !self.sessions[&link].resp3 => {
                let text = args.first().map_or(&b""[..], Vec::as_slice);
                Value::Array(vec![Value::bulk("pong"), Value::bulk(text)])
            }
            "ping" => match args {
                [] => Value::Status("PONG".to_owned()),
                [text] => Value::bulk(text),
                _ => arity(name),
            },
            "select" => match args {
                [database] => match integer(database) {
                    Ok(0..=15) => Value::ok(),
                    Ok(_) => Value::error("ERR DB index is out of range"),
                    Err(problem) => Value::Error(problem),
                },
                _ => arity(name),
            },
            "quit" => {
                done.closed.push(link);
                Value::ok()
            }
            // What it knows of its commands: some clients ask at first.
            "command" => Value::Array(Vec::new()),
            "wait" if args.len() == 2 => Value::Int(0),
            "asking" => {
                self.sessions.entry(link).and_modify(|session| session.asking = true);
                Value::ok()
            }
            "cluster" => self.cluster(args),
            _ => self.core.borrow_mut().run(name, args),
        }
    }

    fn hello(&mut self, link: LinkId, args: &[Vec<u8>]) -> Value {
        let session = self.sessions.get_mut(&link).expect("it was looked up before");
        match args.first().map(|version| integer(version)) {
            None => {}
            Some(Ok(version @ 2..=3)) => session.resp3 = version == 3,
            Some(Ok(_)) => return Value::error("NOPROTO unsupported protocol version"),
            Some(Err(_)) => {
                let text = "ERR Protocol version is not an integer or out of range";
                return Value::error(text);
            }
        }
        let proto = if session.resp3 { 3 } else { 2 };
        let mode = if self.shard.is_some() { "cluster" } else { "standalone" };
        let role = if self.replica { "replica" } else { "master" };
        let text = |text: &str| Value::bulk(text);
        Value::Map(vec![
            (text("server"), text("redis")),
            (text("version"), text(VERSION)),
            (text("proto"), Value::Int(proto)),
            (text("id"), Value::Int(session.client_id)),
            (text("mode"), text(mode)),
            (text("role"), text(role)),
            (text("modules"), Value::Array(Vec::new())),
        ])
    }

    fn client(&mut self, link: LinkId, args: &[Vec<u8>], done: &mut Executed) -> Value {
        let words: Vec<String> = args.iter().map(|word| lower(word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match *words {
            ["id"] => Value::Int(self.sessions[&link].client_id),
            ["setname", _] => Value::ok(),
            ["kill", "id", id] => {
                let of_id = |(_, session): &(_, &Session)| session.client_id.to_string() == id;
                let found = self.sessions.iter().find(of_id).map(|(link, _)| *link);
                done.closed.extend(found);
                Value::Int(found.is_some().into())
            }
            // `SETINFO` among them: it came with the next version.
            _ => {
                let word = args.first().map_or("".into(), |word| String::from_utf8_lossy(word));
                Value::error(format!("ERR unknown subcommand '{word}'. Try CLIENT HELP."))
            }
        }
    }

    fn info(&self) -> String {
        let uptime =
            (self.core.borrow().keys.now_us.saturating_sub(self.started_at_us)) / 1_000_000;
        let aof = u8::from(self.durable);
        let mode = if self.shard.is_some() { "cluster" } else { "standalone" };
        format!(
            "# Server\r\nredis_version:{VERSION}\r\nredis_mode:{mode}\r\nrun_id:{}\r\nuptime_in_seconds:{uptime}\r\n\
             # Persistence\r\nloading:0\r\naof_enabled:{aof}\r\n\
             # Replication\r\nrole:{}\r\nconnected_slaves:0\r\nmaster_replid:{}\r\nmaster_replid2:{}\r\n",
            self.run_id,
            if self.replica { "slave" } else { "master" },
            self.history,
            if self.had_another { "1" } else { "0" }.repeat(40),
        )
    }

    fn cluster(&self, args: &[Vec<u8>]) -> Value {
        let word = args.first().map(|word| lower(word)).unwrap_or_default();
        match (&self.shard, &*word) {
            (Some(shard), "slots") => shard.slots(),
            (Some(shard), "info") => Value::Verbatim(shard.info()),
            (Some(_), _) => Value::error("ERR unknown subcommand of CLUSTER"),
            (None, _) => Value::error("ERR This instance has cluster support disabled"),
        }
    }

    fn config(&self, args: &[Vec<u8>]) -> Value {
        let words: Vec<String> = args.iter().map(|word| lower(word)).collect();
        if words.first().is_none_or(|word| word != "get") {
            return Value::error("ERR only CONFIG GET is known here");
        }
        let pairs = words[1..].iter().filter_map(|name| {
            let value = match &**name {
                "appendonly" if self.durable => "yes",
                "appendonly" => "no",
                "appendfsync" if self.durable => "always",
                "appendfsync" => "everysec",
                "maxmemory" => "0",
                "maxmemory-policy" => "noeviction",
                _ => return None,
            };
            Some((Value::bulk(name), Value::bulk(value)))
        });
        Value::Map(pairs.collect())
    }

    fn script(&mut self, args: &[Vec<u8>]) -> Value {
        match (args.first().map(|word| lower(word)).as_deref(), args.get(1)) {
            (Some("flush"), _) => {
                self.flush_scripts();
                Value::ok()
            }
            (Some("load"), Some(body)) => {
                let hash = sha1(body);
                self.loaded.insert(hash.clone(), body.as_slice().into());
                Value::bulk(hash)
            }
            (Some("exists"), Some(_)) => {
                let is_known = |hash: &Vec<u8>| self.loaded.contains_key(&lower(hash));
                Value::Array(
                    args[1..].iter().map(|hash| Value::Int(is_known(hash).into())).collect(),
                )
            }
            (Some("exists"), None) => arity("script|exists"),
            _ => Value::error("ERR unknown subcommand of SCRIPT"),
        }
    }

    fn eval(&mut self, name: &str, args: &[Vec<u8>], done: &mut Executed) -> Value {
        let [what, count, rest @ ..] = args else {
            return arity(name);
        };
        let Some(count) = std::str::from_utf8(count).ok().and_then(|n| n.parse::<usize>().ok())
        else {
            return Value::error("ERR value is not an integer or out of range");
        };
        if count > rest.len() {
            return Value::error("ERR Number of keys can't be greater than number of args");
        }
        let is_there = |key: &[u8]| self.core.borrow_mut().keys.is_there(key);
        let shard = self.shard.as_ref();
        let refusal = shard.and_then(|it| it.refusal(&rest[..count], self.asking, is_there));
        if let Some(refusal) = refusal {
            done.redirected = true;
            return refusal;
        }
        let (hash, body) = if name == "eval" {
            let hash = sha1(what);
            let body = self.loaded.entry(hash.clone()).or_insert_with(|| what.as_slice().into());
            (hash, body.clone())
        } else {
            let hash = lower(what);
            let Some(body) = self.loaded.get(&hash) else {
                return Value::error("NOSCRIPT No matching script. Please use EVAL.");
            };
            (hash, body.clone())
        };
        if self.replica {
            return Value::error("READONLY You can't write against a read only replica.");
        }
        let (keys, args) = rest.split_at(count);
        let open = shard.filter(|it| keys.first().is_some_and(|key| it.is_open(key)));
        self.core.borrow_mut().open = open.map(|it| (it.clone(), self.asking));
        self.core.borrow_mut().published.clear();
        let reply = self.scripts.run(&hash, &body, keys, args);
        self.core.borrow_mut().open = None;
        let published = std::mem::take(&mut self.core.borrow_mut().published);
        let (keys, args) = (keys.to_vec(), args.to_vec());
        done.ran = Some(Ran { hash, keys, args, reply: reply.clone(), published });
        reply
    }

    fn subscribe(&mut self, link: LinkId, channels: &[Vec<u8>]) -> Vec<Value> {
        let subscribers = &mut self.core.borrow_mut().subscribers;
        let confirmations = channels.iter().map(|channel| {
            subscribers.entry(channel.clone()).or_default().insert(link);
            let count = subscribers.values().filter(|links| links.contains(&link)).count();
            confirmation("subscribe", Value::bulk(channel), count)
        });
        confirmations.collect()
    }

    /// Without channels: from all of them.
    fn unsubscribe(&mut self, link: LinkId, channels: &[Vec<u8>]) -> Vec<Value> {
        let subscribers = &mut self.core.borrow_mut().subscribers;
        let of_link = |(channel, links): (&Vec<u8>, &BTreeSet<LinkId>)| {
            links.contains(&link).then(|| channel.clone())
        };
        let all: Vec<Vec<u8>>;
        let mut channels = channels;
        if channels.is_empty() {
            all = subscribers.iter().filter_map(of_link).collect();
            channels = &all;
        }
        if channels.is_empty() {
            return vec![confirmation("unsubscribe", Value::Nil, 0)];
        }
        let confirmations = channels.iter().map(|channel| {
            if let Some(links) = subscribers.get_mut(channel) {
                links.remove(&link);
            }
            subscribers.retain(|_, links| !links.is_empty());
            let count = subscribers.values().filter(|links| links.contains(&link)).count();
            confirmation("unsubscribe", Value::bulk(channel), count)
        });
        confirmations.collect()
    }
}

impl Core {
    fn run(&mut self, name: &str, args: &[Vec<u8>]) -> Value {
        match name {
            "publish" => match args {
                [channel, message] => Value::Int(self.publish(channel, message)),
                _ => arity(name),
            },
            "pubsub" => match args {
                [what, channels @ ..] if what.eq_ignore_ascii_case(b"numsub") => {
                    let count = |channel: &Vec<u8>| {
                        let links = self.subscribers.get(channel);
                        Value::Int(links.map_or(0, |links| links.len() as i64))
                    };
                    let pairs = channels.iter().map(|name| [Value::bulk(name), count(name)]);
                    Value::Array(pairs.flatten().collect())
                }
                [what, pattern] if what.eq_ignore_ascii_case(b"channels") => {
                    let fits = |channel: &&Vec<u8>| scan::matches(pattern, channel);
                    let channels = self.subscribers.keys().filter(fits);
                    Value::Array(channels.map(Value::bulk).collect())
                }
                _ => Value::error("ERR only PUBSUB NUMSUB and CHANNELS are known here"),
            },
            _ => self.keys.run(name, args).unwrap_or_else(|| {
                let args: Vec<String> =
                    args.iter().map(|arg| format!("'{}' ", String::from_utf8_lossy(arg))).collect();
                Value::Error(format!(
                    "ERR unknown command '{name}', with args beginning with: {}",
                    args.concat()
                ))
            }),
        }
    }

    /// A command of a script.
    fn run_inside(&mut self, words: &[Vec<u8>]) -> Value {
        let (name, args) = (lower(&words[0]), &words[1..]);
        if self.denied_of(&name, args).is_some() {
            return Value::error(DENIED_INSIDE);
        }
        if let Some((shard, asking)) = &self.open {
            let is_there = |key: &[u8]| self.keys.is_there(key);
            if shard.refusal(keys_of(&name, args), *asking, is_there).is_some() {
                return Value::error(NON_LOCAL);
            }
        }
        self.run(&name, args)
    }

    /// What of a command is denied, if anything is.
    fn denied_of(&self, name: &str, args: &[Vec<u8>]) -> Option<String> {
        if self.denied.is_empty() {
            return None;
        }
        let what = shown(name, args);
        (self.denied.contains(name) || self.denied.contains(&what)).then_some(what)
    }

    fn publish(&mut self, channel: &[u8], message: &[u8]) -> i64 {
        self.published.push((channel.to_vec(), message.to_vec()));
        let Some(links) = self.subscribers.get(channel) else {
            return 0;
        };
        let parts = [b"message".as_slice(), channel, message];
        let push = Value::Push(parts.into_iter().map(Value::bulk).collect());
        self.pushes.extend(links.iter().map(|link| (*link, push.clone())));
        links.len() as i64
    }
}

/// The keys among the words behind a command's name.
fn keys_of<'a>(name: &str, args: &'a [Vec<u8>]) -> &'a [Vec<u8>] {
    match name {
        "publish" | "pubsub" | "time" | "scan" | "dbsize" => &[],
        "del" | "exists" => args,
        _ => args.get(..1).unwrap_or_default(),
    }
}

fn confirmation(what: &str, channel: Value, count: usize) -> Value {
    Value::Push(vec![Value::bulk(what), channel, Value::Int(count as i64)])
}

/// A command as rights name it: with the word behind it, if that says what it does.
fn shown(name: &str, args: &[Vec<u8>]) -> String {
    match args.first() {
        Some(word) if ["client", "cluster", "config", "pubsub", "script"].contains(&name) => {
            format!("{name}|{}", lower(word))
        }
        _ => name.to_owned(),
    }
}

fn run_id(rng: &mut Rng) -> String {
    format!("{:016x}{:016x}{:08x}", rng.next(), rng.next(), rng.next() as u32)
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

pub fn sha1(body: &[u8]) -> String {
    sha1_smol::Sha1::from(body).digest().to_string()
}

/// What a right may name besides the commands on keys.
const COMMANDS: [&str; 29] = [
    "asking",
    "client",
    "client|id",
    "client|kill",
    "client|setname",
    "cluster",
    "cluster|info",
    "cluster|slots",
    "command",
    "config",
    "config|get",
    "eval",
    "evalsha",
    "hello",
    "info",
    "ping",
    "publish",
    "pubsub",
    "pubsub|channels",
    "pubsub|numsub",
    "quit",
    "script",
    "script|exists",
    "script|flush",
    "script|load",
    "select",
    "subscribe",
    "unsubscribe",
    "wait",
];
/// Where clients note since when they know it.
const MARK: &[u8] = b"leasehold_mark";
const VERSION: &str = "7.0.15";
/// What a script is told of a key that is not there while its slot is on its way.
const NON_LOCAL: &str = "ERR Script attempted to access a non local key in a cluster node";
/// What a script is told of a command that nobody may run.
const DENIED_INSIDE: &str =
    "ERR The user executing the script can't run this command or subcommand";
/// As real ones begin: ids start again with each process.
const FIRST_CLIENT_ID: i64 = 4;
