//! Locks of other libraries beside ours, on one server and in one run: `scripts/bench-peers`.
//!
//! This program starts a server of its own and three kinds of workers: itself, for the locks in Rust, and the
//! programs in Java and Go beside it. Workers do one row of one lock at a time, as they are told on their
//! standard input. The rows go round robin over the locks, for several rounds; the table has the medians.

mod cell;
mod kinds;
mod locks;
mod mixed;
mod peer;
mod promises;
mod queueing;
mod queues;
mod run;
mod sharing;
mod table;
mod work;
mod worker;
mod workers;

use std::process::ExitCode;

use leasehold_testkit::bench::Outcome;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // On a task of the runtime, as users are: `main` itself runs on a thread of its own.
    let run = tokio::spawn(async move {
        match args.split_first() {
            Some((first, [])) if first == worker::COMMAND => worker::serve().await,
            _ => run::bench(&run::Settings::parse(&args)?).await,
        }
    });
    let abort = run.abort_handle();
    tokio::spawn(async move {
        // Aborted, it drops what it started: no server stays behind.
        stopped().await;
        abort.abort();
    });
    match run.await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("bench-peers: {error}");
            ExitCode::FAILURE
        }
        Err(ended) => {
            let why = if ended.is_cancelled() { "stopped".into() } else { ended.to_string() };
            eprintln!("bench-peers: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn stopped() {
    let listen = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = listen else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
