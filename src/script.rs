//! The Lua scripts, and the plain values that go into them and come out.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One Lua file, with what it needs before it, and what it goes on with.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) body: &'static str,
    /// The SHA-1 by which a server knows the body; computed at the first use.
    pub(crate) hash: OnceLock<String>,
}

macro_rules! scripts {
    ($($constant:ident = $name:literal $(after $($before:literal),+)? $(before $($behind:literal),+)?;)*) => {
        $(pub(crate) static $constant: Script = Script {
            name: $name,
            body: concat!(
                $($(include_str!(concat!("../lua/", $before, ".lua")),)+)?
                include_str!(concat!("../lua/", $name, ".lua")),
                $($(include_str!(concat!("../lua/", $behind, ".lua")),)+)?
            ),
            hash: OnceLock::new(),
        };)*

        #[cfg(any(test, feature = "__test-seam"))]
        static ALL: &[&Script] = &[$(&$constant),*];
    };
}

scripts! {
    LOCK_ACQUIRE = "lock_acquire" after "take" before "queue", "silent", "lock_ask";
    LOCK_RENEW = "lock_renew";
    LOCK_RELEASE = "lock_release" before "take", "queue", "lock_pass";
    LOCK_STATUS = "lock_status" after "queue";
    LOCK_RECLAIM = "lock_reclaim";
    LIST_PAGE = "list_page";
    FENCE_RAISE = "fence_raise";
    FORCE_UNLOCK = "force_unlock" after "take", "queue";
    GRACE_MARK = "grace_mark";
    ITEM_POP = "item_pop" after "item_take", "queue", "silent", "items";
    ITEM_PUSH = "item_push" before "queue", "silent", "items", "item_lend";
    ITEM_REDRIVE = "item_redrive" before "queue", "silent", "items", "item_lend";
    ITEM_RENEW = "item_renew";
    ITEM_SETTLE = "item_settle" after "item_ack", "queue", "silent", "items";
    ITEM_STATUS = "item_status" after "queue", "silent", "items";
    GROUP_NOTIFY = "group_notify";
    GROUP_STATUS = "group_status";
    LATCH_COUNT_DOWN = "latch_count_down" after "latch";
    LATCH_DELETE = "latch_delete" after "latch";
    LATCH_SET = "latch_set" after "latch";
    LATCH_STATUS = "latch_status" after "latch";
    LEADER_PROCLAIM = "leader_proclaim";
    LEADER_STATUS = "leader_status";
    PERMIT_ACQUIRE = "permit_acquire" after "queue", "silent", "permits";
    PERMIT_RENEW = "permit_renew";
    PERMIT_RELEASE = "permit_release" after "queue", "permits";
    PERMIT_RECLAIM = "permit_reclaim" after "queue", "permits";
    PERMIT_RESIZE = "permit_resize" after "queue", "permits";
    PERMIT_STATUS = "permit_status" after "queue", "permits";
    PREFLIGHT = "preflight";
    SIGNAL_NOTIFY = "signal_notify";
    SIGNAL_STATUS = "signal_status";
    SYNCED = "synced";
    WAIT_FORGET = "wait_forget";
    WAIT_NOTE = "wait_note";
    WAIT_READ = "wait_read";
    WAITED_CHANNELS = "waited_channels";
    WAITING_LOOK = "waiting_look";
    RW_ACQUIRE = "rw_acquire" after "rw";
    READ_RENEW = "read_renew";
    RW_RELEASE = "rw_release" after "rw";
    RW_STATUS = "rw_status" after "rw";
    RW_RECLAIM = "rw_reclaim" after "rw";
    RW_FORCE_UNLOCK = "rw_force_unlock" after "rw";
}

/// The scripts that renew several leases: each runs that of one renewal for each of them.
macro_rules! together {
    ($($constant:ident = $name:literal of $one:ident = $file:literal;)*) => {
        $(static $constant: Script = Script {
            name: $name,
            body: concat!(
                "local function renew(KEYS, ARGV)\n",
                include_str!(concat!("../lua/", $file, ".lua")),
                "end\n\n",
                include_str!("../lua/renew_together.lua"),
            ),
            hash: OnceLock::new(),
        };)*

        impl Script {
            /// Returns the script that does for several leases what this one does for one, if there is one.
            pub(crate) fn together(&'static self) -> Option<&'static Self> {
                $(if std::ptr::eq(self, &$one) {
                    return Some(&$constant);
                })*
                None
            }
        }

        #[cfg(any(test, feature = "__test-seam"))]
        static TOGETHER: &[&Script] = &[$(&$constant),*];
    };
}

together! {
    LOCKS_RENEW = "locks_renew" of LOCK_RENEW = "lock_renew";
    READS_RENEW = "reads_renew" of READ_RENEW = "read_renew";
    PERMITS_RENEW = "permits_renew" of PERMIT_RENEW = "permit_renew";
    ITEMS_RENEW = "items_renew" of ITEM_RENEW = "item_renew";
}

/// Returns each script's name, and its text as it is sent.
#[cfg(feature = "__test-seam")]
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().chain(TOGETHER).map(|script| (script.name, script.body))
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One argument of a script.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Word(&'static str),
    Number(u64),
}

/// One run of a script, with its keys and arguments. A call may be sent twice, which has the same effect as once.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<Arc<str>>,
    pub(crate) args: Vec<Arg>,
}

impl Call {
    /// Returns true if the call also does its part with its first key alone, or what matters most of it.
    pub(crate) fn works_with_one_key(&self) -> bool {
        let such = [&LOCK_RELEASE, &LOCK_STATUS, &FORCE_UNLOCK, &RW_RELEASE];
        such.into_iter().any(|script| std::ptr::eq(self.script, script))
    }
}

/// Returns a time to live as the scripts take it. It is rounded up: the servers never end a lease before we do.
pub(crate) fn ttl_ms(ttl: Duration) -> u64 {
    ttl.as_nanos().div_ceil(1_000_000) as u64
}

/// All tokens, and all times of servers in microseconds, are below this. Above it Lua's numbers have gaps, so tokens would
/// repeat.
pub(crate) const EXACT_BELOW: u64 = 1 << 53;

/// The value that a script returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Number(i64),
    Text(String),
    /// What is no UTF-8, and the nearest text.
    Raw {
        bytes: Vec<u8>,
        shown: String,
    },
    List(Vec<Reply>),
}

impl Reply {
    /// Returns true if a script granted, renewed or raised something: it says so by a number above 0, alone or in the first
    /// place.
    pub(crate) fn is_yes(&self) -> bool {
        let first = self.list().map_or(Some(self), <[Reply]>::first);
        first.and_then(Reply::number).is_some_and(|number| number > 0)
    }

    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Raw { shown: text, .. } => Some(text),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text.as_bytes()),
            Self::Raw { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lua_file_is_registered_and_headed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the lua folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        files.sort();
        let mut registered: Vec<String> =
            ALL.iter().map(|script| format!("{}.lua", script.name)).collect();
        registered.extend(
            [
                "items",
                "item_ack",
                "item_lend",
                "item_take",
                "queue",
                "silent",
                "permits",
                "rw",
                "latch",
                "take",
                "lock_ask",
                "lock_pass",
                "renew_together",
            ]
            .map(|part| format!("{part}.lua")),
        );
        registered.sort();
        assert_eq!(files, registered);
        for file in files {
            let text = std::fs::read_to_string(format!("{folder}/{file}")).expect("a script");
            let header: Vec<&str> =
                text.lines().take_while(|line| line.starts_with("--")).collect();
            for part in ["-- KEYS:", "-- ARGV:", "-- Returns"] {
                assert!(
                    header.iter().any(|line| line.starts_with(part)),
                    "{file} has no line that begins with {part:?}"
                );
            }
        }
    }

    #[test]
    fn a_script_is_put_together_from_its_parts() {
        let text = |parts: &[&str]| -> String {
            let path = |part| format!("{}/lua/{part}.lua", env!("CARGO_MANIFEST_DIR"));
            parts
                .iter()
                .map(|part| std::fs::read_to_string(path(part)).expect("a script"))
                .collect()
        };
        assert_eq!(
            LOCK_ACQUIRE.body,
            text(&["take", "lock_acquire", "queue", "silent", "lock_ask"])
        );
        assert_eq!(LOCK_RELEASE.body, text(&["lock_release", "take", "queue", "lock_pass"]));
        assert_eq!(FORCE_UNLOCK.body, text(&["take", "queue", "force_unlock"]));
        for (one, several) in [
            (&LOCK_RENEW, &LOCKS_RENEW),
            (&READ_RENEW, &READS_RENEW),
            (&PERMIT_RENEW, &PERMITS_RENEW),
            (&ITEM_RENEW, &ITEMS_RENEW),
        ] {
            assert!(std::ptr::eq(one.together().expect("it has one"), several));
            let whole = format!(
                "local function renew(KEYS, ARGV)\n{}end\n\n{}",
                one.body,
                text(&["renew_together"])
            );
            assert_eq!(several.body, whole);
        }
        assert!(LOCK_ACQUIRE.together().is_none() && TOGETHER.len() == 4);
    }

    #[test]
    fn a_reply_is_read_as_what_it_is_and_a_number_also_from_its_digits() {
        let [word, digits] = ["x", "-8"].map(|text| Reply::Text(text.to_owned()));
        let (number, list) = (Reply::Number(7), Reply::List(vec![Reply::Nil]));
        let replies = [&word, &digits, &number, &list, &Reply::Nil];
        assert_eq!(replies.map(Reply::number), [None, Some(-8), Some(7), None, None]);
        assert_eq!(replies.map(Reply::text), [Some("x"), Some("-8"), None, None, None]);
        assert_eq!(replies.map(Reply::bytes), [Some(&b"x"[..]), Some(b"-8"), None, None, None]);
        let raw = Reply::Raw { bytes: vec![b'a', 0xff], shown: "a\u{fffd}".to_owned() };
        assert_eq!((raw.text(), raw.bytes()), (Some("a\u{fffd}"), Some(&b"a\xff"[..])));
        let items = &[Reply::Nil][..];
        assert_eq!(replies.map(Reply::list), [None, None, None, Some(items), None]);
        let lists = [vec![], vec![Reply::Number(0)], vec![Reply::Number(1), Reply::Nil]];
        assert_eq!(lists.map(|items| Reply::List(items).is_yes()), [false, false, true]);
        assert_eq!(
            [0, 1, 1 << 50].map(|number| Reply::Number(number).is_yes()),
            [false, true, true]
        );
    }
}
