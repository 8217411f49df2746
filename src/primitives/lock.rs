//! The reentrant lock: Redisson's RLock with fencing tokens. This is what it asks of the servers, and how to read the
//! answers.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::handle::Inspect;
use super::replies::{LISTED, SHOWN, read_acquire, read_renew, read_token, read_ttl, read_waiting};
use super::status::LockStatus;
use crate::config::Config;
use crate::engine::kind::{Answer, Kind, Released, Ticket};
use crate::key::{self, Holder, LeaseId};
use crate::script::{self, Arg, Call, Reply, ttl_ms};

/// The lock as the engine sees it.
pub(super) struct Lock {
    name: Arc<str>,
    channel: Arc<str>,
    /// Those who wait have a queue on one server. Several servers share no order.
    has_queue: bool,
    /// Its channel is a sharded one.
    is_sharded: bool,
    redisson_fencing: bool,
    retention_ms: u64,
    grain_us: u64,
    /// Its holders lead an election, and those who observe that are told of their ends.
    elects: bool,
}

impl Lock {
    /// `is_sharded`: its releases are told on a sharded channel.
    pub(super) fn new(config: &Config, name: Arc<str>, is_sharded: bool) -> Self {
        Self {
            channel: key::channel(&name),
            name,
            has_queue: !config.deployment.is_quorum(),
            is_sharded,
            redisson_fencing: config.redisson_fencing,
            retention_ms: config.retention_ms(),
            grain_us: config.grain_us(),
            elects: false,
        }
    }

    /// Returns the lock as an election takes it.
    pub(super) fn of_election(self) -> Self {
        Self { elects: true, ..self }
    }

    /// Returns where the leader of the election of this name says who it is, and where that is told.
    fn leaders_place(&self) -> [Arg; 2] {
        [key::leader_key(&self.name), key::leader_channel(&self.name)].map(Arg::Text)
    }

    /// Returns the token key. It is made for each call, so that a held lock need not keep it.
    fn token_key(&self) -> Arc<str> {
        key::token_key(&self.name, self.redisson_fencing)
    }

    /// Returns the command that publishes releases.
    fn publish(&self) -> &'static str {
        if self.is_sharded { "SPUBLISH" } else { "PUBLISH" }
    }

    /// Returns the keys of a script that may grant the lock. The number of keys tells the script whether there is a queue.
    fn keys(&self) -> Vec<Arc<str>> {
        let mut keys = Vec::with_capacity(3);
        keys.extend([self.name.clone(), self.token_key()]);
        keys.extend(self.has_queue.then(|| key::queue_key(&self.name)));
        keys
    }
}

impl Kind for Lock {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn family(&self) -> &'static str {
        "lock"
    }

    /// A lease of an election serves no mutex, nor the other way round: its release tells that the leader is gone.
    fn side(&self) -> u32 {
        self.elects.into()
    }

    fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    fn acquire(&self, ticket: &Ticket, ttl: Duration, block: u64) -> Call {
        let queues = ticket.entry.is_some();
        let mut args = vec![Arg::Text(ticket.id.0.clone()), Arg::Number(ttl_ms(ttl))];
        let optional = [
            (Arg::Number(block), block != 1),
            (optional_text(ticket.entry.as_ref()), queues),
            (Arg::Number(self.retention_ms), self.retention_ms != USUAL_RETENTION_MS),
            (Arg::Number(self.grain_us), self.grain_us != 1),
            (Arg::Number(SHOWN), queues),
            (Arg::Word(SHARDED_COUNT), self.is_sharded),
        ];
        say(&mut args, optional);
        Call { script: &script::LOCK_ACQUIRE, keys: self.keys(), args }
    }

    fn renew(&self, id: &LeaseId, count: u32, ttl: Duration) -> Call {
        Call {
            script: &script::LOCK_RENEW,
            keys: vec![self.name.clone()],
            args: vec![
                Arg::Text(id.0.clone()),
                Arg::Number(count.into()),
                Arg::Number(ttl_ms(ttl)),
            ],
        }
    }

    fn reclaim(
        &self,
        ticket: &Ticket,
        count: u32,
        ttl: Duration,
        tokens: RangeInclusive<u64>,
    ) -> Call {
        let mut args = vec![
            Arg::Text(ticket.id.0.clone()),
            Arg::Number(count.into()),
            Arg::Number(ttl_ms(ttl)),
            Arg::Number(*tokens.start()),
            Arg::Number(*tokens.end()),
            Arg::Number(self.retention_ms),
        ];
        args.extend(ticket.entry.clone().map(Arg::Text));
        Call { script: &script::LOCK_RECLAIM, keys: self.keys(), args }
    }

    fn release(&self, ticket: &Ticket, keep: Duration) -> Call {
        let keep_ms = ttl_ms(keep);
        let mut args = vec![Arg::Text(ticket.id.0.clone()), Arg::Text(self.channel.clone())];
        let optional = [
            (Arg::Word(self.publish()), self.is_sharded),
            (Arg::Number(keep_ms), keep_ms != 0),
            (Arg::Number(self.retention_ms), self.retention_ms != USUAL_RETENTION_MS),
            (optional_text(ticket.entry.as_ref()), ticket.entry.is_some()),
            (Arg::Word(if ticket.by_message { "1" } else { "" }), ticket.by_message || self.elects),
        ];
        say(&mut args, optional);
        if self.elects {
            args.extend(self.leaders_place());
        }
        Call { script: &script::LOCK_RELEASE, keys: self.keys(), args }
    }

    fn raise(&self, id: &LeaseId, end: u64) -> Call {
        Call {
            script: &script::FENCE_RAISE,
            keys: vec![self.name.clone(), self.token_key()],
            args: vec![Arg::Text(id.0.clone()), Arg::Number(end), Arg::Number(self.retention_ms)],
        }
    }

    fn look_for_waiting(&self) -> Option<Call> {
        let queue = self.has_queue.then(|| key::queue_key(&self.name));
        Some(look_for_waiting(queue, &self.channel, self.is_sharded))
    }

    fn read_acquire(&self, reply: &Reply) -> Option<Answer> {
        read_lock_acquire(reply)
    }

    fn read_renew(&self, reply: &Reply) -> Option<bool> {
        read_renew(reply)
    }

    fn read_release(&self, reply: &Reply) -> Option<Released> {
        read_lock_release(reply)
    }
}

/// Adds those arguments that a script may be called without, up to the last that is said to be needed.
fn say<const N: usize>(args: &mut Vec<Arg>, optional: [(Arg, bool); N]) {
    let needed = optional.iter().rposition(|(_, is_needed)| *is_needed).map_or(0, |last| last + 1);
    args.extend(optional.into_iter().take(needed).map(|(arg, _)| arg));
}

fn optional_text(text: Option<&Arc<str>>) -> Arg {
    text.cloned().map_or(Arg::Word(""), Arg::Text)
}

/// Asks whether anybody waits for a lock: in its queue, if it has one, or on its channel.
pub(super) fn look_for_waiting(
    queue: Option<Arc<str>>,
    channel: &Arc<str>,
    is_sharded: bool,
) -> Call {
    Call {
        script: &script::WAITING_LOOK,
        keys: queue.into_iter().collect(),
        args: vec![Arg::Text(channel.clone()), Arg::Word(count_of(is_sharded))],
    }
}

/// Returns the part of `PUBSUB` that counts the subscribers of a channel.
pub(super) fn count_of(is_sharded: bool) -> &'static str {
    if is_sharded { SHARDED_COUNT } else { "NUMSUB" }
}

/// Reads the reply to an acquire: the end of a token block, or a list.
fn read_lock_acquire(reply: &Reply) -> Option<Answer> {
    match reply {
        Reply::Number(_) => read_token(reply).map(Answer::granted),
        _ => read_acquire(reply),
    }
}

/// Reads the reply to a release: zero, or one more than the receivers of its message; and how many were passed over.
fn read_lock_release(reply: &Reply) -> Option<Released> {
    let (freed, passed_over) = match reply {
        Reply::List(items) => match &items[..] {
            [freed, passed_over] => (freed.number()?, passed_over.number()?),
            _ => return None,
        },
        freed => (freed.number()?, 0),
    };
    Some(Released {
        held: freed > 0,
        receivers: u32::try_from(freed).ok()?.saturating_sub(1),
        passed_over: passed_over.try_into().ok()?,
    })
}

impl Inspect for Lock {
    fn status(&self) -> Call {
        Call {
            script: &script::LOCK_STATUS,
            keys: self.keys(),
            args: [Arg::Text(self.channel.clone()), Arg::Number(LISTED)]
                .into_iter()
                .chain(self.is_sharded.then_some(Arg::Word(SHARDED_COUNT)))
                .collect(),
        }
    }

    fn read_status(&self, reply: &Reply, one_server: bool) -> Option<LockStatus> {
        let [pttl, holder, count, last_token, subscribers, queue @ ..] = reply.list()? else {
            return None;
        };
        let (waiting, queued) = read_waiting(queue)?;
        let holder = holder.text().map(Holder::new);
        let last_token = last_token.number().and_then(|token| u64::try_from(token).ok());
        let ours = holder.as_ref().is_some_and(|holder| holder.client().is_some());
        // While another library's client holds the lock, the first client in the queue listens to the channel, too.
        let listens_twice = queued > 0 && holder.is_some() && !ours;
        let subscribers = u32::try_from(subscribers.number()?).ok()?;
        Some(LockStatus {
            name: self.name.clone(),
            hold_count: count.number().unwrap_or(0).try_into().unwrap_or(0),
            remaining: read_ttl(pttl),
            // On one server, a token is the time of its acquisition in microseconds, accurate to one block.
            since: last_token
                .filter(|_| ours && one_server)
                .and_then(|token| UNIX_EPOCH.checked_add(Duration::from_micros(token))),
            last_token,
            waiting_clients: queued + subscribers.saturating_sub(listens_twice.into()),
            waiting,
            readers: Vec::new(),
            holder,
        })
    }

    fn force_unlock(&self, holder: Option<&Holder>, response_timeout: Duration) -> Call {
        let (id, age) = forced(holder, response_timeout, self.grain_us);
        let mut args = vec![
            id,
            Arg::Word(self.publish()),
            Arg::Text(self.channel.clone()),
            age,
            Arg::Number(self.retention_ms),
        ];
        // A caller that forces it need not know that its holder leads an election.
        args.extend(self.leaders_place());
        Call { script: &script::FORCE_UNLOCK, keys: self.keys(), args }
    }
}

/// Returns the arguments of a forced unlock that say whose hold it ends, and how old that must be.
pub(super) fn forced(
    holder: Option<&Holder>,
    response_timeout: Duration,
    grain_us: u64,
) -> (Arg, Arg) {
    let Some(holder) = holder else { return (Arg::Word(""), Arg::Word("")) };
    let late = response_timeout + Duration::from_micros(grain_us);
    let age = holder.certain_age(late).unwrap_or_default();
    (Arg::Text(holder.text().clone()), Arg::Number(age.as_micros() as u64))
}

/// A counter is kept for so long by scripts that are not told otherwise: the default of
/// [`token_retention`](crate::ClientBuilder::token_retention), in milliseconds.
const USUAL_RETENTION_MS: u64 = 86_400_000;
/// The part of `PUBSUB` that counts the subscribers of a sharded channel.
const SHARDED_COUNT: &str = "SHARDNUMSUB";

#[cfg(test)]
mod tests;
