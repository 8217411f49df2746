//! Behaviour against real servers, which the tests start and end themselves.

mod addresses;
mod bad_input;
mod bad_servers;
mod blocking;
mod cancellation;
mod checks;
mod endings;
mod events;
mod holds;
mod invariants;
mod known_failures;
mod layers;
mod lifetimes;
mod locking;
mod min_hold;
mod name_prefix;
mod owners;
mod processes;
mod quorum;
mod races;
mod reasons;
mod reconnecting;
mod runs;
mod scripts;
mod secrets;
#[cfg(feature = "serde")]
mod serde;
mod support;
mod telling;
mod wrong_addresses;
