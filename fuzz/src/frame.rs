//! Values as a server may send them, right or wrong, and how they read.

use arbitrary::Arbitrary;
use leasehold_testkit::resp::{bulk, line};

/// One value of RESP2 or RESP3.
#[derive(Arbitrary, Clone, Debug, PartialEq)]
pub enum Frame {
    Nil,
    Int(i64),
    /// Often the numbers that scripts return.
    Small(i8),
    Bulk(Vec<u8>),
    Digits(i64),
    Simple(String),
    Error(String),
    Array(Vec<Frame>),
    Map(Vec<(Frame, Frame)>),
    Set(Vec<Frame>),
    Bool(bool),
    Double(f64),
    BigNumber(u64),
    Verbatim(String),
    BlobError(Vec<u8>),
}

impl Frame {
    pub fn text(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend(b"_\r\n"),
            Self::Int(number) => line(':', number, out),
            Self::Small(number) => line(':', number, out),
            Self::Bulk(bytes) => bulk('$', bytes, out),
            Self::Digits(number) => bulk('$', number.to_string().as_bytes(), out),
            Self::Simple(text) => line('+', one_line(text), out),
            Self::Error(text) => line('-', one_line(text), out),
            Self::Array(items) => many(out, '*', items),
            Self::Set(items) => many(out, '~', items),
            Self::Map(pairs) => {
                line('%', pairs.len(), out);
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
            Self::Bool(value) => out.extend(if *value { b"#t\r\n" } else { b"#f\r\n" }),
            Self::Double(number) => line(',', number, out),
            Self::BigNumber(number) => line('(', number, out),
            Self::Verbatim(text) => bulk('=', format!("txt:{text}").as_bytes(), out),
            Self::BlobError(bytes) => bulk('!', bytes, out),
        }
    }

    /// Reads one value of the kinds that scripts return, if `bytes` is exactly that.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (frame, rest) = parse_one(bytes, 0)?;
        rest.is_empty().then_some(frame)
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Small(number) => Some((*number).into()),
            _ => None,
        }
    }

    /// A number, or its decimal text: the library takes either.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Digits(number) => Some(*number),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            Self::Simple(text) | Self::Verbatim(text) => text.parse().ok(),
            _ => self.int(),
        }
    }

    /// What the library takes for text.
    pub fn said(&self) -> Option<String> {
        match self {
            Self::Digits(number) => Some(number.to_string()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Self::Simple(text) | Self::Verbatim(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[Frame]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The end of the token block that a `lock_acquire` of exactly this answer grants.
    pub fn granted(&self) -> Option<u64> {
        let end = match self.list() {
            Some([one, end]) if one.int()? == 1 => end.number()?,
            Some(_) => return None,
            None => self.int()?,
        };
        end.try_into().ok()
    }

    /// Whether an answer of `lock_renew`, `fence_raise` or `force_unlock` says yes.
    pub fn is_one(&self) -> bool {
        self.number() == Some(1)
    }

    /// Whether an answer of `lock_release` says that the lease was held; `None`: it is none of its answers.
    pub fn released(&self) -> Option<bool> {
        let held = match self.list() {
            Some([held, passed_over]) => {
                u32::try_from(passed_over.number()?).ok()?;
                held
            }
            Some(_) => return None,
            None => self,
        };
        Some(u32::try_from(held.number()?).ok()? > 0)
    }
}

fn many(out: &mut Vec<u8>, sign: char, items: &[Frame]) {
    line(sign, items.len(), out);
    items.iter().for_each(|item| item.write(out));
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

fn parse_one(bytes: &[u8], depth: usize) -> Option<(Frame, &[u8])> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (sign, line) = bytes[..end].split_first()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut rest = &bytes[end + 2..];
    let frame = match sign {
        b':' => Frame::Int(line.parse().ok()?),
        b'+' => Frame::Simple(line.to_owned()),
        b'-' => Frame::Error(line.to_owned()),
        b'$' => {
            let length: usize = line.parse().ok()?;
            let bytes = rest.get(..length)?;
            rest = rest[length..].strip_prefix(b"\r\n")?;
            Frame::Bulk(bytes.to_vec())
        }
        b'*' if depth < 8 => {
            let mut items = Vec::new();
            for _ in 0..line.parse::<u16>().ok()? {
                let (item, behind) = parse_one(rest, depth + 1)?;
                rest = behind;
                items.push(item);
            }
            Frame::Array(items)
        }
        _ => return None,
    };
    Some((frame, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_the_same() {
        let frame = Frame::Array(vec![Frame::Int(-7), Frame::text("a\r\nb"), Frame::Array(vec![])]);
        assert_eq!(Frame::parse(&frame.encode()), Some(frame.clone()));
        assert_eq!(Frame::parse(&[frame.encode(), b"x".to_vec()].concat()), None);
    }

    #[test]
    fn only_the_exact_shape_is_a_grant() {
        let list = |items: &[Frame]| Frame::Array(items.to_vec());
        assert_eq!(list(&[Frame::Small(1), Frame::Int(9)]).granted(), Some(9));
        assert_eq!(list(&[Frame::Small(1), Frame::Int(-9)]).granted(), None);
        assert_eq!(list(&[Frame::Small(1)]).granted(), None);
        assert_eq!(list(&[Frame::Small(1), Frame::Int(9), Frame::Nil]).granted(), None);
        assert_eq!(list(&[Frame::Bool(true), Frame::Int(9)]).granted(), None);
        assert_eq!(Frame::Int(9).granted(), Some(9));
        assert_eq!(Frame::Int(-9).granted(), None);
        assert_eq!(Frame::Digits(9).granted(), None, "a number, and not its text");
    }
}
