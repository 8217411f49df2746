//! The last millisecond of a lease, in which a server says that nothing is left of it, and has it still.

use redis::{Value, aio::MultiplexedConnection};

use super::bench::{Bench, NAME, TOKEN, answer, release};
use crate::support::lua;

/// How often a lease is watched to its end.
const TIMES: usize = 20;
/// So many asks last for longer than the lease does.
const ASKS: usize = 3000;

/// Sends many commands in one go, so that they run some microseconds after one another.
async fn at_once(connection: &mut MultiplexedConnection, lines: Vec<redis::Cmd>) -> Vec<Value> {
    let mut pipeline = redis::pipe();
    for line in lines {
        pipeline.add_command(line);
    }
    pipeline.query_async(connection).await.expect("every call runs")
}

fn acquire(hash: &str) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(hash).arg(2).arg(NAME).arg(TOKEN);
    call.arg("next").arg(30_000);
    call
}

/// A refusal that says "nothing is left".
fn is_at_the_end(reply: &Value) -> bool {
    matches!(reply, Value::Array(items) if matches!(items[..2], [Value::Int(0), Value::Int(0)]))
}

#[tokio::test]
async fn a_lease_in_its_last_millisecond_is_held_still() {
    let mut bench = Bench::start().await;
    let mut raw = bench.server.raw().await;
    let hash: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(lua::LOCK_ACQUIRE)
        .query_async(&mut raw)
        .await
        .expect("a hash");
    let mut seen = 0;
    for time in 0..TIMES {
        let mut lines = vec![redis::cmd("HSET"), redis::cmd("PEXPIRE")];
        lines[0].arg(NAME).arg("last").arg(1);
        lines[1].arg(NAME).arg(3);
        lines.extend((0..ASKS).map(|_| acquire(&hash)));
        let replies = at_once(&mut raw, lines).await;
        seen += replies.iter().filter(|reply| is_at_the_end(reply)).count();
        // Nobody but the next one: never the two of them.
        assert_eq!(bench.state().await, "[next, 1] 30s", "the {time}th time");
        assert_eq!(answer(bench.run(&release("last")).await), "0", "its late release");
        assert_eq!(bench.state().await, "[next, 1] 30s");
        bench.run(&release("next")).await.expect("the script runs");
    }
    assert!(seen > 0, "nobody asked in the last millisecond");
}

/// A renewal that comes in the last millisecond comes in time.
#[tokio::test]
async fn a_lease_in_its_last_millisecond_is_renewed() {
    let mut bench = Bench::start().await;
    let mut raw = bench.server.raw().await;
    // Each looks, and renews if nothing is left: one step of the server's.
    let look = "if redis.call('PTTL', KEYS[1]) ~= 0 then return -1 end";
    let script = format!("{look}\n{}", lua::LOCK_RENEW);
    let mut renewed = 0;
    for _ in 0..TIMES {
        let mut lines = vec![redis::cmd("HSET"), redis::cmd("PEXPIRE")];
        lines[0].arg(NAME).arg("a").arg(1);
        lines[1].arg(NAME).arg(2);
        for _ in 0..ASKS {
            let mut call = redis::cmd("EVAL");
            call.arg(&script).arg(1).arg(NAME).arg("a").arg(1).arg(30_000);
            lines.push(call);
        }
        let replies = at_once(&mut raw, lines).await.split_off(2);
        assert!(!replies.contains(&Value::Int(0)), "it was there, and was not renewed");
        if replies.contains(&Value::Int(1)) {
            renewed += 1;
            assert_eq!(bench.state().await, "[a, 1] 30s");
        }
        bench.command(&format!("DEL {NAME}")).await;
    }
    assert!(renewed > 0, "nobody came in the last millisecond");
}
