//! Locks on a replicated deployment whose master the Sentinels name.

mod connecting;
mod failover;
mod findings;
mod guidance;
mod two_masters;
