//! What happened, in order: a hash over all of it, and the last lines for people.

use std::collections::VecDeque;
use std::fmt::{self, Write};

pub struct Trace {
    hash: u64,
    lines: VecDeque<String>,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new() }
    }
}

impl Trace {
    pub fn add(&mut self, now_ms: u64, what: fmt::Arguments<'_>) {
        let mut line = if self.lines.len() >= KEPT {
            self.lines.pop_front().unwrap_or_default()
        } else {
            String::new()
        };
        line.clear();
        let _ = write!(line, "{now_ms:>9} {what}");
        // FNV-1a.
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines.push_back(line);
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn tail(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

const KEPT: usize = 400;
