//! Turns at a queue, at latches and at a signal.

use std::time::Duration;

use leasehold::{Delivery, Error, Latch, Queue};
use tokio::time::sleep;

use super::Task;
use crate::{
    clock::{Chance, now},
    event::{How, Share, What},
    locks::{LATCHES, QUEUE, SIGNAL, item_of, latch_of},
    recorder::{Ask, Watched},
};

impl Task {
    /// A turn of one that hands out work, does some, or waits for others. Over several servers it is told that it cannot.
    pub(super) async fn work(&self, chance: &mut Chance) {
        if self.shared.is_on_several_servers() {
            self.take_item(chance).await;
            return sleep(chance.ms(50, 150)).await;
        }
        match chance.between(0, 100) {
            0..16 => {
                let items = (0..chance.between(1, 4)).map(|_| self.name_of_item("")).collect();
                self.push(items, chance).await;
            }
            16..70 => self.take_item(chance).await,
            70..82 => self.wait_for_a_group(chance).await,
            82..90 => self.notify().await,
            _ => self.listen(chance).await,
        }
    }

    /// No two items have the same. One whose work ends with a count of a latch has that in its name.
    fn name_of_item(&self, latch: &str) -> String {
        format!("{}-{}@{latch}", self.shared.orders.name, self.recorder().number())
    }

    /// Returns true if they were certainly added.
    async fn push(&self, items: Vec<String>, chance: &mut Chance) -> bool {
        // Some are too long for a message.
        let length = if chance.one_in(5) { LONG } else { 0 };
        let payloads: Vec<_> =
            items.iter().map(|item| format!("{item} {}", "x".repeat(length))).collect();
        let op = self.recorder().number();
        self.recorder().journal.write(What::Pushing { op, items });
        let queue = self.client.queue(QUEUE).with_capacity(CAPACITY);
        let added = match queue.push_many(payloads).await {
            Ok(_) => Some(true),
            Err(Error::QueueFull { .. }) => Some(false),
            Err(error) => {
                has_no_answer(&error);
                None
            }
        };
        self.recorder().journal.write(What::Pushed { op, added });
        added == Some(true)
    }

    async fn take_item(&self, chance: &mut Chance) {
        let mut queue = self.client.queue(QUEUE).with_max_deliveries(MOST_DELIVERIES);
        let mut work = self.shared.work(chance);
        if chance.one_in(6) {
            queue = queue.with_lease(self.shared.orders.ttl);
            work = self.shared.work_of_fixed(chance);
        }
        if chance.one_in(3) {
            queue = queue.newest_first();
        }
        if let Some((delivery, watched)) = self.pop(&queue, chance).await {
            self.work_on(delivery, watched, work, chance).await;
        }
    }

    async fn pop(&self, queue: &Queue, chance: &mut Chance) -> Option<(Delivery, Watched)> {
        let (how, wait) = self.shared.way(chance);
        let owner = self.recorder().number();
        let ask = Ask { locks: &[QUEUE], owner, how, share: Share::Lent, wait };
        // While nobody pushes, a wait without a limit has no end.
        let patience = if how == How::Lock { Some(chance.ms(0, 1000)) } else { None };
        let wait = wait.unwrap_or_default();
        let pop = async {
            match how {
                How::LockWithTimeout => queue.pop_with_timeout(wait).await.map(Some),
                How::TryLock => queue.try_pop().await,
                How::TryLockFor => queue.try_pop_for(wait).await,
                _ => queue.pop().await.map(Some),
            }
        };
        self.attempt(ask, patience.or_else(|| Self::patience(chance)), pop).await
    }

    async fn work_on(
        &self,
        delivery: Delivery,
        mut watched: Watched,
        work: Duration,
        chance: &mut Chance,
    ) {
        if self.lost_while_working(&delivery, &mut watched, work).await {
            return;
        }
        if let Some(latch) = latch_of(&item_of(delivery.payload())) {
            self.count_down(&self.client.latch(latch)).await;
        }
        match chance.between(0, 20) {
            0..12 => {
                watched.releasing(&delivery, How::Unlock);
                watched.released(&delivery.ack().await);
            }
            12..15 => {
                watched.releasing(&delivery, How::Retry);
                watched.released(&delivery.retry(chance.ms(0, 300)).await);
            }
            15 => {
                watched.releasing(&delivery, How::Reject);
                watched.released(&delivery.reject().await);
            }
            _ => {
                watched.releasing(&delivery, How::Drop);
                drop(delivery);
                watched.released(&Ok(()));
            }
        }
    }

    /// Hands out items, and waits until as many counts were made of a latch as there are items and one of its own.
    async fn wait_for_a_group(&self, chance: &mut Chance) {
        let name = format!("{LATCHES}{}-{}", self.shared.orders.name, self.recorder().number());
        let (latch, counts) = (self.client.latch(&name), chance.between(1, 4) as u32);
        match latch.try_set_count(counts.into(), Duration::MAX).await {
            Ok(true) => {}
            Ok(false) => panic!("{name} is set already, and nobody else knows its name"),
            Err(error) => return has_no_answer(&error),
        }
        self.recorder().journal.write(What::Shut { latch: name.clone(), counts });
        let items = (1..counts).map(|_| self.name_of_item(&name)).collect::<Vec<_>>();
        if !items.is_empty() {
            self.push(items, chance).await;
        }
        let own = self.count_down(&latch);
        let wait = async {
            for _ in 0..4 {
                if self.see_latch(&latch, chance.ms(0, 700)).await {
                    break;
                }
            }
        };
        tokio::join!(own, wait);
    }

    /// Returns true if there is nothing to wait for any more.
    async fn see_latch(&self, latch: &Latch, limit: Duration) -> bool {
        let (from, name) = (now(), latch.name().to_owned());
        let is_open = match latch.wait_with_timeout(limit).await {
            Ok(()) => Some(true),
            Err(Error::StillWaiting { .. }) => Some(false),
            Err(Error::Lost { .. }) => None,
            Err(error) => {
                has_no_answer(&error);
                return false;
            }
        };
        self.recorder().journal.write(What::LatchSeen { latch: name, from, is_open });
        is_open != Some(false)
    }

    async fn count_down(&self, latch: &Latch) {
        let (op, name) = (self.recorder().number(), latch.name().to_owned());
        self.recorder().journal.write(What::Counting { op, latch: name });
        let counted = match latch.count_down().await {
            Ok(_) => true,
            Err(Error::Lost { .. }) => false,
            Err(error) => {
                has_no_answer(&error);
                false
            }
        };
        self.recorder().journal.write(What::CountedDown { op, counted });
    }

    async fn notify(&self) {
        let op = self.recorder().number();
        self.recorder().journal.write(What::Notifying { op });
        let data = format!("{} {op}", self.shared.orders.name);
        let given = match self.client.signal(SIGNAL).notify_all(data.as_bytes()).await {
            Ok(_) => true,
            Err(error) => {
                has_no_answer(&error);
                false
            }
        };
        self.recorder().journal.write(What::Notified { op, given });
    }

    /// Sees what the signal has come to, and then what comes after that, while it does other things between.
    async fn listen(&self, chance: &mut Chance) {
        let signal = self.client.signal(SIGNAL);
        let mut seen = match signal.seen().await {
            Ok(seen) => seen,
            Err(error) => return has_no_answer(&error),
        };
        let mut seen_at = now();
        for _ in 0..3 {
            sleep(chance.ms(0, 200)).await;
            let from = now();
            let (number, by) = match signal.changed_with_timeout(seen, chance.ms(0, 500)).await {
                Ok(notice) => (notice.number, Some(text(&notice.data))),
                Err(Error::StillWaiting { .. }) => (seen, None),
                Err(error) => return has_no_answer(&error),
            };
            self.recorder().journal.write(What::Noticed { from, seen_at, seen, number, by });
            if number != seen {
                (seen, seen_at) = (number, now());
            }
        }
    }
}

/// No other error may come of these calls: a fault may have kept the answer away, or the right.
fn has_no_answer(error: &Error) {
    let may_be = matches!(error, Error::Unavailable { .. } | Error::Denied { .. });
    assert!(may_be, "an error that nothing explains: {error:?}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const MOST_DELIVERIES: u32 = 6;
/// More bytes than a message brings along.
const LONG: usize = 9000;
/// So many items there are at once: those that are pushed beyond are refused.
const CAPACITY: u32 = 24;
