//! Mutexes that a task takes one under the other, in any order.

use tokio::time::sleep;

use super::Task;
use crate::{
    clock::Chance,
    event::{How, Share},
    recorder::Ask,
};

impl Task {
    /// Takes two or three, and waits for each of them for as long as it takes, mostly.
    pub(super) async fn tangle(&self, chance: &mut Chance) {
        let (owner, number) = (self.client.owner(), self.recorder().number());
        let mut held = Vec::new();
        for name in self.shared.tangled_names(chance) {
            let mutex = self.client.mutex(name).owned_by(&owner);
            let taken = if chance.one_in(3) {
                // It loses interest.
                let (locks, how, share) = (&[name], How::Lock, Share::Alone);
                let ask = Ask { locks, owner: number, how, share, wait: None };
                let lock = async { mutex.lock().await.map(Some) };
                self.attempt(ask, Some(chance.ms(500, 6000)), lock).await
            } else {
                let (how, wait) = self.shared.way_under_another(chance);
                self.acquire(&mutex, number, how, wait).await
            };
            let Some((guard, watched)) = taken else {
                // It works on with what it has: it blocks others, and is not blocked itself.
                if chance.one_in(2) {
                    sleep(chance.ms(0, 3000)).await;
                }
                break;
            };
            self.shared.kept.add(&guard, &watched);
            held.push((guard, watched));
            sleep(chance.ms(0, 200)).await;
            if self.shared.is_over() {
                break;
            }
        }
        while let Some((guard, watched)) = held.pop() {
            self.shared.kept.remove(&guard);
            self.hold(guard, watched, chance.ms(1, 15), chance).await;
        }
    }
}
