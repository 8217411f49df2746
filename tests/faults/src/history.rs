//! All journals of a run, put together: the calls for locks, and the holds that came of them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};

use crate::event::{Event, How, Outcome, What, Why};

/// The events of each process, in its order.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub processes: BTreeMap<String, Vec<Event>>,
}

/// A call for a lock.
#[derive(Clone, Debug)]
pub struct Call {
    pub process: String,
    pub op: u64,
    pub lock: String,
    pub owner: u64,
    pub how: How,
    pub wait_ms: Option<u64>,
    pub asked_at: u64,
    /// `None`: it was still waiting at the end of its journal.
    pub ended_at: Option<u64>,
    pub refused: Option<(Why, Option<String>)>,
    pub granted: Option<Grant>,
}

/// A guard, from its making to its end.
#[derive(Clone, Debug)]
pub struct Grant {
    pub id: String,
    pub token: u64,
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

/// The use of a lock by one owner: all guards with its token.
#[derive(Clone, Debug)]
pub struct Hold {
    pub lock: String,
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

    /// All holds, in the order of their granting.
    pub fn holds(calls: &[Call]) -> Vec<Hold> {
        let mut holds: BTreeMap<(&str, u64, &str, u64), Hold> = BTreeMap::new();
        for (index, call) in calls.iter().enumerate() {
            let Some(grant) = &call.granted else { continue };
            let key = (&*call.lock, grant.token, &*call.process, call.owner);
            let hold = holds.entry(key).or_insert_with(|| Hold {
                lock: call.lock.clone(),
                token: grant.token,
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
                calls: Vec::new(),
            });
            hold.granted_at = hold.granted_at.min(grant.granted_at);
            hold.until = hold.until.max(grant.until);
            hold.latest = hold.latest.max(grant.latest);
            hold.ttl_ms = hold.ttl_ms.max(grant.ttl_ms);
            if let Some((at, ..)) = grant.lost {
                hold.lost_at = Some(hold.lost_at.map_or(at, |first| first.min(at)));
            }
            hold.calls.push(index);
        }
        let mut holds: Vec<Hold> = holds.into_values().collect();
        for hold in &mut holds {
            let guards = || hold.calls.iter().filter_map(|call| calls[*call].granted.as_ref());
            let open = guards().any(|guard| guard.releasing.is_none());
            let last = guards().filter_map(|guard| guard.releasing.as_ref()).map(|(at, ..)| *at);
            hold.released_at = if open { None } else { last.max() };
            let ends = [Some(hold.until), hold.released_at, hold.lost_at];
            hold.ends_at = ends.into_iter().flatten().min().unwrap_or(hold.until);
        }
        holds.sort_by_key(|hold| hold.granted_at);
        holds
    }
}

fn add(calls: &mut Vec<Call>, by_op: &mut HashMap<u64, usize>, process: &str, event: &Event) {
    let at = event.at;
    if let What::Asked { op, lock, owner, how, wait_ms } = &event.what {
        by_op.insert(*op, calls.len());
        calls.push(Call {
            process: process.to_owned(),
            op: *op,
            lock: lock.clone(),
            owner: *owner,
            how: *how,
            wait_ms: *wait_ms,
            asked_at: at,
            ended_at: None,
            refused: None,
            granted: None,
        });
        return;
    }
    let Some(call) = event.what.op().and_then(|op| by_op.get(&op)).map(|at| &mut calls[*at]) else {
        return;
    };
    if let What::Refused { why, holder, .. } = &event.what {
        call.ended_at = Some(at);
        call.refused = Some((*why, holder.clone()));
    }
    if let What::Granted { id, token, count, ttl_ms, until, latest, .. } = &event.what {
        call.ended_at = Some(at);
        call.granted = Some(Grant {
            id: id.clone(),
            token: *token,
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
            | Self::Renewed { op, .. }
            | Self::Releasing { op, .. }
            | Self::Released { op, .. }
            | Self::Lost { op, .. }
            | Self::Wrote { op, .. }
            | Self::Counted { op, .. } => Some(*op),
            _ => None,
        }
    }
}
