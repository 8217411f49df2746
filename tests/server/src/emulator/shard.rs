//! A server's part in a cluster: which slots it owns as far as it knows, and which are on their way.

use std::collections::BTreeMap;

use super::resp::Value;

#[derive(Clone)]
pub struct Shard {
    me: usize,
    masters: usize,
    /// Slots that have another owner than at first.
    moved: BTreeMap<u16, usize>,
    /// Slots on their way, and to or from which server.
    leaving: BTreeMap<u16, usize>,
    coming: BTreeMap<u16, usize>,
    /// The number of the last change that it knows of.
    epoch: u64,
}

impl Shard {
    /// At first each of the masters has as many slots.
    pub fn new(me: usize, masters: usize) -> Self {
        let [moved, leaving, coming] = [(); 3].map(|()| BTreeMap::new());
        Self { me, masters, moved, leaving, coming, epoch: 1 }
    }

    pub fn owns(&self, slot: u16) -> bool {
        self.owner(slot) == self.me
    }

    fn owner(&self, slot: u16) -> usize {
        let at_first = usize::from(slot) * self.masters / SLOTS;
        self.moved.get(&slot).copied().unwrap_or(at_first)
    }

    pub fn leaves(&mut self, slot: u16, to: usize) {
        self.leaving.insert(slot, to);
    }

    pub fn comes(&mut self, slot: u16, from: usize) {
        self.coming.insert(slot, from);
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The slot is the server's `owner` from now on, as far as this one knows.
    pub fn learn(&mut self, slot: u16, owner: usize, epoch: u64) {
        self.moved.insert(slot, owner);
        self.leaving.remove(&slot);
        self.coming.remove(&slot);
        self.epoch = epoch.max(self.epoch);
    }

    /// Why it does not run a command with these keys, if there is a reason. `asking`: the client came because of ASK.
    pub fn refusal(
        &self,
        keys: &[Vec<u8>],
        asking: bool,
        mut is_there: impl FnMut(&[u8]) -> bool,
    ) -> Option<Value> {
        let slot = slot_of(keys.first()?);
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Some(Value::error("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        let to = |verb: &str, node: usize| Value::error(format!("{verb} {slot} node-{node}:6379"));
        let try_again = || Value::error("TRYAGAIN Multiple keys request during rehashing of slot");
        let missing = keys.iter().filter(|key| !is_there(key)).count();
        if self.owns(slot) {
            let target = *self.leaving.get(&slot)?;
            return match missing {
                0 => None,
                some if some < keys.len() => Some(try_again()),
                _ => Some(to("ASK", target)),
            };
        }
        if asking && self.coming.contains_key(&slot) {
            let several = keys.iter().any(|key| *key != keys[0]);
            return (several && missing > 0).then(try_again);
        }
        Some(to("MOVED", self.owner(slot)))
    }

    /// Whether the slot of a key is on its way from or to this server.
    pub fn is_open(&self, key: &[u8]) -> bool {
        let slot = slot_of(key);
        self.leaving.contains_key(&slot) || self.coming.contains_key(&slot)
    }

    /// The answer to CLUSTER SLOTS.
    pub fn slots(&self) -> Value {
        let mut ranges = Vec::new();
        let mut first = 0;
        for slot in 0..SLOTS as u16 {
            let owner = self.owner(slot);
            if usize::from(slot) + 1 == SLOTS || self.owner(slot + 1) != owner {
                let host = Value::bulk(format!("node-{owner}"));
                let server = Value::Array(vec![host, Value::Int(6379), Value::bulk("id")]);
                ranges.push(Value::Array(vec![Value::Int(first), Value::Int(slot.into()), server]));
                first = i64::from(slot) + 1;
            }
        }
        Value::Array(ranges)
    }

    /// The answer to CLUSTER INFO.
    pub fn info(&self) -> String {
        let Self { masters, epoch, .. } = self;
        format!("cluster_state:ok\r\ncluster_size:{masters}\r\ncluster_current_epoch:{epoch}\r\n")
    }
}

/// The slot of a key: that of what stands in its first pair of braces, if there is something.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').map(|at| &key[at + 1..]);
    let tag = tag.and_then(|rest| Some(&rest[..rest.iter().position(|byte| *byte == b'}')?]));
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS as u16
}

const SLOTS: usize = 16384;
