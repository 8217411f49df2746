//! The list of the masters, which each of several independent ones keeps in a key: who names other masters gets no lock.
//!
//! A majority of one list may share no server with a majority of another. So a grant counts only if the server says, right
//! behind it, that the client's list is in use; and a client that one of its servers tells of another list takes no lock at all.
//!
//! The first client writes the list, and it stays. A server that may have forgotten it gets it back from the clients that have
//! seen it there. The others write theirs only once the server's grants count, so that they come later.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Poll, ready};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::commands::{Commands, Generation, InFlight};
use super::info::optional;
use super::servers::Servers;
use crate::clock::Timestamp;
use crate::config::Conflict;
use crate::error::Fault;
use crate::script::Reply;
use crate::text::Printable;

/// What the servers of a node have said about the list.
#[derive(Default)]
pub(super) struct Said {
    /// The last text, if it allows the client's list. A server that has lost it gets it back.
    seen: Mutex<Option<Arc<str>>>,
    /// This user may not read it, or not write it.
    pub(super) is_denied: AtomicBool,
    unheard: Mutex<Unheard>,
    /// Somebody left an answer.
    left: Notify,
}

/// An answer that nobody waits for any more but the supervisor: the oldest one, since it comes first.
#[derive(Default)]
struct Unheard {
    /// The connection in use. What comes on others is of no interest.
    on: Option<Generation>,
    read: Option<InFlight>,
}

impl Said {
    /// From now on only answers on this connection are waited for, or none at all.
    pub(super) fn hear_on(&self, connection: Option<Generation>) {
        let before =
            std::mem::replace(&mut *self.unheard.lock(), Unheard { on: connection, read: None });
        drop(before);
    }

    /// Waits for an answer that nobody else waits for. Dropping the future loses nothing.
    pub(super) async fn unheard(&self) -> Result<Reply, Fault> {
        loop {
            let answer = poll_fn(|cx| {
                let read = &mut self.unheard.lock().read;
                let Some(pending) = read else { return Poll::Ready(None) };
                let answer = ready!(Pin::new(pending).poll(cx));
                *read = None;
                Poll::Ready(Some(answer))
            });
            match answer.await {
                Some(answer) => return answer,
                None => self.left.notified().await,
            }
        }
    }
}

/// The list as the server of one connection keeps it.
pub(super) struct Listed {
    servers: Arc<Servers>,
    said: Arc<Said>,
    address: Arc<str>,
    /// From then on grants of the server count, and a client that has not seen the list there may write it.
    counts_from: Timestamp,
}

/// The questions behind a grant. If nobody waits for the answer any more, since the other servers were faster, the
/// supervisor does: a server that is always the last may be the one that says that its masters are other ones.
pub(super) struct Asked {
    listed: Arc<Listed>,
    generation: Generation,
    written: Option<InFlight>,
    /// Until it is answered.
    read: Option<InFlight>,
}

impl Asked {
    /// Fails if the list is not in use any more.
    pub(super) async fn check(mut self) -> Result<(), Fault> {
        if let Some(written) = self.written.take() {
            optional(written.await)?;
        }
        let Some(read) = &mut self.read else { return Ok(()) };
        let answer = read.await;
        self.read = None;
        self.listed.heard(answer)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(read) = self.read.take() else { return };
        let said = &self.listed.said;
        let mut unheard = said.unheard.lock();
        if unheard.on == Some(self.generation) && unheard.read.is_none() {
            unheard.read = Some(read);
            drop(unheard);
            said.left.notify_one();
        }
    }
}

impl Listed {
    pub(super) fn new(
        servers: Arc<Servers>,
        said: Arc<Said>,
        address: Arc<str>,
        counts_from: Timestamp,
    ) -> Self {
        Self { servers, said, address, counts_from }
    }

    /// Asks for the list at `now`, behind what may be a grant.
    pub(super) fn ask(
        self: &Arc<Self>,
        commands: &Commands,
        generation: Generation,
        now: Timestamp,
    ) -> Asked {
        let is_new = self.said.seen.lock().is_none();
        let written = is_new.then(|| self.write(commands, now)).flatten();
        let read = Some(commands.send(self.read_command()));
        Asked { listed: self.clone(), generation, written, read }
    }

    /// Fails if the list is not in use any more, as the server answers.
    pub(super) fn heard(&self, answer: Result<Reply, Fault>) -> Result<(), Fault> {
        let Some(reply) = optional(answer)? else { return Ok(()) };
        match reply.text() {
            Some(text) => self.compare(text),
            // Somebody has removed the server's data: the next connection writes the list again.
            None if self.said.seen.lock().is_some() => Err(Fault::Replaced),
            None => Ok(()),
        }
    }

    /// Writes the list if it is not there, and if this client may do so at `now`.
    pub(super) fn write(&self, commands: &Commands, now: Timestamp) -> Option<InFlight> {
        let text = match self.said.seen.lock().clone() {
            None if self.counts_from > now => return None,
            None => self.servers.masters.to_string().into(),
            Some(seen) => seen,
        };
        let mut command = redis::cmd("SET");
        command.arg(&*self.servers.key).arg(&*text).arg("NX");
        Some(commands.send(command))
    }

    pub(super) fn read_command(&self) -> redis::Cmd {
        let mut command = redis::cmd("GET");
        command.arg(&*self.servers.key);
        command
    }

    /// Fails if `text`, which the server keeps, does not allow the client's list.
    pub(super) fn compare(&self, text: &str) -> Result<(), Fault> {
        let mut seen = self.said.seen.lock();
        if seen.as_deref() == Some(text) {
            return Ok(());
        }
        let problem = self.problem_with(text);
        *seen = problem.is_none().then(|| text.into());
        problem.map_or(Ok(()), |problem| Err(Fault::OtherMasters(problem)))
    }

    /// Returns what is wrong if the server keeps `text`.
    fn problem_with(&self, text: &str) -> Option<Arc<str>> {
        let Self { servers, address, .. } = self;
        let (ours, key) = (&servers.masters, &servers.key);
        let theirs: String = text.chars().take(LONGEST_SHOWN).collect();
        let theirs = Printable(&theirs);
        let problem = match ours.problem_with(text)? {
            Conflict::NotListed => format!(
                "{address} is used with the masters `{theirs}`, and this client names `{ours}`: clients that name different \
                 masters may hold one lock at the same time, so this one gets none. Name the same servers everywhere. To \
                 change them, see docs/deployments.md (\"To change the masters\"): at its end, SET {key} '{ours}' is typed on \
                 each of them. If clients reach the same servers at different addresses, name these with `masters_name`"
            ),
            Conflict::Apart(_) => format!(
                "{address} allows different masters at the same time (`{theirs}`), and majorities of these may share no server: two \
                 clients may hold one lock at the same time, so this one gets none. Change one server at a time: see \
                 docs/deployments.md (\"To change the masters\"); the lists are in {key}"
            ),
        };
        Some(problem.into())
    }
}

/// How much is shown of a list that a server keeps: 31 addresses of usual length.
const LONGEST_SHOWN: usize = 1000;
