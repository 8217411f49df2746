//! The command that `run` runs: its process, its group, its terminal.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, tcgetpgrp, tcsetpgrp};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::WaitOptions;
use tokio::time::{Instant, sleep};

use super::held::VARIABLE;
use super::loss::Loss;
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
    /// The terminal, if the command may get it.
    terminal: Option<OwnedFd>,
    /// The process group whose terminal it has.
    terminal_of: Option<Pid>,
    /// The `run`s around this process.
    outer_runs: Vec<Pid>,
    /// It is stopped until it gets the terminal.
    waits_for_terminal: bool,
    told_of_terminal: bool,
}

impl Child {
    /// Starts `program` with the command's arguments. With `json`, what fails in the new process is told as an event.
    pub fn start(
        program: &Path,
        run: &Run,
        environment: Vec<(&'static str, OsString)>,
        outer_runs: Vec<u32>,
        in_background: bool,
        json: bool,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::ArgumentListTooLong => {
                Failure::new(exit::NOT_EXECUTABLE, format!("{}: {error}", program.display()))
            }
            // What does not start is this program, and not yet the command.
            _ => {
                Failure::new(exit::SOFTWARE, format!("cannot start {}: {error}", program.display()))
            }
        };
        let mut command = Command::new(own_program()?);
        command.args(json.then_some("--json"));
        command.arg("__exec").arg(std::process::id().to_string()).arg("--").arg(program);
        command.args(&run.command[1..]).envs(environment);
        if !run.foreground {
            command.process_group(0);
        }
        let child = command.spawn().map_err(failed)?;
        let mut child = Self {
            pid: pid_of(child.id()),
            has_group: !run.foreground,
            terminal: if run.foreground { None } else { terminal() },
            terminal_of: None,
            outer_runs: outer_runs.into_iter().map(pid_of).collect(),
            waits_for_terminal: false,
            told_of_terminal: false,
        };
        // What writes our input or reads our output may want the terminal itself, to ask for a password or as a pager, and so may a
        // script that goes on beside us. It keeps it until the command asks for it.
        if !in_background && !is_pipe(io::stdin()) && !is_pipe(io::stdout()) {
            child.take_terminal(&[getpgrp()]);
        }
        Ok(child)
    }

    /// Sends a signal: to the command's group if it has one. What is stopped is told to go on, too, if the signal asks it to end:
    /// otherwise it would never learn of that.
    pub fn signal(&self, signal: Signal) {
        self.send(signal);
        let asks_to_end =
            matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM);
        if asks_to_end {
            self.send(Signal::SIGCONT);
        }
    }

    fn send(&self, signal: Signal) {
        // It may have ended already.
        let _ = match self.has_group {
            true => killpg(self.pid, signal),
            false => kill(self.pid, signal),
        };
    }

    /// Waits until what the command has left behind in its group has ended, too, and kills it at that time. Nothing may go on without
    /// the lock.
    pub async fn rest_ends(&self, kill_at: Instant) {
        // While one of them is there, no other group has that number.
        while self.has_group && killpg(self.pid, None).is_ok() {
            if Instant::now() >= kill_at {
                self.signal(Signal::SIGKILL);
                return;
            }
            sleep(Duration::from_millis(20)).await;
            // As the first process of a container we get them.
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        }
    }

    /// Runs the shell command that is to end this one. The token is that of the lost lock, unless an outer `run` has it.
    pub fn instead(&self, command: &str, lock: &str, token: Option<u64>, loss: Loss, say: &Say) {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null());
        shell.env("LEASEHOLD_LOST", loss.code()).env("LEASEHOLD_LOST_TEXT", loss.to_string());
        shell.env("LEASEHOLD_LOCK", lock);
        shell.env("LEASEHOLD_PID", self.pid.to_string());
        // Those of an outer `run` are about other locks.
        for variable in ["LEASEHOLD_TOKEN", "LEASEHOLD_TTL_MS", VARIABLE] {
            shell.env_remove(variable);
        }
        shell.envs(token.map(|token| ("LEASEHOLD_TOKEN", token.to_string())));
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
    fn stopped(&mut self, signal: Signal, say: &Say) {
        match signal {
            Signal::SIGTSTP => {
                // In this process's group it was told so together with this process, which says so.
                if self.has_group {
                    say.event(&Event::NotSuspended);
                }
                self.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU => {
                self.waits_for_terminal = true;
                self.offer_terminal();
                if self.waits_for_terminal && !self.told_of_terminal {
                    self.told_of_terminal = true;
                    say.event(&Event::WaitsForTerminal);
                }
            }
            _ => (),
        }
    }

    /// This process was told to suspend, with all of its group, and goes on.
    pub fn not_suspended(&self, say: &Say) {
        say.event(&Event::NotSuspended);
        // A command waits for ever for children that are stopped, or for those who read what it writes.
        let _ = killpg(getpgrp(), Signal::SIGCONT);
    }

    /// Waits for the time to offer the terminal again to a command that is stopped without it: a shell that makes its job the
    /// one in the foreground says so to nobody.
    pub async fn wants_terminal(&self) {
        match self.waits_for_terminal && self.terminal.is_some() {
            true => sleep(Duration::from_millis(250)).await,
            false => pending().await,
        }
    }

    /// Lets a command that is stopped without the terminal go on, if it can have it.
    pub fn offer_terminal(&mut self) {
        if !self.waits_for_terminal {
            return;
        }
        // An outer `run` that has left the terminal to others never hears that this command asks for it.
        let outer = self.outer_runs.iter().filter_map(|&run| getpgid(Some(run)).ok());
        let groups: Vec<_> = outer.chain([getpgrp()]).collect();
        if self.take_terminal(&groups) {
            self.waits_for_terminal = false;
            self.signal(Signal::SIGCONT);
        }
    }

    /// Gives the terminal to the command if one of these process groups has it. Returns whether the command has it.
    fn take_terminal(&mut self, groups: &[Pid]) -> bool {
        if let Some(terminal) = &self.terminal {
            let in_front = tcgetpgrp(terminal).ok().filter(|group| groups.contains(group));
            self.terminal_of = self.terminal_of.or(in_front);
            if self.terminal_of.is_some() {
                // It or the group may be gone.
                let _ = tcsetpgrp(terminal, self.pid);
            }
        }
        self.terminal_of.is_some()
    }

    fn ended(&self, ended: Ended) -> Ended {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.terminal_of) {
            let _ = tcsetpgrp(terminal, group);
        }
        ended
    }
}

fn pid_of(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap_or(i32::MAX))
}

/// Returns the program that this process runs, also if its file was replaced by a newer one while it waited.
fn own_program() -> Result<PathBuf, Failure> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    env::current_exe()
        .map_err(|error| Failure::new(exit::SOFTWARE, format!("leasehold's own program: {error}")))
}

/// Returns the terminal that controls this process, as shells find it: what is redirected does not matter.
fn terminal() -> Option<OwnedFd> {
    match File::options().read(true).write(true).open("/dev/tty") {
        Ok(terminal) => Some(terminal.into()),
        Err(_) => io::stdin().as_fd().try_clone_to_owned().ok(),
    }
}

fn is_pipe(stream: impl AsFd) -> bool {
    let metadata = stream.as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata());
    metadata.is_ok_and(|it| it.file_type().is_fifo() || it.file_type().is_socket())
}

/// The signals of a terminal for those who are in its background.
fn of_the_background() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTIN);
    signals.add(Signal::SIGTTOU);
    signals
}

/// From now on nothing stops this process because the command has the terminal: what it says, what others in its group read, and
/// what it does to the terminal. Stopped, it would renew nothing.
pub fn keep_going_in_the_background() -> nix::Result<()> {
    of_the_background().thread_block()
}

/// Arranges that this process dies with `run`, and becomes the command. It returns only if that fails.
pub fn become_command(exec: &Exec) -> Failure {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        return Failure::new(exit::SOFTWARE, format!("cannot tie the command to run: {error}"));
    }
    // It may have died before that.
    if getppid().as_raw() != exec.parent {
        return Failure::new(
            exit::SOFTWARE,
            "leasehold run has ended, so the command was not started",
        );
    }
    // Only `run` blocks them.
    let _ = of_the_background().thread_unblock();
    let program = Path::new(&exec.command[0]);
    let error = Command::new(program).args(&exec.command[1..]).exec();
    let problem = match error.kind() {
        ErrorKind::NotFound if program.exists() => {
            "its interpreter (the first line of a script, or the loader) was not found".to_owned()
        }
        _ => error.to_string(),
    };
    Failure::new(exit::NOT_EXECUTABLE, format!("{}: {problem}", program.display()))
}

/// Finds the program as a shell would, before anything is locked.
pub fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    let shown = Path::new(program).display();
    let is_path = program.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = match is_path {
        true => vec![program.into()],
        false => {
            // Without one, musl's execvp searches these, and shells and other libraries search similar ones.
            let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/bin:/usr/bin".into());
            env::split_paths(&path).map(|directory| directory.join(program)).collect()
        }
    };
    let mut found = None;
    for candidate in candidates {
        let Ok(metadata) = fs::metadata(&candidate) else { continue };
        if metadata.is_file()
            && accessat(CWD, &candidate, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
        {
            return Ok(candidate);
        }
        found = found.or(Some(candidate));
    }
    match found {
        Some(_) => Err(Failure::new(exit::NOT_EXECUTABLE, format!("{shown}: not executable"))),
        None => Err(Failure::new(exit::NOT_FOUND, format!("{shown}: command not found"))),
    }
}
