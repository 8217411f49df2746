//! What another process of ours does that a test starts.

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::worker;

#[test]
fn a_worker_answers() {
    worker::both_sides(serve);
}

fn serve(commands: &mut dyn Iterator<Item = String>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for line in commands {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["say", word] => println!("@{word}"),
            ["hold", kind, urls, name, ttl_ms] => {
                let ttl = Duration::from_millis(ttl_ms.parse().expect("a number"));
                runtime.block_on(hold(kind, urls, name, ttl));
            }
            other => panic!("not a command: {other:?}"),
        }
    }
}

/// Takes a mutex, a side of a read-write lock or a permit, and keeps it for as long as the process runs: `@held`. With commas
/// between them, `urls` are several masters.
async fn hold(kind: &str, urls: &str, name: &str, ttl: Duration) {
    let builder = Client::builder().nodes(urls.split(',')).restart_quarantine(Duration::ZERO);
    let client = builder.ttl(ttl).connect().await.expect("connected");
    match kind {
        "mutex" => std::mem::forget(client.mutex(name).lock().await.expect("held")),
        "read" => std::mem::forget(client.rw_lock(name).read().await.expect("held")),
        "write" => std::mem::forget(client.rw_lock(name).write().await.expect("held")),
        "permit" => std::mem::forget(client.semaphore(name).acquire().await.expect("held")),
        other => panic!("not a kind: {other}"),
    }
    println!("@held");
    // The runtime goes on renewing while the next command is waited for.
    std::mem::forget(client);
}
