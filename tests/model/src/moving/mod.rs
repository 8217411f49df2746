//! A slot of a cluster that moves to another node while somebody ends a lease there: what the scripts do half-way, and what
//! their caller is told.
//!
//! [`state`] says what there is, [`scripts`] what the nodes and the scripts do, [`protocol`] which actions there are and what
//! must hold, [`case`] which end it is and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * The keys of one lock or semaphore, each on the node that the slot leaves, on the one that it goes to, or nowhere. They move
//!   one by one, in any order.
//! * What a node does with a request, and with each call of a script, while the slot is open: the first node refuses all that
//!   names a key which is not there, also one that the script itself has deleted; the other node takes such a key for one that
//!   does not exist, unless it is asked for together with others.
//! * A release or a forced unlock: of a lock, of a reader, of a writer, of a permit. It is sent as a whole, with one key if it
//!   can, to the other node if it is told to, and again until it is answered. Nothing that a script did is undone if it fails.
//! * Another reader, or another permit that is out; and a writer, or one more, that waits.
//!
//! # What is not
//!
//! Time: nothing ends by itself here. Connections that break, clients that end, two moves. What is published, and who hears it.

pub mod case;
pub mod protocol;
pub mod scripts;
pub mod state;
