//! Redisson in a process of its own, built by Maven and told what to do line by line.

mod call;

use std::{
    collections::HashMap,
    env,
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

pub use self::call::{Call, Done, Failure};
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

/// A process of the helper, killed when dropped.
pub struct Java {
    process: Mutex<Child>,
    commands: Mutex<(u64, ChildStdin)>,
    asked: Arc<Mutex<Asked>>,
    /// The kind of its locks where nothing else is said.
    pub kind: &'static str,
}

/// Who waits for which answer; `None` once the process has ended.
type Asked = Option<HashMap<u64, oneshot::Sender<Answer>>>;

/// When it began and ended, and what came of it.
type Answer = (u64, u64, Result<String, Failure>);

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
        let class_path = tokio::task::spawn_blocking(move || version.class_path());
        let java = Self::start(class_path.await.expect("the helper can be built"), "plain");
        let connect = format!("connect {url} {} {}", ttl.as_millis(), prefix.unwrap_or_default());
        assert_eq!(java.text("main", connect.trim_end()).await, "connected");
        java
    }

    /// A client of each of `urls`, whose locks of a name are taken together, as a `red` or a `multi` lock.
    pub async fn connect_to_all(
        version: Version,
        urls: &[String],
        ttl: Duration,
        kind: &'static str,
    ) -> Self {
        let class_path = tokio::task::spawn_blocking(move || version.class_path());
        let java = Self::start(class_path.await.expect("the helper can be built"), kind);
        let connect = format!("connect {} {}", urls.join(","), ttl.as_millis());
        assert_eq!(java.text("main", &connect).await, "connected");
        java
    }

    fn start(class_path: &str, kind: &'static str) -> Self {
        let mut process = Command::new("java")
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
            // After a failover it says in forty lines, again and again, that no replica has a renewal.
            .arg("-Dorg.slf4j.simpleLogger.log.org.redisson.renewal=off")
            .args(["-cp", class_path, "leasehold.interop.Helper"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java runs: scripts/setup-java installs it");
        let commands = process.stdin.take().expect("piped");
        let answers = process.stdout.take().expect("piped");
        let asked = Arc::new(Mutex::new(Some(HashMap::new())));
        thread::spawn({
            let asked = Arc::clone(&asked);
            move || read_answers(answers, &asked)
        });
        Self { process: Mutex::new(process), commands: Mutex::new((0, commands)), asked, kind }
    }

    /// Lets a thread run a command. It is sent at once; the future only waits for the answer.
    pub fn ask(
        &self,
        thread: &str,
        command: &str,
    ) -> impl Future<Output = Done<String>> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.0 += 1;
        if let Some(asked) = &mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner) {
            asked.insert(commands.0, sender);
        }
        let id = commands.0;
        // A process that has ended drops the sender: the answer says so.
        let _ = writeln!(commands.1, "{id} {thread} {command}");
        let command = command.to_owned();
        async move {
            match tokio::time::timeout(LIMIT, answer).await {
                Ok(Ok((began_us, ended_us, outcome))) => Done { began_us, ended_us, outcome },
                Ok(Err(_)) => panic!("the Java process has ended: {command}"),
                Err(_) => panic!("no answer from Java within {LIMIT:?}: {command}"),
            }
        }
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
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.kill().expect("it was ours");
        process.wait().expect("it was ours");
    }

    /// Stops the process as a frozen machine does: its connections stay, and it does nothing.
    pub fn pause(&self) {
        pause(self.id());
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        resume(self.id());
    }

    fn id(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    /// Ends the machine from inside, without any of its hooks.
    pub fn crash(&self) {
        drop(self.ask("main", "crash"));
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.wait().expect("it was ours");
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// How a lock's name is told to the helper.
pub fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_answers(answers: ChildStdout, asked: &Mutex<Asked>) {
    for line in BufReader::new(answers).lines() {
        let Ok(line) = line else { break };
        let (id, answer) = parse(&line).unwrap_or_else(|| panic!("not an answer: {line}"));
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = asked.as_mut().and_then(|asked| asked.remove(&id)) {
            // The test may have stopped to wait for it.
            let _ = sender.send(answer);
        }
    }
    *asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// `id began ended ok value` or `id began ended error class message`
fn parse(line: &str) -> Option<(u64, Answer)> {
    let mut words = line.splitn(5, ' ');
    let id = words.next()?.parse().ok()?;
    let began_us = words.next()?.parse().ok()?;
    let ended_us = words.next()?.parse().ok()?;
    let outcome = match (words.next()?, words.next()?) {
        ("ok", value) => Ok(value.to_owned()),
        ("error", problem) if problem.starts_with("IllegalMonitorStateException ") => {
            Err(Failure::NotHeld)
        }
        ("error", problem) => Err(Failure::Other(problem.to_owned())),
        _ => return None,
    };
    Some((id, (began_us, ended_us, outcome)))
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

/// The longest is the stampede.
const LIMIT: Duration = Duration::from_secs(300);
