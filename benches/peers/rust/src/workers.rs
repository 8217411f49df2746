//! The workers, seen from the process that started them.

use std::process::Stdio;
use std::time::Duration;

use leasehold_testkit::bench::clock::{self, Window};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Outcome;
use crate::peer::{Peer, Program};
use crate::worker;

/// All workers. They are started when they are needed first, and live until they fail.
pub(crate) struct Workers {
    url: String,
    programs: Programs,
    /// For how long a new one of Java takes a free lock of each kind, so that its code is compiled.
    warm_up: Duration,
    rust: Vec<Worker>,
    java: Vec<Worker>,
    go: Vec<Worker>,
    /// The versions that they said they run.
    says: Vec<String>,
}

/// Where the programs are that are not this one.
#[derive(Clone)]
pub(crate) struct Programs {
    /// The Java program's classes.
    pub(crate) class_path: String,
    pub(crate) go: String,
}

impl Workers {
    pub(crate) fn new(url: &str, programs: Programs, warm_up: Duration) -> Self {
        Self {
            url: url.to_owned(),
            programs,
            warm_up,
            rust: Vec::new(),
            java: Vec::new(),
            go: Vec::new(),
            says: Vec::new(),
        }
    }

    /// The versions that the programs said they run.
    pub(crate) fn say(&self) -> String {
        self.says.join("; ")
    }

    /// Makes sure that there are `count` of a program.
    pub(crate) async fn need(&mut self, program: Program, count: usize) -> Outcome<()> {
        let mut new = Vec::new();
        for _ in self.of(program).len()..count {
            new.push(Worker::spawn(self.command(program))?);
        }
        for worker in &mut new {
            let says = worker.is_ready().await?;
            if !says.is_empty() && !self.says.contains(&says) {
                self.says.push(says);
            }
        }
        let connect = vec![format!("connect {}", self.url); new.len()];
        ask_all(&mut new, &connect, START_LIMIT).await?;
        for peer in Peer::ALL {
            if program == Program::Java && peer.program() == program {
                let window = Window::soon(self.warm_up);
                let orders: Vec<String> = (0..new.len())
                    .map(|number| {
                        order("pairs", peer.word(), &format!("warm-up:{number}"), 1, window)
                    })
                    .collect();
                ask_all(&mut new, &orders, self.warm_up + START_LIMIT).await?;
            }
        }
        self.of(program).extend(new);
        Ok(())
    }

    /// Gives each of as many workers an order, and waits for their figures. All workers of a program are
    /// given up when one of them fails or is not done within the limit: what it does still, nobody knows.
    pub(crate) async fn ask(
        &mut self,
        program: Program,
        orders: &[String],
        limit: Duration,
    ) -> Outcome<Vec<Vec<f64>>> {
        let workers = self.of(program);
        let figures = ask_all(&mut workers[..orders.len()], orders, limit).await;
        if figures.is_err() {
            workers.clear();
        }
        figures
    }

    /// The same for two programs at once.
    pub(crate) async fn ask_together(
        &mut self,
        rust: &[String],
        java: &[String],
        limit: Duration,
    ) -> Outcome<(Vec<Vec<f64>>, Vec<Vec<f64>>)> {
        let figures = tokio::try_join!(
            ask_all(&mut self.rust[..rust.len()], rust, limit),
            ask_all(&mut self.java[..java.len()], java, limit),
        );
        if figures.is_err() {
            self.rust.clear();
            self.java.clear();
        }
        figures
    }

    fn of(&mut self, program: Program) -> &mut Vec<Worker> {
        match program {
            Program::Rust => &mut self.rust,
            Program::Java => &mut self.java,
            Program::Go => &mut self.go,
        }
    }

    fn command(&self, program: Program) -> Outcome<Command> {
        let mut command;
        match program {
            Program::Rust => {
                command = Command::new(std::env::current_exe()?);
                command.arg(worker::COMMAND);
            }
            Program::Java => {
                command = Command::new("java");
                // Eight of them run at once; else as Java comes.
                command.args(["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]);
                command.args(["-cp", &self.programs.class_path, "leasehold.peers.Worker"]);
            }
            Program::Go => command = Command::new(&self.programs.go),
        }
        Ok(command)
    }
}

/// An order for a row.
pub(crate) fn order(row: &str, lock: &str, name: &str, tasks: usize, window: Window) -> String {
    let (from, until) = (window.from.as_nanos(), window.until.as_nanos());
    format!("{row} {lock} {name} {tasks} {from} {until}")
}

async fn ask_all(
    workers: &mut [Worker],
    orders: &[String],
    limit: Duration,
) -> Outcome<Vec<Vec<f64>>> {
    for (worker, order) in workers.iter_mut().zip(orders) {
        worker.orders.write_all(format!("{order}\n").as_bytes()).await?;
    }
    let answers = async {
        let mut all = Vec::new();
        for worker in workers {
            all.push(worker.figures().await?);
        }
        Ok(all)
    };
    match tokio::time::timeout(limit, answers).await {
        Ok(all) => all,
        Err(_) => Err(format!("not done within {limit:.1?}").into()),
    }
}

/// A worker. It is killed when this is dropped.
struct Worker {
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Worker {
    fn spawn(command: Outcome<Command>) -> Outcome<Self> {
        let mut process =
            command?.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let orders = process.stdin.take().ok_or("a worker has no input")?;
        let output = process.stdout.take().ok_or("a worker has no output")?;
        Ok(Self { orders, lines: BufReader::new(output).lines(), _process: process })
    }

    /// Waits for it, and makes sure that its clock is ours. Gives what else it said.
    async fn is_ready(&mut self) -> Outcome<String> {
        // It read its clock after this, if it was started after this: all are started before any is ready.
        let line = tokio::time::timeout(START_LIMIT, self.line()).await??;
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let ["ready", nanos, ref says @ ..] = words[..] else {
            return Err(format!("a worker said {line:?} instead of being ready").into());
        };
        let (its, ours) = (Duration::from_nanos(nanos.parse()?), clock::now());
        if its > ours || ours - its > START_LIMIT {
            return Err(format!("a worker's clock shows {its:?}, ours {ours:?}").into());
        }
        Ok(says.concat())
    }

    async fn figures(&mut self) -> Outcome<Vec<f64>> {
        let line = self.line().await?;
        match line.split_once(' ') {
            Some(("ok", figures)) => {
                Ok(figures.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
            }
            _ => Err(line.into()),
        }
    }

    async fn line(&mut self) -> Outcome<String> {
        self.lines.next_line().await?.ok_or_else(|| "a worker ended".into())
    }
}

const START_LIMIT: Duration = Duration::from_secs(60);
