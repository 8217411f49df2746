//! A latch or a signal: who changes it, and who waits for that, while its master changes or its slot moves.
//!
//! [`state`] says what there is, [`rules`] what the servers and those who wait do, [`protocol`] which actions there are and what
//! must hold, [`case`] what it is about, which faults there are, and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * One key: a latch with its counts, or a signal with its number. A slot that moves takes it from one node to another; a
//!   failover leaves what the replica had, which lags. A latch may have an end.
//! * Changes, each sent once: a count of the latch, or giving the signal. A change runs at any time, or is lost. The node may be
//!   full: then a script can only write behind another write, and while the slot moves it cannot make anew what it deleted.
//! * Who waits asks, and reads the answer at any later time; subscribes to the channel where the name is, and asks again when that
//!   is confirmed, when a message comes, when the name has moved to another master, and by a timer. Messages are late, or lost;
//!   subscriptions break.
//! * What a handle of a latch remembers: that it saw the latch shut, and on which server. Its clock shows the latch's end before
//!   the server's does.
//!
//! # What is not
//!
//! Time but for that end: the timer may come at any moment. Several answers for one handle at a time, a latch that is set again
//! or deleted, data and groups of signals, signals that nobody has asked about for their retention. A clock of a server that is
//! behind that of the one before.

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
