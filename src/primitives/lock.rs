//! The reentrant lock: Redisson's RLock with fencing tokens. This is what it asks of the servers, and how to read the
//! answers.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::handle::Inspect;
use super::status::LockStatus;
use crate::config::Config;
use crate::engine::kind::{Answer, Kind, Refusal, Released};
use crate::key::{self, Holder, LeaseId};
use crate::script::{self, Arg, Call, Reply};
use crate::waiter::Waiter;

/// The lock as the engine sees it.
pub(super) struct Lock {
    name: Arc<str>,
    channel: Arc<str>,
    redisson_fencing: bool,
    retention_ms: u64,
    grain_us: u64,
}

impl Lock {
    pub(super) fn new(config: &Config, name: Arc<str>) -> Self {
        Self {
            channel: key::channel(&name),
            name,
            redisson_fencing: config.redisson_fencing,
            retention_ms: config.retention_ms(),
            grain_us: config.grain_us(),
        }
    }

    /// Returns the token key. It is made for each call, so that a held lock need not keep it.
    fn token_key(&self) -> Arc<str> {
        key::token_key(&self.name, self.redisson_fencing)
    }
}

impl Kind for Lock {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    fn acquire(&self, id: &LeaseId, ttl: Duration, block: u64) -> Call {
        Call {
            script: &script::LOCK_ACQUIRE,
            keys: vec![self.name.clone(), self.token_key()],
            args: vec![
                Arg::Text(id.0.clone()),
                Arg::Number(1),
                Arg::Number(ttl_ms(ttl)),
                Arg::Number(block),
                Arg::Number(self.retention_ms),
                Arg::Number(self.grain_us),
                Arg::Text(self.channel.clone()),
            ],
        }
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

    fn release(&self, id: &LeaseId, keep: Duration) -> Call {
        Call {
            script: &script::LOCK_RELEASE,
            keys: vec![self.name.clone()],
            args: vec![
                Arg::Text(id.0.clone()),
                Arg::Word(PUBLISH),
                Arg::Text(self.channel.clone()),
                Arg::Number(ttl_ms(keep)),
            ],
        }
    }

    fn raise(&self, id: &LeaseId, end: u64) -> Call {
        Call {
            script: &script::FENCE_RAISE,
            keys: vec![self.name.clone(), self.token_key()],
            args: vec![Arg::Text(id.0.clone()), Arg::Number(end), Arg::Number(self.retention_ms)],
        }
    }

    fn read_acquire(&self, reply: &Reply) -> Option<Answer> {
        match reply.list()? {
            [Reply::Number(1), block_end] => {
                let block_end = u64::try_from(block_end.number()?).ok()?;
                // Above that limit Lua's numbers have gaps, and tokens would repeat.
                (block_end < 1 << 53).then_some(Answer::Granted { block_end })
            }
            [Reply::Number(0), pttl, holder, subscribers] => Some(Answer::Refused(Refusal {
                holder: Holder::new(holder.text()?),
                owner: None,
                remaining: read_ttl(pttl),
                subscribers: subscribers.number()?.try_into().ok()?,
            })),
            _ => None,
        }
    }

    fn read_renew(&self, reply: &Reply) -> Option<bool> {
        match reply.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn read_release(&self, reply: &Reply) -> Option<Released> {
        let [held, receivers] = reply.list()? else {
            return None;
        };
        Some(Released {
            held: held.number()? == 1,
            receivers: receivers.number()?.try_into().ok()?,
        })
    }
}

impl Inspect for Lock {
    fn status(&self) -> Call {
        Call {
            script: &script::LOCK_STATUS,
            keys: vec![self.name.clone(), self.token_key()],
            args: vec![Arg::Text(self.channel.clone())],
        }
    }

    fn read_status(&self, reply: &Reply, one_server: bool) -> Option<LockStatus> {
        let [pttl, holder, count, last_token, subscribers, queue @ ..] = reply.list()? else {
            return None;
        };
        let waiting = match queue {
            [server_us, waiters] => read_waiters(server_us, waiters)?,
            _ => Vec::new(),
        };
        let holder = holder.text().map(Holder::new);
        let last_token = last_token.number().and_then(|token| u64::try_from(token).ok());
        let ours = holder.as_ref().is_some_and(|holder| holder.client().is_some());
        Some(LockStatus {
            name: self.name.clone(),
            hold_count: count.number().unwrap_or(0).try_into().unwrap_or(0),
            remaining: read_ttl(pttl),
            // On one server, a token is the time of its acquisition in microseconds, accurate to one block.
            since: last_token
                .filter(|_| ours && one_server)
                .map(|token| UNIX_EPOCH + Duration::from_micros(token)),
            last_token,
            waiting_clients: subscribers.number()?.try_into().ok()?,
            waiting,
            holder,
        })
    }

    fn force_unlock(&self, holder: Option<&Holder>, response_timeout: Duration) -> Call {
        let late = response_timeout + Duration::from_micros(self.grain_us);
        let (id, age) = match holder {
            Some(holder) => {
                let age = holder.certain_age(late).unwrap_or_default();
                (Arg::Text(holder.text().clone()), Arg::Number(age.as_micros() as u64))
            }
            None => (Arg::Word(""), Arg::Word("")),
        };
        Call {
            script: &script::FORCE_UNLOCK,
            keys: vec![self.name.clone(), self.token_key()],
            args: vec![id, Arg::Word(PUBLISH), Arg::Text(self.channel.clone()), age],
        }
    }
}

/// Rounded up: the servers never end a lease before we do.
fn ttl_ms(ttl: Duration) -> u64 {
    ttl.as_nanos().div_ceil(1_000_000) as u64
}

/// A PTTL: negative where there is no key or no end.
fn read_ttl(pttl: &Reply) -> Option<Duration> {
    pttl.number().and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
}

/// Reads the first entries of a queue, each an id and the time of its arrival. `server_us` is the server's time.
fn read_waiters(server_us: &Reply, waiters: &Reply) -> Option<Vec<Waiter>> {
    let number = |reply: &Reply| u64::try_from(reply.number()?).ok();
    let now_us = number(server_us)?;
    let read = |entry: &[Reply]| {
        let [id, since_us] = entry else { return None };
        Some(Waiter::new(id.text()?, number(since_us)?, now_us))
    };
    waiters.list()?.chunks(2).map(read).collect()
}

/// The command that publishes releases.
const PUBLISH: &str = "PUBLISH";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_lists_who_waits_in_order_if_there_is_a_queue() {
        let lock = Lock::new(&Config::default(), "n".into());
        let text = |text: &str| Reply::Text(text.to_owned());
        let read = |queue: &[Reply]| {
            let held =
                [Reply::Number(30_000), text("a:b"), text("1"), Reply::Nil, Reply::Number(2)];
            lock.read_status(&Reply::List([&held, queue].concat()), true)
        };
        let waiters = |entries: &[Reply]| {
            let status = read(&[Reply::Number(9_000_000), Reply::List(entries.to_vec())])?;
            Some(status.waiting.iter().map(Waiter::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read(&[]).expect("without a queue").waiting, []);
        assert_eq!(waiters(&[]), Some(Vec::new()));
        let entries = [text("web-1:x"), text("8000000"), text("web-2:y"), Reply::Number(8_500_000)];
        assert_eq!(waiters(&entries), Some(vec!["web-1 for 1s".into(), "web-2 for 500ms".into()]));
        for odd in [&entries[..3], &entries[1..3], &[text("web-1:x"), text("soon")][..]] {
            assert_eq!(waiters(odd), None);
        }
    }
}
