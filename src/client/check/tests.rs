use super::*;
use crate::node::WatchFacts;

fn fence(min_replicas: Option<u64>) -> Fence {
    Fence { min_replicas, max_lag: Some(Duration::from_secs(1)) }
}

fn safe() -> FailoverFacts {
    FailoverFacts {
        tells_role: true,
        may_kill: true,
        fence: fence(Some(1)),
        watch: Some(WatchFacts {
            down_after: Some(Duration::from_millis(1001)),
            priorities: vec![100, 100],
        }),
        disagreement: None,
    }
}

/// Settings with which the grace is so much longer than a lease.
fn with_spare(spare: Duration) -> Config {
    let config = Config::default();
    let restart_quarantine = Some(config.ttl + spare);
    Config { deployment: Deployment::Sentinel, restart_quarantine, ..config }
}

#[test]
fn what_keeps_the_locks_of_a_cluster_waiting_is_found() {
    let good = || ClusterFacts {
        needs_full_coverage: Some(false),
        node_timeout: Some(Duration::from_secs(12)),
        ..ClusterFacts::default()
    };
    let of_cluster = |facts: &ClusterFacts, pubsub| {
        let config = Config { deployment: Deployment::Cluster, pubsub, ..Config::default() };
        super::of_cluster(facts, Some(1), &config)
    };
    assert_eq!(of_cluster(&good(), PubSub::Auto), []);
    let needs = |needs_full_coverage| ClusterFacts { needs_full_coverage, ..good() };
    assert_eq!(of_cluster(&needs(Some(true)), PubSub::Auto), [FindingKind::FullCoverage]);
    let unknown = FindingKind::unknown("cluster-require-full-coverage");
    assert_eq!(of_cluster(&needs(None), PubSub::Auto), [unknown]);
    for is_sharded in [false, true] {
        let other_channel = Some("redisson_lock__channel:{n}".to_owned());
        let found = ClusterFacts { is_sharded, other_channel, ..good() };
        let found = of_cluster(&found, PubSub::Auto);
        assert!(
            matches!(&found[..], [FindingKind::OtherChannels { channel, sharded }]
                if channel == "redisson_lock__channel:{n}" && *sharded != is_sharded),
            "{found:?}"
        );
    }
    let hidden = ClusterFacts { hides_sharded: true, ..good() };
    let unknown = FindingKind::unknown("whether there are sharded channels");
    assert_eq!(of_cluster(&hidden, PubSub::Auto), [unknown]);
    assert_eq!(of_cluster(&hidden, PubSub::Plain), []);
}

#[test]
fn a_grace_too_short_for_the_clusters_timeout_is_found() {
    let found = |seconds, timeout_ms, replicas, min_replicas| {
        let config = Config {
            deployment: Deployment::Cluster,
            restart_quarantine: Some(Duration::from_secs(seconds)),
            ..Config::default()
        };
        let facts = ClusterFacts {
            needs_full_coverage: Some(false),
            node_timeout: Some(Duration::from_millis(timeout_ms)),
            fence: fence(Some(min_replicas)),
            ..ClusterFacts::default()
        };
        let found = of_cluster(&facts, Some(replicas), &config);
        found.iter().any(|kind| matches!(kind, FindingKind::QuarantineTooShort { .. }))
    };
    for (seconds, longest) in [(33, 4000), (36, 10_000), (40, 18_000)] {
        assert!(!found(seconds, longest, 1, 0) && found(seconds, longest + 2, 1, 0));
    }
    assert!(!found(0, 100_000, 1, 0), "the user wants none");
    for (replicas, min_replicas, is_found) in [(1, 1, false), (2, 1, false), (3, 1, true)] {
        assert_eq!(found(31, 15_000, replicas, min_replicas), is_found, "{replicas}");
    }
    assert!(found(30, 2000, 1, 1), "it stops three seconds later");
    let hidden = ClusterFacts { needs_full_coverage: Some(false), ..ClusterFacts::default() };
    let config = Config { deployment: Deployment::Cluster, ..Config::default() };
    let unknown = FindingKind::unknown("cluster-node-timeout");
    assert_eq!(of_cluster(&hidden, None, &config), [unknown]);
}

#[test]
fn a_lease_that_ends_before_the_old_master_stops_is_found() {
    let found = |ttl_ms, timeout_ms, min_replicas| {
        let ttl = Duration::from_millis(ttl_ms);
        let restart_quarantine = Some(ttl + Duration::from_millis(timeout_ms));
        let deployment = Deployment::Cluster;
        let config = Config { deployment, restart_quarantine, ttl, ..Config::default() };
        let facts = ClusterFacts {
            needs_full_coverage: Some(false),
            node_timeout: Some(Duration::from_millis(timeout_ms)),
            fence: fence(Some(min_replicas)),
            ..ClusterFacts::default()
        };
        of_cluster(&facts, Some(1), &config)
    };
    let short =
        |node_timeout_ms, needed_ms| [FindingKind::TtlTooShort { node_timeout_ms, needed_ms }];
    for (ttl_ms, is_found) in
        [(14_999, false), (15_000, true), (30_000, true), (35_249, true), (35_250, false)]
    {
        let found = found(ttl_ms, 15_000, 0);
        assert_eq!(found == short(15_000, 35_250), is_found, "{ttl_ms}: {found:?}");
        assert_eq!(found.is_empty(), !is_found, "{ttl_ms}: {found:?}");
    }
    // With a fence it stops after three seconds: before it is replaced, or a little later.
    assert_eq!(found(12_000, 15_000, 1), []);
    assert_eq!(found(4500, 2000, 1), []);
    assert_eq!(found(4499, 2000, 1), short(2000, 4500));
}

#[test]
fn a_fence_of_too_few_replicas_is_found() {
    for (min_replicas, most) in [(1, 2), (2, 4), (3, 6)] {
        let of = |connected, watched| {
            let mut facts = FailoverFacts { fence: fence(Some(min_replicas)), ..safe() };
            facts.watch.as_mut().expect("it is there").priorities = vec![100; watched as usize];
            of_failover(&facts, Some(connected), &with_spare(Duration::from_secs(3)))
        };
        assert_eq!((of(most, 0), of(0, most)), (vec![], vec![]));
        let replicas = most + 1;
        let found = vec![FindingKind::FencedByFew { min_replicas, replicas }];
        assert_eq!((of(replicas, 0), of(0, replicas)), (found.clone(), found));
    }
}

#[test]
fn what_lets_two_masters_grant_is_found() {
    let usual = Duration::from_secs(3);
    let of_failover = |facts: &FailoverFacts| of_failover(facts, Some(2), &with_spare(usual));
    assert_eq!(of_failover(&safe()), []);
    let unfenced = FailoverFacts { fence: fence(Some(0)), ..safe() };
    assert_eq!(of_failover(&unfenced), [FindingKind::Unfenced]);
    let late = |down_after_ms, spare| {
        let down_after = Some(Duration::from_millis(down_after_ms));
        let watch = Some(WatchFacts { down_after, priorities: Vec::new() });
        super::of_failover(&FailoverFacts { watch, ..safe() }, None, &with_spare(spare))
    };
    let found = |down_after_ms| [FindingKind::FencedLate { max_lag: 1, down_after_ms }];
    assert_eq!((late(1000, usual), late(1001, usual)), (found(1000).into(), vec![]));
    assert_eq!(late(2999, Duration::ZERO), found(2999));
    assert_eq!(late(3000, Duration::ZERO), []);
    // A lease that ends on the old master, which stops after three seconds, and is renewed on the new one.
    let of_ttl = |ttl_ms| {
        let config = Config { ttl: Duration::from_millis(ttl_ms), ..with_spare(usual) };
        super::of_failover(&safe(), None, &config)
    };
    assert_eq!((of_ttl(1000), of_ttl(4500)), (vec![], vec![]));
    assert_eq!((of_ttl(1001), of_ttl(4499)), (found(1001).into(), found(1001).into()));
    let of_priorities = |priorities: &[u64]| {
        let watch = Some(WatchFacts { down_after: None, priorities: priorities.into() });
        of_failover(&FailoverFacts { watch, ..safe() })
    };
    let unequal = of_priorities(&[100, 50]);
    assert_eq!(unequal, [FindingKind::ReplicaPriority { priorities: vec![100, 50] }]);
    assert_eq!(of_priorities(&[100, 0]), [], "one of priority 0 is never promoted");
    let blind = FailoverFacts { tells_role: false, may_kill: false, ..safe() };
    assert_eq!(of_failover(&blind), [FindingKind::RoleUnknown, FindingKind::KillRefused]);
    let named = vec![("s".into(), "a:1".to_owned()), ("t".into(), "b:1".to_owned())];
    let disagreement = Some(named.clone());
    let disagree = of_failover(&FailoverFacts { disagreement, ..safe() });
    assert_eq!(disagree, [FindingKind::SentinelsDisagree { named }]);
    let unknown = of_failover(&FailoverFacts { fence: fence(None), watch: None, ..safe() });
    let setting = FindingKind::unknown("min-replicas-to-write");
    assert_eq!(unknown, [setting, FindingKind::unknown("the Sentinels' settings")]);
}

/// Returns what is found on a server of which this is known.
fn found_on(facts: &Facts) -> Vec<FindingKind> {
    let node: Arc<str> = "s".into();
    let found = Finding::of(&node, facts, &Config::default());
    found.into_iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_server_that_is_older_than_the_oldest_that_is_supported_is_found() {
    for (version, is_too_old) in [
        ("5.0.14", true),
        ("6.0.20", true),
        ("6.1.240", true),
        ("6.2.0", false),
        ("7.0.15", false),
        ("10.0.0", false),
    ] {
        let version = version.to_owned();
        let found = found_on(&Facts { version: Some(version.clone()), ..Facts::default() });
        assert_eq!(found.contains(&FindingKind::OldVersion { version }), is_too_old, "{found:?}");
    }
}

#[test]
fn a_clock_that_is_a_second_off_is_found() {
    for (ahead_ms, is_found) in
        [(-1000, true), (-999, false), (0, false), (999, false), (1000, true)]
    {
        let found = found_on(&Facts { clock_ahead_ms: Some(ahead_ms), ..Facts::default() });
        assert_eq!(found.contains(&FindingKind::ClockAhead { ahead_ms }), is_found, "{found:?}");
    }
}
