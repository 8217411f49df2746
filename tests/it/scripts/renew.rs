//! `lock_renew.lua`

use super::bench::{Bench, NAME, TOKEN, acquire, answer, release, renew};

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
