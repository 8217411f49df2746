//! Redisson in a process of its own, built by Maven and told what to do line by line.

mod call;
mod process;

use std::{
    env,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

pub use self::call::{Call, Done, Failure};
use self::process::Process;
use crate::signals::{pause, resume};

/// A version of Redisson that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 4.7.0
    V4_7_0,
    /// 3.52.0
    V3_52_0,
    /// 3.28.0
    V3_28_0,
}

impl Version {
    /// All that are tested, the latest first.
    pub const ALL: [Self; 3] = [Self::V4_7_0, Self::V3_52_0, Self::V3_28_0];

    /// As Maven names it.
    pub fn number(self) -> &'static str {
        match self {
            Self::V4_7_0 => "4.7.0",
            Self::V3_52_0 => "3.52.0",
            Self::V3_28_0 => "3.28.0",
        }
    }

    /// The helper's classes and libraries, built once in the life of this process.
    pub fn class_path(self) -> &'static str {
        static BUILT: [OnceLock<String>; 3] = [const { OnceLock::new() }; 3];
        BUILT[self as usize].get_or_init(|| build(self))
    }
}

/// Redisson's client, in a process of the helper that is nobody else's. When this is dropped, the client ends without
/// giving anything back, and the process waits for the next test: to start one costs ten times what a client costs.
pub struct Java {
    /// `None` only while this is dropped.
    process: Option<Process>,
    /// Its client is there, and nobody has paused or killed it.
    fit: AtomicBool,
    /// The kind of its locks where nothing else is said.
    pub kind: &'static str,
}

impl Java {
    /// A client of `url` whose watchdog leases last for `ttl`.
    pub async fn connect(version: Version, url: &str, ttl: Duration) -> Self {
        Self::connect_with_prefix(version, url, ttl, None).await
    }

    /// A client of a `sentinel` or `cluster` deployment; the first node of a `sentinel` one is the name of its master.
    pub async fn connect_to_deployment(
        version: Version,
        kind: &str,
        nodes: &[String],
        ttl: Duration,
    ) -> Self {
        Self::connect(version, &format!("{kind}={}", nodes.join(",")), ttl).await
    }

    /// As [`connect`](Self::connect), with a NameMapper that puts `prefix` before every name.
    pub async fn connect_with_prefix(
        version: Version,
        url: &str,
        ttl: Duration,
        prefix: Option<&str>,
    ) -> Self {
        let connect = format!("connect {url} {} {}", ttl.as_millis(), prefix.unwrap_or_default());
        Self::begin(version, "plain", connect.trim_end()).await
    }

    /// A client of each of `urls`, whose locks of a name are taken together, as a `red` or a `multi` lock.
    pub async fn connect_to_all(
        version: Version,
        urls: &[String],
        ttl: Duration,
        kind: &'static str,
    ) -> Self {
        Self::begin(version, kind, &format!("connect {} {}", urls.join(","), ttl.as_millis())).await
    }

    async fn begin(version: Version, kind: &'static str, connect: &str) -> Self {
        let process = tokio::task::spawn_blocking(move || Process::idle_or_new(version));
        let process = process.await.expect("the helper can be built");
        let java = Self { process: Some(process), fit: AtomicBool::new(false), kind };
        assert_eq!(java.text("main", connect).await, "connected");
        java.fit.store(true, Ordering::Relaxed);
        java
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("it is there until this is dropped")
    }

    /// Lets a thread run a command. It is sent at once; the future only waits for the answer.
    pub fn ask(
        &self,
        thread: &str,
        command: &str,
    ) -> impl Future<Output = Done<String>> + Send + use<> {
        self.process().ask(thread, command)
    }

    /// Begins a command whose answer is a number.
    pub fn call(&self, thread: &str, command: &str) -> Call {
        Call::to_java(self.ask(thread, command))
    }

    /// The answer to a command that must succeed.
    pub async fn text(&self, thread: &str, command: &str) -> String {
        match self.ask(thread, command).await.outcome {
            Ok(text) => text,
            Err(failure) => panic!("{command}: {failure:?}"),
        }
    }

    /// The same, a number.
    pub async fn number(&self, thread: &str, command: &str) -> i64 {
        self.text(thread, command).await.parse().expect("a number")
    }

    /// SIGKILL; gone when this returns.
    pub fn kill(&self) {
        self.unfit().kill();
    }

    /// Stops the process as a frozen machine does: its connections stay, and it does nothing.
    pub fn pause(&self) {
        pause(self.unfit().id());
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        resume(self.process().id());
    }

    /// Ends the machine from inside, without any of its hooks.
    pub fn crash(&self) {
        drop(self.ask("main", "crash"));
        self.unfit().wait();
    }

    /// The process, which ends with this.
    fn unfit(&self) -> &Process {
        self.fit.store(false, Ordering::Relaxed);
        self.process()
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let process = self.process.take().expect("it is dropped once");
        if self.fit.load(Ordering::Relaxed) && !thread::panicking() {
            process.keep();
        }
    }
}

/// How a lock's name is told to the helper.
pub fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Builds the helper for a version, unless the one that was built last is of the same sources.
fn build(version: Version) -> String {
    let out = temporary().join(format!("interop-{}", version.number()));
    fs::create_dir_all(&out).expect("a folder for the helper can be made");
    // Another run of the tests may be at it.
    let lock = File::create(out.join("lock")).expect("a file to lock can be made");
    lock.lock().expect("the file can be locked");
    let sources = sources();
    let stamp = out.join("built-from");
    if fs::read_to_string(&stamp).is_ok_and(|built_from| built_from == sources) {
        return class_path(&out);
    }
    // Everything may be there from an earlier build; otherwise Maven fetches it.
    let offline = maven(version, &out, &["--offline"]);
    if offline.is_err() {
        maven(version, &out, &[]).unwrap_or_else(|log| panic!("the helper cannot be built: {log}"));
    }
    fs::write(stamp, sources).expect("the stamp can be written");
    class_path(&out)
}

fn maven(version: Version, out: &Path, options: &[&str]) -> Result<(), String> {
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "--no-transfer-progress"])
        .args(options)
        .arg(format!("-Dredisson.version={}", version.number()))
        .arg(format!("-Dinterop.out={}", out.display()))
        .arg("process-classes")
        .current_dir(project())
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("Maven is not installed, and these tests need it: run scripts/setup-java")
        }
        Err(error) => panic!("Maven cannot be run: {error}"),
    }
}

fn class_path(out: &Path) -> String {
    format!("{}:{}/*", out.join("classes").display(), out.join("lib").display())
}

/// Where cargo lets tests keep files: beside `<profile>/deps`, where this program is.
fn temporary() -> PathBuf {
    let program = env::current_exe().expect("the path of this program");
    program.ancestors().nth(3).expect("it is in a target folder").join("tmp")
}

/// All that the helper is built from.
fn sources() -> String {
    let code = project().join("src/main/java/leasehold/interop");
    let mut files = vec![project().join("pom.xml")];
    files
        .extend(fs::read_dir(code).expect("a folder").map(|entry| entry.expect("an entry").path()));
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).expect("text")).collect()
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/java")
}
