//! What those who hold locks wait for, as their clients note it on the servers; and when that proves a deadlock. Pure.
//!
//! A note lies beside a lock. It is about one wait and one hold: the owner of the hold is in that wait. It is made again and
//! again while both go on, each time with a higher number, its beat; and a beat is sent only after the one before was
//! acknowledged.
//!
//! Notes are read one after the other, so a circle of notes proves nothing: each may be over when the next one is read. It is
//! believed if there is a moment T such that each of its notes was read before T, and has beaten twice between a reading that
//! began after T and a later one. That reading saw beat n, so beat n + 1 was not acknowledged before T, and beat n + 2 was sent
//! after T. Then its wait and its hold went on, and they have since before T, because neither comes back once it has ended. So
//! all of them stood at T.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::Deadlocks;
use crate::node::Source;

/// How certain it is that a circle lasts. That of its weakest part counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// A wait has an end, or a lease.
    Passing,
    /// A task may wait for something else at the same time, or its guards may be with another task.
    Likely,
    /// Threads that wait in a call, with guards that cannot leave them.
    Certain,
}

/// What a note says of a wait, and of a hold of the owner that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) certainty: Certainty,
    /// The wait fails if it is to give way in a circle that is as certain as that.
    pub(crate) fails_from: Option<Certainty>,
    /// The token of the hold.
    pub(crate) token: u64,
    /// The lock is held for reading.
    pub(crate) reads: bool,
    /// The owner, as it is shown.
    pub(crate) owner: Arc<str>,
    /// It waits to read.
    pub(crate) wants_to_read: bool,
    /// The lock that it waits for.
    pub(crate) wants: Arc<str>,
}

/// A note as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) id: Arc<str>,
    pub(crate) beat: u64,
    pub(crate) lease: Arc<str>,
    pub(crate) note: Note,
}

impl Certainty {
    /// Returns how certain a circle must be for a wait to fail.
    pub(crate) fn that_fails(reaction: Deadlocks) -> Option<Self> {
        match reaction {
            Deadlocks::Off | Deadlocks::Warn => None,
            Deadlocks::Certain => Some(Self::Certain),
            Deadlocks::Fail => Some(Self::Likely),
        }
    }

    fn digit(self) -> u8 {
        match self {
            Self::Passing => 0,
            Self::Likely => 1,
            Self::Certain => 2,
        }
    }

    fn of_digit(digit: &str) -> Option<Self> {
        [Self::Passing, Self::Likely, Self::Certain]
            .into_iter()
            .find(|it| digit.parse() == Ok(it.digit()))
    }
}

impl Note {
    /// Returns true if the wait fails if it is to give way in a circle that is as certain as that.
    pub(crate) fn fails(&self, certainty: Certainty) -> bool {
        self.fails_from.is_some_and(|from| from <= certainty)
    }

    /// Returns the note as it is written: words, and behind them two names that may contain anything.
    pub(crate) fn text(&self) -> String {
        let Self { certainty, fails_from, token, reads, owner, wants_to_read, wants } = self;
        let fails_from = fails_from.map_or(3, Certainty::digit);
        let [reads, wants_to_read] = [*reads, *wants_to_read].map(u8::from);
        let (certainty, length) = (certainty.digit(), owner.len());
        format!("{certainty} {fails_from} {token} {reads} {wants_to_read} {length} {owner}{wants}")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(7, ' ');
        let mut word = || words.next();
        let (certainty, fails_from) = (Certainty::of_digit(word()?)?, Certainty::of_digit(word()?));
        let token = word()?.parse().ok()?;
        let (reads, wants_to_read) = (word()? == "1", word()? == "1");
        let length: usize = word()?.parse().ok()?;
        let (owner, wants) = word()?.split_at_checked(length)?;
        let (owner, wants) = (owner.into(), wants.into());
        Some(Self { certainty, fails_from, token, reads, owner, wants_to_read, wants })
    }
}

impl Read {
    /// Reads a note as a server tells it: the millisecond of its end, the beat, the lease, and the note.
    pub(crate) fn parse(id: &str, text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ').skip(1);
        let beat = words.next()?.parse().ok()?;
        let lease = words.next()?.into();
        Some(Self { id: id.into(), beat, lease, note: Note::parse(words.next()?)? })
    }
}

/// One part of a circle: a note, and the lock that it lies beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) lock: Arc<str>,
    pub(crate) read: Read,
}

/// A circle of notes, from a wait on: the first part holds what that wait waits for, and the last one is a note of that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    pub(crate) parts: Vec<Part>,
    /// It stood once, all of it.
    pub(crate) is_proved: bool,
}

impl Circle {
    pub(crate) fn certainty(&self) -> Certainty {
        let all = self.parts.iter().map(|part| part.read.note.certainty);
        all.min().unwrap_or(Certainty::Passing)
    }

    /// Returns the note whose wait is to give way. All who find the circle agree on it: one that fails, if there is one, and of
    /// those the one whose hold is the youngest.
    pub(crate) fn gives_way(&self) -> Option<&Read> {
        let certainty = self.certainty();
        let reads = self.parts.iter().map(|part| &part.read);
        reads.max_by_key(|read| (read.note.fails(certainty), read.note.token, read.id.clone()))
    }
}

/// A wait for which circles are looked for.
pub(crate) struct Seeker<'a> {
    /// The lock that it waits for.
    pub(crate) wants: &'a Arc<str>,
    pub(crate) wants_to_read: bool,
    /// Its own notes, one for each lock that its owner holds.
    pub(crate) own: &'a [Arc<str>],
    /// What the ids of all notes of its process begin with. A circle inside it was told already.
    pub(crate) process: &'a str,
}

/// What was read, pass by pass. In a pass each lock is read once.
#[derive(Default)]
pub(crate) struct Readings {
    pass: u64,
    latest: HashMap<Arc<str>, Latest>,
}

/// What was read of one lock.
struct Latest {
    pass: u64,
    /// The server, if there is only one: what another one says is not a later state of the same notes.
    source: Option<Source>,
    notes: Vec<Seen>,
}

struct Seen {
    read: Read,
    /// The first beat that was read, and the last ones, each with the first pass that read it.
    beats: Vec<(u64, u64)>,
}

impl Readings {
    /// A pass begins, after the end of the one before.
    pub(crate) fn begin(&mut self) {
        self.pass += 1;
    }

    /// Takes in the notes beside a lock.
    pub(crate) fn take_in(&mut self, lock: &Arc<str>, source: Option<Source>, reads: Vec<Read>) {
        let mut before = self.latest.remove(lock).filter(|latest| latest.source == source);
        let pass = self.pass;
        let seen = |read: Read| {
            let known = before.as_mut().and_then(|latest| {
                let at = latest.notes.iter().position(|seen| seen.read.id == read.id)?;
                Some(latest.notes.swap_remove(at))
            });
            let mut beats = known.map(|known| known.beats).unwrap_or_default();
            if beats.last().is_none_or(|(_, beat)| *beat < read.beat) {
                beats.push((pass, read.beat));
            }
            // Two later beats are kept, so a proof that would have counted from the one removed holds from the first as well.
            if beats.len() > MOST_BEATS {
                beats.remove(1);
            }
            Seen { read, beats }
        };
        let notes = reads.into_iter().map(seen).collect();
        self.latest.insert(lock.clone(), Latest { pass, source, notes });
    }

    /// Returns the locks that are waited for by what was read in this pass, and were not read in it.
    pub(crate) fn unread(&self) -> Vec<Arc<str>> {
        let current = self.latest.values().filter(|latest| latest.pass == self.pass);
        let wanted = current.flat_map(|latest| &latest.notes).map(|seen| &seen.read.note.wants);
        let unread: HashSet<_> = wanted
            .filter(|lock| self.latest.get(*lock).is_none_or(|latest| latest.pass < self.pass))
            .collect();
        let mut unread: Vec<_> = unread.into_iter().cloned().collect();
        unread.sort_unstable();
        unread
    }

    /// Returns all notes that were read in the last pass, each with the lock that it lies beside.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Read)> {
        let latest = self.latest.iter();
        latest.flat_map(|(lock, it)| it.notes.iter().map(move |seen| (lock, &seen.read)))
    }

    /// A pass has ended: what was not read in it is known no more.
    pub(crate) fn end(&mut self) {
        self.latest.retain(|_, latest| latest.pass == self.pass);
    }

    /// Looks for a circle through a wait, the most certain one.
    pub(crate) fn circle(&self, seeker: &Seeker<'_>) -> Option<Circle> {
        let all = [Certainty::Certain, Certainty::Likely, Certainty::Passing].into_iter();
        let found = all.map(|least| self.circle_of(seeker, least)).find(Option::is_some)??;
        let parts = found
            .iter()
            .map(|(lock, seen)| Part { lock: (*lock).clone(), read: seen.read.clone() });
        Some(Circle { parts: parts.collect(), is_proved: is_proved(&found) })
    }

    fn circle_of(&self, seeker: &Seeker<'_>, least: Certainty) -> Option<Vec<(&Arc<str>, &Seen)>> {
        let mut visited = HashSet::new();
        let mut path: Vec<(&Arc<str>, &Seen)> = Vec::new();
        let mut branches = vec![self.holders(seeker.wants, seeker.wants_to_read)];
        while let Some(branch) = branches.last_mut() {
            let Some((lock, seen)) = branch.next() else {
                branches.pop();
                path.pop();
                continue;
            };
            let is_foreign = |seen: &Seen| !seen.read.id.starts_with(seeker.process);
            let leaves = is_foreign(seen) || path.iter().any(|(_, seen)| is_foreign(seen));
            if seen.read.note.certainty < least
                || path.len() >= MOST_PARTS
                || !visited.insert((&seen.read.id, leaves))
            {
                continue;
            }
            path.push((lock, seen));
            if seeker.own.contains(&seen.read.id) {
                if leaves {
                    return Some(path);
                }
                path.pop();
                continue;
            }
            branches.push(self.holders(&seen.read.note.wants, seen.read.note.wants_to_read));
        }
        None
    }

    /// Returns those who hold a lock, and are in the way of one who wants it. Readers are in no reader's way.
    fn holders(
        &self,
        lock: &Arc<str>,
        to_read: bool,
    ) -> impl Iterator<Item = (&Arc<str>, &Seen)> + use<'_> {
        let latest = self.latest.get_key_value(lock);
        let all =
            latest.into_iter().flat_map(|(lock, it)| it.notes.iter().map(move |it| (lock, it)));
        all.filter(move |(_, seen)| !(to_read && seen.read.note.reads))
    }
}

/// T is the end of the pass by which all were read.
fn is_proved(circle: &[(&Arc<str>, &Seen)]) -> bool {
    let first = |seen: &Seen| seen.beats.first().map(|(pass, _)| *pass);
    let Some(by) = circle.iter().filter_map(|(_, seen)| first(seen)).max() else { return false };
    circle.iter().all(|(_, seen)| {
        // What the pass after that read, or none: nothing was read since.
        let (before, after): (Vec<_>, Vec<_>) =
            seen.beats.iter().partition(|(pass, _)| *pass <= by + 1);
        let base = before.last().map(|(_, beat)| *beat);
        let last = after.last().map(|(_, beat)| *beat);
        matches!((base, last), (Some(base), Some(last)) if last >= base + BEATS)
    })
}

/// So many beats after a reading prove that the wait went on.
const BEATS: u64 = 2;
/// So many beats of a note are kept: the first, and as many of the last ones as a proof needs.
const MOST_BEATS: usize = 1 + BEATS as usize;
/// A longer circle is not looked for.
const MOST_PARTS: usize = 64;
