//! A way to a server on which every reply takes some time longer.

use std::convert::Infallible;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Outcome;

/// Runs on a thread of its own, so that it takes no turn of what is measured. Ends when it is dropped.
pub(crate) struct Slow {
    port: u16,
    runtime: Option<Runtime>,
}

impl Slow {
    /// Stands before the server at `url`.
    pub(crate) async fn start(url: &str, delay: Duration) -> Outcome<Self> {
        let server = url.strip_prefix("redis://").unwrap_or(url).to_owned();
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.spawn(async move {
            let Err(error) = serve(listener, &server, delay).await;
            eprintln!("bench: the slow way ends: {error}");
        });
        Ok(Self { port, runtime: Some(runtime) })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    server: &str,
    delay: Duration,
) -> std::io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::spawn(pass(from_client, to_server, Duration::ZERO));
        tokio::spawn(pass(from_server, to_client, delay));
    }
}

/// Passes bytes on, each `delay` after it came.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut late) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let writer = tokio::spawn(async move {
        while let Some((at, bytes)) = late.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writer.await;
}
