//! Faults: the reasons why a node gave no usable answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cause::{Cause, State};
use crate::secret::Secrets;
use crate::text::{Printable, rounded};

/// A server that gave no usable answer, and the reason.
#[derive(Clone, Debug)]
pub struct NodeFailure {
    node: Arc<str>,
    fault: Fault,
}

impl NodeFailure {
    pub(crate) fn new(node: &Arc<str>, fault: Fault) -> Self {
        Self { node: node.clone(), fault }
    }

    /// Returns true if this is no server that the client can use.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self.fault, Fault::WrongServer(_))
    }

    /// Returns the server's address, without credentials.
    pub fn node(&self) -> &str {
        &self.node
    }
}

impl fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.fault)
    }
}

impl std::error::Error for NodeFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.fault)
    }
}

/// A call that waited for its turn may have no time left when it is sent at last.
fn within(limit: &Duration) -> String {
    if limit.is_zero() { "the time that was left".into() } else { format!("{:?}", rounded(limit)) }
}

pub(super) fn listed(failures: &[NodeFailure]) -> String {
    let texts: Vec<String> = failures.iter().map(NodeFailure::to_string).collect();
    texts.join("; ")
}

/// The reason why a node gave no usable answer to a call.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// There is no connection, so the call was not sent.
    #[error("not connected: {0}")]
    Down(Arc<str>),
    /// The call was sent, but no answer came in time: it may have run, or may still run.
    #[error("no answer within {}", within(.0))]
    NoAnswer(Duration),
    /// The connection broke with the call in flight, so the call may have run.
    #[error("the connection broke: {0}")]
    Broken(#[source] Cause),
    /// The server refused the call, so it did not run.
    #[error("the server refused: {0}")]
    Refused(#[source] Cause),
    /// The server does not know the script's hash, so the call did not run.
    #[error("the script is not loaded")]
    NoScript,
    /// Another node of the cluster keeps the lock's slot, so the call did not run.
    #[error("it is a node of a Redis Cluster, and another one keeps this lock (MOVED {0})")]
    Moved(Redirect),
    /// The lock's slot is being moved to another node, which may have the lock already. The call did not run.
    #[error("the lock is being moved to another node of the cluster (ASK {0})")]
    Ask(Redirect),
    /// The node's address leads to the server of another node.
    #[error("{0}")]
    SameServer(Arc<str>),
    /// The server is used with another list of masters.
    #[error("{0}")]
    OtherMasters(Arc<str>),
    /// The address leads to a server that can never do what the call needs.
    #[error("not usable: {0}")]
    WrongServer(Arc<str>),
    /// The server is a replica, and accepts no writes; the text names its master.
    #[error("it is a replica{0}: name the master instead")]
    Replica(Arc<str>),
    /// The server may have forgotten grants, since it restarted or got its data from another server.
    #[error(
        "it restarted, was a replica, or is met for the first time, so its grants do not count for another {:?}",
        rounded(.0)
    )]
    Quarantined(Duration),
    /// The server's data was replaced since the client connected, so the call ran on other data.
    #[error("it was replaced or was a replica in the meantime, so this grant does not count")]
    Replaced,
    /// The call ran, but too few replicas have what it wrote.
    #[error(
        "only {acked} of the {wanted} replicas that `synced` asks for have it after {within:?}"
    )]
    NotSynced { acked: u32, wanted: u32, within: Duration },
    /// The call ran, and what was asked behind it, to see whether it counts, failed in a way in which nothing runs.
    #[error("it ran, but nothing says that it counts: {0}")]
    Unconfirmed(#[source] Arc<Fault>),
    /// No majority of the nodes gave a usable answer. Each failure has its own cause.
    #[error("no majority: {}", listed(.failures))]
    NoMajority {
        failures: Arc<[NodeFailure]>,
        /// So many of the causes are lasting that a retry will not find a majority soon.
        lasting: bool,
        /// All of these nodes answer, and so many of their grants count after this time that there is a majority then.
        opens_in: Option<Duration>,
    },
    #[error("{} is denied: {}", Printable(.what), Printable(.message))]
    Denied { what: Arc<str>, message: Arc<str> },
    #[error("the key is not a lock")]
    WrongType,
    /// The answer has a form that no script returns.
    #[error("unexpected answer {0}")]
    Unexpected(Arc<str>),
    #[error("the client is closed")]
    Closed,
}

impl Fault {
    /// Returns true if the call may have run, or may still run.
    pub(crate) fn may_have_run(&self) -> bool {
        match self {
            Self::NoAnswer(_)
            | Self::Broken(_)
            | Self::Unexpected(_)
            | Self::Replaced
            | Self::OtherMasters(_)
            | Self::NotSynced { .. }
            | Self::Unconfirmed(_)
            | Self::Closed => true,
            Self::Refused(cause) => cause.state == Some(State::NonLocalKey),
            // A script that lacks a right ends in the middle, and what it wrote before stays.
            Self::Denied { what, message } => {
                !BEFORE_THE_SCRIPT.contains(&&**what) || message.contains(IN_THE_SCRIPT)
            }
            Self::NoMajority { failures, .. } => {
                failures.iter().any(|node| node.fault.may_have_run())
            }
            _ => false,
        }
    }

    /// Turns the fault of what was asked behind a call that ran into the fault of that call.
    pub(crate) fn behind_a_call(self) -> Self {
        if self.may_have_run() { self } else { Self::Unconfirmed(Arc::new(self)) }
    }

    /// Returns what the server answered, to whatever command.
    pub(crate) fn plain(&self) -> &Self {
        match self {
            Self::Unconfirmed(fault) => fault,
            fault => fault,
        }
    }

    /// Returns true if at least one node simply did not answer in time.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            Self::NoAnswer(_) => true,
            Self::NoMajority { failures, .. } => {
                failures.iter().any(|node| matches!(node.fault, Self::NoAnswer(_)))
            }
            _ => false,
        }
    }

    /// Returns true if the server answered, so that no part of the call is still in flight.
    pub(crate) fn is_answer(&self) -> bool {
        !matches!(self.plain(), Self::Down(_) | Self::NoAnswer(_) | Self::Broken(_) | Self::Closed)
    }

    /// Returns the time for which the grants of the server, or of a majority, do not count yet, if that is the only reason.
    pub(crate) fn quarantine(&self) -> Option<Duration> {
        match self {
            Self::Quarantined(left) => Some(*left),
            Self::NoMajority { opens_in, .. } => *opens_in,
            _ => None,
        }
    }

    /// Returns true if the same call could succeed soon, or at a known time.
    pub(crate) fn may_pass(&self) -> bool {
        match self.plain() {
            Self::Denied { .. } | Self::WrongType | Self::OtherMasters(_) | Self::Closed => false,
            Self::NoMajority { lasting, .. } => !lasting,
            _ => true,
        }
    }

    /// Returns true if the reason could be a server that is only starting, or is busy for a while.
    pub(crate) fn may_pass_at_start(&self) -> bool {
        match self {
            Self::Down(_) | Self::NoAnswer(_) | Self::Broken(_) => true,
            Self::Refused(cause) => cause.state.is_some(),
            _ => false,
        }
    }

    /// Converts an error of an established connection. The result contains none of `secrets`.
    pub(crate) fn from_redis(error: &redis::RedisError, secrets: &Secrets) -> Self {
        let text = error.to_string();
        let shown = secrets.clean(&*text);
        if error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoScript) {
            return Self::NoScript;
        }
        let is_login = ["NOAUTH", "WRONGPASS"].iter().any(|code| text.contains(code));
        if is_login || error.kind() == redis::ErrorKind::AuthenticationFailed {
            return Self::Denied { what: LOGIN.into(), message: shown };
        }
        if error.is_io_error() || error.is_unrecoverable_error() || error.is_timeout() {
            return Self::Broken(Cause::new(shown, None));
        }
        let is_denial = error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoPerm);
        if let Some(what) = denied(&text).or(is_denial.then_some("access")) {
            return Self::Denied { what: secrets.clean(what), message: shown };
        }
        if text.contains("WRONGTYPE") {
            return Self::WrongType;
        }
        if let Some((to, slot)) = error.redirect_node() {
            let redirect = Redirect { slot, to: secrets.clean(to) };
            let is_ask = error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::Ask);
            return if is_ask { Self::Ask(redirect) } else { Self::Moved(redirect) };
        }
        Self::Refused(Cause::new(shown, State::of(error.code(), &text)))
    }

    /// Returns true if the server refused the call for a reason other than its state.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Denied { what, .. } => &**what != LOGIN,
            Self::Refused(cause) => {
                !matches!(cause.state, Some(State::Loading | State::Busy | State::MasterDown))
            }
            Self::NoScript | Self::WrongType | Self::Moved(_) | Self::Ask(_) => true,
            _ => false,
        }
    }

    /// Returns true if the server refused the call because the slot is being moved and it has some of the keys only.
    pub(crate) fn is_try_again(&self) -> bool {
        matches!(self.state(), Some(State::TryAgain | State::NonLocalKey))
    }

    /// Returns true if the server does not serve the call because of the place of its slot in the cluster.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Moved(_) | Self::Ask(_))
            || self.is_try_again()
            || self.is_cluster_down()
    }

    /// Returns true if the server cannot serve now because its cluster, or its own part in it, is not in order.
    pub(crate) fn is_cluster_down(&self) -> bool {
        matches!(self.state(), Some(State::ClusterDown | State::MasterDown | State::ReadOnly))
    }

    /// Returns true if the server refuses every call, and not only those for a slot that nobody owns.
    pub(crate) fn is_of_the_whole_cluster(&self) -> bool {
        matches!(self, Self::Refused(cause) if cause.is_cluster_down())
    }

    fn state(&self) -> Option<State> {
        match self {
            Self::Refused(cause) => cause.state,
            _ => None,
        }
    }
}

/// Where a node of a cluster says that a slot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    /// `host:port`. Without a host it is the one of the node that answered.
    pub(crate) to: Arc<str>,
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.slot, Printable(&self.to))
    }
}

/// Returns what the server denies, if its message is a denial.
fn denied(message: &str) -> Option<&str> {
    if let Some((_, rest)) = message.split_once("has no permissions to run the '") {
        return rest.split('\'').next();
    }
    if message.contains("can't run this command") {
        return Some("a command of the scripts");
    }
    if message.contains("access a key") || message.contains("of the keys") {
        return Some(KEY);
    }
    if message.contains("access a channel") || message.contains("of the channels") {
        return Some("the channel");
    }
    (message.contains("NOPERM") || message.contains("No permissions")).then_some("access")
}

pub(super) const LOGIN: &str = "the login";
/// What is denied if it is a key.
pub(crate) const KEY: &str = "the key";
/// Without the right to one of these, nothing of a script runs.
const BEFORE_THE_SCRIPT: [&str; 4] = [LOGIN, KEY, "evalsha", "eval"];
/// A key that was not named with the call is refused in the middle of the script.
const IN_THE_SCRIPT: &str = "The user executing the script";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_no_time_left_is_not_told_of_zero_nanoseconds() {
        let text = |ms| Fault::NoAnswer(Duration::from_millis(ms)).to_string();
        assert_eq!(text(20), "no answer within 20ms");
        assert_eq!(text(0), "no answer within the time that was left");
    }

    #[test]
    fn the_denied_command_is_named() {
        for (message, what) in [
            ("NOPERM User lk has no permissions to run the 'pexpire' command", "pexpire"),
            (
                "ERR ACL failure in script: User lk has no permissions to run the 'pubsub|numsub' command",
                "pubsub|numsub",
            ),
            (
                "NOPERM The user executing the script can't run this command or subcommand",
                "a command of the scripts",
            ),
            ("NOPERM No permissions to access a key", "the key"),
            (
                "NoPerm: this user has no permissions to access one of the keys used as arguments",
                "the key",
            ),
            ("NOPERM No permissions to access a channel", "the channel"),
        ] {
            assert_eq!(denied(message), Some(what), "{message}");
            let fault = Fault::Denied { what: what.into(), message: message.into() };
            assert_eq!(fault.may_have_run(), what != "the key", "{message}");
        }
        // A key that is not named with the call.
        let message = "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments";
        assert_eq!(denied(message), Some("the key"));
        let fault = Fault::Denied { what: KEY.into(), message: message.into() };
        assert!(fault.may_have_run(), "it is refused in the middle");
        for what in ["the login", "evalsha", "eval"] {
            let fault = Fault::Denied { what: what.into(), message: "NOPERM".into() };
            assert!(!fault.may_have_run(), "{what}");
        }
        assert_eq!(denied("OOM command not allowed"), None);
    }

    #[test]
    fn a_redirect_names_the_slot_and_the_node_and_did_not_run() {
        let fault = |wire: &str| {
            let value = redis::parse_redis_value(wire.as_bytes()).expect("a whole value");
            let error = value.extract_error().expect_err("an error");
            Fault::from_redis(&error, &Secrets::default())
        };
        let to = |slot, to: &str| Redirect { slot, to: to.into() };
        for (wire, redirect) in [
            ("-MOVED 3999 127.0.0.1:6381\r\n", to(3999, "127.0.0.1:6381")),
            ("-MOVED 0 :6381\r\n", to(0, ":6381")),
            ("-MOVED 16383 a:b::c:6381\r\n", to(16383, "a:b::c:6381")),
        ] {
            let moved = fault(wire);
            assert!(matches!(&moved, Fault::Moved(is) if *is == redirect), "{wire}: {moved:?}");
            assert!(!moved.may_have_run() && moved.is_answer() && moved.may_pass());
            let ask = fault(&wire.replace("MOVED", "ASK"));
            assert!(matches!(&ask, Fault::Ask(is) if *is == redirect), "{ask:?}");
            assert!(!ask.may_have_run() && ask.is_answer() && ask.may_pass());
        }
        let odd = fault("-MOVED\r\n");
        assert!(matches!(odd, Fault::Refused(_)), "{odd:?}");
        for (text, is_try_again, is_cluster_down) in [
            ("TRYAGAIN Multiple keys request during rehashing of slot", true, false),
            ("ERR Script attempted to access a non local key in a cluster node", true, false),
            ("CLUSTERDOWN The cluster is down", false, true),
            ("ERR no", false, false),
        ] {
            let fault = fault(&format!("-{text}\r\n"));
            let is = (fault.is_try_again(), fault.is_cluster_down());
            assert_eq!(is, (is_try_again, is_cluster_down), "{text}");
            assert_eq!(fault.may_have_run(), text.contains("non local"), "{text}");
            assert!(fault.may_pass(), "{text}");
        }
    }
}
