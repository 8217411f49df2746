//! The clients' end of the network: streams of bytes in memory, and what the library makes of them.
//!
//! The other end is the [world](crate::world): it takes what was written when it looks, and puts what
//! arrives into the inboxes. Nothing here knows of time, delays or faults.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use leasehold::seam::{Connecting, Connector, Network, command_config};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{ProtocolVersion, RedisConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// What became of a connection, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Dialling,
    Open,
    /// Nobody listens there.
    Refused,
    /// The server closed it: what had arrived is read first.
    Ended,
    /// Reset: what had arrived is lost.
    Reset,
}

/// One connection between a client and the network.
pub struct Pipe {
    /// What the world calls it; set when it takes note of it.
    pub link: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    written: Vec<u8>,
    inbox: VecDeque<u8>,
    reader: Option<Waker>,
    /// The client dropped its end.
    dropped: bool,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics with it")
    }

    pub fn set_state(&self, state: State) {
        let mut inner = self.lock();
        inner.state = state;
        if state == State::Reset {
            inner.inbox.clear();
        }
        inner.wake();
    }

    pub fn deliver(&self, bytes: &[u8]) {
        let mut inner = self.lock();
        if inner.state == State::Open {
            inner.inbox.extend(bytes);
            inner.wake();
        }
    }

    /// What was written since the last look, and whether the client is gone.
    pub fn take_written(&self, into: &mut Vec<u8>) -> bool {
        let mut inner = self.lock();
        into.append(&mut inner.written);
        inner.dropped
    }
}

impl Inner {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// Where the connections of a client are kept for the world to look at.
pub type Desk = Arc<Mutex<Desks>>;

#[derive(Default)]
pub struct Desks {
    /// New connections, to the node of that number.
    pub dialled: Vec<(usize, Arc<Pipe>)>,
    /// Connections on which something was written, or that were dropped; some twice.
    pub touched: Vec<Arc<Pipe>>,
}

/// The client's end of a connection.
struct Stream {
    pipe: Arc<Pipe>,
    desk: Desk,
}

impl Stream {
    async fn dial(desk: Desk, node: usize) -> io::Result<Self> {
        let inner = Inner {
            state: State::Dialling,
            written: Vec::new(),
            inbox: VecDeque::new(),
            reader: None,
            dropped: false,
        };
        let pipe = Arc::new(Pipe { link: AtomicU64::new(0), inner: Mutex::new(inner) });
        desk.lock().expect("no panic").dialled.push((node, pipe.clone()));
        // Made before the wait: dropped half-way it tells the world.
        let stream = Self { pipe, desk };
        poll_fn(|cx| {
            let mut inner = stream.pipe.lock();
            match inner.state {
                State::Dialling => {
                    inner.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
                State::Open => Poll::Ready(Ok(())),
                _ => Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionRefused))),
            }
        })
        .await?;
        Ok(stream)
    }

    fn touch(&self) {
        self.desk.lock().expect("no panic").touched.push(self.pipe.clone());
    }
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
        match inner.state {
            State::Ended => Poll::Ready(Ok(())),
            State::Reset | State::Refused => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            State::Open | State::Dialling => {
                inner.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.pipe.lock();
        if inner.state == State::Reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        inner.written.extend_from_slice(bytes);
        drop(inner);
        self.touch();
        Poll::Ready(Ok(bytes.len()))
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
        self.pipe.lock().dropped = true;
        self.touch();
    }
}

/// The address of a node.
pub fn address(node: usize) -> String {
    format!("redis://node-{node}:6379")
}

/// The network as one process sees it.
pub struct Cables {
    pub desk: Desk,
}

impl Network for Cables {
    fn connector(&self, shown: &str) -> Arc<dyn Connector> {
        let node = (0..).find(|node| address(*node) == shown).expect("an address of this network");
        Arc::new(Cable { desk: self.desk.clone(), node })
    }
}

/// Connections of one process to one node.
struct Cable {
    desk: Desk,
    node: usize,
}

impl Connector for Cable {
    fn commands(&self, lost: Arc<Notify>) -> Connecting<MultiplexedConnection> {
        let (desk, node) = (self.desk.clone(), self.node);
        let config = command_config(lost);
        Box::pin(async move {
            let stream = Stream::dial(desk, node).await?;
            let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&login, stream, config).await?;
            tokio::spawn(driver);
            Ok(connection)
        })
    }

    fn subscriptions(&self) -> Connecting<PubSub> {
        let (desk, node) = (self.desk.clone(), self.node);
        Box::pin(async move {
            let stream = Stream::dial(desk, node).await?;
            PubSub::new(&RedisConnectionInfo::default(), stream).await
        })
    }
}
