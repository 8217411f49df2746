use super::*;

/// Returns the problem, or an empty string.
fn problem(config: Config) -> String {
    config.check().map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn replicas_have_a_third_of_the_response_timeout() {
    let config = Config { response_timeout: 900 * MILLISECOND, ..Config::default() };
    assert_eq!(config.sync_timeout(), 300 * MILLISECOND);
}

#[test]
fn each_setting_has_its_range() {
    type Set = fn(&mut Config, Duration);
    let settings: [(&str, Set, Duration, Duration); 8] = [
        ("ttl", |c, value| c.ttl = value, SHORTEST_TTL, LONGEST_TTL),
        ("min_validity", |c, value| c.min_validity = value, Duration::ZERO, MINUTE / 4),
        ("response_timeout", |c, value| c.response_timeout = value, MILLISECOND, DAY),
        ("connect_timeout", |c, value| c.connect_timeout = value, MILLISECOND, DAY),
        ("unavailable_after", |c, value| c.unavailable_after = value, MILLISECOND, DAY * 30),
        ("token_retention", |c, value| c.token_retention = value, MINUTE, DAY * 365),
        ("handoff_window", |c, value| c.handoff_window = value, Duration::ZERO, MINUTE / 60),
        ("restart_quarantine", |c, value| c.restart_quarantine = Some(value), MINUTE / 2, DAY * 30),
    ];
    for (name, set, least, most) in settings {
        let with = |value| {
            let mut config = Config::default();
            set(&mut config, value);
            problem(config)
        };
        assert_eq!((with(least), with(most)), (String::new(), String::new()), "{name}");
        let too_much = with(most + Duration::from_nanos(1));
        assert!(too_much.contains(&format!("{name} is ")), "{name}: {too_much:?}");
        if let Some(too_little) = least.checked_sub(Duration::from_nanos(1)) {
            let too_little = with(too_little);
            assert!(too_little.contains(name), "{name}: {too_little:?}");
        }
    }
    assert_eq!(problem(Config { name: "a.b_C-1".into(), ..Config::default() }), "");
    assert_ne!(problem(Config { name: "a b".into(), ..Config::default() }), "");
    assert_eq!(problem(Config { name_prefix: "a b:".into(), ..Config::default() }), "");
    assert_ne!(problem(Config { name_prefix: "{a}".into(), ..Config::default() }), "");
    let plain = |deployment| Config { deployment, pubsub: PubSub::Plain, ..Config::default() };
    assert!(problem(plain(Deployment::Sentinel)).contains("pubsub"));
    assert_eq!(problem(plain(Deployment::Cluster)), "");
}

#[test]
fn the_defaults_are_those_that_the_builder_documents() {
    let config = Config::default();
    assert_eq!((config.ttl, config.quarantine()), (MINUTE / 2, Duration::ZERO));
    assert_eq!(config.response_timeout, Duration::from_secs(1));
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
    assert_eq!(config.unavailable_after, Duration::from_secs(10));
    assert_eq!(config.handoff_window, Duration::from_millis(20));
    assert_eq!((config.token_retention, config.redisson_fencing), (DAY, false));
    assert_eq!((config.min_validity, &*config.name_prefix), (Duration::ZERO, ""));
    for (deployment, seconds) in
        [(Deployment::Masters(3), 60), (Deployment::Sentinel, 33), (Deployment::Cluster, 40)]
    {
        let quarantine = Config { deployment, ..config.clone() }.quarantine();
        assert_eq!(quarantine, Duration::from_secs(seconds), "{deployment:?}");
    }
}

#[test]
fn a_prefix_is_put_before_every_name_but_an_empty_one() {
    let prefixed = |prefix: &str, name| {
        Config { name_prefix: prefix.into(), ..Config::default() }.prefixed(name)
    };
    assert_eq!((&*prefixed("p:", "n"), &*prefixed("", "n")), ("p:n", "n"));
    assert_eq!(&*prefixed("p:", ""), "");
}

#[test]
fn no_lease_is_longer_than_the_quarantine() {
    let checked = |nodes, quarantine: Option<u64>, ttl: u64| {
        let restart_quarantine = quarantine.map(Duration::from_secs);
        let deployment = Deployment::of_servers(nodes);
        let config = Config { deployment, restart_quarantine, ..Config::default() };
        config.check_lease("ttl", Duration::from_secs(ttl)).is_ok()
    };
    for (nodes, quarantine, longest) in [(3, None, 60), (3, Some(90), 90), (1, Some(40), 40)] {
        assert!(checked(nodes, quarantine, longest));
        assert!(!checked(nodes, quarantine, longest + 1), "{nodes} nodes, {quarantine:?}");
    }
    assert!(checked(1, None, 86_400) && checked(3, Some(0), 86_400), "there is none");
}

#[test]
fn terms_leave_something_to_hold() {
    let config = Config { min_validity: Duration::from_secs(5), ..Config::default() };
    let checked = |ttl: u64, max_hold| {
        let lease = LeaseTerms::Watched(Duration::from_secs(ttl));
        config.check_terms(&Terms { max_hold, ..Terms::of(lease) }).is_ok()
    };
    assert!(checked(10, None));
    assert!(!checked(9, None), "half of it is less than min_validity");
    assert!(checked(10, Some(Duration::from_nanos(1))));
    assert!(!checked(10, Some(Duration::ZERO)));
    let checked = |min_hold: u64| {
        let lease = LeaseTerms::Fixed(Duration::from_secs(10));
        let min_hold = Duration::from_secs(min_hold);
        config.check_terms(&Terms { min_hold, ..Terms::of(lease) }).is_ok()
    };
    assert!(checked(10));
    assert!(!checked(11), "the lease ends before");
}

#[test]
fn a_fair_lock_is_on_one_server() {
    let checked = |nodes| {
        let lease = LeaseTerms::Watched(Duration::from_secs(30));
        let deployment = Deployment::of_servers(nodes);
        let config = Config { deployment, ..Config::default() };
        config.check_terms(&Terms { fair: true, ..Terms::of(lease) })
    };
    assert!(checked(1).is_ok());
    assert!(matches!(checked(3), Err(Error::SingleServerOnly { .. })));
}

#[test]
fn what_follows_from_a_lease_is_a_part_of_it() {
    let config = Config::default();
    assert_eq!(config.response_timeout(Duration::from_millis(300)), Duration::from_millis(100));
    assert_eq!(config.response_timeout(MINUTE), Duration::from_secs(1));
    assert_eq!(drift(Duration::from_secs(10)), Duration::from_millis(102));
    assert_eq!(config.retention_ms(), 86_400_000);
    assert_eq!(Config { redisson_fencing: true, ..config }.retention_ms(), 0);
}

#[test]
fn tokens_round_clocks_to_less_than_a_quarantine() {
    let grain = |nodes, seconds| {
        let restart_quarantine = Some(Duration::from_secs_f64(seconds));
        let deployment = Deployment::of_servers(nodes);
        Config { deployment, restart_quarantine, ..Config::default() }.grain_us()
    };
    assert_eq!(grain(1, 60.0), 1);
    for (quarantine, us) in
        [(60.0, 10_000_000), (20.0, 10_000_000), (2.0, 1_000_000), (1e-6, 1), (0.0, 10_000_000)]
    {
        assert_eq!(grain(3, quarantine), us, "{quarantine} s");
    }
}

#[test]
fn durations_out_of_range_are_refused() {
    for ttl in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(9),
        LONGEST_TTL + MILLISECOND,
        Duration::MAX,
    ] {
        for lease in [LeaseTerms::Watched(ttl), LeaseTerms::Fixed(ttl)] {
            let terms = Terms::of(lease);
            let checked = Config::default().check_terms(&terms);
            let Err(error @ Error::InvalidConfig { .. }) = checked else { panic!("{terms:?}") };
            assert!(!error.to_string().contains("min_hold"), "nobody has set it: {error}");
        }
    }
}
