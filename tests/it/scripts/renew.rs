//! `lock_renew.lua`, and `renew_together.lua` behind it and the renewals of other kinds

use super::bench::{Bench, Call, NAME, TOKEN, acquire, answer, release, renew};
use crate::support::lua;

#[tokio::test]
async fn a_renewal_lengthens_the_lease_of_its_holder_only() {
    let mut bench = Bench::start().await;
    bench.expect_twice(&renew("a", 1, 300_000), ["0"; 2], "none").await;
    let end = bench.acquired(&acquire("a").ttl_ms(5_000)).await;
    bench.expect_twice(&renew("b", 1, 300_000), ["0"; 2], "[a, 1] 5s").await;
    bench.expect_twice(&renew("a", 1, 300_000), ["1"; 2], "[a, 1] 300s").await;
    assert_eq!(bench.counter(TOKEN).await, end, "a renewal takes no token");
}

#[tokio::test]
async fn a_renewal_never_shortens() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a").ttl_ms(300_000)).await;
    bench.expect_twice(&renew("a", 1, 5_000), ["1"; 2], "[a, 1] 300s").await;
}

#[tokio::test]
async fn a_renewal_writes_the_count_down() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a").ttl_ms(30_000)).await;
    bench.expect_twice(&renew("a", 2, 30_000), ["1"; 2], "[a, 2] 30s").await;
    bench.expect_twice(&renew("a", 1, 300_000), ["1"; 2], "[a, 1] 300s").await;
}

#[tokio::test]
async fn a_renewal_of_zero_writes_only_the_count() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a").ttl_ms(30_000)).await;
    bench.expect_twice(&renew("a", 7, 0), ["1"; 2], "[a, 7] 30s").await;
    bench.expect(&renew("b", 7, 0), "0", "[a, 7] 30s").await;
}

#[tokio::test]
async fn a_renewal_of_zero_leaves_a_lock_without_an_end_as_it_is() {
    let mut bench = Bench::start().await;
    bench.command(&format!("HSET {NAME} a 1")).await;
    bench.expect_twice(&renew("a", 2, 0), ["1"; 2], "[a, 2] -1").await;
}

#[tokio::test]
async fn a_released_lock_is_not_made_again_by_a_renewal() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.expect(&release("a"), "1", "none").await;
    bench.expect_twice(&renew("a", 1, 30_000), ["0"; 2], "none").await;
}

/// A lock that lost its end by hand gets one from its holder's next renewal.
#[tokio::test]
async fn a_renewal_gives_an_end_to_a_lock_without_one() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.command(&format!("PERSIST {NAME}")).await;
    bench.expect_twice(&renew("a", 1, 30_000), ["1"; 2], "[a, 1] 30s").await;
}

#[tokio::test]
async fn a_renewal_whose_count_is_refused_still_lengthens() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    let reply = bench.run_as(&["~*", "&*", "+@all", "-hset"], &renew("a", 2, 300_000)).await;
    assert_eq!(answer(reply), "1");
    assert_eq!(bench.state().await, "[a, 1] 300s");
}

#[tokio::test]
async fn a_renewal_of_a_key_of_another_type_is_an_error() {
    let mut bench = Bench::start().await;
    bench.command(&format!("SET {NAME} x")).await;
    bench.expect(&renew("a", 1, 30_000), "WRONGTYPE", "string").await;
    assert_eq!(bench.ask(&format!("PTTL {NAME}")).await, "-1");
}

/// The renewals of several leases of one kind: the keys of each, and its arguments.
fn together(kind: &str, leases: &[(&[&str], &[&str])]) -> Call {
    let (_, script) = lua::TOGETHER.iter().find(|(name, _)| *name == kind).expect("a kind");
    let (keys, args): (Vec<_>, Vec<_>) = leases.iter().copied().unzip();
    let [per_key, per_arg] = [keys[0].len(), args[0].len()].map(|number| number.to_string());
    Call::new(script, &keys.concat(), &[&[&*per_key, &*per_arg], &args.concat()[..]].concat())
}

#[tokio::test]
async fn each_of_several_is_renewed_as_if_by_itself() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a").ttl_ms(5_000)).await;
    bench.command("SET text x").await;
    bench.command("HSET theirs other 1").await;
    let call = together(
        "lock_renew",
        &[
            (&["gone"], &["a", "1", "300000"]),
            (&["text"], &["a", "1", "300000"]),
            (&["theirs"], &["a", "1", "300000"]),
            (&[NAME], &["a", "3", "300000"]),
        ],
    );
    bench.expect_twice(&call, ["[1, 0, -1, 0, 1]"; 2], "[a, 3] 300s").await;
    assert_eq!(bench.ask("EXISTS gone").await, "0", "nothing is made");
    assert_eq!(bench.ask("HGETALL theirs").await, "[other, 1]");
    assert_eq!(bench.ask("PTTL theirs").await, "-1");
    bench.command("DEL text theirs").await;
    let short = together("lock_renew", &[(&[NAME], &["a", "3", "5000"])]);
    bench.expect(&short, "[1, 1]", "[a, 3] 300s").await;
    bench.run(&release("a")).await.expect("the script runs");
    bench.expect_twice(&short, ["[0, 0]"; 2], "none").await;
}

#[tokio::test]
async fn a_renewal_that_lacks_a_right_half_way_leaves_the_others_alone() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a").ttl_ms(5_000)).await;
    bench.command("HSET long a 1").await;
    bench.command("PEXPIRE long 300000").await;
    let call = together(
        "lock_renew",
        &[(&[NAME], &["a", "1", "300000"]), (&["long"], &["a", "1", "30000"])],
    );
    // The second needs no other end.
    let reply = bench.run_as(&["~*", "&*", "+@all", "-pexpire"], &call).await;
    assert_eq!(answer(reply), "[1, -1, 1]");
    assert_eq!(bench.state().await, "[a, 1] 5s");
    bench.command("DEL long").await;
}

#[tokio::test]
async fn the_leases_of_every_kind_are_renewed_together() {
    let mut bench = Bench::start().await;
    for line in [
        "HSET shelf mode read r 1",
        "PEXPIRE shelf 5000",
        "SET {shelf}:r:rwlock_timeout:1 1 PX 5000",
        "ZADD permits 1 p:1 1 p:2 1 q:1",
        "ZADD lent 1 d",
    ] {
        bench.command(line).await;
    }
    let read = [(&["shelf"][..], &["r", "300000"][..]), (&["shelf"], &["s", "300000"])];
    let permits =
        [(&["permits"][..], &["p", "2", "60000"][..]), (&["permits"], &["q", "2", "60000"])];
    let items = [(&["lent"][..], &["d", "60000", ""][..]), (&["lent"], &["e", "60000", ""])];
    for (kind, leases) in [("read_renew", read), ("permit_renew", permits), ("item_renew", items)] {
        let reply = answer(bench.run(&together(kind, &leases)).await);
        assert_eq!(reply, "[1, 1, 0]", "{kind}");
    }
    assert_eq!(bench.ask("PTTL {shelf}:r:rwlock_timeout:1").await, "300s");
    let [end, untouched] = ["p:2", "q:1"].map(|member| format!("ZSCORE permits {member}"));
    assert_eq!(bench.ask(&end).await, "token", "a time in milliseconds");
    assert_eq!(bench.ask(&untouched).await, "1");
    bench.command("FLUSHALL").await;
}
