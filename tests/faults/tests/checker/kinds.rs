//! Histories of read-write locks, semaphores, multi locks and elections: good ones, and a bad one for each rule.

use leasehold_faults::{
    checker::{DRIVER, Setting, check},
    event::{How, Outcome, Share, What, Why},
};

use crate::made::{Made, VALID, asked, setting};

fn permits(weight: u32) -> Share {
    Share::Permits { weight, all: 3 }
}

#[test]
fn readers_share_and_writers_come_one_after_the_other() {
    Made::default()
        .takes("w", 0, 1, 5)
        .gives_back("w", 10, 1)
        .shares("a", 20, 1, Share::Reads, 5)
        .shares("b", 25, 1, Share::Reads, 5)
        .shares("a", 30, 2, Share::Reads, 5)
        .gives_back("a", 35, 1)
        .gives_back("a", 40, 2)
        .gives_back("b", 45, 1)
        .takes("w", 50, 2, 6)
        .gives_back("w", 60, 2)
        .passes(&["S1", "S2", "S3"]);
}

#[test]
fn s1_a_writer_beside_a_reader_whoever_came_first() {
    let reader = || Made::default().shares("a", 0, 1, Share::Reads, 5);
    reader().takes("w", 20, 1, 6).gives_back("w", 30, 1).gives_back("a", 40, 1).breaks("S1");
    let writer = Made::default().takes("w", 0, 1, 5);
    writer
        .shares("a", 20, 1, Share::Reads, 5)
        .gives_back("a", 30, 1)
        .gives_back("w", 40, 1)
        .breaks("S1");
    // A reader that is killed reads until its own end.
    reader().takes("w", VALID - 5, 1, 6).breaks("S1");
    reader().takes("w", VALID + 5, 1, 6).passes(&["S1"]);
}

#[test]
fn s1_a_writer_beside_the_second_of_two_readers() {
    Made::default()
        .shares("a", 0, 1, Share::Reads, 5)
        .shares("b", 5, 1, Share::Reads, 5)
        .gives_back("a", 10, 1)
        .takes("w", 20, 1, 6)
        .gives_back("w", 30, 1)
        .gives_back("b", 40, 1)
        .breaks("S1");
}

#[test]
fn s2_readers_have_the_version_of_the_writer_before_them() {
    let written = |token| {
        let w = Made::default().takes("w", 0, 1, 5).gives_back("w", 10, 1);
        w.shares("a", 20, 1, Share::Reads, token).gives_back("a", 30, 1)
    };
    written(4).breaks("S2");
    written(5).passes(&["S2"]);
    written(9).passes(&["S2"]);
    // T2: below every later writer.
    let later = |token| written(9).takes("w", 40, 2, token).gives_back("w", 50, 2);
    later(10).passes(&["S2"]);
    later(9).breaks("S2");
}

#[test]
fn s2_a_failover_may_lose_the_last_writers_token_for_readers_only() {
    let fails_over = Setting { fails_over: true, ..setting() };
    let made = Made::default().takes("w", 0, 1, 5).gives_back("w", 10, 1);
    let reader = made.shares("a", 20, 1, Share::Reads, 4).gives_back("a", 30, 1);
    assert_eq!(check(&reader.0, &fails_over).violations, []);
    let writer = reader.takes("w", 40, 2, 4).gives_back("w", 50, 2);
    assert_eq!(check(&writer.0, &fails_over).violated(), ["S2"]);
}

/// A writer of process `a` becomes a reader with the token 9.
fn downgraded(over: bool) -> Made {
    let downgrades = asked(2, 1, &["n"], How::Downgrade, Share::Reads, None);
    Made::default()
        .takes("a", 0, 1, 5)
        .add("a", 10, What::Releasing { op: 1, how: How::Downgrade, over })
        .add("a", 10, downgrades)
        .granted("a", 20, 2, 9)
        .add("a", 20, What::Released { op: 1, outcome: Outcome::Ok })
}

#[test]
fn s1_a_writer_between_a_writer_and_the_reader_that_it_becomes() {
    downgraded(false).gives_back("a", 30, 2).passes(&["S1", "S2", "S3"]);
    let between = |token| {
        let writer = Made::default().takes("b", 13, 1, token).gives_back("b", 15, 1);
        let mut made = downgraded(false).gives_back("a", 30, 2);
        made.0.processes.extend(writer.0.processes);
        made
    };
    between(7).breaks("S1");
}

#[test]
fn w2_a_downgrade_that_is_ok_past_the_deadline() {
    downgraded(true).gives_back("a", 30, 2).breaks("W2");
}

#[test]
fn s3_a_reader_that_reads_again_counts() {
    let nested = |count| {
        Made::default()
            .shares("a", 0, 1, Share::Reads, 5)
            .add("a", 5, asked(2, 1, &["n"], How::Lock, Share::Reads, None))
            .granted_as("a", 6, 2, 5, count)
            .gives_back("a", 20, 2)
            .gives_back("a", 30, 1)
    };
    nested(2).passes(&["S3"]);
    nested(1).breaks("S3");
}

#[test]
fn s5_more_permits_than_there_are() {
    let two = || Made::default().shares("a", 0, 1, permits(2), 0);
    let beside = |made: Made, weight| made.shares("b", 10, 1, permits(weight), 0);
    beside(two(), 1).passes(&["S5"]);
    beside(two(), 2).breaks("S5");
    beside(two().gives_back("a", 5, 1), 3).passes(&["S5"]);
    // One by one.
    beside(two(), 1).shares("c", 20, 1, permits(1), 0).breaks("S5");
}

#[test]
fn s5_spent_permits_are_out_until_their_lease_ends() {
    let spent = || {
        let a = Made::default().shares("a", 0, 1, permits(3), 0);
        let spends = What::Releasing { op: 1, how: How::Spend, over: false };
        a.add("a", 5, spends).add("a", 5, What::Released { op: 1, outcome: Outcome::Ok })
    };
    spent().shares("b", 20, 1, permits(1), 0).breaks("S5");
    spent().shares("b", VALID + 5, 1, permits(1), 0).passes(&["S5"]);
    spent().lives("a", 5000).passes(&["S5"]);
}

/// Process `a` asks for two locks at once, and has these.
fn several(tokens: &[(&str, u64)]) -> Made {
    Made::default()
        .add("a", 0, asked(1, 1, &["n", "m"], How::Several, Share::Alone, None))
        .granted_locks("a", 10, 1, tokens, 1)
}

#[test]
fn s6_a_multi_lock_that_lacks_one_of_its_locks() {
    several(&[("n", 5), ("m", 7)]).gives_back("a", 20, 1).passes(&["S6"]);
    several(&[("n", 5)]).gives_back("a", 20, 1).breaks("S6");
    several(&[("n", 5), ("m", 7), ("k", 1)]).gives_back("a", 20, 1).breaks("S6");
}

#[test]
fn s1_a_multi_lock_excludes_others_from_each_of_its_locks() {
    let both = || several(&[("n", 5), ("m", 7)]);
    both().takes("b", 15, 1, 6).gives_back("b", 18, 1).gives_back("a", 20, 1).breaks("S1");
    both().gives_back("a", 20, 1).takes("b", 25, 1, 6).gives_back("b", 28, 1).passes(&["S1"]);
    both().gives_back("a", 20, 1).takes("b", 25, 1, 5).gives_back("b", 28, 1).breaks("S2");
}

#[test]
fn l2_who_loses_interest_may_have_had_the_free_lock() {
    let beside = |how, at| {
        Made::default()
            .takes("a", 0, 1, 5)
            .asked("b", 5, 1, How::Lock, None)
            .gives_back("a", 300, 1)
            .asked("c", 310, 1, how, None)
            .refused("c", 340, 1, Why::Dropped)
            .granted("b", at, 1, 9)
            .gives_back("b", 610, 1)
    };
    beside(How::Observe, 420).breaks("L2");
    beside(How::Lock, 420).passes(&["L2"]);
    // It has given it back long ago.
    beside(How::Lock, 600).breaks("L2");
}

#[test]
fn l2_who_waits_for_several_locks_may_have_the_free_one() {
    let waits = |how, locks: &[&str]| {
        Made::default()
            .takes("a", 0, 1, 5)
            .asked("b", 5, 1, How::Lock, None)
            .add("c", 6, asked(1, 1, locks, how, Share::Alone, None))
            .gives_back("a", 300, 1)
            .granted("b", 600, 1, 9)
            .gives_back("b", 610, 1)
            .refused("c", 620, 1, Why::Held)
    };
    waits(How::Several, &["m", "k"]).breaks("L2");
    waits(How::Several, &["m", "n"]).passes(&[]);
}

#[test]
fn l1_the_lock_of_a_killed_writer_that_nobody_gets() {
    let killed = |share| {
        Made::default()
            .shares("a", 0, 1, share, 5)
            .add("b", 5, asked(1, 1, &["n"], How::Lock, Share::Reads, None))
            .fault(1, "client-killed", 10, 11)
            .add(DRIVER, 10, What::Killed { process: "a".into(), number: 1 })
            .granted("b", 1300, 1, 9)
    };
    killed(Share::Alone).breaks("L1");
    // Others may read beside a reader.
    killed(Share::Reads).passes(&["S1"]);
}

#[test]
fn s2_an_observer_that_is_shown_an_earlier_term() {
    let shown = |terms: [u64; 3]| {
        let asked = asked(1, 1, &["n"], How::Observe, Share::Alone, None);
        terms.into_iter().fold(Made::default().add("a", 0, asked), |made, term| {
            made.add("a", 10, What::Shown { op: 1, term })
        })
    };
    shown([5, 5, 6]).passes(&["S2"]);
    shown([5, 6, 5]).breaks("S2");
}

#[test]
fn r1_permits_that_do_not_come_back() {
    let pool = |left, ended, out| {
        let lock = "permits".to_owned();
        Made::default().add(DRIVER, 0, What::Pool { node: 0, lock, left, ended, out })
    };
    pool(3, 0, 0).passes(&["R1"]);
    pool(1, 2, 0).passes(&["R1"]);
    pool(2, 0, 0).breaks("R1");
    pool(2, 2, 0).breaks("R1");
    pool(2, 0, 1).breaks("R1");
}

#[test]
fn o1_a_kind_that_works_on_one_server_only() {
    let asked = || {
        let asked = asked(1, 1, &["permits"], How::Lock, permits(1), None);
        Made::default().add("a", 0, asked)
    };
    let granted = || asked().granted_locks("a", 1, 1, &[("permits", 0)], 1);
    let refused = || asked().refused("a", 1, 1, Why::OneServerOnly);
    granted().passes(&["O1"]);
    refused().breaks("O1");
    let three = Setting { nodes: 3, ..setting() };
    assert_eq!(check(&granted().0, &three).violated(), ["O1"]);
    assert_eq!(check(&refused().0, &three).violations, []);
}
