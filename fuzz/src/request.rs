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
    /// Several renewals in one call.
    RenewTogether,
    /// What those wait for who hold something.
    Note,
    ReadNotes,
    ForgetNotes,
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
    macro_rules! script {
        ($($name:literal),+) => {
            concat!($(include_str!(concat!("../../lua/", $name, ".lua"))),+)
        };
    }
    let together = concat!(
        "local function renew(KEYS, ARGV)\n",
        include_str!("../../lua/lock_renew.lua"),
        "end\n\n",
        include_str!("../../lua/renew_together.lua")
    );
    vec![
        known(Script::Acquire, script!("take", "lock_acquire", "queue", "lock_ask")),
        known(Script::Renew, script!("lock_renew")),
        known(Script::Release, script!("lock_release", "take", "queue", "lock_pass")),
        known(Script::Raise, script!("fence_raise")),
        known(Script::Reclaim, script!("lock_reclaim")),
        known(Script::Force, script!("take", "queue", "force_unlock")),
        known(Script::Status, script!("queue", "lock_status")),
        known(Script::Mark, script!("grace_mark")),
        known(Script::Preflight, script!("preflight")),
        known(Script::RenewTogether, together),
        known(Script::Note, script!("wait_note")),
        known(Script::ReadNotes, script!("wait_read")),
        known(Script::ForgetNotes, script!("wait_forget")),
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
            let unknown = || panic!("unknown script: {}", String::from_utf8_lossy(text));
            known.unwrap_or_else(unknown).script
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
