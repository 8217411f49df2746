//! Behaviour against real servers, which the tests start and end themselves.

mod scripts;
mod support;
