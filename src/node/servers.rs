//! Which server each node of a client speaks to: no server counts as two nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The servers of all nodes of one client, by the address of the node.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    run_ids: Mutex<BTreeMap<Arc<str>, String>>,
}

impl Servers {
    /// Says that the node at `address` speaks to the server `run_id` from now on. The node that does so
    /// already, if there is another.
    ///
    /// A claim outlives its connection, since the answers of that connection may still be counted: it ends
    /// when its node meets another server.
    pub(super) fn claim(&self, address: &Arc<str>, run_id: &str) -> Result<(), Arc<str>> {
        let mut run_ids = self.run_ids.lock();
        run_ids.remove(address);
        let other = run_ids.iter().find(|(_, claimed)| *claimed == run_id);
        if let Some((other, _)) = other {
            return Err(other.clone());
        }
        run_ids.insert(address.clone(), run_id.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_one_node_until_that_node_meets_another() {
        let servers = Servers::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert_eq!(servers.claim(&a, "one"), Ok(()));
        assert_eq!(servers.claim(&b, "one"), Err(a.clone()));
        assert_eq!(servers.claim(&a, "one"), Ok(()), "a new connection to the same");
        assert_eq!(servers.claim(&a, "two"), Ok(()));
        assert_eq!(servers.claim(&b, "one"), Ok(()));
    }

    #[test]
    fn two_nodes_can_change_places() {
        let servers = Servers::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert_eq!(servers.claim(&a, "one"), Ok(()));
        assert_eq!(servers.claim(&b, "two"), Ok(()));
        assert_eq!(servers.claim(&a, "two"), Err(b.clone()));
        assert_eq!(servers.claim(&b, "one"), Ok(()));
        assert_eq!(servers.claim(&a, "two"), Ok(()));
    }
}
