//! How many permits there are.

use super::{CHANNEL, HOLDERS, NAME, Pool, lease, resize, resize_of};

#[tokio::test]
async fn permits_are_set_absolutely_and_added_relatively() {
    let mut pool = Pool::unmade().await;
    pool.expect(&resize("add", 2), "[2, 0]", "2+0").await;
    pool.expect(&resize("add", 3), "[5, 0]", "5+0").await;
    pool.run(&lease("a", 4).ask()).await;
    pool.expect_twice(&resize("set", 5), ["[1, 4]"; 2], "1+4").await;
    pool.expect(&resize("set", 7), "[3, 4]", "3+4").await;
    pool.expect(&resize("add", 1), "[4, 4]", "4+4").await;
}

/// Redisson cannot read more.
#[tokio::test]
async fn there_are_never_more_permits_than_a_java_int_holds() {
    let mut pool = Pool::of(5).await;
    pool.run(&lease("a", 2).ask()).await;
    let most = i32::MAX as u32;
    pool.expect(&resize("add", most - 4), "[]", "3+2").await;
    pool.run(&resize("add", most - 5)).await;
    let left = pool.bench.number(&format!("GET {NAME}")).await;
    assert_eq!(left, i64::from(most) - 2);
    assert_eq!(pool.run(&resize("add", 1)).await, "[]");
    pool.run(&lease("a", 2).release()).await;
    assert_eq!(pool.bench.number(&format!("GET {NAME}")).await, i64::from(most));
}

/// Who takes back what has ended would have to serve the queue.
#[tokio::test]
async fn what_is_refused_leaves_the_permits_that_have_ended_to_whoever_asks_next() {
    let (mut pool, [(_, mut b)]) = Pool::line(1, [("b", 1)]).await;
    pool.end(&lease("a", 1)).await;
    pool.expect_twice(&resize("add", i32::MAX as u32), ["[]"; 2], "0+1").await;
    assert!(pool.told(&mut b).await.is_empty());
    pool.expect(&lease("c", 1).try_once(), "[0, 2s, b, 0, -1, token, [], 0]", "0+1").await;
    assert_eq!(pool.told(&mut b).await, ["grant b .. .. 1"]);
}

#[tokio::test]
async fn fewer_permits_take_none_from_their_holders() {
    let mut pool = Pool::of(5).await;
    let (a, b) = (lease("a", 3), lease("b", 2));
    pool.run(&a.ask()).await;
    pool.run(&b.ask()).await;
    pool.expect(&resize("set", 2), "[-3, 5]", "-3+5").await;
    pool.expect(&b.renew(30_000), "1", "-3+5").await;
    pool.expect(&b.release(), "[1, 0]", "-1+3").await;
    pool.expect(&lease("c", 1).try_once(), "[0, 30s, a, 0, -1, token, [], -1]", "-1+3").await;
    pool.expect(&a.release(), "[1, 0]", "2+0").await;
    pool.expect(&lease("c", 2).try_once(), "[1, 2]", "0+2").await;
}

#[tokio::test]
async fn setting_the_permits_repairs_a_count_that_was_lost() {
    let mut pool = Pool::of(5).await;
    pool.run(&lease("a", 3).ask()).await;
    pool.bench.command(&format!("DEL {NAME}")).await;
    pool.expect(&resize("set", 5), "[2, 3]", "2+3").await;
    // Two that a plain semaphore of Redisson took, and whose holder is gone.
    pool.bench.command(&format!("DECRBY {NAME} 2")).await;
    pool.expect(&resize("set", 5), "[2, 3]", "2+3").await;
}

/// Of a semaphore whose number is gone, one permit has ended.
#[tokio::test]
async fn permits_are_added_to_all_there_were_though_some_have_ended() {
    let mut pool = Pool::unmade().await;
    let a = lease("a", 1);
    pool.bench.command(&format!("ZADD {HOLDERS} 1 {}:1", a.id)).await;
    pool.expect(&resize_of("add", 2, 5), "[7, 0]", "7+0").await;
}

/// Whoever of Redisson waits looks again only when it is told.
#[tokio::test]
async fn what_has_ended_is_announced_by_who_sets_the_same_number_again() {
    let mut pool = Pool::of(1).await;
    let mut java = pool.bench.subscriber_of(CHANNEL).await;
    let ended = lease("a", 1);
    pool.run(&ended.ask()).await;
    pool.end(&ended).await;
    pool.expect(&resize("set", 1), "[1, 0]", "1+0").await;
    assert_eq!(pool.told(&mut java).await, ["1"]);
}
