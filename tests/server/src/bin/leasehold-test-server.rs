//! A server for other programs: `leasehold-test-server [PORT]`. It prints its URL, and runs until its standard input ends.

use std::io::{self, Write};
use std::process::ExitCode;

use leasehold_test::Server;

fn main() -> ExitCode {
    let port = std::env::args().nth(1).unwrap_or_else(|| "0".to_owned());
    let Ok(port) = port.parse() else {
        eprintln!("usage: leasehold-test-server [PORT]");
        return ExitCode::from(2);
    };
    let server = match Server::start_on(port) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("leasehold-test-server: port {port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", server.url());
    let _ = io::stdout().flush();
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    ExitCode::SUCCESS
}
