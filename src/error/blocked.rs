//! The parts of a deadlock.

use std::fmt;
use std::sync::Arc;

use crate::owner::Owner;
use crate::text::Printable;

/// One part of a deadlock: an owner that holds a lock, and waits for one that the next part holds; see
/// [`Error::Deadlock`](super::Error::Deadlock).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Blocked {
    /// The owner of the hold. One of another process is shown as it is there, and equals none of this process.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::text"))]
    pub owner: Owner,
    /// The name of the client that holds the lock for it.
    pub client: Arc<str>,
    /// The lock that it holds, and that the part before it waits for.
    pub holds: Arc<str>,
    /// The fencing token of this hold. `None` for permits, which have none.
    pub token: Option<u64>,
    /// The lock that it waits for.
    pub waits_for: Arc<str>,
}

/// Shows a circle from the wait of the caller on, which is its first part.
pub(super) struct Shown<'a>(pub(super) &'a [Blocked]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((caller, others)) = self.0.split_first() else { return Ok(()) };
        write!(f, "lock {:?} is held by ", caller.waits_for)?;
        for Blocked { owner, client, waits_for, .. } in others {
            let client = Printable(client);
            write!(
                f,
                "{owner} of {client}, which waits for lock {waits_for:?}, which is held by "
            )?;
        }
        f.write_str("the caller")
    }
}
