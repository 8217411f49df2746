//! Contending processes on failing servers, and a checker of what they saw.

pub mod checker;
pub mod clock;
pub mod contender;
mod deployment;
pub mod event;
pub mod excluded;
pub mod history;
pub mod journal;
mod nemesis;
pub mod recorder;
pub mod register;
pub mod run;
mod scene;
mod stalls;
mod support;
