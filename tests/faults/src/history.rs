//! All journals of a run, put together: the calls for locks, and the holds that came of them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};

use crate::event::{self, Event, How, Outcome, Part, Share, What, Why};

/// The events of each process, in its order.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub processes: BTreeMap<String, Vec<Event>>,
}

/// A call for a lock, or for several at once.
#[derive(Clone, Debug)]
pub struct Call {
    pub process: String,
    pub op: u64,
    pub locks: Vec<String>,
    pub owner: u64,
    pub how: How,
    pub share: Share,
    pub wait_ms: Option<u64>,
    pub asked_at: u64,
    /// `None`: it was still waiting at the end of its journal.
    pub ended_at: Option<u64>,
    pub refused: Option<(Why, Option<String>)>,
    /// The deadlock that it is told to be part of.
    pub deadlock: Option<Vec<Part>>,
    pub granted: Option<Grant>,
}

/// A guard, from its making to its end.
#[derive(Clone, Debug)]
pub struct Grant {
    pub id: String,
    /// The locks, each with its token.
    pub tokens: Vec<(String, u64)>,
    pub count: u32,
    pub ttl_ms: u64,
    pub granted_at: u64,
    pub until: u64,
    pub latest: u64,
    /// When giving it back began, and whether its deadline had passed by then.
    pub releasing: Option<(u64, How, bool)>,
    pub released: Option<(u64, Outcome)>,
    pub lost: Option<(u64, String, bool)>,
}

/// An operator's call, which ends the holds of others, or changes how many permits there are.
#[derive(Clone, Debug)]
pub struct Deed {
    pub process: String,
    pub op: u64,
    pub owner: u64,
    pub lock: String,
    pub what: event::Deed,
    pub asked_at: u64,
    /// When it ended, and with what answer.
    pub ended: Option<(u64, Option<bool>)>,
}

/// The use of a lock by one owner: all guards with its token.
#[derive(Clone, Debug)]
pub struct Hold {
    pub lock: String,
    pub share: Share,
    pub token: u64,
    pub process: String,
    pub owner: u64,
    pub id: String,
    pub ttl_ms: u64,
    pub granted_at: u64,
    /// Until when its owner may have believed in it, for certain.
    pub ends_at: u64,
    /// Its deadline as it was known last.
    pub until: u64,
    pub latest: u64,
    /// Its last guard was given back; `None`: it was not.
    pub released_at: Option<u64>,
    pub lost_at: Option<u64>,
    /// From then on it may have been forced to end, and was held for certain until then only.
    pub forced_at: Option<u64>,
    /// Indices of its calls.
    pub calls: Vec<usize>,
}

impl History {
    /// Reads the journals `*.log` of a directory. A last line that was not finished is passed over.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut history = Self::default();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
            let events = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
            let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("?");
            history.processes.insert(name.to_owned(), events);
        }
        Ok(history)
    }

    /// All events of all processes.
    pub fn events(&self) -> impl Iterator<Item = (&str, &Event)> {
        let each = self.processes.iter();
        each.flat_map(|(name, events)| events.iter().map(move |event| (name.as_str(), event)))
    }

    /// All calls, in the order of their asking.
    pub fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        for (process, events) in &self.processes {
            let mut by_op = HashMap::new();
            for event in events {
                add(&mut calls, &mut by_op, process, event);
            }
        }
        calls.sort_by_key(|call: &Call| call.asked_at);
        calls
    }

    /// All operators' calls.
    pub fn deeds(&self) -> Vec<Deed> {
        let mut deeds: Vec<Deed> = Vec::new();
        for (process, event) in self.events() {
            match &event.what {
                What::Doing { op, owner, lock, deed } => deeds.push(Deed {
                    process: process.to_owned(),
                    op: *op,
                    owner: *owner,
                    lock: lock.clone(),
                    what: deed.clone(),
                    asked_at: event.at,
                    ended: None,
                }),
                What::Done { op, done } => {
                    let begun = |deed: &&mut Deed| deed.process == process && deed.op == *op;
                    if let Some(deed) = deeds.iter_mut().find(begun) {
                        deed.ended = Some((event.at, *done));
                    }
                }
                _ => {}
            }
        }
        deeds
    }

    /// All holds, in the order of their granting.
    pub fn holds(calls: &[Call]) -> Vec<Hold> {
        let mut holds: BTreeMap<_, Hold> = BTreeMap::new();
        for (index, call) in calls.iter().enumerate() {
            let Some(grant) = &call.granted else { continue };
            for (lock, token) in &grant.tokens {
                let key = (lock, *token, &call.process, call.owner, call.share);
                let hold = holds.entry(key).or_insert_with(|| Hold::of(call, grant, lock, *token));
                hold.add(index, grant);
            }
        }
        let mut holds: Vec<Hold> = holds.into_values().collect();
        for hold in &mut holds {
            let guards = || hold.calls.iter().filter_map(|call| calls[*call].granted.as_ref());
            let open = guards().any(|guard| guard.is_out());
            let last = guards().filter_map(|guard| guard.releasing.as_ref()).map(|(at, ..)| *at);
            hold.released_at = if open { None } else { last.max() };
            hold.ends_at = hold.believed_until();
        }
        holds.sort_by_key(|hold| hold.granted_at);
        holds
    }
}

impl Call {
    /// Whether it is for this lock, alone or with others.
    pub fn is_for(&self, lock: &str) -> bool {
        self.locks.iter().any(|asked| asked == lock)
    }

    /// Whether another one is for one of its locks.
    pub fn is_for_one_of(&self, other: &Self) -> bool {
        self.locks.iter().any(|lock| other.is_for(lock))
    }
}

impl Grant {
    /// Whether nobody has given back what it has. Spent permits come back by themselves.
    fn is_out(&self) -> bool {
        self.releasing.is_none_or(|(_, how, _)| how == How::Spend)
    }

    /// Whether it was told that its lease, which nobody renews, has ended.
    pub fn is_over(&self) -> bool {
        self.lost
            .as_ref()
            .is_some_and(|(at, reason, _)| reason.contains("Ended") && *at >= self.until)
    }
}

impl Deed {
    /// The lease that it forces to end.
    pub fn lease(&self) -> Option<&String> {
        if let event::Deed::ForceOut(lease) = &self.what { lease.as_ref() } else { None }
    }
}

impl Hold {
    /// The hold that a grant begins, without its guards.
    fn of(call: &Call, grant: &Grant, lock: &str, token: u64) -> Self {
        Self {
            lock: lock.to_owned(),
            share: call.share,
            token,
            process: call.process.clone(),
            owner: call.owner,
            id: grant.id.clone(),
            ttl_ms: grant.ttl_ms,
            granted_at: grant.granted_at,
            ends_at: 0,
            until: 0,
            latest: 0,
            released_at: None,
            lost_at: None,
            forced_at: None,
            calls: Vec::new(),
        }
    }

    /// Adds the guard of call number `index`.
    fn add(&mut self, index: usize, grant: &Grant) {
        self.granted_at = self.granted_at.min(grant.granted_at);
        self.until = self.until.max(grant.until);
        self.latest = self.latest.max(grant.latest);
        self.ttl_ms = self.ttl_ms.max(grant.ttl_ms);
        if let Some((at, ..)) = grant.lost {
            self.lost_at = Some(self.lost_at.map_or(at, |first| first.min(at)));
        }
        self.calls.push(index);
    }

    /// Until when its owner believed in it, forced to end or not.
    pub fn believed_until(&self) -> u64 {
        let ends = [Some(self.until), self.released_at, self.lost_at];
        ends.into_iter().flatten().min().unwrap_or(self.until)
    }

    /// Whether it may have been forced to end before its owner got it.
    pub fn is_doubtful(&self) -> bool {
        self.forced_at.is_some_and(|at| at <= self.granted_at)
    }

    /// Whether it was still held when its owner got it.
    pub fn was_held(&self) -> bool {
        self.until > self.granted_at
    }
}

fn add(calls: &mut Vec<Call>, by_op: &mut HashMap<u64, usize>, process: &str, event: &Event) {
    let at = event.at;
    if let What::Asked { op, locks, owner, how, share, wait_ms } = &event.what {
        by_op.insert(*op, calls.len());
        calls.push(Call {
            process: process.to_owned(),
            op: *op,
            locks: locks.clone(),
            owner: *owner,
            how: *how,
            share: *share,
            wait_ms: *wait_ms,
            asked_at: at,
            ended_at: None,
            refused: None,
            deadlock: None,
            granted: None,
        });
        return;
    }
    let Some(call) = event.what.op().and_then(|op| by_op.get(&op)).map(|at| &mut calls[*at]) else {
        return;
    };
    if let What::Deadlocked { circle, .. } = &event.what {
        call.deadlock = Some(circle.clone());
    }
    if let What::Refused { why, holder, .. } = &event.what {
        call.ended_at = Some(at);
        call.refused = Some((*why, holder.clone()));
    }
    if let What::Granted { id, tokens, count, ttl_ms, until, latest, .. } = &event.what {
        call.ended_at = Some(at);
        call.granted = Some(Grant {
            id: id.clone(),
            tokens: tokens.clone(),
            count: *count,
            ttl_ms: *ttl_ms,
            granted_at: at,
            until: *until,
            latest: *latest,
            releasing: None,
            released: None,
            lost: None,
        });
        return;
    }
    let Some(grant) = &mut call.granted else { return };
    match &event.what {
        What::Renewed { until, latest, .. } => {
            grant.until = grant.until.max(*until);
            grant.latest = grant.latest.max(*latest);
        }
        What::Releasing { how, over, .. } => grant.releasing = Some((at, *how, *over)),
        What::Released { outcome, .. } => grant.released = Some((at, *outcome)),
        // It may be told to several who listen.
        What::Lost { reason, held, .. } => match &mut grant.lost {
            None => grant.lost = Some((at, reason.clone(), *held)),
            Some((first, _, was_held)) => {
                *first = at.min(*first);
                *was_held |= held;
            }
        },
        _ => {}
    }
}

impl What {
    /// The call that it is about.
    pub fn op(&self) -> Option<u64> {
        match self {
            Self::Asked { op, .. }
            | Self::Granted { op, .. }
            | Self::Refused { op, .. }
            | Self::Deadlocked { op, .. }
            | Self::Renewed { op, .. }
            | Self::Releasing { op, .. }
            | Self::Released { op, .. }
            | Self::Lost { op, .. }
            | Self::Wrote { op, .. }
            | Self::Shown { op, .. }
            | Self::Counted { op, .. } => Some(*op),
            _ => None,
        }
    }
}
