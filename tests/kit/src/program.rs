//! The server program, and how it ends with this process.

use std::{
    env,
    io::ErrorKind,
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The program of all servers: the one that `LEASEHOLD_TEST_SERVER` names, else `redis-server`, else `valkey-server`.
///
/// # Panics
///
/// If it is not there: no test is skipped for want of one.
pub fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let chosen = env::var("LEASEHOLD_TEST_SERVER").ok();
        let programs = match &chosen {
            Some(program) => vec![program.as_str()],
            None => vec!["redis-server", "valkey-server"],
        };
        for program in &programs {
            match Command::new(program).arg("--version").stdout(Stdio::null()).status() {
                Ok(_) => return (*program).to_owned(),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => panic!("{program} does not start: {error}"),
            }
        }
        panic!(
            "the tests need a Redis or Valkey server, none of {programs:?} is installed: run scripts/setup"
        );
    })
}

/// A program that is killed when the pipe to it closes: at the latest when this process ends, in whatever way.
pub fn tied(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", include_str!("tied.sh"), "tied.sh", program]).stdin(Stdio::piped());
    command
}
