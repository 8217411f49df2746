//! Groups of signals: each name that was signalled is told once, also to one who was away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Changes, Error, SignalGroup};
use redis::Value;

use super::{GROUP_CHANNEL, GROUP_KEY, MS, somebody_listens};
use crate::checks::{client_is_idle, setup, soon};

async fn now(group: &SignalGroup, seen: u64) -> Changes {
    soon("it is there", group.changed(seen)).await.expect("an answer")
}

#[tokio::test]
async fn who_was_away_gets_each_name_once_and_who_waits_hears_by_a_message() {
    let (server, [one, other]) = setup().await;
    let group = one.signal_group("prices");
    let seen = group.seen().await.expect("an answer");
    let wait = tokio::spawn(other.signal_group("prices").changed(seen));
    somebody_listens(&server, GROUP_CHANNEL, 1).await;
    let given_at = Instant::now();
    assert_eq!(group.notify(["apples", "pears"]).await.expect("an answer"), 1);
    let first = soon("it comes", wait).await.expect("no panic").expect("an answer");
    assert!(given_at.elapsed() < server.widened(1500 * MS), "{:?}", given_at.elapsed());
    assert_eq!((&first.names[..], first.missed), (&["apples", "pears"].map(Arc::from)[..], false));
    for name in ["plums", "apples", "plums"] {
        assert_eq!(group.notify([name]).await.expect("an answer"), 0);
    }
    let all = now(&group, seen).await;
    assert_eq!(
        (all.names, all.missed),
        (["pears", "apples", "plums"].map(Arc::from).into(), false)
    );
    let rest = now(&group, first.number).await;
    assert_eq!((&rest.names[..], rest.missed), (&["apples", "plums"].map(Arc::from)[..], false));
    assert_eq!(rest.number, all.number);
    let error = group.changed_with_timeout(rest.number, 50 * MS).await.expect_err("no more");
    assert!(matches!(error, Error::StillWaiting { .. }), "{error:?}");
    let Value::Int(ends) = server.command(&["PTTL", GROUP_KEY]).await else { panic!("no number") };
    assert!((86_000_000..=86_400_000).contains(&ends), "{ends}");
    for client in [&one, &other] {
        client_is_idle(client).await;
    }
}

#[tokio::test]
async fn who_comes_after_a_loss_is_told_that_it_may_have_missed_some() {
    let (server, [client]) = setup().await;
    let group = client.signal_group("prices");
    let seen = group.seen().await.expect("an answer");
    group.notify(["apples"]).await.expect("an answer");
    let known = now(&group, seen).await.number;
    for lose_first in [true, false] {
        server.command(&["DEL", GROUP_KEY]).await;
        if !lose_first {
            group.notify(["pears"]).await.expect("an answer");
        }
        for before in [seen, known, u64::MAX >> 11] {
            let changes = now(&group, before).await;
            assert!(changes.missed && changes.number != before, "{changes:?}");
            let next = group.changed_with_timeout(changes.number, Duration::ZERO).await;
            assert!(next.is_err(), "{next:?}");
        }
    }
    let from_now = group.seen().await.expect("an answer");
    group.notify(["plums"]).await.expect("an answer");
    assert!(!now(&group, from_now).await.missed);
}

#[tokio::test]
async fn who_was_away_for_long_gets_many_names_in_parts() {
    let (_server, [client]) = setup().await;
    let group = client.signal_group("prices");
    let mut seen = group.seen().await.expect("an answer");
    let name = |number: usize| Arc::<str>::from(format!("name {number:04}"));
    for first in [0, 700, 1400, 2100, 2800] {
        group.notify((first..first + 700).map(name)).await.expect("an answer");
    }
    let mut names = Vec::new();
    // What was signalled at once stays together.
    for count in [1400, 1400, 700] {
        let changes = now(&group, seen).await;
        assert_eq!((changes.names.len(), changes.missed), (count, false));
        seen = changes.number;
        names.extend(changes.names);
    }
    names.sort();
    assert!(names.iter().eq(&(0..3500).map(name).collect::<Vec<_>>()), "each of them once");
    let error = group.changed_with_timeout(seen, Duration::ZERO).await.expect_err("no more");
    assert!(matches!(error, Error::StillWaiting { .. }), "{error:?}");
}
