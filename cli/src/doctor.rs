//! `doctor`: are the servers fit for locks?

use std::time::Duration;

use leasehold::{Client, Error, Finding, NodeStatus};
use rustix::system::uname;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::args::{Doctor, Servers};
use crate::exit::{self, Failure};
use crate::text::{self, SCHEMA};

/// A waiter that is not told of a release asks again after a while. What takes so long was no message.
const SLOW: Duration = Duration::from_secs(1);
/// How long the servers keep the token counter of the doctor's lock: the shortest time that the library takes.
const RETENTION: Duration = Duration::from_secs(60);
/// Something is to be mended.
const FINDINGS: u8 = 1;
/// Locks do not work.
const BROKEN: u8 = 2;

pub async fn doctor(doctor: &Doctor, servers: &Servers) -> Result<u8, Failure> {
    // Where no servers are named, nothing can be reported.
    servers.urls()?;
    let report = match connect(servers).await {
        Ok(client) => {
            let asked_to_end = exit::when_asked_to_end()?;
            let examined = tokio::select! {
                report = examine(&client, servers, doctor.pairs) => Ok(report),
                code = asked_to_end => Err(code),
            };
            // It releases the lock, for which the next doctor of this host would wait.
            client.shutdown().await;
            match examined {
                Ok(report) => report,
                Err(code) => return Ok(code),
            }
        }
        Err(failure) => {
            Report { broken: vec![Problem::broken("no_connection", failure)], ..Report::default() }
        }
    };
    match servers.json {
        true => show!("{}", report.json()),
        false => report.print(servers.quiet),
    }
    Ok(report.code())
}

async fn connect(servers: &Servers) -> Result<Client, Failure> {
    Ok(servers.builder(None)?.token_retention(RETENTION).connect().await?)
}

/// The name of the doctor's lock. All doctors of a host have the same one: each name has a token counter on the servers, which
/// remains for a while, and as Redisson's for ever.
fn lock_name() -> String {
    format!("leasehold:doctor:{}", uname().nodename().to_string_lossy())
}

#[derive(Default)]
struct Report {
    nodes: Vec<NodeStatus>,
    broken: Vec<Problem>,
    findings: Vec<Problem>,
    /// The median and the 99th percentile of a lock and its release.
    pair: Option<[Duration; 2]>,
    hand_over: Option<Duration>,
}

/// Something that is not in order.
struct Problem {
    /// What it is, for programs: an object.
    fields: Value,
    text: String,
}

async fn examine(client: &Client, servers: &Servers, pairs: u32) -> Report {
    let mut report = Report::default();
    let name = lock_name();
    // Some rights can be tried only on a lock that is held. If it cannot be had, that is found below.
    let held = client.mutex(&name).lock_with_timeout(Duration::from_secs(10)).await;
    match client.check().await {
        Ok(findings) => report.findings.extend(findings.iter().map(Problem::found)),
        Err(error) => report.broken.push(Problem::broken("no_check", error.into())),
    }
    report.nodes = client.nodes();
    if let Ok(held) = held {
        let _ = held.unlock().await;
    }
    match measure(client, &name, pairs).await {
        Ok(pair) => report.pair = Some(pair),
        Err(error) => {
            let mut problem = Problem::broken("no_lock", error.into());
            problem.text.insert_str(0, "a lock could not be taken and released: ");
            report.broken.push(problem);
        }
    }
    match hand_over(client, servers, &name).await {
        Ok(time) => {
            report.hand_over = Some(time);
            if time >= SLOW {
                report.findings.push(Problem {
                    fields: json!({"node": null, "kind": "messages_lost"}),
                    text: format!(
                        "a waiter was not told of a release, and asked again after {:.1} s: messages are lost (PUBLISH, SUBSCRIBE)",
                        time.as_secs_f64()
                    ),
                });
            }
        }
        Err(failure) => {
            let mut problem = Problem::broken("no_hand_over", failure);
            problem.text.insert_str(0, "a waiter did not get the lock: ");
            report.broken.push(problem);
        }
    }
    report
}

async fn measure(client: &Client, name: &str, pairs: u32) -> Result<[Duration; 2], Error> {
    let lock = client.mutex(name);
    let mut times = Vec::new();
    for _ in 0..pairs {
        let begun = Instant::now();
        lock.lock_with_timeout(Duration::from_secs(10)).await?.unlock().await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok([times[times.len() / 2], times[times.len() * 99 / 100]])
}

/// Returns how long after a release another client that waits has the lock.
async fn hand_over(client: &Client, servers: &Servers, name: &str) -> Result<Duration, Failure> {
    let other = connect(servers).await?;
    let guard = client.mutex(name).lock_with_timeout(Duration::from_secs(10)).await?;
    let waiter = tokio::spawn(other.mutex(name).lock_with_timeout(Duration::from_secs(90)));
    // Until it waits.
    sleep(Duration::from_millis(200)).await;
    let released = Instant::now();
    guard.unlock().await?;
    let taken = waiter.await.map_err(|error| Failure::new(exit::SOFTWARE, error.to_string()))??;
    let time = released.elapsed();
    taken.unlock().await?;
    other.shutdown().await;
    Ok(time)
}

impl Report {
    fn code(&self) -> u8 {
        match (self.broken.is_empty(), self.findings.is_empty()) {
            (false, _) => BROKEN,
            (true, false) => FINDINGS,
            (true, true) => 0,
        }
    }

    fn print(&self, quiet: bool) {
        if !quiet {
            for node in &self.nodes {
                show!("node     {}", shown(node));
            }
            if let Some([median, worst]) = self.pair {
                show!(
                    "pair     {median:.0?} (p50), {worst:.0?} (p99): take and release a free lock"
                );
            }
            if let Some(time) = self.hand_over {
                show!(
                    "message  {time:.0?} from a release until another client that waited had the lock"
                );
            }
        }
        for finding in &self.findings {
            show!("finding  {}", finding.text);
        }
        for broken in &self.broken {
            show!("broken   {}", broken.text);
        }
        if self.code() == 0 && !quiet {
            show!("all in order");
        }
    }

    fn json(&self) -> Value {
        let seconds = |time: Duration| time.as_secs_f64();
        let all = |problems: &[Problem]| problems.iter().map(Problem::json).collect::<Vec<_>>();
        json!({
            "schema": SCHEMA,
            "nodes": self.nodes,
            "broken": all(&self.broken),
            "findings": all(&self.findings),
            "pair_p50": self.pair.map(|[median, _]| seconds(median)),
            "pair_p99": self.pair.map(|[_, worst]| seconds(worst)),
            "hand_over": self.hand_over.map(seconds),
        })
    }
}

impl Problem {
    fn found(finding: &Finding) -> Self {
        Self { fields: json!(finding), text: finding.to_string() }
    }

    /// The code is the one with which another command would end.
    fn broken(kind: &str, failure: Failure) -> Self {
        Self { fields: json!({"kind": kind, "code": failure.code}), text: failure.message }
    }

    fn json(&self) -> Value {
        let mut shown = self.fields.clone();
        shown["text"] = self.text.as_str().into();
        shown
    }
}

fn shown(node: &NodeStatus) -> String {
    let state = text::word(&node.state).replace('_', " ");
    let quarantine = node.quarantined_until.map(|until| {
        format!(": its grants count from {} on", humantime::format_rfc3339_seconds(until))
    });
    format!("{} {state}{}", node.address, quarantine.unwrap_or_default())
}
