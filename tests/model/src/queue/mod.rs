//! The queue on one server: a release grants the lock to the next waiter, by a message.
//!
//! [`state`] says what there is, [`wire`] what is on its way, [`action`] what may happen; [`server`] what the scripts do, [`client`] what a client does around the library's machine, [`requests`] the times of that machine, [`belief`] until when a client believes in
//! a lease,
//! [`network`] what connections do, [`java`] what Redisson's `RLock` does, [`time`] what clocks do, [`protocol`] which
//! actions there are, [`check`] what must hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * One server with the lock's key, the queue, and the subscribers of each channel. Waiters, each in a process; those
//!   in one process (of a fair handle) share its connections, its mailbox and its samples.
//! * Each process has a connection for commands and one for subscriptions. Requests run in order, at any later time;
//!   answers and messages are heard at any later time, each connection by itself. Either connection may break. After the
//!   command connection, the next one kills what has not run yet, or cannot, and the rest of it runs at any later time;
//!   only releases are sent again, and who still waits asks again. After the subscriptions', the messages on their way are
//!   lost, and the server may count the old subscription for a while.
//! * Waiters that ask once, wait, poll, give up, hold, renew and release. Processes that end with their connections, and
//!   processes that stop with their mailbox still open.
//! * Redisson's lock: it takes the lock whenever it is free, waits for messages in the lock's channel, releases, ends.
//! * The requests of a process are in the [machine](leasehold::seam::machine) that the library runs: it says who asks and when, and
//!   what becomes of answers and messages. The model sends, delivers, breaks, and decides which timer ends first. The machine's
//!   clock stands still: a time in it stands for what is waited for.
//! * Who waits first asks by itself, before the machine has a request for it, and queues only if the mailbox is open. In a process
//!   with one waiter that is an ordinary one, and in others all are fair.
//! * A queue that moves with its lock to another server: what was sent is redirected, the mailboxes are not subscribed there, and
//!   each process begins its requests anew once it knows. A process whose waiters have all given up, and which drops what asks.
//! * In some cases the answers to releases: they say whether others had the message on the lock's channel. A process then lets
//!   those go first, and behind its next release nobody of it asks before the answer.
//! * A forced unlock, a queue that the server loses (it expired, or was evicted), a server that restarts empty.
//!
//! Time is modelled in one of two ways. *Without ticks* a lease ends at any moment at which nobody believes to hold it,
//! and a deadline is either good or passed. *With ticks* leases, deadlines, timers, quarantines and the ages of requests
//! and messages are counted, and clocks go wrong: a server's wall clock steps, clocks of clients and of the server drift.
//! All times are relative, so a state does not know how old it is.
//!
//! # What is not
//!
//! * The gate inside a process, hand-off and re-entry: a turn of a client is one hold, and each wait is on terms of its own, so that
//!   what is granted to a request that was given up serves nobody else.
//! * A grant to a request that was begun anew on another server meanwhile: here it is given back, and the library may use it.
//! * A queue that moves beside Java, or while connections break.
//! * What a step of the server's wall clock does to the TTLs of its keys: a lease that a step ends early is lost in any
//!   case. Only its effect on deadlines is modelled, which is what the queue adds.
//! * Java beside clocks that go wrong: Redisson has no deadlines.

pub mod action;
pub mod belief;
pub mod case;
pub mod check;
pub mod client;
pub mod java;
pub mod network;
pub mod protocol;
pub mod requests;
pub mod server;
pub mod state;
pub mod symmetry;
pub mod time;
pub mod wire;
