//! Clients that name different masters.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::lists::case::{Case, Set, Step, Wrong};
use leasehold_model::lists::protocol::{CHANGED, EXCLUSION, Protocol, REFUSED, THROUGH};

const SAFE: &[&str] = &[EXCLUSION];

const ABC: Set = 0b00111;
const ABD: Set = 0b01011;
const ABCD: Set = 0b01111;
const ABCDE: Set = 0b11111;
const ADE: Set = 0b11001;

/// One of three is another one.
const ONE_CHANGED: Case = Case::of(&[ABC, ABD], &[0, 0, 1]);
/// Three have become five.
const GROWN: Case = Case::of(&[ABC, ABCDE], &[0, 1]);
/// Two of three are others.
const TWO_CHANGED: Case = Case::of(&[ABC, ADE], &[0, 0, 1]).all_answer();

/// As the page on deployments says: one is replaced by way of four.
const REPLACED: Case = Case::of(&[ABC, ABCD, ABD], &[0, 1, 2]).steps(&[
    Step { runs: 0b001, idle: 0, lists: 0b011, on: ABCD },
    Step { runs: 0b011, idle: 0, lists: 0, on: 0 },
    Step { runs: 0b010, idle: 0, lists: 0b110, on: ABCD },
    Step { runs: 0b110, idle: 0, lists: 0, on: 0 },
    Step { runs: 0b100, idle: 0, lists: 0b100, on: ABD },
]);
/// Both lists are allowed at once.
const BOTH: Case =
    Case::of(&[ABC, ABD], &[0, 1]).steps(&[Step { runs: 0b11, idle: 0b11, lists: 0b11, on: ABCD }]);
/// Clients with the old list were forgotten, and hold nothing when the new one is typed.
const FORGOTTEN: Case = Case::of(&[ABC, ABD], &[0, 0, 1]).steps(&[
    Step { runs: 0b011, idle: 0b011, lists: 0b10, on: ABD },
    Step { runs: 0b111, idle: 0, lists: 0, on: 0 },
]);
/// Those with the new one are there while it is typed.
const TOO_EARLY: Case =
    Case::of(&[ABC, ABD], &[0, 1]).steps(&[Step { runs: 0b11, idle: 0b01, lists: 0b10, on: ABD }]);

// That the model moves at all.
checks! {
    others_are_told: happens(ONE_CHANGED, [REFUSED]);
    a_server_is_replaced: happens(REPLACED, [CHANGED, THROUGH]);
    after_a_change_the_new_list_is_used: happens(FORGOTTEN, [CHANGED, REFUSED]);
}

// With the rules.
checks! {
    one_of_three_changed: holds(ONE_CHANGED, SAFE);
    one_of_three_changed_and_a_restart: holds(ONE_CHANGED.restarts(1), SAFE);
    three_and_five: holds(GROWN.restarts(1), SAFE);
    two_of_three_changed: holds(TWO_CHANGED, SAFE);
    new_servers: holds(ONE_CHANGED.new_servers().all_answer().restarts(1), SAFE);
    a_server_replaced_in_steps: holds(REPLACED, SAFE);
    a_server_replaced_in_steps_and_a_restart: holds(REPLACED.restarts(1), SAFE);
    lists_that_cannot_be_used_together: holds(BOTH, SAFE);
    old_clients_forgotten: holds(FORGOTTEN, SAFE);
}

// The rules, each broken once.
checks! {
    lists_not_compared: fails(ONE_CHANGED.with(Wrong::NotCompared), [EXCLUSION]);
    three_and_five_not_compared: fails(GROWN.with(Wrong::NotCompared), [EXCLUSION]);
    lists_not_compared_behind_the_grant:
        fails(FORGOTTEN.with(Wrong::NotBehindTheGrant), [EXCLUSION]);
    the_others_vote: fails(TWO_CHANGED.with(Wrong::OthersVote), [EXCLUSION]);
    a_stranger_writes: fails(ONE_CHANGED.restarts(1).with(Wrong::StrangerWrites), [EXCLUSION]);
    not_written_back: fails(ONE_CHANGED.restarts(1).with(Wrong::NotWrittenBack), [EXCLUSION]);
    new_clients_started_too_early: fails(TOO_EARLY, [EXCLUSION]);
    new_servers_before_all_have_answered: fails(ONE_CHANGED.new_servers(), [EXCLUSION]);
    any_lists_together: fails(BOTH.with(Wrong::AnyTogether), [EXCLUSION]);
}
