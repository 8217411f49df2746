//! A health endpoint that reports whether locks can be taken, and a check for server settings that endanger locks.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use leasehold::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Answers without I/O, so it never hangs, and may be called often.
async fn health(State(client): State<Client>) -> (StatusCode, String) {
    let status = if client.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let nodes = client.nodes();
    let lines = nodes.iter().map(|node| {
        let error = node.last_error.as_deref().unwrap_or("none");
        let round_trip = node.round_trip.map_or("unknown".into(), |it| format!("{it:?}"));
        format!("{} {:?}, round trip {round_trip}, error: {error}", node.address, node.state)
    });
    (status, lines.collect::<Vec<_>>().join("\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // A relay plays the network, so that the example can make it fail.
    let relay = TcpListener::bind("127.0.0.1:0").await?;
    let through_relay = format!("redis://{}", relay.local_addr()?);
    let server = url.trim_start_matches("redis://").to_owned();
    let relaying = tokio::spawn(forward(relay, server));

    let client = Client::connect(&through_relay).await?;
    // Check at the start, and perhaps once an hour. It asks the servers; an operator should read the findings.
    for finding in client.check().await? {
        println!("check: {finding}");
    }

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/health", get(health)).with_state(client.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let healthy = ask(address).await?;
    println!("{healthy}");
    assert!(healthy.contains("200 OK") && healthy.contains("Up"), "{healthy}");

    relaying.abort();
    let sick = loop {
        let answer = ask(address).await?;
        if !answer.contains("200 OK") {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!("{sick}");
    assert!(sick.contains("503") && sick.contains("Down"), "{sick}");
    Ok(())
}

/// Returns the answer to `GET /health`.
async fn ask(address: std::net::SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Forwards connections to `server` until the task is aborted, which closes them all.
async fn forward(listener: TcpListener, server: String) -> std::io::Result<()> {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (mut from, _) = listener.accept().await?;
        let mut to = TcpStream::connect(&server).await?;
        connections.spawn(async move { copy_bidirectional(&mut from, &mut to).await });
    }
}
