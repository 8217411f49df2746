//! Those who wait for a lock in a server's queue, in the order in which they came: nobody may overtake.

use std::collections::{BTreeMap, VecDeque};

/// The queues of all servers.
#[derive(Default)]
pub struct Lines {
    lines: BTreeMap<(usize, Vec<u8>), Line>,
}

/// A queue as it was after the last script.
#[derive(Default)]
struct Line {
    entries: Vec<Vec<u8>>,
    /// Who got the lock lately, with the end of its tokens: who is confirmed gets nothing new.
    granted: VecDeque<(String, u64)>,
}

/// What came of a script that may have changed a queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nobody who waits could be overtaken.
    Nothing,
    /// The lock went to somebody while others waited, in their order.
    InOrder,
    Disorder(String),
}

impl Lines {
    /// A script on a node left a queue with these entries, and gave the lock to the leases of `grants`. `hears` says whether
    /// somebody listens to a mailbox.
    pub fn changed(
        &mut self,
        node: usize,
        queue: &[u8],
        entries: Vec<Vec<u8>>,
        grants: impl IntoIterator<Item = (String, u64)>,
        hears: impl Fn(&[u8]) -> bool,
    ) -> Found {
        let line = self.lines.entry((node, queue.to_vec())).or_default();
        let mut found = Found::Nothing;
        for grant in grants {
            if line.granted.contains(&grant) {
                continue;
            }
            let is_own = |entry: &Vec<u8>| id_of(entry) == grant.0;
            let place = line.entries.iter().position(is_own).unwrap_or(line.entries.len());
            // Whoever cannot be reached is passed over.
            let waits = |entry: &&Vec<u8>| entries.contains(*entry) && hears(&mailbox_of(entry));
            let overtaken = line.entries[..place].iter().find(waits);
            if let (Some(entry), false) = (overtaken, matches!(found, Found::Disorder(_))) {
                let what = format!("{} got the lock before {}", grant.0, id_of(entry));
                found = Found::Disorder(what);
            } else if !line.entries.is_empty() && found == Found::Nothing {
                found = Found::InOrder;
            }
            line.granted.push_back(grant);
            if line.granted.len() > CONFIRMED {
                line.granted.pop_front();
            }
        }
        line.entries.retain(|entry| entries.contains(entry));
        for entry in &entries {
            if !line.entries.contains(entry) {
                line.entries.push(entry.clone());
            }
        }
        if line.entries != entries {
            let ids: Vec<String> = entries.iter().map(|entry| id_of(entry)).collect();
            found = Found::Disorder(format!("they do not stand as they came: {ids:?}"));
        }
        line.entries = entries;
        found
    }
}

/// How many grants may be confirmed: more than there are clients and their permits.
const CONFIRMED: usize = 64;

/// The lease that an entry asks for.
pub fn id_of(entry: &[u8]) -> String {
    let entry = String::from_utf8_lossy(entry);
    entry.splitn(4, ' ').nth(3).unwrap_or(&*entry).to_owned()
}

/// The mailbox of the client that an entry is of.
pub fn mailbox_of(entry: &[u8]) -> Vec<u8> {
    let (text, id) = (String::from_utf8_lossy(entry), id_of(entry));
    let nonce = text.split(' ').nth(2).unwrap_or_default();
    let client = id.rsplit_once(':').map_or("", |(client, _)| client);
    format!("{MAILBOXES}{client}:{nonce}").into_bytes()
}

/// Whether a channel is the mailbox of a client.
pub fn is_mailbox(channel: &[u8]) -> bool {
    channel.starts_with(MAILBOXES.as_bytes())
}

const MAILBOXES: &str = "leasehold_mailbox:";

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_HEAR: fn(&[u8]) -> bool = |_| true;

    fn entries(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| format!("2000 3 0a {name}:1").into_bytes()).collect()
    }

    fn grant(name: &str, end: u64) -> Option<(String, u64)> {
        Some((format!("{name}:1"), end))
    }

    fn waiting(names: &[&str]) -> Lines {
        let mut lines = Lines::default();
        for count in 1..=names.len() {
            let found = lines.changed(0, b"q", entries(&names[..count]), None, ALL_HEAR);
            assert_eq!(found, Found::Nothing);
        }
        lines
    }

    #[test]
    fn the_first_gets_the_lock_and_is_confirmed() {
        let mut lines = waiting(&["a", "b", "c"]);
        let found = lines.changed(0, b"q", entries(&["b", "c"]), grant("a", 7), ALL_HEAR);
        assert_eq!(found, Found::InOrder);
        let found = lines.changed(0, b"q", entries(&["b", "c"]), grant("a", 7), ALL_HEAR);
        assert_eq!(found, Found::Nothing);
    }

    #[test]
    fn who_comes_before_its_turn_is_found() {
        for (left, who) in [(&["a", "c"][..], "b"), (&["a", "b", "c"], "d")] {
            let mut lines = waiting(&["a", "b", "c"]);
            let found = lines.changed(0, b"q", entries(left), grant(who, 7), ALL_HEAR);
            assert!(matches!(found, Found::Disorder(_)), "{who}");
        }
        // Its turn was over: it may not come back without queueing.
        let mut lines = waiting(&["a", "b", "c"]);
        lines.changed(0, b"q", entries(&["b", "c"]), grant("a", 7), ALL_HEAR);
        let found = lines.changed(0, b"q", entries(&["b", "c"]), grant("a", 8), ALL_HEAR);
        assert!(matches!(found, Found::Disorder(_)));
    }

    #[test]
    fn several_get_in_at_once_and_nobody_between_them_is_left_out() {
        let at_once = |names: &[&str]| names.iter().filter_map(|name| grant(name, 7)).collect();
        let (all, some): (Vec<_>, Vec<_>) = (at_once(&["a", "b"]), at_once(&["a", "c"]));
        let found = waiting(&["a", "b", "c"]).changed(0, b"q", entries(&["c"]), all, ALL_HEAR);
        assert_eq!(found, Found::InOrder);
        let found = waiting(&["a", "b", "c"]).changed(0, b"q", entries(&["b"]), some, ALL_HEAR);
        assert!(matches!(found, Found::Disorder(_)));
    }

    #[test]
    fn who_left_or_hears_nothing_may_be_passed_over() {
        let mut lines = waiting(&["a", "b", "c"]);
        let found = lines.changed(0, b"q", entries(&["c"]), grant("b", 7), ALL_HEAR);
        assert_eq!(found, Found::InOrder);
        let mut lines = waiting(&["a", "b"]);
        let deaf = |mailbox: &[u8]| mailbox != b"leasehold_mailbox:a:0a";
        let found = lines.changed(0, b"q", entries(&["a"]), grant("b", 7), deaf);
        assert_eq!(found, Found::InOrder);
    }

    #[test]
    fn who_comes_late_and_stands_in_front_is_found() {
        let mut lines = waiting(&["a", "b"]);
        let found = lines.changed(0, b"q", entries(&["c", "a", "b"]), None, ALL_HEAR);
        assert!(matches!(found, Found::Disorder(_)));
    }
}
