//! The message of a server that refused a call, or of the operating system, and the state that it reports.

use std::sync::Arc;

use crate::text::Printable;

/// The message of the server or the operating system. This is not the error of the redis crate, which may show secrets and
/// is not part of this crate's interface.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", Printable(.text))]
pub(crate) struct Cause {
    text: Arc<str>,
    /// The state of the server that the message reports.
    pub(super) state: Option<State>,
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

    /// The server is not a part of a cluster.
    pub(crate) fn is_no_cluster(&self) -> bool {
        self.text.contains("cluster support disabled")
    }

    /// The server's cluster is down as a whole.
    pub(super) fn is_cluster_down(&self) -> bool {
        self.state == Some(State::ClusterDown) && self.text.contains("cluster is down")
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
    /// A script met a key that is not there while the slot is on its way to another node. What it did before stays done.
    NonLocalKey,
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
        if text.contains(NON_LOCAL_KEY) {
            return Some(State::NonLocalKey);
        }
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

const NON_LOCAL_KEY: &str = "attempted to access a non local key";

#[cfg(test)]
mod tests {
    use super::*;

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
