//! M1: who names which masters, and what it is told.

use leasehold_faults::{
    checker::DRIVER,
    event::{How, Outcome, What, Why},
};

use crate::made::{MS, Made};

const OLD: &str = "127.0.0.1:1 127.0.0.1:2 127.0.0.1:3";
const NEW: &str = "127.0.0.1:1 127.0.0.1:2 127.0.0.1:3 127.0.0.1:4";
const HELP: &str = "docs/deployments.md (\"To change the masters\"): SET leasehold_masters '";

impl Made {
    fn masters(self, at: u64, lists: &[&str], everywhere: bool) -> Self {
        let lists = lists.iter().map(|list| (*list).to_owned()).collect();
        self.add(DRIVER, at, What::Masters { lists, everywhere })
    }

    fn named(self, from: u64, to: u64, list: &str, refused: Option<String>) -> Self {
        let (list, since) = (list.to_owned(), (10_000 + from) * MS);
        self.add("a", to, What::Named { list, since, refused })
    }
}

/// The old list until 100, both until 200, and the new one from 250 on: it is typed from 200 on.
fn changed() -> Made {
    let old = Made::default().masters(0, &[OLD], true);
    let both = old.masters(90, &[OLD, NEW], false).masters(100, &[OLD, NEW], true);
    both.masters(200, &[NEW], false).masters(250, &[NEW], true)
}

fn help() -> Option<String> {
    Some(format!("used with `{OLD}`, and this client names `{NEW}`: {HELP}"))
}

#[test]
fn m1_who_names_masters_in_use_is_not_refused() {
    changed().named(10, 20, OLD, None).named(110, 120, NEW, None).passes(&["M1"]);
    changed().named(10, 20, OLD, help()).breaks("M1");
    changed().named(110, 120, OLD, help()).breaks("M1");
    changed().named(300, 310, NEW, help()).breaks("M1");
    changed().named(210, 220, NEW, help()).breaks("M1");
}

#[test]
fn m1_who_names_others_is_refused_and_told_what_to_do() {
    changed().named(10, 20, NEW, help()).named(260, 270, OLD, help()).passes(&["M1"]);
    changed().named(10, 20, NEW, None).breaks("M1");
    changed().named(260, 270, OLD, None).breaks("M1");
    changed().named(260, 270, OLD, Some(String::new())).breaks("M1");
    changed().named(260, 270, OLD, Some(format!("{OLD} {NEW}"))).breaks("M1");
    changed().named(260, 270, OLD, Some(format!("{HELP} {OLD}"))).breaks("M1");
}

#[test]
fn m1_while_it_is_typed_either_is_right() {
    for answer in [None, help()] {
        changed().named(210, 220, OLD, answer.clone()).passes(&["M1"]);
        changed().named(95, 99, NEW, answer.clone()).passes(&["M1"]);
        changed().named(240, 260, OLD, answer).passes(&["M1"]);
    }
}

#[test]
fn m1_no_call_of_a_contender_is_refused_for_its_masters() {
    let asked = || changed().asked("a", 300, 1, How::TryLock, None);
    asked().refused("a", 310, 1, Why::OtherMasters).breaks("M1");
    asked().granted("a", 310, 1, 5).ends("a", 320, 1, false, Outcome::OtherMasters).breaks("M1");
}
