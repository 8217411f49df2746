//! Contending processes on failing servers, and a checker of what they saw. See `README.md`.
//!
//! ```text
//! locks clock event journal history   what is contended for, what is written down, and how it is read again
//! checker/                      whether a history keeps what the library promises
//! register stalls proof recorder   what contenders write to, and write down
//! contender/                    a process that contends: tasks, or threads
//! junction deployment           the servers of a round, and the network between them
//! wall_clock                    the clock of a server, which can be set
//! monitor scene                 what they run, and the contenders
//! holders nemesis               the faults that locks survive, and whom they hit
//! replicated/                   those of servers that replicate: with Sentinels, and in a cluster
//! excluded/                     those that they do not
//! lists strays                  other servers become the masters, and clients that name the wrong ones
//! run                           rounds, and the sum of them
//! ```

pub mod checker;
pub mod clock;
pub mod contender;
pub mod deployment;
pub mod event;
pub mod excluded;
pub mod history;
mod holders;
pub mod journal;
mod junction;
pub mod locks;
mod lists;
pub mod monitor;
mod nemesis;
pub mod proof;
pub mod recorder;
pub mod register;
mod replicated;
pub mod run;
mod scene;
mod stalls;
mod support;
mod wall_clock;
mod strays;
