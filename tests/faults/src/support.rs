//! The servers, the failing network and the watch for stalls that the library's own tests use.

#![allow(dead_code)]

#[path = "../../it/support/ports.rs"]
mod ports;
#[path = "../../it/support/proxy.rs"]
mod proxy;
#[path = "../../it/support/server.rs"]
mod server;
#[path = "../../it/support/signals.rs"]
mod signals;
#[path = "../../it/support/watch.rs"]
mod watch;

pub(crate) use self::{proxy::Proxy, server::Server};
