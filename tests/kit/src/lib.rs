//! What the tests, the benches and the fuzz targets share: real servers, a network that fails on demand, and patience with a limit.
//!
//! ```text
//! ports signals clock patience   ports of our own, stopped processes, one clock, waiting with a limit
//! watch                          tests that hang, and what the machine kept waiting
//! program ends server            a server, and what a test must not leave on it
//! cluster deployment             several: in a cluster, or behind Sentinels
//! waiting                        who waits for a lock, as a server says
//! resp pretender                 the wire format, and a Sentinel of the tests
//! proxy                          the network before a server
//! worker                         other processes of a test
//! java/                          Redisson in a process of its own
//! bench/                         the server of a bench, the floor, and figures
//! ```
//!
//! What needs the library itself stays with those who use it.

#![warn(missing_docs)]

pub mod bench;
mod clock;
mod cluster;
mod deployment;
mod ends;
pub mod java;
mod patience;
mod ports;
mod pretender;
mod program;
mod proxy;
pub mod resp;
mod server;
pub mod signals;
mod waiting;
mod watch;
pub mod worker;

pub use self::{
    clock::shared_clock_us,
    cluster::{Cluster, slot_of},
    deployment::{DOWN_AFTER_MS, Deployment, MASTER},
    patience::{eventually, in_time},
    ports::next as free_port,
    pretender::Pretender,
    program::{program, tied},
    proxy::Proxy,
    server::Server,
    waiting::{heard, subscribers, waiting},
    watch::Watch,
    worker::Worker,
};
