//! Turns at locks of other kinds than mutexes.

use std::time::{Duration, Instant};

use leasehold::{
    Error,
    blocking::{Election, ReadGuard, RwLock, WriteGuard},
};

use super::Thread;
use crate::{
    clock::Chance,
    contender::OtherKind,
    event::{How, Share},
    locks::{ELECTION, PERMITS, RW_LOCK, SEMAPHORE},
    recorder::{Ask, Watched},
};

impl Thread {
    pub(super) fn turn_of_another_kind(&self, kind: OtherKind, chance: &mut Chance) {
        match kind {
            OtherKind::RwLock => self.read_or_write(chance),
            OtherKind::Semaphore => self.take_permits(chance),
            OtherKind::MultiLock => self.take_several(chance),
            OtherKind::Election => self.vote(chance),
        }
    }

    fn read_or_write(&self, chance: &mut Chance) {
        let lock = self.client.rw_lock(RW_LOCK);
        let (how, wait) = self.shared.way(chance);
        // Not the thread's own number: readers between two writers have one token.
        let owner = self.recorder().number();
        let ask = Ask { locks: &[RW_LOCK], owner, how, share: Share::Reads, wait };
        match chance.between(0, 100) {
            0..60 => {
                if let Some((guard, watched)) = self.read(&lock, ask) {
                    self.go_on_reading(&lock, ask, guard, watched, chance);
                }
            }
            other => {
                let ask = Ask { share: Share::Alone, ..ask };
                let Some((guard, watched)) = self.write(&lock, ask) else { return };
                if other < 80 {
                    self.downgrade(&lock, ask, guard, watched, chance);
                } else {
                    let work = self.shared.work_beside_others(chance);
                    self.hold(guard, watched, work, chance);
                }
            }
        }
    }

    fn read(&self, lock: &RwLock, ask: Ask<'_>) -> Option<(ReadGuard, Watched)> {
        let wait = ask.wait.unwrap_or_default();
        self.attempt(ask, || match ask.how {
            How::LockWithTimeout => lock.read_with_timeout(wait).map(Some),
            How::TryLock => lock.try_read(),
            How::TryLockFor => lock.try_read_for(wait),
            _ => lock.read().map(Some),
        })
    }

    fn write(&self, lock: &RwLock, ask: Ask<'_>) -> Option<(WriteGuard, Watched)> {
        let wait = ask.wait.unwrap_or_default();
        self.attempt(ask, || match ask.how {
            How::LockWithTimeout => lock.write_with_timeout(wait).map(Some),
            How::TryLock => lock.try_write(),
            How::TryLockFor => lock.try_write_for(wait),
            _ => lock.write().map(Some),
        })
    }

    /// Whoever reads may read again, whoever waits.
    fn go_on_reading(
        &self,
        lock: &RwLock,
        ask: Ask<'_>,
        outer: ReadGuard,
        watched: Watched,
        chance: &mut Chance,
    ) {
        let ask = Ask { how: How::Lock, share: Share::Reads, wait: None, ..ask };
        let inner = if chance.one_in(3) { self.read(lock, ask) } else { None };
        if let Some((inner, watched_inner)) = inner {
            self.hold(inner, watched_inner, chance.ms(1, 10), chance);
        }
        self.hold(outer, watched, self.shared.work_beside_others(chance), chance);
    }

    /// A writer becomes a reader.
    fn downgrade(
        &self,
        lock: &RwLock,
        ask: Ask<'_>,
        guard: WriteGuard,
        mut watched: Watched,
        chance: &mut Chance,
    ) {
        watched.write(&guard, &self.shared.register);
        let work = self.shared.work_beside_others(chance);
        if self.lost_while_working(&guard, &mut watched, work) {
            return;
        }
        watched.releasing(&guard, How::Downgrade);
        let ask = Ask { how: How::Downgrade, share: Share::Reads, wait: None, ..ask };
        let recorder = self.recorder();
        let op = recorder.asked_for(ask);
        match guard.downgrade() {
            Ok(reader) => {
                let watched_reader = recorder.granted(op, &reader, self.shared.orders.ttl);
                watched.released(&Ok(()));
                self.go_on_reading(lock, ask, reader, watched_reader, chance);
            }
            Err(error) => {
                watched.released(&Err(error.clone()));
                self.refused(op, &error);
            }
        }
    }

    fn take_permits(&self, chance: &mut Chance) {
        let semaphore = self.client.semaphore(SEMAPHORE).with_permits(PERMITS);
        let work = self.shared.work_beside_others(chance);
        let (how, wait) = self.shared.way(chance);
        let many = chance.between(1, u64::from(PERMITS) + 1) as u32;
        let weight = if wait.is_some() { 1 } else { many };
        let share = Share::Permits { weight, all: PERMITS };
        let owner = self.recorder().number();
        let ask = Ask { locks: &[SEMAPHORE], owner, how, share, wait };
        let wait = wait.unwrap_or_default();
        let taken = self.attempt(ask, || match how {
            How::LockWithTimeout => semaphore.acquire_with_timeout(wait).map(Some),
            How::TryLock => semaphore.try_acquire_many(weight),
            How::TryLockFor => semaphore.try_acquire_for(wait),
            _ => semaphore.acquire_many(weight).map(Some),
        });
        let Some((permit, mut watched)) = taken else { return };
        if !chance.one_in(8) {
            return self.hold(permit, watched, work, chance);
        }
        // They come back by themselves.
        if !self.lost_while_working(&permit, &mut watched, work) {
            watched.releasing(&permit, How::Spend);
            permit.spend();
            watched.released(&Ok(()));
        }
    }

    fn take_several(&self, chance: &mut Chance) {
        let names = self.shared.several_names(chance);
        let several = self.client.multi_lock(&names);
        let wait = chance.ms(30, 700);
        let way = chance.between(0, 4);
        let owner = self.recorder().number();
        let limit = (way >= 2).then_some(wait);
        let ask = Ask { locks: &names, owner, how: How::Several, share: Share::Alone, wait: limit };
        let taken = self.attempt(ask, || match way {
            0 => several.lock().map(Some),
            1 => several.try_lock(),
            2 => several.lock_with_timeout(wait).map(Some),
            _ => several.try_lock_for(wait),
        });
        if let Some((guard, watched)) = taken {
            self.hold(guard, watched, self.shared.work(chance), chance);
        }
    }

    fn vote(&self, chance: &mut Chance) {
        let election = self.client.election(ELECTION).with_value("here");
        let owner = self.recorder().number();
        let ask =
            Ask { locks: &[ELECTION], owner, how: How::Lock, share: Share::Alone, wait: None };
        let wait = chance.ms(30, 700);
        let taken = match chance.between(0, 8) {
            0 | 1 => return self.observe(&election, ask, chance),
            2 => {
                let ask = Ask { how: How::LockWithTimeout, wait: Some(wait), ..ask };
                self.attempt(ask, || election.campaign_with_timeout(wait).map(Some))
            }
            _ => self.attempt(ask, || election.campaign().map(Some)),
        };
        let Some((leadership, watched)) = taken else { return };
        if chance.one_in(3) {
            // Whether it was answered or not, the leader knows whether it leads.
            let _ = leadership.proclaim("there");
        }
        self.hold(leadership, watched, self.shared.work(chance), chance);
    }

    /// Writes down who is shown to lead.
    fn observe(&self, election: &Election, ask: Ask<'_>, chance: &mut Chance) {
        let recorder = self.recorder();
        let op = recorder.asked_for(Ask { how: How::Observe, ..ask });
        let mut observer = election.observe();
        let ends_at = Instant::now() + chance.ms(50, 1500);
        while Instant::now() < ends_at {
            match observer.changed_with_timeout(A_MOMENT) {
                Ok(Some(leader)) => recorder.shown(op, leader.term),
                Ok(None) | Err(Error::StillWaiting { .. } | Error::Unavailable { .. }) => {}
                Err(error) => return self.refused(op, &error),
            }
        }
        recorder.dropped(op);
    }
}

/// How long an observer waits for what is new, again and again.
const A_MOMENT: Duration = Duration::from_millis(100);
