//! Each Lua script alone, reply by reply, on a real server.
//!
//! Replies and states are compared as text. What varies from run to run is written by what it is: a time to live as
//! the lease that it is left of (`30s`), a fencing token as `token`. So `[0, 30s, a, 1]` reads "held by a, for 30 s at
//! most, one subscriber".

mod acquire;
mod bench;
mod fence;
mod group;
mod items;
mod last_millisecond;
mod latch;
mod leader;
mod lists;
mod mark;
mod notes;
mod permits;
mod preflight;
mod queue;
mod reclaim;
mod redisson;
mod release;
mod renew;
mod rw;
mod rw_random;
mod sources;
mod status;
