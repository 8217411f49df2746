//! What the fuzz targets share: a client in paused time, over pipes, before servers that say what they like.
//!
//! A target gives the servers a [`Brain`]. The handshake is answered here as a good server does, so that a
//! client connects; everything else is the brain's. The library's hidden feature
//! `__test-seam` lets it in.

// The flags that steer libFuzzer need it, in the unit tests too.
#[cfg(test)]
use libfuzzer_sys as _;

pub mod brain;
pub mod frame;
pub mod request;
pub mod world;

pub use brain::{Ask, Brain, Line, Outlet};
pub use frame::Frame;
pub use request::{Request, Script};
pub use world::{World, bounded, run};
