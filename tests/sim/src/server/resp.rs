//! The wire format: requests in, replies out, in both versions of the protocol.

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
            Self::Array(items) => {
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
            Self::Int(number) => line(out, ':', number),
            Self::Bulk(bytes) => bulk(out, '$', bytes),
            Self::Status(text) => line(out, '+', text),
            Self::Error(text) => line(out, '-', text),
            Self::Array(items) => {
                line(out, '*', items.len());
                items.iter().for_each(|item| item.encode(resp3, out));
            }
            Self::Map(pairs) => {
                if resp3 {
                    line(out, '%', pairs.len());
                } else {
                    line(out, '*', pairs.len() * 2);
                }
                for (key, value) in pairs {
                    key.encode(resp3, out);
                    value.encode(resp3, out);
                }
            }
            Self::Verbatim(text) if resp3 => bulk(out, '=', format!("txt:{text}").as_bytes()),
            Self::Verbatim(text) => bulk(out, '$', text.as_bytes()),
        }
    }
}

fn line(out: &mut Vec<u8>, kind: char, what: impl std::fmt::Display) {
    out.extend_from_slice(format!("{kind}{what}\r\n").as_bytes());
}

fn bulk(out: &mut Vec<u8>, kind: char, bytes: &[u8]) {
    line(out, kind, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The words of a command.
pub type Command = Vec<Vec<u8>>;

/// Takes the first whole command out of `input`, if there is one.
pub fn take_command(input: &mut Vec<u8>) -> Option<Command> {
    let mut at = 0;
    let count = number(input, &mut at, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(input, &mut at, b'$')?;
        let word = input.get(at..at + length)?.to_vec();
        input.get(at + length..at + length + 2)?;
        at += length + 2;
        words.push(word);
    }
    input.drain(..at);
    Some(words)
}

fn number(input: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    let rest = input.get(*at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(rest[0], kind, "only commands as clients send them are understood");
    let number = std::str::from_utf8(&rest[1..end]).ok()?.parse().expect("a length");
    *at += end + 2;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_one_by_one_and_only_when_whole() {
        let wire = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nTIME\r\n";
        for cut in 0..wire.len() {
            let mut input = wire[..cut].to_vec();
            let mut taken = Vec::new();
            while let Some(command) = take_command(&mut input) {
                taken.push(command);
            }
            assert_eq!(taken.len(), usize::from(cut >= 20), "{cut} bytes");
        }
        let mut input = wire.to_vec();
        assert_eq!(take_command(&mut input), Some(vec![b"GET".to_vec(), b"a".to_vec()]));
        assert_eq!(take_command(&mut input), Some(vec![b"TIME".to_vec()]));
        assert!(input.is_empty());
    }

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
}
