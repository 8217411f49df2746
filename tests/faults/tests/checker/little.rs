//! Histories in which somebody gets too little: late, or less than there is, or nothing for no reason.

use leasehold_faults::{
    checker::{DRIVER, Setting, check},
    event::{Deed, How, Outcome, Share, What, Why},
};

use crate::made::{MS, Made, VALID, asked, setting};

const READS: Share = Share::Reads;

fn permits(weight: u32) -> Share {
    Share::Permits { weight, all: 3 }
}

impl Made {
    /// Waits for the lock from `at` on.
    fn waits(self, process: &str, at: u64, op: u64, share: Share) -> Self {
        self.add(process, at, asked(op, op, &["n"], How::Lock, share, None))
    }

    /// Several rules may say so.
    #[track_caller]
    fn breaks_at_least(&self, invariant: &str) {
        let report = self.report();
        assert!(report.violated().contains(&invariant), "{:#?}", report.violations);
    }
}

#[test]
fn l2_a_waiter_behind_a_free_lock() {
    let waits = || Made::default().takes("a", 0, 1, 5).waits("b", 5, 1, Share::Alone);
    let freed = || waits().gives_back("a", 300, 1);
    freed().granted("b", 20_300, 1, 9).breaks_at_least("L2");
    freed().granted("b", 20_300, 1, 9).breaks_at_least("H");
    freed().granted("b", 345, 1, 9).passes(&["L2"]);
    // It never gets it.
    freed().add("b", 20_300, What::Stalled { from: (10_000 + 20_299) * MS }).breaks_at_least("L2");
    // It comes to a lock that is free.
    let comes = |at| Made::default().waits("b", 5, 1, Share::Alone).granted("b", at, 1, 9);
    comes(140).passes(&["L2"]);
    comes(300).breaks("L2");
    // It gives up, and is told so.
    let gave_up = waits().gives_back("a", 300, 1).refused("b", 700, 1, Why::Held);
    gave_up.breaks("L2");
}

#[test]
fn l2_a_fault_that_comes_and_goes_while_another_one_is_felt() {
    let waits = |at| {
        let one = Made::default().waits("b", 5, 1, Share::Alone).fault(1, "cut", 10, 20);
        one.fault(2, "cut", 900, 1900).granted("b", at, 1, 9)
    };
    waits(3900).passes(&["S1"]);
    waits(4100).breaks_at_least("L2");
}

#[test]
fn l2_a_lock_whose_lease_ended_that_nobody_gets() {
    let ended = || {
        let fixed = Made::default().takes("a", 0, 1, 5).waits("b", 5, 1, Share::Alone);
        fixed.over("a", VALID + 2, 1)
    };
    ended().granted("b", 1140, 1, 9).passes(&["L2"]);
    ended().granted("b", 1300, 1, 9).breaks("L2");
}

#[test]
fn l2_a_writer_behind_a_readers_release() {
    let waits = |at| {
        Made::default()
            .shares("a", 0, 1, READS, 5)
            .shares("b", 5, 1, READS, 5)
            .waits("w", 10, 1, Share::Alone)
            .gives_back("a", 100, 1)
            .gives_back("b", 300, 1)
            .granted("w", at, 1, 6)
    };
    waits(345).passes(&["L2"]);
    waits(400).breaks("L2");
}

#[test]
fn l2_a_reader_beside_readers_and_behind_nobody_who_writes() {
    let reads = || Made::default().shares("a", 0, 1, READS, 5).waits("b", 5, 1, READS);
    reads().granted("b", 140, 1, 5).gives_back("a", 600, 1).passes(&["L2"]);
    reads().granted("b", 400, 1, 5).gives_back("a", 600, 1).breaks("L2");
    let behind = reads().waits("w", 7, 1, Share::Alone).gives_back("a", 600, 1);
    behind.granted("w", 610, 1, 6).gives_back("w", 620, 1).granted("b", 630, 1, 6).passes(&[]);
    // The writer is done, and wakes nobody.
    let wrote = Made::default().takes("w", 0, 1, 5).waits("b", 5, 1, READS).gives_back("w", 300, 1);
    wrote.granted("b", 400, 1, 5).breaks("L2");
}

#[test]
fn l2_permits_that_are_given_back_and_not_passed_on() {
    let two = || Made::default().shares("a", 0, 1, permits(2), 0).waits("b", 5, 1, permits(2));
    let given_back = || two().gives_back("a", 300, 1);
    given_back().granted("b", 345, 1, 0).passes(&["L2"]);
    given_back().granted("b", 20_300, 1, 0).breaks_at_least("L2");
    // One is left, and two are wanted.
    two().granted("b", 900, 1, 0).report();
    let one = |share| Made::default().shares("a", 0, 1, permits(2), 0).waits("b", 5, 1, share);
    one(permits(1)).granted("b", 400, 1, 0).gives_back("a", 500, 1).breaks("L2");
    // Behind one that wants more.
    let queue = one(permits(2)).waits("c", 8, 1, permits(1)).gives_back("a", 300, 1);
    let served = queue.granted("b", 310, 1, 0).granted("c", 310, 1, 0);
    served.gives_back("b", 320, 1).passes(&["L2"]);
}

#[test]
fn r1_a_permit_of_a_semaphore_with_more_and_fewer_that_is_lost() {
    let does = |made: Made, at, what, done| {
        let (op, lock) = (1000 + at, "n".to_owned());
        let doing = What::Doing { op, owner: 1, lock, deed: what };
        made.add("o", at, doing).add("o", at + 1, What::Done { op, done })
    };
    let left = |made: Made, left| {
        let lock = "n".to_owned();
        made.add(DRIVER, 5000, What::Pool { node: 0, lock, left, ended: 0, out: 0 })
    };
    let added = |done| does(Made::default(), 0, Deed::Add(1), done);
    left(added(Some(true)), 4).passes(&["R1"]);
    left(added(Some(true)), 3).breaks("R1");
    left(does(added(Some(true)), 10, Deed::SetBack, Some(true)), 2).breaks("R1");
    left(does(added(Some(true)), 10, Deed::SetBack, Some(true)), 3).passes(&["R1"]);
    left(does(Made::default(), 0, Deed::SetBack, Some(true)), 2).breaks("R1");
    // It may have been added or not, and set back or not.
    left(added(None).fault(1, "cut", 0, 2), 3).passes(&["R1"]);
    left(does(added(Some(true)), 10, Deed::SetBack, None).fault(1, "cut", 0, 20), 3)
        .passes(&["R1"]);
    // One was forgotten.
    let forgets = |how| {
        let taken = added(Some(true)).shares("o", 2, 1, permits(1), 0);
        let released = taken.add("o", 5, What::Releasing { op: 1, how, over: false });
        released.add("o", 6, What::Released { op: 1, outcome: Outcome::Ok })
    };
    left(forgets(How::Forget), 3).passes(&["R1"]);
    left(forgets(How::Forget), 2).breaks("R1");
    left(forgets(How::Unlock), 3).breaks("R1");
    // The server had forgotten what was added.
    left(added(Some(true)).fault(1, "disk-lost", 10, 20), 3).passes(&["R1"]);
}

#[test]
fn w3_a_hold_that_is_lost_without_a_cause() {
    let lost = |made: Made, reason: &str, at| {
        let reason = reason.to_owned();
        made.takes("a", 0, 1, 5).add("a", at, What::Lost { op: 1, reason, held: false })
    };
    for reason in ["Gone", "Failover", "NotRenewed", "Shutdown"] {
        lost(Made::default(), reason, 400).breaks("W3");
        lost(Made::default().fault(1, "cut", 300, 320), reason, 400).passes(&["W3"]);
    }
    lost(Made::default(), "NotRenewed", VALID + 5).breaks("W3");
    // A lease that nobody renews ends, but not before its end.
    lost(Made::default(), "Ended", VALID + 5).passes(&["W3"]);
    lost(Made::default(), "Ended", 400).breaks("W3");
    // Threads were kept waiting.
    let stalled = |from: u64| {
        lost(Made::default(), "NotRenewed", VALID + 5).add(
            DRIVER,
            900,
            What::Stalled { from: (10_000 + from) * MS },
        )
    };
    stalled(300).passes(&["W3"]);
    stalled(890).breaks("W3");
    // Another lock was forced open.
    let forced = |lock: &str| {
        let deed = Deed::ForceOut(None);
        let doing = What::Doing { op: 1000, owner: 9, lock: lock.to_owned(), deed };
        let done = What::Done { op: 1000, done: Some(true) };
        lost(Made::default().add("o", 10, doing).add("o", 11, done), "Gone", 400)
    };
    forced("n").passes(&["W3"]);
    forced("m").breaks("W3");
}

#[test]
fn w3_an_unlock_that_is_lost_without_a_cause() {
    let unlocked =
        |outcome, over, at| Made::default().takes("a", 0, 1, 5).ends("a", at, 1, over, outcome);
    unlocked(Outcome::Lost, false, 100).breaks("W3");
    unlocked(Outcome::Unavailable, false, 100).breaks("W3");
    unlocked(Outcome::Lost, true, VALID + 10).passes(&["W3"]);
    unlocked(Outcome::Lost, false, 100).fault(1, "server-emptied", 50, 60).passes(&["W3"]);
    unlocked(Outcome::Unavailable, false, 100).fault(1, "cut", 90, 95).passes(&["W3"]);
}

#[test]
fn h_nobody_gets_anything_while_too_few_servers_are_trusted() {
    let quarantine = std::time::Duration::from_secs(3);
    let three = Setting { nodes: 3, quarantine, ..setting() };
    let waits = |second: &str, until: u64| {
        let faults = Made::default().fault(1, "disk-lost", 100, 200).fault(2, second, 300, 400);
        faults.waits("b", 500, 1, Share::Alone).granted("b", until, 1, 9)
    };
    let breaks = |made: Made| check(&made.0, &three).violated().contains(&"H");
    assert!(!breaks(waits("server-read-only", 5_900)));
    assert!(breaks(waits("server-read-only", 6_400)), "they are trusted again, and it waits on");
    assert!(breaks(waits("cut", 4_000)), "the other two are a majority");
    // One fault may happen to several servers.
    let both = |node| What::Down { node };
    let waits = waits("cut", 4_000);
    let down = waits.add(DRIVER, 150, both(0)).add(DRIVER, 160, both(1));
    assert!(!breaks(down));
}

#[test]
fn w3_servers_that_nothing_disturbs_are_not_away() {
    let away = |made: Made| {
        made.asked("a", 5000, 1, How::Lock, None).refused("a", 5010, 1, Why::Unavailable)
    };
    let fault = |at| Made::default().fault(1, "cut", at, at + 20);
    away(Made::default()).breaks("W3");
    away(fault(100)).breaks("W3");
    away(fault(4900)).passes(&["W3"]);
    away(fault(5005)).passes(&["W3"]);
    away(Made::default().add(DRIVER, 5009, What::Stalled { from: (10_000 + 4700) * MS }))
        .passes(&["W3"]);
    // Grants do not count after a restart.
    let quarantine = Setting { quarantine: std::time::Duration::from_secs(5), ..setting() };
    assert_eq!(check(&away(fault(100)).0, &quarantine).violations, []);
    // An operator's call.
    let doing = What::Doing { op: 1, owner: 1, lock: "n".to_owned(), deed: Deed::Add(1) };
    Made::default().add("o", 0, doing).add("o", 10, What::Done { op: 1, done: None }).breaks("W3");
}

#[test]
fn o1_a_refusal_on_a_free_lock() {
    let tries = |made: Made, share| {
        let asks = made.add("c", 3000, asked(1, 1, &["n"], How::TryLock, share, None));
        asks.refused("c", 3001, 1, Why::Held).report().violated()
    };
    let none: [&str; 0] = [];
    let reads = || Made::default().shares("a", 2500, 1, READS, 5);
    assert_eq!(tries(Made::default(), READS), ["O1"]);
    assert_eq!(tries(reads(), Share::Alone), none);
    assert_eq!(tries(reads(), READS), ["O1"], "beside a reader");
    let behind = reads().waits("w", 2600, 1, Share::Alone).refused("w", 3100, 1, Why::Held);
    assert_eq!(tries(behind, READS), none, "behind a writer that waits");
    let freed = Made::default().takes("a", 2500, 1, 5).gives_back("a", 2900, 1);
    assert_eq!(tries(freed, Share::Alone), ["O1"], "it was given back");
    let two = || Made::default().shares("a", 2500, 1, permits(2), 0);
    assert_eq!(tries(two(), permits(1)), ["O1"], "one is left");
    assert_eq!(tries(two(), permits(2)), none);
    // Two who are refused had nothing, neither of them.
    let other =
        Made::default().add("b", 2990, asked(1, 1, &["n"], How::TryLock, Share::Alone, None));
    let other = other.refused("b", 2995, 1, Why::Held);
    assert_eq!(tries(other, Share::Alone), ["O1"]);
}

#[test]
fn s1_and_s2_beside_a_forced_unlock_without_an_answer() {
    let forced = || {
        let deed = Deed::ForceOut(None);
        let doing = What::Doing { op: 1000, owner: 9, lock: "n".to_owned(), deed };
        let cut = Made::default().takes("a", 0, 1, 5).fault(1, "cut", 5, 15);
        cut.add("o", 10, doing).add("o", 12, What::Done { op: 1000, done: None })
    };
    let told = |made: Made| made.lost("a", 400, 1, false);
    // It may have ended the hold of `a`, and then it has not ended that of `b`, which came after it.
    let beside = || forced().takes("b", 20, 1, 9);
    told(beside()).gives_back("b", 60, 1).passes(&["S1"]);
    told(beside().takes("c", 30, 1, 10).gives_back("c", 40, 1)).gives_back("b", 60, 1).breaks("S1");
    // Whoever asks behind one that has a token gets a higher one, whatever was forced.
    told(beside().gives_back("b", 30, 1).takes("c", 40, 1, 8).gives_back("c", 50, 1)).breaks("S2");
    told(beside().gives_back("b", 30, 1).takes("c", 40, 1, 10).gives_back("c", 50, 1))
        .passes(&["S2"]);
    // Also with the lease of another in its process.
    let late = asked(2, 2, &["n"], How::Lock, Share::Alone, None);
    let passed_on = |token| {
        beside().gives_back("b", 30, 1).add("a", 40, late.clone()).granted("a", 41, 2, token)
    };
    told(passed_on(4)).lost("a", 400, 2, false).breaks("S2");
}
