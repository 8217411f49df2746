//! Leases that are renewed in one call.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::together::case::{Case, Wrong};
use leasehold_model::together::protocol::{
    ALONE, BEHIND, EXCLUSION, FORCED, GROUNDS, LEFTOVER, OUTLIVED, Protocol,
};

const ALL: &[&str] = &[EXCLUSION, LEFTOVER, BEHIND, GROUNDS, FORCED];

const PLAIN: Case = Case::PLAIN;
const THREE: Case = Case { locks: 3, calls: 1, ..PLAIN };
const FORCE: Case = Case { forces: 1, ..PLAIN };
const OVERWRITE: Case = Case { overwrites: 1, ..PLAIN };
const FAILURE: Case = Case { failures: 1, ..PLAIN };
const REFUSAL: Case = Case { refusals: 1, ..PLAIN };
const BREAK: Case = Case { breaks: 1, ..PLAIN };

// That the model moves at all.
checks! {
    a_renewal_beside_a_loss_happens: happens(FORCE, [OUTLIVED]);
    a_renewal_by_itself_happens: happens(OVERWRITE, [ALONE]);
    a_renewal_by_itself_behind_a_refusal_happens: happens(REFUSAL, [ALONE]);
}

// With the rules.
checks! {
    leases_of_two_locks: holds(PLAIN, ALL);
    leases_of_three_locks: holds(THREE, ALL);
    a_forced_unlock: holds(FORCE, ALL);
    a_forced_unlock_of_one_of_three: holds(Case { forces: 1, takes: 1, ..THREE }, ALL);
    a_key_that_is_overwritten: holds(OVERWRITE, ALL);
    a_key_of_three_that_is_overwritten: holds(Case { overwrites: 1, takes: 1, ..THREE }, ALL);
    a_renewal_that_fails_by_itself: holds(FAILURE, ALL);
    a_renewal_of_three_that_fails_by_itself: holds(Case { failures: 1, takes: 1, ..THREE }, ALL);
    a_call_that_is_refused: holds(REFUSAL, ALL);
    a_connection_that_breaks: holds(BREAK, ALL);
    all_of_this: holds(
        Case { forces: 1, overwrites: 1, failures: 1, refusals: 1, breaks: 1, calls: 1, ..PLAIN }, ALL);
    longer_leases: holds(Case { ttl: 3, breaks: 1, calls: 1, ..PLAIN }, ALL);
}

// The rules, each broken once.
checks! {
    those_that_were_chosen_sent_unseen: fails(PLAIN.with(Wrong::ChosenAreSent), [BEHIND]);
    answers_of_others: fails(Case { forces: 1, ..THREE }.with(Wrong::AnswersShifted), [GROUNDS]);
    answers_of_others_that_renew: fails(Case { failures: 1, ..THREE }.with(Wrong::AnswersShifted), [EXCLUSION]);
    a_renewal_that_creates: fails(FORCE.with(Wrong::Creates), [FORCED]);
    one_loss_that_loses_all: fails(FORCE.with(Wrong::OneLossLosesAll), [GROUNDS]);
    a_failure_that_loses: fails(FAILURE.with(Wrong::FailureIsLoss), [GROUNDS]);
    a_refusal_that_loses: fails(REFUSAL.with(Wrong::RefusalIsLoss), [GROUNDS]);
    a_silence_that_renews: fails(BREAK.with(Wrong::SilenceRenews), [EXCLUSION]);
    one_answer_for_all: fails(FAILURE.with(Wrong::OneAnswerForAll), [EXCLUSION]);
    a_lease_that_counts_from_the_answer: fails(PLAIN.with(Wrong::CountsFromTheAnswer), [EXCLUSION]);
    an_answer_behind_the_deadline: fails(PLAIN.with(Wrong::LateAnswerCounts), [EXCLUSION]);
}
