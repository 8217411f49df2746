//! Models of leasehold's protocol, whose states are gone through to the last one: here that over several servers; in
//! [`queue`] the queue on one; in [`failover`] one deployment whose master changes; in [`permits`] a semaphore; in
//! [`items`] a queue of items; in [`rw`] a read-write lock; in [`rw_masters`] one over several servers; in [`moving`] a slot of
//! a cluster that moves; in [`lists`] clients that name different servers; in [`together`] leases that are renewed in one call;
//! in [`passing`] tasks of one process that pass a lease among themselves; in [`notices`] a latch or a signal.
//!
//! `scripts/model` runs it, `README.md` has what came out. [`state`] says what there is and what may happen, [`rules`]
//! what servers and clients do, [`model`] what must hold, [`case`] how far it goes and which rule is broken on purpose,
//! [`report`] runs a case, and [`waiting`] has the library's machine for two of the models, and its times for a third. The cases
//! are the tests in `tests/`.
//!
//! # What is modelled
//!
//! * N servers, each with the lock's key (lease, time left) and its counter of tokens; clients that acquire, give up,
//!   unlock, renew and lose; an operator who force-unlocks.
//! * One connection between each client and each server. What is sent runs in order, at any later time, or never. An
//!   answer is heard at any later time, or never. A connection may break: the next one kills it on the server, or cannot
//!   and the rest of it strays; only releases are sent again. Requests may run twice.
//! * Time in ticks: keys expire by the server's clock, deadlines (from before the request, less the drift) pass by the
//!   client's. Clocks of clients and servers go wrong by as many ticks as a case says.
//! * Servers that restart, empty or with their data, whatever they say of it; servers that follow an empty one and are
//!   masters again in the same run, with their connections. Quarantine, counted from that event on each client's clock:
//!   the earliest end it can have, so that a client which notices it later only is more careful. A client meets
//!   the servers when it asks first, and trusts them when they have been up for a quarantine: the mark by which it does so is
//!   not older than that.
//! * Renewal by majority; heals; tokens: blocks, the highest answer, `fence_raise`.
//! * For the order of tokens by itself time is left out: a hold ends on a server at any moment and its client never
//!   learns of it. The coarse clock that the counters also follow is left out too, but for steps of one that move a
//!   counter. It only helps where a server forgot its counter, and there the order is shown to break without it.
//!
//! # What is not
//!
//! * What happens inside a client: gate, hand-off, re-entry, several locks. A client is one contender for one name.
//! * When a client asks again, and that it gets the lock in the end: any client may ask, give up, renew and unlock at any
//!   moment. So what is proven does not rest on schedules, and nothing is proven of waiting or of progress.
//! * Replication (see [`failover`]); eviction and a step of a server's wall clock, which the lock does not survive.
//! * The code. That the library keeps to these rules is for its own tests to show.
//!
//! # How far it goes
//!
//! It is a proof within bounds. Time has no bound: the ticks count down and the states repeat. Bounded are the clients,
//! the acquires and renewals over all clients, and each kind of fault over a whole run: in most cases three acquires and
//! one fault. The ttl is two or three ticks. States are told apart by a hash of 64 bits.
//!
//! Two things make it small enough. What can have no effect any more is dropped (a release of a lease that is not
//! there and cannot get there), and states that differ only in the order of servers or clients count as one.

pub mod case;
pub mod failover;
pub mod items;
pub mod lists;
pub mod model;
pub mod moving;
pub mod notices;
pub mod passing;
pub mod permits;
pub mod protocol;
pub mod queue;
pub mod report;
pub mod rules;
pub mod rw;
pub mod rw_masters;
pub mod state;
pub mod together;
pub mod waiting;
