//! The keys of a server: strings, lists, hashes and sorted sets that can expire, on the server's own clock.

use std::collections::BTreeMap;

use super::list::Elements;
use super::resp::Value;
use super::sorted::Members;

/// The keys, and the time they live by.
#[derive(Clone, Debug, Default)]
pub struct Keyspace {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The server's wall clock. Stands still while a command runs.
    pub now_us: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    data: Data,
    expires_at_ms: Option<i64>,
}

/// A key on its way to another server.
pub struct Taken {
    data: Data,
    left_ms: Option<i64>,
}

#[derive(Clone, Debug)]
enum Data {
    Text(Vec<u8>),
    List(Elements),
    Hash(Fields),
    Sorted(Members),
}

pub(super) type Answer = Result<Value, String>;
type Run = fn(&mut Keyspace, &[Vec<u8>]) -> Answer;
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

impl Keyspace {
    pub fn new(now_us: u64) -> Self {
        Self { entries: BTreeMap::new(), now_us }
    }

    /// Runs a command on the keys; `None` if it is not one.
    pub fn run(&mut self, name: &str, args: &[Vec<u8>]) -> Option<Value> {
        let (least, most, command) = Self::command(name)?;
        if !(least..=most).contains(&args.len()) {
            return Some(arity(name));
        }
        Some(command(self, args).unwrap_or_else(Value::Error))
    }

    /// Whether it is a command on keys.
    pub fn has_command(name: &str) -> bool {
        Self::command(name).is_some()
    }

    /// The least and the most words behind a command's name, and what it does.
    fn command(name: &str) -> Option<(usize, usize, Run)> {
        let found: (usize, usize, Run) = match name {
            "get" => (1, 1, Self::get),
            "set" => (2, usize::MAX, Self::set),
            "incr" => (1, 1, Self::incr),
            "del" => (1, usize::MAX, Self::del),
            "exists" => (1, usize::MAX, Self::exists),
            "type" => (1, 1, Self::kind),
            "pttl" => (1, 1, Self::pttl),
            "pexpire" => (2, 2, Self::pexpire),
            "persist" => (1, 1, Self::persist),
            "llen" => (1, 1, Self::llen),
            "lindex" => (2, 2, Self::lindex),
            "lrange" => (3, 3, Self::lrange),
            "rpush" => (2, usize::MAX, Self::rpush),
            "lpop" => (1, 2, Self::lpop),
            "rpop" => (1, 2, Self::rpop),
            "hset" => (3, usize::MAX, Self::hset),
            "hget" => (2, 2, Self::hget),
            "hdel" => (2, usize::MAX, Self::hdel),
            "hexists" => (2, 2, Self::hexists),
            "hlen" => (1, 1, Self::hlen),
            "hgetall" => (1, 1, Self::hgetall),
            "hrandfield" => (1, 3, Self::hrandfield),
            "zadd" => (3, usize::MAX, Self::zadd),
            "zrem" => (2, usize::MAX, Self::zrem),
            "zpopmin" => (1, 2, Self::zpopmin),
            "zrank" => (2, 2, Self::zrank),
            "zrange" => (3, 8, Self::zrange),
            "zcard" => (1, 1, Self::zcard),
            "scan" => (1, 7, Self::scan),
            "dbsize" => (0, 0, Self::dbsize),
            "flushall" => (0, 0, Self::flushall),
            "time" => (0, 0, Self::time),
            _ => return None,
        };
        Some(found)
    }

    /// The names of the keys that are there.
    pub fn names(&mut self) -> Vec<Vec<u8>> {
        let all: Vec<Vec<u8>> = self.entries.keys().cloned().collect();
        all.into_iter().filter(|key| self.entry(key).is_some()).collect()
    }

    /// The names of the hashes that are there.
    pub fn hashes(&mut self) -> Vec<Vec<u8>> {
        let mut names = self.names();
        names.retain(|name| matches!(self.entries[name].data, Data::Hash(_)));
        names
    }

    /// The fields of a hash.
    pub fn fields(&mut self, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        match self.entry(key) {
            Some(Entry { data: Data::Hash(fields), .. }) => fields.clone().into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The number that a key holds.
    pub fn number(&mut self, key: &[u8]) -> Option<i64> {
        let text = self.text(key).ok().flatten()?;
        integer(text).ok()
    }

    pub fn is_there(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// When each key that is there ends, in milliseconds from now; `None`: never.
    pub fn ends(&mut self) -> Vec<(Vec<u8>, Option<i64>)> {
        let now = self.now_ms();
        let names = self.names();
        let ends = names.into_iter().map(|name| {
            let at = self.entries[&name].expires_at_ms;
            (name, at.map(|at| at - now))
        });
        ends.collect()
    }

    /// Takes a key away, with what is left of its time.
    pub fn take(&mut self, key: &[u8]) -> Option<Taken> {
        let now = self.now_ms();
        self.entry(key)?;
        let Entry { data, expires_at_ms } = self.entries.remove(key)?;
        Some(Taken { data, left_ms: expires_at_ms.map(|at| at - now) })
    }

    /// Puts a key where it was taken to.
    pub fn put(&mut self, key: &[u8], Taken { data, left_ms }: Taken) {
        let expires_at_ms = left_ms.map(|left| self.now_ms() + left);
        self.entries.insert(key.to_vec(), Entry { data, expires_at_ms });
    }

    /// Nothing is left.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn now_ms(&self) -> i64 {
        (self.now_us / 1000) as i64
    }

    /// What is at `key` and has not expired.
    fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now_ms();
        if self.entries.get(key)?.expires_at_ms.is_some_and(|at| now > at) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    fn hash(&mut self, key: &[u8]) -> Result<Option<&mut Fields>, String> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { data: Data::Hash(fields), .. }) => Ok(Some(fields)),
            Some(_) => Err(WRONGTYPE.to_owned()),
        }
    }

    fn text(&mut self, key: &[u8]) -> Result<Option<&mut Vec<u8>>, String> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { data: Data::Text(text), .. }) => Ok(Some(text)),
            Some(_) => Err(WRONGTYPE.to_owned()),
        }
    }

    pub(super) fn elements(&mut self, key: &[u8]) -> Result<Option<&mut Elements>, String> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { data: Data::List(elements), .. }) => Ok(Some(elements)),
            Some(_) => Err(WRONGTYPE.to_owned()),
        }
    }

    pub(super) fn elements_or_new(&mut self, key: &[u8]) -> Result<&mut Elements, String> {
        if self.elements(key)?.is_none() {
            let entry = Entry { data: Data::List(Elements::new()), expires_at_ms: None };
            self.entries.insert(key.to_vec(), entry);
        }
        self.elements(key)?.ok_or_else(|| WRONGTYPE.to_owned())
    }

    pub(super) fn members(&mut self, key: &[u8]) -> Result<Option<&mut Members>, String> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { data: Data::Sorted(members), .. }) => Ok(Some(members)),
            Some(_) => Err(WRONGTYPE.to_owned()),
        }
    }

    pub(super) fn members_or_new(&mut self, key: &[u8]) -> Result<&mut Members, String> {
        if self.members(key)?.is_none() {
            let entry = Entry { data: Data::Sorted(Members::new()), expires_at_ms: None };
            self.entries.insert(key.to_vec(), entry);
        }
        self.members(key)?.ok_or_else(|| WRONGTYPE.to_owned())
    }

    /// A sorted set without members is no key.
    pub(super) fn drop_if_empty(&mut self, key: &[u8]) {
        if matches!(self.members(key), Ok(Some(members)) if members.is_empty()) {
            self.entries.remove(key);
        }
    }

    fn get(&mut self, args: &[Vec<u8>]) -> Answer {
        Ok(self.text(&args[0])?.map_or(Value::Nil, Value::bulk))
    }

    fn set(&mut self, args: &[Vec<u8>]) -> Answer {
        let mut options = args[2..].iter();
        let (mut expires_at_ms, mut gives_old, mut keeps_end) = (None, false, false);
        let mut only_new = false;
        while let Some(option) = options.next() {
            match &*option.to_ascii_lowercase() {
                b"get" => gives_old = true,
                b"keepttl" => keeps_end = true,
                b"nx" => only_new = true,
                b"px" => {
                    let duration = integer(options.next().ok_or(SYNTAX)?)?;
                    let at = self.now_ms().checked_add(duration).filter(|_| duration > 0);
                    expires_at_ms = Some(at.ok_or("ERR invalid expire time in 'set' command")?);
                }
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        if only_new && self.entry(&args[0]).is_some() {
            return Ok(Value::Nil);
        }
        let old = if gives_old { self.get(&args[..1])? } else { Value::ok() };
        if keeps_end {
            expires_at_ms = self.entry(&args[0]).and_then(|entry| entry.expires_at_ms);
        }
        let data = Data::Text(args[1].clone());
        self.entries.insert(args[0].clone(), Entry { data, expires_at_ms });
        Ok(old)
    }

    fn incr(&mut self, args: &[Vec<u8>]) -> Answer {
        let Some(text) = self.text(&args[0])? else {
            let entry = Entry { data: Data::Text(b"1".to_vec()), expires_at_ms: None };
            self.entries.insert(args[0].clone(), entry);
            return Ok(Value::Int(1));
        };
        let next =
            integer(text)?.checked_add(1).ok_or("ERR increment or decrement would overflow")?;
        *text = next.to_string().into_bytes();
        Ok(Value::Int(next))
    }

    fn del(&mut self, args: &[Vec<u8>]) -> Answer {
        let mut count = 0;
        for key in args {
            count += i64::from(self.entry(key).is_some());
            self.entries.remove(key);
        }
        Ok(Value::Int(count))
    }

    fn exists(&mut self, args: &[Vec<u8>]) -> Answer {
        let mut count = 0;
        for key in args {
            count += i64::from(self.entry(key).is_some());
        }
        Ok(Value::Int(count))
    }

    fn kind(&mut self, args: &[Vec<u8>]) -> Answer {
        Ok(Value::Status(self.type_of(&args[0]).to_owned()))
    }

    pub(super) fn type_of(&mut self, key: &[u8]) -> &'static str {
        match self.entry(key) {
            None => "none",
            Some(Entry { data: Data::Text(_), .. }) => "string",
            Some(Entry { data: Data::List(_), .. }) => "list",
            Some(Entry { data: Data::Hash(_), .. }) => "hash",
            Some(Entry { data: Data::Sorted(_), .. }) => "zset",
        }
    }

    fn pttl(&mut self, args: &[Vec<u8>]) -> Answer {
        let now = self.now_ms();
        Ok(Value::Int(match self.entry(&args[0]) {
            None => -2,
            Some(Entry { expires_at_ms: None, .. }) => -1,
            Some(Entry { expires_at_ms: Some(at), .. }) => *at - now,
        }))
    }

    fn pexpire(&mut self, args: &[Vec<u8>]) -> Answer {
        let duration = integer(&args[1])?;
        let at = self.now_ms().checked_add(duration);
        let at = at.ok_or("ERR invalid expire time in 'pexpire' command")?;
        let now = self.now_ms();
        match self.entry(&args[0]) {
            None => return Ok(Value::Int(0)),
            Some(entry) => entry.expires_at_ms = Some(at),
        }
        if at <= now {
            self.entries.remove(&args[0]);
        }
        Ok(Value::Int(1))
    }

    fn persist(&mut self, args: &[Vec<u8>]) -> Answer {
        let entry = self.entry(&args[0]);
        let had_end = entry.is_some_and(|entry| entry.expires_at_ms.take().is_some());
        Ok(Value::Int(had_end.into()))
    }

    fn hset(&mut self, args: &[Vec<u8>]) -> Answer {
        if args.len().is_multiple_of(2) {
            return Ok(arity("hset"));
        }
        if self.hash(&args[0])?.is_none() {
            let entry = Entry { data: Data::Hash(BTreeMap::new()), expires_at_ms: None };
            self.entries.insert(args[0].clone(), entry);
        }
        let fields = self.hash(&args[0])?.ok_or(WRONGTYPE)?;
        let mut new = 0;
        for pair in args[1..].chunks(2) {
            new += i64::from(fields.insert(pair[0].clone(), pair[1].clone()).is_none());
        }
        Ok(Value::Int(new))
    }

    fn hget(&mut self, args: &[Vec<u8>]) -> Answer {
        let field = self.hash(&args[0])?.and_then(|fields| fields.get(&args[1]));
        Ok(field.map_or(Value::Nil, Value::bulk))
    }

    fn hdel(&mut self, args: &[Vec<u8>]) -> Answer {
        let Some(fields) = self.hash(&args[0])? else {
            return Ok(Value::Int(0));
        };
        let mut removed = 0;
        for field in &args[1..] {
            removed += i64::from(fields.remove(field).is_some());
        }
        if fields.is_empty() {
            self.entries.remove(&args[0]);
        }
        Ok(Value::Int(removed))
    }

    fn hexists(&mut self, args: &[Vec<u8>]) -> Answer {
        let there = self.hash(&args[0])?.is_some_and(|fields| fields.contains_key(&args[1]));
        Ok(Value::Int(there.into()))
    }

    fn hlen(&mut self, args: &[Vec<u8>]) -> Answer {
        Ok(Value::Int(self.hash(&args[0])?.map_or(0, |fields| fields.len() as i64)))
    }

    fn hgetall(&mut self, args: &[Vec<u8>]) -> Answer {
        let fields = self.hash(&args[0])?.cloned().unwrap_or_default();
        let pair = |(field, value)| (Value::Bulk(field), Value::Bulk(value));
        Ok(Value::Map(fields.into_iter().map(pair).collect()))
    }

    /// The first ones: as good as any, and the same in every run.
    fn hrandfield(&mut self, args: &[Vec<u8>]) -> Answer {
        if let Some(count) = args.get(1) {
            let with_values = match args.get(2) {
                None => false,
                Some(word) if word.eq_ignore_ascii_case(b"withvalues") => true,
                Some(_) => return Err(SYNTAX.to_owned()),
            };
            let count = usize::try_from(integer(count)?).map_err(|_| "ERR only without repeats")?;
            let fields = self.hash(&args[0])?.into_iter().flatten().take(count);
            let shown = fields.flat_map(|(field, value)| {
                std::iter::once(Value::bulk(field)).chain(with_values.then(|| Value::bulk(value)))
            });
            return Ok(Value::Array(shown.collect()));
        }
        let first = self.hash(&args[0])?.and_then(|fields| fields.keys().next());
        Ok(first.map_or(Value::Nil, Value::bulk))
    }

    fn dbsize(&mut self, _: &[Vec<u8>]) -> Answer {
        Ok(Value::Int(self.names().len() as i64))
    }

    fn flushall(&mut self, _: &[Vec<u8>]) -> Answer {
        self.clear();
        Ok(Value::ok())
    }

    fn time(&mut self, _: &[Vec<u8>]) -> Answer {
        let (seconds, micros) = (self.now_us / 1_000_000, self.now_us % 1_000_000);
        Ok(Value::Array(vec![Value::bulk(seconds.to_string()), Value::bulk(micros.to_string())]))
    }
}

pub fn arity(name: &str) -> Value {
    Value::Error(format!("ERR wrong number of arguments for '{name}' command"))
}

pub(super) fn integer(text: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(text).map_err(|_| NOT_AN_INTEGER)?;
    // Rust reads a leading plus, the server does not.
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.ok_or_else(|| NOT_AN_INTEGER.to_owned())
}

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const SYNTAX: &str = "ERR syntax error";
