//! `dev-server`: a server in memory.

use crate::args::{DevServer, Servers};
use crate::exit::{self, Failure};

#[cfg(feature = "dev-server")]
pub async fn dev_server(dev_server: &DevServer, servers: &Servers) -> Result<u8, Failure> {
    let asked_to_end = exit::when_asked_to_end()?;
    let server = leasehold_test::Server::start_on(dev_server.port).map_err(|error| {
        Failure::new(exit::CONFIG, format!("cannot listen on port {}: {error}", dev_server.port))
    })?;
    if !servers.quiet {
        tell!("leasehold: a server in memory: for development, never for a service");
    }
    show!("{}", server.url());
    Ok(asked_to_end.await)
}

#[cfg(not(feature = "dev-server"))]
pub async fn dev_server(_: &DevServer, _: &Servers) -> Result<u8, Failure> {
    Err(Failure::new(
        exit::USAGE,
        "this program was built without it: cargo install leasehold-cli --features dev-server",
    ))
}
