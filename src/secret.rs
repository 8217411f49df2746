//! Passwords, which must not appear in any text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The passwords of a server's URL. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    /// Takes `password` as it is sent to the server, and the forms of it in `url`.
    pub(crate) fn of(url: &str, password: Option<&str>) -> Self {
        let raw = raw_passwords(url).map(str::to_owned);
        let all = raw.chain(password.map(str::to_owned));
        let all = all.flat_map(|secret| [secret.escape_debug().to_string(), secret]);
        let mut all: Vec<String> = all.filter(|secret| !secret.is_empty()).collect();
        all.sort();
        all.dedup();
        Self(all.into())
    }

    /// Returns true if `text` contains one of them, in any percent-encoding.
    pub(crate) fn are_in(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let decoded = percent_decoded(text);
        let is_in = |text: &str| self.0.iter().any(|secret| text.contains(secret));
        is_in(text) || is_in(&decoded) || is_in(&decoded.replace('+', " "))
    }

    /// Returns `text`, or a note instead if it contains a password. Cutting out only a short password would reveal it.
    pub(crate) fn clean<'a>(&self, text: impl Into<Cow<'a, str>>) -> Arc<str> {
        let text = text.into();
        if self.are_in(&text) { NOT_SHOWN.into() } else { text.into() }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// Returns the parts of a URL that can contain a password.
fn raw_passwords(url: &str) -> impl Iterator<Item = &str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A password that was not encoded may contain any of these characters.
    let in_front = [authority, rest].map(|part| {
        let (login, _) = part.rsplit_once('@')?;
        login.split_once(':').map(|(_, password)| password)
    });
    let parameters = rest.split(['?', '&', '#']);
    let in_query = parameters.filter_map(|parameter| parameter.strip_prefix("pass="));
    in_front.into_iter().flatten().chain(in_query)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match code {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &rest[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

const NOT_SHOWN: &str = "(not shown: the server's message contains the password)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_found_in_every_form() {
        let secrets = Secrets::of("redis://u:c%40n%2Fary@host:1/2", Some("c@n/ary"));
        for text in ["c@n/ary", "c%40n%2Fary", "c%40n%2fary", "%63@n/%61ry", "'c@n/ary' is wrong"] {
            assert!(secrets.are_in(text), "{text}");
            assert_eq!(&*secrets.clean(text), NOT_SHOWN);
        }
        for text in ["", "canary", "c@n", "%", "%4", "100%"] {
            assert!(!secrets.are_in(text), "{text}");
            assert_eq!(&*secrets.clean(text), text);
        }
    }

    #[test]
    fn a_password_is_taken_from_every_place_of_a_url() {
        for url in [
            "redis://:canary@host",
            "redis://user:canary@host:1/0",
            "rediss://user:canary@host#insecure",
            "unix:///a/b?db=1&pass=canary&user=u",
            "user:canary@host",
            "redis://user:canary@:bad port/",
        ] {
            assert!(Secrets::of(url, None).are_in("the canary"), "{url}");
        }
        let odd = Secrets::of("redis://u:a/b?c#d@host", None);
        assert!(odd.are_in("a/b?c#d"));
        let quoted = Secrets::of("unix:///x?pass=a%22b+c", Some("a\"b c"));
        for text in ["a\"b c", "a\\\"b c", "a%22b+c", "a%22b%20c", "a\"b+c", "%61%22b+c"] {
            assert!(quoted.are_in(text), "{text}");
        }
        assert!(!Secrets::of("redis://host", None).are_in("anything"));
        assert!(!Secrets::of("redis://:@host", Some("")).are_in("anything"));
    }
}
