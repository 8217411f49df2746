//! The permits of a semaphore.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::permits::case::{Case, Wrong};
use leasehold_model::permits::protocol::{
    BY_LETTER, CAME_BACK, CONSERVATION, EXCLUSION, FIRST_KNOWS, HEARD, LEFT_FOR_WHO_ASKS, LEFTOVER,
    ORDER, Protocol, TAKEN,
};

const SAFE: &[&str] = &[EXCLUSION, CONSERVATION, ORDER, LEFTOVER, TAKEN, FIRST_KNOWS];

/// Two clients that want all permits, one after the other.
const PAIR: Case<2> = Case::plain([2, 2]);
/// Two that can hold theirs at once, and one that needs both.
const MIXED: Case<3> = Case::plain([1, 2, 1]);
/// A client may end.
const CRASH: Case<3> = Case { crashes: 1, polls: 2, ..MIXED };

/// Redisson's client takes one permit, and one of ours needs both.
const JAVA: Case<2> = Case { java_asks: 1, polls: 0, ..Case::plain([1, 2]) };
/// Redisson's client listens, and a client may end.
const DEAD: Case<2> =
    Case { java_asks: 2, polls: 0, crashes: 1, permits: 1, ..Case::plain([1, 1]) };

// That the model moves at all.
checks! {
    permits_pass_by_letter_and_those_of_the_dead_come_back: happens(CRASH, [BY_LETTER, CAME_BACK]);
    permits_of_java_are_heard_of: happens(JAVA, [HEARD]);
}

// With the rules.
checks! {
    permits_keep_the_rules: holds(MIXED, SAFE);
    permits_keep_the_rules_with_renewals: holds(Case { renewals: 2, ..PAIR }, SAFE);
    permits_keep_the_rules_when_a_letter_is_lost:
        holds(Case { lost_letters: 1, ..MIXED }, SAFE);
    permits_keep_the_rules_beside_java: holds(JAVA, [EXCLUSION, CONSERVATION, ORDER, LEFTOVER, TAKEN, FIRST_KNOWS, LEFT_FOR_WHO_ASKS]);
    permits_keep_the_rules_beside_java_when_a_client_ends:
        holds(DEAD, [EXCLUSION, CONSERVATION, ORDER, LEFTOVER, LEFT_FOR_WHO_ASKS]);
    #[cfg(feature = "long")]
    permits_keep_the_rules_when_a_request_runs_twice:
        holds(Case::<3> { doubles: 1, ..Case::plain([1, 2, 1]) }, [EXCLUSION, CONSERVATION, ORDER, LEFTOVER, TAKEN]);
    #[cfg(feature = "long")]
    permits_keep_the_rules_when_a_client_ends:
        holds(CRASH, [EXCLUSION, CONSERVATION, ORDER, LEFTOVER]);
}

// The rules, each broken once.
checks! {
    permits_taken_twice: fails(Case { doubles: 1, ..PAIR.with(Wrong::TakenTwice) }, [CONSERVATION]);
    ended_permits_that_are_not_counted: fails(PAIR.with(Wrong::SweepNotCounted), [CONSERVATION]);
    permits_taken_back_early: fails(PAIR.with(Wrong::SweptEarly), [EXCLUSION]);
    permits_made_by_a_renewal:
        fails(Case { renewals: 1, ..PAIR.with(Wrong::RenewalMakes) }, [CONSERVATION]);
    permits_given_back_that_were_not_there: fails(PAIR.with(Wrong::BackNotThere), [CONSERVATION]);
    permits_for_a_newcomer: fails(MIXED.with(Wrong::NewcomerPasses), [ORDER]);
    permits_that_a_leaver_keeps_from_the_next:
        fails(MIXED.with(Wrong::LeaverServesNobody), [TAKEN]);
    permits_that_a_newcomer_leaves_to_the_dead:
        fails(DEAD.with(Wrong::WaitsForTheDead), [LEFT_FOR_WHO_ASKS]);
    permits_of_java_that_nobody_hears_of: fails(JAVA.with(Wrong::DeafToJava), [TAKEN]);
    permits_that_nobody_is_told_of:
        fails(Case { asks: 4, crashes: 0, ..DEAD.with(Wrong::OpensSilently) }, [TAKEN]);
    permits_for_nobody: fails(PAIR.with(Wrong::SilentLeaver), [LEFTOVER]);
    permits_held_from_the_receipt: fails(PAIR.with(Wrong::DeadlineFromReceipt), [EXCLUSION]);
}
