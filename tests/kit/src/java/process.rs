//! A process of the helper, which answers line by line.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{Done, Failure, Version};

/// Killed when dropped.
pub(super) struct Process {
    version: Version,
    child: Mutex<Child>,
    commands: Mutex<(u64, ChildStdin)>,
    asked: Arc<Mutex<Asked>>,
}

/// Who waits for which answer; `None` once the process has ended.
type Asked = Option<HashMap<u64, oneshot::Sender<Answer>>>;

/// When it began and ended, and what came of it.
type Answer = (u64, u64, Result<String, Failure>);

/// Those that wait for the next test, by their version.
static IDLE: [Mutex<Vec<Process>>; Version::ALL.len()] = [const { Mutex::new(Vec::new()) }; _];
/// Of each version: each takes some 100 MB.
const KEPT: usize = 4;

impl Process {
    pub(super) fn idle_or_new(version: Version) -> Self {
        while let Some(idle) = locked(&IDLE[version as usize]).pop() {
            if matches!(locked(&idle.child).try_wait(), Ok(None)) {
                return idle;
            }
        }
        Self::start(version)
    }

    fn start(version: Version) -> Self {
        let mut child = Command::new("java")
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
            // After a failover it says in forty lines, again and again, that no replica has a renewal.
            .arg("-Dorg.slf4j.simpleLogger.log.org.redisson.renewal=off")
            // And of a client that ends in the middle of something.
            .arg("-Dorg.slf4j.simpleLogger.log.io.netty.util.concurrent.DefaultPromise.rejectedExecution=off")
            .args(["-cp", version.class_path(), "leasehold.interop.Helper"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java runs: scripts/setup-java installs it");
        let commands = child.stdin.take().expect("piped");
        let answers = child.stdout.take().expect("piped");
        let asked = Arc::new(Mutex::new(Some(HashMap::new())));
        thread::spawn({
            let asked = Arc::clone(&asked);
            move || read_answers(answers, &asked)
        });
        Self { version, child: Mutex::new(child), commands: Mutex::new((0, commands)), asked }
    }

    /// Ends its client, and lets the next test have it.
    pub(super) fn keep(self) {
        drop(self.ask("main", "end"));
        let mut idle = locked(&IDLE[self.version as usize]);
        if idle.len() < KEPT {
            idle.push(self);
        }
    }

    pub(super) fn ask(
        &self,
        thread: &str,
        command: &str,
    ) -> impl Future<Output = Done<String>> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        let mut commands = locked(&self.commands);
        commands.0 += 1;
        if let Some(asked) = &mut *locked(&self.asked) {
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

    pub(super) fn id(&self) -> u32 {
        locked(&self.child).id()
    }

    pub(super) fn kill(&self) {
        locked(&self.child).kill().expect("it was ours");
        self.wait();
    }

    pub(super) fn wait(&self) {
        locked(&self.child).wait().expect("it was ours");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = locked(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_answers(answers: ChildStdout, asked: &Mutex<Asked>) {
    for line in BufReader::new(answers).lines() {
        let Ok(line) = line else { break };
        let (id, answer) = parse(&line).unwrap_or_else(|| panic!("not an answer: {line}"));
        let mut asked = locked(asked);
        if let Some(sender) = asked.as_mut().and_then(|asked| asked.remove(&id)) {
            // The test may have stopped to wait for it.
            let _ = sender.send(answer);
        }
    }
    *locked(asked) = None;
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

/// The longest is the stampede.
const LIMIT: Duration = Duration::from_secs(300);
