//! The demo: a tour in four acts. Processes take turns, one nests its lock, one is killed while it holds the lock, and
//! one is paused for too long. It prints a timeline, and fails if the library breaks a promise. `scripts/demo` runs it.
//! `scripts/demo --sentinel` and `scripts/demo --cluster` show failovers instead.
//!
//! The processes are this same program, started again with a name and a lock. Their parent sends them commands on
//! their standard input, one word per line, and reads their events from their standard output.

mod actor;
mod cluster;
mod deployment;
mod event;
mod failover;
mod stage;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Client, Mutex};

use event::{Event, What, ms, now_us};
use stage::{Stage, sum_up};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How long a lock can outlive a killed holder.
const TTL: Duration = Duration::from_millis(1500);
/// How late an event may be on a busy machine.
const SLACK: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(20);
/// The TTL in the demo of failovers, where it is also the time for which new locks wait after one.
const FAILOVER_TTL: Duration = Duration::from_secs(6);
const FAILOVER_LIMIT: Duration = Duration::from_secs(120);
const TURNS: usize = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &*arguments {
        [] => within(LIMIT, tour(&url)).await,
        [which] if which == "sentinel" => within(FAILOVER_LIMIT, failover::tour()).await,
        [which] if which == "cluster" => within(FAILOVER_LIMIT, cluster::tour()).await,
        [name, lock] => actor::actor(&url, name, lock).await,
        _ => Err("usage: demo [sentinel|cluster] (REDIS_URL names the server)".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn within(limit: Duration, tour: impl Future<Output = Outcome<()>>) -> Outcome<()> {
    match tokio::time::timeout(limit, tour).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("the demo has not ended after {limit:?}").into()),
    }
}

async fn tour(url: &str) -> Outcome<()> {
    let client = connect(url, "parent").await?;
    let lock = client.mutex(format!("leasehold-tour:{}", std::process::id()));
    println!("The lock is {:?} on {url_shown}.", lock.name(), url_shown = shown(url));
    println!("Times are in ms. A token is the number of a hold, and never decreases.\n");

    let mut stage = Stage::new(&lock, url);
    for name in ["alice", "bob", "carol", "dave"] {
        stage.enter(name).await?;
    }
    let summary = [
        take_turns(&mut stage).await?,
        nest(&mut stage, &lock).await?,
        kill_the_holder(&mut stage, &lock).await?,
        pause_the_holder(&mut stage, &lock).await?,
        compare_tokens(&stage)?,
    ];
    sum_up(&summary);
    client.shutdown().await;
    Ok(())
}

async fn take_turns(stage: &mut Stage) -> Outcome<String> {
    stage.title(&format!("four processes want the lock {TURNS} times each, for 40 ms"));
    let names = ["alice", "bob", "carol", "dave"];
    for name in names {
        stage.tell(name, "turns").await?;
    }
    let from = stage.events.len();
    for _ in names {
        stage.until(|event| matches!(event.what, What::Done)).await?;
    }
    let act = &stage.events[from..];
    let mut free_at: Option<u64> = None;
    let mut handovers = Vec::new();
    for event in act {
        match event.what {
            What::Holds { waited_us, .. } => {
                let free_at = free_at.replace(u64::MAX).unwrap_or(0);
                check(event.at_us >= free_at, "two processes held the lock at the same time")?;
                // A process that did not wait did not need to be woken.
                if free_at != 0 && waited_us > 1_000 {
                    handovers.push(event.at_us - free_at);
                }
            }
            What::Leaves => free_at = Some(event.at_us),
            _ => {}
        }
    }
    handovers.sort();
    let (Some(longest), count) = (handovers.last(), handovers.len()) else {
        return Err("nobody had to wait for the lock".into());
    };
    check(Duration::from_micros(*longest) < SLACK, "a release did not wake the next process")?;
    Ok(format!(
        "there were never two holders at once; {count} hand-overs took {} (median), {} at most",
        ms(handovers[count / 2]),
        ms(*longest)
    ))
}

async fn nest(stage: &mut Stage, lock: &Mutex) -> Outcome<String> {
    stage
        .title("alice takes the lock three times; bob waits until she has released it three times");
    stage.tell("alice", "nest").await?;
    let outer = stage.until(|event| event.token().is_some()).await?;
    let inner = stage.until(|event| matches!(event.what, What::Nests { level: 3, .. })).await?;
    // The client writes the count to the server in the background.
    let counted = async {
        while lock.status().await?.hold_count != 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, leasehold::Error>(())
    };
    tokio::time::timeout(SLACK, counted)
        .await
        .map_err(|_| "the server does not count three holds")??;
    stage.say("the server counts 3 holds");
    stage.tell("bob", "hold").await?;
    stage.until(|event| event.by("bob") && matches!(event.what, What::Waits)).await?;
    stage.tell("alice", "leave").await?;
    // Two processes tell of it, and either may be heard first.
    let leaves = |event: &Event| event.by("alice") && matches!(event.what, What::Leaves);
    let follows = |event: &Event| event.by("bob") && event.token().is_some();
    let one = stage.until(|event| leaves(event) || follows(event)).await?;
    let is_left = leaves(&one);
    let other = stage.until(|event| if is_left { follows(event) } else { leaves(event) }).await?;
    let (left, next) = if is_left { (one, other) } else { (other, one) };
    check(next.at_us >= left.at_us, "bob had the lock before alice had released it")?;
    stage.tell("bob", "leave").await?;
    stage.until(|event| event.by("bob") && matches!(event.what, What::Done)).await?;
    let same = matches!(inner.what, What::Nests { token, .. } if Some(token) == outer.token());
    check(same, "a nested hold had another token")?;
    Ok("a nested lock is the same hold, with the same token; it is free when the last level ends"
        .to_owned())
}

async fn kill_the_holder(stage: &mut Stage, lock: &Mutex) -> Outcome<String> {
    stage.title(&format!("carol holds the lock, renewed every third of {TTL:?}, and is killed"));
    stage.tell("carol", "hold").await?;
    stage.until(|event| event.by("carol") && event.token().is_some()).await?;
    stage.tell("dave", "hold").await?;
    stage.until(|event| event.by("dave") && matches!(event.what, What::Waits)).await?;
    tokio::time::sleep(TTL + TTL / 3).await;
    let status = lock.status().await?;
    let victim = status.holder.as_ref().and_then(|holder| holder.client()).map(str::to_owned);
    check(victim.as_deref() == Some("carol"), "carol's lock was not renewed")?;
    stage.say("carol has held the lock for longer than its TTL: it was renewed");

    stage.kill("carol").await?;
    stage.say("carol is killed (SIGKILL)");
    let late = take_over(stage, lock, "dave").await?;
    Ok(format!(
        "the lock of a killed process was taken over {late} after the end of its TTL, not before"
    ))
}

async fn pause_the_holder(stage: &mut Stage, lock: &Mutex) -> Outcome<String> {
    stage.title("dave holds the lock, and is paused for longer than the TTL");
    stage.tell("alice", "hold").await?;
    stage.until(|event| event.by("alice") && matches!(event.what, What::Waits)).await?;
    stage.signal("dave", "STOP")?;
    stage.say("dave is paused (SIGSTOP)");
    take_over(stage, lock, "alice").await?;
    stage.say("dave continues (SIGCONT), and still has his guard");
    let goes_on_at = now_us();
    stage.signal("dave", "CONT")?;
    let told = stage.until(|event| event.by("dave") && matches!(event.what, What::Lost)).await?;
    let status = lock.status().await?;
    let holder = status.holder.as_ref().and_then(|holder| holder.client());
    check(holder == Some("alice"), "alice lost the lock to a process that had already lost it")?;
    stage.tell("alice", "leave").await?;
    stage.until(|event| event.by("alice") && matches!(event.what, What::Done)).await?;
    check(!lock.is_locked().await?, "the lock was left behind")?;
    let told_after = ms(told.at_us.saturating_sub(goes_on_at));
    Ok(format!(
        "a process that was paused for too long learned of its loss {told_after} after it continued"
    ))
}

/// Waits until `heir` holds a lock that nobody renews, and returns how much later than possible that was.
async fn take_over(stage: &mut Stage, lock: &Mutex, heir: &str) -> Outcome<String> {
    let asked_at = now_us();
    let left = lock.status().await?.remaining.ok_or("the lock ended with its holder")?;
    let answered_at = now_us();
    let left_us = left.as_micros() as u64;
    stage.say(&format!("the server keeps the lock for another {}", ms(left_us)));
    let heir = stage.until(|event| event.by(heir) && event.token().is_some()).await?;
    // The server's answer is rounded to milliseconds.
    check(
        heir.at_us + 2_000 >= asked_at + left_us,
        "the lock was taken over before the end of its TTL",
    )?;
    let late_us = heir.at_us.saturating_sub(answered_at + left_us);
    check(Duration::from_micros(late_us) < SLACK, "the lock was taken over too late")?;
    Ok(ms(late_us))
}

fn compare_tokens(stage: &Stage) -> Outcome<String> {
    let tokens: Vec<u64> = stage.events.iter().filter_map(Event::token).collect();
    check(tokens.is_sorted_by(|earlier, later| earlier < later), "the tokens did not increase")?;
    Ok(format!("{} holds, each with a higher token than the one before", tokens.len()))
}

fn check(holds: bool, otherwise: &str) -> Outcome<()> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// Returns the URL without the password that it may contain.
fn shown(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

async fn connect(url: &str, name: &str) -> Result<Client, leasehold::Error> {
    let keep_tokens = Duration::from_secs(60);
    let builder = Client::builder().nodes([url]).name(name).token_retention(keep_tokens);
    let builder = match url.contains("+sentinel") || url.contains("+cluster") {
        true => builder.ttl(FAILOVER_TTL).restart_quarantine(FAILOVER_TTL),
        false => builder.ttl(TTL),
    };
    builder.connect().await
}
