//! Connections without sockets. A command has run when it is written, so no time passes meanwhile, and paused time cannot jump
//! over it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::ClientBuilder;
use leasehold::seam::{Connecting, Connector, Network, Seams, command_config};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{ProtocolVersion, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::backend::{Access, End};
use crate::emulator::LinkId;
use crate::time::Time;

/// The servers of this process, by their URLs.
static SERVERS: Mutex<BTreeMap<String, Access>> = Mutex::new(BTreeMap::new());

pub(crate) fn register(url: &str, server: &Access) {
    servers().insert(url.to_owned(), server.clone());
}

pub(crate) fn forget(url: &str) {
    servers().remove(url);
}

fn servers() -> MutexGuard<'static, BTreeMap<String, Access>> {
    SERVERS.lock().expect("nobody panics with it")
}

/// Makes the client reach the [servers](crate::Server) of this process without sockets, and follow tokio's time.
///
/// After `tokio::time::pause()`, or in a test with `#[tokio::test(start_paused = true)]`, time passes only while every task
/// waits, and then jumps to the next timer: so thirty seconds take about a millisecond. Call this function, and
/// [`Server::start`](crate::Server::start), in the runtime whose time is paused. Such a client reaches no other servers:
/// connecting to one fails as if nobody listened there.
///
/// Each builder that is passed to this function counts as another process where deadlocks are looked for. For several clients
/// of one process, call this function once, and clone the builder that it returns.
///
/// ```
/// # async fn example() -> Result<(), leasehold::Error> {
/// use leasehold::Client;
/// use leasehold_test::{Server, in_process};
///
/// let servers = [Server::start(), Server::start(), Server::start()];
/// let redlock = Client::builder().nodes(servers.iter().map(Server::url));
/// let client = in_process(redlock).connect().await?;
/// # Ok(())
/// # }
/// ```
pub fn in_process(builder: ClientBuilder) -> ClientBuilder {
    let time = Some(Arc::new(Time::here()) as _);
    builder.seams(Seams { network: Some(Arc::new(InProcess)), time, entropy: None })
}

struct InProcess;

impl Network for InProcess {
    fn connector(&self, address: &str) -> Arc<dyn Connector> {
        Arc::new(Cable { url: address.to_owned() })
    }
}

/// Connections to one server, which may not be there yet, or any more.
struct Cable {
    url: String,
}

impl Cable {
    fn dial(&self) -> io::Result<Stream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let server = servers().get(&self.url).cloned().ok_or_else(refused)?;
        let pipe = Arc::new(Pipe::default());
        let end = Box::new(pipe.clone());
        let link = server.run(|backend| backend.accept(end)).flatten().ok_or_else(refused)?;
        Ok(Stream { pipe, server, link })
    }
}

impl Connector for Cable {
    fn commands(&self, lost: Arc<Notify>) -> Connecting<MultiplexedConnection> {
        let stream = self.dial();
        let config = command_config(lost);
        Box::pin(async move {
            let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&login, stream?, config).await?;
            tokio::spawn(driver);
            Ok(connection)
        })
    }

    fn subscriptions(&self) -> Connecting<PubSub> {
        let stream = self.dial();
        Box::pin(async move { PubSub::new(&RedisConnectionInfo::default(), stream?).await })
    }

    fn farewell(&self, within: Duration) -> RedisResult<redis::Connection> {
        redis::Client::open(&*self.url)?.get_connection_with_timeout(within)
    }
}

/// What the server has sent.
#[derive(Default)]
struct Pipe {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    inbox: VecDeque<u8>,
    is_closed: bool,
    reader: Option<Waker>,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics with it")
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        change(&mut inner);
        let reader = inner.reader.take();
        drop(inner);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl End for Arc<Pipe> {
    fn send(&mut self, bytes: &[u8]) {
        self.change(|inner| inner.inbox.extend(bytes));
    }

    fn close(&mut self) {
        self.change(|inner| inner.is_closed = true);
    }
}

/// The client's end.
struct Stream {
    pipe: Arc<Pipe>,
    server: Access,
    link: LinkId,
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.pipe.lock();
        if !inner.inbox.is_empty() {
            let count = buffer.remaining().min(inner.inbox.len());
            let bytes: Vec<u8> = inner.inbox.drain(..count).collect();
            buffer.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        if inner.is_closed {
            return Poll::Ready(Ok(()));
        }
        inner.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (link, sent) = (self.link, bytes.to_vec());
        match self.server.run(move |backend| backend.receive(link, &sent)) {
            Some(true) => Poll::Ready(Ok(bytes.len())),
            _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let link = self.link;
        self.server.post(move |backend| backend.leave(link));
    }
}
