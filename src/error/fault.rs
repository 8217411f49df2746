//! Faults: the reasons why a node gave no usable answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    #[error("no answer within {:?}", rounded(.0))]
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
    /// The node's address leads to the server of another node.
    #[error("{0}")]
    SameServer(Arc<str>),
    /// The address leads to a server that can never do what the call needs.
    #[error("not usable: {0}")]
    WrongServer(Arc<str>),
    /// The server is a replica, and accepts no writes; the text names its master.
    #[error("it is a replica{0}: name the master instead")]
    Replica(Arc<str>),
    /// The server may have forgotten grants, since it restarted or got its data from another server.
    #[error(
        "it restarted or was a replica, so its grants do not count for another {:?}",
        rounded(.0)
    )]
    Quarantined(Duration),
    /// The server's data was replaced since the client connected, so the call ran on other data.
    #[error("it was a replica in the meantime, so this grant does not count")]
    Replaced,
    /// The call ran, but too few replicas have what it wrote.
    #[error(
        "only {acked} of the {wanted} replicas that `synced` asks for have it after {within:?}"
    )]
    NotSynced { acked: u32, wanted: u32, within: Duration },
    /// No majority of the nodes gave a usable answer. Each failure has its own cause.
    #[error("no majority: {}", listed(.failures))]
    NoMajority {
        failures: Arc<[NodeFailure]>,
        /// So many of the causes are lasting that a retry will not find a majority soon.
        lasting: bool,
    },
    #[error("{what} is denied: {message}")]
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
            | Self::NotSynced { .. }
            | Self::Closed => true,
            Self::NoMajority { failures, .. } => {
                failures.iter().any(|node| node.fault.may_have_run())
            }
            _ => false,
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
        !matches!(self, Self::Down(_) | Self::NoAnswer(_) | Self::Broken(_) | Self::Closed)
    }

    /// Returns true if the same call could succeed soon.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Denied { .. } | Self::WrongType | Self::Closed | Self::Quarantined(_) => false,
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
        if error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::Moved) {
            let problem = "it is a node of a Redis Cluster, and another one keeps this lock";
            return Self::Refused(Cause::new(format!("{problem} ({shown})"), None));
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
            Self::NoScript | Self::WrongType => true,
            _ => false,
        }
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
        return Some("the key");
    }
    if message.contains("access a channel") || message.contains("of the channels") {
        return Some("the channel");
    }
    (message.contains("NOPERM") || message.contains("No permissions")).then_some("access")
}

/// The message of the server or the operating system. This is not the error of the redis crate, which may show secrets and
/// is not part of this crate's interface.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", Printable(.text))]
pub(crate) struct Cause {
    text: Arc<str>,
    /// The state of the server that the message reports.
    state: Option<State>,
}

impl Cause {
    /// `text` must not contain secrets.
    pub(crate) fn new(text: impl Into<Arc<str>>, state: Option<State>) -> Self {
        Self { text: text.into(), state }
    }

    /// The server does not offer the command.
    pub(crate) fn is_unknown_command(&self) -> bool {
        self.text.to_lowercase().contains("unknown command")
    }

    /// The server was demoted, or is cut off, so the address may lead to another server by now.
    pub(crate) fn takes_no_writes(&self) -> bool {
        matches!(self.state, Some(State::ReadOnly | State::MasterDown | State::NoReplicas))
    }
}

/// A state in which a server refuses calls that it otherwise accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Loading,
    Busy,
    Full,
    MasterDown,
    ReadOnly,
    NoReplicas,
    TryAgain,
    ClusterDown,
    CannotSave,
    NoMemory,
}

impl State {
    /// Returns the state that an error with this code and text reports. Before Redis 7, an error inside a script has the
    /// code of scripts, and its own code follows a dash in the text.
    pub(crate) fn of(code: Option<&str>, text: &str) -> Option<Self> {
        let of_script = |word: &str| {
            text.split_once(&format!("-{word} ")).is_some_and(|(before, _)| before.ends_with(' '))
        };
        STATES
            .iter()
            .find(|(word, _)| code == Some(*word) || of_script(word))
            .map(|(_, state)| *state)
    }
}

const STATES: [(&str, State); 9] = [
    ("LOADING", State::Loading),
    ("BUSY", State::Busy),
    ("MASTERDOWN", State::MasterDown),
    ("READONLY", State::ReadOnly),
    ("NOREPLICAS", State::NoReplicas),
    ("TRYAGAIN", State::TryAgain),
    ("CLUSTERDOWN", State::ClusterDown),
    ("MISCONF", State::CannotSave),
    ("OOM", State::NoMemory),
];

const LOGIN: &str = "the login";

#[cfg(test)]
mod tests {
    use super::*;

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
        }
        assert_eq!(denied("OOM command not allowed"), None);
    }

    #[test]
    fn a_state_is_found_in_the_error_of_a_script_too() {
        let state = |text: &str| State::of(text.split(' ').next(), text);
        // As Redis 6.2 wraps what a script was refused.
        let wrapped = |inner: &str| {
            state(&format!(
                "ERR Error running script (call to f_4a2b): @user_script:12: @user_script: 12: -{inner}"
            ))
        };
        for (text, expected) in [
            ("READONLY You can't write against a read only replica.", State::ReadOnly),
            ("NOREPLICAS Not enough good replicas to write.", State::NoReplicas),
            ("MASTERDOWN Link with MASTER is down", State::MasterDown),
            ("LOADING Redis is loading the dataset in memory", State::Loading),
            ("BUSY Redis is busy running a script.", State::Busy),
        ] {
            assert_eq!(state(text), Some(expected));
            assert_eq!(wrapped(text), Some(expected));
        }
        for text in
            ["ERR unknown command 'X'", "ERR lock 'NON-READONLY lock' is odd", "BUSYGROUP no"]
        {
            assert_eq!(state(text), None, "{text}");
        }
    }
}
