use super::*;

fn identity(run_id: Option<&str>, client_id: Option<i64>) -> Identity {
    Identity { run_id: run_id.map(Into::into), client_id }
}

#[test]
fn the_last_connection_is_killed_where_it_is_known_by_name() {
    let known = identity(Some("a"), Some(7));
    let mut before = Predecessors::default();
    assert_eq!(before.to_kill(&known), None, "there is none");
    before.follow(known.clone());
    assert_eq!(before.to_kill(&identity(Some("a"), Some(8))), Some(7));
    assert_eq!(before.to_kill(&identity(Some("b"), Some(8))), None, "a stranger's number");
    assert_eq!(before.to_kill(&identity(None, Some(8))), None, "maybe a stranger's number");
    before.follow(identity(None, Some(7)));
    assert_eq!(before.to_kill(&identity(None, Some(8))), None, "maybe a stranger's number");
}

#[test]
fn what_is_neither_killed_nor_of_another_run_may_linger() {
    for (last, new, killed, lingers) in [
        (Some("a"), Some("a"), true, false),
        (Some("a"), Some("a"), false, true),
        (Some("a"), Some("b"), false, false),
        (Some("a"), None, false, true),
        (None, Some("a"), false, true),
        (None, None, false, true),
    ] {
        let mut before = Predecessors::default();
        before.follow(identity(last, Some(7)));
        before.met(&identity(new, Some(8)), killed);
        assert_eq!(before.may_linger(), lingers, "{last:?} {new:?} {killed}");
    }
}

#[test]
fn what_lingers_does_so_until_its_run_has_ended() {
    let [a, b] = ["a", "b"].map(|run| identity(Some(run), Some(7)));
    let unknown = identity(None, Some(7));
    let mut before = Predecessors::default();
    before.follow(a.clone());
    before.met(&a, false);
    before.follow(a.clone());
    before.met(&a, true);
    assert!(before.may_linger(), "the one before that is still there");
    before.follow(a);
    before.met(&b, false);
    assert!(!before.may_linger(), "they were of another run");
    before.follow(unknown);
    before.met(&b, false);
    before.follow(b.clone());
    before.met(&b, false);
    before.met(&identity(Some("c"), Some(7)), false);
    assert!(before.may_linger(), "nobody knows the run of all");
}

#[test]
fn one_that_was_killed_is_forgotten() {
    let known = |id| identity(Some("a"), Some(id));
    let mut before = Predecessors::default();
    before.follow(known(7));
    before.met(&known(8), true);
    assert_eq!(before.to_kill(&known(9)), None, "the second was never in use");
    before.met(&known(9), false);
    assert!(!before.may_linger());
}

#[test]
fn who_comes_back_to_a_run_kills_what_it_left_there() {
    let known = |run, id| identity(Some(run), Some(id));
    let mut before = Predecessors::default();
    before.follow(known("a", 7));
    before.met(&known("b", 3), false);
    assert!(!before.may_linger(), "it is elsewhere");
    before.follow(known("b", 3));
    assert_eq!(before.to_kill(&known("a", 9)), Some(7));
    before.met(&known("a", 9), true);
    assert!(!before.may_linger());
    before.follow(known("a", 9));
    assert_eq!(before.to_kill(&known("b", 5)), Some(3), "and the other way round");
    before.met(&known("b", 5), false);
    assert!(before.may_linger(), "it could not be killed");
    before.follow(known("b", 5));
    before.met(&known("a", 11), true);
    assert!(!before.may_linger());
    before.follow(known("a", 11));
    before.met(&known("b", 6), true);
    assert!(before.may_linger(), "the first of two is still there");
}

#[test]
fn only_the_last_few_runs_are_remembered() {
    let mut before = Predecessors::default();
    for run in 0..100 {
        let new = identity(Some(&run.to_string()), Some(run));
        before.met(&new, false);
        before.follow(new);
    }
    let to_kill = |run: i64| before.to_kill(&identity(Some(&run.to_string()), Some(0)));
    assert_eq!([99, 98, 95, 94].map(to_kill), [Some(99), Some(98), Some(95), None]);
}
