//! Replies, in both versions of the protocol.

use super::wire::{bulk, line};

/// What a command answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Nil,
    Int(i64),
    Bulk(Vec<u8>),
    Status(String),
    /// Beginning with its code: `ERR`, `WRONGTYPE`, `NOSCRIPT` and so on.
    Error(String),
    Array(Vec<Value>),
    /// A list of keys and values in turn for those who speak RESP2.
    Map(Vec<(Value, Value)>),
    /// What is sent unasked, and marked as such in RESP3.
    Push(Vec<Value>),
    /// A text for people: marked as such in RESP3.
    Verbatim(String),
}

impl Value {
    /// For a trace.
    pub fn shown(&self) -> String {
        match self {
            Self::Nil => "nil".to_owned(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Status(text) | Self::Error(text) | Self::Verbatim(text) => text.clone(),
            Self::Array(items) | Self::Push(items) => {
                let items: Vec<String> = items.iter().map(Self::shown).collect();
                format!("[{}]", items.join(" "))
            }
            Self::Map(pairs) => format!("{pairs:?}"),
        }
    }

    pub fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub fn encode(&self, resp3: bool, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend_from_slice(if resp3 { b"_\r\n" } else { b"$-1\r\n" }),
            Self::Int(number) => line(':', number, out),
            Self::Bulk(bytes) => bulk('$', bytes, out),
            Self::Status(text) => line('+', text.replace(['\r', '\n'], " "), out),
            Self::Error(text) => line('-', text.replace(['\r', '\n'], " "), out),
            Self::Array(items) | Self::Push(items) => {
                let is_push = resp3 && matches!(self, Self::Push(_));
                line(if is_push { '>' } else { '*' }, items.len(), out);
                items.iter().for_each(|item| item.encode(resp3, out));
            }
            Self::Map(pairs) => {
                if resp3 {
                    line('%', pairs.len(), out);
                } else {
                    line('*', pairs.len() * 2, out);
                }
                for (key, value) in pairs {
                    key.encode(resp3, out);
                    value.encode(resp3, out);
                }
            }
            Self::Verbatim(text) if resp3 => bulk('=', format!("txt:{text}").as_bytes(), out),
            Self::Verbatim(text) => bulk('$', text.as_bytes(), out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_words() {
        let value = Value::Array(vec![Value::Nil, Value::Int(-2), Value::bulk("a")]);
        let encoded = |resp3| {
            let mut out = Vec::new();
            value.encode(resp3, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(encoded(false), "*3\r\n$-1\r\n:-2\r\n$1\r\na\r\n");
        assert_eq!(encoded(true), "*3\r\n_\r\n:-2\r\n$1\r\na\r\n");
    }

    #[test]
    fn an_error_is_one_line_whatever_it_repeats() {
        let mut out = Vec::new();
        Value::error("ERR unknown command 'x', with args beginning with: 'a\r\nb'")
            .encode(false, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "-ERR unknown command 'x', with args beginning with: 'a  b'\r\n");
    }
}
