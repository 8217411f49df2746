//! The command line of leasehold.

/// Writes a line to standard output. Other than `println!` it does not panic if nobody reads it, in the middle of what this
/// program has to do. If it cannot be written for another reason, this program ends with that.
macro_rules! show {
    ($($line:tt)*) => {{
        let _ = crate::text::write(format_args!("{}\n", format_args!($($line)*)));
    }};
}

/// As `show!`, to standard error, which nobody needs to read.
macro_rules! tell {
    ($($line:tt)*) => {{
        use std::io::Write;
        // In one piece: others write to the same place.
        let line = format!($($line)*) + "\n";
        let _ = std::io::stderr().write_all(line.as_bytes());
    }};
}

mod args;
mod dev_server;
mod doctor;
mod exit;
mod export;
mod force;
mod graph;
mod list;
mod look;
mod run;
mod servers;
mod settings;
mod text;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command};
use crate::exit::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::USAGE),
            };
        }
    };
    if let Command::Exec(exec) = &cli.command {
        return ended(run::exec(exec, cli.servers.json));
    }
    // One thread: the kernel ties a child's end to the thread that started it.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ended(Err(Failure::new(exit::SOFTWARE, error.to_string()))),
    };
    ended(runtime.block_on(dispatch(cli)))
}

async fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let Cli { command, mut servers } = cli;
    let needs_none = matches!(
        command,
        // It reads them itself, since it tells by an event what is wrong with them.
        Command::Run(_)
            | Command::DevServer(_)
            | Command::Completions { .. }
            | Command::Man { .. }
            | Command::Exec(_)
    );
    if !needs_none {
        servers.read_settings()?;
    }
    match command {
        Command::Run(run) => run::run(run, servers).await,
        Command::Try(names) => look::try_all(&names, &servers).await,
        Command::Wait(wait) => look::wait(&wait, &servers).await,
        Command::List(list) => list::list(&list, &servers).await,
        Command::Inspect(names) => look::inspect(&names, &servers).await,
        Command::Watch(names) => look::watch(&names, &servers).await,
        Command::Force(force) => force::force(&force, &servers).await,
        Command::Doctor(doctor) => doctor::doctor(&doctor, &servers).await,
        Command::Export(export) => export::export(&export, &servers).await,
        Command::DevServer(dev_server) => dev_server::dev_server(&dev_server, &servers).await,
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut text);
            text::write(format_args!("{}", String::from_utf8_lossy(&text)));
            Ok(0)
        }
        Command::Man { directory } => {
            clap_mangen::generate_to(Cli::command(), &directory).map(|()| 0).map_err(|error| {
                Failure::new(exit::SOFTWARE, format!("{}: {error}", directory.display()))
            })
        }
        Command::Exec(exec) => run::exec(&exec, servers.json),
    }
}

fn ended(result: Result<u8, Failure>) -> ExitCode {
    // Whoever reads a part of the output must not take it for the whole.
    match result.and_then(|code| text::failure().map_or(Ok(code), Err)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.message.is_empty() {
                tell!("leasehold: {failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}
