//! Sends commands on one connection of a node, which has a number.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::task::coop::unconstrained;

use super::wire::{self, Form};
use crate::error::Fault;
use crate::script::{Call, Reply};
use crate::secret::Secrets;

/// The number of a connection of a node; the first has 1. In a cluster no two connections of a client have the same: the
/// upper half is the number of the node.
pub(crate) type Generation = u64;

/// Sends commands on one connection, in the order of the calls.
#[derive(Clone)]
pub(super) struct Commands {
    connection: MultiplexedConnection,
    /// What no answer may show.
    secrets: Secrets,
}

impl Commands {
    pub(super) fn new(connection: MultiplexedConnection, secrets: Secrets) -> Self {
        Self { connection, secrets }
    }

    pub(super) fn call(&self, call: &Call, form: Form) -> InFlight {
        let command = wire::command(call, form);
        if form.asking { self.send_asking(command) } else { self.send(command) }
    }

    /// Sends ASKING and a command in one write: a command of another task in between would be the one that it is for.
    fn send_asking(&self, command: Cmd) -> InFlight {
        let mut connection = self.connection.clone();
        let secrets = self.secrets.clone();
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().add_command(command);
        InFlight::start(async move {
            let mut answers = connection.send_packed_commands(&both, 1, 1).await;
            let answer = answers.as_mut().map(|values| values.pop().unwrap_or(Value::Nil));
            wire::reply(answer.map_err(|error| error.clone()), &secrets)
        })
    }

    pub(super) fn send(&self, command: Cmd) -> InFlight {
        let mut connection = self.connection.clone();
        let secrets = self.secrets.clone();
        InFlight::start(async move {
            wire::reply(connection.send_packed_command(&command).await, &secrets)
        })
    }
}

/// The reply to a command whose place on the wire is fixed. Dropping it may or may not stop the command.
pub(super) struct InFlight(Pin<Box<dyn Future<Output = Result<Reply, Fault>> + Send>>);

impl InFlight {
    /// The order on the wire is the order of the first polls, so `reply` is polled here for the first time.
    pub(super) fn start(
        reply: impl Future<Output = Result<Reply, Fault>> + Send + 'static,
    ) -> Self {
        let mut reply: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(unconstrained(reply));
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(early) = reply.as_mut().poll(&mut nobody) {
            reply = Box::pin(std::future::ready(early));
        }
        Self(reply)
    }
}

impl Future for InFlight {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests;
