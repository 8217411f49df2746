//! The client for threads: what it has of its own, and what it must have in common with that for tasks.

mod calls;
mod contexts;
mod life;
mod losses;
mod owners;
mod rw_lock;
mod settings;
mod watching;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use leasehold::blocking::Client;
use redis::Value;

use crate::{
    invariants,
    support::{Face, Server},
};

const MS: Duration = Duration::from_millis(1);

/// Long enough for anything that happens at all, and shorter than the TTL of a lock.
const LIMIT: Duration = Duration::from_secs(10);

/// What the support does is async: a thread waits for it here.
fn wait_for<F: Future>(future: F) -> F::Output {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime").block_on(future)
}

fn server() -> Server {
    wait_for(Server::start())
}

fn connect(server: &Server) -> Client {
    Client::connect(&server.url()).expect("connected")
}

fn connect_with_ttl(server: &Server, ttl: Duration) -> Client {
    Client::builder().nodes([server.url()]).ttl(ttl).connect_blocking().expect("connected")
}

fn exists(server: &Server, name: &str) -> bool {
    wait_for(server.command(&["EXISTS", name])) == Value::Int(1)
}

/// Waits on this thread until a condition is true.
#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(2 * MS);
    }
}

/// A limit, widened by what the machine may keep two threads waiting: the client's, and the caller's behind it.
fn widened(limit: Duration, server: &Server) -> Duration {
    limit + <Client as Face>::HOPS * server.longest_stall()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_holds_of_one_name_are_never_both_held_by_threads() {
    invariants::never_two_holds_at_once::<Client>(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_strictly_increase_over_threads() {
    invariants::tokens_increase::<Client>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_after_the_last_guard_of_threads() {
    invariants::nothing_stays::<Client>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_of_a_thread_ends_when_it_should() {
    invariants::waits_end_in_time::<Client>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hold_count_of_threads_is_on_the_server() {
    invariants::counts_are_written::<Client>().await;
}
