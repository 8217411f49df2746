//! Tasks of one process that pass a lease among themselves.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::passing::case::{Case, Wrong};
use leasehold_model::passing::protocol::{
    BOUND, EXCLUSION, LEFTOVER, Protocol, SENT, SENT_FOR, TAKEN_BACK, TOKENS, TOLD, USED,
};

const ALL: &[&str] = &[EXCLUSION, TOKENS, BOUND, SENT, USED, TOLD, LEFTOVER];

const TWO: Case = Case::of(2, 2, 4);

// That the model moves at all.
checks! {
    a_lease_is_taken_back: happens(TWO, [TAKEN_BACK, SENT_FOR]);
}

// With the rules.
checks! {
    two_tasks_that_take_turns: holds(TWO, ALL);
    two_tasks_and_a_forced_unlock: holds(TWO.forces(1), ALL);
    three_tasks: holds(Case::of(3, 2, 4), ALL);
    two_tasks_and_two_turns_of_the_other: holds(Case::of(2, 3, 4).others(2), ALL);
}

// The rules, each broken once.
checks! {
    a_lease_of_any_age_taken_back: fails(TWO.with(Wrong::TakenBackAtAnyAge), [BOUND]);
    the_token_kept: fails(TWO.with(Wrong::TokenKept), [TOKENS]);
    an_unlock_that_is_dropped_sends_nothing: fails(TWO.with(Wrong::NotSentWhenDropped), [SENT]);
    an_unlock_that_is_not_polled_sends_nothing: fails(TWO.with(Wrong::NotSentAtTheEnd), [SENT]);
    who_cannot_use_it_waits_for_it: fails(TWO.with(Wrong::NotSentForOthers), [USED]);
    a_loss_is_not_told: fails(TWO.forces(1).with(Wrong::NotTold), [TOLD]);
    a_release_sent_after_all: fails(TWO.with(Wrong::SentAfterAll), [EXCLUSION]);
}
