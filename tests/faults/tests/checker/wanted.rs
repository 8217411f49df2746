//! N1: what guards say when they are asked whether their lock is wanted.

use leasehold_faults::event::{How, What, Why};

use crate::made::Made;

/// A process that has the lock for long, is asked from 100 on, and says yes at `told`.
fn holds(told: Option<u64>) -> Made {
    let made = Made::default().takes("a", 0, 1, 5);
    let made = made.add("a", 100, What::AsksWhetherWanted { op: 1 });
    let until = (10_000 + 20_000) * crate::made::MS;
    let made = made.add("a", 101, What::Renewed { op: 1, until, latest: until });
    told.into_iter().fold(made, |made, at| made.add("a", at, What::Wanted { op: 1 }))
}

#[test]
fn n1_a_lock_is_wanted_by_who_waits_for_it_and_for_a_while_after() {
    let dropped = |told| {
        holds(Some(told))
            .asked("b", 50, 1, How::Lock, None)
            .refused("b", 200, 1, Why::Dropped)
            .gives_back("a", told + 10, 1)
    };
    dropped(150).passes(&["N1"]);
    dropped(5100).passes(&["N1"]);
    dropped(5300).breaks("N1");
    dropped(5300).fault(1, "cut", 5250, 5290).passes(&["N1"]);
}

#[test]
fn n1_a_lock_is_not_wanted_by_nobody() {
    holds(Some(300)).gives_back("a", 310, 1).breaks("N1");
    let early = holds(Some(300)).gives_back("a", 310, 1);
    early.takes("b", 320, 1, 9).gives_back("b", 330, 1).breaks("N1");
}

#[test]
fn n1_who_waits_is_known_in_time_unless_there_is_a_fault() {
    let waits = |told, given_back| {
        holds(told)
            .asked("b", 200, 1, How::Lock, None)
            .gives_back("a", given_back, 1)
            .granted("b", given_back + 5, 1, 9)
            .gives_back("b", given_back + 10, 1)
    };
    waits(None, 4700).passes(&[]);
    waits(None, 5200).breaks("N1");
    waits(Some(4900), 5200).passes(&["N1"]);
    waits(None, 5200).fault(1, "cut", 2000, 2010).passes(&[]);
}
