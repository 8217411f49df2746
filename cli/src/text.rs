//! What is written to standard output: tables for people, JSON for programs.

use std::env;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use leasehold::{Blocked, LockStatus};
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::graph::{self, Graph};

/// The version of the JSON. It grows if a field or a word changes its meaning or goes; new ones leave it as it is.
pub const SCHEMA: u32 = 1;

pub const BOLD: &str = "\u{1b}[1m";
pub const RED: &str = "\u{1b}[31m";
pub const YELLOW: &str = "\u{1b}[33m";
pub const PLAIN: &str = "\u{1b}[0m";

/// Colours are for people at a terminal who have not asked for none.
pub fn has_colours(output: &impl IsTerminal) -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    output.is_terminal() && !is_set("NO_COLOR") && env::var_os("TERM") != Some("dumb".into())
}

/// Why standard output takes no more, unless its reader has seen enough.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output. Returns true if it was written.
pub fn write(text: fmt::Arguments<'_>) -> bool {
    let mut output = io::stdout().lock();
    match output.write_fmt(text).and_then(|()| output.flush()) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != ErrorKind::BrokenPipe {
                let _ = FAILED.set(error);
            }
            false
        }
    }
}

/// Returns what keeps the output from being complete, unless its reader has seen enough.
pub fn failure() -> Option<Failure> {
    FAILED
        .get()
        .map(|error| Failure::new(exit::SOFTWARE, format!("cannot write the output: {error}")))
}

/// Returns who holds the lock: the writer or the only holder, or the first of several readers and how many others.
pub fn holders(lock: &LockStatus) -> Option<String> {
    let holder = lock.holder.as_ref()?;
    Some(match lock.readers.len() {
        0 | 1 => holder.to_string(),
        readers => format!("{holder} and {}", other_readers(readers - 1)),
    })
}

pub fn other_readers(number: usize) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} other reader{plural}")
}

/// Prints everything that is known about some locks, and what their holders wait for in the end.
pub fn all_details(locks: &[LockStatus], blocked: &[Blocked]) {
    let graph = Graph::of(&[], blocked);
    for lock in locks {
        details(lock, &graph);
    }
    let is_shown = |name: &str| locks.iter().any(|lock| *lock.name == *name);
    for part in blocked.iter().filter(|part| !is_shown(&part.holds)) {
        for edge in graph.from(&part.holds).filter(|edge| *edge.waits_for == *part.waits_for) {
            show!("{} is held by {}", printable(&edge.holds), graph::who(edge));
            show!("  waits for   {}", printable(&edge.waits_for));
        }
    }
    for circle in graph.circles() {
        show!("{}", graph::told(&circle));
    }
}

/// Prints everything that is known about a lock.
fn details(lock: &LockStatus, graph: &Graph) {
    show!("{}", printable(&lock.name));
    let Some(holder) = holders(lock) else {
        show!("  free");
        waiting(lock);
        return;
    };
    show!("  held by     {holder}");
    if let Some(since) = lock.since {
        let at = humantime::format_rfc3339_millis(since);
        show!("  since       {at} ({} ago)", ago(since, SystemTime::now()));
    }
    match lock.remaining {
        Some(remaining) => show!("  expires in  {} unless renewed", short(remaining)),
        None => show!("  expires     never"),
    }
    show!("  count       {}", lock.hold_count);
    if let Some(token) = lock.last_token {
        show!("  token       {token}");
    }
    for reader in &lock.readers {
        show!("  reader      {reader}");
    }
    for edge in graph.from(&lock.name) {
        show!("  waits for   {} ({})", printable(&edge.waits_for), graph::who(edge));
    }
    waiting(lock);
}

fn waiting(lock: &LockStatus) {
    show!("  waiting     {}", lock.waiting_clients);
    for waiter in &lock.waiting {
        show!("    {waiter}");
    }
}

/// Prints locks as JSON, and what their holders wait for. Returns true if it was written.
pub fn json(locks: &[LockStatus], blocked: &[Blocked]) -> bool {
    let circles = Graph::of(&[], blocked).circles();
    let shown = json!({
        "schema": SCHEMA,
        "locks": locks,
        "blocked": blocked,
        "suspected_deadlocks": circles,
    });
    write(format_args!("{shown}\n"))
}

/// Returns the word that a variant without fields has in JSON.
pub fn word(variant: &impl Serialize) -> String {
    match json!(variant) {
        Value::String(word) => word,
        other => other.to_string(),
    }
}

/// Returns a time as people say it: "3.2s", "4m 10s".
pub fn short(time: Duration) -> String {
    match time {
        short if short < Duration::from_secs(60) => format!("{:.1}s", short.as_secs_f64()),
        long => humantime::format_duration(Duration::from_secs(long.as_secs())).to_string(),
    }
}

pub fn ago(since: SystemTime, now: SystemTime) -> String {
    short(now.duration_since(since).unwrap_or_default())
}

/// Leaves no character that a terminal would obey, or not show, and shows no two names in the same way.
pub fn printable(name: &str) -> String {
    name.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (time, shown) in [(0, "0.0s"), (3_210, "3.2s"), (59_900, "59.9s"), (250_400, "4m 10s")]
        {
            assert_eq!(short(Duration::from_millis(time)), shown);
        }
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\n"), r"a\u{1b}[31mb\n");
        assert_eq!(printable("grün 'a' \"b\" 鎖"), "grün 'a' \"b\" 鎖");
    }

    /// A name that is read from the right to the left, or of which a part is not seen, could be taken for another.
    #[test]
    fn what_a_terminal_does_not_show_is_escaped() {
        for (name, shown) in [
            ("a\u{202e}b", r"a\u{202e}b"),
            ("a\u{2066}b", r"a\u{2066}b"),
            ("a\u{200b}b", r"a\u{200b}b"),
            ("a\u{feff}b", r"a\u{feff}b"),
        ] {
            assert_eq!(printable(name), shown);
        }
    }

    #[test]
    fn one_reader_is_not_several() {
        assert_eq!(other_readers(1), "1 other reader");
        assert_eq!(other_readers(2), "2 other readers");
    }

    #[test]
    fn two_names_never_look_the_same() {
        assert_eq!(printable("a\n"), r"a\n");
        assert_eq!(printable(r"a\n"), r"a\\n");
    }
}
