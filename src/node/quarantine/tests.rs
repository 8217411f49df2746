use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(seconds))
}

fn run(id: &str, heard: u64) -> Run {
    let past = Past { history: Some("h".into()), ..Past::default() };
    Run { id: Some(id.into()), past, heard_at: at(heard), mark: None, slots: None }
}

fn of_history(history: Option<&str>, run: Run) -> Run {
    Run { past: Past { history: history.map(str::to_owned), ..run.past }, ..run }
}

#[test]
fn a_server_that_no_client_has_known_for_long_enough_is_not_trusted() {
    let mut quarantine = Quarantine::new(MINUTE);
    quarantine.meet(&run("a", 1000));
    assert_eq!(quarantine.until, at(1060), "nobody knows it, however long it says that it is up");
    let mut quarantine = Quarantine::new(MINUTE);
    quarantine.meet(&marked(10, run("a", 1000)));
    let left = quarantine.until.since(at(1000));
    assert!(left >= Duration::from_secs(50), "known for 10 s: {left:?}");
}

#[test]
fn another_run_starts_it_in_full_and_the_same_run_does_not() {
    let mut quarantine = Quarantine::new(MINUTE);
    quarantine.meet(&marked(100, run("a", 1000)));
    let before = quarantine.until;
    quarantine.meet(&run("a", 1010));
    assert_eq!((quarantine.until, quarantine.run), (before, 1));
    quarantine.meet(&run("b", 1020));
    assert_eq!((quarantine.until, quarantine.run), (at(1080), 2));
    quarantine.meet(&run("b", 1030));
    assert_eq!(quarantine.until, at(1080));
}

#[test]
fn another_history_in_the_same_run_starts_it_in_full() {
    let mut quarantine = Quarantine::new(MINUTE);
    assert!(!quarantine.meet(&marked(100, run("a", 1000))), "the first");
    assert!(!quarantine.meet(&run("a", 1005)), "the same");
    assert_eq!(quarantine.until, at(1000));
    assert!(quarantine.meet(&of_history(Some("i"), run("a", 1010))));
    assert_eq!((quarantine.until, quarantine.run), (at(1070), 2));
    for heard in [1020, 1030] {
        assert!(quarantine.meet(&of_history(None, run("a", heard))));
        assert_eq!(quarantine.until, at(heard + 60), "nobody can name it");
    }
}

fn marked(age: u64, run: Run) -> Run {
    let Run { heard_at, .. } = run;
    let asked_at = heard_at.minus(Duration::from_secs(1));
    let since_us = (200_000 - age) * 1_000_000;
    let mark = Mark { since_us, age: Duration::from_secs(age), asked_at, heard_at };
    Run { mark: Some(mark), ..run }
}

#[test]
fn a_promoted_server_seen_first_counts_from_its_mark() {
    for (age, until) in [(0, 60.0), (10, 50.1), (60, 0.6), (61, 0.0), (100_000, 0.0)] {
        let mut met = marked(age, run("a", 1000));
        met.past.had_another = true;
        let mut quarantine = Quarantine::new(MINUTE);
        assert!(!quarantine.meet(&met));
        let after = quarantine.until.since(at(1000)).as_secs_f64();
        assert!(quarantine.until >= at(1000) && (after - until).abs() < 0.01, "{age}: {after}");
    }
    let mut met = marked(10, run("a", 1000));
    met.past.had_another = true;
    let mut quarantine = Quarantine::new(MINUTE);
    assert_eq!(quarantine.tokens_from, 0, "nothing is known yet");
    quarantine.meet(&met);
    let until = at(1000).plus(Duration::from_millis(50_100));
    assert_eq!(quarantine.until, until, "the server's clock may be fast by 1 %");
}

#[test]
fn a_client_that_knew_another_server_waits_in_full_whatever_the_mark_says() {
    let mut quarantine = Quarantine::new(MINUTE);
    quarantine.meet(&run("a", 1000));
    let mut met = marked(50, run("b", 1020));
    met.past.had_another = true;
    assert!(quarantine.meet(&met));
    assert_eq!(quarantine.until, at(1080));
}

#[test]
fn leases_are_put_back_until_grants_to_others_may_count() {
    let reclaims =
        |quarantine: &Quarantine, run, second| quarantine.reclaims(run, None, at(second));
    let mut quarantine = Quarantine::new(MINUTE);
    quarantine.meet(&marked(100, run("a", 1000)));
    assert!(!reclaims(&quarantine, 1, 1000), "it has been up for long");
    quarantine.meet(&marked(0, run("b", 1010)));
    assert!(reclaims(&quarantine, 2, 1010) && reclaims(&quarantine, 2, 1068));
    assert!(!reclaims(&quarantine, 2, 1069), "from before the request on");
    assert!(!reclaims(&quarantine, 1, 1010) && !reclaims(&quarantine, 3, 1010), "another run");
    quarantine.meet(&marked(50, run("c", 1020)));
    assert!(reclaims(&quarantine, 3, 1027));
    assert!(!reclaims(&quarantine, 3, 1028), "the server's clock may be slow");
    assert_eq!(quarantine.until, at(1080));
    quarantine.meet(&run("d", 1030));
    assert!(reclaims(&quarantine, 4, 1089), "without a mark, by its own time");
    assert!(!reclaims(&quarantine, 4, 1090));
    let mut off = Quarantine::new(Duration::ZERO);
    for id in ["a", "b"] {
        off.meet(&marked(0, run(id, 1000)));
    }
    assert!(!reclaims(&off, 2, 1000));
}

/// The server's time is 200 000 s when it is met.
#[test]
fn tokens_are_above_those_of_before() {
    let tokens_from = |age, had_another| {
        let mut met = marked(age, run("a", 1000));
        met.past.had_another = had_another;
        let mut quarantine = Quarantine::new(MINUTE);
        quarantine.meet(&met);
        quarantine.tokens_from
    };
    for age in [0, 1, 10, 59, 60, 61, 4000] {
        let end = (200_000 - age + 60) * 1_000_000;
        assert_eq!(tokens_from(age, true), end, "all clients say the same, at {age} s");
        assert_eq!(tokens_from(age, false), end - 60_000_000, "by the same clock");
    }
    let mut quarantine = Quarantine::new(MINUTE);
    quarantine.meet(&marked(4000, run("a", 1000)));
    quarantine.meet(&run("b", 1010));
    assert_eq!(quarantine.tokens_from, 0, "nobody could write the mark");
}

#[test]
fn switched_off_it_only_counts_runs() {
    let mut quarantine = Quarantine::new(Duration::ZERO);
    quarantine.meet(&run("a", 1000));
    quarantine.meet(&run("b", 1010));
    assert_eq!((quarantine.until, quarantine.run), (Timestamp::default(), 2));
    quarantine.meet(&of_history(None, run("b", 1020)));
    quarantine.meet(&of_history(None, run("b", 1030)));
    assert_eq!((quarantine.until, quarantine.run), (Timestamp::default(), 3));
}

#[test]
fn a_run_that_nobody_can_name_is_always_another_one() {
    let mut quarantine = Quarantine::new(MINUTE);
    let unknown = |heard| Run { id: None, ..run("", heard) };
    quarantine.meet(&unknown(1000));
    assert_eq!(quarantine.until, at(1060));
    quarantine.meet(&unknown(1010));
    assert_eq!(quarantine.until, at(1070));
}
