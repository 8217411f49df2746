//! Processes that are stopped for a while.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

/// Stops a process, and returns once it has stopped.
pub fn pause(pid: u32) {
    signal(pid, "STOP");
    // The signal takes effect a little later. Where the system shows it, wait for that.
    let stat = format!("/proc/{pid}/stat");
    let started_at = Instant::now();
    while let Ok(stat) = fs::read_to_string(&stat) {
        if stat.contains(") T ") {
            return;
        }
        assert!(started_at.elapsed() < LIMIT, "process {pid} did not stop");
        std::thread::yield_now();
    }
}

/// Lets a process go on.
pub fn resume(pid: u32) {
    signal(pid, "CONT");
}

/// As [`resume`], for a process that may be gone.
pub(crate) fn resume_if_there(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};

    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::CONT);
    }
}

fn signal(pid: u32, name: &str) {
    // The shell has a `kill` of its own where the program is not installed.
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(status.is_ok_and(|status| status.success()), "signal {name} was not sent to {pid}");
}

const LIMIT: Duration = Duration::from_secs(20);
