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
    /// The client's name.
    pub(super) client: Arc<str>,
    tls: bool,
    /// The address, if Sentinels announce it: then other settings than a URL say how connections begin.
    announced: Option<Arc<str>>,
    /// What no text about the server may contain.
    pub(super) secrets: Secrets,
}

impl Greeting {
    pub(super) fn of(address: &Address, client: &Arc<str>) -> Self {
        let (client, secrets) = (client.clone(), address.secrets.clone());
        Self { client, tls: address.is_tls(), announced: None, secrets }
    }

    /// Connections lead to an address that Sentinels announce.
    pub(super) fn announced_at(mut self, address: &Arc<str>) -> Self {
        self.announced = Some(address.clone());
        self
    }

    /// Returns the fault for a connection that could not be set up.
    pub(super) fn fault(&self, error: &RedisError) -> Fault {
        match (fault(error, self), &self.announced) {
            (Fault::Denied { what, message }, Some(address)) => {
                Fault::Denied { what: format!("{what} at {address}").into(), message }
            }
            (fault, _) => fault,
        }
    }

    /// Returns the fault for a connection that was not set up within `limit`.
    pub(super) fn silence(&self, limit: Duration) -> Fault {
        match (self.tls, &self.announced) {
            (true, _) => {
                let hint = self.perhaps_plain();
                Fault::Down(format!("no TLS connection within {limit:?}; {hint}").into())
            }
            (false, Some(_)) => {
                Fault::Down(format!("no connection within {limit:?}; {PERHAPS_ELSEWHERE}").into())
            }
            (false, None) => Fault::NoAnswer(limit),
        }
    }

    fn perhaps_plain(&self) -> &'static str {
        match self.announced {
            Some(_) => "if that port is not for TLS, leave out `server_tls`",
            None => "if that port is not for TLS, write `redis://`",
        }
    }

    fn perhaps_tls(&self) -> &'static str {
        match self.announced {
            Some(_) => "if that port is for TLS, set `server_tls(true)`",
            None => "if that port is for TLS, write `rediss://`",
        }
    }
}

fn fault(error: &RedisError, greeting: &Greeting) -> Fault {
    if let Some(login) = login(error, greeting) {
        return login;
    }
    let (tls, secrets) = (greeting.tls, &greeting.secrets);
    let text = error.to_string();
    if error.is_io_error() || error.is_timeout() {
        return no_channel(error, &text, greeting);
    }
    if error.kind() == ErrorKind::Parse {
        let problem = "the server there does not speak the Redis protocol";
        return Fault::WrongServer(match tls {
            true => problem.into(),
            false => format!("{problem}; {}", greeting.perhaps_tls()).into(),
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
fn login(error: &RedisError, greeting: &Greeting) -> Option<Fault> {
    let text = error.to_string();
    let denied = |what: &str, message: &str| {
        Some(Fault::Denied { what: what.into(), message: message.into() })
    };
    if text.contains("NOAUTH") {
        let none = match greeting.announced {
            Some(_) => "NOAUTH: the server requires a password: set `server_login`",
            None => NO_PASSWORD,
        };
        return denied("the login", none);
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
fn no_channel(error: &RedisError, text: &str, greeting: &Greeting) -> Fault {
    let (tls, shown) = (greeting.tls, greeting.secrets.clean(text));
    let kind = kind(error);
    if tls && text.contains("InvalidContentType") {
        return Fault::WrongServer(match greeting.announced {
            Some(_) => "it does not speak TLS on this port: leave out `server_tls`, or let the Sentinels announce its TLS port".into(),
            None => "it does not speak TLS on this port: write `redis://` instead of `rediss://`, or name its TLS port".into(),
        });
    }
    if tls && kind == Some(io::ErrorKind::InvalidData) {
        let hint = TLS_HINTS.iter().find(|(what, _)| text.contains(what));
        let hint = hint.map_or("", |(_, hint)| hint);
        return Fault::WrongServer(format!("no TLS connection: {shown}{hint}").into());
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
    match was_closed {
        true if !tls => {
            Fault::Down(format!("{shown} during the handshake; {}", greeting.perhaps_tls()).into())
        }
        false if greeting.announced.is_some() => {
            Fault::Down(format!("{shown}; {PERHAPS_ELSEWHERE}").into())
        }
        _ => Fault::Down(shown),
    }
}

fn kind(error: &RedisError) -> Option<io::ErrorKind> {
    let cause = error.source()?;
    let shared = cause.downcast_ref::<Arc<dyn Error + Send + Sync>>();
    let io = shared.map_or_else(|| cause.downcast_ref(), |cause| cause.downcast_ref::<io::Error>());
    io.map(io::Error::kind)
}

const PERHAPS_ELSEWHERE: &str = "the Sentinels announce this address: if it cannot be reached from here, translate it with `address_map`";
const NO_PASSWORD: &str = "NOAUTH: the server requires a password, and the URL has none (it stands behind a colon, as in \
                           redis://:password@host)";
/// What rustls says of a certificate, and what to do about it.
const TLS_HINTS: [(&str, &str); 3] = [
    (
        "UnknownIssuer",
        "; name the authority that issued it with `ClientBuilder::root_certificates`",
    ),
    (
        "CaUsedAsEndEntity",
        "; its certificate is that of an authority (`openssl req -x509` makes one unless told `-addext \
         basicConstraints=critical,CA:FALSE`): give the server one that an authority issued",
    ),
    (
        "CertificateRequired",
        "; the server requires a certificate: `ClientBuilder::client_certificate`",
    ),
];
