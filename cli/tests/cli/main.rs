//! The command line on a real server, each complaint about other tools as a test.

mod exporting;
mod incident;
mod looking;
mod masters;
mod running;
mod support;
mod terminal;
