//! Converts calls into Redis commands, each in one of a few forms, and Redis values into replies.

use redis::{Cmd, Value};

use crate::error::Fault;
use crate::script::{Arg, Call, Reply, Script};
use crate::secret::Secrets;

/// The form in which a call is sent. It depends on the answers to earlier sendings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// With the script's text, because the server does not know its hash.
    pub(crate) whole: bool,
    pub(crate) effect: Effect,
    /// After ASKING, because the slot is still on its way to the server.
    pub(crate) asking: bool,
    /// With the first of its keys only, because the server does not have all of them.
    pub(crate) one_key: bool,
}

impl Form {
    pub(crate) const WHOLE: Self = Self { whole: true, ..Self::PLAIN };
    pub(crate) const DURABLE: Self = Self { effect: Effect::Renewal, ..Self::PLAIN };
    pub(crate) const VOTE: Self = Self { effect: Effect::Grant, ..Self::PLAIN };
    pub(crate) const PLAIN: Self =
        Self { whole: false, effect: Effect::None, asking: false, one_key: false };
}

/// What a call may do that counts only under a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effect {
    #[default]
    None,
    /// It lengthens what was granted: that counts once enough replicas have it.
    Renewal,
    /// It may grant something: that counts once enough replicas have it, and if the server still has the data that it had
    /// when the client met it.
    Grant,
}

/// Returns the command that runs the script by its hash, or by its text for a server that does not know the hash.
pub(super) fn command(call: &Call, form: Form) -> Cmd {
    let keys = if form.one_key { &call.keys[..1] } else { &call.keys };
    let (name, script) =
        if form.whole { ("EVAL", call.script.body) } else { ("EVALSHA", hash(call.script)) };
    // With room for all of it, nothing is allocated again while it grows.
    let texts = keys.iter().map(|key| key.len()).chain(call.args.iter().map(most_bytes));
    let size = name.len() + script.len() + MOST_DIGITS + texts.sum::<usize>();
    let mut command = Cmd::with_capacity(3 + keys.len() + call.args.len(), size);
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(&**key);
    }
    for arg in &call.args {
        match arg {
            Arg::Text(text) => command.arg(&**text),
            Arg::Bytes(bytes) => command.arg(&**bytes),
            Arg::Word(word) => command.arg(*word),
            Arg::Number(number) => command.arg(*number),
        };
    }
    command
}

/// Returns how many bytes an argument has at most.
fn most_bytes(arg: &Arg) -> usize {
    match arg {
        Arg::Text(text) => text.len(),
        Arg::Bytes(bytes) => bytes.len(),
        Arg::Word(word) => word.len(),
        Arg::Number(_) => MOST_DIGITS,
    }
}

/// As many as the largest number has.
const MOST_DIGITS: usize = 20;

fn hash(script: &'static Script) -> &'static str {
    script.hash.get_or_init(|| redis::Script::new(script.body).get_hash().to_owned())
}

pub(super) fn reply(
    result: Result<Value, redis::RedisError>,
    secrets: &Secrets,
) -> Result<Reply, Fault> {
    match result {
        Ok(value) => convert(value, secrets),
        Err(error) => Err(Fault::from_redis(&error, secrets)),
    }
}

fn convert(value: Value, secrets: &Secrets) -> Result<Reply, Fault> {
    let convert = |value| convert(value, secrets);
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Number(number),
        Value::BulkString(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Reply::Text(text),
            Err(error) => {
                let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
                Reply::Raw { bytes: error.into_bytes(), shown }
            }
        },
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Text(text),
        Value::Okay => Reply::Text("OK".to_owned()),
        Value::Array(items) => {
            Reply::List(items.into_iter().map(convert).collect::<Result<_, _>>()?)
        }
        // RESP3 has maps where RESP2 has lists of keys and values.
        Value::Map(pairs) => {
            let items = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Reply::List(items.map(convert).collect::<Result<_, _>>()?)
        }
        Value::ServerError(error) => return Err(Fault::from_redis(&error.into(), secrets)),
        other => return Err(Fault::Unexpected(secrets.clean(format!("{other:?}")))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::LOCK_RENEW;

    #[test]
    fn a_call_is_its_script_the_number_of_keys_the_keys_and_the_arguments() {
        let bytes = Arg::Bytes((*b"b").into());
        let args = vec![Arg::Text("t".into()), bytes, Arg::Word("w"), Arg::Number(7)];
        let call = Call { script: &LOCK_RENEW, keys: vec!["a".into(), "b".into()], args };
        let words = |form| -> Vec<String> {
            let command = command(&call, form);
            let words = command.args_iter().map(|word| match word {
                redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
                _ => "another".to_owned(),
            });
            words.collect()
        };
        let rest = ["2", "a", "b", "t", "b", "w", "7"];
        let hash = redis::Script::new(LOCK_RENEW.body);
        let by_hash = ["EVALSHA", hash.get_hash()];
        assert_eq!(words(Form::PLAIN), [&by_hash[..], &rest].concat());
        assert_eq!(words(Form::WHOLE), [&["EVAL", LOCK_RENEW.body][..], &rest].concat());
        let one_key = Form { one_key: true, ..Form::PLAIN };
        assert_eq!(words(one_key), [&by_hash[..], &["1", "a", "t", "b", "w", "7"]].concat());
    }

    #[test]
    fn every_kind_of_value_becomes_a_reply_or_a_fault() {
        let read = |wire: &str| {
            let value = redis::parse_redis_value(wire.as_bytes()).expect("a whole value");
            convert(value, &Secrets::default())
        };
        let text = |text: &str| Reply::Text(text.to_owned());
        for (wire, reply) in [
            ("$-1\r\n", Reply::Nil),
            (":7\r\n", Reply::Number(7)),
            ("$1\r\na\r\n", text("a")),
            ("+a\r\n", text("a")),
            ("=5\r\ntxt:a\r\n", text("a")),
            ("+OK\r\n", text("OK")),
            ("*2\r\n:7\r\n$-1\r\n", Reply::List(vec![Reply::Number(7), Reply::Nil])),
            ("%1\r\n+a\r\n:7\r\n", Reply::List(vec![text("a"), Reply::Number(7)])),
        ] {
            assert_eq!(read(wire).expect("a reply"), reply, "{wire:?}");
        }
        let bytes = convert(Value::BulkString(b"a\xff".to_vec()), &Secrets::default());
        let raw = Reply::Raw { bytes: b"a\xff".to_vec(), shown: "a\u{fffd}".to_owned() };
        assert_eq!(bytes.expect("a reply"), raw);
        assert!(matches!(read("-NOSCRIPT none\r\n"), Err(Fault::NoScript)));
        assert!(matches!(read("*1\r\n-NOSCRIPT none\r\n"), Err(Fault::NoScript)));
        assert!(matches!(read("#t\r\n"), Err(Fault::Unexpected(_))));
    }
}
