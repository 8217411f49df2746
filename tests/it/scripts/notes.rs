//! `wait_note.lua`, `wait_read.lua` and `wait_forget.lua`
//!
//! The millisecond in which a note ends is left out where notes are compared: [`Notes::read`] looks whether it can be right.

use super::bench::{Bench, Call, answer};
use crate::support::lua;

const NAME: &str = "orders";
const NOTES: &str = "leasehold_wait:{orders}";
const TTL_MS: i64 = 30_000;

fn note(lease: &str, id: &str, beat: &str, says: &str) -> Call {
    note_for(lease, id, beat, &TTL_MS.to_string(), says)
}

fn note_for(lease: &str, id: &str, beat: &str, ttl_ms: &str, says: &str) -> Call {
    Call::new(lua::WAIT_NOTE, &[NAME, NOTES], &[lease, id, beat, ttl_ms, says])
}

fn read() -> Call {
    Call::new(lua::WAIT_READ, &[NAME, NOTES], &[])
}

fn forget(ids: &[&str]) -> Call {
    Call::new(lua::WAIT_FORGET, &[NOTES], ids)
}

/// A lock that is held by some leases, and the notes beside it.
struct Notes {
    bench: Bench,
}

impl Notes {
    async fn beside(holders: &[&str]) -> Self {
        let mut bench = Bench::start().await;
        for holder in holders {
            bench.command(&format!("HSET {NAME} {holder} 1")).await;
        }
        bench.server.keeps(NAME);
        Self { bench }
    }

    async fn run(&mut self, call: &Call) -> String {
        answer(self.bench.run(call).await)
    }

    async fn time_ms(&mut self) -> i64 {
        let time = self.bench.command("TIME").await;
        let (seconds, micros): (i64, i64) = redis::from_redis_value(time).expect("two numbers");
        seconds * 1000 + micros / 1000
    }

    /// The notes that there are, whether they are read or not: `id: beat lease says`.
    async fn all(&mut self) -> Vec<String> {
        let all = self.bench.command(&format!("HGETALL {NOTES}")).await;
        pairs(redis::from_redis_value(all).expect("pairs"))
    }

    /// Those that are read, each of which ends in time.
    async fn read(&mut self) -> Vec<String> {
        let reply = self.bench.run(&read()).await.expect("it runs");
        let found: Vec<String> = redis::from_redis_value(reply).expect("pairs");
        let now = self.time_ms().await;
        for text in found.iter().skip(1).step_by(2) {
            let (ends_ms, _) = text.split_once(' ').expect("words");
            let left = ends_ms.parse::<i64>().expect("a millisecond") - now;
            // It may be over by now, if the test was held up.
            assert!(left <= TTL_MS, "{text} is there for {left} ms more");
        }
        pairs(found)
    }

    /// A note as if it had been made in such a way that it ends so many milliseconds from now.
    async fn put(&mut self, id: &str, ends_in_ms: i64, rest: &str) {
        let ends_ms = self.time_ms().await + ends_in_ms;
        let mut put = redis::cmd("HSET");
        put.arg(NOTES).arg(id).arg(format!("{ends_ms} {rest}"));
        let mut connection = self.bench.server.raw().await;
        put.query_async::<()>(&mut connection).await.expect("put");
        self.bench.command(&format!("PEXPIRE {NOTES} {TTL_MS}")).await;
    }

    async fn left_ms(&mut self) -> i64 {
        self.bench.number(&format!("PTTL {NOTES}")).await
    }
}

fn pairs(found: Vec<String>) -> Vec<String> {
    let rest = |text: &str| text.split_once(' ').map_or(text.to_owned(), |(_, rest)| rest.into());
    let mut pairs: Vec<_> =
        found.chunks(2).map(|pair| format!("{}: {}", pair[0], rest(&pair[1]))).collect();
    pairs.sort_unstable();
    pairs
}

#[tokio::test]
async fn a_note_is_written_read_made_again_and_forgotten() {
    let mut notes = Notes::beside(&["a"]).await;
    assert_eq!(notes.read().await, [""; 0]);
    for (beat, says) in [
        ("1", "2 2 7 0 0 3 x#7next"),
        ("2", "says something else, {ä}"),
        ("3", "2 2 7 0 0 1 oa\0b"),
    ] {
        let before = notes.time_ms().await;
        assert_eq!(notes.run(&note("a", "p1", beat, says)).await, "1");
        let after = notes.time_ms().await;
        assert_eq!(notes.read().await, [format!("p1: {beat} a {says}")]);
        let text = notes.bench.ask(&format!("HGET {NOTES} p1")).await;
        let ends_ms: i64 = text.split(' ').next().and_then(|it| it.parse().ok()).expect("a time");
        assert!((before + TTL_MS..=after + TTL_MS).contains(&ends_ms), "{text}");
        assert!((1..=TTL_MS).contains(&notes.left_ms().await), "they end by themselves");
    }
    assert_eq!(
        notes.bench.ask(&format!("HGETALL {NAME}")).await,
        "[a, 1]",
        "the lock is as it was"
    );
    for (ids, expected) in [(&["q1"][..], "0"), (&["q1", "p1"], "1"), (&["p1"], "0")] {
        assert_eq!(notes.run(&forget(ids)).await, expected, "{ids:?}");
    }
    assert_eq!(notes.bench.ask(&format!("EXISTS {NOTES}")).await, "0");
}

/// Clients that have many notes make each of them less often, for longer.
#[tokio::test]
async fn a_short_note_does_not_shorten_the_life_of_those_beside_it() {
    let mut notes = Notes::beside(&["a"]).await;
    assert_eq!(notes.run(&note("a", "p1", "1", "lasts")).await, "1");
    assert_eq!(notes.run(&note_for("a", "p2", "1", "5000", "is short")).await, "1");
    assert!(notes.left_ms().await > TTL_MS / 2);
    assert_eq!(notes.run(&note_for("a", "p2", "2", "60000", "is long")).await, "1");
    assert!(notes.left_ms().await > TTL_MS, "now that one lasts longest");
}

/// It is sent again if its answer did not come.
#[tokio::test]
async fn a_beat_that_comes_twice_lasts_longer_and_one_that_comes_late_changes_nothing() {
    let mut notes = Notes::beside(&["a"]).await;
    notes.put("p1", 5, "9 a says").await;
    assert_eq!(notes.run(&note("a", "p1", "9", "says")).await, "1");
    let again = notes.bench.ask(&format!("HGET {NOTES} p1")).await;
    let now = notes.time_ms().await;
    let ends_ms: i64 = again.split(' ').next().and_then(|it| it.parse().ok()).expect("a time");
    assert!(ends_ms > now + TTL_MS / 2, "{again} at {now}");
    // Numbers, not words: nine is less than ten.
    assert_eq!(notes.run(&note("a", "p1", "10", "says")).await, "1");
    let before = notes.bench.ask(&format!("HGETALL {NOTES}")).await;
    for late in ["9", "1"] {
        assert_eq!(notes.run(&note_for("a", "p1", late, "60000", "late")).await, "1");
        assert_eq!(notes.bench.ask(&format!("HGETALL {NOTES}")).await, before);
        assert!(notes.left_ms().await <= TTL_MS);
    }
}

/// A note says that its lease holds the lock.
#[tokio::test]
async fn only_a_holder_makes_notes_and_those_of_others_are_not_read() {
    let mut notes = Notes::beside(&["a", "w:write", "r"]).await;
    for (lease, id, expected) in
        [("a", "p1", "1"), ("w", "p2", "1"), ("r", "p3", "1"), ("w:write", "p4", "1")]
    {
        assert_eq!(notes.run(&note(lease, id, "1", "says")).await, expected, "{lease}");
    }
    let before = notes.read().await;
    assert_eq!(before, ["p1: 1 a says", "p2: 1 w says", "p3: 1 r says", "p4: 1 w:write says"]);
    for lease in ["b", "a:write", "", "1"] {
        assert_eq!(notes.run(&note(lease, "q", "1", "says")).await, "0", "{lease:?}");
        assert_eq!(notes.read().await, before, "{lease:?}");
    }
    notes.bench.command(&format!("HDEL {NAME} a w:write")).await;
    assert_eq!(notes.read().await, ["p3: 1 r says"]);
    assert_eq!(notes.all().await, before, "reading changes nothing");
    // Whoever has lost it takes its own note away.
    assert_eq!(notes.run(&note("a", "p1", "2", "says")).await, "0");
    assert_eq!(notes.all().await, before[1..]);
    notes.bench.command(&format!("DEL {NAME}")).await;
    assert_eq!(notes.read().await, [""; 0]);
    assert_eq!(notes.run(&note("r", "p3", "2", "says")).await, "0");
    assert_eq!(
        notes.all().await,
        before[1..2].iter().chain(&before[3..]).cloned().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn what_is_over_is_not_read_and_the_next_note_removes_it() {
    let mut notes = Notes::beside(&["a", "b"]).await;
    notes.put("over", 0, "5 b says").await;
    notes.put("lasts", TTL_MS, "5 b says").await;
    notes.put("long over", -1_700_000_000_000, "5 a says").await;
    assert_eq!(notes.read().await, ["lasts: 5 b says"]);
    assert_eq!(notes.all().await.len(), 3, "reading changes nothing");
    assert_eq!(notes.run(&note("a", "p1", "1", "says")).await, "1");
    let left = ["lasts: 5 b says", "p1: 1 a says"];
    assert_eq!(notes.all().await, left);
    assert_eq!(notes.read().await, left);
    // The beat of a note that is over does not come back, either.
    notes.put("p1", -1, "7 a says").await;
    assert_eq!(notes.run(&note("a", "p1", "6", "late")).await, "1");
    assert_eq!(notes.read().await, ["lasts: 5 b says"]);
}

/// One of its leases, and another wait of the same owner: each has a note of its own.
#[tokio::test]
async fn several_notes_beside_one_lock_come_and_go_by_themselves() {
    let mut notes = Notes::beside(&["a", "b"]).await;
    for (lease, id) in [("a", "p1"), ("b", "q1"), ("a", "p2")] {
        assert_eq!(notes.run(&note(lease, id, "1", "says")).await, "1");
    }
    assert_eq!(notes.run(&note("b", "q1", "2", "more")).await, "1");
    assert_eq!(notes.read().await, ["p1: 1 a says", "p2: 1 a says", "q1: 2 b more"]);
    assert_eq!(notes.run(&forget(&["p1"])).await, "1");
    assert_eq!(notes.read().await, ["p2: 1 a says", "q1: 2 b more"]);
    assert_eq!(notes.run(&forget(&["q1", "p2"])).await, "2");
    assert_eq!(notes.read().await, [""; 0]);
}

/// A lock that many readers hold may have many notes.
#[tokio::test]
async fn of_many_notes_each_is_read() {
    let mut notes = Notes::beside(&["a"]).await;
    for n in 0..100 {
        assert_eq!(notes.run(&note("a", &format!("p{n}"), "1", "says")).await, "1");
    }
    assert_eq!(notes.read().await.len(), 100);
}

/// Of another version, or by hand.
#[tokio::test]
async fn what_is_no_note_is_left_alone() {
    let mut notes = Notes::beside(&["a"]).await;
    for (id, text) in [("x", ""), ("y", "1"), ("z", "v2 1 a says"), ("p2", "odd")] {
        let mut put = redis::cmd("HSET");
        put.arg(NOTES).arg(id).arg(text);
        let mut connection = notes.bench.server.raw().await;
        put.query_async::<()>(&mut connection).await.expect("put");
    }
    assert_eq!(notes.run(&note("a", "p1", "1", "says")).await, "1");
    assert_eq!(notes.read().await, ["p1: 1 a says"]);
    assert_eq!(notes.run(&note("a", "p2", "1", "says")).await, "1", "it makes its own one anew");
    assert_eq!(notes.read().await, ["p1: 1 a says", "p2: 1 a says"]);
    assert_eq!(notes.all().await.len(), 5);
}

#[tokio::test]
async fn other_types_of_keys_are_errors_and_stay_as_they_are() {
    let mut notes = Notes::beside(&[]).await;
    let all = [note("a", "p1", "1", "says"), read(), forget(&["p1"])];
    notes.bench.command(&format!("SET {NOTES} odd")).await;
    notes.bench.server.keeps(NOTES);
    // Nobody holds the lock: that is no reason to take away what is no note.
    for call in &all {
        assert_eq!(notes.run(call).await, "WRONGTYPE", "{call:?}");
    }
    notes.bench.command(&format!("HSET {NAME} a 1")).await;
    for call in &all {
        assert_eq!(notes.run(call).await, "WRONGTYPE", "{call:?}");
    }
    assert_eq!(notes.bench.ask(&format!("GET {NOTES}")).await, "odd");
    notes.bench.command(&format!("DEL {NOTES} {NAME}")).await;
    notes.bench.command(&format!("SET {NAME} odd")).await;
    assert_eq!(notes.run(&all[0]).await, "WRONGTYPE");
    notes.put("p1", TTL_MS, "1 a says").await;
    assert_eq!(notes.run(&all[1]).await, "WRONGTYPE");
    assert_eq!(notes.run(&all[2]).await, "1");
}

#[tokio::test]
async fn notes_that_cannot_be_given_an_end_do_not_stay() {
    let mut notes = Notes::beside(&["a"]).await;
    let call = note("a", "p1", "1", "says");
    let all = "~* +eval +hexists +hget +hset +hdel +hrandfield +time +pttl +del".split(' ');
    let all: Vec<&str> = all.collect();
    assert_eq!(answer(notes.bench.run_as(&all, &call).await), "NOPERM");
    assert_eq!(notes.bench.ask(&format!("EXISTS {NOTES}")).await, "0");
    assert!(notes.bench.run_as(&["~orders", "+@all"], &call).await.is_err(), "no right to the key");
    assert_eq!(answer(notes.bench.run_as(&[&all[..], &["+pexpire"]].concat(), &call).await), "1");
    assert_eq!(notes.read().await, ["p1: 1 a says"]);
}
