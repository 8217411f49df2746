//! What stands between a client and a server and answers some commands in words of its own.

use std::sync::Arc;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    task::JoinSet,
};

/// The words of a command to the error that is to be its answer; `None`: the server answers.
pub(crate) type Twist = dyn Fn(&[String]) -> Option<String> + Send + Sync;

/// Listens until dropped. In place of a command that it twists, it sends a script that returns the error: so all
/// answers come from the server, in order.
pub(crate) struct Twister {
    port: u16,
    _listening: JoinSet<()>,
}

impl Twister {
    pub(crate) async fn start(
        server_port: u16,
        twist: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let twist: Arc<Twist> = Arc::new(twist);
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
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async move {
        let mut from_client = BufReader::new(from_client);
        while let Some(words) = command(&mut from_client).await {
            let words = match twist(&words) {
                Some(error) => {
                    // Its brackets are in no error.
                    let script = format!("return redis.error_reply([==[{error}]==])");
                    vec!["EVAL".into(), script, "0".into()]
                }
                None => words,
            };
            if to_server.write_all(&packed(&words)).await.is_err() {
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

/// The next command; `None` at the end.
async fn command(from: &mut BufReader<OwnedReadHalf>) -> Option<Vec<String>> {
    let count = number(from).await?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = vec![0; number(from).await? + 2];
        from.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8(word).expect("the tests send text only"));
    }
    Some(words)
}

/// The number in a line such as `*3` or `$5`.
async fn number(from: &mut BufReader<OwnedReadHalf>) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim().parse().ok()
}

fn packed(words: &[String]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>()).into_bytes()
}
