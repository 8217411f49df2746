use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(seconds))
}

fn server(name: &str) -> Announced {
    Announced { host: name.into(), port: 6379 }
}

/// Tells what one Sentinel says, and returns the name of the master that is believed in after that.
fn hear(views: &mut Views, index: usize, name: &str, epoch: Option<u64>, now: u64) -> String {
    views.told(index, server(name), epoch, None, at(now));
    views.choose();
    views.chosen().expect("one was named").host.to_string()
}

#[test]
fn what_cannot_be_an_address_is_none() {
    let long = "a".repeat(256);
    for host in ["", "a b", "a\n", "user@a", "a/1", "a?b", "a#b", &*long] {
        assert_eq!(Announced::read(host, 1), None, "{host:?}");
    }
    for port in [i64::MIN, -1, 0, 65_536] {
        assert_eq!(Announced::read("a", port), None, "{port}");
    }
    assert!(Announced::read("a", 1).is_some() && Announced::read("a", 65_535).is_some());
    for host in ["a", "10.0.0.1", "::1", &long[1..]] {
        assert_eq!(&*Announced::read(host, 6379).expect("an address").host, host);
    }
}

#[test]
fn the_highest_epoch_wins_whoever_names_it() {
    let mut views = Views::of(3);
    assert_eq!(hear(&mut views, 0, "old", Some(4), 0), "old");
    assert_eq!(hear(&mut views, 1, "new", Some(5), 0), "new");
    assert_eq!(hear(&mut views, 2, "old", Some(4), 0), "new", "it has not heard yet");
    assert_eq!(hear(&mut views, 0, "old", Some(4), 5), "new");
    assert_eq!(hear(&mut views, 0, "new", Some(5), 6), "new");
    assert_eq!(hear(&mut views, 2, "third", Some(6), 7), "third");
}

#[test]
fn one_that_lies_does_not_win_when_it_is_the_last_that_answers() {
    let mut views = Views::of(2);
    hear(&mut views, 0, "new", Some(5), 0);
    for now in 0..60 {
        assert_eq!(hear(&mut views, 1, "old", Some(4), now), "new");
    }
    let mut views = Views::of(2);
    hear(&mut views, 0, "new", None, 0);
    for now in 0..60 {
        assert_eq!(hear(&mut views, 1, "old", None, now), "new", "without an epoch");
    }
}

#[test]
fn a_message_counts_at_once_if_it_is_about_the_master_that_is_believed_in() {
    for epoch in [Some(4), None] {
        let mut views = Views::of(3);
        for index in 0..3 {
            hear(&mut views, index, "old", epoch, 0);
        }
        views.switched(1, &server("other"), server("third"), at(1));
        assert_eq!(views.choose(), None, "about another");
        views.switched(1, &server("old"), server("new"), at(1));
        assert_eq!(views.choose(), Some(&server("new")));
        assert_eq!(hear(&mut views, 0, "old", epoch, 2), "new", "it has not heard yet");
        assert_eq!(hear(&mut views, 1, "new", epoch.map(|epoch| epoch + 1), 2), "new");
        views.switched(2, &server("old"), server("new"), at(3));
        assert_eq!(views.choose(), None, "known already");
        assert_eq!(hear(&mut views, 0, "new", epoch.map(|epoch| epoch + 1), 4), "new");
        views.switched(0, &server("new"), server("old"), at(5));
        assert_eq!(views.choose(), Some(&server("old")), "and back");
    }
}

#[test]
fn without_epochs_who_names_another_than_before_is_believed() {
    let mut views = Views::of(3);
    for index in 0..3 {
        assert_eq!(hear(&mut views, index, "old", None, 0), "old");
    }
    assert_eq!(hear(&mut views, 2, "new", None, 1), "new");
    assert_eq!(hear(&mut views, 0, "old", None, 2), "new");
    assert_eq!(hear(&mut views, 0, "new", None, 3), "new");
    assert_eq!(hear(&mut views, 1, "new", None, 3), "new");
}

#[test]
fn at_first_and_without_epochs_most_voices_win_and_a_replica_loses() {
    let first = |names: &[&str], epoch: Option<u64>| {
        let mut views = Views::of(names.len());
        for (index, name) in names.iter().enumerate() {
            views.told(index, server(name), epoch, None, at(0));
        }
        views.choose();
        views
    };
    assert_eq!(first(&["a", "b", "b"], None).chosen(), Some(&server("b")));
    assert_eq!(first(&["a", "b", "b"], Some(1)).chosen(), Some(&server("b")));
    let mut views = first(&["a", "b"], None);
    assert_eq!(views.chosen(), Some(&server("a")), "the first in the list");
    views.is_replica(&server("a"));
    assert_eq!(views.choose(), Some(&server("b")));
    let mut views = first(&["a"], None);
    views.is_replica(&server("a"));
    assert_eq!(views.choose(), None, "nobody names another");
    let mut views = Views::of(2);
    hear(&mut views, 0, "a", Some(5), 0);
    hear(&mut views, 1, "b", Some(4), 0);
    views.is_replica(&server("a"));
    assert_eq!(views.choose(), None, "it is about to be the master, and b was");
}

#[test]
fn a_master_that_was_added_anew_is_believed_once_nobody_names_the_old_one() {
    let mut views = Views::of(3);
    for index in 0..3 {
        hear(&mut views, index, "old", Some(7), 0);
    }
    assert_eq!(hear(&mut views, 0, "new", Some(0), 1), "old");
    assert_eq!(hear(&mut views, 1, "new", Some(0), 2), "old");
    assert_eq!(hear(&mut views, 1, "new", Some(0), 9), "old", "the third may be right");
    assert_eq!(hear(&mut views, 1, "new", Some(0), 10), "new", "the third is dead");
    assert_eq!(hear(&mut views, 0, "third", Some(1), 11), "third");
}

#[test]
fn of_two_in_the_same_epoch_the_news_are_believed_and_a_first_word_is_none() {
    let mut views = Views::of(3);
    for index in 0..2 {
        hear(&mut views, index, "a", Some(1), 0);
    }
    assert_eq!(hear(&mut views, 1, "b", Some(1), 1), "b", "it said otherwise before");
    let mut views = Views::of(3);
    hear(&mut views, 0, "a", Some(1), 0);
    for index in 1..3 {
        assert_eq!(hear(&mut views, index, "b", Some(1), 0), "a");
    }
    views.is_replica(&server("a"));
    assert_eq!(views.choose(), None, "epochs say more than that");
}

#[test]
fn the_failover_that_was_reported_is_the_next_one() {
    let mut views = Views::of(3);
    hear(&mut views, 0, "old", Some(4), 0);
    views.switched(0, &server("old"), server("new"), at(1));
    assert_eq!(views.choose(), Some(&server("new")));
    assert_eq!(hear(&mut views, 1, "third", Some(6), 2), "third", "and this one came later");
}

#[test]
fn an_earlier_epoch_is_not_believed_while_somebody_names_the_present_master() {
    let mut views = Views::of(3);
    hear(&mut views, 0, "a", Some(7), 0);
    hear(&mut views, 1, "a", Some(3), 15);
    hear(&mut views, 2, "b", Some(2), 15);
    assert_eq!(hear(&mut views, 2, "c", Some(5), 16), "a");
}

#[test]
fn the_highest_epoch_in_which_a_master_was_named_stays_its_own() {
    let mut views = Views::of(3);
    hear(&mut views, 0, "a", Some(5), 0);
    hear(&mut views, 1, "a", Some(7), 0);
    assert_eq!(hear(&mut views, 2, "b", Some(6), 20), "a", "the others are silent");
}

#[test]
fn one_that_was_a_replica_may_become_the_master_again() {
    let mut views = Views::of(2);
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        hear(&mut views, index, name, None, 0);
    }
    views.is_replica(&server("a"));
    assert_eq!(views.choose(), Some(&server("b")));
    assert_eq!(hear(&mut views, 0, "c", None, 1), "c");
    assert_eq!(hear(&mut views, 0, "a", None, 2), "a");
}

#[test]
fn nobody_is_believed_because_the_others_have_died() {
    let mut views = Views::of(2);
    hear(&mut views, 0, "new", Some(5), 0);
    hear(&mut views, 1, "old", Some(4), 0);
    assert_eq!(hear(&mut views, 1, "old", Some(4), 60), "new");
    assert!(views.is_known(0) && !Views::of(1).is_known(0));
}

/// Each second in `seconds`, each Sentinel names the server of its letter, and a dot is silent. Returns when it was
/// reported that they disagree, and if they do at the end.
fn disputes(views: &mut Views, seconds: std::ops::Range<u64>, names: &str) -> (Vec<u64>, bool) {
    let mut reported = Vec::new();
    let end = seconds.end - 1;
    for now in seconds {
        for (index, name) in names.chars().enumerate().filter(|(_, name)| *name != '.') {
            hear(views, index, &name.to_string(), Some(index as u64), now);
            reported.extend(views.must_report(at(now)).then_some(now));
        }
    }
    (reported, views.disagree(at(end)))
}

#[test]
fn that_they_disagree_is_reported_once_when_it_has_lasted_and_again_the_next_time() {
    for names in ["aab", "baa", "aba", "a.b", "abc"] {
        let mut views = Views::of(3);
        assert_eq!(disputes(&mut views, 0..60, "aaa"), (vec![], false));
        assert_eq!(disputes(&mut views, 60..70, names), (vec![], false), "as in a failover");
        assert_eq!(disputes(&mut views, 70..300, names), (vec![70], true), "{names}");
        assert_eq!(disputes(&mut views, 300..301, "aaa"), (vec![], false), "over");
        assert_eq!(disputes(&mut views, 301..400, names), (vec![311], true), "{names}");
    }
}

#[test]
fn who_is_silent_does_not_disagree() {
    let mut views = Views::of(3);
    assert_eq!(disputes(&mut views, 0..9, "aab"), (vec![], false));
    assert_eq!(disputes(&mut views, 9..60, "aa."), (vec![], false), "it died with its master");
    assert_eq!(disputes(&mut views, 60..100, "aab"), (vec![70], true));
    assert_eq!(disputes(&mut views, 100..120, "..b"), (vec![], false));
    assert_eq!(disputes(&mut views, 120..140, "aab"), (vec![130], true));
    assert!(!views.disagree(at(200)), "nobody answers");
    assert_eq!((views.named(at(140)).count(), views.named(at(200)).count()), (3, 0));
    assert_eq!(disputes(&mut Views::of(3), 0..100, "a.."), (vec![], false));
}

#[test]
fn two_addresses_of_one_run_are_one_server() {
    for (runs, disagree) in [
        ([Some("1"), Some("1")], false),
        ([Some("1"), Some("2")], true),
        ([Some("1"), None], true),
        ([None, None], true),
    ] {
        let mut views = Views::of(2);
        for now in 0..=20 {
            for (index, run) in runs.into_iter().enumerate() {
                let name = server(["name", "address"][index]);
                views.told(index, name, Some(1), run.map(Arc::from), at(now));
            }
        }
        assert_eq!(views.disagree(at(20)), disagree, "{runs:?}");
    }
}

#[test]
fn an_address_is_shown_with_its_port() {
    for (host, shown) in [("a", "a:7"), ("10.0.0.1", "10.0.0.1:7"), ("::1", "[::1]:7")] {
        assert_eq!(Announced::read(host, 7).expect("an address").to_string(), shown);
    }
}
