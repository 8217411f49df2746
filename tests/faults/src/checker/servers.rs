//! S4 and W1: what servers run about leases, each in its own order.

use std::collections::HashMap;

use super::{View, s};
use crate::{event::What, locks::is_said_by_leader};

pub(super) fn check(view: &mut View<'_>) {
    changed_for_another(view);
    unsaid_for_another(view);
    renewed_after_release(view);
}

/// S4: no release and no renewal changes a lock that another lease has. What is said of a lock's hash holds for mutexes, with
/// those of elections and multi locks.
///
/// A lock is made by the acquire of its one lease, or put back for it, or made by a release that has freed it for the next
/// lease, and is gone with a `DEL`, or with the `HDEL` of that lease. From one on, until something may have been missed, it
/// is known whose it is, or was until its time to live was over: then nobody may change it either. The run of a release that
/// grants a lock also gives it a time to live, and takes the grant back if its message is refused.
fn changed_for_another(view: &mut View<'_>) {
    // The lease of each lock; `None`: it was deleted.
    let mut leases: HashMap<(usize, &str), Option<&str>> = HashMap::new();
    // The locks that the run of a release has granted, by server, and the lease of that release.
    let mut grants_of_run: HashMap<usize, HashMap<&str, &str>> = HashMap::new();
    for (_, event) in view.history.events() {
        let (node, script, id, verb, key, field) = match &event.what {
            What::Watched { node } => {
                leases.retain(|(watched, _), _| watched != node);
                continue;
            }
            What::Ran { node, .. } => {
                grants_of_run.remove(node);
                continue;
            }
            What::Changed { script, id, key, .. }
                if !script.starts_with("lock_") || is_writer(id) || is_said_by_leader(key) =>
            {
                continue;
            }
            What::Changed { node, script, id, verb, key, field } => {
                (*node, script.as_str(), id.as_str(), verb.as_str(), key.as_str(), field.as_deref())
            }
            _ => continue,
        };
        let release = script == "lock_release";
        let grants = release && verb == "HSET" && field != Some(id);
        let granted = grants_of_run.entry(node).or_default();
        if grants {
            granted.insert(key, id);
        }
        let completes =
            !grants && granted.get(key) == Some(&id) && ["PEXPIRE", "DEL"].contains(&verb);
        if !matches!(script, "lock_acquire" | "lock_reclaim")
            && !completes
            && let Some(lease) = leases.get(&(node, key)).copied()
            && (verb != "HDEL" || (lease.is_some() && lease == field))
        {
            view.checked("S4");
            if lease != (!grants).then_some(id) {
                let (lease, at) = (lease.unwrap_or("nobody"), s(event.at));
                let what = format!("{verb} of {key} of {lease} by {script} of {id}");
                view.found("S4", event.at, format!("{what}, at {at} on node {node}"));
            }
        }
        match verb {
            "DEL" => drop(leases.insert((node, key), None)),
            "HDEL" if leases.get(&(node, key)).is_some_and(|lease| *lease == field) => {
                leases.insert((node, key), None);
            }
            "HSET" => drop(leases.insert((node, key), field)),
            _ => {}
        }
    }
}

/// S4: a release deletes what its own lease said as a leader, and nothing that another has said since.
fn unsaid_for_another(view: &mut View<'_>) {
    let mut said: HashMap<(usize, &str), &str> = HashMap::new();
    for (_, event) in view.history.events() {
        match &event.what {
            What::Watched { node } => said.retain(|(watched, _), _| watched != node),
            What::Changed { node, script, id, verb, key, field } if is_said_by_leader(key) => {
                let by = said.remove(&(*node, key));
                if let Some(by) = by
                    && verb != "SET"
                {
                    view.checked("S4");
                    if by != id {
                        let what = format!("{verb} of {key} of {by} by {script} of {id}");
                        let at = s(event.at);
                        view.found("S4", event.at, format!("{what}, at {at} on node {node}"));
                    }
                }
                if verb == "SET" {
                    said.extend(field.as_deref().map(|by| ((*node, key.as_str()), by)));
                }
            }
            _ => {}
        }
    }
}

/// Whether it is the field of a lease that writes, which is renewed by the script for mutexes.
fn is_writer(field: &str) -> bool {
    field.ends_with(WRITER)
}

/// W1: no server is told to renew or put back a lease, of whatever kind, that it was told to release. It does not matter what
/// was missed: a lease has its id for itself. Permits that an operator takes back are released, too, and their holder learns of
/// it by a renewal.
fn renewed_after_release(view: &mut View<'_>) {
    let mut released = HashMap::new();
    let forced_out: Vec<_> = view.deeds.iter().filter_map(|deed| deed.lease().cloned()).collect();
    for (_, event) in view.history.events() {
        let What::Ran { node, script, id } = &event.what else { continue };
        let id = id.strip_suffix(WRITER).unwrap_or(id);
        if forced_out.iter().any(|lease| lease == id) {
            continue;
        }
        match script.split_once('_').map(|(_, verb)| verb) {
            Some("release") => drop(released.insert((node, id), event.at)),
            Some("renew" | "reclaim") => {
                view.checked("W1");
                if let Some(since) = released.get(&(node, id)) {
                    let (at, since) = (s(event.at), s(*since));
                    let what = format!("{id} renewed at {at}, released at {since}, node {node}");
                    view.found("W1", event.at, what);
                }
            }
            _ => {}
        }
    }
}

/// What follows the id of a lease that writes.
const WRITER: &str = ":write";
