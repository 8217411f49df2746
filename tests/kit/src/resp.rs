//! The wire format of Redis: commands, and the parts of which replies are made.

use std::fmt::Display;

/// The words of a command.
pub type Command = Vec<Vec<u8>>;

/// Takes the first whole command out of `input`, if there is one.
///
/// # Panics
///
/// If `input` does not begin as a command does.
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
    assert_eq!(rest[0], kind, "not a command: {:?}", String::from_utf8_lossy(rest));
    let number = std::str::from_utf8(&rest[1..end]).expect("digits").parse().expect("a length");
    *at += end + 2;
    Some(number)
}

/// Writes a command.
pub fn command<W: AsRef<[u8]>>(words: &[W], out: &mut Vec<u8>) {
    line('*', words.len(), out);
    words.iter().for_each(|word| bulk('$', word.as_ref(), out));
}

/// Writes a line: all of a short value, or the beginning of a list.
pub fn line(kind: char, what: impl Display, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{kind}{what}\r\n").as_bytes());
}

/// Writes bytes with their length before them.
pub fn bulk(kind: char, bytes: &[u8], out: &mut Vec<u8>) {
    line(kind, bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_one_by_one_and_only_when_whole() {
        let mut wire = Vec::new();
        command(&["GET", "a"], &mut wire);
        command(&["TIME"], &mut wire);
        assert_eq!(wire, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nTIME\r\n");
        for cut in 0..wire.len() {
            let mut input = wire[..cut].to_vec();
            let mut taken = Vec::new();
            while let Some(command) = take_command(&mut input) {
                taken.push(command);
            }
            assert_eq!(taken.len(), usize::from(cut >= 20), "{cut} bytes");
        }
        assert_eq!(take_command(&mut wire), Some(vec![b"GET".to_vec(), b"a".to_vec()]));
        assert_eq!(take_command(&mut wire), Some(vec![b"TIME".to_vec()]));
        assert!(wire.is_empty());
    }
}
