//! The list of the independent masters that a client names, as their servers keep it. Pure.
//!
//! Two lists may be in use at the same time if each majority of the one shares a server with each majority of the other. So it
//! is if one server is added, or one is left out.

use std::fmt;

use super::Place;

/// The masters that a client names: their addresses in order, or the name that the user gives them, and their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Masters(Vec<String>);

impl Masters {
    /// The list of these servers. With a `name`, their addresses do not matter.
    pub(crate) fn of(places: &[Place], name: Option<&str>) -> Self {
        match name {
            Some(name) => Self(vec![format!("{name}/{}", places.len())]),
            None => Self::sorted(places.iter().map(|place| word(place.name()))),
        }
    }

    fn read(text: &str) -> Self {
        Self::sorted(text.split_whitespace().map(str::to_owned))
    }

    fn sorted(words: impl Iterator<Item = String>) -> Self {
        let mut words: Vec<String> = words.collect();
        words.sort_unstable();
        words.dedup();
        Self(words)
    }

    /// Returns the reason why this list cannot be used, if `said` is what a server keeps: one list, or several, between `|`.
    pub(crate) fn problem_with(&self, said: &str) -> Option<Conflict> {
        let lists: Vec<Self> = said.split('|').map(Self::read).collect();
        if !lists.contains(self) {
            return Some(Conflict::NotListed);
        }
        let apart = lists.into_iter().find(|other| !self.always_meets(other));
        apart.map(Conflict::Apart)
    }

    /// Returns true if each majority of these servers shares one with each majority of the others.
    fn always_meets(&self, other: &Self) -> bool {
        let majority = |list: &Self| list.0.len() / 2 + 1;
        let added = other.0.iter().filter(|server| !self.0.contains(server)).count();
        // Which servers a name stands for, only the user knows.
        let is_named = self.0.len() == 1 || other.0.len() == 1;
        is_named || majority(self) + majority(other) > self.0.len() + added
    }
}

/// Why a list cannot be used beside what a server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// The server keeps other lists only.
    NotListed,
    /// It keeps this one, too, and a majority of it may share no server with one of ours.
    Apart(Masters),
}

/// An address without what only says how its server is reached.
fn word(shown: &str) -> String {
    let address = match shown.split_once("://") {
        Some(("unix", _)) | None => shown.to_owned(),
        Some((_, host_and_port)) => host_and_port.to_lowercase(),
    };
    address.replace(|c: char| c.is_whitespace() || c == '|', "_")
}

impl fmt::Display for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Masters {
        Masters::read(text)
    }

    #[test]
    fn the_order_the_scheme_and_the_case_of_the_addresses_do_not_matter() {
        assert_eq!(word("redis://Locks-1:6379"), "locks-1:6379");
        assert_eq!(word("rediss://[::1]:7"), "[::1]:7");
        assert_eq!(word("unix:///run/My redis|1"), "unix:///run/My_redis_1");
        assert_eq!(list("c:1 a:1  b:1\n"), list("a:1 b:1 c:1"));
        assert_eq!(list("c:1 a:1 b:1").to_string(), "a:1 b:1 c:1");
    }

    #[test]
    fn a_list_that_the_server_does_not_keep_is_refused() {
        let ours = list("a b c");
        assert_eq!(ours.problem_with("c b a"), None);
        assert_eq!(ours.problem_with("a b c d | a b c"), None);
        for said in ["a b d", "a b", "a b c d", "", "|", "a b c,"] {
            assert_eq!(ours.problem_with(said), Some(Conflict::NotListed), "{said:?}");
        }
        let named = Masters(vec!["locks/3".to_owned()]);
        assert_eq!(named.problem_with("locks/3"), None);
        assert_eq!(named.problem_with("a b c | locks/3"), None);
        assert_eq!(ours.problem_with("a b c | locks/3"), None);
        assert_eq!(named.problem_with("locks/5"), Some(Conflict::NotListed));
    }

    #[test]
    fn two_lists_can_be_in_use_if_their_majorities_always_meet() {
        for (one, other) in [
            ("a b c", "a b c d"),
            ("a b d", "a b c d"),
            ("a b c d", "a b c d e"),
            ("a b c d e", "a b c d e f"),
            ("a b c d", "a b c d e f"),
        ] {
            let both = format!("{one} | {other}");
            assert_eq!(list(one).problem_with(&both), None, "{both}");
            assert_eq!(list(other).problem_with(&both), None, "{both}");
        }
        for (one, other) in [
            ("a b c", "a b d"),
            ("a b c", "a b c d e"),
            ("a b c", "d e f"),
            ("a b c d e", "a b c d f"),
        ] {
            let both = format!("{one} | {other}");
            assert_eq!(list(one).problem_with(&both), Some(Conflict::Apart(list(other))), "{both}");
            assert_eq!(list(other).problem_with(&both), Some(Conflict::Apart(list(one))), "{both}");
        }
    }
}
