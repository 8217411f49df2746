//! Which server each node of a client is connected to, so that no server counts as two nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::config::{Config, Masters, Place};
use crate::key;

/// The servers of all nodes of one client, by the nodes' addresses.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    /// The list of them, and the key in which each of them keeps it.
    pub(super) masters: Masters,
    pub(super) key: Arc<str>,
    claims: Mutex<BTreeMap<Arc<str>, Claim>>,
}

#[derive(Debug)]
struct Claim {
    run_id: String,
    /// The time since which its node has had no connection.
    left_at: Option<Timestamp>,
}

impl Servers {
    pub(crate) fn new(places: &[Place], config: &Config) -> Self {
        let masters = Masters::of(places, config.masters_name.as_deref());
        Self { masters, key: key::masters_key(&config.name_prefix), claims: Mutex::default() }
    }

    /// The node at `address` is connected to the server `run_id` from now on. Fails with the address of another node
    /// that already is.
    ///
    /// A claim outlives its connection by `lapse`, because answers on that connection may still be counted.
    pub(super) fn claim(
        &self,
        address: &Arc<str>,
        run_id: &str,
        now: Timestamp,
        lapse: Duration,
    ) -> Result<(), Arc<str>> {
        let mut claims = self.claims.lock();
        claims.remove(address);
        claims.retain(|_, claim| claim.left_at.is_none_or(|left_at| now.since(left_at) < lapse));
        if let Some((other, _)) = claims.iter().find(|(_, claim)| claim.run_id == run_id) {
            return Err(other.clone());
        }
        claims.insert(address.clone(), Claim { run_id: run_id.to_owned(), left_at: None });
        Ok(())
    }

    /// The node no longer has a connection.
    pub(super) fn leave(&self, address: &Arc<str>, now: Timestamp) {
        if let Some(claim) = self.claims.lock().get_mut(address) {
            claim.left_at.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAPSE: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_server_is_one_node_until_that_node_meets_another() {
        let servers = Servers::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert_eq!(servers.claim(&a, "one", at(0), LAPSE), Ok(()));
        assert_eq!(servers.claim(&b, "one", at(0), LAPSE), Err(a.clone()));
        assert_eq!(servers.claim(&a, "one", at(0), LAPSE), Ok(()), "a new connection to the same");
        assert_eq!(servers.claim(&a, "two", at(0), LAPSE), Ok(()));
        assert_eq!(servers.claim(&b, "one", at(0), LAPSE), Ok(()));
    }

    #[test]
    fn a_node_that_is_gone_keeps_its_server_for_a_while() {
        let servers = Servers::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert_eq!(servers.claim(&a, "one", at(0), LAPSE), Ok(()));
        servers.leave(&a, at(100));
        servers.leave(&a, at(900));
        assert_eq!(servers.claim(&b, "one", at(1099), LAPSE), Err(a.clone()));
        assert_eq!(servers.claim(&b, "one", at(1100), LAPSE), Ok(()));
        assert_eq!(servers.claim(&a, "one", at(1100), LAPSE), Err(b));
    }

    #[test]
    fn two_nodes_can_change_places() {
        let servers = Servers::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert_eq!(servers.claim(&a, "one", at(0), LAPSE), Ok(()));
        assert_eq!(servers.claim(&b, "two", at(0), LAPSE), Ok(()));
        assert_eq!(servers.claim(&a, "two", at(0), LAPSE), Err(b.clone()));
        assert_eq!(servers.claim(&b, "one", at(0), LAPSE), Ok(()));
        assert_eq!(servers.claim(&a, "two", at(0), LAPSE), Ok(()));
    }
}
