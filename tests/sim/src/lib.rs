//! Clients, network and servers in one thread, with all that is random drawn from one seed.
//!
//! * The servers are those of `leasehold-test`, which run the library's Lua text on keys, channels and clocks of their own.
//! * [`network`] and [`world`]: the two ends of every connection, and what lies between them. [`moves`]: slots of a cluster
//!   that go from one server to another.
//! * [`host`]: a process, with a runtime and a clock of its own; it can be stopped, and killed.
//! * [`nemesis`]: faults. [`workload`]: what the processes do. [`scenario`]: how the two come together.
//!   [`wishes`]: who asks whether its lock is wanted, and who wants it. [`kinds`]: what they do with locks of other kinds. [`coordination`]: and with queues of items, latches and signals. [`tangles`]: what they do with several locks, and who waits for whom. [`shapes`]: which scenarios there are. [`scene`]: a small world for a
//!   single test.
//! * [`history`], [`checker`], [`audit`] and [`lines`]: what happened, and whether it may; [`together`] reads a call that renews
//!   several leases as so many renewals. [`outcome`]: the sum of it.

pub mod audit;
pub mod causes;
pub mod checker;
pub mod coordination;
pub mod history;
pub mod host;
pub mod keys;
pub mod kinds;
pub mod lines;
pub mod moves;
pub mod nemesis;
pub mod network;
pub mod outcome;
pub mod scenario;
pub mod scene;
pub mod shapes;
pub mod tangles;
pub mod together;
pub mod trace;
pub mod wishes;
pub mod workload;
pub mod world;
