//! The process ends.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use leasehold::Client;
use redis::Value;

use super::{MS, gone_in_the_end, runtime};
use crate::{checks::no_connection_left, support::Server};

const CHILD: &str = "LEASEHOLD_TEST_CHILD";

/// What a child process does: takes a lock, and exits while the guard is there, or right after its drop.
///
/// Without the variable this is a test like others: of a process that nobody told to be a child.
#[test]
fn a_process_that_exits_with_a_lock() {
    let Ok(url) = std::env::var(CHILD) else {
        assert!(std::env::var_os("LEASEHOLD_TEST_CHILD_DROPS").is_none());
        return;
    };
    runtime().block_on(async {
        let client = Client::connect(&url).await.expect("connected");
        let guard = client.mutex("n").with_ttl(600 * MS).lock().await.expect("free");
        if std::env::var_os("LEASEHOLD_TEST_CHILD_DROPS").is_some() {
            drop(guard);
        }
        std::process::exit(7)
    })
}

fn child(server: &Server) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("this very program"));
    child
        .args(["--exact", "lifetimes::exits::a_process_that_exits_with_a_lock"])
        .env(CHILD, server.url())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    child
}

#[tokio::test]
async fn the_lock_of_a_process_that_exits_is_gone_by_its_ttl() {
    let server = Server::start().await;
    for drops in [false, true] {
        let mut child = child(&server);
        if drops {
            child.env("LEASEHOLD_TEST_CHILD_DROPS", "1");
        }
        let status = tokio::task::spawn_blocking(move || child.status()).await.expect("no panic");
        let exited_at = Instant::now();
        assert_eq!(status.expect("it runs").code(), Some(7), "it ends without a panic or a hang");
        let Value::Int(token) = server.command(&["EXISTS", "leasehold_token:{n}"]).await else {
            panic!("a number")
        };
        assert_eq!(token, 1, "it held the lock");
        if !drops {
            let pttl = server.command(&["PTTL", "n"]).await;
            assert!(matches!(pttl, Value::Int(-2..=600)) && pttl != Value::Int(-1), "{pttl:?}");
        }
        gone_in_the_end(&server, "n").await;
        let took = exited_at.elapsed();
        assert!(took < server.widened(650 * MS), "{took:?}");
        no_connection_left(&server).await;
    }
}
