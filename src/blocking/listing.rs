//! Finding locks, for threads.

use std::fmt;

use super::runtime::Runtime;
use crate::error::Error;
use crate::primitives::listed::ListedLock;

/// Finds locks, one after the other: an iterator; see [`leasehold::Listing`](crate::Listing).
///
/// An item is an error if a server that is needed does not answer, or if a right is missing; the next call goes on from there. So
/// end the loop at the first error, or after a few.
///
/// Each item may wait for the servers, and for the pauses in which it leaves them alone. In async code it is
/// [`Error::InAsyncContext`], and in a fork of the process [`Error::Closed`].
#[must_use = "nothing is asked before it is iterated over"]
pub struct Listing {
    listing: crate::Listing,
    runtime: Runtime,
}

impl Listing {
    pub(super) fn new(listing: crate::Listing, runtime: &Runtime) -> Self {
        Self { listing, runtime: runtime.clone() }
    }

    /// Makes no pauses; see [`leasehold::Listing::fast`](crate::Listing::fast).
    pub fn fast(self) -> Self {
        Self { listing: self.listing.fast(), runtime: self.runtime }
    }

    /// Returns how much of the keys it has looked at, from 0 to 1; see
    /// [`leasehold::Listing::progress`](crate::Listing::progress).
    pub fn progress(&self) -> f64 {
        self.listing.progress()
    }
}

impl Iterator for Listing {
    type Item = Result<ListedLock, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.wait(self.listing.next()).and_then(|next| next).transpose()
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listing.fmt(f)
    }
}
