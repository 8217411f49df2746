//! A resource that is written under a lock, and takes no token below one that it has seen: a file per lock.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
};

/// The registers of all locks of a run.
#[derive(Clone, Debug)]
pub struct Register {
    dir: PathBuf,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The how manieth it was, of those of all processes.
    pub number: u64,
    pub accepted: bool,
}

impl Register {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Writes with a token.
    pub fn write(&self, lock: &str, token: u64) -> io::Result<Write> {
        let path = self.dir.join(format!("{lock}.register"));
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        // Until it is closed, also by a SIGKILL.
        file.lock()?;
        let (number, highest) = read(&file)?;
        let write = Write { number: number + 1, accepted: token >= highest };
        let mut cell = [0; CELL];
        cell[..8].copy_from_slice(&write.number.to_le_bytes());
        cell[8..].copy_from_slice(&highest.max(token).to_le_bytes());
        // One call: a process that is killed has written all of it or nothing.
        file.write_all_at(&cell, 0)?;
        Ok(write)
    }
}

fn read(file: &File) -> io::Result<(u64, u64)> {
    let mut cell = [0; CELL];
    if file.metadata()?.len() == 0 {
        return Ok((0, 0));
    }
    file.read_exact_at(&mut cell, 0)?;
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    Ok((number(&cell[..8]), number(&cell[8..])))
}

const CELL: usize = 16;
