//! What the tests run against: real servers, a network that fails on demand, and patience with a limit.

// Not every helper has a user in every build of the tests.
#![allow(dead_code)]

mod cluster;
mod ends;
mod face;
mod failover;
mod late;
mod leftovers;
pub(crate) mod lua;
mod nester;
mod outages;
mod patience;
mod ports;
mod proxy;
mod resp;
mod server;
mod signals;
mod spy;
mod tracing;
mod twister;
mod watch;
mod worker;

#[allow(unused_imports)]
pub(crate) use self::{
    cluster::{Cluster, slot_of},
    face::{Face, Held},
    failover::{DOWN_AFTER_MS, Deployment, MASTER, Pretender},
    late::LateNetwork,
    leftovers::{IDLE_TASKS, nothing_is_left, subscribers, waiting},
    outages::{Outage, there_and_back},
    patience::{eventually, in_time},
    ports::next as free_port,
    proxy::Proxy,
    server::Server,
    signals::{pause, resume},
    spy::{Run, Spy},
    tracing::traced_to,
    twister::{Twisted, Twister},
    watch::Watch,
    worker::{Worker, shared_clock_us},
};
