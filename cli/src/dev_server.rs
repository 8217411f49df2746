//! `dev-server`: a server in memory.

use crate::args::{DevServer, Servers};
use crate::exit::{self, Failure};

#[cfg(feature = "dev-server")]
pub async fn dev_server(dev_server: &DevServer, servers: &Servers) -> Result<u8, Failure> {
    use std::io::Write;

    use tokio::signal::unix::{SignalKind, signal};

    let unheard = |error| Failure::new(exit::SOFTWARE, format!("no signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
    let server = leasehold_test::Server::start_on(dev_server.port).map_err(|error| {
        Failure::new(exit::CONFIG, format!("cannot listen on port {}: {error}", dev_server.port))
    })?;
    if !servers.quiet {
        tell!("leasehold: a server in memory: for development, never for a service");
    }
    show!("{}", server.url());
    let _ = std::io::stdout().flush();
    let signal = tokio::select! {
        _ = interrupt.recv() => nix::sys::signal::Signal::SIGINT,
        _ = terminate.recv() => nix::sys::signal::Signal::SIGTERM,
    };
    Ok(exit::of_signal(signal as i32))
}

#[cfg(not(feature = "dev-server"))]
pub async fn dev_server(_: &DevServer, _: &Servers) -> Result<u8, Failure> {
    Err(Failure::new(
        exit::USAGE,
        "this program was built without it: cargo install leasehold-cli --features dev-server",
    ))
}
