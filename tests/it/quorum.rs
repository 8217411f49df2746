//! The same lock over several independent masters.

mod deployment;
mod holding;
