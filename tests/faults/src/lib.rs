//! Contending processes on failing servers, and a checker of what they saw. See `README.md`.
//!
//! ```text
//! clock event journal history   what is written down, and how it is read again
//! checker/                      whether a history keeps what the library promises
//! register stalls recorder      what contenders write to, and write down
//! contender/                    a process that contends: tasks, or threads
//! deployment monitor scene      the servers and contenders of a round, and what the servers run
//! holders nemesis               the faults that locks survive, and whom they hit
//! excluded/                     those that they do not
//! run                           rounds, and the sum of them
//! ```

pub mod checker;
pub mod clock;
pub mod contender;
mod deployment;
pub mod event;
pub mod excluded;
pub mod history;
mod holders;
pub mod journal;
pub mod monitor;
mod nemesis;
pub mod recorder;
pub mod register;
pub mod run;
mod scene;
mod stalls;
mod support;
