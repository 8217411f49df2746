//! What is sent after the runtime of a client is gone: to whom, in which time, and what is not sent.

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Guard};
use redis::Value;
use tokio::runtime::{Builder, Runtime};

use crate::support::{Cluster, Proxy, Server, Spy, eventually, slot_of};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(15);
/// What a client may wait at its end, and what a busy machine takes besides.
const PATIENCE: Duration = Duration::from_millis(250 + 100);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The test's own runtime, for its servers; the client's is another one.
fn servers() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn builder(urls: &[String]) -> ClientBuilder {
    Client::builder().nodes(urls).restart_quarantine(Duration::ZERO)
}

fn hold(runtime: &Runtime, urls: &[String], name: &str) -> (Client, Guard) {
    runtime.block_on(async {
        let client = builder(urls).connect().await.expect("connected");
        let guard = client.mutex(name).lock().await.expect("free");
        (client, guard)
    })
}

fn hold_many(runtime: &Runtime, url: String, locks: usize) -> (Client, Vec<Guard>) {
    runtime.block_on(async {
        let client = builder(&[url]).connect().await.expect("connected");
        let mut guards = Vec::new();
        for n in 0..locks {
            guards.push(client.mutex(format!("n{n}")).lock().await.expect("free"));
        }
        (client, guards)
    })
}

async fn exists(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", name]).await == Value::Int(1)
}

#[test]
fn a_guard_that_lives_keeps_its_lock_after_the_runtime() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let (client, guard) = hold(&tasks, &[server.url()], "n");
    drop(tasks);
    assert!(servers.block_on(exists(&server, "n")), "nobody gave it back");
    assert!(guard.is_held());
    drop(guard);
    assert!(!servers.block_on(exists(&server, "n")));
    assert_eq!(client.stats().releases_pending, 0);
}

#[test]
fn a_guard_that_is_dropped_in_async_code_of_another_runtime_is_given_back() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let (_client, guard) = hold(&tasks, &[server.url()], "n");
    drop(tasks);
    servers.block_on(async {
        drop(guard);
        assert!(!exists(&server, "n").await);
    });
}

#[test]
fn an_unlock_after_the_runtime_gives_back_what_it_can() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let (_client, guard) = hold(&tasks, &[server.url()], "n");
    drop(tasks);
    let answer = servers.block_on(guard.unlock());
    assert!(matches!(answer, Err(leasehold::Error::Closed { .. })), "{answer:?}");
    assert!(!servers.block_on(exists(&server, "n")));
}

/// The slow one is not waited for beyond the limit, and does not keep the others from their releases.
#[test]
fn of_three_masters_one_that_hangs_keeps_nothing_back_on_the_others() {
    let (servers, tasks) = (servers(), runtime());
    let masters: Vec<Server> = servers.block_on(async {
        [Server::start().await, Server::start().await, Server::start().await].into()
    });
    let urls: Vec<String> = masters.iter().map(Server::url).collect();
    let (_client, guard) = hold(&tasks, &urls, "n");
    let all = async || {
        for master in &masters {
            if !exists(master, "n").await {
                return false;
            }
        }
        true
    };
    tasks.block_on(eventually(LIMIT, "all have it", all));
    masters[0].pause();
    tasks.block_on(async { drop(guard) });
    let began_at = Instant::now();
    drop(tasks);
    let took = began_at.elapsed();
    assert!(took < masters[0].widened(PATIENCE), "{took:?}");
    for master in &masters[1..] {
        assert!(!servers.block_on(exists(master, "n")));
    }
    masters[0].resume();
}

/// A server that hangs, with many guards that are dropped one by one after their runtime: all of them together
/// are waited for no longer than one.
#[test]
fn a_server_that_hangs_is_waited_for_once() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let guards: Vec<(Client, Guard)> = tasks.block_on(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        let mut guards = Vec::new();
        for n in 0..20 {
            let guard = client.mutex(format!("n{n}")).lock().await.expect("free");
            guards.push((client.clone(), guard));
        }
        guards
    });
    drop(tasks);
    server.pause();
    let began_at = Instant::now();
    drop(guards);
    let took = began_at.elapsed();
    server.resume();
    assert!(took < server.widened(PATIENCE), "{took:?}");
}

/// Each guard's release is answered, a little late.
#[test]
fn a_slow_server_is_waited_for_within_the_limit_by_all_guards_together() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let proxy = servers.block_on(Proxy::start(server.port()));
    let (_client, guards) = hold_many(&tasks, proxy.url(), 150);
    drop(tasks);
    proxy.delay_replies(10 * MS);
    let began_at = Instant::now();
    drop(guards);
    let took = began_at.elapsed();
    assert!(took < server.widened_by(3, PATIENCE), "{took:?}");
}

/// It hangs behind the login: who sends the releases gives up with the first answer that is missing, and not with each of them.
#[test]
fn a_server_that_answers_no_release_is_left_once_the_time_is_over() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let proxy = servers.block_on(Proxy::start(server.port()));
    let (client, guards) = hold_many(&tasks, proxy.url(), 40);
    // What writes waits until then, and so do all scripts. The login and what is asked behind it do not.
    servers.block_on(server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]));
    tasks.block_on(async { drop(guards) });
    drop(tasks);
    let left = async || proxy.connections() == 0;
    servers.block_on(eventually(server.widened(2000 * MS), "it is left", left));
    servers.block_on(server.command(&["CLIENT", "UNPAUSE"]));
    assert_eq!(client.stats().releases_pending, 0);
}

#[test]
fn nobody_waits_for_a_server_that_is_owed_nothing() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let (client, guard) = hold(&tasks, &[server.url()], "n");
    tasks.block_on(guard.unlock()).expect("held");
    server.pause();
    let began_at = Instant::now();
    drop((tasks, client));
    let took = began_at.elapsed();
    server.resume();
    assert!(took < 200 * MS, "{took:?}");
}

/// A server that is gone refuses: that is known at once.
#[test]
fn nobody_waits_for_a_server_that_is_gone() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let (_client, guard) = hold(&tasks, &[server.url()], "n");
    server.kill();
    drop(tasks);
    let began_at = Instant::now();
    drop(guard);
    let took = began_at.elapsed();
    assert!(took < server.widened(100 * MS), "{took:?}");
}

/// What says so goes through a network that answers nothing.
#[test]
fn a_network_that_swallows_everything_is_waited_for_within_the_limit() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(Server::start());
    let proxy = servers.block_on(Proxy::start(server.port()));
    let (_client, guard) = hold(&tasks, &[proxy.url()], "n");
    proxy.black_hole(true);
    tasks.block_on(async { drop(guard) });
    let began_at = Instant::now();
    drop(tasks);
    let took = began_at.elapsed();
    assert!(took < server.widened(PATIENCE), "{took:?}");
    assert!(servers.block_on(exists(&server, "n")), "nothing came through");
}

/// As the login of the client's other connections: user, password and database.
#[test]
fn a_lock_whose_slot_is_on_its_way_is_given_back_as_well() {
    let (servers, tasks) = (servers(), runtime());
    let cluster = servers.block_on(Cluster::start());
    let (name, source) = (cluster.name_on(0, "n"), cluster.master(0));
    let (client, guard) = tasks.block_on(async {
        let builder = Client::builder().cluster(cluster.urls());
        let client = builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected");
        let guard = client.mutex(&name).lock().await.expect("free");
        (client, guard)
    });
    let slot = slot_of(&name);
    servers.block_on(cluster.open(slot, source, cluster.master(1)));
    let is_locked = || {
        let ask = ["CLUSTER", "GETKEYSINSLOT", &*slot.to_string(), "10"];
        let keys = servers.block_on(source.command(&ask));
        redis::from_redis_value::<Vec<String>>(keys).expect("keys").contains(&name)
    };
    assert!(is_locked());
    drop(tasks);
    drop(guard);
    assert!(!is_locked());
    assert_eq!(client.stats().releases_pending, 0);
}

#[test]
fn a_release_in_a_cluster_is_sent_once_unless_it_is_refused() {
    let (servers, tasks) = (servers(), runtime());
    let cluster = servers.block_on(Cluster::start());
    let name = cluster.name_on(0, "n");
    let (_client, guard) = tasks.block_on(async {
        let builder = Client::builder().cluster(cluster.urls());
        let client = builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected");
        let guard = client.mutex(&name).lock().await.expect("free");
        (client, guard)
    });
    drop(tasks);
    let spy = servers.block_on(Spy::on(cluster.master(0)));
    drop(guard);
    assert!(!servers.block_on(exists(cluster.master(0), &name)));
    assert_eq!(spy.count("lock_release"), 1);
}

#[test]
fn the_farewell_logs_in_as_the_client_does() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(async {
        let server = Server::start().await;
        let rules = ["ACL", "SETUSER", "lk", "reset", "on", ">p@ss", "~*", "&*", "+@all"];
        server.command(&rules).await;
        server.command(&["ACL", "SETUSER", "default", "-eval"]).await;
        server
    });
    let url = format!("redis://lk:p%40ss@127.0.0.1:{}/3", server.port());
    let (_client, guard) = hold(&tasks, std::slice::from_ref(&url), "n");
    let mut raw = redis::Client::open(&*url).and_then(|raw| raw.get_connection()).expect("a login");
    let mut exists = || redis::cmd("EXISTS").arg("n").query::<u32>(&mut raw).expect("an answer");
    assert_eq!(exists(), 1);
    drop((tasks, guard));
    assert_eq!(exists(), 0);
}

/// A user who may neither kill connections nor ask which server it is.
#[test]
fn a_user_with_few_rights_gives_back_as_well() {
    let (servers, tasks) = (servers(), runtime());
    let server = servers.block_on(async {
        let server = Server::start().await;
        let rules = ["on", ">pw", "~*", "&*", "+@all", "-client", "-info"];
        server.command(&[&["ACL", "SETUSER", "u"], &rules[..]].concat()).await;
        server
    });
    let (_client, guard) = hold(&tasks, &[server.url_as("u", "pw")], "n");
    drop((tasks, guard));
    assert!(!servers.block_on(exists(&server, "n")));
}

#[cfg(unix)]
#[test]
fn over_a_unix_socket_it_is_given_back_as_well() {
    let (servers, tasks) = (servers(), runtime());
    let socket = std::env::temp_dir().join(format!("leasehold-end-{}.sock", std::process::id()));
    let path = socket.to_str().expect("text");
    let server = servers.block_on(Server::with(&["--unixsocket", path]));
    let (_client, guard) = hold(&tasks, &[format!("unix://{path}")], "n");
    drop((tasks, guard));
    assert!(!servers.block_on(exists(&server, "n")));
}
