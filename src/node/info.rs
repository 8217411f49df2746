//! What a server says of itself (`INFO`), and what follows if it refuses to answer.

use std::collections::HashMap;

use crate::error::Fault;
use crate::script::Reply;

pub(super) fn info_command(section: &str) -> redis::Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

/// Returns the fields of a section of INFO.
pub(super) fn fields(info: &Reply) -> HashMap<String, String> {
    info.text()
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

/// Returns `None` if the server refuses to answer, in whatever words. A state that may pass is an error.
pub(super) fn optional<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_refusal() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The field of `INFO server` that says whether it is a Sentinel, a node of a cluster or neither: Redis's, Valkey's.
pub(super) const MODES: [&str; 2] = ["redis_mode", "server_mode"];
