//! What is sent after the runtime is gone.
//!
//! A runtime that ends drops the tasks of a client. Nobody is left then who could send the releases that are owed,
//! and with `?` out of `main` there nearly always are some. So whoever finds that out sends them, over a connection
//! without a runtime, and waits for the answers: once the last task is gone ([`Farewell`]), and for every release that
//! becomes owed later, since guards may outlive the runtime.
//!
//! * It is the one place where a drop blocks: for [`PATIENCE`] in all and per client, and only if something is owed.
//!   Everything that may take longer, as the lookup of a name, is done on a thread that is not waited for any longer.
//! * As on every new connection, the predecessor is killed first, so that no acquire of it can run behind the
//!   release. Where that is not allowed the release is sent all the same, once.
//! * What a guard still holds is not released: it is not owed before the guard is dropped.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, Value};

use super::handshake::Identity;
use super::predecessors::Predecessors;
use super::releases::PendingRelease;
use super::shared::Shared;
use super::wire;
use crate::events;
use crate::key::LeaseId;

/// What the tasks of a client have in common: dropped with the last of them, it says the farewell.
#[derive(Default)]
pub(crate) struct Farewell {
    nodes: Mutex<Vec<Arc<Shared>>>,
    pub(super) patience: Arc<Patience>,
}

impl Farewell {
    pub(super) fn join(&self, node: &Arc<Shared>) {
        self.nodes.lock().push(node.clone());
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let nodes = mem::take(self.nodes.get_mut());
        for node in &nodes {
            node.deserted.store(true, Ordering::Release);
        }
        say(nodes.iter(), &self.patience);
    }
}

impl Shared {
    /// Whoever owes something looks here behind it, and the last task takes what is owed behind its mark: one of them
    /// sees it.
    fn is_deserted_in_debt(&self) -> bool {
        self.deserted.load(Ordering::Acquire) && !self.link.lock().pending.is_empty()
    }
}

/// For how long a client still blocks at its end.
pub(super) struct Patience {
    left: Mutex<Duration>,
    /// A fork of the process has the same locks in its memory, and must not give them back.
    process: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { left: Mutex::new(PATIENCE), process: std::process::id() }
    }
}

/// Sends what these nodes owe, all at once, where nobody else does so any more.
pub(super) fn say<'a>(nodes: impl Iterator<Item = &'a Arc<Shared>>, patience: &Patience) {
    if patience.process != std::process::id() {
        return;
    }
    let began_at = Instant::now();
    let (done, all_done) = channel::<()>();
    for node in nodes.filter(|node| node.is_deserted_in_debt()) {
        let (node, done) = (node.clone(), done.clone());
        let speak = move || {
            let opened = node.last_connection.lock().speak(&node, began_at + PATIENCE);
            drop(done);
            if opened {
                // Others may follow soon, as guards are dropped one by one.
                thread::sleep(LINGER);
                node.last_connection.lock().connection = None;
            }
        };
        // Without a thread nothing is sent: the locks end by themselves.
        let _ = thread::Builder::new().name(THREAD.to_owned()).spawn(speak);
    }
    drop(done);
    let mut left = patience.left.lock();
    // An error either way: all threads are done, or the time is over.
    let _ = all_done.recv_timeout(*left);
    *left = left.saturating_sub(began_at.elapsed());
}

/// The last connection to one server.
#[derive(Default)]
pub(super) struct LastConnection {
    pub(super) predecessors: Predecessors,
    connection: Option<Connection>,
    /// It failed once: the server is not asked again.
    over: bool,
}

impl LastConnection {
    /// Sends what is owed. Whether it opened the connection.
    fn speak(&mut self, node: &Shared, until: Instant) -> bool {
        if self.over {
            return false;
        }
        let opens = self.connection.is_none();
        let owed = mem::take(&mut node.link.lock().pending);
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.introduce(node, until),
        };
        match connection.and_then(|connection| release(connection, owed, until)) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => {
                self.over = true;
                let fault = node.endpoint.greeting.fault(&error);
                events::farewell_failed(&node.endpoint.address, &fault);
            }
        }
        opens && !self.over
    }

    /// Connects, and makes sure that nothing of the connections before can run any more.
    fn introduce(&mut self, node: &Shared, until: Instant) -> RedisResult<Connection> {
        let mut connection = node.endpoint.connector.farewell(left(until)?)?;
        give(&connection, until)?;
        let info = connection.req_command(redis::cmd("INFO").arg("server"));
        let run_id = match &info {
            Ok(Value::BulkString(text)) => run_id(&String::from_utf8_lossy(text)),
            Ok(Value::VerbatimString { text, .. }) => run_id(text),
            // This user may not ask.
            _ => None,
        };
        if let Some(client_id) = self.predecessors.to_kill(&Identity { run_id, client_id: None }) {
            give(&connection, until)?;
            let kill =
                connection.req_command(redis::cmd("CLIENT").arg("KILL").arg("ID").arg(client_id));
            unless_broken(kill)?;
        }
        Ok(connection)
    }
}

/// Sends the releases, many at a time, and waits for their answers.
fn release(
    mut connection: Connection,
    owed: BTreeMap<LeaseId, PendingRelease>,
    until: Instant,
) -> RedisResult<Connection> {
    let mut owed = owed.into_values().peekable();
    while owed.peek().is_some() {
        let mut pipeline = redis::pipe();
        for owed in owed.by_ref().take(AT_ONCE) {
            // Whole: there is no time for a second round trip where its hash is not known.
            pipeline.add_command(wire::command(&owed.call, true));
        }
        give(&connection, until)?;
        let packed = pipeline.get_packed_pipeline();
        unless_broken(connection.req_packed_commands(&packed, 0, pipeline.len()))?;
    }
    Ok(connection)
}

/// A refusal is an answer, too.
fn unless_broken<T>(answer: RedisResult<T>) -> RedisResult<()> {
    match answer {
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
        _ => Ok(()),
    }
}

/// Lets the next exchange take what is left of the time.
fn give(connection: &Connection, until: Instant) -> RedisResult<()> {
    let left = Some(left(until)?);
    connection.set_read_timeout(left)?;
    connection.set_write_timeout(left)
}

fn left(until: Instant) -> RedisResult<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(RedisError::from((ErrorKind::Io, "there is no time left")));
    }
    Ok(left)
}

fn run_id(info: &str) -> Option<String> {
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned())
}

/// How long a client blocks after its runtime, in all.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long the connection is kept after it was opened.
const LINGER: Duration = Duration::from_millis(100);
const AT_ONCE: usize = 500;
const THREAD: &str = "leasehold-end";
