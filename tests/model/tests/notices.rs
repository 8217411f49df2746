//! Latches and signals.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::notices::case::Kind::{Latch, Signal};
use leasehold_model::notices::case::{Case, Wrong};
use leasehold_model::notices::protocol::{
    BY_TIMER, ELSEWHERE, GOES_ON, GROUNDS, HEARD, NOT_EARLY, NUMBERS, Protocol, SHOWN, TOLD_LOST,
};

const LATCH: Case = Case::of(Latch, 3);
const SIGNAL: Case = Case::of(Signal, 2);
const SAFE: &[&str] = &[NOT_EARLY, GROUNDS, HEARD, NUMBERS, SHOWN];

// That the model moves at all.
checks! {
    a_latch_opens: happens(LATCH.moving().losing(1, 0), [GOES_ON, BY_TIMER, TOLD_LOST, ELSEWHERE]);
    a_signal_is_given_after_a_failover: happens(SIGNAL.failing_over(), [ELSEWHERE]);
}

// With the rules.
checks! {
    a_latch_keeps_the_rules: holds(LATCH.losing(1, 1), SAFE);
    a_latch_keeps_the_rules_while_its_slot_moves: holds(LATCH.moving().losing(1, 1), SAFE);
    a_latch_keeps_the_rules_over_a_failover: holds(LATCH.failing_over().losing(1, 1), SAFE);
    a_latch_with_an_end_keeps_the_rules: holds(LATCH.ending().failing_over(), SAFE);
    a_signal_keeps_the_rules: holds(SIGNAL.losing(1, 1), SAFE);
    a_signal_keeps_the_rules_while_its_slot_moves: holds(SIGNAL.moving().losing(1, 1), SAFE);
    a_signal_keeps_the_rules_over_a_failover:
        holds(Case::of(Signal, 3).failing_over().losing(1, 1), SAFE);
}

// The rules, each broken once.
checks! {
    a_count_that_deletes_first: fails(LATCH.moving().with(Wrong::DeletesFirst), [NOT_EARLY]);
    a_latch_that_is_gone_taken_for_open:
        fails(LATCH.failing_over().with(Wrong::GoneIsOpen), [NOT_EARLY]);
    a_latch_that_has_ended_taken_for_open:
        fails(LATCH.ending().with(Wrong::EndedIsOpen), [NOT_EARLY]);
    a_latch_listened_to_and_not_read: fails(LATCH.with(Wrong::ListensUnread), [HEARD]);
    a_latch_without_a_timer: fails(LATCH.losing(1, 0).with(Wrong::NoTimer), [HEARD]);
    a_latch_listened_to_where_it_was: fails(LATCH.moving().with(Wrong::StaysBehind), [HEARD]);
    a_signal_that_deletes_first: fails(SIGNAL.moving().with(Wrong::DeletesFirst), [SHOWN]);
    a_signal_numbered_without_time:
        fails(SIGNAL.failing_over().with(Wrong::NumbersWithoutTime), [NUMBERS]);
    a_signal_whose_number_comes_again:
        fails(SIGNAL.failing_over().with(Wrong::NumbersWithoutTime), [HEARD]);
}
