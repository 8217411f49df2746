//! What the replies of the scripts of several kinds have in common, and how it is read.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::engine::kind::{Answer, InQueue, Refusal, Released};
use crate::key::Holder;
use crate::script::{EXACT_BELOW, Reply};
use crate::waiter::Waiter;

/// Reads the list that an acquire of any kind is answered with.
pub(super) fn read_acquire(reply: &Reply) -> Option<Answer> {
    match reply.list()? {
        [Reply::Number(1), block_end] => read_token(block_end).map(Answer::granted),
        [Reply::Number(0), refusal @ ..] => read_refusal(refusal).map(Answer::Refused),
        _ => None,
    }
}

/// Reads what follows the zero with which an acquire is refused.
pub(super) fn read_refusal(reply: &[Reply]) -> Option<Refusal> {
    let [pttl, holder, subscribers, queue @ ..] = reply else { return None };
    Some(Refusal {
        holder: Holder::new(holder.text()?),
        owner: None,
        remaining: read_ttl(pttl),
        subscribers: subscribers.number()?.try_into().ok()?,
        queue: read_queue(queue)?,
    })
}

/// Reads a token.
pub(super) fn read_token(token: &Reply) -> Option<u64> {
    u64::try_from(token.number()?).ok().filter(|token| *token < EXACT_BELOW)
}

/// Reads the reply to a renewal.
pub(super) fn read_renew(reply: &Reply) -> Option<bool> {
    match reply.number()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Reads the list that a release of a read-write lock is answered with.
pub(super) fn read_release(reply: &Reply) -> Option<Released> {
    let (held, receivers, passed_over) = match reply.list()? {
        [held, receivers] => (held, receivers, 0),
        [held, receivers, passed_over] => (held, receivers, passed_over.number()?),
        _ => return None,
    };
    Some(Released {
        held: held.number()? == 1,
        receivers: receivers.number()?.try_into().ok()?,
        passed_over: passed_over.try_into().ok()?,
    })
}

/// Reads what a status says of the queue, if there is one: who waits, and how many clients do.
pub(super) fn read_waiting(queue: &[Reply]) -> Option<(Vec<Waiter>, u32)> {
    match queue {
        [server_us, entries] => Some((read_waiters(server_us, entries)?, mailboxes(entries))),
        [] => Some((Vec::new(), 0)),
        _ => None,
    }
}

/// A PTTL: negative where there is no key or no end.
pub(super) fn read_ttl(pttl: &Reply) -> Option<Duration> {
    pttl.number().and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
}

/// Reads the list of a queue's first entries, each with the time of its arrival. `server_us` is the server's time.
pub(super) fn read_waiters(server_us: &Reply, entries: &Reply) -> Option<Vec<Waiter>> {
    let now_us = u64::try_from(server_us.number()?).ok()?;
    let read = |entry: &[Reply]| {
        let [entry, since_us] = entry else { return None };
        // An entry that is none of ours may have any number.
        let since_us: f64 = since_us.text()?.parse().ok()?;
        Some(Waiter::new(client_and_nonce(entry.text()?).0, since_us as u64, now_us))
    };
    entries.list()?.chunks(2).map(read).collect()
}

/// Counts the clients that have entries in such a list. A client may have several, and several may have the same name.
pub(super) fn mailboxes(entries: &Reply) -> u32 {
    let entries = entries.list().unwrap_or_default().iter().step_by(2);
    let clients: BTreeSet<_> = entries.filter_map(Reply::text).map(client_and_nonce).collect();
    clients.len() as u32
}

/// An entry is the text `ttl_ms block nonce client:uuid`. The nonce distinguishes clients of one name.
fn client_and_nonce(entry: &str) -> (&str, &str) {
    let mut words = entry.splitn(4, ' ').skip(2);
    let (nonce, id) = words.next().zip(words.next()).unwrap_or(("", entry));
    (id.rsplit_once(':').map_or(id, |(client, _)| client), nonce)
}

/// Reads what a refusal says of the queue: nothing, if there is none.
pub(super) fn read_queue(queue: &[Reply]) -> Option<Option<Box<InQueue>>> {
    let [ahead, server_us, waiters] = queue else {
        return queue.is_empty().then_some(None);
    };
    let waiting = read_waiters(server_us, waiters)?.into();
    let server_us = server_us.number()?.try_into().ok()?;
    let ahead = ahead.number()?.try_into().ok();
    Some(Some(Box::new(InQueue { ahead, server_us, waiting })))
}

/// The number of waiters that a refusal lists at most.
pub(super) const SHOWN: u64 = 8;
/// The number of waiters that a status lists at most.
pub(super) const LISTED: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_a_queue_may_have_any_name() {
        assert_eq!(client_and_nonce("30000 1 aa web 1:x:y"), ("web 1:x", "aa"));
        assert_eq!(client_and_nonce("by hand"), ("by hand", ""));
    }
}
