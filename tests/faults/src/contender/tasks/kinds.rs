//! Turns at locks of other kinds than mutexes.

use std::time::Duration;

use leasehold::{Election, Error, Leadership, MultiGuard, Permit, ReadGuard, RwLock, WriteGuard};
use tokio::time::{Instant, timeout_at};

use super::Task;
use crate::{
    clock::Chance,
    contender::OtherKind,
    event::{How, Share},
    locks::{ELECTION, PERMITS, RW_LOCK, SEMAPHORE},
    recorder::{Ask, Watched},
};

impl Task {
    pub(super) async fn turn_of_another_kind(&self, kind: OtherKind, chance: &mut Chance) {
        match kind {
            OtherKind::RwLock => self.read_or_write(chance).await,
            OtherKind::Semaphore => self.take_permits(chance).await,
            OtherKind::MultiLock => self.take_several(chance).await,
            OtherKind::Election => self.vote(chance).await,
        }
    }

    /// Some lose interest after a moment, with what they asked for perhaps on its way.
    pub(super) fn patience(chance: &mut Chance) -> Option<Duration> {
        chance.one_in(8).then(|| chance.ms(0, 60))
    }

    async fn read_or_write(&self, chance: &mut Chance) {
        // An owner of its own, which may read again.
        let lock = self.client.rw_lock(RW_LOCK).owned_by(&self.client.owner());
        let (how, wait) = self.shared.way(chance);
        let owner = self.recorder().number();
        let ask = Ask { locks: &[RW_LOCK], owner, how, share: Share::Reads, wait };
        let patience = Self::patience(chance);
        match chance.between(0, 100) {
            0..6 => self.free(&lock, chance).await,
            6..14 => {
                let lock = lock.with_lease(self.shared.orders.ttl);
                let work = self.shared.work_of_fixed(chance);
                if let Some((guard, watched)) = self.read(&lock, ask, patience).await {
                    self.hold(guard, watched, work, chance).await;
                }
            }
            14..60 => {
                if let Some((guard, watched)) = self.read(&lock, ask, patience).await {
                    self.go_on_reading(&lock, ask, guard, watched, chance).await;
                }
            }
            other => {
                let ask = Ask { share: Share::Alone, ..ask };
                let Some((guard, watched)) = self.write(&lock, ask, patience).await else { return };
                if other < 80 {
                    self.downgrade(&lock, ask, guard, watched, chance).await;
                } else {
                    let work = self.shared.work_beside_others(chance);
                    self.hold(guard, watched, work, chance).await;
                }
            }
        }
    }

    async fn read(
        &self,
        lock: &RwLock,
        ask: Ask<'_>,
        patience: Option<Duration>,
    ) -> Option<(ReadGuard, Watched)> {
        let wait = ask.wait.unwrap_or_default();
        let read = async {
            match ask.how {
                How::LockWithTimeout => lock.read_with_timeout(wait).await.map(Some),
                How::TryLock => lock.try_read().await,
                How::TryLockFor => lock.try_read_for(wait).await,
                _ => lock.read().await.map(Some),
            }
        };
        self.attempt(ask, patience, read).await
    }

    async fn write(
        &self,
        lock: &RwLock,
        ask: Ask<'_>,
        patience: Option<Duration>,
    ) -> Option<(WriteGuard, Watched)> {
        let wait = ask.wait.unwrap_or_default();
        let write = async {
            match ask.how {
                How::LockWithTimeout => lock.write_with_timeout(wait).await.map(Some),
                How::TryLock => lock.try_write().await,
                How::TryLockFor => lock.try_write_for(wait).await,
                _ => lock.write().await.map(Some),
            }
        };
        self.attempt(ask, patience, write).await
    }

    /// Whoever reads may read again, whoever waits.
    async fn go_on_reading(
        &self,
        lock: &RwLock,
        ask: Ask<'_>,
        outer: ReadGuard,
        watched: Watched,
        chance: &mut Chance,
    ) {
        let ask = Ask { how: How::Lock, share: Share::Reads, wait: None, ..ask };
        let inner = if chance.one_in(3) { self.read(lock, ask, None).await } else { None };
        if let Some((inner, watched_inner)) = inner {
            self.hold(inner, watched_inner, chance.ms(1, 10), chance).await;
        }
        self.hold(outer, watched, self.shared.work_beside_others(chance), chance).await;
    }

    /// A writer becomes a reader.
    async fn downgrade(
        &self,
        lock: &RwLock,
        ask: Ask<'_>,
        guard: WriteGuard,
        mut watched: Watched,
        chance: &mut Chance,
    ) {
        watched.write(&guard, &self.shared.register);
        let work = self.shared.work_beside_others(chance);
        if self.lost_while_working(&guard, &mut watched, work).await {
            return;
        }
        watched.releasing(&guard, How::Downgrade);
        let ask = Ask { how: How::Downgrade, share: Share::Reads, wait: None, ..ask };
        let op = self.recorder().asked_for(ask);
        match guard.downgrade().await {
            Ok(reader) => {
                let watched_reader = self.granted(op, &reader);
                watched.released(&Ok(()));
                self.go_on_reading(lock, ask, reader, watched_reader, chance).await;
            }
            Err(error) => {
                watched.released(&Err(error.clone()));
                self.refused(op, &error).await;
            }
        }
    }

    async fn take_permits(&self, chance: &mut Chance) {
        if self.shared.is_on_one_server() && chance.one_in(3) {
            return self.sit_down(chance).await;
        }
        let mut semaphore = self.client.semaphore(SEMAPHORE).with_permits(PERMITS);
        let mut work = self.shared.work_beside_others(chance);
        if chance.one_in(6) {
            semaphore = semaphore.with_lease(self.shared.orders.ttl);
            work = self.shared.work_of_fixed(chance);
        }
        if chance.one_in(6) {
            return self.take_back(&semaphore, chance).await;
        }
        let (how, wait) = self.shared.way(chance);
        let many = chance.between(1, u64::from(PERMITS) + 1) as u32;
        let weight = if wait.is_some() { 1 } else { many };
        let share = Share::Permits { weight, all: PERMITS };
        let owner = self.recorder().number();
        let ask = Ask { locks: &[SEMAPHORE], owner, how, share, wait };
        let wait = wait.unwrap_or_default();
        let acquire = async {
            match how {
                How::LockWithTimeout => semaphore.acquire_with_timeout(wait).await.map(Some),
                How::TryLock => semaphore.try_acquire_many(weight).await,
                How::TryLockFor => semaphore.try_acquire_for(wait).await,
                _ => semaphore.acquire_many(weight).await.map(Some),
            }
        };
        let taken = self.attempt(ask, Self::patience(chance), acquire).await;
        let Some((permit, watched)) = taken else { return };
        if chance.one_in(8) {
            return self.spend(permit, watched, work).await;
        }
        self.hold(permit, watched, work, chance).await;
    }

    /// Permits that come back by themselves.
    async fn spend(&self, permit: Permit, mut watched: Watched, work: Duration) {
        if !self.lost_while_working(&permit, &mut watched, work).await {
            watched.releasing(&permit, How::Spend);
            permit.spend();
            watched.released(&Ok(()));
        }
    }

    async fn take_several(&self, chance: &mut Chance) {
        let names = self.shared.several_names(chance);
        let several = self.client.multi_lock(&names);
        let wait = chance.ms(30, 700);
        let way = chance.between(0, 4);
        let owner = self.recorder().number();
        let limit = (way >= 2).then_some(wait);
        let ask = Ask { locks: &names, owner, how: How::Several, share: Share::Alone, wait: limit };
        let lock = async {
            match way {
                0 => several.lock().await.map(Some),
                1 => several.try_lock().await,
                2 => several.lock_with_timeout(wait).await.map(Some),
                _ => several.try_lock_for(wait).await,
            }
        };
        let taken: Option<(MultiGuard, Watched)> =
            self.attempt(ask, Self::patience(chance), lock).await;
        if let Some((guard, watched)) = taken {
            self.hold(guard, watched, self.shared.work(chance), chance).await;
        }
    }

    async fn vote(&self, chance: &mut Chance) {
        let election = self.client.election(ELECTION).with_value("here");
        let owner = self.recorder().number();
        let ask =
            Ask { locks: &[ELECTION], owner, how: How::Lock, share: Share::Alone, wait: None };
        let wait = chance.ms(30, 700);
        let taken: Option<(Leadership, Watched)> = match chance.between(0, 8) {
            0 | 1 => return self.observe(&election, ask, chance).await,
            2 => {
                let ask = Ask { how: How::LockWithTimeout, wait: Some(wait), ..ask };
                let campaign = async { election.campaign_with_timeout(wait).await.map(Some) };
                self.attempt(ask, None, campaign).await
            }
            _ => {
                let campaign = async { election.campaign().await.map(Some) };
                self.attempt(ask, Self::patience(chance), campaign).await
            }
        };
        let Some((leadership, watched)) = taken else { return };
        if chance.one_in(3) {
            // Whether it was answered or not, the leader knows whether it leads.
            let _ = leadership.proclaim("there").await;
        }
        self.hold(leadership, watched, self.shared.work(chance), chance).await;
    }

    /// Writes down who is shown to lead.
    async fn observe(&self, election: &Election, ask: Ask<'_>, chance: &mut Chance) {
        let recorder = self.recorder();
        let op = recorder.asked_for(Ask { how: How::Observe, ..ask });
        let mut observer = election.observe();
        let ends_at = Instant::now() + chance.ms(50, 1500);
        loop {
            match timeout_at(ends_at, observer.changed()).await {
                Err(_) => return recorder.dropped(op),
                Ok(Ok(Some(leader))) => recorder.shown(op, leader.term),
                Ok(Ok(None) | Err(Error::Unavailable { .. })) => {}
                Ok(Err(error)) => return self.refused(op, &error).await,
            }
        }
    }
}
