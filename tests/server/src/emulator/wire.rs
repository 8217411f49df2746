//! Commands as they come over a connection, and the parts of which replies are made.

use std::fmt::Display;

/// The words of a command.
pub type Command = Vec<Vec<u8>>;

/// Takes the first whole command out of `input`, if there is one: a list of words, or a line of them as a person types it.
/// It may have no words.
///
/// # Errors
///
/// If `input` is no command. A server answers so, and closes the connection.
pub fn take_command(input: &mut Vec<u8>) -> Result<Option<Command>, String> {
    let taken = match input.first() {
        None => None,
        Some(b'*') => list(input)?,
        Some(_) => typed(input),
    };
    Ok(taken.map(|(words, length)| {
        input.drain(..length);
        words
    }))
}

fn list(input: &[u8]) -> Result<Option<(Command, usize)>, String> {
    let Some((count, mut at)) = number(input, 0, "invalid multibulk length")? else {
        return Ok(None);
    };
    let mut words = Vec::new();
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => {
                let other = char::from(*other);
                return Err(format!("ERR Protocol error: expected '$', got '{other}'"));
            }
        }
        let Some((length, start)) = number(input, at, "invalid bulk length")? else {
            return Ok(None);
        };
        if input.len() < start + length + 2 {
            return Ok(None);
        }
        words.push(input[start..start + length].to_vec());
        at = start + length + 2;
    }
    Ok(Some((words, at)))
}

/// The number behind the sign at `at`, and where the next line begins.
fn number(input: &[u8], at: usize, problem: &str) -> Result<Option<(usize, usize)>, String> {
    let Some(end) = input[at..].windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let digits = std::str::from_utf8(&input[at + 1..at + end]).ok();
    match digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= MOST) {
        Some(number) => Ok(Some((number, at + end + 2))),
        None => Err(format!("ERR Protocol error: {problem}")),
    }
}

fn typed(input: &[u8]) -> Option<(Command, usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let words = input[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Some((words.map(<[u8]>::to_vec).collect(), end + 1))
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

/// A word of a command may be as long as Redis lets it be.
const MOST: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Command {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn commands_are_taken_one_by_one_and_only_when_whole() {
        let wire = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nTIME\r\nPING  hello\r\n".to_vec();
        for cut in 0..=wire.len() {
            let mut input = wire[..cut].to_vec();
            let mut taken = Vec::new();
            while let Some(command) = take_command(&mut input).expect("commands") {
                taken.push(command);
            }
            let all = [words(&["GET", "a"]), words(&["TIME"]), words(&["PING", "hello"])];
            let whole = [20, 34, 47].iter().filter(|end| **end <= cut).count();
            assert_eq!(taken, all[..whole], "{cut} bytes");
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let refused = |text: &str| take_command(&mut text.as_bytes().to_vec()).expect_err(text);
        assert_eq!(refused("*x\r\n"), "ERR Protocol error: invalid multibulk length");
        assert_eq!(refused("*1\r\n:1\r\n"), "ERR Protocol error: expected '$', got ':'");
        assert_eq!(refused("*1\r\n$-1\r\n"), "ERR Protocol error: invalid bulk length");
    }
}
