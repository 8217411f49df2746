//! A connection that needs no runtime, for the releases that are pending at a client's end, and how long a client may still
//! block for them.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, Value};

use super::endpoint::Endpoint;
use super::pending::Pending;
use super::predecessors::{Identity, Predecessors};
use super::wire::{self, Form};
use crate::events;
use crate::script::Call;

/// How long a client may still block at its end.
pub(super) struct Patience {
    pub(super) left: Mutex<Duration>,
    /// A fork of the process has the same locks in its memory, and must not release them.
    pub(super) process: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { left: Mutex::new(PATIENCE), process: std::process::id() }
    }
}

impl Patience {
    /// Returns true if this process is a fork of the client's.
    pub(super) fn is_of_another_process(&self) -> bool {
        self.process != std::process::id()
    }
}

/// The last connection to one server.
#[derive(Default)]
pub(super) struct LastConnection {
    pub(super) predecessors: Predecessors,
    pub(super) connection: Option<Connection>,
    /// It failed once, so it is not tried again.
    pub(super) is_over: bool,
}

impl LastConnection {
    /// Sends these releases; whoever calls it looks first whether it is over. Returns true if it opened the connection.
    pub(super) fn send(
        &mut self,
        endpoint: &Endpoint,
        pending: Pending,
        in_cluster: bool,
        until: Instant,
    ) -> bool {
        let opens = self.connection.is_none();
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.connect(endpoint, until),
        };
        match connection.and_then(|connection| release(connection, pending, in_cluster, until)) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => {
                self.is_over = true;
                let fault = endpoint.greeting.fault(&error);
                events::farewell_failed(&endpoint.address(), &fault);
            }
        }
        opens && !self.is_over
    }

    /// Connects, and ensures that no command of the last connection can run any more.
    fn connect(&mut self, endpoint: &Endpoint, until: Instant) -> RedisResult<Connection> {
        let nowhere = || RedisError::from((ErrorKind::Io, "no server is known"));
        let target = endpoint.target().ok_or_else(nowhere)?;
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
    pending: Pending,
    in_cluster: bool,
    until: Instant,
) -> RedisResult<Connection> {
    let calls: Vec<Call> = pending.into_values().map(|release| release.call).collect();
    for calls in calls.chunks(AT_ONCE) {
        // With the script's text, because there is no time for a second round trip if its hash is not known.
        let mut refused = exchange(&mut connection, calls.iter().collect(), Form::WHOLE, until)?;
        // Its slot may be on its way, and then it is refused with several keys.
        refused.retain(|call| in_cluster && call.works_with_one_key());
        exchange(&mut connection, refused, Form { one_key: true, ..Form::WHOLE }, until)?;
    }
    Ok(connection)
}

/// Sends calls in one write, and returns those that the server refuses. The first answer that is missing is the last that is
/// waited for.
fn exchange<'a>(
    connection: &mut Connection,
    calls: Vec<&'a Call>,
    form: Form,
    until: Instant,
) -> RedisResult<Vec<&'a Call>> {
    let mut refused = Vec::new();
    if calls.is_empty() {
        return Ok(refused);
    }
    let mut pipeline = redis::pipe();
    for call in &calls {
        pipeline.add_command(wire::command(call, form));
    }
    limit(connection, until)?;
    connection.send_packed_command(&pipeline.get_packed_pipeline())?;
    for call in calls {
        if let Value::ServerError(_) = connection.recv_response()? {
            refused.push(call);
        }
    }
    Ok(refused)
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
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
const AT_ONCE: usize = 500;
