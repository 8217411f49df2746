//! `leasehold run` on a real pseudo-terminal.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Server, code_of, eventually, is_alive, kill};

/// A shell command in a session of its own, on a terminal of its own.
struct Terminal {
    keyboard: Option<File>,
    screen: Arc<Mutex<String>>,
    shell: Child,
    is_gone: Arc<AtomicBool>,
}

impl Terminal {
    fn start(server: &Server, script: &str) -> Self {
        let controller: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
                .expect("a terminal");
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
        // Who waits in a read would keep the terminal open.
        rustix::io::ioctl_fionbio(&reader, true).expect("it need not wait");
        let (screen, is_gone) = (Arc::new(Mutex::new(String::new())), Arc::default());
        let (written, gone): (_, Arc<AtomicBool>) = (screen.clone(), Arc::clone(&is_gone));
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while !gone.load(Ordering::Relaxed) {
                match reader.read(&mut buffer) {
                    Ok(read @ 1..) => written
                        .lock()
                        .expect("no panic")
                        .push_str(&String::from_utf8_lossy(&buffer[..read])),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        thread::sleep(Duration::from_millis(5));
                    }
                    _ => return,
                }
            }
        });
        Self { keyboard: Some(File::from(controller)), screen, shell, is_gone }
    }

    fn keys(&mut self, keys: &[u8]) {
        self.keyboard.as_mut().expect("it is there").write_all(keys).expect("it reads");
    }

    /// The terminal is gone, as if its window was closed.
    fn hang_up(&mut self) {
        self.keyboard = None;
        self.is_gone.store(true, Ordering::Relaxed);
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

/// etcdctl lock in `docker exec`: after Ctrl-C the terminal was gone, and the lock was renewed for ever (etcd PR #10117).
#[test]
fn a_terminal_that_goes_away_leaves_nothing_that_renews() {
    let server = Server::start();
    let command = run("sh -c 'echo $$ > pid; while :; do sleep 0.05; done'");
    let mut terminal = Terminal::start(&server, &format!("{command}; exit"));
    let pid = server.wait_for_text("pid");
    terminal.hang_up();
    eventually("the command ends", || !is_alive(&pid));
    eventually("the lock is free", || !server.is_locked("a"));
    eventually("the shell ends", || terminal.shell.try_wait().expect("ours").is_some());
}

#[test]
fn under_nohup_the_command_outlives_its_terminal() {
    let server = Server::start();
    let command =
        run("sh -c 'echo $$ > pid; while ! test -e go; do sleep 0.05; done; echo done > done'");
    let mut terminal = Terminal::start(&server, &format!("nohup {command}; exit"));
    let pid = server.wait_for_text("pid");
    terminal.hang_up();
    eventually("the shell ends", || terminal.shell.try_wait().expect("ours").is_some());
    thread::sleep(Duration::from_millis(300));
    assert!(is_alive(&pid) && server.is_locked("a"));
    std::fs::write(server.file("go"), "").expect("a file");
    assert_eq!(server.wait_for_text("done"), "done");
    eventually("the lock is free", || !server.is_locked("a"));
}

#[test]
fn a_run_inside_a_run_has_the_terminal_and_gives_it_back() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let inner = format!("{me} run b -- sh -c \"echo ready; read line; echo got \\$line\"");
    let outer = run(&format!("sh -c '{inner}; read more; echo then $more'"));
    let mut terminal =
        Terminal::start(&server, &format!("{outer}; echo code $?; read last; echo last $last"));
    terminal.wait_for("ready");
    assert!(server.is_locked("a") && server.is_locked("b"));
    terminal.keys(b"one\n");
    terminal.wait_for("got one");
    terminal.keys(b"two\n");
    terminal.wait_for("then two");
    terminal.wait_for("code 0");
    terminal.keys(b"three\n");
    terminal.wait_for("last three");
    assert_eq!(code_of(&mut terminal.shell), 0);
}

#[test]
fn control_c_reaches_the_command_of_an_inner_run() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let command = run(&format!("{me} run b -- sh -c 'echo ready; exec sleep 600'"));
    let mut terminal = Terminal::start(&server, &format!("trap : INT; {command}; echo code $?"));
    terminal.wait_for("ready");
    terminal.keys(b"\x03");
    terminal.wait_for("code 130");
    assert!(!server.is_locked("a") && !server.is_locked("b"));
}

#[test]
fn a_wrapper_that_is_killed_takes_the_command_with_it_from_the_terminal() {
    let server = Server::start();
    let wrapper = "echo $$ > wrapper; exec ";
    let command = run("sh -c 'echo $$ > pid; read line'");
    let script = format!("sh -c '{wrapper} {}'; echo code $?", command.replace('\'', "'\\''"));
    let mut terminal = Terminal::start(&server, &script);
    let pid = server.wait_for_text("pid");
    kill(server.wait_for_text("wrapper").parse().expect("a pid"), Signal::KILL);
    terminal.wait_for("code 137");
    eventually("the command ends", || !is_alive(&pid));
    assert_eq!(code_of(&mut terminal.shell), 0);
}

#[test]
fn colours_are_for_people_at_a_terminal() {
    let server = Server::start();
    server.hold("n");
    let me = env!("CARGO_BIN_EXE_leasehold");
    let script =
        |before: &str| format!("export TERM=xterm; unset NO_COLOR; {before} {me} list; echo end");
    for (before, coloured) in
        [("", true), ("export NO_COLOR=1;", false), ("export TERM=dumb;", false)]
    {
        let terminal = Terminal::start(&server, &script(before));
        terminal.wait_for("end");
        let screen = terminal.screen();
        assert_eq!(screen.contains("\u{1b}[1mLOCK"), coloured, "{before} {screen:?}");
    }
    let output = server.output(&["list"]);
    assert!(!output.stdout.contains(&0x1b), "{output:?}");
}

/// A long list says how far it is, on the terminal and nowhere else.
#[test]
fn a_long_list_says_how_far_it_is() {
    let server = Server::start();
    let fill = "for i = 1, 500000 do redis.call('SET', 'k' .. i, i) end";
    let () = server.command("EVAL", &[fill, "0"]);
    let me = env!("CARGO_BIN_EXE_leasehold");
    let mut terminal = Terminal::start(&server, &format!("{me} list > listed; echo end"));
    terminal.wait_for("% of the keys");
    terminal.wait_for("end");
    assert!(!server.text("listed").contains('%'));
    assert_eq!(code_of(&mut terminal.shell), 0);
}

/// As `run a -- vim <file` and `xargs`-like commands in a pipeline: the terminal is the one that controls the process.
#[test]
fn the_command_has_the_terminal_though_its_input_is_redirected() {
    let server = Server::start();
    let command = run("sh -c 'echo ready; read line </dev/tty; echo got $line'");
    for redirected in [format!("{command} </dev/null"), format!("echo input | {command}")] {
        let mut terminal =
            Terminal::start(&server, &format!("{redirected}; read more; echo then $more"));
        terminal.wait_for("ready");
        terminal.keys(b"one\n");
        terminal.wait_for("got one");
        terminal.keys(b"two\n");
        terminal.wait_for("then two");
        assert_eq!(code_of(&mut terminal.shell), 0);
    }
}

/// The shell of a script leaves such a `run` in the process group that has the terminal.
#[test]
fn a_script_keeps_the_terminal_while_it_has_a_run_in_the_background() {
    let server = Server::start();
    let command = run("sh -c 'echo $$ > pid; while ! test -e go; do sleep 0.02; done'");
    let script = "while ! test -s pid; do sleep 0.02; done; read line; echo got $line; wait";
    let mut terminal = Terminal::start(&server, &format!("{command} & {script}"));
    server.wait_for_text("pid");
    terminal.keys(b"one\n");
    terminal.wait_for("got one");
    std::fs::write(server.file("go"), "").expect("a file");
    assert_eq!(code_of(&mut terminal.shell), 0);
    assert!(!server.is_locked("a"));
}

/// Starts a pipeline in a shell that reads a line behind it.
fn pipeline(server: &Server, pipeline: &str) -> Terminal {
    Terminal::start(server, &format!("{pipeline}; read more; echo then $more"))
}

/// The command has the terminal, and then the shell.
fn type_to_command_and_shell(mut terminal: Terminal) {
    terminal.keys(b"two\n");
    terminal.wait_for("got two");
    terminal.keys(b"three\n");
    terminal.wait_for("then three");
    assert_eq!(code_of(&mut terminal.shell), 0);
}

/// The other program of a pipeline has the terminal first, once it says so, then the command, and then the shell.
fn type_to_each(server: &Server, programs: &str, ready: &str) {
    let mut terminal = pipeline(server, programs);
    terminal.wait_for(ready);
    terminal.keys(b"one\n");
    terminal.wait_for("key one");
    type_to_command_and_shell(terminal);
}

/// A pager behind `run` reads the keys.
#[test]
fn what_reads_the_output_keeps_the_terminal_until_the_command_wants_it() {
    let server = Server::start();
    let command = run(
        "sh -c 'echo out; while ! test -e go; do sleep 0.02; done; read line </dev/tty; echo got $line'",
    );
    let pager =
        "sh -c 'read out; echo ready $out; read key </dev/tty; echo key $key; touch go; cat'";
    type_to_each(&server, &format!("{command} | {pager}"), "ready out");
}

/// As `sudo cat file | leasehold run a -- command`, where the first asks for a password once the second runs.
#[test]
fn what_writes_the_input_keeps_the_terminal_until_the_command_wants_it() {
    let server = Server::start();
    let command = run("sh -c 'touch began; cat; read line </dev/tty; echo got $line'");
    let source = "sh -c 'while ! test -e began; do sleep 0.02; done; echo password? >/dev/tty; \
                  read key </dev/tty; echo key $key'";
    type_to_each(&server, &format!("{source} | {command}"), "password?");
}

/// The outer `run` never learns that the command of the inner one asks for the terminal.
#[test]
fn the_command_of_an_inner_run_gets_the_terminal_although_the_input_is_a_pipe() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let inner = format!("{me} run b -- sh -c \"cat; read line </dev/tty; echo got \\$line\"");
    let outer = run(&format!("sh -c '{inner}'"));
    let terminal = pipeline(&server, &format!("echo input | {outer}"));
    terminal.wait_for("input");
    type_to_command_and_shell(terminal);
}

/// At the prompt of a shell under the lock, a `run` in a pipeline holds nothing itself: it borrows what the outermost one holds. Nobody
/// but the innermost one learns that its command asks for the terminal.
#[test]
fn the_command_of_an_inner_run_gets_the_terminal_from_one_that_only_borrows() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let inner = format!("{me} run b -- sh -c 'cat; read line </dev/tty; echo got $line'");
    std::fs::write(server.file("inner"), inner).expect("a file");
    let job = format!("echo input | {me} run a -- sh inner");
    let script = format!("set -m; {job}; read more; echo then $more");
    std::fs::write(server.file("script"), script).expect("a file");
    let terminal = Terminal::start(&server, &run("bash script"));
    terminal.wait_for("input");
    type_to_command_and_shell(terminal);
}

/// Starts a shell that gives each of its jobs a process group, as at a prompt.
fn jobs(server: &Server, script: &str) -> Terminal {
    std::fs::write(server.file("script"), format!("set -m; {script}")).expect("a file");
    Terminal::start(server, "exec bash script")
}

/// bash makes a job the one in the foreground without a word to it if it runs: and `run` does, although its command is stopped.
#[test]
fn a_command_from_the_background_gets_the_terminal_when_its_job_is_brought_to_the_foreground() {
    let server = Server::start();
    let command = run("sh -c 'read line; echo got $line'");
    let front = "while ! test -e front; do sleep 0.02; done; fg; echo code $?";
    let mut terminal = jobs(&server, &format!("{command} & {front}"));
    terminal.wait_for("waits for the terminal");
    std::fs::write(server.file("front"), "").expect("a file");
    terminal.keys(b"one\n");
    terminal.wait_for("got one");
    terminal.wait_for("code 0");
    assert_eq!(code_of(&mut terminal.shell), 0);
}

/// Where `run` itself is in the group that has the terminal.
#[test]
fn control_z_does_not_suspend_run_itself() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let command = "sh -c 'echo ready; while ! test -e go; do sleep 0.02; done; exit 7'";
    for script in [
        format!("set -o pipefail; {me} run --ttl 1 a -- {command} | cat"),
        format!("{me} run --foreground --ttl 1 a -- {command}"),
    ] {
        let mut terminal = jobs(&server, &format!("{script}; echo code $?"));
        terminal.wait_for("ready");
        terminal.keys(b"\x1a");
        terminal.wait_for("not suspended");
        thread::sleep(Duration::from_millis(1500));
        assert!(server.is_locked("a"), "it is renewed");
        std::fs::write(server.file("go"), "").expect("a file");
        terminal.wait_for("code 7");
        std::fs::remove_file(server.file("go")).expect("a file");
    }
}

/// With `stty tostop`, who writes from the background is stopped.
#[test]
fn what_run_says_from_the_background_does_not_stop_it() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let command =
        "stty tostop; echo $$ > pid; trap \"echo told; exit\" TERM; while :; do sleep 0.02; done";
    let terminal = jobs(&server, &format!("{me} run --ttl 1 a -- sh -c '{command}'; echo code $?"));
    server.wait_for_text("pid");
    server.release("a");
    terminal.wait_for("told");
    terminal.wait_for("code 79");
}
