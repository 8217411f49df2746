//! What is asked of the servers: to take down notes, to forget them, and to tell those of others.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;

use crate::config::Deadlocks;
use crate::engine::gate::{Engine, Hold};
use crate::engine::notes::{Note, Read, Readings};
use crate::error::{Blocked, Error, Fault};
use crate::key::{self, Holder};
use crate::node::Source;
use crate::owner::Owner;
use crate::script::{self, Arg, Call, Reply};

/// A note of this client.
pub(super) struct Own {
    pub(super) id: Arc<str>,
    /// The number of the wait.
    pub(super) wait: u64,
    pub(super) hold: Weak<Hold>,
    pub(super) lock: Arc<str>,
    pub(super) beat: u64,
    /// The servers have this beat.
    pub(super) is_acknowledged: bool,
}

impl Own {
    /// Makes the note again. A beat that was not acknowledged is sent once more.
    pub(super) async fn beat(
        &mut self,
        hold: &Hold,
        note: &Note,
        ttl: Duration,
    ) -> Result<(), Fault> {
        if self.is_acknowledged {
            self.beat += 1;
        }
        self.is_acknowledged = false;
        let quorum = &hold.gate.quorum;
        let call = Call {
            script: &script::WAIT_NOTE,
            keys: vec![self.lock.clone(), key::notes_key(&self.lock)],
            args: vec![
                Arg::Text(hold.lease.id().0.clone()),
                Arg::Text(self.id.clone()),
                Arg::Number(self.beat),
                Arg::Number(script::ttl_ms(ttl)),
                Arg::Text(note.text().into()),
            ],
        };
        let noted = |replies: &[&Reply]| {
            replies.iter().filter(|reply| reply.is_yes()).count() >= quorum.majority()
        };
        let answers = quorum.ask(call, noted).await?;
        self.is_acknowledged = noted(&answers.replies.iter().collect::<Vec<_>>());
        Ok(())
    }

    /// Removes the note. If that fails, it ends by itself.
    pub(super) async fn forget(&self, engine: &Engine) {
        let call = Call {
            script: &script::WAIT_FORGET,
            keys: vec![key::notes_key(&self.lock)],
            args: vec![Arg::Text(self.id.clone())],
        };
        let quorum = engine.quorum_of(&self.lock);
        let _ = quorum.ask(call, |replies| replies.len() == quorum.sites().len()).await;
    }
}

impl Engine {
    /// Returns the address of a server that refuses the notes beside a lock that is held here; if none is held, beside those for
    /// which it was tried last.
    pub(crate) async fn refuses_notes(&self) -> Option<Arc<str>> {
        if self.config.deadlocks == Deadlocks::Off {
            return None;
        }
        let held = self.gates().into_iter().find(|gate| gate.current_hold().is_some());
        let Some(gate) = held else {
            let refuses = self.noting.is_denied();
            return refuses.then(|| self.quorum_of(&self.config.name_prefix).address());
        };
        // Nobody has this note.
        let call = Call {
            script: &script::WAIT_FORGET,
            keys: vec![key::notes_key(&gate.name)],
            args: vec![Arg::Word("-")],
        };
        let quorum = &gate.quorum;
        let asked = quorum.ask(call, |replies| replies.len() >= quorum.majority()).await;
        matches!(asked, Err(Fault::Denied { .. })).then(|| quorum.address())
    }

    /// Returns what those wait for who hold these locks, and those who hold what these wait for, and so on, as they have noted it.
    pub(crate) async fn blocked(&self, locks: BTreeSet<Arc<str>>) -> Result<Vec<Blocked>, Error> {
        let mut locks = locks;
        locks.retain(|lock| key::lock_name_problem(lock).is_none());
        let mut readings = Readings::default();
        if let Some(lock) = locks.first().cloned()
            && let Err(fault) = pass(&mut readings, self, locks).await
        {
            return Err(self.quorum_of(&lock).error(Some(&lock), fault));
        }
        let mut blocked: Vec<Blocked> = readings
            .all()
            .map(|(lock, Read { lease, note, .. })| {
                let holder = Holder::new(lease.clone());
                Blocked {
                    owner: Owner::elsewhere(&note.owner),
                    client: holder.client().unwrap_or(holder.as_str()).into(),
                    holds: lock.clone(),
                    token: Some(note.token),
                    waits_for: note.wants.clone(),
                }
            })
            .collect();
        blocked.sort_by(|one, other| (&one.holds, one.token).cmp(&(&other.holds, other.token)));
        Ok(blocked)
    }
}

/// Reads the notes beside the locks that are wanted, then those beside the locks that these tell of, and so on. Fails if this user
/// may not read those of a lock that is wanted.
pub(super) async fn pass(
    readings: &mut Readings,
    engine: &Engine,
    wanted: BTreeSet<Arc<str>>,
) -> Result<(), Fault> {
    readings.begin();
    let mut read = BTreeSet::new();
    let mut next: Vec<Arc<str>> = wanted.iter().cloned().collect();
    while !next.is_empty() && read.len() < MOST_LOCKS {
        let asked = join_all(next.iter().map(|lock| notes_beside(engine, lock))).await;
        for (lock, notes) in next.iter().zip(asked) {
            read.insert(lock.clone());
            match notes {
                Ok((source, notes)) => readings.take_in(lock, source, notes),
                Err(fault @ Fault::Denied { .. }) if wanted.contains(lock) => return Err(fault),
                // It is not known in this pass. A lock that only others use may be out of this user's reach.
                Err(_) => {}
            }
        }
        next = readings.unread();
        next.retain(|lock| !read.contains(lock) && key::lock_name_problem(lock).is_none());
    }
    readings.end();
    Ok(())
}

/// Returns the notes beside a lock. Of a note that several servers know, the highest beat counts: it was sent last.
async fn notes_beside(
    engine: &Engine,
    lock: &Arc<str>,
) -> Result<(Option<Source>, Vec<Read>), Fault> {
    let quorum = engine.quorum_of(lock);
    let keys = vec![lock.clone(), key::notes_key(lock)];
    let call = Call { script: &script::WAIT_READ, keys, args: Vec::new() };
    let answers = quorum.ask(call, |replies| replies.len() >= quorum.majority()).await?;
    let mut notes: Vec<Read> = Vec::new();
    for pair in answers.replies.iter().filter_map(Reply::list).flat_map(|list| list.chunks(2)) {
        let [id, text] = pair else { continue };
        let read = id.text().zip(text.text()).and_then(|(id, text)| Read::parse(id, text));
        let Some(read) = read else { continue };
        match notes.iter_mut().find(|other| other.id == read.id) {
            Some(other) if other.beat < read.beat => *other = read,
            Some(_) => {}
            None => notes.push(read),
        }
    }
    notes.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    Ok((quorum.is_one().then_some(answers.source), notes))
}

/// So many locks are read in one pass.
const MOST_LOCKS: usize = 256;
