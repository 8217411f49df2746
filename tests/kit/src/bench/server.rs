//! The private server of a run, and what it says of its work.

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};

use super::Outcome;
use super::clock::{self, Window};
use super::machine;
use crate::program::{program, tied};

/// A server on a free port of 127.0.0.1 that keeps nothing on disk, stopped when this is dropped.
///
/// The program is that of [`program`]; it also ends with this process, in whatever way that ends.
pub struct Server {
    process: Child,
    url: String,
    connection: MultiplexedConnection,
}

/// What the server has done since its start, or between two moments.
#[derive(Clone, Default)]
pub struct Work {
    /// Processor time of all its threads, in seconds: commands, network and messages.
    pub cpu: f64,
    /// Each command, sent by a client or called by a script: how often it ran, and for how many seconds.
    commands: HashMap<String, (f64, f64)>,
}

impl Work {
    /// How often the commands ran.
    pub fn calls(&self, commands: &[&str]) -> f64 {
        self.sum(commands, |(calls, _)| *calls)
    }

    /// For how long the commands ran.
    pub fn seconds(&self, commands: &[&str]) -> f64 {
        self.sum(commands, |(_, seconds)| *seconds)
    }

    fn sum(&self, commands: &[&str], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        commands.iter().filter_map(|command| self.commands.get(*command)).map(of).sum()
    }

    /// What it has done since `before`.
    pub fn since(mut self, before: &Self) -> Self {
        self.cpu -= before.cpu;
        for (command, (calls, seconds)) in &mut self.commands {
            let (calls_before, seconds_before) =
                before.commands.get(command).copied().unwrap_or_default();
            *calls -= calls_before;
            *seconds -= seconds_before;
        }
        self
    }

    fn scaled(mut self, by: f64) -> Self {
        self.cpu *= by;
        for (calls, seconds) in self.commands.values_mut() {
            *calls *= by;
            *seconds *= by;
        }
        self
    }
}

impl Server {
    /// Starts it, and waits until it answers.
    pub async fn start() -> Outcome<Self> {
        for _ in 0..PORTS_TRIED {
            // Another program may take the port before the server does: then the next one is tried.
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut process = spawn(port)?;
            let url = format!("redis://127.0.0.1:{port}");
            match connect(&url, &mut process).await {
                Some(connection) => {
                    return Ok(Self { process, url, connection });
                }
                None => end(&mut process),
            }
        }
        Err("the server does not start".into())
    }

    /// Where to connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its name and version.
    pub async fn version(&self) -> Outcome<String> {
        Ok(machine::server(&self.info("server").await?))
    }

    /// What it does in the window.
    pub async fn work_in(&self, window: Window) -> Outcome<Work> {
        clock::wait_until(window.from).await;
        let (before, from) = (self.work().await?, clock::now());
        clock::wait_until(window.until).await;
        let work = self.work().await?.since(&before);
        // On a busy machine it was asked too late, once or twice.
        Ok(work.scaled(window.seconds() / (clock::now() - from).as_secs_f64()))
    }

    /// What it has done since its start.
    pub async fn work(&self) -> Outcome<Work> {
        let mut cpu = 0.0;
        for line in self.info("cpu").await?.lines() {
            if let Some(("used_cpu_user" | "used_cpu_sys", seconds)) = line.split_once(':') {
                cpu += seconds.trim().parse::<f64>()?;
            }
        }
        let mut commands = HashMap::new();
        for line in self.info("commandstats").await?.lines() {
            // cmdstat_evalsha:calls=3,usec=21,usec_per_call=7.00,..
            if let Some((command, fields)) = line.split_once(':')
                && let Some(command) = command.strip_prefix("cmdstat_")
            {
                let field = |key: &str| {
                    let mut fields = fields.split(',').filter_map(|field| field.split_once('='));
                    fields.find(|(name, _)| *name == key).map_or("0", |(_, value)| value)
                };
                let (calls, micros): (f64, f64) = (field("calls").parse()?, field("usec").parse()?);
                commands.insert(command.to_owned(), (calls, micros / 1e6));
            }
        }
        Ok(Work { cpu, commands })
    }

    async fn info(&self, section: &str) -> RedisResult<String> {
        let mut connection = self.connection.clone();
        redis::cmd("INFO").arg(section).query_async(&mut connection).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

fn spawn(port: u16) -> Outcome<Child> {
    let process = tied(program())
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .current_dir(std::env::temp_dir())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(process)
}

/// A connection to the server once it answers; `None` if it has ended, or does not answer in time.
async fn connect(url: &str, process: &mut Child) -> Option<MultiplexedConnection> {
    let client = redis::Client::open(url).ok()?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(START_LIMIT));
    let began_at = Instant::now();
    while began_at.elapsed() < START_LIMIT && matches!(process.try_wait(), Ok(None)) {
        if let Ok(mut connection) = client.get_multiplexed_async_connection_with_config(&config).await
            && let Ok(info) = redis::cmd("INFO")
                .arg("server")
                .query_async::<String>(&mut connection)
                .await
            // Else this is another server, which was faster.
            && info.contains(&format!("process_id:{}\r", process.id()))
        {
            return Some(connection);
        }
        tokio::time::sleep(POLL).await;
    }
    None
}

fn end(process: &mut Child) {
    let _ = process.kill();
    let _ = process.wait();
}

/// The commands that run a script.
pub const SCRIPTS: [&str; 2] = ["evalsha", "eval"];
const PORTS_TRIED: usize = 5;
const START_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
