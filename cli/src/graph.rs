//! Who waits for whom, as far as a list of locks says: by the names of the clients.
//!
//! A client may hold a lock in one task and wait in another, so what looks like a deadlock here may be none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use leasehold::ListedLock;
use serde::Serialize;

use crate::text::printable;

/// A client that holds one lock and waits for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    pub client: String,
    pub holds: String,
    pub waits_for: String,
}

/// All clients that hold a lock and wait for another.
pub struct Graph {
    /// By the lock that is held.
    edges: BTreeMap<String, BTreeSet<Edge>>,
}

impl Graph {
    pub fn of(locks: &[ListedLock]) -> Self {
        let mut waits: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for lock in locks {
            for waiter in &lock.waiting {
                waits.entry(&waiter.client).or_default().insert(&lock.name);
            }
        }
        let mut edges: BTreeMap<String, BTreeSet<Edge>> = BTreeMap::new();
        for lock in locks {
            for client in lock.holders.iter().filter_map(|holder| holder.client()) {
                for waited in waits.get(client).into_iter().flatten() {
                    if **waited != *lock.name {
                        edges.entry(lock.name.to_string()).or_default().insert(Edge {
                            client: client.to_owned(),
                            holds: lock.name.to_string(),
                            waits_for: (*waited).to_owned(),
                        });
                    }
                }
            }
        }
        Self { edges }
    }

    /// Returns the locks that those who hold this one wait for.
    pub fn waits_for(&self, lock: &str) -> Vec<&str> {
        let names = self.from(lock).map(|edge| &*edge.waits_for);
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns circles of clients that seem to wait for each other, each once.
    pub fn circles(&self) -> Vec<Vec<Edge>> {
        let mut found = Vec::new();
        let mut done = BTreeSet::new();
        for start in self.edges.keys() {
            if done.contains(start) {
                continue;
            }
            if let Some(circle) = self.circle_through(start) {
                done.extend(circle.iter().map(|edge| edge.holds.clone()));
                found.push(circle);
            }
        }
        found
    }

    /// Returns the shortest way from a lock back to itself.
    fn circle_through(&self, start: &str) -> Option<Vec<Edge>> {
        let mut came_by: BTreeMap<&str, &Edge> = BTreeMap::new();
        let mut next = vec![start];
        while !next.is_empty() {
            let mut after = Vec::new();
            for lock in next {
                for edge in self.from(lock) {
                    if came_by.contains_key(&*edge.waits_for) {
                        continue;
                    }
                    came_by.insert(&edge.waits_for, edge);
                    if edge.waits_for == start {
                        let mut way = vec![edge.clone()];
                        while way[way.len() - 1].holds != start {
                            way.push(came_by[&*way[way.len() - 1].holds].clone());
                        }
                        way.reverse();
                        return Some(way);
                    }
                    after.push(&*edge.waits_for);
                }
            }
            next = after;
        }
        None
    }

    fn from(&self, lock: &str) -> impl Iterator<Item = &Edge> {
        self.edges.get(lock).into_iter().flatten()
    }
}

/// Says who seems to wait for whom in a circle.
pub fn told(circle: &[Edge]) -> String {
    let parts: Vec<_> = circle
        .iter()
        .map(|Edge { client, holds, waits_for }| {
            format!("{} holds {holds:?} and waits for {waits_for:?}", printable(client))
        })
        .collect();
    format!("this looks like a deadlock: {}", parts.join("; "))
}

/// Draws all locks and clients in Graphviz's language: a lock points to who holds it, a client to what it waits for.
pub fn dot(locks: &[ListedLock]) -> String {
    let mut text = "digraph locks {\n  rankdir=LR;\n".to_owned();
    let mut clients = BTreeSet::new();
    for lock in locks {
        let name = &*lock.name;
        let _ = writeln!(text, "  {} [shape=box, label={}];", id("lock", name), quoted(name));
        for holder in &lock.holders {
            let client = holder.client().unwrap_or(holder.as_str());
            clients.insert(client);
            let _ = writeln!(text, "  {} -> {};", id("lock", name), id("client", client));
        }
        for waiter in &lock.waiting {
            clients.insert(&waiter.client);
            let [from, to] = [id("client", &waiter.client), id("lock", name)];
            let _ = writeln!(text, "  {from} -> {to} [style=dashed];");
        }
    }
    for client in clients {
        let _ = writeln!(text, "  {} [label={}];", id("client", client), quoted(client));
    }
    text + "}\n"
}

fn id(kind: &str, name: &str) -> String {
    quoted(&format!("{kind} {name}"))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", printable(name).replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str, &str)]) -> Graph {
        let mut all: BTreeMap<String, BTreeSet<Edge>> = BTreeMap::new();
        for (client, holds, waits_for) in edges {
            let [client, holds, waits_for] = [client, holds, waits_for].map(|it| it.to_string());
            all.entry(holds.clone()).or_default().insert(Edge { client, holds, waits_for });
        }
        Graph { edges: all }
    }

    fn circles(edges: &[(&str, &str, &str)]) -> Vec<String> {
        let names = |circle: Vec<Edge>| {
            circle.into_iter().map(|edge| edge.holds).collect::<Vec<_>>().join(" ")
        };
        graph(edges).circles().into_iter().map(names).collect()
    }

    #[test]
    fn a_circle_is_found_once_however_long_it_is() {
        assert!(circles(&[]).is_empty());
        assert!(circles(&[("x", "a", "b"), ("y", "b", "c")]).is_empty());
        assert_eq!(circles(&[("x", "a", "b"), ("y", "b", "a")]), ["a b"]);
        let three = [("x", "a", "b"), ("y", "b", "c"), ("z", "c", "a"), ("w", "d", "a")];
        assert_eq!(circles(&three), ["a b c"]);
        let two = [("x", "a", "b"), ("y", "b", "a"), ("v", "c", "d"), ("w", "d", "c")];
        assert_eq!(circles(&two), ["a b", "c d"]);
    }

    #[test]
    fn who_waits_for_whom_is_told() {
        let graph = graph(&[("x", "a", "b"), ("x", "a", "c"), ("y", "b", "a")]);
        assert_eq!(graph.waits_for("a"), ["b", "c"]);
        assert!(graph.waits_for("c").is_empty());
        assert_eq!(
            told(&graph.circles()[0]),
            "this looks like a deadlock: x holds \"a\" and waits for \"b\"; y holds \"b\" and waits for \"a\""
        );
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
    }
}
