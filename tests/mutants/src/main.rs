//! `leasehold-mutants plant ROOT LIST SKIPPED FILE..`, `leasehold-mutants digest ROOT` and
//! `leasehold-mutants sweep LIST DONE RECORD SECONDS BINARY..`: see `scripts/mutants`.
//!
//! All mutants are compiled into one library. Each has a number, and `LEASEHOLD_MUTANT` says which one is on, so nothing
//! is built again between two of them. With `LEASEHOLD_MUTANTS_REACHED` the library writes down which of them a test reaches:
//! the others cannot change what it sees.

mod digest;
mod lua;
mod operators;
mod plant;
mod sweep;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        ["plant", root, list, skipped, files @ ..] => plant::plant(root, list, skipped, files),
        ["digest", root] => digest::print(root),
        ["sweep", list, done, record, seconds, binaries @ ..] => sweep::sweep(
            list,
            done,
            record,
            seconds.parse().expect("a number of seconds"),
            binaries,
        ),
        _ => {
            eprintln!(
                "usage: leasehold-mutants plant ROOT LIST SKIPPED FILE.. | digest ROOT | sweep LIST DONE RECORD SECONDS BINARY.."
            );
            ExitCode::from(2)
        }
    }
}
