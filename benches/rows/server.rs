//! The private server of a run.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};

use crate::Outcome;

/// A server on a free port of 127.0.0.1 that keeps nothing on disk, stopped when this is dropped.
///
/// The program is the one that `LEASEHOLD_TEST_SERVER` names, else `redis-server`, else `valkey-server`.
pub(crate) struct Server {
    process: Child,
    url: String,
    connection: MultiplexedConnection,
}

/// What the server did for scripts since it was started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scripts {
    pub(crate) calls: f64,
    pub(crate) micros: f64,
}

impl Server {
    pub(crate) async fn start() -> Outcome<Self> {
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

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) async fn version(&self) -> Outcome<String> {
        let info = self.info("server").await?;
        let find =
            |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        Ok(match (find("valkey_version"), find("redis_version")) {
            (Some(version), _) => format!("Valkey {}", version.trim()),
            (None, version) => format!("Redis {}", version.unwrap_or("of some version").trim()),
        })
    }

    pub(crate) async fn scripts(&self) -> Outcome<Scripts> {
        let mut scripts = Scripts::default();
        for line in self.info("commandstats").await?.lines() {
            // cmdstat_evalsha:calls=3,usec=21,usec_per_call=7.00,..
            let Some((command, fields)) = line.split_once(':') else {
                continue;
            };
            if !["cmdstat_evalsha", "cmdstat_eval"].contains(&command) {
                continue;
            }
            let field = |key: &str| {
                fields
                    .split(',')
                    .find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
                    .and_then(|value| value.parse::<f64>().ok())
                    .unwrap_or_default()
            };
            scripts.calls += field("calls");
            scripts.micros += field("usec");
        }
        Ok(scripts)
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

impl std::ops::Sub for Scripts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, micros: self.micros - before.micros }
    }
}

impl std::ops::AddAssign for Scripts {
    fn add_assign(&mut self, more: Self) {
        self.calls += more.calls;
        self.micros += more.micros;
    }
}

fn spawn(port: u16) -> Outcome<Child> {
    let chosen = std::env::var("LEASEHOLD_TEST_SERVER").ok();
    let programs = match &chosen {
        Some(program) => vec![program.as_str()],
        None => vec!["redis-server", "valkey-server"],
    };
    for program in &programs {
        // Looked for first: what starts it is a shell, which would say so too late.
        match Command::new(program).arg("--version").stdout(Stdio::null()).status() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{program} does not start: {error}").into()),
        }
        return Ok(Command::new("sh")
            .args(["-c", TIED, "tied.sh", program])
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?);
    }
    Err(format!("none of {programs:?} is installed: run scripts/setup").into())
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

/// The server ends with this process, in whatever way it ends.
const TIED: &str = include_str!("../../tests/it/support/tied.sh");
const PORTS_TRIED: usize = 5;
const START_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
