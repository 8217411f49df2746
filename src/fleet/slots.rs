//! Which master of a cluster keeps which keys: slots, and the map of their owners. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::node::Owned;
use crate::script::Reply;

/// How many slots a cluster has.
const SLOTS: usize = 16384;

/// Returns the slot of a key. A key with a hash tag has the slot of that tag, which is what stands between its first `{`
/// and the next `}`.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) % SLOTS as u16
}

/// Returns a hash tag of a slot.
pub(super) fn tag_of(slot: u16) -> String {
    let is_its = |number: &u32| {
        // The digits as in the text: no text is made for the thousands that are tried.
        let digits = (8 - number.leading_zeros() / 4).max(1);
        let nibbles = (0..digits).rev().map(|place| (number >> (4 * place)) & 0xf);
        let digits = nibbles.map(|nibble| b"0123456789abcdef"[nibble as usize]);
        digits.fold(0, crc_after) % SLOTS as u16 == slot
    };
    let number = (0..=u32::MAX).find(is_its).expect("BUG: a slot without a tag");
    format!("{number:x}")
}

/// CRC16 as XMODEM has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().copied().fold(0, crc_after)
}

fn crc_after(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ CRC_OF[usize::from((crc >> 8) as u8 ^ byte)]
}

/// What each value of the first byte adds to the rest.
const CRC_OF: [u16; 256] = {
    let mut all = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        all[byte] = crc;
        byte += 1;
    }
    all
};

/// Where a node of a cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Location {
    /// Reads `host:port` as it stands in MOVED and ASK. Without a host, it is the one of the node that answered, `from`.
    /// `None`: that node does not know it.
    pub(crate) fn of_redirect(text: &str, from: &Location) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, from)
    }

    fn of(host: &str, port: u16, from: &Location) -> Option<Self> {
        let host = match host {
            "" => from.host.clone(),
            "?" => return None,
            host => host.into(),
        };
        (port != 0).then_some(Self { host, port })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Which master owns each slot.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotMap {
    masters: Vec<Location>,
    /// By slot: the place of its owner in `masters`, or [`NOBODY`].
    owners: Vec<u16>,
}

const NOBODY: u16 = u16::MAX;
/// Those of a slot's number in 16 bits.
const UNUSED_BITS: u32 = 2;
/// In how many of its slots a server's mark is.
const TAGS: usize = 3;

impl Default for SlotMap {
    fn default() -> Self {
        Self { masters: Vec::new(), owners: vec![NOBODY; SLOTS] }
    }
}

impl SlotMap {
    /// Reads the reply of the node at `from` to CLUSTER SLOTS: a list of ranges, each with its first and last slot, its
    /// master and then the replicas. A server is a list that begins with its host and its port.
    pub(crate) fn read(reply: &Reply, from: &Location) -> Option<Self> {
        let mut map = Self::default();
        // Before Redis 7, each node has an order of its own. In that of the slots, maps of several nodes can be compared.
        let mut ranges: Vec<&Reply> = reply.list()?.iter().collect();
        ranges.sort_by_key(|range| range.list().and_then(|range| range.first()?.number()));
        for range in ranges {
            let [first, last, master, ..] = range.list()? else { return None };
            let [host, port, ..] = master.list()? else { return None };
            let slots =
                usize::try_from(first.number()?).ok()?..=usize::try_from(last.number()?).ok()?;
            let host = match host {
                Reply::Nil => "",
                host => host.text()?,
            };
            map.owners.get(slots.clone())?;
            let Some(location) = Location::of(host, port.number()?.try_into().ok()?, from) else {
                continue;
            };
            let place = map.place_of(&location);
            map.owners[slots].fill(place);
        }
        Some(map)
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<&Location> {
        self.masters.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// Returns the ranges of a master's slots.
    pub(crate) fn ranges_of(&self, location: &Location) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        let Some(place) = self.masters.iter().position(|known| known == location) else {
            return ranges;
        };
        let places = self.owners.iter().zip(0..);
        for (_, slot) in places.filter(|(owner, _)| usize::from(**owner) == place) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }

    /// Returns a master's slots, and tags of some of them.
    pub(crate) fn owned_by(&self, location: &Location) -> Owned {
        let is_owned = |slot: &u16| self.owner(*slot) == Some(location);
        // In an order in which neighbours are far apart: slots are moved by the range.
        let scattered = (0..SLOTS as u16).map(|number| number.reverse_bits() >> UNUSED_BITS);
        let tags = scattered.filter(is_owned).take(TAGS).map(tag_of).collect();
        Owned { ranges: self.ranges_of(location), tags }
    }

    /// Returns the masters that own a slot.
    pub(crate) fn masters(&self) -> BTreeSet<&Location> {
        let places: BTreeSet<u16> = self.owners.iter().copied().collect();
        places.into_iter().filter_map(|place| self.masters.get(usize::from(place))).collect()
    }

    /// Returns true if every slot has an owner.
    pub(crate) fn is_covered(&self) -> bool {
        !self.owners.contains(&NOBODY)
    }

    /// A node said that this slot is at `location`. Returns true if that is news.
    pub(crate) fn learn(&mut self, slot: u16, location: &Location) -> bool {
        if self.owner(slot) == Some(location) || usize::from(slot) >= SLOTS {
            return false;
        }
        self.owners[usize::from(slot)] = self.place_of(location);
        true
    }

    /// Returns the place of a master, which is put there if it is new.
    fn place_of(&mut self, location: &Location) -> u16 {
        if let Some(place) = self.masters.iter().position(|known| known == location) {
            return place as u16;
        }
        if self.masters.len() <= SLOTS {
            self.masters.push(location.clone());
            return (self.masters.len() - 1) as u16;
        }
        // Redirects may name any number of masters. Here are more than there are slots, so one of them owns none.
        let used: BTreeSet<u16> = self.owners.iter().copied().collect();
        let unused = (0..NOBODY).find(|place| !used.contains(place));
        let unused = unused.expect("BUG: more owners than slots");
        self.masters[usize::from(unused)] = location.clone();
        unused
    }

    /// Takes in a newer map. A slot that has no owner now keeps the last one, which may come back. Returns true if a
    /// slot has another owner.
    pub(crate) fn renew(&mut self, newer: &Self) -> bool {
        let mut renewed = newer.clone();
        let mut changed = false;
        for slot in 0..SLOTS as u16 {
            match (self.owner(slot), newer.owner(slot)) {
                (Some(before), None) => drop(renewed.learn(slot, before)),
                (before, now) => changed |= before != now,
            }
        }
        *self = renewed;
        changed
    }
}

/// What one node says about the cluster.
pub(crate) struct View {
    pub(crate) map: SlotMap,
    /// It finds the cluster in order.
    pub(crate) is_ok: bool,
    /// The number of the last change that it knows of; zero if it does not say.
    pub(crate) epoch: u64,
}

/// The latest change of the cluster that a node knew of which found it in order.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    epoch: u64,
    heard_at: Timestamp,
}

impl Latest {
    /// Chooses the view to follow of those that were heard at `now`: one of a node that finds the cluster in order rather than
    /// another's, then the one with the most recent change, then the one that most have. A node that is cut off, or whose answer
    /// comes late, does not know of the changes since, so none is followed that is behind an earlier one.
    pub(crate) fn choose<'a>(&mut self, views: &'a [View], now: Timestamp) -> Option<&'a View> {
        let agreeing = |view: &View| views.iter().filter(|other| other.map == view.map).count();
        let lasts = now.since(self.heard_at) < LASTS;
        let current = views.iter().filter(|view| view.epoch >= self.epoch || !lasts);
        let best = current.max_by_key(|view| (view.is_ok, view.epoch, agreeing(view)))?;
        if best.is_ok {
            *self = Self { epoch: best.epoch, heard_at: now };
        }
        Some(best)
    }
}

/// If nobody has named a change for this long, it is forgotten: a cluster that was made anew counts from the start. With the
/// default `cluster-node-timeout`, a master that is cut off stops earlier.
const LASTS: Duration = Duration::from_secs(30);

#[cfg(test)]
impl fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.masters()).finish()
    }
}

#[cfg(test)]
mod tests;
