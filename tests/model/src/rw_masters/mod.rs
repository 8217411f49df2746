//! A read-write lock over three masters: who gets a majority, which tokens they have, and how a writer that waits keeps new
//! readers out.
//!
//! [`state`] says what there is, [`rules`] what masters and clients do, [`protocol`] which actions there are and what must
//! hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * On each master: readers with their ends, or a writer; the counter of tokens; the reservation, with its end.
//! * Clients that ask all masters, count, lift the counters that are behind, hold, give up, release and end. What a refused
//!   request was granted is given back. The request of a refused writer is kept, and its reservation with it, until the next
//!   one was answered. A writer becomes a reader.
//! * One connection between each client and each master. What is sent runs in order, at any later time, or never; also when
//!   its client has ended. A client decides at any time after enough answers. One master may lag behind for as long as it likes;
//!   the others have run what a client sent before it asks anew.
//! * Time in ticks: ends by the masters' clocks, deadlines (from before the request) by the client's.
//!
//! # What is not
//!
//! Renewals, heals, restarts, quarantine, broken connections, clocks that drift, and block tokens: as for a mutex, in the
//! model of several servers. The end of the hash, zombies of Redisson, requests that run twice: as on one server, in the
//! model of the [read-write lock](crate::rw). When a client asks again: it may at any moment.
//!
//! States that differ in the order of the masters only count as one.

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
