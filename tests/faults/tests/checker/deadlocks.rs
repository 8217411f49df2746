//! Histories in which owners wait for each other.

use leasehold_faults::event::{How, Part, Share, What, Why};

use crate::made::{MS, Made, VALID, asked};

/// A part: process, the lock that it holds with this token, and the one that it waits for.
type Link = (&'static str, &'static str, u64, &'static str);

const OF_TWO: [Link; 2] = [("a", "x", 5, "y"), ("b", "y", 6, "x")];

impl Made {
    /// Owner 1 of a process takes a lock; call number 1.
    fn has(self, process: &str, at: u64, lock: &str, token: u64) -> Self {
        let asked = asked(1, 1, &[lock], How::Lock, Share::Alone, None);
        self.add(process, at, asked).granted_locks(process, at + 1, 1, &[(lock, token)], 1)
    }

    /// And waits for another one; call number 2.
    fn wants(self, process: &str, at: u64, lock: &str, wait_ms: Option<u64>) -> Self {
        let how = if wait_ms.is_some() { How::LockWithTimeout } else { How::Lock };
        self.add(process, at, asked(2, 1, &[lock], how, Share::Alone, wait_ms))
    }

    /// It is still held at `at`, for as long as a lease lasts.
    fn renews(self, process: &str, at: u64) -> Self {
        let until = (10_000 + at + VALID) * MS;
        self.add(process, at, What::Renewed { op: 1, until, latest: until + 10_000 })
    }

    fn told(self, process: &str, at: u64, circle: &[Link]) -> Self {
        let part = |link: &Link| {
            let (client, holds, token, waits_for) = *link;
            let [client, holds, waits_for] = [client, holds, waits_for].map(str::to_owned);
            Part { client, holds, token, waits_for }
        };
        let circle = circle.iter().map(part).collect();
        self.add(process, at, What::Deadlocked { op: 2, circle }).refused(
            process,
            at,
            2,
            Why::Deadlock,
        )
    }

    /// `b` gives way, and `a` has both.
    fn gives_way(self, at: u64) -> Self {
        let gives = self.gives_back("b", at, 1);
        let goes_on = gives.granted_locks("a", at + 5, 2, &[("y", 9)], 1);
        goes_on.gives_back("a", at + 10, 2).gives_back("a", at + 20, 1)
    }
}

/// `a` has x and waits for y since `first`, `b` has y and waits for x since `second`; both are held until `until`.
fn waits_for_each_other(first: u64, second: u64, until: u64) -> Made {
    let have = Made::default().has("a", 0, "x", 5).has("b", 0, "y", 6);
    let wait = have.wants("a", first, "y", None).wants("b", second, "x", None);
    wait.renews("a", until).renews("b", until)
}

#[test]
fn a_deadlock_that_is_told_in_time_passes() {
    let circle = [OF_TWO[1], OF_TWO[0]];
    let told = waits_for_each_other(10, 20, 4000).told("b", 4000, &circle).gives_way(4010);
    told.passes(&["D1", "D2"]);
    let deadlocks = told.report().deadlocks;
    assert_eq!((deadlocks.came_about, deadlocks.told, deadlocks.told_inside), (1, 1, 0));
    assert_eq!((deadlocks.never_real, deadlocks.missed, deadlocks.longest_ms), (0, 0, 3980));
}

#[test]
fn d1_what_is_told_stood_all_at_once() {
    let circle = [OF_TWO[1], OF_TWO[0]];
    // The other one had given up before.
    let alone = |given_up_at| {
        let have = Made::default().has("a", 0, "x", 5).has("b", 0, "y", 6);
        let wait = have.wants("a", 10, "y", None).renews("a", 3000).renews("b", 3000);
        let over = wait.refused("a", given_up_at, 2, Why::Dropped);
        let told = over.wants("b", 1000, "x", None).told("b", 3000, &circle);
        told.gives_back("b", 3010, 1).gives_back("a", 3900, 1)
    };
    alone(1500).passes(&["D1"]);
    alone(900).breaks("D1");
}

#[test]
fn d1_what_is_told_was_there_as_long_ago_as_a_note_lasts() {
    let circle = [OF_TWO[1], OF_TWO[0]];
    let late = |told_at| {
        let both = waits_for_each_other(10, 20, 1000).refused("a", 1500, 2, Why::Dropped);
        let gone = both.gives_back("a", 1510, 1).renews("b", told_at);
        let told = gone.told("b", told_at, &circle).gives_back("b", told_at + 10, 1);
        // Why `b` does not get what is free is not what this is about.
        told.report().violated().contains(&"D1")
    };
    assert!(!late(6500), "5 s, and the time of an answer");
    assert!(late(7000));
}

#[test]
fn d1_a_circle_is_closed_begins_with_the_caller_and_names_what_is_held() {
    let told = |circle: &[Link]| {
        let both = waits_for_each_other(10, 20, 4000);
        both.told("b", 4000, circle).gives_way(4010)
    };
    let [first, second] = OF_TWO;
    told(&[second, first]).passes(&["D1"]);
    told(&[first, second]).breaks("D1");
    told(&[second]).breaks("D1");
    told(&[second, ("a", "x", 4, "y")]).breaks("D1");
    told(&[second, ("c", "x", 5, "y")]).breaks("D1");
    told(&[("b", "y", 6, "z"), ("a", "z", 5, "y")]).breaks("D1");
}

#[test]
fn d2_a_deadlock_that_stands_in_a_calm_is_told() {
    let stands = |made: Made, until: u64| {
        let ended = made.refused("b", until, 2, Why::Dropped);
        let mut violated = ended.gives_way(until + 10).report().violated();
        violated.retain(|found| *found == "D2");
        violated
    };
    let none: [&str; 0] = [];
    assert_eq!(stands(waits_for_each_other(10, 20, 9900), 10_000), none);
    assert_eq!(stands(waits_for_each_other(10, 20, 11_900), 12_000), ["D2"]);
    // A fault in the middle, after which there is as much time again.
    let faulty = |until| waits_for_each_other(10, 20, until).fault(1, "cut", 5000, 6000);
    assert_eq!(stands(faulty(15_900), 16_000), none);
    assert_eq!(stands(faulty(16_900), 17_000), ["D2"]);
}

#[test]
fn d2_a_wait_with_an_end_of_its_own_ends_by_itself() {
    let have = Made::default().has("a", 0, "x", 5).has("b", 0, "y", 6);
    let wait = have.wants("a", 10, "y", None).wants("b", 20, "x", Some(12_000));
    let held = wait.renews("a", 12_000).renews("b", 12_000);
    let ended = held.refused("b", 12_020, 2, Why::Held).gives_way(12_030);
    ended.passes(&[]);
    assert_eq!(ended.report().deadlocks.came_about, 0);
}

#[test]
fn d2_what_is_given_back_blocks_nobody() {
    // `b` waits for x, which `a` gives back while it waits no more.
    let have = Made::default().has("a", 0, "x", 5).has("b", 0, "y", 6);
    let wait = have.wants("b", 10, "x", None).renews("b", 300);
    let given = wait.gives_back("a", 200, 1).granted_locks("b", 210, 2, &[("x", 7)], 1);
    let ends = given.gives_back("b", 300, 2).gives_back("b", 310, 1);
    ends.passes(&[]);
    assert_eq!(ends.report().deadlocks.came_about, 0);
}

#[test]
fn a_deadlock_of_three_is_found_once() {
    let mut made = Made::default();
    for (process, lock, token) in [("a", "x", 5), ("b", "y", 6), ("c", "z", 7)] {
        made = made.has(process, 0, lock, token);
    }
    made = made.wants("a", 10, "y", None).wants("b", 20, "z", None).wants("c", 30, "x", None);
    made = made.renews("a", 900).renews("b", 900);
    let circle = [("c", "z", 7, "x"), ("a", "x", 5, "y"), ("b", "y", 6, "z")];
    let report = made.told("c", 800, &circle).report();
    assert_eq!(report.deadlocks.came_about, 1);
    assert!(!report.violated().contains(&"D1"), "{:#?}", report.violations);
}
