//! Connections over TCP, each read by a thread of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::backend::{Access, End};

/// A port, on which clients are served until this is dropped.
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    is_closed: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Port {
    /// Port 0 stands for any that is free.
    pub(crate) fn open(port: u16, server: &Access) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let (closed, server) = (is_closed.clone(), server.clone());
        let listening = spawn(move || {
            for stream in listener.incoming() {
                if closed.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    let _ = serve(stream, &server);
                }
            }
        })?;
        Ok(Self { address, is_closed, listening: Some(listening) })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        // Wakes the thread that listens. When it has ended, nobody reaches this port any more.
        let is_woken = TcpStream::connect(self.address).is_ok();
        if let Some(listening) = self.listening.take().filter(|_| is_woken) {
            let _ = listening.join();
        }
    }
}

fn serve(stream: TcpStream, server: &Access) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Nobody who does not read keeps the others waiting for longer.
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let end = Box::new(Socket(stream.try_clone()?));
    let Some(Some(link)) = server.run(|backend| backend.accept(end)) else { return Ok(()) };
    let server = server.clone();
    spawn(move || {
        let mut stream = stream;
        let mut buffer = [0; 1 << 14];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let bytes = buffer[..count].to_vec();
            if server.run(move |backend| backend.receive(link, &bytes)) != Some(true) {
                return;
            }
        }
        server.post(move |backend| backend.leave(link));
    })
    .map(drop)
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("leasehold-test".to_owned()).spawn(run)
}

struct Socket(TcpStream);

impl End for Socket {
    fn send(&mut self, bytes: &[u8]) {
        if self.0.write_all(bytes).is_err() {
            self.close();
        }
    }

    fn close(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
