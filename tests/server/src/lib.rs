#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

/// Runs the code on that page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
mod page {}

mod backend;
#[doc(hidden)]
#[allow(missing_docs)] // for the simulation and the fuzz targets
pub mod emulator;
mod in_process;
mod server;
mod sockets;
mod time;

pub use in_process::in_process;
pub use server::Server;
