//! The status of a node, for operators.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::shared::Shared;
use crate::error::Fault;

/// A node as its client sees it; see [`Client::nodes`](crate::Client::nodes).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NodeStatus {
    /// The address of its server, without credentials. If it is not known yet where the master is, it is the master's name.
    pub address: Arc<str>,
    /// The name of the master whose address the Sentinels tell; `None` for a server with an address of its own.
    pub master: Option<Arc<str>>,
    /// The node's state.
    pub state: NodeState,
    /// The server's run id at the last connection; it changes with every start of the server. It is `None` if there was
    /// no connection yet, or if the server does not report it.
    pub run_id: Option<Arc<str>>,
    /// The time until which its grants do not count, by this host's clock; `None` if they count. After a failover this is
    /// the end of the grace, until which waiters wait. See [`restart_quarantine`](crate::ClientBuilder::restart_quarantine).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::maybe_time"))]
    pub quarantined_until: Option<SystemTime>,
    /// The reason why there is no connection.
    pub last_error: Option<Arc<str>>,
    /// The smoothed round-trip time of its answers; `None` if it has not been asked yet.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::maybe_seconds"))]
    pub round_trip: Option<Duration>,
}

/// The state of a node: whether the client can use it, and whether its grants count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum NodeState {
    /// The node is connected, and its grants count.
    Up,
    /// The node is connected, but may have forgotten earlier grants, because it restarted or took over from another
    /// server. Its new grants do not count for a while, and leases that it lost are put back.
    Quarantined,
    /// There is no connection; the client keeps trying to reconnect.
    Down,
    /// There is no connection, because no lock of this client was on this node of the cluster.
    Unused,
    /// The node's address leads to the server of another node, so the client does not use it.
    SameServer,
    /// The server is used with other [masters](crate::ClientBuilder::nodes) than this client names, so this client takes no
    /// locks, on any of its servers. It keeps asking.
    OtherMasters,
}

impl NodeStatus {
    /// The status of a node of a cluster that this client has not needed.
    pub(crate) fn unused(address: Arc<str>) -> Self {
        Self {
            address,
            master: None,
            state: NodeState::Unused,
            run_id: None,
            quarantined_until: None,
            last_error: None,
            round_trip: None,
        }
    }
}

pub(super) fn of(shared: &Shared) -> NodeStatus {
    let now = shared.endpoint.clock.now();
    let is_up = shared.link.lock().state.is_up();
    let fault = shared.last_fault.lock().clone();
    let quarantine = shared.quarantine.lock();
    let left = quarantine.until.since(now);
    NodeStatus {
        address: shared.endpoint.address(),
        master: shared.endpoint.guide.is_dynamic().then(|| shared.endpoint.name.clone()),
        state: state(is_up, left, fault.as_ref()),
        run_id: quarantine.run_id.as_deref().map(Arc::from),
        quarantined_until: end(left),
        last_error: fault.map(|fault| fault.to_string().into()),
        round_trip: Some(shared.round_trip()).filter(|it| !it.is_zero()),
    }
}

/// Returns the state of a node whose quarantine lasts for `left`. `fault` is the last reason for having no connection.
fn state(is_up: bool, left: Duration, fault: Option<&Fault>) -> NodeState {
    match fault {
        _ if is_up && left.is_zero() => NodeState::Up,
        _ if is_up => NodeState::Quarantined,
        Some(Fault::SameServer(_)) => NodeState::SameServer,
        Some(Fault::OtherMasters(_)) => NodeState::OtherMasters,
        _ => NodeState::Down,
    }
}

fn end(left: Duration) -> Option<SystemTime> {
    (!left.is_zero()).then(|| SystemTime::now() + left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_down_without_a_connection_and_quarantined_until_its_grants_count() {
        let minute = Duration::from_secs(60);
        let (same, other) = (Fault::SameServer("a".into()), Fault::Closed);
        for (is_up, left, fault, is) in [
            (true, Duration::ZERO, None, NodeState::Up),
            (true, Duration::ZERO, Some(&same), NodeState::Up),
            (true, minute, None, NodeState::Quarantined),
            (false, Duration::ZERO, None, NodeState::Down),
            (false, minute, Some(&other), NodeState::Down),
            (false, minute, Some(&same), NodeState::SameServer),
            (false, minute, Some(&Fault::OtherMasters("a".into())), NodeState::OtherMasters),
        ] {
            assert_eq!(state(is_up, left, fault), is, "{is_up} {left:?} {fault:?}");
        }
        assert_eq!(end(Duration::ZERO), None);
        let before = SystemTime::now();
        let end = end(minute).expect("it has an end");
        assert!((before + minute..=SystemTime::now() + minute).contains(&end), "{end:?}");
    }
}
