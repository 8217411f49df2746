//! Other processes: whether they are ancestors of this one, and when they end.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::time::sleep;

/// How often a process is looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// Another process, which may have ended.
pub struct Process {
    pid: Pid,
    /// It stays that of this process when another has the number.
    #[cfg(target_os = "linux")]
    opened: Option<std::os::fd::OwnedFd>,
}

impl Process {
    pub fn open(pid: u32) -> Self {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX));
        Self {
            pid,
            #[cfg(target_os = "linux")]
            opened: rustix::process::Pid::from_raw(pid.as_raw())
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
        }
    }

    /// Waits for its end. It is cancel safe.
    pub async fn ended(&self) {
        while !self.has_ended() {
            sleep(PERIOD).await;
        }
    }

    fn has_ended(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(opened) = &self.opened {
            let mut end = [PollFd::new(opened, PollFlags::IN)];
            return matches!(poll(&mut end, Some(&Timespec::default())), Ok(1..));
        }
        kill(self.pid, None) == Err(Errno::ESRCH)
    }
}

/// Returns the child of `pid` that is this process or an ancestor of it, if there is one.
#[cfg(target_os = "linux")]
pub fn child_towards_us(pid: u32) -> Option<u32> {
    let mut process = std::process::id();
    while process > 1 {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The command's name comes before it, in brackets, and may contain anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
        if parent == pid {
            return Some(process);
        }
        process = parent;
    }
    None
}

/// Here nobody knows: returns `pid` itself if it runs.
#[cfg(not(target_os = "linux"))]
pub fn child_towards_us(pid: u32) -> Option<u32> {
    let process = i32::try_from(pid).map(Pid::from_raw).ok()?;
    kill(process, None).is_ok().then_some(pid)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_known() {
        let us = std::process::id();
        assert_eq!(child_towards_us(std::os::unix::process::parent_id()), Some(us));
        assert!(child_towards_us(1).is_some() || us == 1);
        assert_eq!(child_towards_us(u32::MAX), None);
    }
}
