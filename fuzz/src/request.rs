//! What a client sends, taken apart.

use std::sync::LazyLock;

use crate::wire;

/// Which of the library's scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Script {
    Acquire,
    Renew,
    Release,
    Raise,
    Reclaim,
    Force,
    Status,
    Mark,
    Preflight,
}

/// A command with its arguments.
#[derive(Clone, Debug)]
pub struct Request {
    pub words: Vec<Vec<u8>>,
    /// The script that it runs, if it runs one.
    pub script: Option<Script>,
    /// With the script's text, not its hash.
    pub whole: bool,
}

struct Known {
    script: Script,
    body: &'static str,
    hash: String,
}

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let known = |script, body: &'static str| {
        let hash = redis::Script::new(body).get_hash().to_owned();
        Known { script, body, hash }
    };
    macro_rules! queueing {
        ($name:literal) => {
            concat!(include_str!("../../lua/queue.lua"), include_str!($name))
        };
    }
    vec![
        known(Script::Acquire, queueing!("../../lua/lock_acquire.lua")),
        known(Script::Renew, include_str!("../../lua/lock_renew.lua")),
        known(Script::Release, queueing!("../../lua/lock_release.lua")),
        known(Script::Raise, include_str!("../../lua/fence_raise.lua")),
        known(Script::Reclaim, include_str!("../../lua/lock_reclaim.lua")),
        known(Script::Force, queueing!("../../lua/force_unlock.lua")),
        known(Script::Status, queueing!("../../lua/lock_status.lua")),
        known(Script::Mark, include_str!("../../lua/grace_mark.lua")),
        known(Script::Preflight, include_str!("../../lua/preflight.lua")),
    ]
});

impl Request {
    /// Takes the first request off `bytes`, if all of it is there.
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let words = wire::take_command(bytes)?;
        let whole = words[0] == b"EVAL";
        let script = (whole || words[0] == b"EVALSHA").then(|| {
            let text = &words[1][..];
            let known = KNOWN.iter().find(|known| {
                if whole { known.body.as_bytes() == text } else { known.hash.as_bytes() == text }
            });
            known.expect("a script of lua/").script
        });
        Some(Self { words, script, whole })
    }

    pub fn is(&self, name: &str) -> bool {
        self.words[0].eq_ignore_ascii_case(name.as_bytes())
    }

    /// An argument of the command as text.
    pub fn word(&self, index: usize) -> String {
        self.words
            .get(index)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .unwrap_or_default()
    }

    /// The script's KEYS.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.words[3..3 + self.key_count()]
    }

    /// The script's ARGV, as text.
    pub fn argv(&self, index: usize) -> String {
        self.word(3 + self.key_count() + index)
    }

    fn key_count(&self) -> usize {
        self.word(2).parse().expect("a number of keys")
    }
}
