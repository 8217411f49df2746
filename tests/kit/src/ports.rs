//! Ports that stay ours while nobody listens on them.
//!
//! They lie below the range from which systems take ports for outgoing connections: a server that is down, or a proxy that
//! refuses, finds its port free again. And they are of blocks that this process has locked: a client that still looks for
//! its server where that was must not find one of another process's tests.

use std::{
    fs::{self, File},
    path::Path,
    sync::{Mutex, PoisonError},
};

/// The next port to try to listen on. Somebody else may have it: then try the next one.
pub fn next() -> u16 {
    OURS.lock().unwrap_or_else(PoisonError::into_inner).next()
}

static OURS: Mutex<Ours> = Mutex::new(Ours { ports: Vec::new(), at: 0, locks: Vec::new() });
/// One place for all processes of this host, whatever temporary directory each of them was given.
const LOCKS: &str = "/tmp/leasehold-test-ports";
const FIRST: u16 = 12_000;
const BLOCKS: u16 = 180;
const BLOCK: u16 = 100;

struct Ours {
    ports: Vec<u16>,
    at: usize,
    /// They end with the process.
    locks: Vec<File>,
}

impl Ours {
    fn next(&mut self) -> u16 {
        if self.at == self.ports.len() && !self.lock_a_block() {
            // After so many, the first ones are forgotten.
            self.at = 0;
        }
        self.at += 1;
        self.ports[self.at - 1]
    }

    /// Returns false if all blocks are taken, and some of them are ours.
    fn lock_a_block(&mut self) -> bool {
        let dir = Path::new(LOCKS);
        fs::create_dir_all(dir).expect("a directory for locks can be made");
        for block in 0..BLOCKS {
            let first = FIRST + block * BLOCK;
            if self.ports.contains(&first) {
                continue;
            }
            let lock = File::create(dir.join(first.to_string())).expect("a file can be made");
            if lock.try_lock().is_ok() {
                self.ports.extend(first..first + BLOCK);
                self.locks.push(lock);
                return true;
            }
        }
        assert!(!self.ports.is_empty(), "other tests use all ports that are set aside for them");
        false
    }
}
