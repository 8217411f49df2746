//! A process that takes locks and ends: this test binary, run again.

use std::{
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use futures_util::future::join_all;
use leasehold::{Client, Guard, blocking};
use tokio::runtime::{Builder, Runtime};

use super::{Face, Kind};
use crate::support::shared_clock_us;

type Outcome = Result<(), Box<dyn Error>>;

/// A process that has ended.
pub(super) struct Ran {
    pub(super) status: ExitStatus,
    /// How long it took from the end of its work to its own, if it said when it ends.
    pub(super) end_took: Option<Duration>,
}

/// Says that the work is done when it is dropped: from then on the process ends.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        println!("\n{ENDS_AT}{}", shared_clock_us());
    }
}

/// Runs a process that takes the lock `name`, or locks whose names begin so, and ends.
pub(super) fn run(kind: Kind, face: Face, url: &str, name: &str) -> Ran {
    let mut process = Command::new(std::env::current_exe().expect("this binary"));
    process
        .args([role(kind, face), "--exact", "--nocapture"])
        .env(ROLE, format!("{} {} {url} {name}", kind.name(), face.name()))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = process.output().expect("a process");
    let over_at = shared_clock_us();
    let said = String::from_utf8_lossy(&output.stdout);
    let mut ends_at = said.lines().filter_map(|line| line.strip_prefix(ENDS_AT)?.parse().ok());
    let end_took = ends_at.next().map(|at| Duration::from_micros(over_at.saturating_sub(at)));
    Ran { status: output.status, end_took }
}

/// The test that is the process.
fn role(kind: Kind, face: Face) -> &'static str {
    match (kind, face) {
        (Kind::Test, Face::CurrentThread) => "endings::process::a_test_ends_on_one_thread",
        (Kind::Test, _) => "endings::process::a_test_ends_on_several_threads",
        _ => "endings::process::a_process_ends",
    }
}

#[tokio::test]
async fn a_test_ends_on_one_thread() {
    a_test_ends(Face::CurrentThread).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_ends_on_several_threads() {
    a_test_ends(Face::MultiThread).await;
}

/// As [`a_process_ends`]: with a role it takes locks and ends, with a guard that lives and one that was just dropped.
async fn a_test_ends(face: Face) {
    let Ok(role) = std::env::var(ROLE) else {
        let status = run(Kind::Test, face, "nowhere", "n").status;
        assert_eq!(status.code(), Some(101), "the harness says that it failed");
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let [_, _, url, name] = words[..] else { panic!("not a role: {role:?}") };
    let client = Client::connect(url).await.expect("connected");
    let _lives = client.mutex(name).lock().await.expect("free");
    let _ends = Ends;
    drop(client.mutex(format!("{name}-dropped")).lock().await.expect("free"));
}

/// Both sides of it: run by the harness it starts itself as another process; as that process it ends.
#[test]
fn a_process_ends() {
    let Ok(role) = std::env::var(ROLE) else {
        let status = run(Kind::Error, Face::Blocking, "nowhere", "n").status;
        assert_eq!(status.code(), Some(1), "the error of its main");
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let [kind, face, url, name] = words[..] else { panic!("not a role: {role:?}") };
    end(Kind::named(kind), Face::named(face), url, name);
}

/// Runs a `main`, and does what Rust does after one: it ends the process, whatever other threads still do.
fn end(kind: Kind, face: Face, url: &str, name: &str) -> ! {
    let main = AssertUnwindSafe(|| match (kind, face) {
        (Kind::GuardOutlivesRuntime, Face::CurrentThread) => {
            outlive(Builder::new_current_thread(), url, name)
        }
        (Kind::GuardOutlivesRuntime, Face::MultiThread) => {
            outlive(Builder::new_multi_thread(), url, name)
        }
        (_, Face::CurrentThread) => current_thread(kind, url, name),
        (_, Face::MultiThread) => multi_thread(kind, url, name),
        (_, Face::Blocking) => threads(kind, url, name),
    });
    std::process::exit(match catch_unwind(main) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            eprintln!("{error}");
            1
        }
        Err(_) => 101,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn current_thread(kind: Kind, url: &str, name: &str) -> Outcome {
    tasks(kind, url, name).await
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn multi_thread(kind: Kind, url: &str, name: &str) -> Outcome {
    tasks(kind, url, name).await
}

async fn tasks(kind: Kind, url: &str, name: &str) -> Outcome {
    // Long enough for a busy machine.
    let builder = Client::builder().nodes([url]).response_timeout(ANSWER);
    let client = builder.connect().await?;
    let lock = client.mutex(name);
    match kind {
        Kind::CutAcquisition => {
            // A token shows that a lock was held: the one that is cut off need not have been.
            client.mutex(format!("{name}-held")).lock().await?.unlock().await?;
            let _ends = Ends;
            drop(tokio::time::timeout(Duration::ZERO, lock.lock()).await);
            return Ok(());
        }
        Kind::ManyGuards => {
            let mut guards: Vec<Guard> = Vec::new();
            // Those of all at once would be late on a busy machine.
            for some in 0..super::MANY / SOME {
                let some = some * SOME..(some + 1) * SOME;
                let some = some.map(|n| client.mutex(format!("{name}-{n}")).lock());
                for guard in join_all(some).await {
                    guards.push(guard?);
                }
            }
            let _ends = Ends;
            drop(guards);
            return Ok(());
        }
        Kind::GuardInTask => {
            let (tell, held) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let guard = lock.lock().await;
                let _ = tell.send(guard.is_ok());
                std::future::pending::<()>().await;
                drop(guard);
            });
            assert!(held.await?, "it is free");
            let _ends = Ends;
            return Ok(());
        }
        _ => {}
    }
    let guard = lock.lock().await?;
    let _ends = Ends;
    match kind {
        Kind::GuardDropped => drop(guard),
        Kind::CutUnlock => drop(tokio::time::timeout(Duration::ZERO, guard.unlock()).await),
        _ => finish(kind)?,
    }
    Ok(())
}

fn threads(kind: Kind, url: &str, name: &str) -> Outcome {
    let builder = blocking::Client::builder().nodes([url]).response_timeout(ANSWER);
    let client = builder.connect_blocking()?;
    if kind == Kind::ManyGuards {
        let lock = |n| client.mutex(format!("{name}-{n}")).lock();
        let guards: Result<Vec<_>, _> = (0..super::MANY).map(lock).collect();
        let guards = guards?;
        // Of threads each drop waits.
        drop(Ends);
        drop(guards);
        return Ok(());
    }
    let guard = client.mutex(name).lock()?;
    let ends = Ends;
    match kind {
        Kind::GuardDropped => drop((ends, guard)),
        _ => finish(kind)?,
    }
    Ok(())
}

/// The runtime ends, and then the guard is dropped.
fn outlive(mut builder: Builder, url: &str, name: &str) -> Outcome {
    let runtime: Runtime = builder.enable_all().build()?;
    let client = runtime.block_on(Client::connect(url))?;
    let guard = runtime.block_on(client.mutex(name).lock())?;
    drop(Ends);
    drop(runtime);
    drop(guard);
    Ok(())
}

/// Ends `main`, or the process, while a guard lives.
fn finish(kind: Kind) -> Outcome {
    match kind {
        Kind::Error => Err("main ends with an error".into()),
        Kind::Panic => panic!("main panics"),
        Kind::Exit => std::process::exit(0),
        Kind::Kill => {
            let pid = rustix::process::getpid();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
            loop {
                std::thread::park();
            }
        }
        other => panic!("{other:?} does not end while a guard lives"),
    }
}

/// What it says, and when, by the clock that all processes share.
const ENDS_AT: &str = "ends at ";
const ANSWER: Duration = Duration::from_secs(10);
/// How many locks are taken at once.
const SOME: usize = 50;
/// Set in the process's environment.
const ROLE: &str = "LEASEHOLD_TEST_ENDING";
