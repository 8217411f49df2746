//! Histories of queues, latches and signals: good ones, and a bad one for each rule.

use leasehold_faults::{
    checker::DRIVER,
    event::{How, Outcome, Share, What, Why},
};

use crate::made::{MS, Made, VALID, asked};

/// Two items, of which one is worked on and reported as done from 20 to 21.
fn worked_on() -> Made {
    pushed(Some(true)).lent("w", 10, 1, "a").ends("w", 20, 1, false, Outcome::Ok)
}

fn pushed(added: Option<bool>) -> Made {
    let items = ["a", "b"].map(str::to_owned).to_vec();
    Made::default().add("p", 0, What::Pushing { op: 1, items }).add(
        "p",
        1,
        What::Pushed { op: 1, added },
    )
}

impl Made {
    /// A pop that gives this item.
    fn lent(self, process: &str, at: u64, op: u64, item: &str) -> Self {
        let ask = asked(op, op, &["jobs"], How::Lock, Share::Lent, None);
        self.add(process, at, ask).granted_locks(process, at + 1, op, &[(item, 0)], 1)
    }

    /// What is left at the end.
    fn left(self, at: u64, waiting: &[&str], lent: &[&str], dead: &[&str]) -> Self {
        let [waiting, lent, dead] = [waiting, lent, dead]
            .map(|items| items.iter().map(|item| (*item).to_owned()).collect());
        self.add(DRIVER, at, What::Stock { node: 0, waiting, lent, dead })
    }
}

#[test]
fn items_that_are_somewhere_pass() {
    worked_on().left(90, &["b"], &[], &[]).passes(&["S1", "W3", "Q1"]);
    worked_on().left(90, &[], &["b"], &[]).passes(&["Q1"]);
    worked_on().left(90, &[], &[], &["b"]).passes(&["Q1"]);
    // Nobody knows whether they were added.
    pushed(None).left(90, &["a"], &[], &[]).passes(&["Q1"]);
    pushed(Some(false)).left(90, &[], &[], &[]).passes(&["Q1"]);
}

#[test]
fn s1_an_item_in_two_live_deliveries() {
    let two = |at| pushed(None).lent("w", 10, 1, "a").lent("v", at, 1, "a");
    two(20).breaks("S1");
    two(10 + VALID + 2).passes(&["S1"]);
    pushed(None).lent("w", 10, 1, "a").lent("v", 20, 1, "b").passes(&["S1"]);
}

#[test]
fn q1_an_item_that_is_nowhere() {
    worked_on().left(90, &[], &[], &[]).breaks("Q1");
    let emptied = |at| worked_on().fault(1, "server-emptied", at, at + 10);
    emptied(30).left(90, &[], &[], &[]).passes(&["Q1"]);
    // A report without an answer may have been taken in.
    let reported = worked_on().lent("w", 30, 2, "b").ends("w", 40, 2, false, Outcome::Unavailable);
    reported.fault(1, "cut", 35, 45).left(90, &[], &[], &[]).passes(&["Q1"]);
    let retried = |how| {
        let lent = worked_on().lent("w", 30, 2, "b");
        let given_back = lent.add("w", 40, What::Releasing { op: 2, how, over: false });
        given_back.add("w", 41, What::Released { op: 2, outcome: Outcome::Ok })
    };
    retried(How::Retry).left(90, &[], &[], &[]).breaks("Q1");
    retried(How::Unlock).left(90, &[], &[], &[]).passes(&["Q1"]);
}

#[test]
fn q1_an_item_in_two_places() {
    worked_on().left(90, &["b"], &[], &["b"]).breaks("Q1");
    worked_on().left(90, &["b", "b"], &[], &[]).breaks("Q1");
}

#[test]
fn q1_an_item_that_nobody_pushed() {
    worked_on().left(90, &["b", "c"], &[], &[]).breaks("Q1");
    pushed(None).lent("w", 10, 1, "c").breaks("Q1");
    pushed(Some(false)).lent("w", 10, 1, "a").breaks("Q1");
}

#[test]
fn q1_an_item_that_is_done_and_comes_again() {
    worked_on().left(90, &["a", "b"], &[], &[]).breaks("Q1");
    let again = worked_on().lent("v", 30, 1, "a");
    again.breaks("Q1");
    again.ends("v", 40, 1, false, Outcome::Ok).breaks("Q1");
}

#[test]
fn w2_a_delivery_that_is_over_is_not_given_back_as_if_it_were_not() {
    let over = |how| {
        let lent = pushed(None).lent("w", 10, 1, "a");
        let at = 20 + VALID;
        let given_back = lent.add("w", at, What::Releasing { op: 1, how, over: true });
        given_back.add("w", at + 1, What::Released { op: 1, outcome: Outcome::Ok })
    };
    over(How::Unlock).breaks("W2");
    over(How::Retry).breaks("W2");
    over(How::Reject).breaks("W2");
    over(How::Drop).passes(&["S1"]);
}

/// Nobody says when there is an item.
#[test]
fn who_waits_for_items_may_wait_for_long() {
    let waits = asked(1, 1, &["jobs"], How::Lock, Share::Lent, None);
    Made::default()
        .fault(1, "cut", 10, 20)
        .add("w", 0, waits)
        .refused("w", 9000, 1, Why::Dropped)
        .passes(&["O1"]);
}

/// A latch of two counts, of which so many begin at 10, 20 and so on, and are confirmed.
fn counted(times: u64) -> Made {
    let shut = What::Shut { latch: "l".to_owned(), counts: 2 };
    (1..=times).fold(Made::default().add("a", 0, shut), |made, op| {
        let latch = "l".to_owned();
        made.add("a", 10 * op, What::Counting { op, latch }).add(
            "a",
            10 * op + 1,
            What::CountedDown { op, counted: true },
        )
    })
}

fn seen(made: Made, from: u64, at: u64, is_open: Option<bool>) -> Made {
    let (latch, from) = ("l".to_owned(), (10_000 + from) * MS);
    made.add("b", at, What::LatchSeen { latch, from, is_open })
}

#[test]
fn q2_a_latch_that_opens_too_early() {
    seen(counted(2), 5, 25, Some(true)).passes(&["Q2"]);
    seen(counted(2), 5, 15, Some(true)).breaks("Q2");
    let emptied = counted(1).fault(1, "server-emptied", 2, 5);
    seen(emptied, 5, 25, Some(true)).breaks("Q2");
}

#[test]
fn q2_a_count_that_is_lost() {
    seen(counted(2), 5, 25, Some(false)).passes(&["Q2"]);
    seen(counted(2), 30, 35, Some(false)).breaks("Q2");
    seen(counted(2), 30, 35, None).breaks("Q2");
    let restarted = counted(2).fault(1, "server-restarted", 22, 25);
    seen(restarted, 30, 35, None).passes(&["Q2"]);
}

/// Signals given by two calls, from 10 to 12 and from 20 to 22.
fn given() -> Made {
    [(1, 10), (2, 20)].into_iter().fold(Made::default(), |made, (op, at)| {
        let notified = What::Notified { op, given: true };
        made.add("a", at, What::Notifying { op }).add("a", at + 2, notified)
    })
}

/// Who looked by `seen_at` and waits from `from` until `at` has seen number 5.
fn noticed(made: Made, [seen_at, from, at]: [u64; 3], number: u64, by: Option<&str>) -> Made {
    let [seen_at, from] = [seen_at, from].map(|at| (10_000 + at) * MS);
    let by = by.map(str::to_owned);
    made.add("b", at, What::Noticed { from, seen_at, seen: 5, number, by })
}

#[test]
fn q3_a_signal_that_is_lost_for_one_who_waits() {
    noticed(given(), [5, 30, 35], 7, Some("a 2")).passes(&["Q3"]);
    noticed(given(), [5, 30, 35], 5, None).breaks("Q3");
    noticed(given(), [5, 21, 35], 6, Some("a 1")).passes(&["Q3"]);
    noticed(given(), [5, 30, 35], 6, Some("a 1")).breaks("Q3");
    // It may have been seen, or be on its way.
    noticed(given(), [21, 30, 35], 5, None).passes(&["Q3"]);
    let emptied = given().fault(1, "server-emptied", 24, 26);
    noticed(emptied, [5, 30, 35], 5, None).passes(&["Q3"]);
}

#[test]
fn q3_what_nobody_has_given_and_a_number_that_does_not_rise() {
    noticed(given(), [5, 30, 35], 7, Some("a 3")).breaks("Q3");
    noticed(given(), [5, 6, 8], 6, Some("a 1")).breaks("Q3");
    noticed(given(), [5, 30, 35], 5, Some("a 2")).breaks("Q3");
}
