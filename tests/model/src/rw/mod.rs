//! A read-write lock on one server: how readers share it, how writers and readers queue, and what each client believes.
//!
//! [`state`] says what there is, [`server`] what the scripts do, [`client`] what a client does, [`protocol`] which actions
//! there are and what must hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * The lock's hash with its mode, fields and end; an end of its own for each reader; the counter of tokens; the queue.
//! * Clients whose readers share one lease: others join it at any moment while nobody waits there, or while the client asks with
//!   a second lease, which is given back once it has shown that nobody was before them, and that the first one is there still.
//!   A client's writer may wait beside its own readers. A writer becomes a reader.
//! * Forced unlocks. Who held the lock then, or was let in and had not heard of it, may believe that until its deadline.
//! * One connection for each client. What is sent runs in order, at any later time, or never; also when its client has ended.
//!   An answer is heard at any later time, or never. A request may run twice.
//! * Letters: a grant, or that a client is the first in the queue. They are read at any later time, behind the answer to an
//!   ask under way, or lost. A client that knows that it is the first asks when a lease has ended, and
//!   when Redisson's client leaves, if it was told of that one; all poll.
//! * Redisson's lock, which takes its turn without the queue and renews what it holds until it ends.
//! * The window in which readers do not join readers of ours, since somebody listens on the channel: it shuts and opens at any
//!   time. The first in the queue asks when it has opened. A lock that readers leave for whom they stayed out is reserved for a tick.
//! * Time in ticks: the ends of the hash and of the readers by the server's clock, deadlines (from before the request, or the
//!   grant) by the client's.
//!
//! # What is not
//!
//! A letter about the first that is read behind a newer answer: it may then miss a release by Redisson's client until it polls.
//!
//! Waits of Redisson, the short first lease of a grant by letter, clocks that step or drift, lost connections: those are the
//! same as for a lock, and in the model of the [queue](crate::queue).

pub mod case;
pub mod client;
pub mod protocol;
pub mod server;
pub mod state;
