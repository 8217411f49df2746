//! Explains why a connection failed before the client could ask the server anything, and never in the server's own
//! words.
//!
//! The server's first answers are those to HELLO or AUTH. A server, or whatever else answers at that address, may
//! repeat in them what it was sent: the password.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::config::Address;
use crate::error::{Cause, Fault, State};
use crate::secret::Secrets;

/// How a connection to a server begins, according to its URL.
#[derive(Clone)]
pub(super) struct Greeting {
    tls: bool,
    /// What no text about the server may contain.
    pub(super) secrets: Secrets,
}

impl Greeting {
    pub(super) fn of(address: &Address) -> Self {
        Self { tls: address.is_tls(), secrets: address.secrets.clone() }
    }

    /// Returns the fault for a connection that could not be set up.
    pub(super) fn fault(&self, error: &RedisError) -> Fault {
        fault(error, self.tls, &self.secrets)
    }

    /// Returns the fault for a connection that was not set up within `limit`.
    pub(super) fn silence(&self, limit: Duration) -> Fault {
        match self.tls {
            true => {
                Fault::Down(format!("no TLS connection within {limit:?}; {PERHAPS_PLAIN}").into())
            }
            false => Fault::NoAnswer(limit),
        }
    }
}

fn fault(error: &RedisError, tls: bool, secrets: &Secrets) -> Fault {
    if let Some(login) = login(error) {
        return login;
    }
    let text = error.to_string();
    if error.is_io_error() || error.is_timeout() {
        return no_channel(error, &text, tls, secrets);
    }
    if error.kind() == ErrorKind::Parse {
        return Fault::WrongServer(match tls {
            true => "the server there does not speak the Redis protocol".into(),
            false => {
                format!("the server there does not speak the Redis protocol; {PERHAPS_TLS}").into()
            }
        });
    }
    if let Some(state) = State::of(error.code(), &text) {
        return Fault::Refused(Cause::new(format!("{state:?}"), Some(state)));
    }
    let is_code = |code: &str| error.code() == Some(code) || text.starts_with(code);
    if error.kind() == ErrorKind::RESP3NotSupported
        || is_code("NOPROTO")
        || text.to_lowercase().contains("unknown command")
    {
        return Fault::WrongServer(
            "it does not know HELLO: use Redis 6.2 or later, or Valkey, and do not rename HELLO"
                .into(),
        );
    }
    if is_code("DENIED") {
        return Fault::WrongServer(
            "it runs in protected mode, which only accepts clients on its own host: set a password, or \
             `protected-mode no`"
                .into(),
        );
    }
    if text.contains("max number of clients") {
        let full = "it accepts no more connections (maxclients)".to_owned();
        return Fault::Refused(Cause::new(full, Some(State::Full)));
    }
    if text.contains("switch database") {
        return Fault::WrongServer(
            format!("the URL's database cannot be selected: {}", secrets.clean(&text)).into(),
        );
    }
    Fault::WrongServer(
        "it refuses HELLO or AUTH; its message is not shown, since it may contain the password"
            .into(),
    )
}

/// Returns the fault if the server refused the login.
fn login(error: &RedisError) -> Option<Fault> {
    let text = error.to_string();
    let denied = |what: &str, message: &str| {
        Some(Fault::Denied { what: what.into(), message: message.into() })
    };
    if text.contains("NOAUTH") {
        return denied("the login", "NOAUTH: the server requires a password, and the URL has none");
    }
    if text.contains("WRONGPASS") {
        return denied(
            "the login",
            "WRONGPASS: the user does not exist or is disabled, or the password is wrong",
        );
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return denied("the login", "the user or the password is wrong");
    }
    let is_denial = error.kind() == ErrorKind::Server(redis::ServerErrorKind::NoPerm)
        || text.contains("has no permissions to run the");
    if !is_denial {
        return None;
    }
    let what =
        ["hello", "auth", "select"].into_iter().find(|what| text.contains(&format!("'{what}'")));
    denied(
        what.unwrap_or("the login"),
        "this user may not run a command that every connection begins with",
    )
}

/// Returns the fault for a broken channel, in the words of the operating system or of TLS, and none of the server's.
fn no_channel(error: &RedisError, text: &str, tls: bool, secrets: &Secrets) -> Fault {
    let shown = secrets.clean(text);
    let kind = kind(error);
    if tls && text.contains("InvalidContentType") {
        return Fault::WrongServer(
            "it does not speak TLS on this port: write `redis://` instead of `rediss://`, or name its TLS port".into(),
        );
    }
    if tls && kind == Some(io::ErrorKind::InvalidData) {
        return Fault::WrongServer(format!("no TLS connection: {shown}").into());
    }
    let was_closed = matches!(
        kind,
        Some(
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::UnexpectedEof
        )
    );
    match was_closed && !tls {
        true => Fault::Down(format!("{shown} during the handshake; {PERHAPS_TLS}").into()),
        false => Fault::Down(shown),
    }
}

fn kind(error: &RedisError) -> Option<io::ErrorKind> {
    let cause = error.source()?;
    let shared = cause.downcast_ref::<Arc<dyn Error + Send + Sync>>();
    let io = shared.map_or_else(|| cause.downcast_ref(), |cause| cause.downcast_ref::<io::Error>());
    io.map(io::Error::kind)
}

const PERHAPS_PLAIN: &str = "if that port is not for TLS, write `redis://`";
const PERHAPS_TLS: &str = "if that port is for TLS, write `rediss://`";
