//! What the servers see of each lease: nothing follows its release, and nothing brings it back.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_test::emulator::{Ran, resp::Value, sha1, wire::Command};

use crate::checker::Rule;
use crate::coordination::SIGNAL_NAMES;
use crate::coordination::shelf::{Shelf, Step};
use crate::history::{History, Record};
use crate::lines::{Found, Lines};
use crate::together::{Part, Together};

pub struct Audit {
    /// The scripts' names, by hash.
    names: BTreeMap<String, String>,
    /// Those that renew several leases at once.
    pub together: Together,
    /// Leases whose release a process wrote to a node.
    releasing: BTreeSet<(usize, String)>,
    /// Leases that a node granted and that nobody has released there since.
    granted: BTreeMap<(usize, String), Term>,
    /// Leases that were deleted on a node by hand.
    cleared: BTreeMap<(usize, String), Cleared>,
    lines: Lines,
    /// The queue's items, as each keyspace had them after the last script.
    shelves: BTreeMap<usize, Shelf>,
    /// Every answer is heard: what was taken away from a node is known, and must not be put back.
    pub all_is_heard: bool,
    /// Queues keep their order: no older one takes their place.
    pub ordered: bool,
    /// The nodes are a cluster: what one of them has goes to others.
    pub one_keyspace: bool,
}

/// For how long a node said yes to a lease, and when it did last.
#[derive(Clone, Copy, Default)]
struct Term {
    at: u64,
    ttl_ms: u64,
}

impl Term {
    fn end(self) -> u64 {
        self.at + self.ttl_ms
    }
}

struct Cleared {
    at: u64,
    /// Whoever was told that the node has the lease must take this for the work of a person until then.
    until: u64,
}

/// Who ran a script, and for whom.
#[derive(Clone, Copy)]
pub struct Source {
    pub host: usize,
    pub node: usize,
    /// It is an old master that another one has replaced: what it has is not what the node has.
    pub is_replaced: bool,
}

impl Default for Audit {
    fn default() -> Self {
        let names =
            leasehold::seam::scripts().map(|(name, body)| (sha1(body.as_bytes()), name.to_owned()));
        let names = names.collect();
        Self {
            names,
            together: Together::default(),
            releasing: BTreeSet::new(),
            granted: BTreeMap::new(),
            cleared: BTreeMap::new(),
            lines: Lines::default(),
            shelves: BTreeMap::new(),
            all_is_heard: false,
            ordered: true,
            one_keyspace: false,
        }
    }
}

impl Audit {
    /// A process wrote a command to a node.
    pub fn written(&mut self, history: &History, host: usize, node: usize, command: &Command) {
        for (name, lease) in self.about(command) {
            self.written_about(history, host, node, &name, lease);
        }
    }

    fn written_about(
        &mut self,
        history: &History,
        host: usize,
        node: usize,
        name: &str,
        lease: String,
    ) {
        let key = (self.keyspace_of(node), lease);
        match name {
            // They change nothing where nothing is, and are sent again if they were redirected.
            "lock_renew" | "fence_raise" | "read_renew" | "permit_renew" | "item_renew"
                if self.one_keyspace => {}
            name if is_release(name) => {
                self.releasing.insert(key);
            }
            "lock_acquire" | "lock_renew" | "lock_reclaim" | "fence_raise" | "rw_acquire"
            | "read_renew" | "rw_reclaim" | "permit_acquire" | "permit_renew"
            | "permit_reclaim" | "item_pop" | "item_renew" => {
                let mut history = history.lock();
                history.checker.checked(Rule::AfterRelease);
                if self.releasing.contains(&key) {
                    let what =
                        format!("h{host} wrote {name} to n{node} behind the release of {}", key.1);
                    history.violated(Rule::AfterRelease, what);
                }
            }
            _ => {}
        }
    }

    /// The nodes of a cluster count as one.
    fn keyspace_of(&self, node: usize) -> usize {
        if self.one_keyspace { 0 } else { node }
    }

    /// The scripts that a command stands for, and the lease that each is about.
    fn about(&self, command: &Command) -> Vec<(String, String)> {
        let call = || {
            let hash = match command.first()?.to_ascii_uppercase().as_slice() {
                b"EVALSHA" => String::from_utf8_lossy(command.get(1)?).into_owned(),
                b"EVAL" => sha1(command.get(1)?),
                _ => return None,
            };
            let keys: usize = std::str::from_utf8(command.get(2)?).ok()?.parse().ok()?;
            Some((hash, command.get(3..)?.split_at_checked(keys)?))
        };
        let Some((hash, (keys, args))) = call() else { return Vec::new() };
        let about = |(hash, _, args): Part<'_>| {
            let id = String::from_utf8_lossy(args.first()?).into_owned();
            Some((self.names.get(hash)?.clone(), lease_of(&id).to_owned()))
        };
        self.together.parts(&hash, keys, args).into_iter().filter_map(about).collect()
    }

    /// A node ran a script that a process had sent when its clock showed `sent_local`. `clock_of` is what the clock of
    /// a lease's process shows now, if that process is still there.
    pub fn ran(
        &mut self,
        history: &History,
        Source { host, node, is_replaced }: Source,
        ran: &Ran,
        sent_local: u64,
        clock_of: impl Fn(&str) -> Option<u64>,
    ) {
        let mut history = history.lock();
        history.count("scripts", 1);
        let Some(name) = self.names.get(&ran.hash) else { return };
        let word = |index: usize| String::from_utf8_lossy(ran.args.get(index).map_or(b"", |w| w));
        let key = String::from_utf8_lossy(ran.keys.first().map_or(b"", |key| key));
        let lease = lease_of(&word(0)).to_owned();
        let reply = ran.reply.shown();
        history.note(format_args!("n{node} runs {name} {key} {lease} for h{host}: {reply}"));
        if *name == "grace_mark" {
            let now = history.now;
            history.met.insert(host, now);
            history.causes.met(host, node, now);
        }
        for letter in ran.published.iter().filter_map(|(_, text)| Letter::read(text)) {
            self.granted_by_letter(&mut history, node, &letter, clock_of(&letter.lease));
        }
        let Some(name) = self.names.get(&ran.hash) else { return };
        if let Value::Error(text) = &ran.reply
            && text.starts_with(BROKEN_SCRIPT)
        {
            // To its caller that is a server that fails for a while, which may happen.
            history.violated(Rule::Unexpected, format!("n{node} runs {name}: {text}"));
        }
        let key = (self.keyspace_of(node), lease.clone());
        if is_release(name) {
            // Whatever it found: nothing is there now.
            self.granted.remove(&key);
        }
        if first_number(&ran.reply).is_none_or(|first| first < 1) {
            return;
        }
        match name.as_str() {
            "lock_acquire" | "lock_renew" | "lock_reclaim" | "rw_acquire" | "read_renew"
            | "rw_reclaim" | "permit_acquire" | "permit_renew" | "permit_reclaim" | "item_pop"
            | "item_renew" => {
                let is_second = matches!(&**name, "lock_acquire" | "read_renew" | "item_renew");
                let ttl_ms = word(if is_second { 1 } else { 2 });
                let ttl_ms: u64 = ttl_ms.parse().unwrap_or(0);
                if ttl_ms > 0 {
                    history.checker.supported(&lease, node, end(sent_local, ttl_ms));
                }
                if is_replaced {
                    return;
                }
                if name.ends_with("_reclaim") {
                    history.count("reclaims", 1);
                }
                let downgraded = word(12);
                if name == "rw_acquire" && !downgraded.is_empty() {
                    // The writer is no more; its reader takes its place.
                    self.granted.remove(&(key.0, downgraded.into_owned()));
                    history.count("downgrades", 1);
                }
                let now = history.now;
                let known = self.granted.get(&key).copied();
                if name.ends_with("_renew") {
                    history.checker.checked(Rule::Recreated);
                    if known.is_none() {
                        let what = format!("n{node} renewed {lease}, which it had not granted");
                        history.violated(Rule::Recreated, what);
                    }
                } else if let Some(cleared) = self.cleared.remove(&key)
                    && self.all_is_heard
                    && (cleared.at + UNDER_WAY..cleared.until).contains(&now)
                {
                    let what = format!("n{node} got {lease} back, which was deleted by hand");
                    history.violated(Rule::Recreated, what);
                }
                // A renewal of nothing but the count leaves the rest as it was.
                let term =
                    if ttl_ms > 0 { Term { at: now, ttl_ms } } else { known.unwrap_or_default() };
                self.granted.insert(key, term);
            }
            _ => {}
        }
    }

    /// A node gave a lock to one who waits there. Its process may count from now on, and not from later.
    fn granted_by_letter(
        &mut self,
        history: &mut Record,
        node: usize,
        Letter { lease, ttl_ms, .. }: &Letter,
        clock: Option<u64>,
    ) {
        history.note(format_args!("n{node} gives {lease} the lock by letter"));
        history.count("letters", 1);
        if let Some(clock) = clock {
            history.checker.supported(lease, node, end(clock, *ttl_ms));
        }
        // A replica that took over may not know that the request has left the queue.
        let key = (self.keyspace_of(node), lease.clone());
        if self.releasing.contains(&key) {
            return;
        }
        self.granted.insert(key, Term { at: history.now, ttl_ms: *ttl_ms });
    }

    /// A script left a lock's queue on a node with these entries, if it has one. `heard` are the channels that somebody
    /// listens to.
    pub fn queued(
        &mut self,
        history: &History,
        node: usize,
        ran: &Ran,
        entries: Option<Vec<Vec<u8>>>,
        heard: &[Vec<u8>],
    ) {
        let (Some(queue), Some(entries), true) = (ran.keys.get(2), entries, self.ordered) else {
            return;
        };
        let hears = |mailbox: &[u8]| heard.iter().any(|channel| channel == mailbox);
        let mut history = history.lock();
        match self.lines.changed(node, queue, entries, self.grants(ran), hears) {
            Found::Nothing => {}
            Found::InOrder => history.checker.checked(Rule::Order),
            Found::Disorder(what) => history.violated(Rule::Order, format!("n{node}: {what}")),
        }
    }

    /// To whom a script gave the lock, or confirmed it, with the end of its tokens.
    fn grants(&self, ran: &Ran) -> Vec<(String, u64)> {
        let letters = ran.published.iter().filter_map(|(_, text)| Letter::read(text));
        let mut grants: Vec<_> = letters.map(|letter| (letter.lease, letter.block_end)).collect();
        let is_ask = |name: &String| name.ends_with("_acquire") || name == "item_pop";
        let name = self.names.get(&ran.hash);
        let asks = name.is_some_and(is_ask);
        // An item that was lent before may have been lent by a message in vain: then it goes to who asks, whatever its place.
        let is_again = |content: &[u8]| {
            name.is_some_and(|name| name == "item_pop") && !content.starts_with(b"1 ")
        };
        // A writer that goes on as a reader has been in already.
        let is_in = ran.args.get(12).is_some_and(|from| !from.is_empty());
        let end = match &ran.reply {
            Value::Int(end @ 1..) => Some(*end),
            Value::Array(items) => match **items {
                [Value::Int(1), Value::Int(end)]
                | [Value::Int(1), Value::Int(end), Value::Int(_)] => Some(end),
                [Value::Int(1), Value::Int(end), _, Value::Bulk(ref content)] => {
                    (!is_again(content)).then_some(end)
                }
                _ => None,
            },
            _ => None,
        };
        if let (Some(end), true, false, Some(lease)) = (end, asks, is_in, ran.args.first()) {
            grants.push((String::from_utf8_lossy(lease).into_owned(), end as u64));
        }
        grants
    }

    /// A script left a semaphore with so many permits, and so many out, of `all`: none is made, and none is lost.
    pub fn permits(&self, history: &History, ran: &Ran, left: Option<i64>, out: i64, all: i64) {
        let mut history = history.lock();
        let Some(left) = left else { return };
        history.checker.checked(Rule::Permits);
        if left + out != all {
            let name = self.names.get(&ran.hash).map_or("?", |name| name);
            let what = format!("behind {name}, {left} permits are left and {out} out of {all}");
            history.violated(Rule::Permits, what);
        }
    }

    /// A script left a node with these items.
    pub fn items(&mut self, history: &History, node: usize, ran: &Ran, after: Shelf, now_us: u64) {
        let name = self.names.get(&ran.hash).map_or("?", |name| name);
        let (args, now_ms) = (&*ran.args, (now_us / 1000) as i64);
        let answer = first_number(&ran.reply).unwrap_or(0);
        let keyspace = self.keyspace_of(node);
        let before = self.shelves.entry(keyspace).or_default();
        let wrong = before.compare(&after, &Step { name, args, answer, now_ms });
        let mut history = history.lock();
        history.checker.checked(Rule::Items);
        for what in wrong {
            history.violated(Rule::Items, format!("behind {name} on n{node}: {what}"));
        }
        for item in before.redriven(&after) {
            history.count("redriven", 1);
            history.books.items.redriven(item);
        }
        *before = after;
    }

    /// A node has other items than before, since it has forgotten the last that it did. Returns what it had.
    pub fn forgot_items(&mut self, node: usize, after: Shelf) -> Shelf {
        let keyspace = self.keyspace_of(node);
        self.shelves.insert(keyspace, after).unwrap_or_default()
    }

    /// A script has given a signal, or said what number one has.
    pub fn signals(&self, history: &History, ran: &Ran) {
        let Some(name) = self.names.get(&ran.hash) else { return };
        let Some(number) = first_number(&ran.reply) else { return };
        let (number, mut history) = (number as u64, history.lock());
        let text = |arg: &Vec<u8>| String::from_utf8_lossy(arg).into_owned();
        let key = ran.keys.first().map(text).unwrap_or_default();
        let known = match &**name {
            "signal_notify" => {
                let Some(which) = SIGNAL_NAMES.iter().position(|name| key.contains(name)) else {
                    return;
                };
                history.books.signals[which].given(number, &ran.args[0])
            }
            "group_notify" => {
                let names: Vec<String> = ran.args[4..].iter().map(text).collect();
                history.books.group.given(number, &names)
            }
            "group_status" => history.books.group.read(number),
            _ => return,
        };
        if let Err(problem) = known {
            history.violated(Rule::Signal, format!("behind {name} of {key}: {problem}"));
        }
    }

    /// A lease was deleted on a node by hand.
    pub fn cleared(&mut self, node: usize, lease: &str, at: u64) {
        let key = (node, lease.to_owned());
        let term = self.granted.get(&key).copied().unwrap_or_default();
        // Clocks differ by less than a twentieth.
        let until = term.at + term.ttl_ms - term.ttl_ms / 20;
        self.cleared.insert(key, Cleared { at, until });
    }

    /// A node refused a command that moves with its slot. A release is not sent again if its lease is over then.
    pub fn refused(&mut self, node: usize, now: u64, command: &Command) {
        for (name, lease) in self.about(command) {
            let key = (self.keyspace_of(node), lease);
            let is_over = self.granted.get(&key).is_some_and(|term| term.end() < now);
            if is_over && is_release(&name) {
                self.granted.remove(&key);
            }
        }
    }

    /// Leases of which a node granted something behind their last release, or that never had one.
    /// With the moment at which each ends by itself.
    pub fn unreleased(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        self.granted.iter().map(move |((node, lease), term)| (*node, &**lease, term.end()))
    }

    /// Nothing is on its way any more.
    pub fn forget(&mut self) {
        // An older queue may have a request again long after its release.
        if self.ordered {
            self.releasing.clear();
        }
        self.granted.clear();
        self.cleared.clear();
    }
}

fn is_release(name: &str) -> bool {
    name.ends_with("_release") || name == "item_settle"
}

/// What a script answered, or the first of it.
fn first_number(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(number) => Some(*number),
        Value::Array(items) => items.first().and_then(first_number),
        _ => None,
    }
}

/// The lease that a server's id is of: a writer's id says so.
pub fn lease_of(id: &str) -> &str {
    id.strip_suffix(":write").unwrap_or(id)
}

/// A grant as a script writes it to a mailbox: `grant lease server_us ttl_ms block_end`, and for some writers one number more; or
/// `item`, if it brings one along.
struct Letter {
    lease: String,
    ttl_ms: u64,
    block_end: u64,
}

impl Letter {
    fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        // The last may be an item, whatever it is.
        let words: Vec<&str> = text.splitn(6, ' ').collect();
        let ["grant" | "item", lease, _, ttl_ms, block_end, ..] = *words else { return None };
        let (ttl_ms, block_end) = (ttl_ms.parse().ok()?, block_end.parse().ok()?);
        Some(Self { lease: lease.to_owned(), ttl_ms, block_end })
    }
}

/// Until when a process may believe in a lease that a server gave after its clock showed `from`.
fn end(from: u64, ttl_ms: u64) -> u64 {
    let ttl = ttl_ms * 1_000_000;
    from + ttl - (ttl / 100 + 2_000_000).min(ttl)
}

/// How long a request may be under way that was sent before its sender could know better.
const UNDER_WAY: u64 = 50;
/// How a server begins its answer when a script fails by itself, and not by a command that it calls.
const BROKEN_SCRIPT: &str = "ERR user_script";
