//! What the Sentinels say, and which of them is believed. Pure: it takes the time as an argument and asks nothing.
//!
//! Each failover has a number, the *epoch* of the master's configuration. A Sentinel that knows of no later failover names
//! an old master, in good faith.
//!
//! * A higher epoch wins, from whichever Sentinel, once.
//! * A user may be allowed to ask for the address only, without its epoch. Then a Sentinel that names another master than
//!   before knows something new, and one that still names the same does not.
//! * If nothing is known yet, and there are no epochs, more voices win.
//! * An epoch can start again from zero: somebody removed the master from the Sentinels, and added another by that name.
//!   Then the lower epoch wins, once no Sentinel names the old one any more.
//!
//! In a failover, some of them name the old master for a few seconds. If those that answer differ for longer, one of them
//! watches another deployment by the same name, or is cut off from the others. The rules above stay as they are, but users are
//! told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::text::Printable;

/// A server's address in the words of a Sentinel, before it is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Announced {
    /// Returns `None` if that is no address.
    pub(super) fn read(host: &str, port: i64) -> Option<Self> {
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "/@?#".contains(c);
        let usable = !host.is_empty() && host.len() <= LONGEST_HOST && !host.contains(is_odd);
        let port = u16::try_from(port).ok().filter(|port| *port > 0 && usable)?;
        Some(Self { host: host.into(), port })
    }
}

impl fmt::Display for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = Printable(&self.host);
        match self.host.contains(':') {
            true => write!(f, "[{host}]:{}", self.port),
            false => write!(f, "{host}:{}", self.port),
        }
    }
}

/// What all Sentinels of a master said last, and the conclusion.
#[derive(Debug)]
pub(super) struct Views {
    /// `None` for one that has not answered yet.
    views: Vec<Option<View>>,
    chosen: Option<Chosen>,
    /// How often a Sentinel has named another master than before.
    changes: u64,
    /// It said itself that it is a replica.
    replica: Option<Announced>,
    /// `None` if those that answer name one server.
    dispute: Option<Dispute>,
}

/// Sentinels name different servers.
#[derive(Debug)]
struct Dispute {
    since: Timestamp,
    /// It has lasted, and that was reported.
    is_reported: bool,
}

/// What one Sentinel said last.
#[derive(Debug)]
struct View {
    at: Announced,
    /// `None` if the user may not ask for it.
    epoch: Option<u64>,
    /// The server's run, if it is known: one server may have two addresses.
    run: Option<Arc<str>>,
    /// The number of the change by which it came to say so; zero if it never said otherwise.
    change: u64,
    heard_at: Timestamp,
}

/// The master that is believed in.
#[derive(Debug)]
struct Chosen {
    at: Announced,
    /// The highest epoch in which a Sentinel named it.
    epoch: Option<u64>,
    /// How many changes had been heard by then.
    changes: u64,
}

impl Views {
    pub(super) fn of(sentinels: usize) -> Self {
        let views = (0..sentinels).map(|_| None).collect();
        Self { views, chosen: None, changes: 0, replica: None, dispute: None }
    }

    /// Returns the master that is believed in.
    pub(super) fn chosen(&self) -> Option<&Announced> {
        self.chosen.as_ref().map(|chosen| &chosen.at)
    }

    /// Returns true if the Sentinel `index` has ever named a master.
    pub(super) fn is_known(&self, index: usize) -> bool {
        self.views[index].is_some()
    }

    /// The Sentinel `index` answered that the master is `at`, in `epoch` or a later one. `run` is that server's, if known.
    pub(super) fn told(
        &mut self,
        index: usize,
        at: Announced,
        epoch: Option<u64>,
        run: Option<Arc<str>>,
        now: Timestamp,
    ) {
        let before = self.views[index].as_ref();
        let change = match before {
            Some(before) if before.at != at => {
                self.changes += 1;
                self.changes
            }
            Some(before) => before.change,
            None => 0,
        };
        if let Some(chosen) = self.chosen.as_mut().filter(|chosen| chosen.at == at) {
            chosen.epoch = chosen.epoch.max(epoch);
        }
        self.views[index] = Some(View { at, epoch, run, change, heard_at: now });
        if !differ(self.fresh()) {
            self.dispute = None;
        } else if self.dispute.is_none() {
            self.dispute = Some(Dispute { since: now, is_reported: false });
        }
    }

    /// The Sentinel `index` reported by itself that the master is no longer `from` but `to`.
    ///
    /// The message has no epoch, but the failover from the master that is believed in is certainly a later one than its.
    /// What else it may mean is left to the Sentinel's answer to a question.
    pub(super) fn switched(
        &mut self,
        index: usize,
        from: &Announced,
        to: Announced,
        now: Timestamp,
    ) {
        if let Some(chosen) = self.chosen.as_ref().filter(|chosen| chosen.at == *from) {
            let epoch = chosen.epoch.map(|epoch| epoch + 1);
            self.told(index, to, epoch, None, now);
        }
    }

    /// The server at `at` said itself that it is a replica.
    pub(super) fn is_replica(&mut self, at: &Announced) {
        self.replica = Some(at.clone());
    }

    /// Returns true if Sentinels that answer have named different servers for longer than a failover lasts.
    pub(super) fn disagree(&self, now: Timestamp) -> bool {
        let Some(dispute) = &self.dispute else { return false };
        let lasting_at = dispute.since.plus(LASTING);
        // One that has fallen silent since then might name another server by now.
        differ(self.answering(now).map(|(_, view)| view).filter(|view| view.heard_at >= lasting_at))
    }

    /// Returns true if they [`disagree`](Self::disagree), and this was not reported yet.
    pub(super) fn must_report(&mut self, now: Timestamp) -> bool {
        let disagree = self.disagree(now);
        let new = self.dispute.as_mut().filter(|dispute| disagree && !dispute.is_reported);
        new.map(|dispute| dispute.is_reported = true).is_some()
    }

    /// Returns the Sentinels that answer, each with the server that it names.
    pub(super) fn named(&self, now: Timestamp) -> impl Iterator<Item = (usize, &Announced)> {
        self.answering(now).map(|(index, view)| (index, &view.at))
    }

    fn answering(&self, now: Timestamp) -> impl Iterator<Item = (usize, &View)> {
        let known = self.views.iter().enumerate();
        let known = known.filter_map(|(index, view)| Some((index, view.as_ref()?)));
        known.filter(move |(_, view)| now.since(view.heard_at) < LASTS)
    }

    /// Returns the master that [`choose`](Self::choose) would choose.
    pub(super) fn better(&self) -> Option<&Announced> {
        self.best().map(|best| &best.at)
    }

    /// Draws the conclusion. Returns the master if it is another one than before.
    pub(super) fn choose(&mut self) -> Option<&Announced> {
        let best = self.best()?;
        let chosen = Chosen { at: best.at.clone(), epoch: best.epoch, changes: self.changes };
        self.replica = None;
        Some(&self.chosen.insert(chosen).at)
    }

    /// Returns the view that is better than the master that is believed in.
    fn best(&self) -> Option<&View> {
        let best = self.fresh().rev().max_by_key(|view| self.rank(view))?;
        let Some(chosen) = &self.chosen else { return Some(best) };
        if best.at == chosen.at {
            return None;
        }
        let is_news = best.change > chosen.changes;
        let is_better = match (best.epoch, chosen.epoch) {
            (Some(new), Some(old)) if new > old => true,
            (Some(new), Some(old)) if new < old => {
                is_news && !self.fresh().any(|view| view.at == chosen.at)
            }
            (Some(_), Some(_)) => is_news,
            _ => is_news || self.replica.as_ref() == Some(&chosen.at),
        };
        is_better.then_some(best)
    }

    /// Returns what is compared of a view, the most important first.
    fn rank(&self, view: &View) -> impl Ord {
        let all_have_epochs = self.fresh().all(|view| view.epoch.is_some());
        let voices = self.fresh().filter(|other| other.at == view.at).count();
        let is_replica = self.replica.as_ref() == Some(&view.at);
        (view.epoch.filter(|_| all_have_epochs), !is_replica, view.change, voices)
    }

    /// Returns the views of those that have answered lately: the others may be dead.
    fn fresh(&self) -> impl DoubleEndedIterator<Item = &View> {
        let views = || self.views.iter().flatten();
        let latest = views().map(|view| view.heard_at).max().unwrap_or_default();
        views().filter(move |view| latest.since(view.heard_at) < LASTS)
    }
}

impl View {
    fn is_of_another_server(&self, other: &Self) -> bool {
        self.at != other.at && (self.run.is_none() || self.run != other.run)
    }
}

fn differ<'a>(mut views: impl Iterator<Item = &'a View>) -> bool {
    views.next().is_some_and(|first| views.any(|view| view.is_of_another_server(first)))
}

/// A view counts for this long if others are newer.
const LASTS: Duration = Duration::from_secs(10);
/// In a failover, Sentinels hear from each other every two seconds who the new master is.
const LASTING: Duration = Duration::from_secs(10);
const LONGEST_HOST: usize = 255;

#[cfg(test)]
mod tests;
