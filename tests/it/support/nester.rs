//! What a worker does that takes locks, and then waits for one that another process holds.

use std::{process, thread, time::Duration};

use leasehold::{Client, ClientBuilder, Deadlocks, Error, Holder, blocking};

use super::MASTER;

/// Takes all names but the last, in order, and says `@held`. Once another has the last, it waits for that. It says `@deadlock`
/// with `holds>waits_for` of each part, and gives its locks back; or `@got`, and does so a moment later; or `@late`; or `@stuck`, if
/// nothing comes of it.
///
/// `servers` are `nodes:url,..`, `cluster:url,..` or `sentinel:url,..`; `how` is `thread`, `task`, `warned` or `limited`. A name that
/// begins with `r/` or `w/` is that of a read-write lock.
pub(super) fn nest(runtime: &tokio::runtime::Runtime, servers: &str, how: &str, names: &[&str]) {
    thread::spawn(|| {
        thread::sleep(LONGEST);
        println!("@stuck");
        process::exit(1);
    });
    let builder = builder(servers);
    match how {
        "thread" => in_a_thread(builder, names),
        "task" => runtime.block_on(in_a_task(builder.deadlocks(Deadlocks::Fail), names, None)),
        "warned" => runtime.block_on(in_a_task(builder, names, None)),
        "limited" => {
            let limit = Some(Duration::from_secs(6));
            runtime.block_on(in_a_task(builder.deadlocks(Deadlocks::Fail), names, limit));
        }
        other => panic!("not a way: {other}"),
    }
}

fn builder(servers: &str) -> ClientBuilder {
    let (kind, urls) = servers.split_once(':').expect("kind:urls");
    let (builder, urls) = (Client::builder(), urls.split(','));
    let builder = match kind {
        "nodes" => builder.nodes(urls),
        "cluster" => builder.cluster(urls),
        "sentinel" => builder.sentinel(MASTER, urls),
        other => panic!("not a kind of servers: {other}"),
    };
    builder.restart_quarantine(Duration::ZERO)
}

fn in_a_thread(builder: ClientBuilder, names: &[&str]) {
    let client = builder.connect_blocking().expect("connected");
    let (last, first) = names.split_last().expect("names");
    let guards: Vec<_> =
        first.iter().map(|name| client.mutex(name).lock().expect("free")).collect();
    println!("@held");
    while !is_another(client.mutex(last).status().expect("an answer").holder, &client) {
        thread::sleep(Duration::from_millis(5));
    }
    tell(client.mutex(last).lock().map(drop));
    drop(guards);
    client.shutdown().expect("no runtime is here");
}

fn is_another(holder: Option<Holder>, client: &blocking::Client) -> bool {
    holder.is_some_and(|holder| holder.client() != Some(client.name()))
}

async fn in_a_task(builder: ClientBuilder, names: &[&str], limit: Option<Duration>) {
    let client = builder.connect().await.expect("connected");
    let (last, first) = names.split_last().expect("names");
    let mut guards = Vec::new();
    for name in first {
        guards.push(take(&client, name, None).await.expect("free"));
    }
    println!("@held");
    let status = async || match last.split_once('/') {
        Some((_, lock)) => client.rw_lock(lock).status().await,
        None => client.mutex(*last).status().await,
    };
    let others = async || {
        let status = status().await.expect("an answer");
        let holders = status.holder.into_iter().chain(status.readers);
        holders.filter(|holder| holder.client() != Some(client.name())).count()
    };
    while others().await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tell(take(&client, last, limit).await.map(drop));
    drop(guards);
    client.shutdown().await;
}

type Held = Box<dyn Send>;

async fn take(client: &Client, name: &str, limit: Option<Duration>) -> Result<Held, Error> {
    match (name.split_once('/'), limit) {
        (Some(("r", lock)), _) => Ok(Box::new(client.rw_lock(lock).read().await?)),
        (Some((_, lock)), _) => Ok(Box::new(client.rw_lock(lock).write().await?)),
        (None, Some(limit)) => Ok(Box::new(client.mutex(name).lock_with_timeout(limit).await?)),
        (None, None) => Ok(Box::new(client.mutex(name).lock().await?)),
    }
}

fn tell(taken: Result<(), Error>) {
    match taken {
        Ok(()) => println!("@got"),
        Err(Error::Timeout { .. }) => println!("@late"),
        Err(Error::Deadlock { cycle, .. }) => {
            let parts = cycle.iter().map(|part| format!("{}>{}", part.holds, part.waits_for));
            println!("@deadlock {}", parts.collect::<Vec<_>>().join(" "));
        }
        Err(error) => println!("@failed {error:?}"),
    }
}

const LONGEST: Duration = Duration::from_secs(60);
