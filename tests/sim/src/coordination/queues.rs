//! What the processes do with the queue: they push items, and work on them.

use std::pin::Pin;
use std::time::Duration;

use leasehold::{Delivery, Error, Queue};
use tokio::time::{sleep, timeout};

use super::shelf::item_of;
use super::{ITEMS, MOST_DELIVERIES, QUEUE, QUEUE_NAME};
use crate::checker::{Rule, Share};
use crate::host::Proof;
use crate::kinds::{Kept, Part, Thing, is_lost_or_away};
use crate::workload::{Attempt, Timing, Worker, millis, some};

impl Worker {
    pub(super) async fn use_queue(&mut self) {
        let queue = self.client.queue(QUEUE_NAME).with_max_deliveries(MOST_DELIVERIES);
        match self.rng.below(100) {
            0..18 => self.push(&queue).await,
            18..92 => self.pop(queue).await,
            92..96 => {
                let result = queue.status().await.map(drop);
                self.expect("status", result, is_lost_or_away);
            }
            _ => {
                let most = self.rng.between(1, 3) as u32;
                let result = self.perhaps(Box::pin(async move { queue.redrive(most).await })).await;
                if let Some(result) = result {
                    self.expect("redrive", result.map(drop), is_lost_or_away);
                }
            }
        }
    }

    async fn push(&mut self, queue: &Queue) {
        let queue = queue.with_capacity(CAPACITY);
        let count = if self.rng.chance(300) { self.rng.between(2, 3) } else { 1 };
        let (items, asked_at): (Vec<u64>, _) = {
            let mut history = self.process.history.lock();
            let items = (0..count).map(|_| history.fresh()).collect::<Vec<_>>();
            history.books.items.pushing(&items);
            (items, history.now)
        };
        // Some are too long for a message: who is given one asks for it.
        let length = if self.rng.chance(200) { LONG } else { 0 };
        let payloads: Vec<String> =
            items.iter().map(|item| format!("{item} {}", "x".repeat(length))).collect();
        let push = async move { queue.push_many(payloads).await };
        let Some(result) = self.perhaps(Box::pin(push)).await else { return };
        let mut history = self.process.history.lock();
        match result {
            Ok(_) => {
                history.count("pushes", 1);
                history.books.items.pushed(&items, asked_at);
            }
            Err(Error::QueueFull { .. }) => {
                history.count("full", 1);
                history.books.items.not_pushed(&items);
            }
            Err(error) => {
                drop(history);
                self.expect("push", Err(error), is_lost_or_away);
            }
        }
    }

    async fn pop(&mut self, mut queue: Queue) {
        let (lease, ttl) = self.lease_and_ttl();
        queue = lease.map_or(queue.clone(), |lease| queue.with_lease(lease));
        queue = ttl.map_or(queue.clone(), |ttl| queue.with_ttl(ttl));
        if self.rng.chance(250) {
            queue = queue.newest_first();
        }
        let limit = millis(self.rng.skewed(5000));
        let (how, patience, future): (_, _, Attempt<Delivery>) = match self.rng.below(5) {
            // While nobody pushes, it has no end.
            0 | 1 => ("pop", None, {
                let pop = some(queue.pop());
                Box::pin(async move { timeout(limit, pop).await.unwrap_or(Ok(None)) })
            }),
            2 => ("try_pop", Some(Duration::ZERO), Box::pin(queue.try_pop())),
            3 => ("pop_with_timeout", Some(limit), Box::pin(some(queue.pop_with_timeout(limit)))),
            _ => ("try_pop_for", Some(limit), Box::pin(queue.try_pop_for(limit))),
        };
        let Some((asked_at, delivery)) = self.attempt(QUEUE, how, patience, future).await else {
            return;
        };
        let Some(item) = item_of(delivery.payload()) else {
            let what = format!("{delivery:?} is of no item");
            return self.process.history.lock().violated(Rule::Items, what);
        };
        self.check_delivery(item, &delivery, asked_at);
        let key = delivery.holder().as_str().to_owned();
        let part = Part { lock: ITEMS + item as usize, token: 0, key, share: Share::Lent };
        let held = Kept::new(&self.process, item, asked_at, delivery, vec![part]);
        self.work_on(held, item).await;
    }

    /// Who is handed an item that was lost already may be late.
    fn check_delivery(&self, item: u64, delivery: &Delivery, asked_at: u64) {
        let is_held = !delivery.remaining().is_zero();
        let mut history = self.process.history.lock();
        history.checker.checked(Rule::Items);
        history.count("deliveries", 1);
        history.count("delivered_again", u64::from(delivery.deliveries() > 1));
        if !is_held {
            return;
        }
        let number = delivery.deliveries();
        let known = history.books.items.delivered(item, number, MOST_DELIVERIES, asked_at);
        if let Err(problem) = known {
            history.violated(Rule::Items, format!("{delivery:?} of item {item}: {problem}"));
        }
    }

    async fn work_on(&mut self, held: Kept<Delivery>, item: u64) {
        match self.rng.below(10) {
            0 => {
                let lease = millis(self.rng.between(100, self.workload.ttl_ms()));
                let result = held.proof().extend(lease).await;
                self.expect("extend", result, is_lost_or_away);
            }
            1 => {
                let work = sleep(millis(self.rng.skewed(1000)));
                let result = held.proof().run_until_lost(work).await;
                self.expect("run_until_lost", result, is_lost_or_away);
            }
            // A fixed lease ends meanwhile.
            2 => sleep(millis(self.workload.ttl_ms())).await,
            _ => {}
        }
        sleep(millis(self.rng.skewed(1000))).await;
        self.settle(held, item).await;
    }

    async fn settle(&mut self, mut held: Kept<Delivery>, item: u64) {
        let remaining = held.proof().remaining();
        let was_lost = remaining.is_zero();
        let later = millis(if self.rng.chance(500) { 0 } else { self.rng.skewed(2000) });
        let (how, asked_at) = (self.rng.below(20), held.asked_at());
        let Some(delivery) = held.take("settled") else { return };
        let (what, settled): (_, Settling) = match how {
            0..10 => ("ack", Box::pin(delivery.ack())),
            10..14 => ("retry", Box::pin(delivery.retry(later))),
            14 => ("reject", Box::pin(delivery.reject())),
            _ => return drop(delivery),
        };
        if what == "ack" && !was_lost {
            self.process.history.lock().books.items.acking(item);
        }
        let settling_at = self.process.history.lock().now;
        let timing = Timing::start(&self.process, Some(Duration::ZERO));
        let result = if how % 5 == 0 { self.perhaps(settled).await } else { Some(settled.await) };
        timing.check(what, self.workload.response_timeout, false);
        self.check_loss(&result, remaining, &timing, asked_at);
        match result {
            Some(Ok(())) if was_lost => {
                let what = format!("{what} was fine with item {item}, which was lost");
                self.process.history.lock().violated(Rule::Telling, what);
            }
            Some(Ok(())) if what == "ack" => {
                let mut history = self.process.history.lock();
                history.count("acks", 1);
                if let Err(problem) = history.books.items.acked(item, settling_at) {
                    let what = format!("item {item} is reported as done: {problem}");
                    history.violated(Rule::Items, what);
                }
            }
            Some(result) => self.expect(what, result, is_lost_or_away),
            None => {}
        }
    }
}

/// How an item is given back.
type Settling = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl Proof for Delivery {
    fn is_held(&self) -> bool {
        Self::is_held(self)
    }

    fn remaining(&self) -> Duration {
        Self::remaining(self)
    }
}

impl Thing for Delivery {
    fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send>> {
        let lost = Self::lost(self);
        Box::pin(async move { lost.await.to_string() })
    }

    fn give_back(self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(self.ack())
    }
}

/// More bytes than a message brings along.
const LONG: usize = 9000;
/// So many items there are at once: those that are pushed beyond are refused.
const CAPACITY: u32 = 20;
