//! A node's way to its server: which server that is now. It counts the connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use tokio::sync::Notify;

use super::greeting::Greeting;
use super::guide::Guide;
use super::halves::{Ear, Mouth};
use super::target::Target;
use super::witness::Synced;
use crate::clock::{Clock, Sleep, Timestamp};
use crate::error::Fault;

/// The server of one node, which may be another one after a while.
pub(super) struct Endpoint {
    /// What the node is called: the address in its URL, or the name by which Sentinels know its master.
    pub(super) name: Arc<str>,
    pub(super) guide: Guide,
    /// How connections to all its servers begin.
    pub(super) greeting: Greeting,
    pub(super) clock: Clock,
    pub(super) response_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) connections_made: AtomicU64,
    /// Grants count only once so many replicas have them.
    pub(super) synced: Option<Synced>,
    /// The server that its connections lead to. `None` before the guide has named one.
    target: Mutex<Option<Arc<Target>>>,
}

impl Endpoint {
    pub(super) fn new(
        name: Arc<str>,
        guide: Guide,
        greeting: Greeting,
        clock: Clock,
        [response_timeout, connect_timeout]: [Duration; 2],
        synced: Option<Synced>,
    ) -> Self {
        let target = Mutex::new(guide.at_hand());
        let connections_made = AtomicU64::new(0);
        Self {
            name,
            guide,
            greeting,
            clock,
            response_timeout,
            connect_timeout,
            connections_made,
            synced,
            target,
        }
    }

    /// Returns the server that its connections lead to, if it is known.
    pub(super) fn target(&self) -> Option<Arc<Target>> {
        self.target.lock().clone()
    }

    /// Returns the address of its server, without credentials, or the node's name if the server is not known.
    pub(super) fn address(&self) -> Arc<str> {
        let target = self.target.lock();
        target.as_ref().map_or_else(|| self.name.clone(), |target| target.address.clone())
    }

    /// Connections lead to `target` from now on. Returns the server to which they have led, if that is another one.
    pub(super) fn turn_to(&self, target: &Arc<Target>) -> Option<Arc<Target>> {
        let before = self.target.lock().replace(target.clone());
        before.filter(|before| !Arc::ptr_eq(before, target))
    }

    /// Waits until the guide names another server than the one that its connections lead to.
    pub(super) async fn moved(&self) {
        if !self.guide.is_dynamic() {
            return std::future::pending().await;
        }
        let target = self.target();
        self.guide.moved(target.as_ref()).await;
    }

    /// Waits until `pause` is over. Returns true earlier if the server is another one by then.
    pub(super) async fn moved_during(&self, pause: Sleep) -> bool {
        tokio::select! {
            () = self.moved() => true,
            () = pause => false,
        }
    }

    /// Makes a connection for commands to `target` by `until`. It notifies `lost` when the server closes it.
    pub(super) async fn connect(
        &self,
        target: &Target,
        lost: &Arc<Notify>,
        until: Timestamp,
    ) -> Result<MultiplexedConnection, Fault> {
        let made = target.commands(&self.clock, lost, self.connect_timeout, until).await;
        self.count(made)
    }

    /// Makes a connection for subscriptions by `until`.
    pub(super) async fn connect_for_subscriptions(
        &self,
        until: Timestamp,
    ) -> Result<(PubSubSink, PubSubStream), Fault> {
        let Some(target) = self.target() else {
            return Err(Fault::Down("no server is known".into()));
        };
        let made = target.subscriptions(&self.clock, self.connect_timeout, until).await;
        self.count(made)
    }

    /// Makes a connection for the subscriptions of a hub by `until`.
    pub(super) async fn connect_hub(
        &self,
        sharded: bool,
        until: Timestamp,
    ) -> Result<(Mouth, Ear), Fault> {
        if !sharded {
            let (sink, stream) = self.connect_for_subscriptions(until).await?;
            return Ok((Mouth::Classic(sink), Ear::Classic(stream)));
        }
        let Some(target) = self.target() else {
            return Err(Fault::Down("no server is known".into()));
        };
        let made = target.sharded(&self.clock, self.connect_timeout, until).await;
        self.count(made)
    }

    fn count<C>(&self, made: Result<C, Fault>) -> Result<C, Fault> {
        if made.is_ok() {
            self.connections_made.fetch_add(1, Ordering::Relaxed);
        }
        made
    }
}
