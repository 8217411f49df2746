//! The tasks of one process that pass a lease among themselves, beside another client that wants the lock.
//!
//! [`state`] says what there is, [`rules`] what the process and the server do, [`protocol`] which actions there are and what must
//! hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * One server with the lock, its counter of tokens, and a queue. One connection of the process, on which requests run in
//!   order, at any later time, and answers come at any later time.
//! * The seat of the gate: a lease is in use, or its last user has left and its release is not sent yet, or there is none.
//!   Tasks that arrive, wait, hold, and leave, with an unlock that they await, drop, or keep and do not poll.
//! * Another client, whose ask and release run in one step. A forced unlock. Ticks: leases end, and the window passes.
//!
//! # What is not
//!
//! * What the other models have: messages that are lost, connections that break, clocks that are wrong, re-entry, readers.
//! * Who of several tasks wakes first: any may, at any time.

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
