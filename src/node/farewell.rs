//! Sends releases after the runtime has ended.
//!
//! A runtime that ends drops the tasks of a client, so none of them can send the pending releases, and after a `?` out
//! of `main` there nearly always are some. They are sent over a connection that needs no runtime, and the sender waits
//! for the answers. The sender is the last task, when it is dropped ([`Farewell`]), and then everybody who leaves a
//! release, since guards may outlive the runtime.
//!
//! * This is the only place where a drop blocks: for [`PATIENCE`] in total per client, and only if a release is
//!   pending. Everything that may take longer, such as the lookup of a name, is done on a thread that is abandoned
//!   after that time.
//! * As on every new connection, the predecessor is killed first, so that none of its acquires can run after the
//!   release. If that is not allowed, the release is sent nevertheless, once.
//! * A lease that a living guard holds is not released: its release is not pending before the guard is dropped.

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
use super::link::Form;
use super::predecessors::Predecessors;
use super::releases::PendingRelease;
use super::shared::Shared;
use super::wire;
use crate::events;
use crate::key::LeaseId;

/// Shared by the tasks of a client. It is dropped with the last of them, and then sends the pending releases.
#[derive(Default)]
pub(crate) struct Farewell {
    nodes: Mutex<Vec<Arc<Shared>>>,
    pub(super) patience: Arc<Patience>,
}

impl Farewell {
    pub(super) fn join(&self, node: &Arc<Shared>) {
        self.nodes.lock().push(node.clone());
    }

    /// The node owes nothing, and is not used any more.
    pub(super) fn leave(&self, node: &Arc<Shared>) {
        self.nodes.lock().retain(|other| !Arc::ptr_eq(other, node));
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let nodes = mem::take(self.nodes.get_mut());
        for node in &nodes {
            node.tasks_gone.store(true, Ordering::Release);
        }
        send_pending(nodes.iter(), &self.patience);
    }
}

impl Shared {
    /// Returns true if a release is pending and no task can send it.
    ///
    /// Whoever leaves a release looks here after that, and the last task collects releases after it has set
    /// `tasks_gone`. So one of them sees the release.
    fn has_releases_and_no_tasks(&self) -> bool {
        self.tasks_gone.load(Ordering::Acquire) && !self.link.lock().pending.is_empty()
    }
}

/// How long a client may still block at its end.
pub(super) struct Patience {
    left: Mutex<Duration>,
    /// A fork of the process has the same locks in its memory, and must not release them.
    process: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { left: Mutex::new(PATIENCE), process: std::process::id() }
    }
}

/// Sends the pending releases of those nodes whose tasks are gone, to all nodes at once.
pub(super) fn send_pending<'a>(nodes: impl Iterator<Item = &'a Arc<Shared>>, patience: &Patience) {
    if patience.process != std::process::id() {
        return;
    }
    let began_at = Instant::now();
    let (done, all_done) = channel::<()>();
    for node in nodes.filter(|node| node.has_releases_and_no_tasks()) {
        let (node, done) = (node.clone(), done.clone());
        let send = move || {
            let opened = node.last_connection.lock().send(&node, began_at + PATIENCE);
            drop(done);
            if opened {
                // More releases may follow soon, as guards are dropped one by one.
                thread::sleep(LINGER);
                node.last_connection.lock().connection = None;
            }
        };
        // Without a thread nothing is sent, and the locks expire.
        let _ = thread::Builder::new().name(THREAD.to_owned()).spawn(send);
    }
    drop(done);
    let mut left = patience.left.lock();
    // This is always an error: all threads are done, or the time is over.
    let _ = all_done.recv_timeout(*left);
    *left = left.saturating_sub(began_at.elapsed());
}

/// The last connection to one server.
#[derive(Default)]
pub(super) struct LastConnection {
    pub(super) predecessors: Predecessors,
    connection: Option<Connection>,
    /// It failed once, so it is not tried again.
    over: bool,
}

impl LastConnection {
    /// Sends the pending releases. Returns true if it opened the connection.
    fn send(&mut self, node: &Shared, until: Instant) -> bool {
        if self.over {
            return false;
        }
        let opens = self.connection.is_none();
        let pending = mem::take(&mut node.link.lock().pending);
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.connect(node, until),
        };
        match connection.and_then(|connection| release(connection, pending, until)) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => {
                self.over = true;
                let fault = node.endpoint.greeting.fault(&error);
                events::farewell_failed(&node.endpoint.address(), &fault);
            }
        }
        opens && !self.over
    }

    /// Connects, and ensures that no command of the last connection can run any more.
    fn connect(&mut self, node: &Shared, until: Instant) -> RedisResult<Connection> {
        let nowhere = || RedisError::from((ErrorKind::Io, "no server is known"));
        let target = node.endpoint.target().ok_or_else(nowhere)?;
        let mut connection = target.connector.farewell(left(until)?)?;
        limit(&connection, until)?;
        let info = connection.req_command(redis::cmd("INFO").arg("server"));
        let run_id = match &info {
            Ok(Value::BulkString(text)) => run_id(&String::from_utf8_lossy(text)),
            Ok(Value::VerbatimString { text, .. }) => run_id(text),
            // The user may not ask.
            _ => None,
        };
        if let Some(client_id) = self.predecessors.to_kill(&Identity { run_id, client_id: None }) {
            limit(&connection, until)?;
            let kill =
                connection.req_command(redis::cmd("CLIENT").arg("KILL").arg("ID").arg(client_id));
            unless_broken(kill)?;
        }
        Ok(connection)
    }
}

/// Sends the releases, many at a time, and waits for the answers.
fn release(
    mut connection: Connection,
    pending: BTreeMap<LeaseId, PendingRelease>,
    until: Instant,
) -> RedisResult<Connection> {
    let mut pending = pending.into_values().peekable();
    while pending.peek().is_some() {
        let mut pipeline = redis::pipe();
        for PendingRelease { call, .. } in pending.by_ref().take(AT_ONCE) {
            // With the script's text, because there is no time for a second round trip if its hash is not known.
            pipeline.add_command(wire::command(&call, Form::WHOLE));
        }
        limit(&connection, until)?;
        let packed = pipeline.get_packed_pipeline();
        unless_broken(connection.req_packed_commands(&packed, 0, pipeline.len()))?;
    }
    Ok(connection)
}

/// Fails only if the connection is broken: a refusal is an answer, too.
fn unless_broken<T>(answer: RedisResult<T>) -> RedisResult<()> {
    match answer {
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
        _ => Ok(()),
    }
}

/// Limits the next exchange to the time that is left.
fn limit(connection: &Connection, until: Instant) -> RedisResult<()> {
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

/// How long a client blocks after its runtime has ended, in total.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long the connection is kept after it is opened.
const LINGER: Duration = Duration::from_millis(100);
const AT_ONCE: usize = 500;
const THREAD: &str = "leasehold-end";
