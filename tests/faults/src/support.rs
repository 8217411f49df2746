//! The servers, the failing network and the watch for stalls that the library's own tests use.

#![allow(dead_code)]

#[path = "../../it/support/cluster.rs"]
mod cluster;
#[path = "../../it/support/ends.rs"]
mod ends;
#[path = "../../it/support/failover.rs"]
mod failover;
#[path = "../../it/support/patience.rs"]
mod patience;
#[path = "../../it/support/ports.rs"]
mod ports;
#[path = "../../it/support/proxy.rs"]
mod proxy;
#[path = "../../it/support/resp.rs"]
mod resp;
#[path = "../../it/support/server.rs"]
mod server;
#[path = "../../it/support/signals.rs"]
mod signals;
#[path = "../../it/support/watch.rs"]
mod watch;

pub(crate) use self::{
    cluster::{Cluster, slot_of},
    failover::{Deployment as Replicas, MASTER, Pretender},
    patience::eventually,
    ports::next as free_port,
    proxy::Proxy,
    server::Server,
    watch::Watch,
};
