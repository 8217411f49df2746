//! How the servers that Sentinels name are reached.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::views::Announced;
use crate::config::{Address, AddressMap};
use crate::error::Fault;
use crate::node::target::{Dial, Target};

/// How the servers that they name are reached.
pub(super) struct Servers {
    pub(super) dial: Dial,
    /// Everything but host and port.
    pub(super) like: Address,
    pub(super) map: Option<AddressMap>,
}

impl Servers {
    pub(super) fn target(&self, at: &Announced) -> Result<Target, Fault> {
        let mapped = match &self.map {
            // A panic must not end the task that follows the master.
            Some(map) => catch_unwind(AssertUnwindSafe(|| map.of(&at.host, at.port))).ok(),
            None => Some((at.host.to_string(), at.port)),
        };
        let Some((host, port)) = mapped else {
            return Err(Fault::WrongServer("the function of `address_map` panicked".into()));
        };
        let address = self.like.at(&host, port);
        let target = self.dial.target(&address);
        let target = target.map_err(|error| Fault::WrongServer(error.to_string().into()))?;
        let greeting = target.greeting.announced_at(&address.shown);
        Ok(Target { greeting, ..target })
    }
}
