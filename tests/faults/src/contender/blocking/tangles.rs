//! Mutexes that a thread takes one under the other, in any order.

use std::thread::sleep;

use super::Thread;
use crate::clock::Chance;

impl Thread {
    /// Takes two or three, and waits for each of them for as long as it takes, mostly.
    pub(super) fn tangle(&self, chance: &mut Chance) {
        let mut held = Vec::new();
        for name in self.shared.tangled_names(chance) {
            let (how, wait) = self.shared.way_under_another(chance);
            let mutex = self.client.mutex(name);
            let Some((guard, watched)) = self.acquire(&mutex, how, wait) else {
                // It works on with what it has: it blocks others, and is not blocked itself.
                if chance.one_in(2) {
                    sleep(chance.ms(0, 3000));
                }
                break;
            };
            self.shared.kept.add(&guard, &watched);
            held.push((guard, watched));
            sleep(chance.ms(0, 200));
            if self.shared.is_over() {
                break;
            }
        }
        while let Some((guard, watched)) = held.pop() {
            self.shared.kept.remove(&guard);
            self.hold(guard, watched, chance.ms(1, 15), chance);
        }
    }
}
