//! Behaviour against real servers, which the tests start and end themselves.

mod cancellation;
mod locking;
mod scripts;
mod support;
