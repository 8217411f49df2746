use super::*;

fn named(master: &str, urls: &[&str]) -> Named {
    let urls = urls.iter().map(|url| (*url).to_owned()).collect();
    Named { sentinel: Some((master.into(), urls)), ..Named::default() }
}

fn problem(named: &Named) -> String {
    named.places().map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn sentinels_and_the_masters_name_make_one_node() {
    let named = named("m", &["redis://a", "redis://b:1"]);
    let (deployment, places) = named.places().expect("valid settings");
    assert_eq!((deployment, places.len()), (Deployment::Sentinel, 1));
    let Place::Watched(watched) = &places[0] else { panic!("{places:?}") };
    assert_eq!((&**places[0].name(), &*watched.master), ("m", "m"));
    assert_eq!(format!("{:?}", watched.sentinels), "[redis://a:26379, redis://b:1]");
}

#[test]
fn one_url_can_name_a_deployment() {
    let one = |url: &str| Named { nodes: Some(vec![url.to_owned()]), ..Named::default() };
    let named = one("redis+sentinel://u:c%2Cnary@a,b:1/m/7");
    let (deployment, places) = named.places().expect("a valid URL");
    assert_eq!(deployment, Deployment::Sentinel);
    let Place::Watched(watched) = &places[0] else { panic!("{places:?}") };
    assert_eq!(format!("{:?}", watched.sentinels), "[redis://a:26379, redis://b:1]");
    let servers = watched.servers.info.redis_settings();
    assert_eq!((&*watched.master, servers.db()), ("m", 7));
    assert_eq!(servers.password(), Some("c,nary"));
    assert_eq!(watched.sentinels[0].info.redis_settings().password(), None);
    let mut with_login = one("redis+sentinel://a/m");
    with_login.access().login = Some(("u".into(), "canary".into()));
    assert!(problem(&with_login).contains("URL"), "{}", problem(&with_login));
    let (deployment, places) = one("redis+cluster://a,b:1").places().expect("a valid URL");
    assert_eq!((deployment, places.len()), (Deployment::Cluster, 2));
    let (deployment, _) = one(" redis+sentinel://a/m\n").places().expect("a valid URL");
    assert_eq!(deployment, Deployment::Sentinel);
    for (url, why) in [
        ("redis+sentinel://a", "master's name"),
        ("redis+sentinel:///m", "names no host"),
        ("redis+sentinel://a/m/x", "number of a database"),
        ("redis+sentinel://u:canary@a,/m", "names no host"),
        ("redis+sentinel://canary@a/m", "no password"),
        ("redis+cluster://", "names no host"),
        ("rediss+sentinel://a/m#insecure", "`#insecure`"),
        ("rediss+cluster://a,b/#insecure", "`#insecure`"),
        ("redis+cluster://u:canary@a?timeout=1,b", "`timeout`"),
    ] {
        let problem = problem(&one(url));
        assert!(problem.contains(why) && !problem.contains("canary"), "{url}: {problem}");
    }
}

#[test]
fn what_cannot_work_is_refused_at_once() {
    let one = &["redis://a"][..];
    assert_eq!(problem(&named("m", one)), "");
    for (named, why) in [
        (named("", one), "master's name"),
        (named("a b", one), "master's name"),
        (named("m", &[]), "no Sentinel"),
        (named("m", &["redis://a", "redis://a:26379"]), "named twice"),
        (named("m", &["redis://a/1"]), "no databases"),
        (named("m", &["a:26379"]), "no scheme"),
        (Named { nodes: Some(vec!["redis://a".into()]), ..named("m", one) }, "not two"),
    ] {
        assert!(problem(&named).contains(why), "{why}: {:?}", problem(&named));
    }
}

#[test]
fn the_nodes_of_a_cluster_have_one_login_and_no_databases() {
    let seeds = |urls: &[&str]| {
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        Named { cluster: Some(urls), ..Named::default() }
    };
    let named = seeds(&["redis://u:canary@a", "redis://u:canary@b:1"]);
    let (deployment, places) = named.places().expect("valid settings");
    assert_eq!((deployment, places.len()), (Deployment::Cluster, 2));
    for (named, why) in [
        (seeds(&[]), "no node"),
        (seeds(&["redis://a/1"]), "no databases"),
        (seeds(&["unix:///a"]), "unix"),
        (seeds(&["redis://a", "redis://a"]), "named twice"),
        (seeds(&["redis://u:canary@a", "redis://b"]), "same login"),
        (seeds(&["redis://v:canary@a", "redis://u:canary@b"]), "same login"),
        (Named { nodes: Some(vec!["redis://a".into()]), ..seeds(&["redis://b"]) }, "not two"),
    ] {
        let problem = problem(&named);
        assert!(problem.contains(why) && !problem.contains("canary"), "{why}: {problem:?}");
    }
    let mut with_login = seeds(&["redis://a"]);
    with_login.access().login = Some(("u".into(), "canary".into()));
    assert!(problem(&with_login).contains("URL"));
}

#[test]
fn settings_that_would_have_no_effect_are_refused() {
    let plain = || Named { nodes: Some(vec!["redis://a".into()]), ..Named::default() };
    assert_eq!(problem(&plain()), "");
    let mut with_login = plain();
    with_login.access().login = Some(("u".into(), "canary".into()));
    let map = AddressMap::new(|host, port| (host.to_owned(), port));
    let with_map = Named { address_map: Some(map), ..plain() };
    for named in [with_login, with_map] {
        let problem = problem(&named);
        assert!(problem.contains("Sentinel") && !problem.contains("canary"), "{problem}");
    }
}
