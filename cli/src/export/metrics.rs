//! The locks as Prometheus reads them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::SystemTime;

use leasehold::{ListedLock, NodeState};

use super::poll::Poll;
use crate::graph::Graph;
use crate::list;

pub fn text(poll: &Poll) -> String {
    let mut page = Page::default();
    page.family("leasehold_up", "Whether the last list of the locks is complete and recent.");
    page.sample("leasehold_up", &[], f64::from(u8::from(poll.staleness().is_none())));
    page.family("leasehold_server_up", "Whether a server is connected and its grants count.");
    for node in poll.nodes.iter().filter(|node| node.state != NodeState::Unused) {
        let is_up = f64::from(u8::from(matches!(node.state, NodeState::Up)));
        page.sample("leasehold_server_up", &[("node", node.address.as_ref())], is_up);
    }
    let Some(at) = poll.at else { return page.0 };
    page.family("leasehold_list_age_seconds", "How old the list of the locks is.");
    page.sample("leasehold_list_age_seconds", &[], at.elapsed().as_secs_f64());
    page.family("leasehold_list_duration_seconds", "How long it took to list the locks.");
    page.sample("leasehold_list_duration_seconds", &[], poll.took.as_secs_f64());

    page.family("leasehold_locks", "Locks that are held.");
    let mut kinds = BTreeMap::from([("mutex", 0), ("read", 0), ("write", 0), ("semaphore", 0)]);
    for lock in &poll.locks {
        *kinds.entry(list::kind(lock)).or_default() += 1;
    }
    for (kind, number) in kinds {
        page.sample("leasehold_locks", &[("kind", kind)], f64::from(number));
    }
    let all = Graph::of(&poll.locks, &poll.blocked).circles().len();
    let noted = Graph::of(&[], &poll.blocked).circles().len();
    page.family(
        "leasehold_suspected_deadlocks",
        "Circles of clients that each hold a lock and wait for the next one's.",
    );
    for (label, number) in [("true", noted), ("false", all.saturating_sub(noted))] {
        page.sample("leasehold_suspected_deadlocks", &[("noted", label)], number as f64);
    }
    let shown = &poll.locks[..poll.locks.len().min(poll.limit)];
    page.family("leasehold_locks_left_out", "Locks beyond --limit, which have no samples below.");
    page.sample("leasehold_locks_left_out", &[], (poll.locks.len() - shown.len()) as f64);
    of_each(&mut page, shown, poll.made_at().unwrap_or(SystemTime::UNIX_EPOCH));
    page.0
}

fn of_each(page: &mut Page, locks: &[ListedLock], now: SystemTime) {
    page.family("leasehold_lock_held_seconds", "How long a lock has been held, if that is known.");
    for lock in locks {
        let (Some(since), Some(holder)) = (lock.since, lock.holders.first()) else { continue };
        let held = now.duration_since(since).unwrap_or_default().as_secs_f64();
        let labels = [("lock", &*lock.name), ("holder", &holder.to_string())];
        page.sample("leasehold_lock_held_seconds", &labels, held);
    }
    page.family("leasehold_lock_ttl_seconds", "When a lock ends unless it is renewed.");
    for lock in locks {
        if let Some(remaining) = lock.remaining {
            let labels = [("lock", &*lock.name)];
            page.sample("leasehold_lock_ttl_seconds", &labels, remaining.as_secs_f64());
        }
    }
    page.family("leasehold_lock_waiting_clients", "How many clients wait for a lock.");
    for lock in locks {
        let labels = [("lock", &*lock.name)];
        page.sample("leasehold_lock_waiting_clients", &labels, f64::from(lock.waiting_clients));
    }
    page.family("leasehold_lock_token", "The last fencing token of a lock.");
    for lock in locks {
        if let Some(token) = lock.last_token {
            let labels = [("lock", &*lock.name)];
            page.sample("leasehold_lock_token", &labels, token as f64);
        }
    }
}

/// A page in the text format of Prometheus.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_label() {
        let mut page = Page::default();
        page.sample("m", &[("lock", "a\"} 1\nb\\"), ("holder", "x")], 2.5);
        assert_eq!(page.0, "m{lock=\"a\\\"} 1\\nb\\\\\",holder=\"x\"} 2.5\n");
    }

    #[test]
    fn without_a_list_it_says_so() {
        let text = text(&Poll::none());
        assert!(text.contains("\nleasehold_up 0\n"), "{text}");
        assert!(!text.contains("leasehold_locks"), "{text}");
    }
}
