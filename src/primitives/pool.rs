//! A semaphore on its server: Redisson's RPermitExpirableSemaphore with a queue. This is what is asked about all its permits.

use std::sync::Arc;
use std::time::Duration;

use super::lock::count_of;
use super::replies::{LISTED, mailboxes, read_ttl, read_waiters};
use super::semaphore_status::{PermitHolder, SemaphoreStatus};
use crate::engine::kind::Ticket;
use crate::key::{self, Holder};
use crate::script::{self, Arg, Call, Reply, ttl_ms};

/// A semaphore: what all its permits have in common.
#[derive(Clone)]
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    pub(super) channel: Arc<str>,
    /// Its channel is a sharded one.
    is_sharded: bool,
    /// How many permits there are if the semaphore does not exist. `None`: it is not made.
    pub(super) initial: Option<u32>,
}

/// One acquisition takes so many permits at most: more would keep the server busy for too long.
pub(super) const MOST_AT_ONCE: u32 = 1000;

/// How many permits there are from now on.
#[derive(Clone, Copy)]
pub(super) enum Resize {
    To(u32),
    By(u32),
}

impl Pool {
    /// `is_sharded`: its channel is a sharded one.
    pub(super) fn new(name: Arc<str>, is_sharded: bool) -> Self {
        Self { channel: key::permit_channel(&name), name, is_sharded, initial: None }
    }

    pub(super) fn keys(&self) -> Vec<Arc<str>> {
        let name = &self.name;
        vec![name.clone(), key::permits_key(name), key::permit_queue_key(name)]
    }

    /// Returns the command that publishes what is left.
    pub(super) fn publish(&self) -> Arg {
        Arg::Word(if self.is_sharded { "SPUBLISH" } else { "PUBLISH" })
    }

    /// Returns the part of `PUBSUB` that counts the subscribers of the channel.
    pub(super) fn count(&self) -> Arg {
        Arg::Word(count_of(self.is_sharded))
    }

    pub(super) fn initial(&self) -> Arg {
        self.initial.map_or(Arg::Word(""), |initial| Arg::Number(initial.into()))
    }

    pub(super) fn resize(&self, resize: Resize) -> Call {
        let (what, number) = match resize {
            Resize::To(number) => ("set", number),
            Resize::By(number) => ("add", number),
        };
        let channel = Arg::Text(self.channel.clone());
        Call {
            script: &script::PERMIT_RESIZE,
            keys: self.keys(),
            args: vec![
                Arg::Word(what),
                Arg::Number(number.into()),
                self.initial(),
                self.publish(),
                channel,
            ],
        }
    }

    pub(super) fn status(&self) -> Call {
        let channel = Arg::Text(self.channel.clone());
        Call {
            script: &script::PERMIT_STATUS,
            keys: self.keys(),
            args: vec![channel, Arg::Number(LISTED), self.count()],
        }
    }

    pub(super) fn read_status(&self, reply: &Reply) -> Option<SemaphoreStatus> {
        let [left, out, subscribers, server_us, holders, entries] = reply.list()? else {
            return None;
        };
        let out: u32 = out.number()?.try_into().ok()?;
        let initial = || i64::from(self.initial.unwrap_or(0)) - i64::from(out);
        let listed = |holder: &[Reply]| {
            let [holder, permits, ends_in] = holder else { return None };
            Some(PermitHolder {
                holder: Holder::new(holder.text()?),
                permits: permits.number()?.try_into().ok()?,
                remaining: read_ttl(ends_in),
            })
        };
        let holders: Vec<PermitHolder> =
            holders.list()?.chunks(3).map(listed).collect::<Option<_>>()?;
        let queued = mailboxes(entries);
        let is_foreign = |holder: &PermitHolder| holder.holder.client().is_none();
        // Beside another library's holders the first in the queue listens to the channel, too.
        let listens_twice = queued > 0 && (holders.is_empty() || holders.iter().any(is_foreign));
        let subscribers: u32 = subscribers.number()?.try_into().ok()?;
        let subscribers = subscribers.saturating_sub(listens_twice.into());
        Some(SemaphoreStatus {
            name: self.name.clone(),
            available: left.number().unwrap_or_else(initial),
            held: out,
            holders,
            waiting_clients: queued + subscribers,
            waiting: read_waiters(server_us, entries)?,
        })
    }

    /// Returns the call that takes back what a holder has, whoever it is.
    pub(super) fn force_release(&self, holder: &PermitHolder) -> Call {
        let id = holder.holder.text().clone();
        let mut call = self.release(id, holder.permits, Duration::ZERO, false, None);
        // It may have got more since the status was asked for.
        call.args.push(Arg::Number(MOST_AT_ONCE.into()));
        call
    }

    pub(super) fn release(
        &self,
        id: Arc<str>,
        weight: u32,
        keep: Duration,
        forgets: bool,
        ticket: Option<&Ticket>,
    ) -> Call {
        let entry = ticket.and_then(|ticket| ticket.entry.clone());
        let by_message = ticket.is_some_and(|ticket| ticket.by_message);
        let flag = |is_set: bool| Arg::Word(if is_set { "1" } else { "" });
        Call {
            script: &script::PERMIT_RELEASE,
            keys: self.keys(),
            args: vec![
                Arg::Text(id),
                Arg::Number(weight.into()),
                Arg::Number(ttl_ms(keep)),
                self.publish(),
                Arg::Text(self.channel.clone()),
                flag(forgets),
                entry.map_or(Arg::Word(""), Arg::Text),
                flag(by_message),
                self.initial(),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "web-1:01234567-89ab-4def-8123-456789abcdef";

    fn number(number: i64) -> Reply {
        Reply::Number(number)
    }

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    #[test]
    fn a_status_names_the_holders_and_how_many_permits_each_has() {
        let listed = [text(ID), number(2), number(30), text("00ff3a"), number(1), number(-1)];
        let reply = |left: Reply| {
            let empty = || Reply::List(Vec::new());
            let listed = Reply::List(listed.to_vec());
            Reply::List(vec![left, number(3), number(1), number(7), listed, empty()])
        };
        let mut pool = Pool::new("api".into(), false);
        let status = pool.read_status(&reply(number(-1))).expect("it is understood");
        assert_eq!((status.available, status.held, status.permits()), (-1, 3, 2));
        assert_eq!(status.waiting_clients, 1, "a subscriber of the channel");
        let [ours, other] = &status.holders[..] else { panic!("{status:?}") };
        assert_eq!((ours.holder.as_str(), ours.permits), (ID, 2));
        assert_eq!(ours.remaining, Some(Duration::from_millis(30)));
        assert_eq!((other.holder.as_str(), other.permits, other.remaining), ("00ff3a", 1, None));
        pool.initial = Some(8);
        let unmade = pool.read_status(&reply(text(""))).expect("it is understood");
        assert_eq!(unmade.available, 5, "what it will have when it is made");
    }
}
