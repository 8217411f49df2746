//! The items of a queue on one server: how they are pushed, lent, told of by letters, lost and done.
//!
//! [`state`] says what there is, [`rules`] what the server and clients do, [`protocol`] which actions there are and what must
//! hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * The list of items that nobody has had, those that are lent with their ends, or due again, and the queue of those who wait.
//! * One connection for each client. What is sent runs in order, at any later time, or never; also when its client has ended.
//!   An answer is heard at any later time, or never. A request may run twice. The answer to a request that its client has given
//!   up may still be heard.
//! * The request of a client that waits is in the [machine](leasehold::seam::machine) that the library runs, one for each
//!   delivery, as [`waiting`](crate::waiting) says. The first ask is the caller's own; the machine takes its answer over.
//! * Letters: a grant, which brings its item along if that is short, or that a client is the first in the queue. They are read in
//!   order, at any later time, or lost. One that comes while its request asks is read behind the answer. A client that has an item
//!   by a letter without it asks which one it is. Whose timer has ended asks at any later time; a client polls at any time.
//! * Time in ticks: deliveries end by the server's clock, deadlines (from before the request, or the grant) by the client's.
//! * Clients that give up, renew, give back, report an item as done, lose it, or end.
//!
//! # What is not
//!
//! Which item is taken, how often it may come, times before which it may not, dead items: that is counting in one script. The
//! short first lease of a grant by letter, clocks that step or drift, lost connections: those are the same as for a lock, and
//! in the model of the [queue](crate::queue).

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
