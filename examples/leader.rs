//! A leader with standbys: of several candidates one does the work, the next one takes over, and an observer learns of it.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use leasehold::{Client, Election, Leader, Leadership};

/// What only the leader may write. It refuses a term lower than the highest that it has seen.
#[derive(Default)]
struct Schedule {
    term: AtomicU64,
    runs: AtomicU64,
}

impl Schedule {
    fn write(&self, leadership: &Leadership) -> Result<(), &'static str> {
        if self.term.fetch_max(leadership.term(), SeqCst) > leadership.term() {
            return Err("a later leader has written already");
        }
        self.runs.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// A candidate that leads once, does a part of the work, and resigns.
async fn candidate(election: Election, schedule: &Schedule) -> Result<u64, Box<dyn Error>> {
    // If the leadership is lost, the body is cancelled, and begun again when this candidate leads again.
    let led = election.run_each_term(async |leadership| {
        leadership.proclaim(format!("writing in term {}", leadership.term())).await?;
        for _ in 0..RUNS {
            tokio::time::sleep(Duration::from_millis(5)).await;
            schedule.write(leadership)?;
        }
        Ok::<_, Box<dyn Error>>(leadership.term())
    });
    led.await?
}

/// Prints who leads, until all terms were seen to end.
async fn observe(election: Election, last: &'static str) -> Result<Vec<Leader>, leasehold::Error> {
    let mut observer = election.observe();
    let mut seen: Vec<Leader> = Vec::new();
    loop {
        match observer.changed().await? {
            Some(leader) => {
                println!("{} leads in term {}: {:?}", leader.holder, leader.term, leader.value);
                seen.push(leader);
            }
            None => println!("nobody leads"),
        }
        if seen.last().is_some_and(|leader| &*leader.value == last) {
            return Ok(seen);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let election = client.election("example:scheduler");
    let schedule = Schedule::default();

    let observing = tokio::spawn(observe(election.clone(), "the last one"));
    let standbys = (0..3).map(|number| {
        let election = election.with_value(format!("candidate {number}"));
        candidate(election, &schedule)
    });
    let terms = futures_util::future::try_join_all(standbys).await?;
    println!("they led in the terms {terms:?}");
    assert_eq!(schedule.runs.load(SeqCst), 3 * RUNS);

    let last = election.with_value("the last one").campaign().await?;
    assert!(terms.iter().all(|term| *term < last.term()), "terms only grow");
    let seen = observing.await??;
    assert!(seen.is_sorted_by_key(|leader| leader.term), "an earlier term was shown again");
    last.resign().await?;
    client.shutdown().await;
    Ok(())
}

const RUNS: u64 = 5;
