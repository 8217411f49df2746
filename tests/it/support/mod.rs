//! What the tests run against: what all packages of tests share, and what only the tests here need.

mod clients;
mod face;
mod late;
mod leftovers;
pub(crate) mod lua;
mod nester;
mod outages;
mod spy;
mod tracing;
mod twister;
mod worker;

pub(crate) use leasehold_testkit::{
    Cluster, DOWN_AFTER_MS, Deployment, MASTER, Pretender, Proxy, Server, Watch, Worker,
    eventually, free_port, heard, in_time, shared_clock_us, signals::resume, slot_of, subscribers,
    waiting,
};

pub(crate) use self::{
    clients::Connects,
    face::{Face, Held},
    late::LateNetwork,
    leftovers::nothing_is_left,
    outages::{Outage, there_and_back},
    spy::{Run, Spy},
    tracing::traced_to,
    twister::{Twisted, Twister},
};
