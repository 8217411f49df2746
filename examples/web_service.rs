//! A web service: each request is one owner, and SIGTERM stops the process without leaving a lock behind.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use leasehold::{Client, Error as LockError, Owner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

fn service(client: Client) -> Router {
    Router::new()
        .route("/orders/{order}/pay", post(pay))
        .layer(middleware::from_fn(one_owner))
        .with_state(client)
}

/// Makes the request the owner of all locks that its handler takes.
async fn one_owner(request: Request, next: Next) -> Response {
    let owner = Owner::named(request.uri().path());
    owner.scope(next.run(request)).await
}

async fn pay(State(client): State<Client>, Path(order): Path<u64>) -> Result<String, Failure> {
    let lock = client.mutex(format!("example:orders:{order}"));
    let guard = lock.lock_with_timeout(Duration::from_millis(200)).await?;
    let level = audit(&client, order).await?;
    tokio::time::sleep(WORK).await; // the payment
    guard.unlock().await?;
    Ok(format!("paid; the audit ran at level {level}"))
}

/// Takes the order's lock as well. When `pay` calls this, the request already holds it.
async fn audit(client: &Client, order: u64) -> Result<u32, LockError> {
    let guard = client.mutex(format!("example:orders:{order}")).lock().await?;
    Ok(guard.hold_count())
}

/// A lock's error, as an HTTP response.
struct Failure(LockError);

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0 {
            LockError::Timeout { .. } => StatusCode::LOCKED,
            LockError::InvalidName { .. } => StatusCode::BAD_REQUEST,
            LockError::Lost { .. } | LockError::Unavailable { .. } | LockError::Closed { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let users = tokio::spawn(users(listener.local_addr()?, client.clone()));

    let mut terminate = signal(SignalKind::terminate())?;
    let draining = client.clone();
    let stop = async move {
        terminate.recv().await;
        // From now on, requests that need a lock get 503. Those that have one may finish.
        if !draining.drain(Duration::from_secs(20)).await {
            eprintln!("some locks were still held after 20 s; the shutdown releases them");
        }
    };
    axum::serve(listener, service(client.clone())).with_graceful_shutdown(stop).await?;
    client.shutdown().await;

    users.await??;
    let left = Client::connect(&url).await?.mutex("example:orders:1").is_locked().await?;
    assert!(!left, "a lock was left behind");
    Ok(())
}

// The rest plays the users and the operator who stops the service.

async fn users(address: SocketAddr, client: Client) -> std::io::Result<()> {
    let first = tokio::spawn(send(address, "/orders/1/pay"));
    locked(&client).await;
    let (status, text) = send(address, "/orders/1/pay").await?;
    println!("a second request: {status} {text}");
    assert_eq!(status, 423, "the lock is held, so the second request is refused");
    let (status, text) = first.await??;
    println!("the first request: {status} {text}");
    assert_eq!((status, &*text), (200, "paid; the audit ran at level 2"));

    let running = tokio::spawn(send(address, "/orders/1/pay"));
    locked(&client).await;
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)?;
    // The signal may arrive a moment later.
    while !matches!(
        client.mutex("example:probe").try_lock().await,
        Err(leasehold::Error::Closed { .. })
    ) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (status, text) = send(address, "/orders/2/pay").await?;
    println!("after SIGTERM: {status} {text}");
    assert_eq!(status, 503);
    assert_eq!(running.await??.0, 200, "a request that had its lock was cut off");
    Ok(())
}

async fn locked(client: &Client) {
    while !client.mutex("example:orders:1").is_locked().await.is_ok_and(|locked| locked) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a request, and returns the status and the text of the answer.
async fn send(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0";
    stream.write_all(format!("POST {path} {head}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let text = answer.split_once("\r\n\r\n").map_or("", |(_, text)| text);
    Ok((status.unwrap_or_default(), text.to_owned()))
}

const WORK: Duration = Duration::from_millis(1500);
