//! The password of a URL: it goes to the server, and is in nothing that anybody is shown.

use std::{
    io,
    sync::{Arc, Mutex as StdMutex},
    time::Duration,
};

use leasehold::{Client, ClientBuilder, Error};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tracing::subscriber::DefaultGuard;

use crate::{
    checks::{LIMIT, soon, told},
    support::{MASTER, Pretender, Proxy, Server, Twister, eventually, traced_to},
};

/// As it is, and as it stands in a URL.
const PASSWORD: &str = "c@n/ry s3cr%t";
const ENCODED: &str = "c%40n%2Fry%20s3cr%25t";
/// What is left of it in any form.
const CANARY: &str = "s3cr";

/// All that was shown, in the log of this thread and to callers. The client's tasks run on this thread, too.
#[derive(Default)]
struct Shown {
    log: Arc<StdMutex<Vec<u8>>>,
    rest: String,
}

impl Shown {
    fn listen() -> (Self, DefaultGuard) {
        let shown = Self::default();
        let log = shown.log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || Writer(log.clone()))
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .finish();
        (shown, traced_to(subscriber))
    }

    fn error(&mut self, error: &Error) {
        self.text(told(error));
        if let Error::Unavailable { failures, .. } = error {
            for failure in failures.iter() {
                self.text(format!("{failure} {failure:?} {}", failure.node()));
                let mut cause = std::error::Error::source(failure);
                while let Some(error) = cause {
                    self.text(format!("{error} {error:?}"));
                    cause = error.source();
                }
            }
        }
    }

    fn client(&mut self, client: &Client) {
        self.text(format!("{client:?} {:?} {:?}", client.nodes(), client.stats()));
        self.text(format!("{:?} {:?}", client.holds(), client.mutex("n")));
    }

    fn text(&mut self, text: String) {
        self.rest.push_str(&text);
        self.rest.push('\n');
    }

    /// Connects if that works, uses the client, and takes down what that shows.
    async fn use_of(&mut self, url: String) {
        self.use_of_client(builder(url)).await;
    }

    async fn use_of_client(&mut self, builder: ClientBuilder) {
        self.text(format!("{builder:?}"));
        let client = match builder.connect().await {
            Ok(client) => client,
            Err(error) => return self.error(&error),
        };
        self.client(&client);
        let lock = client.mutex("n").with_ttl(Duration::from_millis(300));
        match lock.lock_with_timeout(Duration::from_millis(50)).await {
            Ok(guard) => {
                self.text(format!("{guard:?}"));
                guard.unlock().await.err().iter().for_each(|error| self.error(error));
            }
            Err(error) => self.error(&error),
        }
        match client.check().await {
            Ok(findings) => self.text(format!("{findings:?}")),
            Err(error) => self.error(&error),
        }
        self.client(&client);
        client.shutdown().await;
    }

    fn has_no_secret(&self) {
        let log = String::from_utf8(self.log.lock().expect("no panic").clone()).expect("text");
        assert!(log.contains("leasehold::"), "nothing was logged");
        for (place, text) in [("the log", &log), ("what is shown", &self.rest)] {
            let at = text.find(CANARY);
            let around: Option<String> =
                at.map(|at| text[..at].chars().rev().take(300).collect::<String>());
            let around = around.map(|text| text.chars().rev().collect::<String>());
            assert!(at.is_none(), "{place} has the password behind {around:?}");
        }
    }
}

struct Writer(Arc<StdMutex<Vec<u8>>>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn builder(url: String) -> ClientBuilder {
    impatient(Client::builder().nodes([url]))
}

fn impatient(builder: ClientBuilder) -> ClientBuilder {
    let builder = builder.connect_timeout(Duration::from_millis(400));
    builder.response_timeout(Duration::from_millis(200))
}

/// The places in which a URL of the server at `port` can have a password.
fn urls(port: u16) -> Vec<String> {
    let mut urls = vec![
        format!("redis://:{ENCODED}@127.0.0.1:{port}"),
        format!("redis://default:{ENCODED}@127.0.0.1:{port}"),
        format!("redis://default:{ENCODED}@127.0.0.1:{port}/3"),
    ];
    if cfg!(feature = "tls") {
        urls.push(format!("rediss://default:{ENCODED}@127.0.0.1:{port}"));
    }
    urls
}

/// A server of no kind: `answer` says what it writes for what it reads.
struct Stranger {
    port: u16,
    _listening: JoinSet<()>,
}

impl Stranger {
    async fn start(answer: fn(&str) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                serving.spawn(async move {
                    let mut buffer = vec![0; 16 * 1024];
                    while let Ok(count @ 1..) = client.read(&mut buffer).await {
                        let read = String::from_utf8_lossy(&buffer[..count]).into_owned();
                        if client.write_all(answer(&read).as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { port, _listening: listening }
    }
}

/// The words of a command on one line.
fn flat(read: &str) -> String {
    let words = read.split("\r\n").filter(|part| !part.starts_with(['*', '$']));
    words.collect::<Vec<_>>().join(" ")
}

/// Answers that repeat what was asked, with the password.
const STRANGERS: [fn(&str) -> String; 9] = [
    str::to_owned,
    |read| format!("-ERR unknown command 'HELLO', with args beginning with: {}\r\n", flat(read)),
    |read| format!("-{}\r\n", flat(read)),
    |read| format!("-WRONGPASS {}\r\n-NOAUTH {}\r\n", flat(read), flat(read)),
    |read| format!("-NOPERM User x has no permissions to run the '{}' command\r\n", flat(read)),
    |read| format!("-LOADING {}\r\n", flat(read)),
    |read| format!("+{}\r\n", flat(read)),
    |read| format!("HTTP/1.1 400 Bad Request\r\n\r\n{read}"),
    |read| format!("!{}\r\n{read}\r\n", read.len()),
];

#[tokio::test]
async fn the_password_is_never_shown_whatever_answers() {
    let (mut shown, _listening) = Shown::listen();
    for stranger in STRANGERS {
        let stranger = Stranger::start(stranger).await;
        for url in urls(stranger.port) {
            shown.use_of(url).await;
        }
    }
    shown.has_no_secret();
}

#[tokio::test]
async fn the_password_is_never_shown_whatever_a_server_refuses() {
    let (mut shown, _listening) = Shown::listen();
    let renamed = ["--rename-command", "HELLO", "NOHELLO"];
    let no_auth = ["--rename-command", "AUTH", "NOAUTH"];
    for args in [&renamed[..], &no_auth, &["--requirepass", "another"], &["--port", "0"]] {
        let socket = std::env::temp_dir().join(format!("leasehold-{}-s.sock", std::process::id()));
        let path = socket.to_str().expect("text").to_owned();
        if args[0] == "--port" {
            shown.use_of(format!("unix://{path}?pass={ENCODED}")).await;
            shown.use_of("redis://user:c@n/ry s3cr%t@127.0.0.1:1".to_owned()).await;
            shown.use_of("127.0.0.1:1?pass=s3cr".to_owned()).await;
            shown.use_of("redis://user:s3cr@127.0.0.1:bad".to_owned()).await;
            shown.use_of("s3cr://user:s3cr@127.0.0.1:1".to_owned()).await;
            continue;
        }
        let server = Server::with(&[args, &["--unixsocket", &path]].concat()).await;
        for url in urls(server.port()) {
            shown.use_of(url).await;
        }
        let query = format!("pass={}&user=default", ENCODED.replace("%20", "+"));
        shown.use_of(format!("unix://{path}?{query}")).await;
        shown.use_of(format!("unix://{path}?db=99&{query}")).await;
    }
    shown.has_no_secret();
}

/// The login is good, and what comes later has the password in it.
#[tokio::test]
async fn the_password_is_never_shown_whatever_comes_after_the_login() {
    let (mut shown, _listening) = Shown::listen();
    let server = Server::start().await;
    let rules = ["ACL", "SETUSER", "default", "on", "nopass"];
    server.command(&rules).await;
    for (command, error) in [
        ("HELLO", format!("ERR unknown command 'HELLO', with args: '3' 'AUTH' '{PASSWORD}'")),
        ("AUTH", format!("ERR unknown command 'AUTH', with args: '{PASSWORD}'")),
        ("SELECT", format!("ERR no such database as {ENCODED}")),
        ("SUBSCRIBE", format!("NOPERM no {PASSWORD}")),
        ("INFO", format!("ERR {PASSWORD} said so")),
        ("CONFIG", format!("BUSY {ENCODED}")),
        ("EVALSHA", format!("ERR {}", PASSWORD.replace('/', "%2f"))),
        ("EVALSHA", format!("READONLY {PASSWORD}")),
        ("EVALSHA", format!("ERR User u has no permissions to run the '{PASSWORD}' command")),
        ("EVALSHA", format!("WRONGTYPE {PASSWORD}")),
    ] {
        for first in [0, 2] {
            let seen = std::sync::atomic::AtomicUsize::new(0);
            let error = error.clone();
            // The first time it is a handshake's, which may go well.
            let twister = Twister::start(server.port(), move |words| {
                let is_it = words[0] == command;
                let nth = seen.fetch_add(usize::from(is_it), std::sync::atomic::Ordering::SeqCst);
                (is_it && nth >= first).then(|| error.clone())
            })
            .await;
            for url in urls(twister.port()).into_iter().filter(|url| url.starts_with("redis:")) {
                shown.use_of(url).await;
            }
        }
    }
    shown.has_no_secret();
}

#[tokio::test]
async fn the_passwords_of_sentinels_and_their_servers_are_never_shown_whatever_answers() {
    let (mut shown, _listening) = Shown::listen();
    for stranger in STRANGERS {
        let stranger = Stranger::start(stranger).await;
        for url in urls(stranger.port) {
            // A Sentinel has no databases, and is not asked to be one if the URL names one.
            shown.use_of_client(impatient(Client::builder().sentinel(MASTER, [url]))).await;
        }
        let sentinel = Pretender::start(stranger.port, None).await;
        for tls in [false, true] {
            let builder = Client::builder().sentinel(MASTER, [sentinel.url()]);
            let builder = builder.server_login("default", PASSWORD).server_tls(tls);
            shown.use_of_client(impatient(builder)).await;
        }
    }
    let server = Server::start().await;
    server.command(&["CONFIG", "SET", "requirepass", PASSWORD]).await;
    let sentinel = Pretender::start(server.port(), Some(1)).await;
    let url = sentinel.url().replace("redis://", &format!("redis://default:{ENCODED}@"));
    let builder = Client::builder().sentinel(MASTER, [url]).server_login("default", PASSWORD);
    let mapped = builder.clone().address_map(|_, port| (PASSWORD.to_owned(), port));
    shown.text(format!("{mapped:?}"));
    shown.use_of_client(impatient(builder)).await;
    shown.has_no_secret();
}

/// A lock held on a connection that breaks and cannot be made again.
#[tokio::test]
async fn the_password_is_never_shown_while_a_lock_is_lost() {
    let (mut shown, _listening) = Shown::listen();
    let server = Server::start().await;
    server.command(&["CONFIG", "SET", "requirepass", PASSWORD]).await;
    let proxy = Proxy::start(server.port()).await;
    let url = proxy.url().replace("redis://", &format!("redis://:{ENCODED}@"));
    let client = builder(url).connect().await.expect("the password is right");
    let lock = client.mutex("n").with_ttl(Duration::from_millis(500));
    let guard = lock.lock().await.expect("free");
    server.kill();
    soon("it is told", guard.lost()).await;
    shown.client(&client);
    shown.error(&guard.unlock().await.expect_err("lost"));
    eventually(LIMIT, "its status says why", async || client.nodes()[0].last_error.is_some()).await;
    shown.client(&client);
    shown.has_no_secret();
}
