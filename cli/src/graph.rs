//! Who waits for whom: as those who wait have noted it, or else as a list of locks says, by the names of the clients.
//!
//! A client may hold a lock in one task and wait in another, so what looks like a deadlock by the names may be none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use leasehold::{Blocked, ListedLock};
use serde::Serialize;

use crate::text::printable;

/// A client that holds one lock and waits for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    pub client: String,
    pub holds: String,
    pub waits_for: String,
    /// Who in the client holds the one and waits for the other; `None` if nobody has noted that.
    pub owner: Option<String>,
}

/// All clients that hold a lock and wait for another.
pub struct Graph {
    /// By the lock that is held.
    edges: BTreeMap<String, BTreeSet<Edge>>,
}

impl Graph {
    pub fn of(locks: &[ListedLock], blocked: &[Blocked]) -> Self {
        let mut edges: BTreeMap<String, BTreeSet<Edge>> = BTreeMap::new();
        for part in blocked {
            edges.entry(part.holds.to_string()).or_default().insert(Edge {
                client: part.client.to_string(),
                holds: part.holds.to_string(),
                waits_for: part.waits_for.to_string(),
                owner: Some(part.owner.to_string()),
            });
        }
        let mut waits: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for lock in locks {
            for waiter in &lock.waiting {
                waits.entry(&waiter.client).or_default().insert(&lock.name);
            }
        }
        for lock in locks {
            for client in lock.holders.iter().filter_map(|holder| holder.client()) {
                let known = edges.entry(lock.name.to_string()).or_default();
                let is_noted = known.iter().any(|edge| edge.client == client);
                for waited in waits.get(client).into_iter().flatten() {
                    if !is_noted && **waited != *lock.name {
                        known.insert(Edge {
                            client: client.to_owned(),
                            holds: lock.name.to_string(),
                            waits_for: (*waited).to_owned(),
                            owner: None,
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

    /// Returns what those who hold a lock wait for.
    pub fn from(&self, lock: &str) -> impl Iterator<Item = &Edge> {
        self.edges.get(lock).into_iter().flatten()
    }
}

/// Says who seems to wait for whom in a circle.
pub fn told(circle: &[Edge]) -> String {
    let parts: Vec<_> = circle
        .iter()
        .map(|edge| {
            let Edge { holds, waits_for, .. } = edge;
            format!("{} holds {holds:?} and waits for {waits_for:?}", who(edge))
        })
        .collect();
    let what = match is_noted(circle) {
        true => "a deadlock, as those who wait have noted it",
        false => "this looks like a deadlock",
    };
    format!("{what}: {}", parts.join("; "))
}

/// Whether all who wait in a circle have noted that.
fn is_noted(circle: &[Edge]) -> bool {
    circle.iter().all(|edge| edge.owner.is_some())
}

/// Says who it is that waits.
pub fn who(edge: &Edge) -> String {
    match &edge.owner {
        Some(owner) => format!("{} of {}", printable(owner), printable(&edge.client)),
        None => printable(&edge.client),
    }
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
            let edge = Edge { client, holds: holds.clone(), waits_for, owner: None };
            all.entry(holds).or_default().insert(edge);
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
    fn what_is_noted_is_told_as_such_and_with_its_owner() {
        let mut graph = graph(&[("x", "a", "b"), ("y", "b", "a")]);
        let noted = |edge: Edge| Edge { owner: Some("task 7".to_owned()), ..edge };
        let half: BTreeSet<Edge> = graph.edges["a"].iter().cloned().map(noted).collect();
        graph.edges.insert("a".to_owned(), half);
        assert!(told(&graph.circles()[0]).starts_with("this looks like a deadlock: task 7 of x "));
        for edges in graph.edges.values_mut() {
            *edges = edges.iter().cloned().map(noted).collect();
        }
        assert_eq!(
            told(&graph.circles()[0]),
            "a deadlock, as those who wait have noted it: task 7 of x holds \"a\" and waits for \"b\"; task 7 of y holds \"b\" and waits for \"a\""
        );
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\\\c""#);
    }

    #[test]
    fn two_names_are_two_nodes() {
        assert_ne!(id("lock", "a\n"), id("lock", r"a\n"));
    }
}
