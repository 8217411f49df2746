//! Ends of leases while their slot moves.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::moving::case::End::{
    Lock, LockByForce, Permit, Reader, ReadersByForce, Writer,
};
use leasehold_model::moving::case::{Case, End, Wrong};
use leasehold_model::moving::protocol::{BESIDE, ENDED, IN_A_MOVE, LET_IN, NO_LOSS, Protocol};

const SAFE: &[&str] = &[NO_LOSS, ENDED, BESIDE];

// That the model moves at all.
checks! {
    ends_are_told_in_a_move: happens(Case::of(&[Lock]), [IN_A_MOVE, LET_IN]);
}

// With the rules.
checks! {
    ends_in_a_move_keep_the_rules: holds(Case::of(End::ALL), SAFE);
}

// The rules, each broken once.
checks! {
    a_release_that_serves_unasked: fails(Case::of(&[Lock]).with(Wrong::ServesUnasked), [NO_LOSS]);
    a_forced_unlock_that_serves_unasked:
        fails(Case::of(&[LockByForce]).with(Wrong::ServesUnasked), [NO_LOSS]);
    a_reader_that_serves_unasked: fails(Case::of(&[Reader]).with(Wrong::ServesUnasked), [NO_LOSS]);
    a_writer_that_serves_unasked: fails(Case::of(&[Writer]).with(Wrong::ServesUnasked), [NO_LOSS]);
    a_forced_unlock_of_readers_that_serves_unasked:
        fails(Case::of(&[ReadersByForce]).with(Wrong::ServesUnasked), [NO_LOSS]);
    a_permit_that_serves_unasked: fails(Case::of(&[Permit]).with(Wrong::ServesUnasked), [NO_LOSS]);
    a_reader_that_fails_as_it_looks_for_others:
        fails(Case::of(&[Reader]).with(Wrong::LooksAndFails), [NO_LOSS]);
    a_reader_whose_end_is_elsewhere_taken_for_gone:
        fails(Case::of(&[Reader]).with(Wrong::EndElsewhereIsOver), [BESIDE]);
    a_refusal_taken_for_an_end: fails(Case::of(&[Lock]).with(Wrong::RefusalIsDone), [ENDED]);
}
