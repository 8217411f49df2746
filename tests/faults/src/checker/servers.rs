//! S4 and W1: what servers run about leases, each in its own order.

use std::collections::HashMap;

use super::{View, s};
use crate::event::What;

pub(super) fn check(view: &mut View<'_>) {
    changed_for_another(view);
    renewed_after_release(view);
}

/// S4: no release and no renewal changes a lock that another lease has.
///
/// A lock is made by the acquire of its one lease, or by a release that has freed it for the next lease, and is gone with a `DEL`, or with the `HDEL` of that lease. From one
/// on, until something may have been missed, it is known whose it is, or was until its time to live was over: then
/// nobody may change it either.
fn changed_for_another(view: &mut View<'_>) {
    // The lease of each lock; `None`: it was deleted.
    let mut leases: HashMap<(usize, &str), Option<&str>> = HashMap::new();
    // The lease whose release granted a lock last: it gives the lock a time to live, too.
    let mut granted_by = HashMap::new();
    for (_, event) in view.history.events() {
        let (node, script, id, verb, key, field) = match &event.what {
            What::Watched { node } => {
                leases.retain(|(watched, _), _| watched != node);
                continue;
            }
            What::Changed { node, script, id, verb, key, field } => {
                (*node, script.as_str(), id.as_str(), verb.as_str(), key.as_str(), field.as_deref())
            }
            _ => continue,
        };
        let release = script == "lock_release";
        let grants = release && verb == "HSET" && field != Some(id);
        let expires = release && verb == "PEXPIRE" && granted_by.get(&(node, key)) == Some(&id);
        if grants {
            granted_by.insert((node, key), id);
        }
        if script != "lock_acquire"
            && !expires
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

/// W1: no server is told to renew a lease that it was told to release. It does not matter what was missed: a lease has
/// its id for itself.
fn renewed_after_release(view: &mut View<'_>) {
    let mut released = HashMap::new();
    for (_, event) in view.history.events() {
        let What::Ran { node, script, id } = &event.what else { continue };
        match script.as_str() {
            "lock_release" => drop(released.insert((node, id), event.at)),
            "lock_renew" => {
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
