//! The simulation's own tests, in one program, which is built sooner than one for each file.

mod determinism;
mod promises;
mod renewals;
mod suspend;
mod sweep;
mod versions;
mod waiting;
