//! The items of a queue.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::items::case::{Case, Wrong};
use leasehold_model::items::protocol::{
    BY_LETTER, BY_LOOK, CAME_BACK, CONSERVATION, DONE, FIRST_KNOWS, LEFTOVER, LENT, ORDER,
    Protocol, TAKEN,
};

const SAFE: &[&str] = &[LENT, DONE, CONSERVATION, ORDER, LEFTOVER, TAKEN, FIRST_KNOWS];

/// Two workers and two short items.
const SHORT: Case<2> = Case { polls: 0, ..Case::plain() };
/// The second item is too long for a letter.
const LONG: Case<2> = Case { long_from: 1, ..SHORT };
/// A request may run twice.
const TWICE: Case<2> = Case { doubles: 1, ..LONG };
/// A client may end.
const CRASH: Case<2> = Case { crashes: 1, ..LONG };

// That the model moves at all.
checks! {
    items_come_by_letter_and_those_of_the_dead_come_again:
        happens(CRASH, [BY_LETTER, BY_LOOK, CAME_BACK]);
}

// With the rules.
checks! {
    items_keep_the_rules: holds(SHORT, SAFE);
    items_keep_the_rules_where_some_are_long: holds(LONG, SAFE);
    #[cfg(feature = "long")]
    items_keep_the_rules_when_one_polls: holds(Case::<2> { polls: 1, ..Case::plain() }, SAFE);
    #[cfg(feature = "long")]
    items_keep_the_rules_with_renewals: holds(Case { renewals: 1, ..LONG }, SAFE);
    #[cfg(feature = "long")]
    items_keep_the_rules_when_a_request_runs_twice: holds(TWICE, SAFE);
    items_keep_the_rules_when_a_letter_is_lost: holds(Case { lost_letters: 1, ..LONG }, SAFE);
    items_keep_the_rules_when_a_client_ends:
        holds(CRASH, [LENT, DONE, CONSERVATION, ORDER, LEFTOVER]);
}

// The rules, each broken once.
checks! {
    items_lent_twice_to_one: fails(TWICE.with(Wrong::LentAgain), [LEFTOVER]);
    items_lent_again_early: fails(SHORT.with(Wrong::LentEarly), [LENT]);
    items_of_an_earlier_grant: fails(LONG.with(Wrong::KeepsContent), [LENT]);
    items_of_another_delivery: fails(LONG.with(Wrong::AnyContent), [LENT]);
    items_held_from_the_receipt: fails(SHORT.with(Wrong::DeadlineFromReceipt), [LENT]);
    items_that_nobody_hears_of: fails(SHORT.with(Wrong::PushUnheard), [TAKEN]);
    items_that_come_back_unheard: fails(SHORT.with(Wrong::BackUnheard), [TAKEN]);
    items_for_nobody: fails(SHORT.with(Wrong::SilentLeaver), [LEFTOVER]);
    items_done_that_were_not_worked_on: fails(TWICE.with(Wrong::AnyIsDone), [DONE]);
}
