//! What a client sends, taken apart.

use std::sync::LazyLock;

use leasehold_testkit::resp;

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

/// Those that the servers of a world know, by the library's names.
const NAMES: [(&str, Script); 13] = [
    ("lock_acquire", Script::Acquire),
    ("lock_renew", Script::Renew),
    ("lock_release", Script::Release),
    ("fence_raise", Script::Raise),
    ("lock_reclaim", Script::Reclaim),
    ("force_unlock", Script::Force),
    ("lock_status", Script::Status),
    ("grace_mark", Script::Mark),
    ("preflight", Script::Preflight),
    ("locks_renew", Script::RenewTogether),
    ("wait_note", Script::Note),
    ("wait_read", Script::ReadNotes),
    ("wait_forget", Script::ForgetNotes),
];

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let known = |(name, script): (&str, Script)| {
        let mut scripts = leasehold::seam::scripts();
        let (_, body) = scripts.find(|(known, _)| *known == name).expect("a script of the library");
        Known { script, body, hash: redis::Script::new(body).get_hash().to_owned() }
    };
    NAMES.into_iter().map(known).collect()
});

impl Request {
    /// Takes the first request off `bytes`, if all of it is there.
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let words = resp::take_command(bytes)?;
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
