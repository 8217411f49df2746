//! `leasehold run` on a real pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Server, code_of, eventually};

/// A shell command in a session of its own, on a terminal of its own.
struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    shell: Child,
}

impl Terminal {
    fn start(server: &Server, script: &str) -> Self {
        let controller: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("it is ours");
        unlockpt(&controller).expect("it opens");
        let name = ptsname(&controller, Vec::new()).expect("its name").into_string().expect("text");
        // setsid makes the session, and the shell that opens the terminal first gets it.
        let inner = format!("exec <{name} >{name} 2>&1; {script}");
        let shell = Command::new("setsid")
            .args(["sh", "-c", &inner])
            .envs(server.leasehold(&[]).get_envs().filter_map(|(key, value)| Some((key, value?))))
            .current_dir(&server.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let mut reader = File::from(controller.try_clone().expect("a copy"));
        let screen = Arc::new(Mutex::new(String::new()));
        let written = screen.clone();
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                written
                    .lock()
                    .expect("no panic")
                    .push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Self { keyboard: File::from(controller), screen, shell }
    }

    fn keys(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("it reads");
    }

    fn screen(&self) -> String {
        self.screen.lock().expect("no panic").clone()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        eventually(text, || self.screen().contains(text));
    }
}

fn run(command: &str) -> String {
    format!("{} run a -- {command}", env!("CARGO_BIN_EXE_leasehold"))
}

#[test]
fn the_command_reads_from_the_terminal_and_the_shell_has_it_back_afterwards() {
    let server = Server::start();
    let script = run("sh -c 'echo ready; read line; echo got $line'")
        + "; echo code $?; read more; echo then $more";
    let mut terminal = Terminal::start(&server, &script);
    terminal.wait_for("ready");
    terminal.keys(b"hello\n");
    terminal.wait_for("got hello");
    terminal.wait_for("code 0");
    terminal.keys(b"again\n");
    terminal.wait_for("then again");
    assert_eq!(code_of(&mut terminal.shell), 0);
}

#[test]
fn control_c_reaches_the_command_once_and_run_tells_its_code() {
    let server = Server::start();
    let command = run(
        "sh -c 'trap \"echo interrupted; exit 5\" INT; echo ready; while :; do sleep 0.02; done'",
    );
    let mut terminal = Terminal::start(&server, &format!("trap : INT; {command}; echo code $?"));
    terminal.wait_for("ready");
    terminal.keys(b"\x03");
    terminal.wait_for("code 5");
    assert_eq!(terminal.screen().matches("interrupted").count(), 1);
    assert!(!server.is_locked("a"));
}

#[test]
fn control_z_does_not_suspend_a_command_that_holds_a_lock() {
    let server = Server::start();
    let command = run("sh -c 'echo ready; read line; echo got $line'");
    let mut terminal = Terminal::start(&server, &command);
    terminal.wait_for("ready");
    terminal.keys(b"\x1a");
    terminal.wait_for("not suspended");
    terminal.keys(b"on\n");
    terminal.wait_for("got on");
    assert_eq!(code_of(&mut terminal.shell), 0);
}
