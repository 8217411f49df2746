//! Clients that name different masters: what each server keeps of the list of them, and who may hold the lock.
//!
//! [`state`] says what there is, [`rules`] what servers and clients do, [`protocol`] which actions there are and what must hold,
//! [`case`] who names what, what an operator types, and which rule is broken on purpose.
//!
//! # What is modelled
//!
//! * Up to five servers, each with the lists that it allows, and the lock's lease. Two or three clients, each with its list,
//!   that connect, ask servers one by one in any order or never, hold the lock, renew and heal it, and let it go.
//! * What a client does with a list: it compares it when it connects and behind each grant; it writes it where there is none;
//!   and it takes no lock while one of its servers allows other lists only.
//! * A server that restarts empty, and its quarantine. It ends when each hold that it may have forgotten is over, or has a
//!   majority without it.
//! * An operator who starts and stops clients, and types lists on the servers, one server after the other.
//!
//! # What is not
//!
//! * What the other models have: messages that are late or lost, connections that break, drift, tokens.
//! * A server that loses the list and is out of reach, for a whole quarantine, of all clients that have seen it there: then a
//!   stranger may write another. The model has such clients come back in time.
//! * More than one restart in a run: without times, a hold that is not renewed would last until the next quarantine is over.

pub mod case;
pub mod protocol;
pub mod rules;
pub mod state;
