//! A real server, owned by the test that started it.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use redis::{
    AsyncConnectionConfig, Client, InfoDict, RedisResult, Value, aio::MultiplexedConnection,
};

use crate::{
    Watch, ends, ports,
    program::{program, tied},
    signals::{self, pause, resume},
};

/// A server on a private port of 127.0.0.1, with a directory of its own; nothing of it outlives this value, and the
/// server does not outlive this process, however that ends.
///
/// The program is that of [`program`].
#[derive(Debug)]
pub struct Server {
    port: u16,
    dir: PathBuf,
    /// What its configuration file says at first, if it is a Sentinel.
    sentinel: Option<String>,
    args: Vec<String>,
    /// Variables of its environment besides those of this process.
    environment: Vec<(String, String)>,
    /// `None` while killed.
    process: Mutex<Option<Child>>,
    /// How keys begin that need no end.
    kept: Mutex<Vec<String>>,
    /// Watches the test from the server's start.
    watch: Watch,
}

impl Server {
    /// Starts a server that keeps nothing on disk.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts a server with options besides the usual ones; they win where both set the same.
    pub async fn with(args: &[&str]) -> Self {
        Self::in_environment(&[], args).await
    }

    /// Starts a server with options and variables of its environment besides the usual ones.
    pub async fn in_environment(environment: &[(&str, &str)], args: &[&str]) -> Self {
        let environment =
            environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Self::of(None, environment.collect(), args).await
    }

    /// Starts a Sentinel whose configuration file contains `lines`.
    pub async fn sentinel(lines: &str) -> Self {
        Self::sentinel_with(lines, &[]).await
    }

    /// Starts a Sentinel whose configuration file contains `lines`, with options besides the usual ones.
    pub async fn sentinel_with(lines: &str, args: &[&str]) -> Self {
        Self::of(Some(lines.to_owned()), Vec::new(), args).await
    }

    async fn of(
        sentinel: Option<String>,
        environment: Vec<(String, String)>,
        args: &[&str],
    ) -> Self {
        for _ in 0..PORTS_TRIED {
            let port = ports::next();
            let dir = env::temp_dir().join(format!("leasehold-test-{}-{port}", std::process::id()));
            fs::create_dir_all(&dir).expect("a directory for the server can be made");
            if let Some(lines) = &sentinel {
                fs::write(dir.join(CONF), lines).expect("the configuration can be written");
            }
            let server = Self {
                port,
                dir,
                sentinel: sentinel.clone(),
                args: args.iter().map(ToString::to_string).collect(),
                environment: environment.clone(),
                process: Mutex::new(None),
                kept: Mutex::default(),
                watch: Watch::begin(),
            };
            if server.launch(&[]).await {
                return server;
            }
        }
        panic!("none of {PORTS_TRIED} ports was free for a server");
    }

    /// Where to connect; with the password, if `--requirepass` was among the options.
    pub fn url(&self) -> String {
        match self.option("--requirepass") {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Where to connect as another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port by which the other nodes of its cluster know it: the one for TLS if they speak TLS with each other.
    pub fn cluster_port(&self) -> u16 {
        match (self.option("--tls-cluster"), self.option("--tls-port")) {
            (Some("yes"), Some(port)) => port.parse().expect("a port"),
            _ => self.port,
        }
    }

    /// What was set by an option besides the usual ones.
    fn option(&self, name: &str) -> Option<&str> {
        let at = self.args.iter().position(|arg| arg == name)?;
        self.args.get(at + 1).map(String::as_str)
    }

    /// The directory in which the server runs and keeps its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A time limit, widened by the longest stall of this machine since the server was started.
    pub fn widened(&self, limit: Duration) -> Duration {
        self.watch.widened(limit)
    }

    /// A time limit, widened by what so many threads that must run one after the other may have been kept waiting.
    pub fn widened_by(&self, hops: u32, limit: Duration) -> Duration {
        limit + hops * self.longest_stall()
    }

    /// How many times slower than a calm machine this one is now, from 1 to 16: how long the server takes to answer, and how
    /// long a thread waits for its share of the processors. Leases that would end on a slow machine before anybody could
    /// look are longer by this.
    pub async fn slowness(&self) -> u32 {
        let mut raw = self.raw().await;
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let asked_at = Instant::now();
            let () = redis::cmd("PING").exec_async(&mut raw).await.expect("an answer");
            longest = longest.max(asked_at.elapsed());
        }
        let answers = u32::try_from(longest.as_millis() / CALM.as_millis()).unwrap_or(u32::MAX);
        let computes = tokio::task::spawn_blocking(Watch::share).await.expect("no panic");
        answers.max(computes).clamp(1, 16)
    }

    /// For how long at most this machine has kept a thread waiting since the server was started.
    pub fn longest_stall(&self) -> Duration {
        self.watch.longest_stall()
    }

    /// Keys that begin so need no end in this test, as all others of ours do: the test makes them itself, say.
    pub fn keeps(&self, prefix: &str) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(prefix.to_owned());
    }

    /// The process id.
    ///
    /// # Panics
    ///
    /// When the server is killed.
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("the server runs").id()
    }

    /// A connection that nothing of the library stands before.
    pub async fn raw(&self) -> MultiplexedConnection {
        connect(&self.url()).await.expect("the server accepts a connection")
    }

    /// As [`raw`](Self::raw), as another user.
    pub async fn raw_as(&self, user: &str, password: &str) -> MultiplexedConnection {
        connect(&self.url_as(user, password)).await.expect("the server accepts the user")
    }

    /// Runs one command, which must succeed, on a connection of its own.
    pub async fn command(&self, words: &[&str]) -> Value {
        match self.try_command(words).await {
            Ok(reply) => reply,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// How often it has run a command so far.
    pub async fn calls(&self, command: &str) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]).await;
        let stats: String = redis::from_redis_value(stats).expect("a text");
        let start = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// How often it was asked to run a script.
    pub async fn scripts_run(&self) -> u64 {
        self.calls("evalsha").await + self.calls("eval").await
    }

    /// How many requests it got so far, also those that it refused; without those whose names begin like one `of_others`.
    pub async fn requests(&self, of_others: &[&str]) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]).await;
        let stats: String = redis::from_redis_value(stats).expect("a text");
        let counted = |line: &&str| {
            of_others.iter().all(|other| !line.starts_with(&format!("cmdstat_{other}")))
        };
        let number = |field: &str| {
            let (name, value) = field.split_once('=')?;
            let is_count = name.ends_with(":calls") || name == "rejected_calls";
            is_count.then(|| value.parse::<u64>().expect("a number"))
        };
        let lines = stats.lines().filter(counted);
        lines.flat_map(|line| line.trim().split(',')).filter_map(number).sum()
    }

    /// Runs one command on a connection of its own.
    pub async fn try_command(&self, words: &[&str]) -> RedisResult<Value> {
        let mut connection = connect(&self.url()).await?;
        let (verb, args) = words.split_first().expect("a command has a name");
        redis::cmd(verb).arg(args).query_async(&mut connection).await
    }

    /// Ends the process at once, as a crash does, and waits until it is gone.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            // SIGKILL also ends a process that is stopped.
            process.kill().expect("the server can be killed");
            process.wait().expect("the server can be waited for");
        }
    }

    /// Ends the process as an operator does, so that it writes what it keeps, and waits until it is gone.
    pub async fn shutdown(&self) {
        // The connection ends with the server: there is no reply to look at.
        let _ = self.try_command(&["SHUTDOWN"]).await;
        let started_at = Instant::now();
        while self.runs() {
            assert!(
                started_at.elapsed() < START_LIMIT,
                "the server did not shut down: {}",
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
        *self.process() = None;
    }

    /// Starts the server again, with the same port, directory and options.
    ///
    /// # Panics
    ///
    /// When it still runs.
    pub async fn restart(&self) {
        self.restart_with(&[]).await;
    }

    /// Starts the server again, this time with more options.
    ///
    /// # Panics
    ///
    /// When it still runs.
    pub async fn restart_with(&self, more: &[&str]) {
        assert!(self.process().is_none(), "kill the server before it is restarted");
        for _ in 0..PORTS_TRIED {
            if self.launch(more).await {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("port {} is not free any more", self.port);
    }

    /// Stops the process as a frozen machine does: connections stay, nothing is answered.
    pub fn pause(&self) {
        pause(self.pid());
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        resume(self.pid());
    }

    /// Starts the process and waits until it answers. False if its port is taken.
    async fn launch(&self, more: &[&str]) -> bool {
        let log = File::create(self.dir.join(LOG)).expect("the server's log can be made");
        let first: &[&str] = if self.sentinel.is_some() { &[CONF, "--sentinel"] } else { &[] };
        let process = tied(program())
            .args(first)
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--loglevel", "warning"])
            .args(&self.args)
            .args(more)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.dir)
            .stdout(log.try_clone().expect("the log can be opened twice"))
            .stderr(log.try_clone().expect("the log can be opened twice"))
            .spawn()
            .expect("a shell can be started");
        let pid = process.id();
        *self.process() = Some(process);

        let started_at = Instant::now();
        loop {
            if self.answers_as(pid).await {
                return true;
            }
            if !self.runs() {
                *self.process() = None;
                let log = self.log();
                assert!(log.contains("in use"), "the server did not start: {log}");
                return false;
            }
            assert!(
                started_at.elapsed() < START_LIMIT,
                "the server does not answer: {}",
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether this very process answers on the port, and has loaded its data.
    async fn answers_as(&self, pid: u32) -> bool {
        let Ok(mut connection) = connect(&self.url()).await else {
            return false;
        };
        let info: RedisResult<InfoDict> = redis::cmd("INFO").query_async(&mut connection).await;
        info.is_ok_and(|info| {
            // A Sentinel does not know of loading.
            info.get("process_id") == Some(pid) && info.get("loading").unwrap_or(0) == 0
        })
    }

    /// The keys of ours that have no end, unless the test has failed already.
    fn endless_keys(&self) -> Vec<String> {
        let pid = self.process().as_ref().map(Child::id);
        match pid {
            Some(pid) if self.sentinel.is_none() && !thread::panicking() => {
                // It may be paused.
                signals::resume_if_there(pid);
                let mut endless = ends::without_end(&self.url());
                let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                endless.retain(|key| !kept.iter().any(|prefix| key.starts_with(prefix)));
                endless
            }
            _ => Vec::new(),
        }
    }

    fn runs(&self) -> bool {
        let mut process = self.process();
        let process = process.as_mut().expect("the server was not killed");
        process.try_wait().expect("the server's state can be read").is_none()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join(LOG)).unwrap_or_default()
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the server, and the test fails if a key of ours has no end.
impl Drop for Server {
    fn drop(&mut self) {
        let endless = self.endless_keys();
        if let Some(mut process) = self.process().take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
        assert!(endless.is_empty(), "{}: these keys have no end: {endless:?}", self.watch.test());
    }
}

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

const LOG: &str = "server.log";
const CONF: &str = "sentinel.conf";
const PORTS_TRIED: usize = 20;
const START_LIMIT: Duration = Duration::from_secs(20);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);
/// Within this a server answers on a machine that is not busy.
const CALM: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_killed_server_comes_back_on_its_port_without_its_data() {
        let server = Server::start().await;
        let before = server.pid();
        server.command(&["SET", "x", "1"]).await;
        server.kill();
        assert!(server.try_command(&["PING"]).await.is_err());
        server.restart().await;
        assert_ne!(server.pid(), before);
        assert_eq!(server.command(&["EXISTS", "x"]).await, Value::Int(0));
    }

    #[tokio::test]
    async fn a_server_with_an_append_only_file_keeps_its_data() {
        let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
        server.command(&["SET", "x", "1"]).await;
        server.kill();
        server.restart().await;
        assert_eq!(server.command(&["EXISTS", "x"]).await, Value::Int(1));
        server.shutdown().await;
        server.restart().await;
        assert_eq!(server.command(&["EXISTS", "x"]).await, Value::Int(1));
    }

    #[tokio::test]
    async fn a_paused_server_answers_once_it_is_resumed() {
        let server = Server::start().await;
        let mut raw = server.raw().await;
        server.pause();
        let ping = redis::cmd("PING");
        let mut ping = Box::pin(ping.query_async::<String>(&mut raw));
        // What is tested is that no answer comes, for as long as one would certainly have taken.
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut ping).await.is_err());
        server.resume();
        assert_eq!(ping.await.expect("the server goes on"), "PONG");
    }

    #[tokio::test]
    async fn a_limit_is_widened_by_the_longest_stall() {
        let server = Server::start().await;
        let longest = server.longest_stall();
        assert!(server.widened(Duration::from_millis(50)) >= Duration::from_millis(50) + longest);
    }

    #[tokio::test]
    async fn a_dropped_server_leaves_nothing_behind() {
        let server = Server::start().await;
        let (url, dir) = (server.url(), server.dir().to_owned());
        server.pause();
        drop(server);
        assert!(connect(&url).await.is_err());
        assert!(!dir.exists());
    }

    #[tokio::test]
    async fn a_taken_port_is_passed_over() {
        let first = Server::start().await;
        let second = Server {
            port: first.port(),
            dir: first.dir().join("second"),
            sentinel: None,
            args: Vec::new(),
            environment: Vec::new(),
            process: Mutex::new(None),
            kept: Mutex::default(),
            watch: Watch::begin(),
        };
        fs::create_dir(second.dir()).expect("a directory for the server can be made");
        assert!(!second.launch(&[]).await);
        assert_eq!(first.command(&["PING"]).await, Value::SimpleString("PONG".into()));
    }
}
