//! The permits of a semaphore on one server: how they are given out, queued for, lost and given back.
//!
//! [`state`] says what there is, [`rules`] what the server and clients do, [`protocol`] which actions there are and what must
//! hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * The number of permits left, the leases that are out with their ends, and the queue. Each client asks for as many permits
//!   as its case says.
//! * One connection for each client. What is sent runs in order, at any later time, or never; also when its client has ended.
//!   An answer is heard at any later time, or never. A request may run twice.
//! * The request of a client that waits is in the [machine](leasehold::seam::machine) that the library runs, one for each
//!   acquisition, as [`waiting`](crate::waiting) says. The first ask is the caller's own; the machine takes its answer over.
//! * Letters: a grant, or that a client is the first in the queue. They are read in order, at any later time, or lost. What comes
//!   while a request asks is read behind the answer. Whose timer has ended asks at any later time; a client polls at any time.
//! * Time in ticks: leases end by the server's clock, deadlines (from before the request, or the grant) by the client's.
//! * Clients that give up, release, renew, lose, or end.
//! * Redisson's client, which takes a permit whenever one is left, and listens on the channel while it waits. A release of
//!   permits that came by a letter leaves it a moment. The first in the queue listens, too, if it is told to, and what it hears is
//!   also what ours give back.
//!
//! # What is not
//!
//! Letters beside Redisson's client that are lost, resizing, the short first lease of a grant by letter, clocks that step or drift, lost connections: those are the
//! same as for a lock, and in the model of the [queue](crate::queue).

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
