//! A network in which a request outlives the connection that it was sent on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::Server;

/// A network that can be late: what the first connection sends from then on arrives when it is told to. The
/// first connection on which a `CLIENT KILL` is sent breaks, and the server never hears of that.
pub(crate) struct LateNetwork {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    late: AtomicBool,
    deliver: Notify,
    delivered: AtomicBool,
    connections: AtomicUsize,
    kills: AtomicUsize,
    /// How many bytes are late.
    kept: AtomicUsize,
}

impl LateNetwork {
    pub(crate) async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared::default());
        tokio::spawn({
            let (shared, server) = (shared.clone(), server.port());
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let server = TcpStream::connect(("127.0.0.1", server)).await;
                    let nth = shared.connections.fetch_add(1, SeqCst);
                    let server = server.expect("the server accepts");
                    tokio::spawn(pass(shared.clone(), nth == 0, client, server));
                }
            }
        });
        Self { port, shared }
    }

    /// Lets every `CLIENT KILL` through.
    pub(crate) fn spare_all(&self) {
        self.shared.kills.store(1, SeqCst);
    }

    /// What the first connection sends from now on is kept.
    pub(crate) fn be_late(&self) {
        self.shared.late.store(true, SeqCst);
    }

    /// What was kept arrives, with the end of the first connection behind it.
    pub(crate) fn deliver(&self) {
        self.shared.deliver.notify_one();
    }

    /// Whether the server has run what was kept, or had ended that connection before.
    pub(crate) fn has_delivered(&self) -> bool {
        self.shared.delivered.load(SeqCst)
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// How many bytes are kept.
    pub(crate) fn kept(&self) -> usize {
        self.shared.kept.load(SeqCst)
    }

    /// How many connections were to be killed.
    pub(crate) fn kills(&self) -> usize {
        self.shared.kills.load(SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }
}

async fn pass(shared: Arc<Shared>, is_first: bool, client: TcpStream, server: TcpStream) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let replies = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    });
    let mut kept = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
        let bytes = &buffer[..count];
        if is_first && shared.late.load(SeqCst) {
            kept.extend_from_slice(bytes);
            shared.kept.fetch_add(count, SeqCst);
            continue;
        }
        let kills = bytes.windows(4).any(|word| word == b"KILL");
        if kills && shared.kills.fetch_add(1, SeqCst) == 0 {
            replies.abort();
            return;
        }
        if to_server.write_all(bytes).await.is_err() {
            return;
        }
    }
    if is_first {
        shared.deliver.notified().await;
        let _ = to_server.write_all(&kept).await;
        let _ = to_server.shutdown().await;
        // The server ends its side once it has run them all, or has killed the connection before.
        let _ = replies.await;
        shared.delivered.store(true, SeqCst);
    }
}
