use super::*;

#[test]
fn a_url_is_shown_without_its_password() {
    let address = Address::parse("redis://user:canary@localhost:7000/2").expect("a valid URL");
    assert_eq!(format!("{address:?}"), "redis://localhost:7000");
    let error = Address::parse("redis://user:canary@:bad port/").expect_err("not a URL");
    assert!(!format!("{error} {error:?}").contains("canary"));
}

/// The client would be the default user, who may do more.
#[test]
fn a_user_without_a_password_is_refused_and_not_shown() {
    for url in
        ["redis://canary@a", "redis://canary:@a", "unix:///a?user=canary", "redis://canary@a/1"]
    {
        let error = Address::parse(url).expect_err("no login").to_string();
        assert!(error.contains("no password") && !error.contains("canary"), "{url}: {error}");
    }
    for url in [
        "redis://default@a",
        "redis://:@a",
        "redis://:p@a",
        "redis://u:p@a",
        "unix:///a?user=u&pass=p",
    ] {
        assert!(Address::parse(url).is_ok(), "{url}");
    }
}

#[test]
fn an_address_is_shown_with_its_kind_and_named_once() {
    for (url, shown) in [
        ("redis://localhost", "redis://localhost:6379"),
        (" redis://localhost/\n", "redis://localhost:6379"),
        ("redis+unix:///run/redis.sock", "unix:///run/redis.sock"),
        #[cfg(feature = "tls")]
        ("rediss://localhost:1", "rediss://localhost:1"),
    ] {
        assert_eq!(&*Address::parse(url).expect("a valid URL").shown, shown);
    }
    let all = |urls: &[&str]| {
        Address::parse_all(&urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(all(&["redis://a", "redis://b", "redis://a:1"]).expect("three").len(), 3);
    let error = all(&["redis://a", "redis://b", "redis://u:canary@a/1"]).expect_err("twice");
    assert!(error.to_string().contains("redis://a:6379 is named twice"), "{error}");
}

#[test]
fn a_sentinel_has_a_port_of_its_own_and_no_database() {
    let one = |url: &str| Address::parse_sentinels(&[url.to_owned()]);
    for (url, shown) in [
        ("redis://a", "redis://a:26379"),
        ("redis://u:p%3A1@a", "redis://a:26379"),
        ("redis://a:6379", "redis://a:6379"),
        ("redis://a ", "redis://a:26379"),
        ("redis://[::1]", "redis://[::1]:26379"),
        ("redis://[::1]:1", "redis://[::1]:1"),
        ("unix:///run/sentinel.sock", "unix:///run/sentinel.sock"),
    ] {
        assert_eq!(&*one(url).expect("a valid URL")[0].shown, shown, "{url}");
    }
    let error = one("redis://u:canary@a/3").expect_err("a database").to_string();
    assert!(error.contains("no databases") && !error.contains("canary"), "{error}");
}

#[test]
fn a_server_without_an_address_in_the_settings_gets_their_login_and_database() {
    let login = Some(("u".to_owned(), "canary".to_owned()));
    let access = Access { login, tls: false, database: 7 };
    let address = Address::of_servers(&access).expect("valid settings").at("::1", 5);
    assert_eq!((&*address.shown, address.is_tls()), ("redis://[::1]:5", false));
    let settings = address.info.redis_settings();
    assert_eq!((settings.username(), settings.db()), (Some("u"), 7));
    assert_eq!(settings.password(), Some("canary"));
    assert!(address.secrets.are_in("the canary"));
    let access = Access { tls: true, ..Access::default() };
    match (cfg!(feature = "tls"), Address::of_servers(&access)) {
        (true, Ok(address)) => {
            let address = address.at("a", 5);
            assert_eq!((&*address.shown, address.is_tls()), ("rediss://a:5", true));
        }
        (false, Err(error)) => assert!(error.to_string().contains("feature"), "{error}"),
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn another_server_has_the_same_login_and_the_same_kind_of_connection() {
    let seed = Address::parse("redis://user:canary@localhost:7000").expect("a valid URL");
    let other = seed.at("::1", 7001);
    assert_eq!((&*other.shown, other.host_and_port()), ("redis://[::1]:7001", Some(("::1", 7001))));
    assert_eq!(other.info.redis_settings().password(), Some("canary"));
    assert_eq!(other.info.redis_settings().username(), Some("user"));
    #[cfg(feature = "tls")]
    assert!(Address::parse("rediss://a").expect("a valid URL").at("b", 1).is_tls());
    let socket = Address::parse("unix:///a").expect("a valid URL");
    assert_eq!(socket.host_and_port(), None);
}

#[cfg(feature = "tls")]
#[test]
fn the_scheme_says_whether_a_server_is_reached_by_tls() {
    for (url, is_tls) in [("redis://a", false), ("rediss://a", true), ("unix:///a", false)] {
        assert_eq!(Address::parse(url).expect("a valid URL").is_tls(), is_tls, "{url}");
    }
}
