//! `export`: a server that shows the locks, to Prometheus, to programs and to browsers. It changes nothing.

mod answer;
mod metrics;
mod poll;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use self::answer::Hosts;
use self::poll::Poll;
use crate::args::{Export, Servers};
use crate::exit::{self, Failure};

/// So many connections are open at once.
const CONNECTIONS: usize = 64;
/// Who sends or reads nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(10);

pub async fn export(export: &Export, servers: &Servers) -> Result<u8, Failure> {
    let listener = TcpListener::bind(export.listen).await.map_err(|error| {
        Failure::new(exit::CONFIG, format!("cannot listen on {}: {error}", export.listen))
    })?;
    let client = servers.connect(None).await?;
    let address = listener.local_addr().unwrap_or(export.listen);
    if !servers.quiet {
        tell!("leasehold: http://{address}/");
        if !address.ip().is_loopback() {
            tell!(
                "leasehold: anyone who can reach this address sees the names of all locks, holders and waiters"
            );
        }
    }
    let hosts = Hosts::new(&export.host);
    let (tell, polls) = watch::channel(Poll::none());
    let serving = serve(&listener, &hosts, &polls);
    let polling = poll::poll(&client, export, &tell);
    let asked_to_end = exit::when_asked_to_end()?;
    let code = tokio::select! {
        // Neither ends.
        () = serving => exit::SOFTWARE,
        () = polling => exit::SOFTWARE,
        code = asked_to_end => code,
    };
    client.shutdown().await;
    Ok(code)
}

async fn serve(listener: &TcpListener, hosts: &Hosts, polls: &watch::Receiver<Poll>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Too many files are open, perhaps.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (hosts, polls) = (hosts.clone(), polls.clone());
        tokio::spawn(async move {
            serve_one(stream, hosts, polls).await;
            drop(permit);
        });
    }
}

async fn serve_one(stream: TcpStream, hosts: Hosts, polls: watch::Receiver<Poll>) {
    let answering = service_fn(move |request| {
        let answer = answer::to(&request, &hosts, &polls.borrow());
        async { Ok::<_, std::convert::Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answering);
    // Whoever is gone, or says what is no request, gets no answer.
    let _ = timeout(PATIENCE, connection).await;
}

/// Reads an address to listen on: "9910" and ":9910" are ports that only this host can reach.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port)),
        Err(_) => text.parse().map_err(|_| "an address is 127.0.0.1:9910, or a port".to_owned()),
    }
}

/// Reads the name of a host by which readers call this server. An address may be in brackets; see `Hosts`.
pub fn host(text: &str) -> Result<String, String> {
    let address = text.trim_start_matches('[').trim_end_matches(']');
    let is_name = !text.is_empty() && !text.contains([':', '/']);
    match is_name || address.parse::<IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("a host name without scheme and port, such as locks.example.com".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One with a scheme or a port would never match what a reader calls.
    #[test]
    fn a_host_has_neither_scheme_nor_port() {
        for right in ["locks.example.com", "localhost", "10.0.0.7", "[::1]", "fe80::1"] {
            assert_eq!(host(right).as_deref(), Ok(right));
        }
        for wrong in [
            "",
            "locks.example.com:9910",
            "http://locks.example.com",
            "locks.example.com/",
            "10.0.0.7:9910",
            "[::1]:9910",
        ] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
