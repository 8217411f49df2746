//! Histories in which operators force holds to end and change how many permits there are.

use leasehold_faults::{
    checker::DRIVER,
    event::{Deed, How, Outcome, Share, What},
};

use crate::made::{Made, VALID};

/// Three permits at first.
fn permits(weight: u32) -> Share {
    Share::Permits { weight, all: 3 }
}

impl Made {
    /// A call of the operator from `at` until `done_at`, on behalf of this owner.
    fn does(self, at: u64, done_at: u64, owner: u64, deed: Deed, done: Option<bool>) -> Self {
        let (op, lock) = (1_000 + at, "n".to_owned());
        let doing = What::Doing { op, owner, lock, deed };
        let made = self.add("o", at, doing).add("o", done_at, What::Done { op, done });
        // There is a cause for no answer.
        if done.is_none() { made.fault(op, "cut", at, done_at) } else { made }
    }

    fn forces_out(self, at: u64, lease: Option<&str>, done: Option<bool>) -> Self {
        self.does(at, at + 1, 0, Deed::ForceOut(lease.map(str::to_owned)), done)
    }

    /// `b` takes all permits, and `c` one more.
    fn takes_four(self, at: u64) -> Self {
        self.shares("b", at, 1, permits(3), 0).shares("c", at + 2, 2, permits(1), 0)
    }
}

/// The id of the lease that process `a` has with this token.
fn lease(token: u64) -> String {
    format!("a:[(\"n\", {token})]")
}

#[test]
fn s1_who_is_forced_out_excludes_nobody_from_then_on() {
    let taken = |made: Made| {
        let taken = made.takes("b", 20, 1, 9).gives_back("b", 30, 1);
        taken.lost("a", 100, 1, false).lives("o", 3000)
    };
    let writes = || Made::default().takes("a", 0, 1, 5);
    taken(writes()).breaks_all(&["S1", "W3"]);
    for done in [Some(true), Some(false), None] {
        taken(writes().forces_out(10, Some(&lease(5)), done)).passes(&["S1"]);
        taken(writes().forces_out(10, None, done)).passes(&["S1"]);
    }
    taken(writes().forces_out(10, Some("another"), Some(true))).breaks_all(&["S1", "W3"]);
    // It excluded others before.
    taken(writes().forces_out(25, Some(&lease(5)), Some(true))).breaks("S1");
    taken(writes().forces_out(25, None, Some(true))).breaks("S1");
}

#[test]
fn s1_only_those_who_are_forced_out_are_beside_others() {
    let beside = |one: &str, other: &str| {
        let forced =
            Made::default().takes("a", 0, 1, 5).forces_out(10, Some(&lease(5)), Some(true));
        let forced = forced.lost("a", 100, 1, false);
        forced.takes(one, 20, 1, 9).takes(other, 30, 1, 10).gives_back(other, 40, 1)
    };
    beside("b", "c").breaks("S1");
}

#[test]
fn s1_who_joins_a_lease_that_was_forced_to_end_excludes_nobody() {
    let joined = |token| {
        let reads = Made::default().shares("a", 0, 1, Share::Reads, 5);
        let forced = reads.forces_out(10, None, Some(true));
        let joins = forced.shares("a", 15, 2, Share::Reads, token);
        let writes = joins.takes("b", 20, 1, 9).gives_back("b", 30, 1);
        writes.lost("a", 100, 1, false).lost("a", 110, 2, false)
    };
    joined(5).passes(&["S1"]);
    joined(6).breaks("S1");
}

#[test]
fn s2_a_late_write_of_one_who_was_forced_out_is_refused() {
    let refused = |forced_at| {
        let late = Made::default()
            .takes("a", 0, 1, 5)
            .forces_out(forced_at, Some(&lease(5)), Some(true))
            .lost("a", 60, 1, false)
            .takes("b", 20, 1, 9)
            .wrote("b", 25, 9, 1, true)
            .gives_back("b", 30, 1)
            .wrote("a", 50, 5, 2, false);
        late.report().violated()
    };
    assert_eq!(refused(10), Vec::<&str>::new());
    assert_eq!(refused(55), ["S1", "S2"]);
}

#[test]
fn w2_who_is_forced_out_is_told() {
    let forced = |done| Made::default().takes("a", 0, 1, 5).forces_out(10, Some(&lease(5)), done);
    let renewed = |made: Made| {
        let until = (10_000 + 900 + VALID) * crate::made::MS;
        made.add("a", 900, What::Renewed { op: 1, until, latest: until })
    };
    forced(Some(true)).lost("a", 400, 1, false).passes(&["W2"]);
    renewed(forced(Some(true))).lost("a", 1500, 1, false).breaks("W2");
    // Nobody was forced out, or perhaps not.
    renewed(forced(Some(false))).lost("a", 1500, 1, false).passes(&[]);
    renewed(forced(None)).lost("a", 1500, 1, false).passes(&[]);
    // A lease is put back on a server that has lost its data.
    let emptied = forced(Some(true)).fault(1, "server-emptied", 20, 30);
    renewed(emptied).lost("a", 1500, 1, false).passes(&[]);
}

#[test]
fn w2_a_permit_that_was_taken_back_is_not_given_back() {
    let given_back = |how, outcome| {
        let forced = Made::default().shares("a", 0, 1, permits(1), 0).forces_out(
            10,
            Some(&lease(0)),
            Some(true),
        );
        let releasing = What::Releasing { op: 1, how, over: false };
        forced.add("a", 50, releasing).add("a", 51, What::Released { op: 1, outcome })
    };
    given_back(How::Unlock, Outcome::Lost).passes(&["W2"]);
    given_back(How::Drop, Outcome::Ok).passes(&["W2"]);
    given_back(How::Unlock, Outcome::Ok).breaks("W2");
}

#[test]
fn s5_permits_that_are_taken_back_are_others_from_then_on() {
    let forced = |at| {
        let one = Made::default().shares("a", 0, 1, permits(3), 0);
        one.forces_out(at, Some(&lease(0)), Some(true)).lost("a", 100, 1, false)
    };
    forced(10).shares("b", 20, 1, permits(3), 0).passes(&["S5", "W2"]);
    forced(30).shares("b", 20, 1, permits(3), 0).breaks("S5");
}

#[test]
fn s5_permits_count_from_the_call_that_adds_them() {
    let added = |at, done| Made::default().does(at, at + 5, 1, Deed::Add(1), done).takes_four(10);
    Made::default().takes_four(10).breaks("S5");
    added(0, Some(true)).passes(&["S5"]);
    added(0, None).passes(&["S5"]);
    added(20, Some(true)).breaks("S5");
    added(0, Some(true)).shares("d", 20, 1, permits(1), 0).breaks("S5");
}

#[test]
fn s5_permits_that_are_forgotten_or_set_back_count_no_more() {
    // Process `o` adds a permit, takes one, and forgets it.
    let forgotten = |outcome| {
        let added = Made::default().does(0, 1, 1, Deed::Add(1), Some(true));
        let taken = added.shares("o", 2, 1, permits(1), 0);
        let forgets = taken.add("o", 5, What::Releasing { op: 1, how: How::Forget, over: false });
        forgets.add("o", 6, What::Released { op: 1, outcome }).fault(1, "cut", 5, 6).takes_four(10)
    };
    forgotten(Outcome::Ok).breaks("S5");
    forgotten(Outcome::Lost).passes(&["S5"]);
    forgotten(Outcome::Unavailable).passes(&["S5"]);

    let set_back = |added, at, done| {
        let added = Made::default().does(0, 1, 1, Deed::Add(1), added);
        let set_back = added.does(at, at + 1, 2, Deed::SetBack, done);
        set_back.takes_four(2000)
    };
    set_back(Some(true), 10, Some(true)).breaks("S5");
    set_back(Some(true), 10, None).passes(&["S5"]);
    // What was not answered may have run later.
    set_back(None, 10, Some(true)).passes(&["S5"]);
    set_back(None, 1100, Some(true)).breaks("S5");
}

#[test]
fn s5_a_server_that_says_there_are_more_permits_than_were_added() {
    let seen = |made: Made, permits| {
        let from = (10_000 + 10) * crate::made::MS;
        made.add("o", 12, What::Seen { lock: "n".to_owned(), from, permits })
    };
    let added = |done| Made::default().does(0, 1, 1, Deed::Add(1), done);
    seen(Made::default(), 3).passes(&["S5"]);
    seen(Made::default(), 4).breaks("S5");
    seen(added(Some(true)), 4).passes(&["S5"]);
    seen(added(None), 4).passes(&["S5"]);
    seen(added(Some(true)), 5).breaks("S5");
    seen(added(Some(true)).does(2, 3, 2, Deed::SetBack, Some(true)), 4).breaks("S5");
}

#[test]
fn r1_no_more_permits_are_left_than_were_added() {
    let left = |made: Made, left| {
        let lock = "n".to_owned();
        made.add(DRIVER, 5000, What::Pool { node: 0, lock, left, ended: 0, out: 0 })
    };
    let added = || Made::default().does(0, 1, 1, Deed::Add(1), Some(true));
    left(added(), 4).passes(&["R1"]);
    left(added(), 5).breaks("R1");
    left(added().does(10, 11, 2, Deed::SetBack, Some(true)), 4).breaks("R1");
    left(Made::default(), 4).breaks("R1");
}

#[test]
fn w1_permits_that_were_taken_back_may_be_renewed_once_more() {
    let renewed = |made: Made| {
        let ran = |script: &str| What::Ran { node: 0, script: script.into(), id: lease(0) };
        let released = made.add(DRIVER, 12, ran("permit_release"));
        let renewed = released.add(DRIVER, 300, ran("permit_renew"));
        renewed.lost("a", 300, 1, false).report().violated()
    };
    let taken = || Made::default().shares("a", 0, 1, permits(1), 0);
    assert_eq!(renewed(taken()), ["W1", "W3"]);
    assert_eq!(renewed(taken().forces_out(10, Some(&lease(0)), Some(true))), Vec::<&str>::new());
}
