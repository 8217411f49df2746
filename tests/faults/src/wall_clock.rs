//! The wall clock of one server, which can be set while the server runs.

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

/// A library that the server loads, and the file that says by how many seconds its clock is ahead.
pub(crate) struct WallClock {
    dir: PathBuf,
}

impl WallClock {
    pub(crate) fn make() -> Result<Self, String> {
        let dir = std::env::temp_dir().join(format!("leasehold-clock-{}", crate::clock::now()));
        std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        let clock = Self { dir };
        std::fs::write(clock.step(), 0_i64.to_ne_bytes()).map_err(|error| error.to_string())?;
        compile(&clock.dir, &clock.shim())?;
        Ok(clock)
    }

    /// What the server's environment must have.
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        [("LD_PRELOAD", text(&self.shim())), ("LEASEHOLD_CLOCK", text(&self.step()))]
    }

    /// Sets the clock so many seconds ahead of this host's.
    pub(crate) fn set_ahead(&self, seconds: i64) -> Result<(), String> {
        let file = std::fs::OpenOptions::new().write(true).open(self.step());
        let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
        written.map_err(|error| error.to_string())
    }

    /// By how many seconds it is ahead.
    pub(crate) fn ahead(&self) -> Result<i64, String> {
        let step = std::fs::read(self.step()).map_err(|error| error.to_string())?;
        step.try_into().map(i64::from_ne_bytes).map_err(|_| "not a number".to_owned())
    }

    fn shim(&self) -> PathBuf {
        self.dir.join("clock.so")
    }

    fn step(&self) -> PathBuf {
        self.dir.join("step")
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn compile(dir: &Path, shim: &Path) -> Result<(), String> {
    let source = dir.join("clock.c");
    std::fs::write(&source, SHIM).map_err(|error| error.to_string())?;
    let compiler = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"];
    let compiled = Command::new("cc").args(compiler).arg(shim).arg(&source).status();
    let compiled = compiled.map_err(|error| format!("cc: {error}: run scripts/setup"))?;
    if compiled.success() { Ok(()) } else { Err("the shim does not compile".to_owned()) }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a temporary directory's name is text").to_owned()
}

const SHIM: &str = include_str!("../shim/clock.c");
