//! A queue of items on its server: what is asked about it, and one delivery as the engine sees it.

use std::ops::RangeInclusive;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::queue_status::{DeadItem, Lent, QueueStatus};
use super::replies::{SHOWN, read_refusal, read_renew, read_waiters};
use crate::engine::kind::{Answer, Kind, Released, Sharing, Ticket};
use crate::key::{self, Holder, LeaseId};
use crate::script::{self, Arg, Call, Reply, ttl_ms};

/// A queue, and which of its items its handle takes.
#[derive(Clone)]
pub(super) struct Items {
    keys: [Arc<str>; 5],
    channel: Arc<str>,
    pub(super) newest_first: bool,
    /// How often an item is delivered at most; `None`: any number of times.
    pub(super) most_often: Option<u32>,
    /// How many items that are not done there may be; `None`: any number.
    pub(super) capacity: Option<u32>,
}

impl Items {
    pub(super) fn new(name: &Arc<str>) -> Self {
        Self {
            keys: key::item_keys(name),
            channel: key::item_channel(name),
            newest_first: false,
            most_often: Some(MOST_OFTEN),
            capacity: None,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.keys[0]
    }

    fn keys(&self) -> Vec<Arc<str>> {
        self.keys.to_vec()
    }

    /// Returns which item the server is to lend, as a number that it can keep in its queue.
    fn how(&self) -> u64 {
        1 + u64::from(self.newest_first) + 2 * u64::from(self.most_often.unwrap_or(0))
    }

    pub(super) fn push(&self, payloads: impl IntoIterator<Item = Arc<[u8]>>) -> Call {
        let mut args = vec![Arg::Number(self.capacity.unwrap_or(0).into())];
        args.extend(payloads.into_iter().map(Arg::Bytes));
        Call { script: &script::ITEM_PUSH, keys: self.keys(), args }
    }

    /// Returns the call that asks for the numbers, and lists at most so many deliveries, of those who wait, and of the dead items.
    pub(super) fn status(&self, listed: u64, dead: u32) -> Call {
        let args = vec![Arg::Number(listed), Arg::Number(dead.into())];
        Call { script: &script::ITEM_STATUS, keys: self.keys(), args }
    }

    pub(super) fn redrive(&self, most: u32) -> Call {
        let args = vec![Arg::Number(most.into())];
        Call { script: &script::ITEM_REDRIVE, keys: self.keys(), args }
    }

    /// Returns the status, and the dead items that are listed.
    pub(super) fn read_status(&self, reply: &Reply) -> Option<(QueueStatus, Vec<DeadItem>)> {
        let [unseen, out, dead, server_us, listed, waiting, payloads] = reply.list()? else {
            return None;
        };
        let count = |reply: &Reply| u64::try_from(reply.number()?).ok();
        let (mut lent, mut due) = (Vec::new(), 0);
        for delivery in listed.list()?.chunks(3) {
            let [member, number, ends_in] = delivery else { return None };
            let ends_in = Duration::from_millis(count(ends_in)?);
            let member = member.text()?;
            // A client may be called so: its deliveries have one colon.
            if member.strip_prefix(DUE).is_some_and(|id| id.contains(':')) {
                due += 1;
            } else {
                let deliveries = number.number()?.try_into().ok()?;
                lent.push(Lent { holder: Holder::new(member), deliveries, remaining: ends_in });
            }
        }
        let status = QueueStatus {
            name: self.name().clone(),
            waiting_items: count(unseen)?,
            lent_items: count(out)?.saturating_sub(due),
            retrying_items: due,
            dead_items: count(dead)?,
            lent,
            waiting: read_waiters(server_us, waiting)?,
        };
        let dead = payloads.list()?.iter().map(|payload| {
            Some(DeadItem { payload: payload.bytes()?.into(), queue: self.name().clone() })
        });
        Some((status, dead.collect::<Option<_>>()?))
    }
}

/// Items are dead after so many deliveries if the handle says nothing else.
pub(super) const MOST_OFTEN: u32 = 10;

/// What is given back to be delivered again has this before its delivery's id.
const DUE: &str = "due:";

/// One delivery, as the engine sees it.
pub(super) struct Item {
    items: Items,
    /// What the newest grant brought, and the delivery that it is about.
    content: Mutex<Option<(Arc<str>, Content)>>,
    /// What the end of the delivery means that a worker has seen, and which that is.
    ends: Mutex<Option<(Outcome, Seen)>>,
    /// How many items were lent, or were to be delivered again, when the server had none to lend.
    lent: Mutex<Option<u64>>,
}

// Its mutexes are never held while the caller's code runs, so a panic of the caller's leaves nothing half done.
impl UnwindSafe for Item {}
impl RefUnwindSafe for Item {}

/// A delivery that a worker has seen: its id, when the server lent the item, in microseconds of its clock, and whether it was lost.
struct Seen {
    id: Arc<str>,
    at_us: u64,
    lost: bool,
}

/// What was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) deliveries: u32,
    /// When the server lent it, in microseconds of its clock.
    at_us: u64,
    pub(super) payload: Arc<[u8]>,
}

/// What the end of a delivery that a worker has seen means for the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ack,
    Retry(Duration),
    Reject,
}

impl Item {
    pub(super) fn new(items: Items) -> Self {
        Self { items, content: Mutex::default(), ends: Mutex::default(), lent: Mutex::default() }
    }

    /// Says in words why no item was to be had, as far as the server has told; so many others waited for one then.
    pub(super) fn why_in_vain(&self, others: usize) -> String {
        let others = match others {
            0 => "nobody else waits".to_owned(),
            1 => "1 other waits".to_owned(),
            // No more are listed, and the request may be one of them.
            _ if others as u64 + 1 >= SHOWN => format!("at least {others} others wait"),
            _ => format!("{others} others wait"),
        };
        match *self.lent.lock() {
            // Another request of this client had the answer.
            None => format!("no item is free, and {others}"),
            Some(0) => format!("there is no item, and {others}: push some, or wait longer"),
            Some(1) => format!(
                "1 item is lent or comes again later, and {others}: Queue::status lists who has it"
            ),
            Some(lent) => format!(
                "{lent} items are lent or come again later, and {others}: Queue::status lists who has them"
            ),
        }
    }

    /// A worker has the content of this delivery: from now on its end is a retry, unless the worker says otherwise.
    pub(super) fn is_seen(&self, id: Arc<str>, content: &Content) {
        let seen = Seen { id, at_us: content.at_us, lost: false };
        *self.ends.lock() = Some((Outcome::Retry(Duration::ZERO), seen));
    }

    /// Decides what the end of the delivery that a worker has seen means, unless it was lost: then that is decided.
    pub(super) fn ends_as(&self, outcome: Outcome) {
        if let Some((decided, seen)) = &mut *self.ends.lock()
            && !seen.lost
        {
            *decided = outcome;
        }
    }

    /// Returns the content of a delivery, if its grant brought it along. A delivery may have been granted before that nobody
    /// has taken up.
    pub(super) fn content_of(&self, id: &str) -> Option<Content> {
        let content = self.content.lock();
        let (_, content) = content.as_ref().filter(|(about, _)| **about == *id)?;
        Some(content.clone())
    }

    /// Returns the call that reads the content of a delivery whose grant did not bring it along. It lengthens it, too.
    pub(super) fn read(&self, id: Arc<str>, ttl: Duration) -> Call {
        let [_, _, _, contents, _] = &self.items.keys;
        let mut call = self.renew(&LeaseId(id), 1, ttl);
        call.keys.push(contents.clone());
        call.args[2] = Arg::Word("1");
        call
    }

    /// Reads the reply to that call: `Some(None)` if the delivery is lent no more.
    pub(super) fn read_content(reply: &Reply) -> Option<Option<Content>> {
        if reply.number() == Some(0) {
            return Some(None);
        }
        let [Reply::Number(1), content] = reply.list()? else { return None };
        Content::parse(content.bytes()?).map(Some)
    }
}

impl Content {
    /// Reads `number at_us:payload`.
    fn parse(text: &[u8]) -> Option<Self> {
        let colon = text.iter().position(|&byte| byte == b':')?;
        let (number, at_us) = std::str::from_utf8(&text[..colon]).ok()?.split_once(' ')?;
        let (deliveries, at_us) = (number.parse().ok()?, at_us.parse().ok()?);
        Some(Self { deliveries, at_us, payload: text[colon + 1..].into() })
    }
}

impl Kind for Item {
    fn name(&self) -> &Arc<str> {
        self.items.name()
    }

    fn family(&self) -> &'static str {
        "queue"
    }

    fn sharing(&self) -> Sharing {
        Sharing::Each { weight: self.items.how() }
    }

    fn channel(&self) -> &Arc<str> {
        &self.items.channel
    }

    fn acquire(&self, ticket: &Ticket, ttl: Duration, _: u64) -> Call {
        let args = vec![
            Arg::Text(ticket.id.0.clone()),
            Arg::Number(self.items.how()),
            Arg::Number(ttl_ms(ttl)),
            ticket.entry.clone().map_or(Arg::Word(""), Arg::Text),
            Arg::Number(SHOWN),
        ];
        Call { script: &script::ITEM_POP, keys: self.items.keys(), args }
    }

    fn renew(&self, id: &LeaseId, _: u32, ttl: Duration) -> Call {
        let [_, lent, ..] = &self.items.keys;
        let args = vec![Arg::Text(id.0.clone()), Arg::Number(ttl_ms(ttl)), Arg::Word("")];
        Call { script: &script::ITEM_RENEW, keys: vec![lent.clone()], args }
    }

    fn may_be_forgotten(&self) -> bool {
        false
    }

    /// A server that has lost a delivery has its item still, or has lost that, too: there is nothing to put back.
    fn reclaim(&self, ticket: &Ticket, _: u32, ttl: Duration, _: RangeInclusive<u64>) -> Call {
        self.renew(&ticket.id, 1, ttl)
    }

    fn release(&self, ticket: &Ticket, _: Duration) -> Call {
        let ends = self.ends.lock();
        // Another request for an item, which a worker did not wait for any more, may end after this one.
        let ends = ends.as_ref().filter(|(_, seen)| seen.id == ticket.id.0);
        let (outcome, after) = match ends {
            // Nobody has seen it.
            None => ("undo", Duration::ZERO),
            Some((Outcome::Ack, _)) => ("ack", Duration::ZERO),
            Some((Outcome::Retry(after), _)) => ("retry", *after),
            Some((Outcome::Reject, _)) => ("reject", Duration::ZERO),
        };
        let args = vec![
            Arg::Text(ticket.id.0.clone()),
            Arg::Word(outcome),
            Arg::Number(ttl_ms(after)),
            ticket.entry.clone().map_or(Arg::Word(""), Arg::Text),
            ends.map_or(Arg::Word(""), |(_, seen)| Arg::Number(seen.at_us)),
        ];
        Call { script: &script::ITEM_SETTLE, keys: self.items.keys(), args }
    }

    fn counts_grants(&self) -> bool {
        true
    }

    fn lost(&self, id: &LeaseId) {
        if let Some((outcome, seen)) = &mut *self.ends.lock()
            && seen.id == id.0
        {
            (*outcome, seen.lost) = (Outcome::Retry(Duration::ZERO), true);
        }
    }

    /// Deliveries have no tokens, and are on one server: there is nothing to raise. This asks whether it is still lent.
    fn raise(&self, id: &LeaseId, _: u64) -> Call {
        self.renew(id, 1, Duration::ZERO)
    }

    fn read_acquire(&self, reply: &Reply) -> Option<Answer> {
        match reply.list()? {
            [Reply::Number(1), how, id, content] => {
                let block_end = u64::try_from(how.number()?).ok()?;
                let content = Content::parse(content.bytes()?)?;
                *self.content.lock() = Some((id.text()?.into(), content));
                (block_end == self.items.how()).then(|| Answer::granted(block_end))
            }
            [Reply::Number(0), refusal @ .., lent] => {
                let (refusal, lent) = (read_refusal(refusal)?, u64::try_from(lent.number()?).ok()?);
                *self.lent.lock() = Some(lent);
                Some(Answer::Refused(refusal))
            }
            _ => None,
        }
    }

    /// A longer item does not come along: it is read. What an earlier grant to the same delivery brought is none of this one's.
    fn enclosed(&self, id: &LeaseId, enclosed: Option<&[u8]>) {
        let content = enclosed.and_then(Content::parse);
        *self.content.lock() = content.map(|content| (id.0.clone(), content));
    }

    fn read_renew(&self, reply: &Reply) -> Option<bool> {
        read_renew(reply)
    }

    fn read_release(&self, reply: &Reply) -> Option<Released> {
        let (held, passed_over) = match reply.list()? {
            [held] => (held, 0),
            [held, passed_over] => (held, passed_over.number()?),
            _ => return None,
        };
        let passed_over = passed_over.try_into().ok()?;
        Some(Released { held: held.number()? == 1, receivers: 0, passed_over })
    }
}

#[cfg(test)]
mod tests;
