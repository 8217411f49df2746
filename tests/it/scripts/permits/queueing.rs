//! Who waits, and gets permits by message.

use super::{CHANNEL, Call, JAVA_DIGITS, Lease, NAME, Pool, QUEUE, lease, resize, resize_of};
use crate::scripts::bench::crowd_of_the_gone;

#[tokio::test]
async fn a_release_gives_permits_to_the_first_in_the_queue_and_tells_the_next() {
    let (mut pool, [(_, mut b), (_, mut c)]) = Pool::line(1, [("b", 1), ("c", 1)]).await;
    pool.expect_twice(&lease("a", 1).release(), ["[1, 0]", "[0, 0]"], "0+1").await;
    assert_eq!(pool.told(&mut b).await, ["grant b .. .. 1"]);
    assert_eq!(pool.told(&mut c).await, ["next c .. b"]);
    assert_eq!(pool.queued().await, "c");
}

#[tokio::test]
async fn one_release_serves_as_many_as_there_are_permits_for() {
    let waiting = [("b", 1), ("c", 2), ("d", 2), ("e", 1)];
    let (mut pool, [(_, mut b), (_, mut c), (_, mut d), (_, mut e)]) = Pool::line(4, waiting).await;
    pool.expect(&lease("a", 4).release(), "[1, 0]", "1+3").await;
    assert_eq!(pool.told(&mut b).await, ["grant b .. .. 1"]);
    assert_eq!(pool.told(&mut c).await, ["grant c .. .. 2"]);
    // The first in the queue waits for two, and so `e` waits though there is one.
    assert_eq!(pool.told(&mut d).await, ["next d .. b"]);
    assert!(pool.told(&mut e).await.is_empty());
    assert_eq!(pool.queued().await, "d e");
}

/// The half in the score of the one before is its own: a client that has been silent.
#[tokio::test]
async fn who_comes_behind_a_clock_that_was_set_back_has_a_whole_score() {
    let (mut pool, [_waits]) = Pool::line(1, [("b", 1)]).await;
    let (before, own) = (lease("b", 1).entry(), lease("c", 1));
    let add = "redis.call('ZADD', KEYS[1], '4e15', ARGV[1]) redis.call('ZINCRBY', KEYS[1], '0.5', ARGV[1])";
    pool.run(&Call::new(add, &[QUEUE], &[&before])).await;
    let _listens = pool.listen("c").await;
    pool.run(&own.ask()).await;
    let score = Call::new(
        "return tostring(redis.call('ZSCORE', KEYS[1], ARGV[1]) % 1 == 0)",
        &[QUEUE],
        &[&own.entry()],
    );
    assert_eq!(pool.run(&score).await, "true");
}

#[tokio::test]
async fn nobody_passes_one_who_waits_for_several() {
    let mut pool = Pool::of(2).await;
    pool.run(&lease("a", 1).ask()).await;
    let mut b = pool.listen("b").await;
    pool.expect(&lease("b", 2).ask(), "[0, 30s, a, 0, 0, token, [], 1]", "1+1").await;
    pool.expect(&lease("c", 1).try_once(), "[0, 30s, a, 0, -1, token, [], 1]", "1+1").await;
    let mut d = pool.listen("d").await;
    pool.expect(&lease("d", 1).ask(), "[0, 30s, a, 0, 1, token, [], 1]", "1+1").await;
    // When it goes, the next one is served: nothing else would tell it.
    pool.expect(&lease("b", 2).release(), "[0, 0]", "0+2").await;
    assert_eq!(pool.told(&mut d).await, ["grant d .. .. 1"]);
    assert!(pool.told(&mut b).await.is_empty());
}

#[tokio::test]
async fn a_request_is_queued_once_and_a_grant_is_confirmed_at_full_length() {
    let (mut pool, [(b, _mailbox)]) = Pool::line(1, [("b", 1)]).await;
    let refused = "[0, 30s, a, 0, 0, token, [], 0]";
    pool.expect_twice(&b.ask(), [refused; 2], "0+1").await;
    assert_eq!(pool.queued().await, "b");
    pool.run(&lease("a", 1).release()).await;
    let short = pool.ends(&b).await[0];
    pool.expect(&b.ask(), "[1, 1]", "0+1").await;
    let long = pool.ends(&b).await[0];
    assert!(long > short + 20_000, "2 s until it is confirmed: {short} {long}");
    assert_eq!(pool.queued().await, "");
}

/// That of another one has, and says nothing about this one.
#[tokio::test]
async fn a_client_keeps_its_places_that_let_no_permit_end() {
    let mut pool = Pool::of(2).await;
    for client in ["a", "c"] {
        pool.expect(&lease(client, 1).ask(), "[1, 1]", if client == "a" { "1+1" } else { "0+2" })
            .await;
    }
    let (mut b, _d) = (pool.listen("b").await, pool.listen("d").await);
    let second = Lease { id: lease("b", 1).id.replace("01234567-", "11234567-"), ..lease("b", 1) };
    for waits in [&lease("b", 1), &second, &lease("d", 1)] {
        pool.run(&waits.ask()).await;
    }
    pool.run(&lease("a", 1).release()).await;
    pool.end(&lease("c", 1)).await;
    pool.told(&mut b).await;
    pool.run(&lease("d", 1).ask()).await;
    assert_eq!(pool.queued().await, "d");
    let told = pool.told(&mut b).await;
    assert!(matches!(&told[..], [grant] if grant.starts_with("grant b")), "{told:?}");
}

#[tokio::test]
async fn who_is_gone_is_passed_over() {
    let (mut pool, [(_, b), (_, mut c)]) = Pool::line(1, [("b", 1), ("c", 1)]).await;
    pool.ends_with(b, "b").await;
    pool.expect(&lease("a", 1).release(), "[1, 0, 1]", "0+1").await;
    assert_eq!(pool.told(&mut c).await, ["grant c .. .. 1"]);
}

#[tokio::test]
async fn the_first_that_leaves_tells_the_next_and_another_tells_nobody() {
    let waiting = [("b", 1), ("c", 1), ("d", 1)];
    let (mut pool, [(b, _b), (_, mut c), (d, _d)]) = Pool::line(1, waiting).await;
    pool.expect_twice(&d.release(), ["[0, 0]"; 2], "0+1").await;
    assert!(pool.told(&mut c).await.is_empty());
    pool.expect_twice(&b.release(), ["[0, 0]"; 2], "0+1").await;
    assert_eq!(pool.told(&mut c).await, ["next c .. a"]);
}

#[tokio::test]
async fn ended_permits_go_to_the_first_in_the_queue_whoever_asks() {
    for asks_first in [false, true] {
        let (mut pool, [(b, mut mailbox), (_, mut c)]) = Pool::line(1, [("b", 1), ("c", 1)]).await;
        pool.end(&lease("a", 1)).await;
        if asks_first {
            pool.expect(&b.ask(), "[1, 1]", "0+1").await;
            assert!(pool.told(&mut mailbox).await.is_empty(), "the answer says it");
        } else {
            pool.expect(&lease("d", 1).try_once(), "[0, 2s, b, 0, -1, token, [], 0]", "0+1").await;
            assert_eq!(pool.told(&mut mailbox).await, ["grant b .. .. 1"]);
        }
        assert_eq!(pool.told(&mut c).await, ["next c .. b"]);
    }
}

#[tokio::test]
async fn more_permits_serve_the_queue() {
    let (mut pool, [(_, mut b), (_, mut c)]) = Pool::line(1, [("b", 2), ("c", 1)]).await;
    pool.expect(&resize("add", 1), "[1, 1]", "1+1").await;
    assert!(pool.told(&mut b).await.is_empty(), "one is not enough for it");
    pool.expect(&resize("set", 4), "[0, 4]", "0+4").await;
    assert_eq!(pool.told(&mut b).await, ["grant b .. .. 2"]);
    assert_eq!(pool.told(&mut c).await, ["grant c .. .. 1"]);
}

/// Redisson may have taken what is missing of five.
#[tokio::test]
async fn more_permits_that_serve_some_tell_the_next_whom_it_waits_for() {
    for (add, holder) in [(resize("add", 2), "b"), (resize_of("add", 2, 5), "unknown")] {
        let (mut pool, [(_, mut b), (_, mut c)]) = Pool::line(1, [("b", 2), ("c", 2)]).await;
        pool.expect(&add, "[0, 3]", "0+3").await;
        assert_eq!(pool.told(&mut b).await, ["grant b .. .. 2"]);
        assert_eq!(pool.told(&mut c).await, [format!("next c .. {holder}")]);
    }
}

#[tokio::test]
async fn a_lease_that_came_by_message_leaves_its_permits_for_those_on_the_channel() {
    let (mut pool, [(_, mut b), (_, mut c)]) = Pool::line(1, [("b", 1), ("c", 1)]).await;
    let mut java = pool.bench.subscriber_of(CHANNEL).await;
    pool.expect(&lease("a", 1).release_granted(), "[1, 1]", "1+0").await;
    assert_eq!(pool.told(&mut java).await, ["1"]);
    assert_eq!(pool.told(&mut b).await, ["free b"]);
    // A newcomer does not end that moment, and the first does.
    let mut d = pool.listen("d").await;
    pool.expect(&lease("d", 1).ask(), "[0, -1, unknown, 1, 2, token, [], 1]", "1+0").await;
    pool.expect(&lease("b", 1).ask(), "[1, 1]", "0+1").await;
    assert_eq!(pool.told(&mut c).await, ["next c .. b"]);
    assert!(pool.told(&mut d).await.is_empty());
}

#[tokio::test]
async fn a_newcomer_passes_over_a_first_that_is_gone_also_beside_those_on_the_channel() {
    let (mut pool, [(_, b), (_, mut c)]) = Pool::line(1, [("b", 1), ("c", 1)]).await;
    let _java = pool.bench.subscriber_of(CHANNEL).await;
    pool.ends_with(b, "b").await;
    pool.end(&lease("a", 1)).await;
    let refused = "[0, -1, unknown, 1, -1, token, [], 1]";
    for told in [&["free c"][..], &[]] {
        pool.expect(&lease("d", 1).try_once(), refused, "1+0").await;
        assert_eq!(pool.told(&mut c).await, told, "it is told once");
    }
    assert_eq!(pool.queued().await, "c");
    pool.ends_with(c, "c").await;
    pool.expect(&lease("d", 1).try_once(), "[1, 1]", "0+1").await;
    assert_eq!(pool.queued().await, "");
}

#[tokio::test]
async fn a_run_passes_over_so_many_at_most_and_whoever_asks_next_takes_permits() {
    for queues in [true, false] {
        let mut pool = Pool::of(2).await;
        pool.run(&lease("a", 2).ask()).await;
        let gone = lease("gone", 1).entry();
        crowd_of_the_gone(&mut pool.bench, super::QUEUE, &gone, 1800).await;
        pool.run(&lease("a", 2).release()).await;
        let asks =
            |client| if queues { lease(client, 1).ask() } else { lease(client, 1).try_once() };
        for (client, left) in [("e", 800), ("f", 300)] {
            pool.run(&asks(client)).await;
            assert_eq!(pool.bench.number(&format!("ZCARD {}", super::QUEUE)).await, left);
        }
        assert_eq!(pool.state().await, "0+2");
    }
}

/// Redisson takes what is too little for the first in the queue, and tells nobody.
#[tokio::test]
async fn a_release_that_leaves_redisson_behind_tells_the_first_to_listen() {
    for plain in [false, true] {
        let mut pool = Pool::of(2).await;
        let (a, b) = (lease("a", 1).of(2), lease("b", 2).of(2));
        pool.run(&a.ask()).await;
        let mut mailbox = pool.listen("b").await;
        pool.expect(&b.ask(), "[0, 30s, a, 0, 0, token, [], 1]", "1+1").await;
        if plain {
            pool.bench.command(&format!("DECR {NAME}")).await;
        } else {
            pool.java_holds("922337203685477").await;
        }
        pool.run(&a.release()).await;
        let holder = if plain { "unknown" } else { JAVA_DIGITS };
        assert_eq!(pool.told(&mut mailbox).await, [format!("next b -1 {holder}")]);
        let mut c = pool.listen("c").await;
        pool.run(&lease("c", 1).of(2).ask()).await;
        assert!(pool.told(&mut c).await.is_empty(), "only the first listens");
    }
    // Behind ours only, nobody needs to: each of us serves the queue.
    let (mut pool, [(_, mut b)]) = Pool::line(2, [("b", 3)]).await;
    pool.run(&lease("d", 1).release()).await;
    assert!(pool.told(&mut b).await.is_empty());
}

#[tokio::test]
async fn a_holder_of_redisson_is_named_first_so_that_the_first_in_the_queue_listens() {
    let named = format!("[0, 30s, {JAVA_DIGITS}, 0, -1, token, [], 0]");
    for (ours, state) in [(2, "0+3"), (98, "0+99")] {
        let mut pool = Pool::of(ours + 1).await;
        pool.run(&lease("a", ours).ask()).await;
        pool.java_holds("922337203685477").await;
        pool.expect(&lease("b", 1).try_once(), &named, state).await;
    }
}
