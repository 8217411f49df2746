//! A server of its own for each test, and the program.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

/// A shell has those that it starts in the background ignore some signals, and their children inherit that. What these tests handle
/// themselves is not ignored by the programs that they start.
static HANDLED: LazyLock<()> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _context = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()] {
        drop(signal(kind).expect("it can be handled"));
    }
});

/// A real server on a socket of its own, which ends with the test.
pub struct Server {
    process: Child,
    pub directory: PathBuf,
}

impl Server {
    pub fn start() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        LazyLock::force(&HANDLED);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("leasehold-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory for the server");
        let program =
            std::env::var("LEASEHOLD_TEST_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let socket = directory.join("socket");
        let process = Command::new(&program)
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        let server = Self { process, directory };
        eventually("the server listens", || server.redis().is_some());
        server
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.directory.join("socket").display())
    }

    fn redis(&self) -> Option<redis::Connection> {
        redis::Client::open(self.url()).ok()?.get_connection().ok()
    }

    /// Runs a command on the server.
    pub fn command<T: redis::FromRedisValue>(&self, command: &str, arguments: &[&str]) -> T {
        let mut connection = self.redis().expect("a connection");
        redis::cmd(command).arg(arguments).query(&mut connection).expect("an answer")
    }

    pub fn is_locked(&self, name: &str) -> bool {
        self.command::<u32>("EXISTS", &[name]) == 1
    }

    /// Takes a lock as another client, whoever has it: nobody can come between.
    pub fn hold(&self, name: &str) {
        let take = "redis.call('DEL', KEYS[1])
            redis.call('HSET', KEYS[1], 'other:01234567-89ab-4def-8123-456789abcdef', 1)
            redis.call('PEXPIRE', KEYS[1], 60000)";
        let () = self.command("EVAL", &[take, "1", name]);
    }

    pub fn release(&self, name: &str) {
        let () = self.command("DEL", &[name]);
    }

    /// Stops or continues the server's process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        kill(self.process.id(), signal);
    }

    /// The program with this server.
    pub fn leasehold(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        for variable in [
            "LEASEHOLD_HELD",
            "LEASEHOLD_NODES",
            "LEASEHOLD_NAME",
            "LEASEHOLD_SETTINGS",
            "REDIS_URL_FILE",
        ] {
            command.env_remove(variable);
        }
        command
            .args(arguments)
            .env("REDIS_URL", self.url())
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.leasehold(arguments).output().expect("the program runs")
    }

    /// Runs the program to its end, and returns its exit code.
    pub fn code(&self, arguments: &[&str]) -> i32 {
        self.output(arguments).status.code().expect("an exit code")
    }

    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.leasehold(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs")
    }

    /// Starts `run` with these options: a script of the shell under the lock `a`.
    pub fn spawn_shell(&self, options: &[&str], script: &str) -> Child {
        self.spawn(&[&["run"], options, &["a", "--", "sh", "-c", script]].concat())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns what a command has written into a file by now.
    pub fn text(&self, file: &str) -> String {
        fs::read_to_string(self.file(file)).unwrap_or_default()
    }

    pub fn wait_for_text(&self, file: &str) -> String {
        eventually(file, || !self.text(file).trim().is_empty());
        self.text(file).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A stopped process cannot be ended otherwise.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    let _ = rustix::process::kill_process(pid, signal);
}

/// Returns true if the process runs, and is no zombie.
pub fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[track_caller]
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not in a minute: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// Waits for the end of a program, and returns its exit code.
#[track_caller]
pub fn code_of(child: &mut Child) -> i32 {
    let mut code = None;
    eventually("the program ends", || {
        code = child.try_wait().expect("a child of ours");
        code.is_some()
    });
    code.and_then(|status| status.code()).expect("an exit code")
}
