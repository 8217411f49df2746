//! What a test can do to a server, in time that is paused: so an outage of a minute takes milliseconds.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use leasehold::{Client, Error, LossReason};
use leasehold_test::{Server, in_process};
use tokio::time::Instant;

const TTL: Duration = Duration::from_secs(30);

async fn client(servers: &[Server]) -> Client {
    let builder = Client::builder().nodes(servers.iter().map(Server::url)).ttl(TTL);
    in_process(builder).connect().await.expect("a client")
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_for_ten_minutes_of_paused_time() {
    let server = [Server::start()];
    let client = client(&server).await;
    let guard = client.mutex("a").lock().await.expect("a free lock");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(guard.is_held() && guard.remaining() > TTL / 2);
    guard.unlock().await.expect("a release");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_within_a_third_of_the_ttl_and_a_waiter_goes_on() {
    let server = [Server::start()];
    let [here, there] = [client(&server).await, client(&server).await];
    let guard = here.mutex("a").lock().await.expect("a free lock");
    let waiter = tokio::spawn(async move { there.mutex("a").lock().await.map(|_| Instant::now()) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    assert!(server[0].lose("a"));
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(began.elapsed() <= TTL / 3, "{:?}", began.elapsed());
    let served = waiter.await.expect("no panic").expect("a lock");
    assert!(served.duration_since(began) < Duration::from_secs(1));
    assert!(!server[0].lose("b"));
}

#[tokio::test(start_paused = true)]
async fn locks_of_all_kinds_are_lost() {
    let server = [Server::start()];
    let client = client(&server).await;
    let writer = client.rw_lock("rw").write().await.expect("a free lock");
    let semaphore = client.semaphore("sem").with_permits(2);
    let permit = semaphore.acquire().await.expect("a permit");
    assert!(server[0].lose("rw") && server[0].lose("sem"));
    writer.lost().await;
    permit.lost().await;
    let reader = client.rw_lock("rw").read().await.expect("a free lock");
    assert!(server[0].expire("rw"));
    reader.lost().await;
    drop(semaphore.acquire_many(2).await.expect("both permits"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_lock_is_free_for_others() {
    let server = [Server::start()];
    let [here, there] = [client(&server).await, client(&server).await];
    let guard = here.mutex("a").lock().await.expect("a free lock");
    assert!(server[0].expire("a") && !server[0].expire("a"));
    let taken = there.mutex("a").try_lock().await.expect("an answer").expect("a free lock");
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(taken.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_or_is_cut_off_is_unavailable_until_it_goes_on() {
    let server = [Server::start()];
    let client = client(&server).await;
    let outages: [fn(&Server); 2] = [Server::hang, Server::cut];
    for outage in outages {
        let guard = client.mutex("held").lock().await.expect("a free lock");
        outage(&server[0]);
        let waiting = client.mutex("a").lock_with_timeout(Duration::from_secs(60)).await;
        assert!(matches!(waiting, Err(Error::Unavailable { .. })), "{waiting:?}");
        guard.lost().await;
        server[0].resume();
        let guard = client.mutex("a").lock_with_timeout(Duration::from_secs(60)).await;
        guard.expect("a server that answers").unlock().await.expect("a release");
    }
}

/// As a stopped process: what came before the end of a connection is there when it goes on.
#[test]
fn what_a_client_sent_to_a_server_that_hangs_runs_later_though_its_connection_is_closed() {
    let server = Server::start();
    let address = server.url().replace("redis://", "");
    let send = |commands: &[u8]| {
        let mut stream = TcpStream::connect(&address).expect("a server");
        stream.write_all(commands).expect("it reads");
        stream
    };
    server.hang();
    drop(send(b"SET a 1\r\nSET b 1\r\n"));
    // Its thread learns of the end meanwhile.
    std::thread::sleep(Duration::from_millis(200));
    server.resume();
    let mut answers = String::new();
    let mut stream = send(b"GET a\r\nGET b\r\n");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    while answers.matches("$1\r\n1\r\n").count() < 2 {
        let mut part = [0; 256];
        let read = stream.read(&mut part).expect("an answer");
        assert!(read > 0, "{answers}");
        answers += &String::from_utf8_lossy(&part[..read]);
        assert!(!answers.starts_with("$-1"), "{answers}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_lock() {
    let server = [Server::start()];
    let client = client(&server).await;
    let guard = client.mutex("a").lock().await.expect("a free lock");
    server[0].cut();
    tokio::time::sleep(TTL / 3).await;
    server[0].resume();
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_failover_loses_what_the_replica_does_not_have() {
    let server = [Server::start()];
    let client = client(&server).await;
    let kept = client.mutex("kept").lock().await.expect("a free lock");
    server[0].stop_replication();
    let lost = client.mutex("lost").lock().await.expect("a free lock");
    server[0].fail_over();
    assert_eq!(lost.lost().await, LossReason::Failover);
    tokio::time::sleep(TTL * 2).await;
    assert!(kept.is_held());
    server[0].restart_empty();
    assert_eq!(kept.lost().await, LossReason::Failover);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_an_error_of_its_own() {
    let server = [Server::start()];
    let client = client(&server).await;
    // The first is denied inside of a script, and the servers of that version do not say which command it was.
    for right in ["hset", "evalsha"] {
        server[0].deny(right);
        let denied = client.mutex("a").lock().await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{right}: {denied:?}");
    }
    server[0].allow_all();
    let _held = client.mutex("a").lock().await.expect("a free lock");
}

#[test]
#[should_panic(expected = "publsh")]
fn a_right_that_is_no_command_is_refused() {
    Server::start().deny("publsh");
}

#[tokio::test(start_paused = true)]
async fn three_servers_are_a_redlock() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let client = client(&servers).await;
    let guard = client.mutex("a").lock().await.expect("a free lock");
    servers[0].cut();
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held());
    servers[1].cut();
    guard.lost().await;
}

/// Over TCP, with time as it passes.
#[tokio::test]
async fn other_clients_reach_it_at_its_url() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.expect("a client");
    let mutex = client.mutex("a");
    let guard = mutex.lock().await.expect("a free lock");
    let there = Client::connect(&server.url()).await.expect("a client");
    let waiter = tokio::spawn(async move { there.mutex("a").lock().await.map(drop) });
    while mutex.status().await.expect("an answer").waiting_clients == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    guard.unlock().await.expect("a release");
    waiter.await.expect("no panic").expect("a lock");
    let in_process = in_process(Client::builder().nodes([server.url()]));
    let in_process = in_process.connect().await.expect("a client");
    let _held = in_process.mutex("a").lock().await.expect("a free lock");
    assert!(mutex.is_locked().await.expect("an answer"));
    let address = server.url().replace("redis://", "");
    drop(server);
    std::net::TcpStream::connect(address).expect_err("nobody listens there");
}
