//! One deployment with two servers, one of which follows the other: what is lost when the follower is promoted, and how
//! clients keep the lock to one of them all the same.
//!
//! [`state`] says what there is, [`rules`] what servers and clients do, [`protocol`] which actions there are and what must
//! hold, [`case`] how far it goes and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * Two servers with the lock's key and the mark. Exactly one is the *current* master, to which clients connect. The other
//!   may follow it: then it takes over all of its data at any moment, so that it lags by as many writes as it likes.
//! * A promotion: the other server is the current master from now on, with another history. The old one is fenced (it
//!   grants nothing more), or lives on as a master until it is demoted. Demoted, it has its old data until it takes over the
//!   other's, and may be promoted again, before or after that.
//! * A slot that moves: a third server, which has been up for long, has the lock from now on, with all of its data or with
//!   none, as after a repair. The mark there does not name the slot. It does not move again.
//! * A restart of the current master without data: another run and another history.
//! * Clients that connect in two steps (`INFO`, then the mark), ask, give up, hold, renew, put back, unlock. Each stays on
//!   the connection that it has for as long as it likes, and moves to the current master at any time. What was sent on the
//!   old connection still runs at any later time, if that server accepts it; releases are sent again on the new one.
//! * An unlock, in the cases for it, whose answer is waited for: whether the server had the lease, and on which one. What was
//!   sent before without an answer decides nothing. Somebody may remove the lease.
//! * A client that knows no grace: it counts every grant, and puts nothing back.
//! * Tokens, in the cases with readers: client 0 writes, and takes the time as its token; the others have the number that they
//!   find, or the time of the mark. A put back lease raises the counter to its token.
//! * Time in ticks, as in the model of several servers. Clocks do not step and do not drift here.
//!
//! # What is not
//!
//! Waiting, the queue: a client asks at any time, or never. Two clients never connect to a master that is not
//! the current one: where the old one lives on, only those that are connected to it stay there.

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
