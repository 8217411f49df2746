//! The two sides of a read-write lock: Redisson's RReadWriteLock with a queue and tokens. This is what they ask of the
//! servers, and how to read the answers.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::handle::Inspect;
use super::lock;
use super::replies::{self, read_ttl};
use super::status::LockStatus;
use crate::config::Config;
use crate::engine::kind::{Answer, Kind, Released, Sharing, Ticket};
use crate::key::{self, Holder, LeaseId};
use crate::script::{self, Arg, Call, Reply, ttl_ms};

/// One side of a read-write lock as the engine sees it.
#[derive(Clone)]
pub(super) struct Side {
    access: Access,
    name: Arc<str>,
    channel: Arc<str>,
    /// Those who wait have a queue on one server. Several servers share no order.
    has_queue: bool,
    /// Its channel is a sharded one.
    is_sharded: bool,
    retention_ms: u64,
    grain_us: u64,
    /// The writer that the acquire makes a reader of.
    from: Option<LeaseId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Side {
    /// `is_sharded`: its releases are told on a sharded channel.
    pub(super) fn new(config: &Config, name: Arc<str>, access: Access, is_sharded: bool) -> Self {
        Self {
            access,
            channel: key::rw_channel(&name),
            name,
            has_queue: !config.deployment.is_quorum(),
            is_sharded,
            retention_ms: config.retention_ms(),
            grain_us: config.grain_us(),
            from: None,
        }
    }

    /// Returns the side for reading of the same lock.
    pub(super) fn for_reading(&self) -> Self {
        Self { access: Access::Read, ..self.clone() }
    }

    /// Returns the side for reading, whose acquire takes the place of the writer `from`.
    pub(super) fn instead_of(&self, from: &LeaseId) -> Self {
        Self { from: Some(from.clone()), ..self.for_reading() }
    }

    fn word(&self) -> &'static str {
        match self.access {
            Access::Read => "read",
            Access::Write => "write",
        }
    }

    /// Returns the field of the lock's hash that a lease of this side has.
    fn field(&self, id: &LeaseId) -> Arc<str> {
        match self.access {
            Access::Read => id.0.clone(),
            Access::Write => format!("{}:write", id.0).into(),
        }
    }

    fn publish(&self) -> &'static str {
        if self.is_sharded { "SPUBLISH" } else { "PUBLISH" }
    }

    fn count(&self) -> &'static str {
        lock::count_of(self.is_sharded)
    }

    /// Returns the keys of a script. Their number tells the script whether there is a queue. It finds the keys that are the
    /// readers' ends by itself: which there are is known on the server only. Nor is the reservation a key that it is given.
    fn keys(&self) -> Vec<Arc<str>> {
        let mut keys = vec![self.name.clone(), key::token_key(&self.name, false)];
        keys.extend(self.has_queue.then(|| key::rw_queue_key(&self.name)));
        keys
    }
}

fn entry(ticket: &Ticket) -> Arg {
    ticket.entry.clone().map_or(Arg::Word(""), Arg::Text)
}

impl Kind for Side {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn family(&self) -> &'static str {
        "rw_lock"
    }

    fn side(&self) -> u32 {
        self.access as u32
    }

    fn sharing(&self) -> Sharing {
        match self.access {
            Access::Read => Sharing::Together,
            Access::Write => Sharing::Alone,
        }
    }

    fn reserves(&self) -> bool {
        self.access == Access::Write && !self.has_queue
    }

    fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    fn acquire(&self, ticket: &Ticket, ttl: Duration, block: u64) -> Call {
        let mut args = vec![
            Arg::Text(ticket.id.0.clone()),
            Arg::Number(1),
            Arg::Number(ttl_ms(ttl)),
            Arg::Number(block),
            Arg::Number(self.retention_ms),
            Arg::Number(self.grain_us),
            Arg::Text(self.channel.clone()),
            entry(ticket),
            Arg::Number(replies::SHOWN),
            Arg::Word(self.count()),
            Arg::Word(self.word()),
            Arg::Word(self.publish()),
        ];
        args.extend(self.from.as_ref().map(|from| Arg::Text(from.0.clone())));
        Call { script: &script::RW_ACQUIRE, keys: self.keys(), args }
    }

    fn renew(&self, id: &LeaseId, count: u32, ttl: Duration) -> Call {
        let (field, ttl) = (Arg::Text(self.field(id)), Arg::Number(ttl_ms(ttl)));
        let (script, args) = match self.access {
            Access::Read => (&script::READ_RENEW, vec![field, ttl]),
            Access::Write => (&script::LOCK_RENEW, vec![field, Arg::Number(count.into()), ttl]),
        };
        Call { script, keys: vec![self.name.clone()], args }
    }

    fn reclaim(
        &self,
        ticket: &Ticket,
        count: u32,
        ttl: Duration,
        tokens: RangeInclusive<u64>,
    ) -> Call {
        let args = vec![
            Arg::Text(ticket.id.0.clone()),
            Arg::Number(count.into()),
            Arg::Number(ttl_ms(ttl)),
            // A reader has no token of its own: its block is empty, and ends with the last writer's.
            Arg::Number((*tokens.start()).min(*tokens.end())),
            Arg::Number(*tokens.end()),
            Arg::Number(self.retention_ms),
            entry(ticket),
            Arg::Word(self.word()),
        ];
        Call { script: &script::RW_RECLAIM, keys: self.keys(), args }
    }

    fn release(&self, ticket: &Ticket, keep: Duration) -> Call {
        let mut args = vec![
            Arg::Text(ticket.id.0.clone()),
            Arg::Word(self.publish()),
            Arg::Text(self.channel.clone()),
            Arg::Word(self.word()),
            Arg::Number(self.retention_ms),
            entry(ticket),
            Arg::Number(ticket.by_message.into()),
        ];
        if !keep.is_zero() {
            args.push(Arg::Number(ttl_ms(keep)));
        }
        Call { script: &script::RW_RELEASE, keys: self.keys(), args }
    }

    fn raise(&self, id: &LeaseId, end: u64) -> Call {
        let args =
            vec![Arg::Text(self.field(id)), Arg::Number(end), Arg::Number(self.retention_ms)];
        let keys = vec![self.name.clone(), key::token_key(&self.name, false)];
        Call { script: &script::FENCE_RAISE, keys, args }
    }

    fn look_for_waiting(&self) -> Option<Call> {
        let queue = self.has_queue.then(|| key::rw_queue_key(&self.name));
        Some(lock::look_for_waiting(queue, &self.channel, self.is_sharded))
    }

    fn read_acquire(&self, reply: &Reply) -> Option<Answer> {
        if let (Access::Write, [Reply::Number(1), block_end, before]) = (self.access, reply.list()?)
        {
            let (block_end, before) =
                (replies::read_token(block_end)?, replies::read_token(before)?);
            let granted = Answer::Granted { block_end, before: Some(before) };
            return (before < block_end).then_some(granted);
        }
        replies::read_acquire(reply)
    }

    fn read_renew(&self, reply: &Reply) -> Option<bool> {
        replies::read_renew(reply)
    }

    fn read_release(&self, reply: &Reply) -> Option<Released> {
        replies::read_release(reply)
    }
}

impl Inspect for Side {
    fn status(&self) -> Call {
        let args = vec![
            Arg::Text(self.channel.clone()),
            Arg::Number(replies::LISTED),
            Arg::Word(self.count()),
        ];
        Call { script: &script::RW_STATUS, keys: self.keys(), args }
    }

    fn read_status(&self, reply: &Reply, one_server: bool) -> Option<LockStatus> {
        let [pttl, holder, count, last_token, subscribers, readers, queue @ ..] = reply.list()?
        else {
            return None;
        };
        let (waiting, queued) = replies::read_waiting(queue)?;
        let holder = holder.text().map(Holder::new);
        let last_token = last_token.number().and_then(|token| u64::try_from(token).ok());
        let readers: Vec<Holder> =
            readers.list()?.iter().filter_map(Reply::text).map(Holder::new).collect();
        let ours = holder.as_ref().is_some_and(|holder| holder.client().is_some());
        // While another library's client has a part in it, the first client in the queue listens to the channel, too.
        let foreign = |holder: &Holder| holder.client().is_none();
        let listens_twice = queued > 0 && holder.iter().chain(&readers).any(foreign);
        let subscribers = u32::try_from(subscribers.number()?).ok()?;
        Some(LockStatus {
            name: self.name.clone(),
            hold_count: count.number().unwrap_or(0).try_into().unwrap_or(0),
            remaining: read_ttl(pttl),
            // A writer's token is the time of its acquisition. A reader has that of the writer before it.
            since: last_token
                .filter(|_| ours && one_server && readers.is_empty())
                .and_then(|token| UNIX_EPOCH.checked_add(Duration::from_micros(token))),
            last_token,
            waiting_clients: queued + subscribers.saturating_sub(listens_twice.into()),
            waiting,
            readers,
            holder,
        })
    }

    fn force_unlock(&self, holder: Option<&Holder>, response_timeout: Duration) -> Call {
        let (id, age) = lock::forced(holder, response_timeout, self.grain_us);
        let args = vec![
            id,
            Arg::Word(self.publish()),
            Arg::Text(self.channel.clone()),
            age,
            Arg::Number(self.retention_ms),
        ];
        Call { script: &script::RW_FORCE_UNLOCK, keys: self.keys(), args }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "a:0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01";
    const REDISSON: &str = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42";

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    #[test]
    fn a_status_says_since_when_a_writer_of_ours_has_the_lock_on_one_server() {
        let side = Side::new(&Config::default(), "n".into(), Access::Read, false);
        let since = |holder: &str, readers: &[&str], one_server: bool| {
            let readers = Reply::List(readers.iter().map(|reader| text(reader)).collect());
            let [pttl, none] = [9_000, 0].map(Reply::Number);
            let reply = vec![pttl, text(holder), text("1"), text("7000000"), none, readers];
            let status = side.read_status(&Reply::List(reply), one_server);
            status.expect("it is understood").since
        };
        let written = UNIX_EPOCH + Duration::from_secs(7);
        assert_eq!(since(OURS, &[], true), Some(written));
        assert_eq!(since(OURS, &[OURS], true), None, "that is when the writer before it came");
        assert_eq!(since(REDISSON, &[], true), None, "it takes no token");
        assert_eq!(since(OURS, &[], false), None, "each has a clock of its own");
    }
}
