//! What the benches share: the server of a run, the floor, and figures.

pub mod aim;
pub mod by_hand;
pub mod clock;
pub mod figures;
pub mod holds;
pub mod machine;
pub mod server;

use std::error::Error;

/// What can fail in a bench.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
