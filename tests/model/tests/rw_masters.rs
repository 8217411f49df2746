//! A read-write lock over three masters.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::rw_masters::case::Use::{Both, Reads, Writes};
use leasehold_model::rw_masters::case::{Case, Wrong};
use leasehold_model::rw_masters::protocol::{
    DOWNGRADED, EXCLUSION, GOT_IN, LEFTOVER, PASSED, Protocol, RAISED, TOGETHER, TOKENS,
};

const SAFE: &[&str] = &[EXCLUSION, LEFTOVER];

/// One that reads, and one that writes.
const PAIR: Case<2> = Case::plain([Reads, Writes]);
/// Two that read and write.
const BOTH: Case<2> = Case { asks: 2, ..Case::plain([Both, Both]) };
/// Counters that differ.
const AHEAD: Case<2> = Case { ahead: 1, asks: 2, ..Case::plain([Both, Writes]) };
/// A writer becomes a reader.
const DOWNGRADE: Case<2> = Case { downgrades: 1, asks: 2, ..Case::plain([Writes, Reads]) };

// That the model moves at all.
checks! {
    readers_share_masters_and_writers_get_in:
        happens(Case { asks: 3, downgrades: 1, ahead: 1, ..BOTH }, [TOGETHER, RAISED, GOT_IN, DOWNGRADED]);
}

// With the rules.
checks! {
    majorities_keep_the_rules: holds(BOTH, SAFE);
    majorities_keep_the_rules_when_a_client_ends: holds(Case { crashes: 1, ..BOTH }, SAFE);
    majorities_keep_the_rules_when_a_request_fails: holds(Case { faults: 1, asks: 2, ..PAIR }, SAFE);
    majorities_keep_the_rules_with_a_downgrade: holds(DOWNGRADE, SAFE);
    #[cfg(feature = "long")]
    majorities_keep_tokens_in_order: holds(AHEAD, [EXCLUSION, TOKENS]);
    #[cfg(feature = "long")]
    majorities_let_no_reader_pass: holds(PAIR, [PASSED]);
}

// The rules, each broken once.
checks! {
    a_majority_of_one: fails(PAIR.with(Wrong::OneMasterToRead), [EXCLUSION]);
    a_majority_held_from_the_receipt: fails(PAIR.with(Wrong::DeadlineFromReceipt), [EXCLUSION]);
    a_readers_token_that_is_not_raised: fails(AHEAD.with(Wrong::ReadNotRaised), [TOKENS]);
    a_refused_writer_that_keeps_its_votes: fails(PAIR.with(Wrong::RefusedKeeps), [LEFTOVER]);
    a_writer_that_reserves_nothing: fails(PAIR.with(Wrong::NoReservation), [PASSED]);
    a_reservation_that_is_never_withdrawn: fails(PAIR.with(Wrong::NeverWithdrawn), [LEFTOVER]);
    a_reservation_withdrawn_by_anybody: fails(PAIR.with(Wrong::WithdrawsAny), [PASSED]);
    a_downgrade_that_takes_it_from_anybody:
        fails(Case { uses: [Writes; 2], ..DOWNGRADE.with(Wrong::DowngradeOfAnybody) }, [EXCLUSION]);
}
