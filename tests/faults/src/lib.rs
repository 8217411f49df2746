//! Contending processes on failing servers, and a checker of what they saw.

pub mod checker;
pub mod clock;
pub mod event;
pub mod history;
pub mod journal;
