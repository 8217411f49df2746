//! A queue of items on its server: what is asked about it, and one delivery as the engine sees it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::lock::{LISTED, SHOWN, read_refusal, read_renew, read_waiters};
use super::queue_status::{Lent, QueueStatus};
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

    /// `dead`: how many dead items are listed.
    pub(super) fn status(&self, dead: u32) -> Call {
        let args = vec![Arg::Number(LISTED), Arg::Number(dead.into())];
        Call { script: &script::ITEM_STATUS, keys: self.keys(), args }
    }

    pub(super) fn redrive(&self, most: u32) -> Call {
        let args = vec![Arg::Number(most.into())];
        Call { script: &script::ITEM_REDRIVE, keys: self.keys(), args }
    }

    /// Returns the status, and the payloads of the dead items that are listed.
    pub(super) fn read_status(&self, reply: &Reply) -> Option<(QueueStatus, Vec<Vec<u8>>)> {
        let [unseen, out, dead, server_us, listed, waiting, payloads] = reply.list()? else {
            return None;
        };
        let count = |reply: &Reply| u64::try_from(reply.number()?).ok();
        let (mut lent, mut due) = (Vec::new(), 0);
        for delivery in listed.list()?.chunks(3) {
            let [member, number, ends_in] = delivery else { return None };
            let ends_in = Duration::from_millis(count(ends_in)?);
            let member = member.text()?;
            if member.starts_with(DUE) {
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
        let payloads = payloads.list()?.iter().map(|payload| Some(payload.bytes()?.to_vec()));
        Some((status, payloads.collect::<Option<_>>()?))
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

/// A delivery that a worker has seen: its id, and when the server lent the item, in microseconds of its clock.
struct Seen {
    id: Arc<str>,
    at_us: u64,
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
        let seen = Seen { id, at_us: content.at_us };
        *self.ends.lock() = Some((Outcome::Retry(Duration::ZERO), seen));
    }

    /// Decides what the end of the delivery that a worker has seen means.
    pub(super) fn ends_as(&self, outcome: Outcome) {
        if let Some((decided, _)) = &mut *self.ends.lock() {
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
        let mut call = self.renew(&LeaseId(id), 1, ttl);
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
        let [_, lent, _, contents, _] = &self.items.keys;
        let args = vec![Arg::Text(id.0.clone()), Arg::Number(ttl_ms(ttl)), Arg::Word("")];
        Call { script: &script::ITEM_RENEW, keys: vec![lent.clone(), contents.clone()], args }
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
mod tests {
    use super::*;

    const ID: &str = "worker-1:01234567-89ab-4def-8123-456789abcdef";

    fn number(number: i64) -> Reply {
        Reply::Number(number)
    }

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    fn items() -> Items {
        Items::new(&"jobs".into())
    }

    #[test]
    fn how_an_item_is_taken_fits_into_a_number() {
        let how = |newest_first, most_often| Items { newest_first, most_often, ..items() }.how();
        assert_eq!([how(false, None), how(true, None)], [1, 2]);
        assert_eq!([how(false, Some(3)), how(true, Some(3))], [7, 8]);
    }

    #[test]
    fn a_grant_brings_the_content() {
        let item = Item::new(items());
        let granted =
            |how: i64| Reply::List(vec![number(1), number(how), text(ID), text("2 7:a:b")]);
        assert_eq!(item.read_acquire(&granted(1)), None, "of another way to take it");
        let how = item.items.how();
        assert_eq!(item.read_acquire(&granted(how as i64)), Some(Answer::granted(how)));
        let content = item.content_of(ID).expect("it was read");
        assert_eq!((content.deliveries, &*content.payload), (2, &b"a:b"[..]));
        assert_eq!(item.content_of("worker-1:another"), None);
    }

    #[test]
    fn who_gets_nothing_is_told_how_many_are_lent_and_how_many_wait() {
        let item = Item::new(items());
        assert_eq!(item.why_in_vain(0), "no item is free, and nobody else waits");
        let refused = |lent: i64| {
            let refusal = [0, -1].map(number).into_iter().chain([text(ID)]);
            let queue = [0, -1, 7].map(number).into_iter().chain([Reply::List(Vec::new())]);
            Reply::List(refusal.chain(queue).chain([number(lent)]).collect())
        };
        for (lent, others, text) in [
            (0, 0, "there is no item, and nobody else waits: push some, or wait longer"),
            (
                1,
                1,
                "1 item is lent or comes again later, and 1 other waits: Queue::status lists who has it",
            ),
            (
                2,
                3,
                "2 items are lent or come again later, and 3 others wait: Queue::status lists who has them",
            ),
        ] {
            let answer = item.read_acquire(&refused(lent));
            assert!(matches!(answer, Some(Answer::Refused(_))), "{answer:?}");
            assert_eq!(item.why_in_vain(others), text);
        }
        assert_eq!(item.read_acquire(&refused(-1)), None);
    }

    #[test]
    fn a_message_brings_the_content_of_its_grant_and_no_other() {
        let item = Item::new(items());
        let id = LeaseId(ID.into());
        item.enclosed(&id, Some(b"3 7:a:\xff"));
        let content = item.content_of(ID).expect("it came along");
        assert_eq!((content.deliveries, &*content.payload), (3, &b"a:\xff"[..]));
        assert_eq!(item.content_of("worker-1:another"), None);
        for nothing in [None, Some(&b"3 7"[..]), Some(b"x 7:a")] {
            item.enclosed(&id, Some(b"1 7:before"));
            item.enclosed(&id, nothing);
            assert_eq!(item.content_of(ID), None, "{nothing:?}");
        }
    }

    #[test]
    fn only_the_delivery_that_a_worker_has_seen_ends_as_it_says() {
        let item = Item::new(items());
        let release = |id: &str| {
            let ticket = Ticket { id: LeaseId(id.into()), entry: None, by_message: false };
            let args = item.release(&ticket, Duration::ZERO).args;
            format!("{:?} {:?} {:?}", args[1], args[2], args[4])
        };
        let undone = r#"Word("undo") Number(0) Word("")"#;
        item.ends_as(Outcome::Ack);
        assert_eq!(release(ID), undone, "nobody has seen it");
        let content = Content { deliveries: 1, at_us: 7, payload: (*b"a").into() };
        item.is_seen(ID.into(), &content);
        assert_eq!(release(ID), r#"Word("retry") Number(0) Number(7)"#);
        for (outcome, ends) in [
            (Outcome::Ack, r#"Word("ack") Number(0) Number(7)"#),
            (Outcome::Retry(Duration::from_secs(1)), r#"Word("retry") Number(1000) Number(7)"#),
            (Outcome::Reject, r#"Word("reject") Number(0) Number(7)"#),
        ] {
            item.ends_as(outcome);
            assert_eq!(release(ID), ends);
            assert_eq!(release("worker-1:another"), undone, "another request");
        }
    }

    #[test]
    fn the_content_is_two_numbers_and_what_follows_the_first_colon() {
        let read = |content: Reply| Item::read_content(&Reply::List(vec![number(1), content]));
        let content =
            |deliveries, payload: &[u8]| Content { deliveries, at_us: 7, payload: payload.into() };
        assert_eq!(read(text("3 7:a:b")), Some(Some(content(3, b"a:b"))));
        assert_eq!(read(text("1 7:")), Some(Some(content(1, b""))));
        let bytes = Reply::Raw { bytes: b"1 7:\xff".to_vec(), shown: String::new() };
        assert_eq!(read(bytes), Some(Some(content(1, b"\xff"))));
        assert_eq!(Item::read_content(&number(0)), Some(None));
        for bad in [text("a"), text("1:a"), text("x 7:a"), text("1 x:a"), Reply::Nil] {
            assert_eq!(read(bad.clone()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_status_tells_deliveries_from_what_waits_to_be_delivered_again() {
        let due = text(&format!("due:{ID}"));
        let listed = [text(ID), number(1), number(500), due, number(2), number(0)];
        let reply = Reply::List(vec![
            number(5),
            number(2),
            number(1),
            number(7_000_000),
            Reply::List(listed.to_vec()),
            Reply::List(vec![text(&format!("1000 1 0a {ID}")), text("6000000")]),
            Reply::List(vec![text("poison")]),
        ]);
        let (status, dead) = items().read_status(&reply).expect("it is understood");
        assert_eq!((status.waiting_items, status.lent_items), (5, 1));
        assert_eq!((status.retrying_items, status.dead_items), (1, 1));
        assert_eq!(status.lent[0].holder.client(), Some("worker-1"));
        assert_eq!(status.lent[0].remaining, Duration::from_millis(500));
        assert_eq!(status.waiting[0].waited, Duration::from_secs(1));
        assert_eq!(dead, [b"poison"]);
    }
}
