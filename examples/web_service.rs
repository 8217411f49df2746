//! A web service: each request is one owner, two requests that wait for each other are told so, Prometheus can read what the
//! locks do, and SIGTERM stops the process without leaving a lock behind.
//!
//! While it runs, `leasehold watch example:orders:1` shows who gets that lock, and when.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use leasehold::{Client, Deadlocks, Error as LockError, Metrics, Owner};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

fn service(client: Client, metrics: Arc<Metrics>, prometheus: PrometheusHandle) -> Router {
    let reported = client.clone();
    let page = async move || {
        metrics.report(&reported.stats(), &reported.nodes());
        prometheus.run_upkeep();
        prometheus.render()
    };
    Router::new()
        .route("/orders/{order}/pay", post(pay))
        .route("/accounts/{from}/transfer/{to}", post(transfer))
        .layer(middleware::from_fn(one_owner))
        .route("/metrics", get(page))
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

/// It takes the accounts in the order in which they are named, so a transfer back at the same time waits for this one, which
/// waits for it. `multi_lock` would take both at once.
async fn transfer(
    State(client): State<Client>,
    Path((from, to)): Path<(u64, u64)>,
) -> Result<&'static str, Failure> {
    let source = client.mutex(format!("example:accounts:{from}")).lock().await?;
    tokio::time::sleep(WORK).await; // is there enough money?
    let target = client.mutex(format!("example:accounts:{to}")).lock().await?;
    target.unlock().await?;
    source.unlock().await?;
    Ok("transferred")
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
        let (status, text) = match self.0 {
            LockError::Timeout { .. } => (StatusCode::LOCKED, "another request is at it"),
            LockError::InvalidName { .. } | LockError::InvalidArgument { .. } => {
                (StatusCode::BAD_REQUEST, "no such order")
            }
            LockError::Lost { .. }
            | LockError::Unavailable { .. }
            | LockError::Closed { .. }
            | LockError::Deadlock { .. } => (StatusCode::SERVICE_UNAVAILABLE, "try again"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "our fault"),
        };
        // Its text names hosts, processes and servers: that is for the log, and not for users.
        eprintln!("{status}: {}", self.0);
        (status, text).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let prometheus = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let metrics = Arc::new(Metrics::new());
    let builder = Client::builder().nodes([&url]).monitor(metrics.clone());
    // Handlers do one thing after the other, so a circle of them lasts, and one of them has to give way.
    let client = builder.deadlocks(Deadlocks::Fail).connect().await?;
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
    let service = service(client.clone(), metrics, prometheus);
    axum::serve(listener, service).with_graceful_shutdown(stop).await?;
    client.shutdown().await;

    users.await??;
    let left = Client::connect(&url).await?.mutex("example:orders:1").is_locked().await?;
    assert!(!left, "a lock was left behind");
    Ok(())
}

// The rest plays the users and the operator who stops the service.

async fn users(address: SocketAddr, client: Client) -> std::io::Result<()> {
    let first = tokio::spawn(send(address, "POST /orders/1/pay"));
    locked(&client, "example:orders:1").await;
    let (status, text) = send(address, "POST /orders/1/pay").await?;
    println!("a second request: {status} {text}");
    assert_eq!(status, 423, "the lock is held, so the second request is refused");
    let (status, text) = first.await??;
    println!("the first request: {status} {text}");
    assert_eq!((status, &*text), (200, "paid; the audit ran at level 2"));

    let there = tokio::spawn(send(address, "POST /accounts/1/transfer/2"));
    locked(&client, "example:accounts:1").await;
    let back = send(address, "POST /accounts/2/transfer/1").await?;
    let there = there.await??;
    println!("two transfers, there and back: {} {}; {} {}", there.0, there.1, back.0, back.1);
    let mut statuses = [there.0, back.0];
    // Whichever closes the circle.
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503], "one is told of the deadlock, and the other goes on");

    let (_, page) = send(address, "GET /metrics").await?;
    let of_orders = page.lines().filter(|line| line.contains("example:orders\""));
    let timeouts = of_orders.filter(|line| line.contains("_count") && line.contains("timeout"));
    timeouts.clone().for_each(|line| println!("{line}"));
    assert_eq!(timeouts.count(), 1, "the second request is counted");

    let running = tokio::spawn(send(address, "POST /orders/1/pay"));
    locked(&client, "example:orders:1").await;
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)?;
    // The signal may arrive a moment later.
    while !matches!(
        client.mutex("example:probe").try_lock().await,
        Err(leasehold::Error::Closed { .. })
    ) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (status, text) = send(address, "POST /orders/2/pay").await?;
    println!("after SIGTERM: {status} {text}");
    assert_eq!(status, 503);
    assert_eq!(running.await??.0, 200, "a request that had its lock was cut off");
    Ok(())
}

async fn locked(client: &Client, name: &str) {
    while !client.mutex(name).is_locked().await.is_ok_and(|locked| locked) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a request, and returns the status and the text of the answer.
async fn send(address: SocketAddr, call: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0";
    stream.write_all(format!("{call} {head}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let text = answer.split_once("\r\n\r\n").map_or("", |(_, text)| text);
    Ok((status.unwrap_or_default(), text.to_owned()))
}

const WORK: Duration = Duration::from_millis(1500);
/// What `docs/grafana.json` needs, in seconds.
const BUCKETS: [f64; 9] = [0.0001, 0.0005, 0.001, 0.005, 0.02, 0.1, 1.0, 10.0, 60.0];
