//! Slots of a cluster that move from one server to another, key by key, as an operator's tool moves them.

use leasehold_test::emulator::shard::{Shard, slot_of};

use crate::world::World;

/// A slot on its way.
pub struct Move {
    slot: u16,
    from: usize,
    to: usize,
    /// How long it takes to the next step at most.
    pace_ms: u64,
    next_at: u64,
    next: Step,
}

/// What is done next.
#[derive(Clone, Copy)]
enum Step {
    /// A key is moved, if one is left.
    Key,
    /// Each of them learns that the slot is the target's.
    Target,
    Source,
    Others,
}

impl World {
    /// The nodes become the masters of a cluster.
    pub fn join(&mut self) {
        let masters = self.nodes.len();
        for (me, node) in self.nodes.iter_mut().enumerate() {
            node.server.shard = Some(Shard::new(me, masters));
        }
        self.history.lock().checker.majority = 1;
        self.audit.one_keyspace = true;
    }

    /// The slot of a lock begins to move to another server. `None` if it is there, or moves already.
    pub fn begin_move(&mut self, lock: &[u8], to: usize, pace_ms: u64) -> Option<()> {
        let slot = slot_of(lock);
        let owns = |node: &usize| self.shard(*node).owns(slot);
        let from = (0..self.nodes.len()).find(owns).filter(|from| *from != to)?;
        if self.moves.iter().any(|other| other.slot == slot) {
            return None;
        }
        self.shard_mut(to).comes(slot, from);
        self.shard_mut(from).leaves(slot, to);
        self.history.lock().note(format_args!("slot {slot} goes from n{from} to n{to}"));
        let next_at = self.now + pace_ms;
        self.moves.push(Move { slot, from, to, pace_ms, next_at, next: Step::Key });
        Some(())
    }

    pub fn go_on_moving(&mut self) {
        for mut it in std::mem::take(&mut self.moves) {
            let runs =
                |node: usize| !self.nodes[node].down && self.nodes[node].stopped_until <= self.now;
            if it.next_at > self.now || !runs(it.from) || !runs(it.to) {
                self.moves.push(it);
                continue;
            }
            if let Some(next) = self.step_of(&it) {
                it.next = next;
                it.next_at = self.now + 1 + self.rng.skewed(it.pace_ms);
                self.moves.push(it);
            }
        }
    }

    /// All slots are where they go to, at once.
    pub fn end_moves(&mut self) {
        for mut it in std::mem::take(&mut self.moves) {
            while let Some(next) = self.step_of(&it) {
                it.next = next;
            }
        }
    }

    /// Does one step. Returns the next, or `None` after the last.
    fn step_of(&mut self, it: &Move) -> Option<Step> {
        let Move { slot, from, to, .. } = *it;
        match it.next {
            Step::Key if self.move_key(it) => Some(Step::Key),
            Step::Key => Some(Step::Target),
            Step::Target => {
                let latest = (0..self.nodes.len()).map(|node| self.shard(node).epoch()).max();
                self.shard_mut(to).learn(slot, to, latest.unwrap_or(0) + 1);
                self.history.lock().note(format_args!("slot {slot} is n{to}'s"));
                Some(Step::Source)
            }
            Step::Source => {
                let epoch = self.shard(to).epoch();
                self.shard_mut(from).learn(slot, to, epoch);
                Some(Step::Others)
            }
            Step::Others => {
                let epoch = self.shard(to).epoch();
                for node in (0..self.nodes.len()).filter(|node| ![from, to].contains(node)) {
                    self.shard_mut(node).learn(slot, to, epoch);
                }
                None
            }
        }
    }

    /// Moves any of the slot's keys. Returns false if there is none.
    fn move_key(&mut self, it: &Move) -> bool {
        let (from_us, to_us) = (self.node_us(it.from), self.node_us(it.to));
        let mut names = self.nodes[it.from].server.keys(from_us, |keys| keys.names());
        names.retain(|name| slot_of(name) == it.slot);
        if names.is_empty() {
            return false;
        }
        let name = names.swap_remove(self.rng.below(names.len() as u64) as usize);
        let Some(key) = self.nodes[it.from].server.keys(from_us, |keys| keys.take(&name)) else {
            return false;
        };
        self.nodes[it.to].server.keys(to_us, |keys| keys.put(&name, key));
        true
    }

    fn shard(&self, node: usize) -> &Shard {
        self.nodes[node].server.shard.as_ref().expect("the nodes are a cluster")
    }

    fn shard_mut(&mut self, node: usize) -> &mut Shard {
        self.nodes[node].server.shard.as_mut().expect("the nodes are a cluster")
    }
}
