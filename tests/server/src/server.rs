//! What a test sees of a server.

use std::fmt;
use std::io;

use crate::backend::{Access, Backend};
use crate::emulator;
use crate::in_process;
use crate::sockets::Port;

/// A server that runs until it is dropped. Its keys are in memory; no two servers share any.
///
/// Each method returns once it has taken effect.
#[must_use = "the server ends when it is dropped"]
pub struct Server {
    access: Access,
    port: Port,
    url: String,
}

impl Server {
    /// Starts a server in this process, and on a free port of 127.0.0.1.
    ///
    /// Its time is that of the tokio runtime in which it is started, if there is one; if that runtime is paused and ends, the
    /// server's time stands still. So each test with paused time starts its own; do not keep one in a `static`.
    ///
    /// # Panics
    ///
    /// If no port or thread is to be had.
    pub fn start() -> Self {
        Self::start_on(0).expect("there is a free port")
    }

    /// Starts a server in this process, and on this port of 127.0.0.1; zero stands for any that is free.
    ///
    /// Its time is that of [`start`](Server::start).
    ///
    /// # Errors
    ///
    /// If the port is taken.
    pub fn start_on(port: u16) -> io::Result<Self> {
        let access = Access::start();
        let port = Port::open(port, &access)?;
        let url = format!("redis://{}", port.address);
        in_process::register(&url, &access);
        Ok(Self { access, port, url })
    }

    /// Returns the URL at which any client reaches the server, such as `redis://127.0.0.1:40001`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Takes the lock called `name` from whoever holds it, as a forced unlock does, and gives it to the next in its queue at
    /// once. The holder learns of the loss at its next renewal, within a third of the TTL; with a fixed lease, only when it
    /// releases the lock or at the lease's end.
    ///
    /// The name is the whole one, with the prefix that the client puts before it. All who hold a read-write lock lose it. All
    /// permits of a semaphore end, and nobody is told that they are back. It does nothing to the deliveries of a queue.
    ///
    /// Returns false if nobody held it.
    pub fn lose(&self, name: &str) -> bool {
        let name = name.to_owned();
        self.run(move |backend| backend.lose(&name))
    }

    /// Ends the lock called `name` as if its time were over: others may have it, but nobody is told. The rest is as for
    /// [`lose`](Server::lose).
    ///
    /// Returns false if nobody held it.
    pub fn expire(&self, name: &str) -> bool {
        let name = name.to_owned();
        self.run(move |backend| backend.expire(&name))
    }

    /// From now on the server accepts connections and commands, but sends nothing, as if its process were stopped. What has
    /// come meanwhile runs at [`resume`](Server::resume). [`restart_empty`](Server::restart_empty) and
    /// [`fail_over`](Server::fail_over) put a new process in its place, which does not hang.
    pub fn hang(&self) {
        self.run(Backend::hang);
    }

    /// Closes all connections, and refuses new ones until [`resume`](Server::resume); over TCP, new connections are closed at
    /// once instead of refused. Keys stay, and expire as usual.
    pub fn cut(&self) {
        self.run(Backend::cut);
    }

    /// Ends what [`hang`](Server::hang) or [`cut`](Server::cut) began.
    pub fn resume(&self) {
        self.run(Backend::resume);
    }

    /// Restarts the server without its data: all connections are closed, and all locks are forgotten.
    pub fn restart_empty(&self) {
        self.run(Backend::restart_empty);
    }

    /// From now on the server's replica gets nothing more, so that [`fail_over`](Server::fail_over) loses what is written. If
    /// it gets nothing already, nothing changes.
    pub fn stop_replication(&self) {
        self.run(Backend::stop_replication);
    }

    /// Lets a replica take the server's place, at the same address: all connections are closed, and what was written since
    /// [`stop_replication`](Server::stop_replication) is lost; without that, nothing is.
    pub fn fail_over(&self) {
        self.run(Backend::fail_over);
    }

    /// Denies all clients a command, as an access control list does: `publish`, or, with the word behind it, `client|kill`.
    /// Commands inside scripts are denied, too.
    ///
    /// # Panics
    ///
    /// If this server has no such command.
    #[track_caller]
    pub fn deny(&self, right: &str) {
        assert!(emulator::Server::has_command(right), "this server has no command `{right}`");
        let right = right.to_owned();
        self.run(move |backend| backend.deny(&right));
    }

    /// Ends what [`deny`](Server::deny) began.
    pub fn allow_all(&self) {
        self.run(Backend::allow_all);
    }

    fn run<T: Send + 'static>(&self, task: impl FnOnce(&mut Backend) -> T + Send + 'static) -> T {
        self.access.run(task).expect("it runs until it is dropped")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        in_process::forget(&self.url);
        let _ = self.access.run(Backend::end);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("port", &self.port.address.port()).finish_non_exhaustive()
    }
}
