//! The two halves of a connection for subscriptions: of classic channels, or of sharded ones.
//!
//! Sharded channels (Redis 7) belong to a slot. Their connection carries nothing else, and one channel is subscribed at a
//! time: a server that gives a slot away unsubscribes its channels unasked, and the redis crate takes that for an answer.

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc;

/// What is said on the connection.
#[derive(Clone)]
pub(super) enum Mouth {
    Classic(PubSubSink),
    Sharded(MultiplexedConnection),
}

impl Mouth {
    pub(super) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Classic(sink) => sink.subscribe(channel).await,
            Self::Sharded(connection) => said(connection, "SSUBSCRIBE", Some(channel)).await,
        }
    }

    pub(super) async fn unsubscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Classic(sink) => sink.unsubscribe(channel).await,
            Self::Sharded(connection) => said(connection, "SUNSUBSCRIBE", Some(channel)).await,
        }
    }

    pub(super) async fn ping(&mut self) -> RedisResult<()> {
        match self {
            Self::Classic(sink) => sink.ping::<Value>().await.map(|_| ()),
            Self::Sharded(connection) => said(connection, "PING", None).await,
        }
    }
}

async fn said(
    connection: &mut MultiplexedConnection,
    verb: &str,
    channel: Option<&str>,
) -> RedisResult<()> {
    let mut command = redis::cmd(verb);
    if let Some(channel) = channel {
        command.arg(channel);
    }
    connection.send_packed_command(&command).await?.extract_error().map(|_| ())
}

/// What is heard on it.
pub(super) enum Ear {
    Classic(PubSubStream),
    Sharded(mpsc::UnboundedReceiver<PushInfo>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Message {
        channel: String,
        payload: Vec<u8>,
    },
    /// The server ended a subscription: because it was asked to, or because it has given the slot away.
    Unsubscribed {
        channel: String,
    },
}

impl Ear {
    /// Returns what comes next, or `None` at the end of the connection. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        let pushes = match self {
            Self::Classic(stream) => {
                let message = stream.next().await?;
                let channel = message.get_channel_name().to_owned();
                return Some(Heard::Message {
                    channel,
                    payload: message.get_payload_bytes().to_vec(),
                });
            }
            Self::Sharded(pushes) => pushes,
        };
        loop {
            let push = pushes.recv().await?;
            if push.kind == PushKind::Disconnection {
                return None;
            }
            if let Some(heard) = read(&push) {
                return Some(heard);
            }
        }
    }
}

fn read(push: &PushInfo) -> Option<Heard> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        _ => None,
    };
    let channel = String::from_utf8(text(push.data.first()?)?).ok()?;
    match push.kind {
        PushKind::SMessage => Some(Heard::Message { channel, payload: text(push.data.get(1)?)? }),
        PushKind::SUnsubscribe => Some(Heard::Unsubscribed { channel }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_ends_of_sharded_channels_are_read() {
        let bytes = |text: &str| Value::BulkString(text.into());
        let push = |kind, data| read(&PushInfo { kind, data });
        let message = push(PushKind::SMessage, vec![bytes("c"), bytes("0")]);
        assert_eq!(message, Some(Heard::Message { channel: "c".into(), payload: b"0".into() }));
        let end = push(PushKind::SUnsubscribe, vec![bytes("c"), Value::Int(0)]);
        assert_eq!(end, Some(Heard::Unsubscribed { channel: "c".into() }));
        assert_eq!(push(PushKind::SSubscribe, vec![bytes("c"), Value::Int(1)]), None);
        assert_eq!(push(PushKind::SMessage, vec![Value::Nil]), None);
    }
}
