//! SCAN: all keys, some at a time. A key that is there all the time is told, whatever comes and goes meanwhile.

use super::keyspace::{Answer, Keyspace, SYNTAX, integer};
use super::resp::Value;

impl Keyspace {
    pub(super) fn scan(&mut self, args: &[Vec<u8>]) -> Answer {
        let from = integer(&args[0]).map_err(|_| "ERR invalid cursor")?;
        let (mut pattern, mut count, mut kind) = (None, 10, None);
        for option in args[1..].chunks(2) {
            let [name, value] = option else { return Err(SYNTAX.to_owned()) };
            match &*name.to_ascii_lowercase() {
                b"match" => pattern = Some(value.clone()),
                b"count" => match usize::try_from(integer(value)?) {
                    Ok(some @ 1..) => count = some,
                    _ => return Err(SYNTAX.to_owned()),
                },
                b"type" => kind = Some(value.to_ascii_lowercase()),
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        let mut keys: Vec<(i64, Vec<u8>)> =
            self.names().into_iter().map(|key| (place(&key), key)).collect();
        keys.retain(|(place, _)| *place >= from);
        keys.sort_unstable();
        // Those of one place belong together.
        let next = keys.get(count - 1).map_or(i64::MAX, |(last, _)| *last);
        let rest = keys.partition_point(|(place, _)| *place <= next);
        let cursor = keys.get(rest).map_or(0, |(place, _)| *place);
        keys.truncate(rest);
        let fits = |key: &Vec<u8>| {
            pattern.as_ref().is_none_or(|pattern| matches(pattern, key))
                && kind.as_ref().is_none_or(|kind| self.type_of(key).as_bytes() == &kind[..])
        };
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|(_, key)| key).filter(fits).collect();
        let keys = keys.into_iter().map(Value::Bulk).collect();
        Ok(Value::Array(vec![Value::bulk(cursor.to_string()), Value::Array(keys)]))
    }
}

/// The place of a key among all that there might be; none is at zero. (FNV-1a)
fn place(key: &[u8]) -> i64 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 16) as i64 + 1
}

/// Whether a text fits a pattern with `*`, `?`, `[abc]`, and `\` before what means itself.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|from| matches(rest, &text[from..])),
        (_, []) => false,
        ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
        ([b'[', rest @ ..], [first, text @ ..]) => {
            let Some(end) = rest.iter().position(|it| *it == b']') else { return false };
            rest[..end].contains(first) && matches(&rest[end + 1..], text)
        }
        ([b'\\', own, rest @ ..] | [own, rest @ ..], [first, text @ ..]) => {
            own == first && matches(rest, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_what_a_real_servers_does() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[ab]c", "bc", true),
            ("[ab]c", "cc", false),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            (r"\\", r"\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_key_that_stays_is_told_whatever_else_comes_and_goes() {
        let mut keys = Keyspace::new(0);
        let words = |words: &[&str]| -> Vec<Vec<u8>> {
            words.iter().map(|word| word.as_bytes().to_vec()).collect()
        };
        for number in 0..50 {
            keys.run("set", &words(&[&format!("stays:{number}"), "v"]));
        }
        let (mut cursor, mut found, mut calls) = ("0".to_owned(), Vec::new(), 0);
        loop {
            keys.run("set", &words(&[&format!("comes:{calls}"), "v"]));
            keys.run("del", &words(&[&format!("comes:{}", calls / 2)]));
            let scan = words(&[&cursor, "MATCH", "stays:*", "COUNT", "7", "TYPE", "string"]);
            let Some(Value::Array(reply)) = keys.run("scan", &scan) else { panic!("no page") };
            let [Value::Bulk(next), Value::Array(page)] = &reply[..] else { panic!("{reply:?}") };
            found.extend(page.iter().map(|key| format!("{key:?}")));
            calls += 1;
            cursor = String::from_utf8(next.clone()).expect("a number");
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 50);
        assert!(calls > 5, "{calls}");
    }
}
