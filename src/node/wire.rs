//! Calls into Redis commands, Redis values into replies.

use redis::{Cmd, Value};

use crate::error::Fault;
use crate::script::{Arg, Call, Reply, Script};
use crate::secret::Secrets;

/// The call by the script's hash, or with its whole text for a server that does not know the hash.
pub(super) fn command(call: &Call, with_body: bool) -> Cmd {
    let mut command = if with_body {
        let mut command = redis::cmd("EVAL");
        command.arg(call.script.body);
        command
    } else {
        let mut command = redis::cmd("EVALSHA");
        command.arg(hash(call.script));
        command
    };
    command.arg(call.keys.len());
    for key in &call.keys {
        command.arg(&**key);
    }
    for arg in &call.args {
        match arg {
            Arg::Text(text) => command.arg(&**text),
            Arg::Word(word) => command.arg(*word),
            Arg::Number(number) => command.arg(*number),
        };
    }
    command
}

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
        Value::BulkString(bytes) => Reply::Text(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Text(text),
        Value::Okay => Reply::Text("OK".to_owned()),
        Value::Array(items) => {
            Reply::List(items.into_iter().map(convert).collect::<Result<_, _>>()?)
        }
        // RESP3 for what RESP2 says as a list of keys and values.
        Value::Map(pairs) => {
            let items = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Reply::List(items.map(convert).collect::<Result<_, _>>()?)
        }
        Value::ServerError(error) => return Err(Fault::from_redis(&error.into(), secrets)),
        other => return Err(Fault::Unexpected(secrets.clean(format!("{other:?}")))),
    })
}
