//! Leases of one process that are renewed in one call, on one server.
//!
//! [`state`] says what there is, [`rules`] what the server and the process do, [`protocol`] which actions there are and what must
//! hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * A process that holds two or three locks, each with a lease of its own, and renews any of them in one call, or one by itself
//!   where a call came to nothing for it. It gives each back at any moment, also between the choice of those that are renewed
//!   and the sending.
//! * One connection. Requests run in order, at any later time; answers are heard at any later time. It may break: what has not
//!   run is lost, and what ran is not heard; only releases are sent again.
//! * Other clients that take a lock that is free. A forced unlock, a key that somebody overwrites, and a server that refuses a
//!   whole call: it does not know the script, or the user lacks a right.
//! * Time in ticks: keys expire, deadlines pass.
//!
//! # What is not
//!
//! * What the other models have: several servers, restarts, clocks that differ, the queue, tokens.
//! * Which leases go together, and when: any of them may at any moment.

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
