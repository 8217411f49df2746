//! Contending processes on failing servers, and a checker of what they saw. See `README.md`.
//!
//! ```text
//! locks clock event journal history   what is contended for, what is written down, and how it is read again
//! checker/                      whether a history keeps what the library promises
//! register stalls proof recorder   what contenders write to, and write down
//! contender/                    a process that contends: tasks, or threads
//! junction deployment           the servers of a round, and the network between them
//! measure                       what two situations cost that are larger than in any test
//! wall_clock                    the clock of a server, which can be set
//! monitor scene                 what they run, and the contenders
//! holders nemesis               the faults that locks survive, and whom they hit
//! replicated/                   those of servers that replicate: with Sentinels, and in a cluster
//! lists strays                  other servers become the masters, and clients that name the wrong ones
//! excluded/                     those that they do not
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
mod lists;
pub mod locks;
pub mod measure;
pub mod monitor;
mod nemesis;
pub mod proof;
pub mod recorder;
pub mod register;
mod replicated;
pub mod run;
mod scene;
pub mod stalls;
mod strays;
mod wall_clock;
