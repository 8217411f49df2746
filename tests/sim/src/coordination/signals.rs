//! What is known of signals and of groups of them. Pure: each notification makes a higher number once, and nobody misses one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Forgotten;

/// A signal.
#[derive(Default)]
pub struct Signals {
    /// What processes have asked for, until a server did it.
    asked: BTreeSet<Vec<u8>>,
    /// What a server did: the numbers, and the data of each.
    given: BTreeMap<u64, Vec<u8>>,
    /// What a server did and has forgotten.
    gone: BTreeMap<u64, Vec<u8>>,
    forgotten: Forgotten,
}

impl Signals {
    pub fn notifying(&mut self, data: &[u8]) {
        self.asked.insert(data.to_vec());
    }

    /// A server ran it.
    pub fn given(&mut self, number: u64, data: &[u8]) -> Result<(), String> {
        let newest = self.newest();
        self.given.insert(number, data.to_vec());
        if number <= newest {
            return Err(format!("the number {number} comes behind {newest}"));
        }
        match self.asked.remove(data) {
            true => Ok(()),
            false => Err(format!("{:?} is signalled again", String::from_utf8_lossy(data))),
        }
    }

    /// Its process was told that it was done.
    pub fn notified(&self, data: &[u8]) -> Result<(), String> {
        match self.given.values().chain(self.gone.values()).any(|given| given == data) {
            true => Ok(()),
            false => Err(format!("{:?} was not signalled", String::from_utf8_lossy(data))),
        }
    }

    pub fn newest(&self) -> u64 {
        self.given.keys().next_back().copied().unwrap_or(0)
    }

    /// A server has forgotten the last that it did, and has this number now; 0: none.
    pub fn forgot(&mut self, number: u64, now: u64) {
        self.forgotten.at(now);
        self.gone.append(&mut self.given.split_off(&(number + 1)));
        if let Some(data) = self.gone.remove(&number) {
            self.given.insert(number, data);
        }
        if number == 0 {
            self.gone.append(&mut self.given);
        }
    }

    /// Somebody who began to look at `asked_at`, when `since` was the newest number, was shown this one, perhaps with data.
    pub fn shown(
        &self,
        since: u64,
        number: u64,
        data: Option<&[u8]>,
        asked_at: u64,
    ) -> Result<(), String> {
        let forgot = self.forgotten.since(asked_at);
        if number < since && !forgot {
            return Err(format!("{number} is shown after {since}"));
        }
        let gone = self.gone.get(&number).filter(|_| forgot);
        let given = self.given.get(&number).or(gone);
        if given.is_none() && number > 0 {
            return Err(format!("nobody has signalled {number}"));
        }
        match (data, given) {
            (Some(data), Some(given)) if data != given => {
                Err(format!("{number} has the data of another"))
            }
            _ => Ok(()),
        }
    }

    /// Nobody asks for older ones.
    pub fn forget_old(&mut self, most: usize) {
        while self.given.len() > most {
            self.given.pop_first();
        }
        while self.gone.len() > most {
            self.gone.pop_first();
        }
    }
}

/// A group of signals.
#[derive(Default)]
pub struct Groups {
    /// The last number of each name.
    last: BTreeMap<String, u64>,
    newest: u64,
    /// Names up to this number may be missing.
    floor: u64,
    forgotten: Forgotten,
}

impl Groups {
    /// A server ran it.
    pub fn given(&mut self, number: u64, names: &[String]) -> Result<(), String> {
        let before = self.newest;
        self.newest = number;
        if before == 0 {
            self.floor = number - 1;
        }
        self.last.extend(names.iter().map(|name| (name.clone(), number)));
        match number > before {
            true => Ok(()),
            false => Err(format!("the number {number} comes behind {before}")),
        }
    }

    /// A server said that this is the last number.
    pub fn read(&mut self, number: u64) -> Result<(), String> {
        let before = self.newest;
        self.newest = number;
        if before == 0 {
            self.floor = number;
        }
        match number >= before {
            true => Ok(()),
            false => Err(format!("the number is {number}, and was {before}")),
        }
    }

    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// A server has forgotten the last that it did, and has these names now, with an empty one for the floor; or none.
    pub fn forgot(&mut self, mut names: BTreeMap<String, u64>, now: u64) {
        self.forgotten.at(now);
        self.newest = names.values().max().copied().unwrap_or(0);
        self.floor = names.remove("").unwrap_or(0);
        self.last = names;
    }

    /// Whether an answer to what was asked at `asked_at` may come from before the server forgot something.
    pub fn forgot_since(&self, asked_at: u64) -> bool {
        self.forgotten.since(asked_at)
    }

    /// Whether somebody who knew `seen` and was shown `number` may have missed something.
    pub fn may_be_missed(&self, seen: u64, number: u64) -> bool {
        seen > number || seen < self.floor
    }

    /// The names that were signalled after `seen`.
    pub fn after(&self, seen: u64) -> BTreeSet<String> {
        let after = self.last.iter().filter(|(_, number)| **number > seen);
        after.map(|(name, _)| name.clone()).collect()
    }

    /// Somebody who knew `seen`, and began to look when these `names` were signalled after that, was shown this.
    pub fn shown(
        &self,
        seen: u64,
        names: &BTreeSet<String>,
        number: u64,
        shown: &[Arc<str>],
    ) -> Result<(), String> {
        let shown: BTreeSet<String> = shown.iter().map(|name| String::from(&**name)).collect();
        if let Some(missing) = names.difference(&shown).next() {
            return Err(format!("{missing} was signalled after {seen}, and is not shown"));
        }
        if let Some(odd) = shown.difference(&self.after(seen)).next() {
            return Err(format!("{odd} is shown, and was not signalled after {seen}"));
        }
        let missed = self
            .last
            .iter()
            .find(|(name, last)| **last > seen && **last <= number && !shown.contains(*name));
        match missed {
            Some((name, last)) => Err(format!("{number} is shown without {name}, of {last}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_shown_with_its_data_and_no_older_one() {
        let mut signals = Signals::default();
        for (number, data) in [(5, b"a"), (7, b"b")] {
            signals.notifying(data);
            assert!(signals.notified(data).is_err(), "not yet");
            signals.given(number, data).expect("once");
            signals.notified(data).expect("it was");
        }
        assert!(signals.given(9, b"b").is_err(), "it ran twice");
        signals.notifying(b"c");
        assert!(signals.given(8, b"c").is_err(), "a lower number");
        signals.shown(5, 7, Some(b"b"), 0).expect("the newest");
        assert!(signals.shown(5, 7, Some(b"a"), 0).is_err(), "the data of another");
        assert!(signals.shown(7, 5, None, 0).is_err(), "an older one");
        assert!(signals.shown(5, 6, None, 0).is_err(), "nobody gave it");
        assert!(signals.shown(0, 0, None, 0).is_ok(), "at first there is none");
    }

    #[test]
    fn a_listener_is_shown_every_name_that_was_signalled_after_what_it_has_seen() {
        let mut group = Groups::default();
        group.read(3).expect("at first");
        group.given(5, &["a".to_owned()]).expect("higher");
        group.given(7, &["b".to_owned()]).expect("higher");
        assert!(group.read(6).is_err());
        group.read(7).expect("the last");
        let names = |all: &[&str]| all.iter().map(|name| Arc::from(*name)).collect::<Vec<_>>();
        let at_first = group.after(4);
        group.shown(4, &at_first, 7, &names(&["a", "b"])).expect("both");
        assert!(group.shown(4, &at_first, 7, &names(&["b"])).is_err(), "a is missing");
        assert!(group.shown(5, &group.after(5), 7, &names(&["a", "b"])).is_err(), "a was seen");
        assert!(group.shown(5, &BTreeSet::new(), 7, &[]).is_err(), "b is in what was read");
    }
}
