//! Where a process writes what it saw. A line is written by one call, so that it outlives the process.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    clock,
    event::{Event, What},
};

/// A file, or memory.
#[derive(Clone, Debug)]
pub struct Journal {
    to: Arc<Mutex<To>>,
}

#[derive(Debug)]
enum To {
    File(File),
    Memory(Vec<Event>),
}

impl Journal {
    pub fn create(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path)?;
        Ok(Self { to: Arc::new(Mutex::new(To::File(file))) })
    }

    pub fn in_memory() -> Self {
        Self { to: Arc::new(Mutex::new(To::Memory(Vec::new()))) }
    }

    /// Writes what happens now.
    pub fn write(&self, what: What) {
        self.write_at(clock::now(), what);
    }

    /// Writes what happened at `at`.
    pub fn write_at(&self, at: u64, what: What) {
        let event = Event { at, what };
        match &mut *self.to.lock() {
            To::Memory(events) => events.push(event),
            To::File(file) => {
                let mut line = serde_json::to_string(&event).expect("an event is plain data");
                line.push('\n');
                file.write_all(line.as_bytes()).expect("the journal can be written");
            }
        }
    }

    /// What was written to memory.
    pub fn events(&self) -> Vec<Event> {
        match &*self.to.lock() {
            To::Memory(events) => events.clone(),
            To::File(_) => panic!("a journal on disk is read as a file"),
        }
    }
}
