//! The permits of one acquisition of a semaphore: what they ask of the server, and how to read the answers.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::pool::Pool;
use super::replies::{SHOWN, read_refusal, read_renew};
use crate::config::LeaseTerms;
use crate::engine::kind::{Answer, Holders, Kind, Released, Sharing, Ticket};
use crate::events;
use crate::key::{self, LeaseId};
use crate::script::{self, Arg, Call, Reply, ttl_ms};

/// The permits of one acquisition, as the engine sees them.
pub(super) struct Permits {
    pool: Pool,
    weight: u32,
    /// For how long they stay out at least if they are spent.
    spent_for: Duration,
    /// They are not given back, but gone for good.
    forgotten: AtomicBool,
    /// It was said that there is no such semaphore.
    warned: AtomicBool,
}

impl Permits {
    pub(super) fn new(pool: Pool, weight: u32, lease: LeaseTerms) -> Self {
        let spent_for = match lease {
            // One that came by message is short until its first renewal, and nothing renews what is spent.
            LeaseTerms::Watched(ttl) => ttl,
            LeaseTerms::Fixed(_) => Duration::from_millis(1),
        };
        Self {
            pool,
            weight,
            spent_for,
            forgotten: AtomicBool::new(false),
            warned: AtomicBool::new(false),
        }
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    /// Has the release take the permits out of the semaphore.
    pub(super) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
    }

    /// Says once that the semaphore does not exist, so that nobody waits for it in silence.
    fn warn_of_none(&self) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            events::no_semaphore(&self.pool.name);
        }
    }

    fn weighed(&self, id: &LeaseId) -> [Arg; 2] {
        [Arg::Text(id.0.clone()), Arg::Number(self.weight.into())]
    }
}

impl Kind for Permits {
    fn name(&self) -> &Arc<str> {
        &self.pool.name
    }

    fn family(&self) -> &'static str {
        "semaphore"
    }

    fn sharing(&self) -> Sharing {
        Sharing::Each { weight: self.weight.into() }
    }

    fn channel(&self) -> &Arc<str> {
        &self.pool.channel
    }

    fn acquire(&self, ticket: &Ticket, ttl: Duration, _: u64) -> Call {
        let pool = &self.pool;
        let mut args = self.weighed(&ticket.id).to_vec();
        args.extend([
            Arg::Number(ttl_ms(ttl)),
            pool.publish(),
            Arg::Text(pool.channel.clone()),
            pool.initial(),
            ticket.entry.clone().map_or(Arg::Word(""), Arg::Text),
            Arg::Number(SHOWN),
            pool.count(),
        ]);
        Call { script: &script::PERMIT_ACQUIRE, keys: pool.keys(), args }
    }

    fn renew(&self, id: &LeaseId, _: u32, ttl: Duration) -> Call {
        let mut args = self.weighed(id).to_vec();
        args.push(Arg::Number(ttl_ms(ttl)));
        let keys = vec![key::permits_key(&self.pool.name)];
        Call { script: &script::PERMIT_RENEW, keys, args }
    }

    fn reclaim(&self, ticket: &Ticket, _: u32, ttl: Duration, _: RangeInclusive<u64>) -> Call {
        let mut args = self.weighed(&ticket.id).to_vec();
        args.extend([
            Arg::Number(ttl_ms(ttl)),
            self.pool.initial(),
            ticket.entry.clone().map_or(Arg::Word(""), Arg::Text),
        ]);
        Call { script: &script::PERMIT_RECLAIM, keys: self.pool.keys(), args }
    }

    fn release(&self, ticket: &Ticket, keep: Duration) -> Call {
        let keep = if keep.is_zero() { keep } else { self.spent_for };
        let forgets = self.forgotten.load(Ordering::Acquire);
        self.pool.release(ticket.id.0.clone(), self.weight, keep, forgets, Some(ticket))
    }

    fn lost(&self, _: &LeaseId) {
        self.forgotten.store(false, Ordering::Release);
    }

    fn all_units(&self) -> Option<u64> {
        self.pool.initial.map(u64::from)
    }

    fn look_for_holders(&self) -> Option<Call> {
        Some(self.pool.status())
    }

    fn read_holders(&self, reply: &Reply) -> Option<Holders> {
        let status = self.pool.read_status(reply)?;
        let ids = status.holders.iter().map(|holder| holder.holder.text().clone());
        // Less than none are left where somebody has lowered their number.
        Some(Holders { all: status.permits().try_into().unwrap_or(0), ids: ids.collect() })
    }

    fn may_be_forgotten(&self) -> bool {
        !self.forgotten.load(Ordering::Acquire)
    }

    /// Permits have no tokens, and are on one server: there is nothing to raise. This asks whether they are held.
    fn raise(&self, id: &LeaseId, _: u64) -> Call {
        self.renew(id, 1, Duration::ZERO)
    }

    fn read_acquire(&self, reply: &Reply) -> Option<Answer> {
        match reply.list()? {
            [Reply::Number(1), weight] => {
                let block_end = u64::try_from(weight.number()?).ok()?;
                (block_end == u64::from(self.weight)).then(|| Answer::granted(block_end))
            }
            [Reply::Number(0), refusal @ .., left] => {
                if left.number().is_none() {
                    self.warn_of_none();
                }
                read_refusal(refusal).map(Answer::Refused)
            }
            _ => None,
        }
    }

    fn read_renew(&self, reply: &Reply) -> Option<bool> {
        read_renew(reply)
    }

    fn read_release(&self, reply: &Reply) -> Option<Released> {
        let (held, passed_over) = match reply.list()? {
            [held, _receivers] => (held, 0),
            [held, _receivers, passed_over] => (held, passed_over.number()?),
            _ => return None,
        };
        let held = held.number()? == 1;
        if held {
            // It may be sent again, in case that an acquisition still comes late. What that gets is nobody's, and goes back.
            self.forgotten.store(false, Ordering::Release);
        }
        Some(Released {
            held,
            // The next acquisition has a gate of its own, and waits for nobody who heard of this.
            receivers: 0,
            passed_over: passed_over.try_into().ok()?,
        })
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

    fn permits(weight: u32) -> Permits {
        let lease = LeaseTerms::Fixed(Duration::from_secs(1));
        Permits::new(Pool::new("api".into(), false), weight, lease)
    }

    #[test]
    fn a_grant_of_another_weight_is_no_answer() {
        let granted = Reply::List(vec![number(1), number(2)]);
        assert_eq!(permits(2).read_acquire(&granted), Some(Answer::granted(2)));
        assert_eq!(permits(3).read_acquire(&granted), None);
    }

    /// The release may be sent once more behind an acquisition that came late.
    #[test]
    fn what_was_forgotten_once_is_not_forgotten_again() {
        let permits = permits(1);
        let ticket = Ticket { id: LeaseId(ID.into()), entry: None, by_message: false };
        let forgets = || format!("{:?}", permits.release(&ticket, Duration::ZERO).args[5]);
        assert!(permits.may_be_forgotten());
        permits.forget();
        assert!(
            !permits.may_be_forgotten(),
            "a server that has lost the lease has forgotten nothing"
        );
        let asked = forgets();
        permits.read_release(&Reply::List(vec![number(0), number(0)])).expect("an answer");
        assert_eq!(forgets(), asked);
        permits.read_release(&Reply::List(vec![number(1), number(0)])).expect("an answer");
        assert_ne!(forgets(), asked);
    }

    #[test]
    fn a_refusal_names_a_holder_the_next_end_and_the_place() {
        let refused = |pttl, place| {
            let waiting = Reply::List(vec![text(&format!("1000 1 0a {ID}")), text("5")]);
            let items = [number(0), number(pttl), text(ID), number(3), number(place), number(7)];
            Reply::List(items.into_iter().chain([waiting, number(0)]).collect())
        };
        let read = |pttl, place| match permits(1).read_acquire(&refused(pttl, place)) {
            Some(Answer::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        let first = read(20, 0);
        assert_eq!(first.holder.client(), Some("web-1"));
        assert_eq!((first.remaining, first.subscribers), (Some(Duration::from_millis(20)), 3));
        let queue = first.queue.expect("it is in a queue");
        assert_eq!((queue.ahead, queue.server_us, queue.waiting.len()), (Some(0), 7, 1));
        let other = read(-1, -1);
        assert_eq!(other.remaining, None, "no permit ends");
        assert_eq!(other.queue.expect("there is a queue").ahead, None, "it did not queue");
    }
}
