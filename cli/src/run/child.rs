//! The command that `run` runs: its process, its group, its terminal.

use std::cell::Cell;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, getpgrp, getppid, tcgetpgrp, tcsetpgrp};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use super::say::{Event, Say};
use crate::args::{Exec, Run};
use crate::exit::{self, Failure};

/// How a command ended.
pub enum Ended {
    Exited(i32),
    Signalled(i32),
}

/// A command that runs.
pub struct Child {
    pid: Pid,
    /// It leads a process group of its own.
    has_group: bool,
    /// It has the terminal, which was this process's.
    has_terminal: bool,
    told_of_terminal: Cell<bool>,
}

impl Child {
    /// Starts `program` with the command's arguments.
    pub fn start(
        program: &Path,
        run: &Run,
        environment: Vec<(&'static str, OsString)>,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(exit::NOT_EXECUTABLE, format!("{}: {error}", program.display()))
        };
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        command.arg("__exec").arg(std::process::id().to_string()).arg("--").arg(program);
        command.args(&run.command[1..]).envs(environment);
        if !run.foreground {
            command.process_group(0);
        }
        // The terminal goes to the command's group only if it is ours to give.
        let has_terminal = !run.foreground
            && io::stdin().is_terminal()
            && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        let child = command.spawn().map_err(failed)?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        if has_terminal {
            give_terminal_to(pid);
        }
        Ok(Self {
            pid,
            has_group: !run.foreground,
            has_terminal,
            told_of_terminal: Cell::new(false),
        })
    }

    /// Sends a signal: to the command's group if it has one.
    pub fn signal(&self, signal: Signal) {
        // It may have ended already.
        let _ = match self.has_group {
            true => killpg(self.pid, signal),
            false => kill(self.pid, signal),
        };
    }

    /// Runs the shell command that is to end this one.
    pub fn instead(&self, command: &str, lock: &str, reason: &str, say: &Say) {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null());
        shell.env("LEASEHOLD_LOST", reason).env("LEASEHOLD_LOCK", lock);
        shell.env("LEASEHOLD_PID", self.pid.to_string());
        if let Err(error) = shell.spawn() {
            say.event(&Event::ShellFailed { command, error: &error });
            self.signal(Signal::SIGTERM);
        }
    }

    /// Learns what children have done, and returns how the command ended, if it did.
    pub fn look(&mut self, say: &Say) -> Option<Ended> {
        loop {
            // Any child: as the first process of a container we get those that others have left behind.
            // Its signal may be one of the real-time ones, which have no names.
            let status = match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid.as_raw_pid() == self.pid.as_raw() => status,
                Ok(Some(_)) | Err(Errno::INTR) => continue,
                Ok(None) | Err(_) => return None,
            };
            if let Some(code) = status.exit_status() {
                return Some(self.ended(Ended::Exited(code)));
            }
            if let Some(signal) = status.terminating_signal() {
                return Some(self.ended(Ended::Signalled(signal)));
            }
            if let Some(Ok(signal)) = status.stopping_signal().map(Signal::try_from) {
                self.stopped(signal, say);
            }
        }
    }

    /// A stopped command holds its lock for ever, and stopping with it would lose the lock.
    fn stopped(&self, signal: Signal, say: &Say) {
        match signal {
            Signal::SIGTSTP => {
                say.event(&Event::NotSuspended);
                self.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU if self.has_terminal => {
                // It was faster than the hand-over.
                give_terminal_to(self.pid);
                self.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU if !self.told_of_terminal.replace(true) => {
                say.event(&Event::WaitsForTerminal);
            }
            _ => (),
        }
    }

    fn ended(&self, ended: Ended) -> Ended {
        if self.has_terminal {
            give_terminal_to(getpgrp());
        }
        ended
    }
}

/// Makes `group` the terminal's foreground group.
fn give_terminal_to(group: Pid) {
    // Who does that from the background is stopped, unless the signal is blocked.
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let blocked = stop.thread_block();
    // The group or the terminal may be gone.
    let _ = tcsetpgrp(io::stdin(), group);
    if blocked.is_ok() {
        let _ = stop.thread_unblock();
    }
}

/// Arranges that this process dies with `run`, and becomes the command. It returns only if that fails.
pub fn become_command(exec: &Exec) -> Failure {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        return Failure::new(exit::SOFTWARE, format!("cannot tie the command to run: {error}"));
    }
    // It may have died before that.
    if getppid().as_raw() != exec.parent {
        return Failure::new(exit::SOFTWARE, "run has ended");
    }
    let mut command = Command::new(&exec.command[0]);
    let error = command.args(&exec.command[1..]).exec();
    Failure::new(
        exit::NOT_EXECUTABLE,
        format!("{}: {error}", Path::new(&exec.command[0]).display()),
    )
}

/// Finds the program as a shell would, before anything is locked.
pub fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    let shown = Path::new(program).display();
    let is_path = program.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = match is_path {
        true => vec![program.into()],
        false => {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path).map(|directory| directory.join(program)).collect()
        }
    };
    let mut found = None;
    for candidate in candidates {
        let Ok(metadata) = fs::metadata(&candidate) else { continue };
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            return Ok(candidate);
        }
        found = found.or(Some(candidate));
    }
    match found {
        Some(_) => Err(Failure::new(exit::NOT_EXECUTABLE, format!("{shown}: not executable"))),
        None => Err(Failure::new(exit::NOT_FOUND, format!("{shown}: command not found"))),
    }
}
