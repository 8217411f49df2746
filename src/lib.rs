//! Reentrant distributed locks for Rust, kept in Redis or Valkey.
//!
//! A lock is renewed while you hold it, reports when it is lost, and gives each new holder a higher number, the fencing
//! token. The data format is Redisson's, so Rust and Java programs can share a lock.
//!
//! ```no_run
//! use std::{error::Error, time::Duration};
//!
//! use leasehold::Client;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     let client = Client::connect("redis://127.0.0.1:6379").await?;
//!     // It releases all locks at the end, even after an error.
//!     client.shutdown_after(bill(&client, 42)).await
//! }
//!
//! async fn bill(client: &Client, order: u64) -> Result<(), Box<dyn Error>> {
//!     let lock = client.mutex(format!("orders:{order}"));
//!     // The error of a timeout names the holder.
//!     let guard = lock.lock_with_timeout(Duration::from_secs(5)).await?;
//!     println!("billing order {order}, fencing token {}", guard.token());
//!     // An error if the lock was lost before this point.
//!     Ok(guard.unlock().await?)
//! }
//! ```
//!
//! Install it with `cargo add leasehold`, and tokio with `cargo add tokio --features full`. Without async, use
//! [`blocking::Client`].
//!
//! **A task that locks twice waits for itself,** unless both acquisitions have the same [owner](#owners): in async code each has
//! its own, if you name none.
//!
//! [`docs`] contains the guides: a [cookbook](docs::cookbook) with complete programs, all [settings](docs::settings), and
//! a guide [for those who know Redisson](docs::from_redisson).
//!
//! # Which method do I want?
//!
//! A [`Client`] holds the connections; one per process is enough. [`Client::mutex`] returns a [`Mutex`], which is only a handle: it
//! costs no I/O, and you may clone it and keep it. Unlike [`tokio::sync::Mutex`], it contains no value: a lock is a name, and your
//! programs agree on what it stands for. You may drop any call that waits, so `select!` and [`tokio::time::timeout`] work with all
//! of them; around [`Mutex::run`], a timeout also cancels the body. A [`Guard`] is `Send`, borrows nothing, and may be kept across
//! an await. What to call:
//!
//! | you want to | call |
//! |---|---|
//! | do something under the lock, and stop if the lock is lost | [`Mutex::run`] |
//! | the same, and keep the result even if the lock was lost at the end | [`Mutex::run_with_outcome`] |
//! | wait for a limited time, and learn from the timeout error who holds the lock | [`Mutex::lock_with_timeout`] |
//! | wait for a limited time, and get `None` on a timeout | [`Mutex::try_lock_for`] |
//! | take it only if it is free now | [`Mutex::try_lock`] |
//! | wait for as long as it takes | [`Mutex::lock`] |
//! | limit the wait of `lock` and `run`, but not the body | [`Mutex::with_wait`] |
//! | let many read, or one write | [`Client::rw_lock`] |
//! | serve all tasks of all processes in strict order | [`Client::fair_mutex`] |
//! | take several locks, all or none of them | [`Client::multi_lock`] |
//! | elect one leader among processes, and find out which it is | [`Client::election`] |
//! | hand out work to workers, and lose none of it when they die | [`Client::queue`] |
//! | limit how many run at once, or how many start per second | [`Client::semaphore`] |
//! | wait until all workers have ended, even those that crashed | [`Semaphore::returned`] |
//! | wait until several processes have done something | [`Client::latch`] |
//! | tell all processes that something has changed, even those that look only later | [`Client::signal`], [`Client::signal_group`] |
//! | see who holds a lock and who waits for it | [`Mutex::status`] |
//! | see all locks, or those that somebody waits for | [`Client::list`], [`Client::contended`] |
//! | see what the holders of a lock wait for, and who holds that | [`Client::blocked`] |
//! | go on reading after a write, with no writer in between | [`WriteGuard::downgrade`] |
//! | know whether what was read is still true | [`WriteGuard::unchanged_since`] |
//! | free a lock whose holder hangs | [`Mutex::force_unlock_if`] |
//! | keep a lock over many steps, until somebody else wants it | [`Guard::is_wanted`], [`Guard::wanted`] |
//!
//! `lock_with_timeout` and `lock` return a [`Guard`], and the two `try_` methods an `Option` of one. The lock is held until you
//! call [`Guard::unlock`], which reports whether it was held until then, or drop the guard, which releases the lock in the
//! background. The other kinds have methods like these. [`RwLock::read`] and [`RwLock::write`], [`MultiLock::lock`],
//! [`Semaphore::acquire`], [`Election::campaign`] and [`Queue::pop`] wait, and each has a form with a timeout and two that begin
//! with `try_`. Latches and signals are not locks.
//!
//! A lock is renewed for as long as its guard lives. [`Mutex::with_lease`] gives it a fixed length instead, and
//! [`Mutex::with_max_hold`] limits how long it is renewed. [`Mutex::with_min_hold`] keeps the lock taken for a minimum
//! time even if it is released earlier, for jobs that several hosts start at the same time.
//!
//! An election is a lock whose holder publishes a value, such as its address; its fencing token is the leader's term.
//!
//! # Owners
//!
//! Acquisitions by the same [`Owner`] nest: the inner one returns at once. Each acquisition has an owner of its own
//! unless you name one:
//!
//! * by handle, with [`Mutex::owned_by`];
//! * for all code inside a future, with [`Owner::scope`]: for example, one owner for each web request;
//! * inside the body of [`Mutex::run`], where the same lock nests by itself.
//!
//! Two warnings:
//!
//! * **`join!`, `select!` and `buffer_unordered` inside a scope** run branches of the *same* owner, so a lock does not
//!   exclude them from each other. If it must, give each branch its own owner.
//! * **`tokio::spawn`** leaves the scope. The new task waits for a lock that its parent holds, and if the parent waits
//!   for the task, both wait forever. Pass the owner on to the task: see [`Owner::current`].
//!
//! With [`blocking`], the owner is the calling thread, if you name none.
//!
//! # Losing a lock
//!
//! A lock is a lease that expires; renewals postpone its end. If the servers do not confirm a renewal in time, or report
//! that the lock is gone, the lock is lost: another process may hold it. From that moment:
//!
//! * [`Guard::is_held`] is false, without asking a server;
//! * [`Guard::lost`] resolves with the [reason](LossReason);
//! * [`Mutex::run`] and [`Guard::run_until_lost`] cancel the future that they run;
//! * [`Guard::unlock`] returns [`Error::Lost`].
//!
//! # Fencing
//!
//! A process can be paused between [`Guard::is_held`] and its next write, for longer than its lease lasts. No lock can prevent
//! this. The protected resource can: send [`Guard::token`] along with each write, and let the resource refuse a token lower than
//! the highest it has seen. The cookbook shows this [in SQL](docs::cookbook#fencing-in-sql). Readers between two writers share a
//! token. Permits of a semaphore and deliveries of a queue have none.
//!
//! # Errors
//!
//! There is one [`Error`] type, with one variant for each thing you can do about it:
//!
//! | error | what happened | what to do | as HTTP status |
//! |---|---|---|---|
//! | [`Timeout`](Error::Timeout) | another holder kept the lock | try later, or tell the user who has it | 409 or 423 |
//! | [`StillWaiting`](Error::StillWaiting) | what was waited for did not come in time | wait again, or give up | 503 |
//! | [`Lost`](Error::Lost) | the lock was lost while it was held, or a latch while it was shut | stop; repeat the work if it may be repeated | 503 |
//! | [`Unavailable`](Error::Unavailable) | no server, or no majority of servers, gave an answer that counts: they are out of reach, in a grace or quarantine, or lack replicas | retry later with a pause | 503 |
//! | [`Closed`](Error::Closed) | the client was drained or shut down, or its runtime has ended; or a blocking call was made in a fork or as its thread ended | the process is ending: refuse the request; otherwise fix the program | 503 |
//! | [`InvalidName`](Error::InvalidName) | the lock's name cannot be used | fix the input | 400 |
//! | [`InvalidArgument`](Error::InvalidArgument) | what was given to one call is out of range | fix the call, or refuse the input | 400 |
//! | [`InvalidConfig`](Error::InvalidConfig), [`Denied`](Error::Denied), [`WrongType`](Error::WrongType) | the settings, the user's rights or the key are wrong | fix the deployment | 500 |
//! | [`SingleServerOnly`](Error::SingleServerOnly) | this does not work over several independent masters | use a client of one server, Sentinel or Cluster | 500 |
//! | [`QueueFull`](Error::QueueFull) | the queue has as many items as its handle allows | push again later, or allow more | 503 |
//! | [`InvalidPayload`](Error::InvalidPayload) | a value cannot be written as an item of a queue, or an item is not such a value | reject the item, or fix the program | 500 |
//! | [`Deadlock`](Error::Deadlock) | owners wait for each other | release what is held, and begin again | 503 |
//! | [`InAsyncContext`](Error::InAsyncContext), [`SelfWait`](Error::SelfWait) | misuse | fix the program | 500 |
//!
//! [`testing`] makes errors for the tests of your own code.
//!
//! [`Error::is_timeout`], [`Error::is_lost`] and [`Error::is_retryable`] answer the usual questions without a `match`.
//!
//! If `unlock` fails with `Unavailable`, its result is unknown: the client repeats the release in the background, and the lock
//! expires with its TTL at the latest. [`Mutex::run`] returns the result of its body even then, since the lock was held until the
//! body had ended.
//!
//! # Ending a process
//!
//! Run the work of `main` inside [`Client::shutdown_after`]: it releases all locks that are still held, even after an
//! error or a panic. A service should call [`Client::drain`] first: it refuses new acquisitions, and waits for the
//! current holders.
//!
//! Without that, the locks of guards that are dropped as the runtime ends are still released, if the servers answer
//! within 250 ms. After [`std::process::exit`], an abort, or a signal that the program does not handle (Ctrl-C, SIGTERM,
//! SIGKILL), a lock stays for up to one TTL. [`Client`] has the
//! details, and those on `fork`.
//!
//! # Testing
//!
//! The crate `leasehold-test` has a server that runs in the test, and hangs, forgets, fails over or is cut off when the test says
//! so; with paused time, too: see [its page](docs::testing). On a real server:
//!
//! * Start one for the tests (`redis-server --port 0 --unixsocket ..`, or a container), or use a shared one with a different
//!   [`name_prefix`](ClientBuilder::name_prefix) for each test.
//! * Connect a client in each test. A client in a `static` ends with the runtime of the test that connected it.
//! * Set [`Deadlocks::Fail`], so that tasks that wait for each other fail instead of hanging.
//! * Set [`SelfWait::Fail`], so that a task that waits for itself fails instead of hanging.
//! * To test how your code reacts to a loss, take the lock away with [`Mutex::force_unlock`] and a short
//!   [`ttl`](ClientBuilder::ttl): the holder learns of it at its next renewal.
//! * Call [`Client::shutdown`] at the end, or the next run may wait for locks that this one left behind.
//!
//! **With a real server, paused time does not work.** Under `#[tokio::test(start_paused = true)]` tokio advances its clock whenever
//! all tasks wait, even while the client waits for the server: connecting may fail with "no answer", and waits with a timeout end
//! at once. In tests that take no locks, paused time works as usual.
//!
//! # Observability
//!
//! The library logs through [`tracing`](https://docs.rs/tracing), to three targets. A program that installs no subscriber, for
//! example with `tracing_subscriber::fmt::init()`, sees nothing of this.
//!
//! * **`leasehold::lock`** reports lost locks and failed renewals at `warn`, with the lock, its owner and its token. A wait that
//!   takes long is reported after 1 s at `info`, and from 10 s on at `warn`, with the holder and the line that asked. Owners that
//!   wait for each other in a circle are reported at `warn`, unless [`Deadlocks`] makes that an error. At `debug` there is a span
//!   `lock` around each acquisition, and an event at the end of each hold.
//! * **`leasehold::node`** reports the start of a server's outage at `warn` and its end at `info`, each with counts; and at `error`
//!   that a server cannot be used, because it denies the login, for example.
//! * **`leasehold::check`** reports at `info`, once after connecting, what [`Client::check`] finds.
//!
//! [All messages and fields](docs::logs) are stable. An outage logs only a few lines, however many locks are held. A
//! subscriber may call the client.
//!
//! [`Client::holds`], [`Client::stats`] and [`Client::nodes`] return what a health endpoint needs, and
//! [`Client::is_ready`] answers a readiness probe; none of them does I/O. [`Mutex::status`] asks the servers who holds a
//! lock, since when, and which clients wait. For metrics, give the client a [`monitor`](ClientBuilder::monitor), which is told what
//! happens; the [operating page](docs::operating) lists the metrics.
//!
//! # Limits
//!
//! * A lock is as durable as its key. A failover to a replica that missed the write, a restart without the data,
//!   eviction, `FLUSHALL` or a jump of the server's clock can give the lock to a second holder; the first one learns
//!   of it at its next renewal. [`Client::check`] reports such risks as far as the servers' settings show them. Behind Sentinels
//!   and in a cluster, a [grace period](ClientBuilder::restart_quarantine) lets locks survive a failover, with the settings that
//!   [Deployments] names.
//! * A [fair mutex](Client::fair_mutex), a [semaphore](Client::semaphore), a [latch](Client::latch), a [signal](Client::signal), a
//!   [group of signals](Client::signal_group) and a [queue](Client::queue) need one server, Sentinel or Cluster. Over several
//!   independent masters they fail with [`Error::SingleServerOnly`].
//! * On one server, behind Sentinels and in a cluster, clients get a lock in the order in which they asked for it. A failover, or a
//!   slot that moves, may change that order. The tasks of a client share one place, and pass the lock among themselves for up to
//!   the [`handoff_window`](ClientBuilder::handoff_window); with [`Client::fair_mutex`] each task has its own. Over several
//!   masters, and between this library and Redisson, no order is guaranteed.
//! * A release passes the lock to the first client in the queue by a message. Such a lease starts at 2 s; 100 ms later the
//!   client renews it to the full TTL. So a client that is stopped delays those behind it by 2 s, or by
//!   up to 6 s if it has several places in a row. If the server's clock jumps while a client waits, and the message then takes
//!   longer than the jump, the client may believe in that lease for too long.
//! * The library works with one server, with three or more independent masters ([`ClientBuilder::nodes`]), with a master that
//!   Sentinels watch ([`ClientBuilder::sentinel`]), or with a Redis Cluster ([`ClientBuilder::cluster`]): Redis 6.2 or later,
//!   or Valkey 8 or later (7.2 should do, and is not tested). [Deployments] says what each of them promises.
//!
//! Inside one process, use [`tokio::sync::Mutex`]. For writes to one database, use its transactions and constraints. If
//! the loss of a server must never break a lock, use three independent masters, or a consensus store; and where two writers would
//! be a disaster, make the resource check tokens, whichever you use.
//!
//! [Deployments]: docs::deployments
//!
//! # Features
//!
//! All are off by default.
//!
//! * `tls` accepts `rediss://` URLs, through rustls with the operating system's certificates. To use
//!   your own certificates, call [`root_certificates`](ClientBuilder::root_certificates) and
//!   [`client_certificate`](ClientBuilder::client_certificate).
//! * `serde` serializes what [`Mutex::status`] and the `status` of other kinds, [`Election::state`], [`Client::list`],
//!   [`Client::blocked`], [`Client::holds`], [`Client::nodes`], [`Client::stats`] and [`Client::check`] return, with durations and
//!   times in seconds and with variants as `"not_renewed"`, and reads a [`ClientBuilder`] from a
//!   [configuration](docs::settings), with durations such as `"30s"`. It also writes and reads a [`ReadVersion`], so that a version
//!   can be stored beside the data.
//! * `json` adds values to a [`Queue`] as JSON with [`push_json`](Queue::push_json), and reads them with
//!   [`Delivery::json`].
//! * `metrics` reports to the crate `metrics` what clients do, with [`Metrics`]. Without it, a [`Monitor`](monitor::Monitor) of
//!   your own takes the same events.

#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules are in the order of their layers: each uses only itself and those above it.
mod clock;

#[cfg(feature = "serde")]
mod serial;

mod text;

mod key;

mod waiter;

mod owner;

mod secret;

mod error;

mod config;

#[cfg(feature = "tls")]
mod tls;

mod script;

pub mod monitor;

mod counts;

mod events;

mod node;

mod fleet;

mod engine;

mod guard;

mod primitives;

mod client;

#[cfg(feature = "serde")]
mod settings;

#[cfg(feature = "metrics")]
mod meters;

#[cfg(feature = "__test-seam")]
mod forcing;

pub mod blocking;

pub mod docs;

pub use client::{Client, ClientBuilder, Finding, FindingKind, HeldLock, Stats};
pub use config::{Deadlocks, LockOrder, PubSub, SelfWait};
pub use counts::Histogram;
pub use error::{Blocked, ClosedReason, Error, LossReason, NodeFailure, testing};
pub use guard::{Guard, Lost, ReadVersion};
pub use key::{Holder, LockKind};
#[cfg(feature = "metrics")]
pub use meters::Metrics;
pub use node::{NodeState, NodeStatus};
pub use owner::Owner;
pub use primitives::delivery::Delivery;
pub use primitives::election::Election;
pub use primitives::latch::Latch;
pub use primitives::leader::{ElectionState, Leader};
pub use primitives::leadership::Leadership;
pub use primitives::listed::ListedLock;
pub use primitives::listing::Listing;
pub use primitives::multi_guard::{MultiGuard, MultiLost};
pub use primitives::multi_lock::MultiLock;
pub use primitives::mutex::Mutex;
pub use primitives::observer::Observer;
pub use primitives::permit::Permit;
pub use primitives::queue::Queue;
pub use primitives::queue_status::{DeadItem, Lent, QueueStatus};
pub use primitives::run::Outcome;
pub use primitives::rw_guards::{ReadGuard, WriteGuard};
pub use primitives::rw_lock::RwLock;
pub use primitives::semaphore::Semaphore;
pub use primitives::semaphore_status::{PermitHolder, SemaphoreStatus};
pub use primitives::signal::{Notice, Signal};
pub use primitives::signal_group::{Changes, SignalGroup};
pub use primitives::status::LockStatus;
pub use waiter::Waiter;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc(hidden)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The parts that tests replace: the network, the time and the randomness; and the part that a model steps. This is not part of the
/// interface, and changes without notice.
#[cfg(feature = "__test-seam")]
#[doc(hidden)]
pub mod seam {
    pub use crate::client::Seams;
    pub use crate::clock::{Entropy, TimeSource, Timestamp};
    pub use crate::engine::gate::machine;
    pub use crate::forcing::{forced_unlock, permits_key};
    pub use crate::key::prefixes;
    pub use crate::node::{Connecting, Connector, Network, command_config};
    pub use crate::script::all as scripts;
}
