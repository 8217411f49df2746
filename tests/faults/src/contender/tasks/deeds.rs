//! What operators do to locks that others use: they force holds to end, and change how many permits there are.

use leasehold::{Error, Permit, RwLock, Semaphore};

use super::Task;
use crate::{
    clock::{Chance, now},
    event::{Deed, How, Share, What},
    locks::{PERMITS, RW_LOCK, SEATS, SEMAPHORE},
    recorder::{Ask, Watched},
};

impl Task {
    /// Ends the part of one who reads or writes, or frees the lock whoever has it.
    pub(super) async fn free(&self, lock: &RwLock, chance: &mut Chance) {
        if chance.one_in(6) {
            self.does(RW_LOCK, Deed::ForceOut(None), lock.force_unlock()).await;
            return;
        }
        let Ok(status) = lock.status().await else { return };
        let holders: Vec<_> = status.readers.into_iter().chain(status.holder).collect();
        if !holders.is_empty() {
            let holder = chance.pick(&holders);
            let deed = Deed::ForceOut(Some(holder.as_str().to_owned()));
            self.does(RW_LOCK, deed, lock.force_unlock_if(holder)).await;
        }
    }

    /// Takes back the permits of one who has some.
    pub(super) async fn take_back(&self, semaphore: &Semaphore, chance: &mut Chance) {
        let Ok(status) = semaphore.status().await else { return };
        if !status.holders.is_empty() {
            let holder = chance.pick(&status.holders);
            let deed = Deed::ForceOut(Some(holder.holder.as_str().to_owned()));
            self.does(SEMAPHORE, deed, semaphore.force_release(holder)).await;
        }
    }

    /// Takes a seat or several, or adds one, takes one and forgets it, or sets their number back. They may be fewer than at
    /// first if the server loses its data meanwhile, so nobody waits for them without a limit.
    pub(super) async fn sit_down(&self, chance: &mut Chance) {
        let seats = self.client.semaphore(SEATS).with_permits(PERMITS);
        self.take_seats(&seats, chance).await;
        let from = now();
        if let Ok(status) = seats.status().await {
            let permits = status.permits();
            self.recorder().journal.write(What::Seen { lock: SEATS.to_owned(), from, permits });
        }
    }

    async fn take_seats(&self, seats: &Semaphore, chance: &mut Chance) {
        let owner = self.recorder().number();
        let work = self.shared.work_beside_others(chance);
        match chance.between(0, 10) {
            0 => {
                let set = async { seats.set_permits(PERMITS).await.map(|()| true) };
                self.does_as(owner, SEATS, Deed::SetBack, set).await;
            }
            1..5 => {
                let add = async { seats.add_permits(1).await.map(|()| true) };
                if self.does_as(owner, SEATS, Deed::Add(1), add).await
                    && let Some((permit, mut watched)) = self.sit(seats, owner, 1, chance).await
                    && !self.lost_while_working(&permit, &mut watched, work).await
                {
                    watched.releasing(&permit, How::Forget);
                    watched.released(&permit.forget().await);
                }
            }
            _ => {
                let weight = chance.between(1, u64::from(PERMITS) + 1) as u32;
                if let Some((permit, watched)) = self.sit(seats, owner, weight, chance).await {
                    self.hold(permit, watched, work, chance).await;
                }
            }
        }
    }

    async fn sit(
        &self,
        seats: &Semaphore,
        owner: u64,
        weight: u32,
        chance: &mut Chance,
    ) -> Option<(Permit, Watched)> {
        let share = Share::Permits { weight, all: PERMITS };
        let ask = Ask { locks: &[SEATS], owner, how: How::Lock, share, wait: None };
        let acquire = async { seats.acquire_many(weight).await.map(Some) };
        self.attempt(ask, Some(chance.ms(30, 700)), acquire).await
    }

    async fn does(
        &self,
        lock: &str,
        deed: Deed,
        call: impl Future<Output = Result<bool, Error>>,
    ) -> bool {
        self.does_as(self.recorder().number(), lock, deed, call).await
    }

    /// Makes an operator's call, and writes down what came of it. Returns true if it was done.
    async fn does_as(
        &self,
        owner: u64,
        lock: &str,
        deed: Deed,
        call: impl Future<Output = Result<bool, Error>>,
    ) -> bool {
        let op = self.recorder().does(lock, owner, deed);
        let answer = call.await;
        self.recorder().done(op, &answer);
        answer.is_ok_and(|done| done)
    }
}
