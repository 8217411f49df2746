//! What stands between a client and a server and answers some commands in words of its own.

use std::sync::Arc;

use leasehold_testkit::resp::{command, take_command};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// What a command is answered with.
pub(crate) enum Twisted {
    Error(String),
    /// A value, written in Lua.
    Value(String),
}

impl From<String> for Twisted {
    fn from(error: String) -> Self {
        Self::Error(error)
    }
}

/// The words of a command to what is to be its answer; `None`: the server answers.
type Twist = dyn Fn(&[String]) -> Option<Twisted> + Send + Sync;

/// Listens until dropped. In place of a command that it twists, it sends a script that returns the answer: so all
/// answers come from the server, in order.
pub(crate) struct Twister {
    port: u16,
    _listening: JoinSet<()>,
}

impl Twister {
    pub(crate) async fn start<T: Into<Twisted>>(
        server_port: u16,
        twist: impl Fn(&[String]) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let twist: Arc<Twist> = Arc::new(move |words| twist(words).map(Into::into));
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server_port)).await;
                let twist = twist.clone();
                // A server that is gone ends the connection.
                if let Ok(server) = server {
                    passing.spawn(pass(client, server, twist));
                }
            }
        });
        Self { port, _listening: listening }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

async fn pass(client: TcpStream, server: TcpStream, twist: Arc<Twist>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async move {
        let mut received = Vec::new();
        while let Ok(1..) = from_client.read_buf(&mut received).await {
            let mut sent = Vec::new();
            while let Some(words) = take_command(&mut received) {
                let words = words.into_iter().map(String::from_utf8).collect::<Result<Vec<_>, _>>();
                let words = words.expect("the tests send text only");
                match twist(&words) {
                    Some(answer) => {
                        let script = match answer {
                            // Its brackets are in no error.
                            Twisted::Error(text) => {
                                format!("return redis.error_reply([==[{text}]==])")
                            }
                            Twisted::Value(value) => format!("return {value}"),
                        };
                        command(&["EVAL", &script, "0"], &mut sent);
                    }
                    None => command(&words, &mut sent),
                }
            }
            if to_server.write_all(&sent).await.is_err() {
                return;
            }
        }
    };
    let replies = async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    };
    tokio::select! {
        () = requests => {}
        () = replies => {}
    }
}
