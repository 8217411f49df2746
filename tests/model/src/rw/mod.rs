//! A read-write lock on one server: how readers share it, how writers and readers queue, and what each client believes.
//!
//! [`state`] says what there is, [`server`] what the scripts do, [`client`] what a client does around the library's machine,
//! [`requests`] which machine that is, [`symmetry`] which states count as one, [`protocol`] which actions there are and what must hold, [`case`] how far it goes and which
//! rule is broken on purpose.
//!
//! # What is modelled
//!
//! * The lock's hash with its mode, fields and end; an end of its own for each reader; the counter of tokens; the queue.
//! * The requests of a client are in the [machine](leasehold::seam::machine) that the library runs, one for each client: it says who
//!   asks and when, and what becomes of answers and letters. Who comes first asks by itself, and the machine takes its answer over.
//! * Clients whose readers share one lease: others join it at any moment while nobody waits there, or while the client asks with
//!   a second lease, which is given back once it has shown that nobody was before them, and that the first one is there still.
//!   A client's writer may wait beside its own readers. A writer becomes a reader.
//! * Who gives up beside a lease in use leaves an ask behind that is under way: until its answer nobody else of the client asks, and
//!   what it is granted serves the next who wants the same. Where nothing is in use, it is given back at once.
//! * Forced unlocks. Who held the lock then, or was let in and had not heard of it, may believe that until its deadline.
//! * One connection for each client. What is sent runs in order, at any later time, or never; also when its client has ended.
//!   An answer is heard at any later time, or never. A request may run twice.
//! * Letters: a grant, or that a client is the first in the queue, and who holds the lock for how long still. They are read in order,
//!   at any later time, or lost. What comes while a request asks is read behind the answer. Whose timer has ended asks at any later
//!   time; all poll.
//! * Redisson's lock, which takes its turn without the queue and renews what it holds until it ends. The first in the queue listens
//!   on the channel while one of its holders is named to it; the subscription takes its time. It also hears of what ours give back.
//! * The window in which readers do not join readers of ours, since somebody listens on the channel: it shuts and opens at any
//!   time. The first in the queue asks a tick later. A lock that readers leave for whom they stayed out is reserved for a tick. A lease
//!   that came by letter is given back to those who listen, if there are any.
//! * Time in ticks: the ends of the hash and of the readers by the server's clock, deadlines (from before the request, or the
//!   grant) and timers by the client's.
//!
//! # What is not
//!
//! Of several readers the one that reads for longest is named to those who wait, and one of ours wherever it can be. In the library
//! it may be any.
//!
//! Waits of Redisson, the short first lease of a grant by letter, clocks that step or drift, lost connections, a queue that moves,
//! attempts that do not wait, the answers to releases: those are the same as for a lock, and in the model of the
//! [queue](crate::queue). How a writer's lease passes to the next of its client is in [`passing`](crate::passing).

pub mod case;
pub mod client;
pub mod protocol;
pub mod requests;
pub mod server;
pub mod state;
pub mod symmetry;
