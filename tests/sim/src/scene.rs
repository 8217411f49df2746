//! A small world for a test that does one thing after the other.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Error};

use crate::host::Process;
use crate::scenario::builder;
use crate::world::World;

/// Two processes, connected.
pub struct Scene {
    pub world: World,
    pub nodes: usize,
}

impl Scene {
    pub fn set(seed: u64, nodes: usize) -> Self {
        let mut scene = Self { world: World::new(seed, nodes), nodes };
        scene.boot(0, 1);
        scene.boot(1, 1);
        scene
    }

    pub fn boot(&mut self, host: usize, generation: u64) {
        let nodes = self.nodes;
        let host_is = self.world.boot(host, generation, 0);
        let process = host_is.process.clone();
        host_is.handle().spawn(async move {
            process.set_client(connect(&process, nodes).await.expect("connected"));
        });
        self.until("connected", 2000, |world| world.hosts[host].process.client().is_some());
    }

    /// Runs until it is so.
    pub fn until(&mut self, what: &str, limit_ms: u64, is_so: impl Fn(&World) -> bool) {
        let limit = self.world.now + limit_ms;
        while !is_so(&self.world) {
            assert!(self.world.now < limit, "not {what} after {limit_ms} ms\n{}", self.tail());
            self.world.step();
        }
    }

    fn tail(&self) -> String {
        self.world.history.lock().trace.tail()
    }

    /// Runs a future on a process to its end.
    pub fn on<T: Send + 'static>(
        &mut self,
        host: usize,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let slot = Arc::new(Mutex::new(None));
        let result = slot.clone();
        self.world.hosts[host].handle().spawn(async move {
            let output = future.await;
            *result.lock().expect("no panic") = Some(output);
        });
        self.until("over", 30_000, |_| slot.lock().expect("no panic").is_some());
        slot.lock().expect("no panic").take().expect("it is there")
    }

    pub fn client(&self, host: usize) -> Client {
        self.world.hosts[host].process.client().expect("connected")
    }
}

/// A client of a process, with short timeouts.
pub async fn connect(process: &Process, nodes: usize) -> Result<Client, Error> {
    builder(process, nodes)
        .ttl(Duration::from_millis(TTL_MS))
        .response_timeout(Duration::from_millis(500))
        .unavailable_after(Duration::from_millis(1500))
        .restart_quarantine(Duration::ZERO)
        .connect()
        .await
}

/// The time to live of the clients' locks.
pub const TTL_MS: u64 = 2000;
