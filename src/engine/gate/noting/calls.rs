//! What is asked of the servers: to take down notes, to forget them, and to tell those of others.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;

use crate::engine::gate::{Engine, Hold};
use crate::engine::notes::{Note, Read, Readings};
use crate::error::Fault;
use crate::key;
use crate::node::Source;
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

/// Reads the notes beside the locks that are wanted, then those beside the locks that these tell of, and so on.
pub(super) async fn pass(
    readings: &mut Readings,
    engine: &Engine,
    wanted: BTreeSet<Arc<str>>,
) -> Result<(), Fault> {
    readings.begin();
    let mut read = BTreeSet::new();
    let mut next: Vec<Arc<str>> = wanted.into_iter().collect();
    while !next.is_empty() && read.len() < MOST_LOCKS {
        let asked = join_all(next.iter().map(|lock| notes_beside(engine, lock))).await;
        for (lock, notes) in next.iter().zip(asked) {
            read.insert(lock.clone());
            match notes {
                Ok((source, notes)) => readings.take_in(lock, source, notes),
                Err(fault @ Fault::Denied { .. }) => return Err(fault),
                // It is not known in this pass.
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
