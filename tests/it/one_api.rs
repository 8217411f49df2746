//! The blocking API has the methods of the async one and calls them, and all kinds of lock have the same methods, except for what
//! is said here with its reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::layers::sources;

/// What only the async API has: the type (or `*`), the method, and why.
const ASYNC_ONLY: [(&str, &str, &str); 8] = [
    ("*", "wanted", "a future; threads have `wait_wanted`"),
    ("*", "lost", "a future; threads have `wait_lost`"),
    ("*", "run_until_lost", "a thread cannot be stopped"),
    ("Listing", "next", "for threads it is an iterator"),
    ("*", "run_boxed", "a closure of a thread has no future that must be `Send`"),
    ("*", "run_read_boxed", "as `run_boxed`"),
    ("*", "run_write_boxed", "as `run_boxed`"),
    ("*", "run_each_term_boxed", "as `run_boxed`"),
];

/// What only the blocking API has.
const BLOCKING_ONLY: [(&str, &str, &str); 4] = [
    ("*", "wait_wanted", "takes the place of `wanted`"),
    ("*", "wait_lost", "takes the place of `lost`"),
    ("*", "watch", "`lost` can be sent elsewhere itself"),
    ("LossWatch", "is_held", "a task has the guard, or `lost`"),
];

/// Which methods of the blocking API do not call the method of that name with their own arguments: the type (or `*`), the method,
/// and what stands there instead, without its spaces.
const CALLED_OTHERWISE: &[(&str, &str, &str)] = &[
    // The client has a runtime of its own.
    ("Client", "connect", "Self::builder().nodes([url]).connect_blocking()"),
    ("Client", "builder", "ClientBuilder::default()"),
    // Mutexes that are taken together may be of several clients, each with its runtime.
    ("Client", "multi_lock", "MultiLock::of(names.into_iter().map(|name|self.mutex(name)))"),
    ("MultiLock", "of", "locks.push(mutex)"),
    ("MultiLock", "names", "self.locks.iter().map(Mutex::name)"),
    ("MultiLock", "with_wait", "Self{wait,..self.clone()}"),
    ("MultiGuard", "into_guards", "self.guard.take_all()"),
    // The thread is the owner unless another one is named, so it is asked for at each call.
    ("*", "owned_by", "self.caller.named(owner)"),
    // The body runs on the thread that calls.
    ("Client", "shutdown_after", "self.shutdown()?"),
    ("*", "run", "self.run_with_outcome(body)?.into_result()"),
    ("Mutex", "run_with_outcome", "self.lock()?"),
    ("MultiLock", "run_with_outcome", "self.lock()?"),
    ("Semaphore", "run_with_outcome", "self.acquire()?"),
    ("Election", "run_with_outcome", "self.campaign()?"),
    ("Election", "run_each_term", "self.campaign()"),
    ("RwLock", "run_read", "self.run_read_with_outcome(body)?.into_result()"),
    ("RwLock", "run_read_with_outcome", "self.read()?"),
    ("RwLock", "run_write", "self.run_write_with_outcome(body)?.into_result()"),
    ("RwLock", "run_write_with_outcome", "self.write()?"),
    // As the async ones do.
    ("RwLock", "try_read", "self.try_read_for(Duration::ZERO)"),
    ("RwLock", "try_write", "self.try_write_for(Duration::ZERO)"),
    ("*", "unlock", "self.release()"),
    ("Leadership", "resign", "self.release()"),
    // What the end means is decided first, and the wait is for what a drop would wait for, too.
    ("*", "release", ".give_back()"),
    ("Permit", "spend", "self.permit.will_be_spent()"),
    ("Permit", "forget", "self.permit.will_be_forgotten()?"),
    ("Delivery", "ack", "self.delivery.will_be_done()?"),
    ("Delivery", "retry", "self.delivery.will_be_retried(after)?"),
    ("Delivery", "reject", "self.delivery.will_be_dead()?"),
    // They have what a guard of that side is made of, and no such guard.
    ("WriteGuard", "downgrade", "downgrade.of(guard)"),
    ("WriteGuard", "unchanged_since", "self.guard.inner().follows(seen.into())"),
    // They are given signals for threads.
    ("Signal", "any_changed_with_timeout", "any_changed_with_timeout(&inner(signals),timeout)"),
    ("Signal", "all_changed_with_timeout", "all_changed_with_timeout(&inner(signals),timeout)"),
];

const HANDLES: [&str; 5] = ["Mutex", "MultiLock", "RwLock", "Semaphore", "Election"];
const GUARDS: [&str; 6] =
    ["Guard", "ReadGuard", "WriteGuard", "MultiGuard", "Permit", "Leadership"];

/// What all handles have, and those that have it by another name, or not, and why.
const OF_HANDLES: [(&str, &[(&str, &str)]); 11] = [
    ("name", &[("MultiLock", "names")]),
    ("with_ttl", &[]),
    ("with_max_hold", &[]),
    ("with_wait", &[]),
    (
        "with_lease",
        &[
            ("MultiLock", "a part would end while others are waited for"),
            ("Election", "a leader goes on"),
        ],
    ),
    ("owned_by", &[("Semaphore", "a permit has no owner"), ("Election", "each candidate is one")]),
    ("run", &[("RwLock", "run_read")]),
    ("run_with_outcome", &[("RwLock", "run_read_with_outcome")]),
    ("run_boxed", &[("RwLock", "run_read_boxed")]),
    ("status", &[("Election", "state")]),
    (
        "force_unlock_if",
        &[
            ("Semaphore", "force_release"),
            ("MultiLock", "its mutexes do"),
            ("Election", "its mutex does"),
        ],
    ),
];

/// The same of all guards.
const OF_GUARDS: [(&str, &[(&str, &str)]); 8] = [
    ("name", &[("MultiGuard", "tokens")]),
    ("holder", &[("MultiGuard", "each lock has its own")]),
    ("is_held", &[]),
    ("remaining", &[]),
    ("lost", &[]),
    ("run_until_lost", &[]),
    ("release", &[]),
    ("extend", &[("MultiGuard", "it is renewed"), ("Leadership", "it is renewed")]),
];

/// The public methods of one API, type by type.
type Methods = BTreeMap<String, BTreeMap<String, Method>>;

#[derive(Clone, Debug)]
struct Method {
    /// The names of its arguments, with spaces between.
    arguments: String,
    /// Without spaces.
    body: String,
}

/// Reads the public methods of the types from the sources.
fn methods(is_blocking: bool) -> Methods {
    let mut found = Methods::new();
    for (path, text) in sources() {
        if path.starts_with("blocking/") == is_blocking {
            read(&text, &mut found);
        }
    }
    let mirrored = mirrored();
    found.retain(|name, _| mirrored.contains(name));
    found
}

/// The types that `blocking` exports, but for the marks of owners.
fn mirrored() -> BTreeSet<String> {
    let exports = |(path, text): (String, String)| (path == "blocking/mod.rs").then_some(text);
    let text = sources().into_iter().find_map(exports).expect("the module");
    let lines = text.lines().filter_map(|line| line.strip_prefix("pub use "));
    let words = lines.flat_map(|line| line.split(|char: char| !char.is_alphanumeric()));
    let types = words.filter(|word| word.starts_with(char::is_uppercase));
    types.filter(|word| !["NamedOwner", "ThisThread"].contains(word)).map(str::to_owned).collect()
}

/// Adds the public methods in the inherent `impl` blocks of a file, which is formatted by `rustfmt`. Those of a macro belong to
/// the types that it is called with.
fn read(text: &str, found: &mut Methods) {
    let called = |line: &str| {
        let (_, list) = line.strip_suffix(");")?.split_once("!(")?;
        list.chars().all(char::is_alphanumeric).then(|| list.to_owned())
    };
    let callers: Vec<String> = text.lines().filter_map(called).collect();
    let mut names = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let is_impl = |line: &str| line.starts_with("impl") && !line.contains(" for ");
        let inner = line.trim_start();
        if is_impl(line) {
            names = vec![type_of(line)];
        } else if is_impl(inner) && inner.contains("$guard") {
            names.clone_from(&callers);
        } else if line == "}" || line == "        }" && !callers.is_empty() {
            names.clear();
        }
        let Some(signature) = inner.strip_prefix("pub ") else { continue };
        let signature = signature.strip_prefix("async ").unwrap_or(signature);
        let Some(signature) = signature.strip_prefix("fn ") else { continue };
        let mut signature = signature.to_owned();
        while !signature.ends_with(['{', ';']) {
            signature.push_str(lines.next().expect("the rest of a signature").trim());
        }
        let end = format!("{}}}", &line[..line.len() - inner.len()]);
        let body: String = lines.by_ref().take_while(|line| *line != end).collect();
        let body = body.replace(' ', "").replace(",)", ")");
        let (method, arguments) = split(&signature);
        let whole = Method { arguments, body };
        for name in &names {
            let methods = found.entry(name.clone()).or_default();
            let before = methods.insert(method.clone(), whole.clone());
            assert!(before.is_none(), "{name} has it twice: {signature}");
        }
    }
}

/// `impl<O> Mutex<O> {` is of `Mutex`.
fn type_of(line: &str) -> String {
    let line = line.strip_prefix("impl").expect("an impl");
    let line = line.strip_prefix("<O>").unwrap_or(line).trim_start();
    line.chars().take_while(|char| char.is_alphanumeric()).collect()
}

/// Returns the name of a method, and the names of its arguments.
fn split(signature: &str) -> (String, String) {
    // Whether a method changes it is nothing that the caller sees.
    let signature = &signature.replace("mut ", "");
    let name: String = signature.chars().take_while(|char| *char != '(' && *char != '<').collect();
    let mut depth = 0;
    let mut arguments = String::new();
    let mut in_name = true;
    let list = match signature[name.len()..].strip_prefix('<') {
        // The arguments come after the parameters in angle brackets, whose bounds stand elsewhere.
        Some(_) => &signature[signature.find(">(").expect("arguments") + 1..],
        None => &signature[name.len()..],
    };
    for char in list.chars() {
        match char {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            ':' => in_name = false,
            ',' if depth == 1 => {
                in_name = true;
                arguments.push(' ');
            }
            'a'..='z' | '_' if depth == 1 && in_name => arguments.push(char),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    (name, arguments.trim().to_owned())
}

/// Returns the methods that `all` has and `others` has not, without those that are excepted, and the exceptions that are none.
fn missing(all: &Methods, others: &Methods, excepted: &[(&str, &str, &str)]) -> Vec<String> {
    let mut needed = BTreeSet::new();
    let mut missing = Vec::new();
    for (name, methods) in all {
        for (method, Method { arguments, .. }) in methods {
            let other = others.get(name).and_then(|methods| methods.get(method));
            let other = other.map(|other| &other.arguments);
            if other == Some(arguments) {
                continue;
            }
            let applies = |(of, what, _): &(&str, &str, &str)| {
                (*of == "*" || of == name) && (*what == "*" || what == method)
            };
            match excepted.iter().position(applies) {
                Some(place) if other.is_none() => {
                    needed.insert(place);
                }
                _ => missing.push(format!("{name}::{method}({arguments}), not {other:?}")),
            }
        }
    }
    let unneeded = |(place, _): &(usize, _)| !needed.contains(place);
    let unneeded = excepted.iter().enumerate().filter(unneeded);
    missing.extend(unneeded.map(|(_, excepted)| format!("the exception {excepted:?}")));
    missing
}

#[test]
fn the_blocking_api_has_the_methods_of_the_async_one() {
    let (tasks, threads) = (methods(false), methods(true));
    assert!(tasks.values().map(BTreeMap::len).sum::<usize>() > 100, "{tasks:?}");
    let missing_there = missing(&tasks, &threads, &ASYNC_ONLY);
    let missing_here = missing(&threads, &tasks, &BLOCKING_ONLY);
    assert!(missing_there.is_empty(), "the blocking API lacks {missing_there:#?}");
    assert!(missing_here.is_empty(), "the async API lacks {missing_here:#?}");
}

#[test]
fn a_method_of_the_blocking_api_calls_the_one_of_its_name_with_its_arguments() {
    let (tasks, threads) = (methods(false), methods(true));
    let (mut needed, mut wrong) = (BTreeSet::new(), Vec::new());
    for (name, methods) in &threads {
        for (method, Method { arguments, body }) in methods {
            if !tasks.get(name).is_some_and(|methods| methods.contains_key(method)) {
                continue;
            }
            let arguments: Vec<&str> = arguments.split(' ').filter(|it| *it != "self").collect();
            if body.contains(&format!(".{method}({})", arguments.join(","))) {
                continue;
            }
            let applies =
                |(of, what, _): &(&str, &str, &str)| (*of == "*" || of == name) && what == method;
            match CALLED_OTHERWISE.iter().position(applies) {
                Some(place) if body.contains(CALLED_OTHERWISE[place].2) => {
                    needed.insert(place);
                }
                _ => wrong.push(format!("{name}::{method}: {body}")),
            }
        }
    }
    assert!(wrong.is_empty(), "these call something else: {wrong:#?}");
    let unneeded = |(place, _): &(usize, _)| !needed.contains(place);
    let unneeded: Vec<_> = CALLED_OTHERWISE.iter().enumerate().filter(unneeded).collect();
    assert!(unneeded.is_empty(), "these exceptions are none: {unneeded:?}");
}

#[test]
fn all_kinds_have_the_same_methods() {
    let found = methods(false);
    let check = |kinds: &[&str], rows: &[(&str, &[(&str, &str)])]| {
        for (method, excepted) in rows {
            for kind in kinds {
                let methods = &found[*kind];
                let other = excepted.iter().find(|(of, _)| of == kind);
                assert_eq!(methods.contains_key(*method), other.is_none(), "{kind}::{method}");
                // A reason, or the name that it has there.
                if let Some((_, name)) = other.filter(|(_, why)| !why.contains(' ')) {
                    assert!(methods.contains_key(*name), "{kind}::{name}");
                }
            }
        }
    };
    check(&HANDLES, &OF_HANDLES);
    check(&GUARDS, &OF_GUARDS);
}

#[test]
fn methods_of_a_macro_belong_to_those_who_call_it() {
    let text = "macro_rules! guard {\n    ($guard:ident) => {\n        impl<O> $guard<O> {\n            \
                pub fn name(&self) -> u8 {\n            }\n        }\n    };\n}\n\nguard!(A);\nguard!(B);\n\
                impl A {\n    pub fn own(&self) {\n    }\n}\n";
    let mut found = Methods::new();
    read(text, &mut found);
    let names = |of: &str| found[of].keys().cloned().collect::<Vec<_>>();
    assert_eq!((names("A"), names("B")), (vec!["name".into(), "own".into()], vec!["name".into()]));
}

#[test]
fn a_body_is_read_without_its_spaces_up_to_its_end() {
    let text = "impl A {\n    pub fn both(&self, one: u8) -> u8 {\n        if one > 0 {\n            self.a.both(\n                \
                one,\n            )\n        }\n    }\n\n    pub fn own(&self) {\n        own()\n    }\n}\n";
    let mut found = Methods::new();
    read(text, &mut found);
    let bodies: Vec<&str> = found["A"].values().map(|method| &*method.body).collect();
    assert_eq!(bodies, ["ifone>0{self.a.both(one)}", "own()"]);
}

#[test]
fn a_signature_is_read_with_all_its_brackets() {
    let read = |signature| {
        let (name, arguments) = split(signature);
        format!("{name}({arguments})")
    };
    assert_eq!(read("lock(&self) -> u8 {"), "lock(self)");
    assert_eq!(read("unlock(mut self) -> u8 {"), "unlock(self)");
    assert_eq!(read("run<T>(&self, body: impl FnOnce(&Guard<O>) -> T) -> T {"), "run(self body)");
    assert_eq!(read("both(&self,one: Vec<(A, B)>,two: u8,) -> u8 {"), "both(self one two)");
    assert_eq!(type_of("impl<O> Mutex<O> {"), "Mutex");
    assert_eq!(type_of("impl Caller<ThisThread> {"), "Caller");
}
