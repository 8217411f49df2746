//! The other processes: this program again, told what to do by its arguments.
//!
//! A worker prints `ready`, reads the window to measure in, and prints one line with what it measured.

use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use leasehold_testkit::bench::clock::Window;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::{Outcome, elections, held, permits, processes, runners, together, watched};

/// The first argument of a worker.
pub(crate) const COMMAND: &str = "worker";

/// A worker, seen from the process that started it. It is killed when this is dropped.
pub(crate) struct Worker {
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    process: Child,
}

impl Worker {
    /// Starts a worker and waits until it is ready.
    pub(crate) async fn start(args: &[&str]) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(COMMAND)
            .args(args)
            .env(watched::VARIABLE, watched::order())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let orders = process.stdin.take().ok_or("a worker has no input")?;
        let output = process.stdout.take().ok_or("a worker has no output")?;
        let mut worker = Self { orders, lines: BufReader::new(output).lines(), process };
        match worker.line(LIMIT).await?.as_str() {
            READY => Ok(worker),
            other => Err(format!("a worker said {other:?} instead of being ready").into()),
        }
    }

    /// Lets it run.
    pub(crate) async fn go(&mut self, window: Window) -> Outcome<()> {
        let order = format!("{} {}\n", window.from.as_nanos(), window.until.as_nanos());
        Ok(self.orders.write_all(order.as_bytes()).await?)
    }

    /// What it measured in `window`.
    pub(crate) async fn report<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &mut self,
        window: Window,
    ) -> Outcome<Vec<T>> {
        let line = self.line(LIMIT + (window.until - window.from)).await?;
        let mut report = Vec::new();
        for word in line.split_whitespace() {
            report.push(word.parse()?);
        }
        Ok(report)
    }

    /// Stops the process as a frozen machine does: its connections stay, and it does nothing.
    pub(crate) async fn stop(&mut self) -> Outcome<()> {
        let id = self.process.id().ok_or("a worker ended early")?;
        let pid = Pid::from_raw(id.try_into()?).ok_or("a worker has no process id")?;
        kill_process(pid, Signal::STOP)?;
        // The signal takes effect a little later. Where the system shows it, wait for that.
        while std::fs::read_to_string(format!("/proc/{id}/stat"))
            .is_ok_and(|stat| !stat.contains(") T "))
        {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn line(&mut self, limit: Duration) -> Outcome<String> {
        tokio::time::timeout(limit, self.lines.next_line())
            .await??
            .ok_or_else(|| "a worker ended early".into())
    }
}

/// What a worker does.
pub(crate) async fn serve(order: &[String]) -> Outcome<()> {
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    match order[..] {
        [processes::CONTEND, url, name] => processes::contender(url, name).await,
        [runners::RELAY, url, name, clients, patience_ms, holds] => {
            let (clients, patience_ms) = (clients.parse()?, patience_ms.parse()?);
            runners::runner(url, name, clients, patience_ms, holds.parse()?).await
        }
        [runners::BY_HAND, url, name, first, clients, all, holds] => {
            let (first, clients, all) = (first.parse()?, clients.parse()?, all.parse()?);
            runners::by_hand(url, name, first, clients, all, holds.parse()?).await
        }
        [runners::IN_ORDER, url, list] => runners::in_order(url, list).await,
        [elections::LEAD, url, name, end] => elections::leader(url, name, end).await,
        [together::TOGETHER, url, round, process] => {
            together::contender(url, round, process.parse()?).await
        }
        [permits::OURS, url, name] => permits::contender(url, name).await,
        [permits::BY_HAND, url, name, number] => permits::by_hand(url, name, number.parse()?).await,
        [held::OURS, url, name, locks] => held::ours(url, name, locks.parse()?).await,
        [held::BY_HAND, url, name, locks] => held::by_hand(url, name, locks.parse()?).await,
        _ => Err(format!("not an order for a worker: {order:?}").into()),
    }
}

/// In a worker: says that it is ready, and learns when to run.
pub(crate) async fn ready() -> Outcome<Window> {
    println!("{READY}");
    let line = BufReader::new(tokio::io::stdin()).lines().next_line().await?;
    let line = line.ok_or("nobody is there to run for")?;
    let (from, until) = line.split_once(' ').ok_or("an order without an end")?;
    Ok(Window {
        from: Duration::from_nanos(from.parse()?),
        until: Duration::from_nanos(until.parse()?),
    })
}

/// In a worker: says what it measured.
pub(crate) fn report<T: ToString>(figures: impl IntoIterator<Item = T>) {
    let words: Vec<String> = figures.into_iter().map(|figure| figure.to_string()).collect();
    println!("{}", words.join(" "));
}

const READY: &str = "ready";
const LIMIT: Duration = Duration::from_secs(20);
