//! The checker itself: histories made by hand, good ones that pass and one bad one for each invariant.

mod deadlocks;
mod deeds;
mod kinds;
mod lists;
mod little;
mod made;
mod servers;
mod stalls;
mod wanted;
mod work;

use leasehold_faults::{
    checker::DRIVER,
    event::{How, Outcome, Share, What, Why},
    history::History,
    journal::Journal,
};

use made::{MS, Made, VALID, asked};

#[test]
fn turns_one_after_the_other_pass() {
    Made::default()
        .takes("a", 0, 1, 5)
        .asked("b", 5, 1, How::LockWithTimeout, Some(500))
        .gives_back("a", 300, 1)
        .granted("b", 320, 1, 9)
        .gives_back("b", 330, 1)
        .passes(&["S1", "S2", "S3", "L2", "T1", "O1"]);
}

#[test]
fn s1_two_holds_at_once() {
    let a = Made::default().takes("a", 0, 1, 5);
    a.takes("b", 100, 1, 9).gives_back("b", 120, 1).gives_back("a", 200, 1).breaks("S1");
}

#[test]
fn s1_a_killed_holders_hold_lasts_until_its_deadline() {
    let killed = |at| Made::default().takes("a", 0, 1, 5).takes("b", at, 1, 9);
    killed(VALID - 2).breaks("S1");
    killed(VALID + 1).passes(&["S1"]);
}

#[test]
fn s1_a_renewal_moves_the_end() {
    let until = (10_000 + 300 + VALID) * MS;
    let renewed = What::Renewed { op: 1, until, latest: until };
    let a = Made::default().takes("a", 0, 1, 5).add("a", 301, renewed);
    a.takes("b", VALID + 50, 1, 9).breaks("S1");
}

#[test]
fn s1_a_long_hold_is_seen_behind_a_short_one() {
    let a = Made::default().takes("a", 0, 1, 5);
    let b = a.takes("b", 100, 1, 6).gives_back("b", 110, 1);
    let report = b.takes("c", 200, 1, 7).gives_back("c", 210, 1).report();
    let overlaps = report.violations.iter().filter(|violation| violation.invariant == "S1");
    assert_eq!(overlaps.count(), 2, "{:#?}", report.violations);
}

#[test]
fn s1_a_thread_that_is_kept_waiting_is_told_late_what_its_process_has_lost() {
    let next = |process: &str, stalled: bool| {
        let cut = Made::default().takes("a", 0, 1, 5).fault(1, "cut", 50, 60);
        let lost = cut.takes(process, 100, 2, 9);
        let from = if stalled { 90 } else { 110 };
        let stall = What::Stalled { from: (10_000 + from) * MS };
        lost.lost("a", 120, 1, false).add("a", 121, stall).gives_back(process, 130, 2)
    };
    next("a", true).passes(&["S1"]);
    next("a", false).breaks("S1");
    next("b", true).breaks("S1");
}

#[test]
fn s1_what_is_told_as_lost_is_over() {
    Made::default()
        .takes("a", 0, 1, 5)
        .fault(1, "cut", 50, 60)
        .lost("a", 100, 1, false)
        .takes("b", 110, 1, 9)
        .passes(&["S1"]);
}

#[test]
fn what_a_process_that_stood_still_is_granted_when_it_is_over_is_no_hold() {
    let granted = |left_ms: u64, stalled: bool| {
        let at = (10_000 + 1100) * MS;
        let (id, until) = ("b:1".into(), at + left_ms * MS);
        let tokens = vec![("n".into(), 4)];
        let (ttl_ms, latest) = (made::TTL_MS, until);
        let grant = What::Granted { op: 1, id, tokens, count: 1, ttl_ms, until, latest };
        let stall = What::Stalled { from: (10_000 + if stalled { 110 } else { 1101 }) * MS };
        let first = Made::default().takes("c", 60, 1, 3);
        let asked = first.asked("b", 100, 1, How::Lock, None).gives_back("c", 1045, 1);
        let a = asked.takes("a", 1050, 1, 5);
        a.add("b", 1100, grant)
            .add("b", 1102, stall)
            .gives_back("b", 1104, 1)
            .gives_back("a", 1200, 1)
    };
    granted(0, true).passes(&["S1", "S2"]);
    granted(0, false).breaks_all(&["S1", "S2"]);
    granted(1, true).breaks_all(&["S1", "S2"]);
}

#[test]
fn s2_a_token_that_is_not_higher() {
    for token in [5, 4] {
        let a = Made::default().takes("a", 0, 1, 5).gives_back("a", 10, 1);
        a.takes("b", 20, 1, token).gives_back("b", 30, 1).breaks("S2");
    }
}

#[test]
fn s2_a_register_that_takes_a_smaller_token() {
    let writes = Made::default().wrote("a", 0, 9, 1, true);
    writes.wrote("b", 10, 8, 2, true).breaks("S2");
}

#[test]
fn s2_a_holder_whose_token_is_refused() {
    let writes = Made::default().wrote("a", 0, 9, 1, true);
    writes.wrote("b", 10, 8, 2, false).breaks("S2");
}

#[test]
fn s2_a_register_that_refuses_who_does_not_hold_passes() {
    let what =
        What::Wrote { op: 0, lock: "n".into(), token: 8, number: 2, accepted: false, held: false };
    Made::default().wrote("a", 0, 9, 1, true).add("b", 10, what).passes(&["register"]);
}

/// Two guards of one owner.
fn nested(count: u32) -> Made {
    let asked = |op| asked(op, 1, &["n"], How::Lock, Share::Alone, None);
    Made::default()
        .add("a", 0, asked(1))
        .granted_as("a", 1, 1, 5, 1)
        .add("a", 10, asked(2))
        .granted_as("a", 11, 2, 5, count)
        .gives_back("a", 20, 1)
        .gives_back("a", 30, 2)
}

#[test]
fn s3_a_count_that_does_not_fit() {
    nested(2).passes(&["S3"]);
    nested(3).breaks("S3");
    nested(1).breaks("S3");
}

#[test]
fn s3_a_server_that_counts_more_or_less() {
    let counted = |made: Made, server| made.add("a", 10, What::Counted { op: 1, local: 2, server });
    counted(Made::default(), 2).passes(&["S3"]);
    counted(Made::default(), 3).breaks("S3");
    counted(Made::default(), 1).breaks("S3");
    // In a fault it may not have been written down.
    counted(Made::default().fault(1, "out-of-memory", 0, 5), 1).passes(&["S3"]);
    counted(Made::default().fault(1, "out-of-memory", 0, 5), 3).breaks("S3");
}

#[test]
fn r1_something_left_at_the_end() {
    let ended = |owed| What::Ended { gates: 0, waiters: 0, subscriptions: 0, owed, holds: 0 };
    Made::default().add("a", 0, ended(0)).passes(&["R1"]);
    Made::default().add("a", 0, ended(1)).breaks("R1");
    Made::default().add(DRIVER, 0, What::Left { node: 0, key: "n".into() }).breaks("R1");
}

#[test]
fn w2_a_loss_told_late() {
    let told = |at| Made::default().takes("a", 0, 1, 5).over("a", at, 1);
    told(VALID + 40).passes(&["W2"]);
    told(VALID + 70).breaks("W2");
    told(VALID + 70)
        .add("a", VALID + 71, What::Stalled { from: (10_000 + VALID) * MS })
        .passes(&["W2"]);
}

#[test]
fn w2_a_loss_never_told() {
    let a = Made::default().takes("a", 0, 1, 5);
    a.lives("a", 5000).breaks("W2");
    Made::default().takes("a", 0, 1, 5).lives("a", 500).passes(&["S1"]);
}

#[test]
fn w2_held_after_it_was_told_as_lost() {
    Made::default()
        .takes("a", 0, 1, 5)
        .fault(1, "cut", 50, 60)
        .lost("a", 100, 1, true)
        .breaks("W2");
}

#[test]
fn w2_an_unlock_that_is_ok_past_the_deadline() {
    let a = || Made::default().takes("a", 0, 1, 5);
    a().ends("a", VALID + 10, 1, true, Outcome::Ok).breaks("W2");
    a().ends("a", VALID + 10, 1, true, Outcome::Lost).passes(&["S1"]);
}

/// A holder is killed while another waits.
fn killed() -> Made {
    Made::default()
        .takes("a", 0, 1, 5)
        .asked("b", 5, 1, How::Lock, None)
        .fault(1, "client-killed", 10, 11)
        .add(DRIVER, 10, What::Killed { process: "a".into(), number: 1 })
}

#[test]
fn l1_a_killed_holders_lock_that_nobody_gets() {
    killed().granted("b", 1050, 1, 9).passes(&["L1"]);
    // Late, but within the two times to live of H.
    killed().granted("b", 1300, 1, 9).breaks("L1");
}

#[test]
fn l1_who_waits_behind_one_that_was_killed_too_hears_of_nothing() {
    let behind = |asked_at| {
        let dead = killed().asked("c", asked_at, 1, How::Lock, None);
        dead.add(DRIVER, 8, What::Killed { process: "c".into(), number: 1 })
    };
    behind(4).granted("b", 1300, 1, 9).passes(&[]);
    let later = behind(4).granted("b", 1300, 1, 9);
    later.add(DRIVER, 1400, What::Killed { process: "b".into(), number: 1 }).passes(&[]);
    behind(6).granted("b", 1300, 1, 9).breaks("L1");
}

#[test]
fn l2_a_release_that_wakes_nobody() {
    let waits = || {
        Made::default()
            .takes("a", 0, 1, 5)
            .asked("b", 5, 1, How::Lock, None)
            .gives_back("a", 300, 1)
    };
    waits().granted("b", 345, 1, 9).passes(&["L2"]);
    waits().granted("b", 400, 1, 9).breaks("L2");
}

#[test]
fn l2_a_machine_that_stands_still_again_and_again_wakes_late() {
    let late = |stalls: &[(u64, u64)]| {
        let asked = Made::default().takes("a", 0, 1, 5).asked("b", 5, 1, How::Lock, None);
        let given_back = asked.gives_back("a", 300, 1);
        let stalled = stalls.iter().fold(given_back, |made, (from, to)| {
            made.add(DRIVER, *to, What::Stalled { from: (10_000 + from) * MS })
        });
        stalled.granted("b", 620, 1, 9)
    };
    late(&[(300, 400), (390, 500), (490, 600)]).passes(&["L2"]);
    late(&[(300, 400), (490, 600)]).breaks("L2");
}

/// The server's messages for it are lost until it has found that.
#[test]
fn l2_a_client_whose_subscription_is_over_for_the_server_only_need_not_be_woken_yet() {
    let waits = |at| {
        Made::default()
            .fault(1, "half-closed", 10, 20)
            .takes("a", at, 1, 5)
            .asked("b", at + 5, 1, How::Lock, None)
            .gives_back("a", at + 300, 1)
            .granted("b", at + 400, 1, 9)
    };
    waits(3000).passes(&["S1"]);
    waits(8000).breaks("L2");
}

#[test]
fn l2_who_gives_up_need_not_be_woken() {
    Made::default()
        .takes("a", 0, 1, 5)
        .asked("b", 5, 1, How::LockWithTimeout, Some(310))
        .gives_back("a", 300, 1)
        .refused("b", 316, 1, Why::Held)
        .passes(&["T1"]);
}

#[test]
fn h_a_waiter_that_waits_on_after_the_last_fault() {
    let waits = || Made::default().asked("b", 5, 1, How::Lock, None).fault(1, "cut", 10, 20);
    waits().granted("b", 2000, 1, 9).passes(&["H"]);
    waits().granted("b", 2200, 1, 9).breaks_all(&["H", "L2"]);
    // Never at all.
    waits().lives("b", 4000).breaks_all(&["H", "L2"]);
}

#[test]
fn h_waiting_behind_holders_counts_for_nothing() {
    let mut made = Made::default().asked("b", 5, 1, How::Lock, None).fault(1, "cut", 10, 20);
    for turn in 0..8 {
        made = made.takes("a", 30 + turn * 500, turn, 5 + turn);
        made = made.gives_back("a", 30 + turn * 500 + 480, turn);
    }
    let report = made.granted("b", 4100, 1, 99).report();
    assert!(!report.violated().contains(&"H"), "{:#?}", report.violations);
}

#[test]
fn t1_a_wait_that_ends_early_or_late() {
    let gave_up = |at: u64| {
        let held = Made::default().takes("b", 0, 1, 5);
        let asked = held.asked("a", 10, 1, How::LockWithTimeout, Some(200));
        asked.refused("a", 10 + at, 1, Why::Held)
    };
    gave_up(200).passes(&["T1"]);
    gave_up(199).breaks("T1");
    gave_up(240).passes(&["T1"]);
    gave_up(260).breaks("T1");
}

#[test]
fn t1_one_attempt_that_takes_too_long() {
    let asked = |at| Made::default().asked("a", 0, 1, How::TryLock, None).granted("a", at, 1, 5);
    asked(640).passes(&["T1"]);
    asked(660).breaks("T1");
}

#[test]
fn o1_an_error_that_nothing_explains() {
    let refused = |why| Made::default().asked("a", 0, 1, How::Lock, None).refused("a", 10, 1, why);
    refused(Why::Unavailable).fault(1, "cut", 0, 20).passes(&["O1"]);
    refused(Why::Unexpected).breaks("O1");
    refused(Why::Denied).breaks("O1");
    refused(Why::Denied).fault(1, "right-taken", 0, 20).passes(&["O1"]);
    refused(Why::Denied).fault(1, "cut", 0, 20).breaks("O1");
}

#[test]
fn o1_a_grant_that_no_server_can_have_given() {
    let down = || Made::default().add(DRIVER, 0, What::Down { node: 0 });
    let up = |made: Made| made.add(DRIVER, 2000, What::Up { node: 0 });
    up(down().takes("a", 400, 1, 5)).breaks("O1");
    up(down().takes("a", 100, 1, 5)).passes(&["S1"]);
    up(down().takes("a", 2100, 1, 5)).passes(&["S1"]);
}

#[test]
fn o1_told_as_held_by_a_server_that_is_down() {
    Made::default()
        .takes("b", 0, 1, 5)
        .add(DRIVER, 10, What::Down { node: 0 })
        .asked("a", 400, 1, How::TryLock, None)
        .refused("a", 410, 1, Why::Held)
        .add(DRIVER, 800, What::Up { node: 0 })
        .gives_back("b", 900, 1)
        .breaks("O1");
}

#[test]
fn o1_told_as_held_when_nobody_can_hold_it() {
    let refused =
        |made: Made| made.asked("a", 600, 1, How::TryLock, None).refused("a", 601, 1, Why::Held);
    refused(Made::default().takes("b", 0, 1, 5).gives_back("b", 10, 1)).breaks("O1");
    refused(Made::default().takes("b", 0, 1, 5)).passes(&["O1"]);
}

#[test]
fn a_journal_is_read_as_it_was_written() {
    let dir = std::env::temp_dir().join(format!("leasehold-faults-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let journal = Journal::create(&dir.join("a.log")).expect("a file");
    let made = killed().gives_back("a", 9, 1);
    for event in &made.0.processes["a"] {
        journal.write_at(event.at, event.what.clone());
    }
    // A process that is killed may leave half a line.
    let mut file = std::fs::OpenOptions::new().append(true).open(dir.join("a.log")).expect("open");
    std::io::Write::write_all(&mut file, b"{\"at\":17,\"eve").expect("written");
    let read = History::read(&dir).expect("read");
    assert_eq!(read.processes["a"], made.0.processes["a"]);
    std::fs::remove_dir_all(&dir).expect("removed");
}
