//! A kind of lock for unit tests, which sends nothing of use.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Kind, Released, Sharing, Ticket};
use crate::key::LeaseId;
use crate::script::{Call, LOCK_RENEW, Reply};

/// Replies 1 for yes and 0 for no.
pub(crate) struct Plain {
    name: Arc<str>,
    sharing: Sharing,
    side: u32,
}

impl Plain {
    pub(crate) fn new(sharing: Sharing, side: u32) -> Self {
        Self { name: "n".into(), sharing, side }
    }
}

fn call() -> Call {
    Call { script: &LOCK_RENEW, keys: Vec::new(), args: Vec::new() }
}

impl Kind for Plain {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn channel(&self) -> &Arc<str> {
        &self.name
    }

    fn family(&self) -> &'static str {
        "plain"
    }

    fn side(&self) -> u32 {
        self.side
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn acquire(&self, _: &Ticket, _: Duration, _: u64) -> Call {
        call()
    }

    fn renew(&self, _: &LeaseId, _: u32, _: Duration) -> Call {
        call()
    }

    fn reclaim(&self, _: &Ticket, _: u32, _: Duration, _: RangeInclusive<u64>) -> Call {
        call()
    }

    fn release(&self, _: &Ticket, _: Duration) -> Call {
        call()
    }

    fn raise(&self, _: &LeaseId, _: u64) -> Call {
        call()
    }

    fn read_acquire(&self, reply: &Reply) -> Option<Answer> {
        (reply.number()? == 1).then_some(Answer::granted(1))
    }

    fn read_renew(&self, reply: &Reply) -> Option<bool> {
        Some(reply.number()? == 1)
    }

    fn read_release(&self, _: &Reply) -> Option<Released> {
        None
    }
}
