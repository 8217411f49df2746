//! The same lock over several independent masters.

mod causes;
mod changing;
mod connecting;
mod contention;
mod deployment;
mod errors;
mod faces;
mod forgetting;
mod heals;
mod holding;
mod looking;
mod majority_gone;
mod pairs;
mod refusals;
mod renewal;
mod restarts;
mod rw_lock;
mod rw_turns;
mod stragglers;
mod tokens;
mod waiting;
mod wanted;
