//! The network between servers, which can be cut between any two of them.
//!
//! Each server announces a junction instead of its own port, so all other servers and the Sentinels reach it there; and it
//! connects from an address of its own, by which the junctions of the others know it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use leasehold_testkit::free_port;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// Passes bytes on to a server, but holds back those from and to servers that are cut off from it. As with TCP, they arrive
/// once the cut is over, if both sides still have the connection.
pub(crate) struct Junction {
    port: u16,
    shared: Arc<Shared>,
    _listening: JoinSet<()>,
}

struct Shared {
    server_port: AtomicU16,
    /// The addresses that are cut off.
    cut: watch::Sender<BTreeSet<IpAddr>>,
}

impl Junction {
    /// Starts one that leads nowhere yet.
    pub(crate) async fn start() -> Self {
        let listener = loop {
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", free_port())).await {
                break listener;
            }
        };
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            server_port: AtomicU16::new(0),
            cut: watch::Sender::new(BTreeSet::new()),
        });
        let mut listening = JoinSet::new();
        let passing = shared.clone();
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((from, source)) = listener.accept().await {
                connections.spawn(connect(from, source.ip(), passing.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, shared, _listening: listening }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn lead_to(&self, server_port: u16) {
        self.shared.server_port.store(server_port, Ordering::SeqCst);
    }

    /// Cuts what comes from these addresses off from the server, and nothing else.
    pub(crate) fn cut_off(&self, sources: impl IntoIterator<Item = IpAddr>) {
        self.shared.cut.send_replace(sources.into_iter().collect());
    }
}

/// The address from which server number `index` connects.
pub(crate) fn address_of(index: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 7, u8::try_from(index + 1).expect("few servers")).into()
}

/// The address of the Sentinels, and of everything else.
pub(crate) const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn connect(from: TcpStream, source: IpAddr, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    // The sender is there as long as this connection's share of it.
    let _ = cut.wait_for(|cut| !cut.contains(&source)).await;
    let server = ("127.0.0.1", shared.server_port.load(Ordering::SeqCst));
    let Ok(to) = TcpStream::connect(server).await else { return };
    // Otherwise a small packet waits for the answer to the one before it, up to 40 ms.
    for stream in [&from, &to] {
        let _ = stream.set_nodelay(true);
    }
    let (from_source, to_source) = from.into_split();
    let (from_server, to_server) = to.into_split();
    tokio::select! {
        () = pass(from_source, to_server, source, cut.clone()) => {}
        () = pass(from_server, to_source, source, cut) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    source: IpAddr,
    mut cut: watch::Receiver<BTreeSet<IpAddr>>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let open = cut.wait_for(|cut| !cut.contains(&source)).await.is_ok();
        if !open || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
