//! The demo of a failover: a master is killed, and another one is replaced while it is well.

use crate::deployment::{DOWN_AFTER, Deployment};
use crate::event::{Event, What, ms, now_us};
use crate::stage::{Stage, sum_up};
use crate::{FAILOVER_TTL, Outcome, SLACK, check, compare_tokens, connect};

pub(crate) async fn tour() -> Outcome<()> {
    println!("This starts a master, three replicas and three Sentinels, and takes half a minute.");
    println!(
        "The Sentinels replace a master that is silent for {DOWN_AFTER:?}. After a failover, new locks wait for \
         {FAILOVER_TTL:?}, the grace.\nTimes are in ms. A token is the number of a hold, and never decreases.\n"
    );
    let mut deployment = Deployment::start().await?;
    let url = deployment.url();
    let client = connect(&url, "parent").await?;
    let lock = client.mutex(format!("leasehold-tour:{}", std::process::id()));
    let mut stage = Stage::new(&lock, &url);
    for name in ["alice", "bob"] {
        stage.enter(name).await?;
    }
    for (index, reports) in deployment.reports().await?.into_iter().enumerate() {
        stage.listen(index + 1, reports);
    }
    // Servers that have just started may have forgotten locks, so the grace applies to them, too.
    while !client.is_ready() {
        tokio::time::sleep(SLACK).await;
    }
    let summary = [
        kill_the_master(&mut stage, &mut deployment).await?,
        replace_the_master(&mut stage, &deployment).await?,
        compare_tokens(&stage)?,
    ];
    sum_up(&summary);
    client.shutdown().await;
    Ok(())
}

async fn kill_the_master(stage: &mut Stage, deployment: &mut Deployment) -> Outcome<String> {
    stage.title("alice holds the lock, bob wants it, and the master is killed");
    hold_and_wait(stage, "alice", "bob").await?;
    // The replicas receive the lock a moment after the master has answered.
    stage.pass(SLACK).await?;
    deployment.servers[0].kill().await?;
    let killed_at = now_us();
    stage.say("the master is killed (SIGKILL)");
    let moved = stage.until(|event| event.by("alice") && event.is_move()).await?;
    stage.pass(SLACK).await?;
    stage.say("alice still holds the lock, which the new master has, too");
    pass_on(stage, "alice", "bob").await?;
    let away = ms(moved.at_us.saturating_sub(killed_at));
    Ok(format!("a lock outlived its master: its holder used the next one {away} after the kill"))
}

async fn replace_the_master(stage: &mut Stage, deployment: &Deployment) -> Outcome<String> {
    stage.title("alice holds the lock, bob wants it, and the master is replaced while it is well");
    hold_and_wait(stage, "alice", "bob").await?;
    stage.pass(SLACK).await?;
    deployment.replace_master().await?;
    stage.say("an operator replaces the master (SENTINEL FAILOVER)");
    let from = stage.events.len();
    for name in ["alice", "bob"] {
        if !stage.events[from..].iter().any(|event| event.by(name) && event.is_move()) {
            stage.until(|event| event.by(name) && event.is_move()).await?;
        }
    }
    pass_on(stage, "alice", "bob").await?;
    let act = &stage.events[from..];
    let reported = act.iter().find(|event| event.is_report("+switch-master"));
    let last_move = act.iter().rfind(|event| event.is_move());
    let (Some(reported), Some(last_move)) = (reported, last_move) else {
        return Err("nobody reported the failover".into());
    };
    let after = match last_move.at_us.checked_sub(reported.at_us) {
        Some(us) => format!("{} after", ms(us)),
        None => "before".to_owned(),
    };
    Ok(format!(
        "clients left a master that still answered: all had done so {after} the first Sentinel reported it"
    ))
}

pub(crate) async fn hold_and_wait(stage: &mut Stage, holder: &str, waiter: &str) -> Outcome<()> {
    stage.tell(holder, "hold").await?;
    stage.until(|event| event.by(holder) && event.token().is_some()).await?;
    stage.tell(waiter, "hold").await?;
    stage.until(|event| event.by(waiter) && matches!(event.what, What::Waits)).await?;
    Ok(())
}

pub(crate) async fn pass_on(stage: &mut Stage, holder: &str, waiter: &str) -> Outcome<()> {
    stage.tell(holder, "leave").await?;
    let left = stage.until(|event| event.by(holder) && matches!(event.what, What::Leaves)).await?;
    let next = stage.until(|event| event.by(waiter) && event.token().is_some()).await?;
    check(next.at_us >= left.at_us, "two processes held the lock at the same time")?;
    stage.tell(waiter, "leave").await?;
    stage.until(|event: &Event| event.by(waiter) && matches!(event.what, What::Done)).await?;
    Ok(())
}
