//! One deployment whose master changes, in the short form.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::failover::case::{Case, Wrong};
use leasehold_model::failover::protocol::{
    EXCLUSION, FORGOTTEN, GROUNDS, LOSS, Protocol, RECLAIM, RECLAIM_IN_TIME, RECLAIM_OF_FREE,
    SECOND, TOKEN_ORDER, TRUSTED,
};
use leasehold_model::report;

const SAFE: &[&str] = &[EXCLUSION, RECLAIM_IN_TIME, RECLAIM_OF_FREE];

/// The follower is promoted, behind a master that was fenced before.
const FENCED: Case = Case::PLAIN;
/// The old master lives on.
const UNFENCED: Case = Case { fenced: false, ..FENCED };
/// The old master follows, and is promoted again.
const BACK: Case = Case { promotions: 2, ..FENCED };
/// Client 0 counts every grant.
const STRANGER: Case = Case { stranger: true, ..FENCED };
/// The master starts again without data.
const RESTART: Case = Case { promotions: 0, restarts: 1, ..FENCED };
/// The lock's slot moves to another master, before or after the promotion.
const MOVED: Case = Case { moves: true, ..FENCED };
/// Those who unlock wait for the answer.
const UNLOCKS: Case = Case { unlocks: true, ..FENCED };
/// The same without a promotion, and somebody removes the lease.
const REMOVED: Case = Case { promotions: 0, removals: 1, ..UNLOCKS };
/// Client 0 writes, client 1 reads.
const READERS: Case = Case { readers: true, ..FENCED };

/// Tests named like the cases of the table: each gives its name to the row.
macro_rules! checks {
    ($($(#[$attribute:meta])* $name:ident: $check:ident($case:expr, $properties:expr);)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            let properties: &[&'static str] = &$properties[..];
            report::$check(stringify!($name), "2", Protocol::<2>::new($case, properties));
        }
    )*};
}

// That the model moves at all.
checks! {
    a_lease_is_put_back_and_the_lock_changes_hands: happens(FENCED, [RECLAIM, SECOND, TRUSTED]);
    an_unlock_finds_nothing_and_is_no_loss: happens(UNLOCKS, [FORGOTTEN]);
}

// With the rules.
checks! {
    unlocks_tell_of_losses_with_grounds: holds(UNLOCKS, [GROUNDS, LOSS]);
    unlocks_tell_of_losses_with_a_restart: holds(Case { unlocks: true, ..RESTART }, [GROUNDS, LOSS]);
    unlocks_tell_of_losses_behind_a_removal: holds(REMOVED, [GROUNDS, LOSS]);
    unlocks_tell_of_losses_behind_a_master_that_lives_on: holds(Case { fenced: false, ..UNLOCKS }, [LOSS]);
    no_double_grant_with_a_promotion: holds(FENCED, SAFE);
    #[cfg(feature = "long")]
    no_double_grant_with_two_promotions: holds(BACK, SAFE);
    no_double_grant_with_a_restart: holds(RESTART, SAFE);
    no_double_grant_with_a_promotion_and_a_restart: holds(Case { restarts: 1, ..FENCED }, SAFE);
    no_double_grant_with_a_slot_that_moves_after_a_promotion: holds(MOVED, SAFE);
    no_double_grant_with_a_slot_that_moves_or_is_taken_over: holds(Case { promotions: 0, ..MOVED }, SAFE);
    no_double_grant_when_the_mark_is_lost: holds(Case { lost_marks: 1, ..FENCED }, SAFE);
    readers_have_the_last_writers_token: holds(Case { asks: 3, ..READERS }, [TOKEN_ORDER]);
    #[cfg(feature = "long")]
    readers_have_it_after_two_promotions: holds(Case { promotions: 2, ..READERS }, [TOKEN_ORDER]);
    readers_have_it_after_a_move: holds(Case { moves: true, ..READERS }, [TOKEN_ORDER]);
    readers_have_it_when_the_mark_is_lost: holds(Case { lost_marks: 1, ..READERS }, [TOKEN_ORDER]);
    no_double_grant_where_nobody_may_write_the_mark: holds(Case { may_mark: false, ..BACK }, SAFE);
}

// What the promise rests on.
checks! {
    an_old_master_that_lives_on_gives_a_double_grant: fails(UNFENCED, [EXCLUSION]);
    a_promotion_without_grace_gives_a_double_grant: fails(Case { grace: 0, ..FENCED }, [EXCLUSION]);
    a_grace_shorter_than_the_ttl_gives_a_double_grant: fails(Case { grace: 1, ..FENCED }, [EXCLUSION]);
    readers_have_an_earlier_token_where_nobody_may_write_the_mark:
        fails(Case { may_mark: false, ..READERS }, [TOKEN_ORDER]);
    a_removal_before_a_promotion_may_conceal_a_loss: fails(Case { removals: 1, ..UNLOCKS }, [LOSS]);
    a_client_without_grace_gives_a_double_grant: fails(STRANGER, [EXCLUSION]);
}

// The rules, each broken once.
checks! {
    a_promoted_server_trusted_for_its_uptime: fails(FENCED.with(Wrong::MarkIgnored), [EXCLUSION]);
    a_mark_of_another_run_trusted: fails(FENCED.with(Wrong::AnyMark), [EXCLUSION]);
    a_mark_compared_by_the_run_only: fails(BACK.with(Wrong::MarkOfRunOnly), [EXCLUSION]);
    a_server_known_by_its_run_only: fails(BACK.with(Wrong::HistoryIgnored), [EXCLUSION]);
    a_grant_of_another_history_that_counts: fails(BACK.with(Wrong::VoteUnchecked), [EXCLUSION]);
    a_lease_put_back_over_another: fails(STRANGER.with(Wrong::ReclaimOverAnother), [RECLAIM_OF_FREE]);
    a_lease_is_not_put_back_over_another: holds(STRANGER, [RECLAIM_OF_FREE]);
    a_lease_put_back_when_the_grace_is_over: fails(UNFENCED.with(Wrong::LateReclaim), [RECLAIM_IN_TIME]);
    a_lease_put_back_in_time_behind_a_master_that_lives_on: holds(UNFENCED, [RECLAIM_IN_TIME]);
    a_server_trusted_with_a_slot_that_it_did_not_have:
        fails(Case { promotions: 0, ..MOVED }.with(Wrong::SlotTrusted), [EXCLUSION]);
    an_unlock_that_finds_nothing_is_a_loss: fails(UNLOCKS.with(Wrong::MissingIsLoss), [GROUNDS]);
    an_unlock_that_finds_nothing_is_none: fails(REMOVED.with(Wrong::MissingIsNoLoss), [LOSS]);
    an_unlock_that_finds_nothing_when_the_grace_is_over_is_none:
        fails(Case { fenced: false, ..UNLOCKS.with(Wrong::MissingAfterGrace) }, [LOSS]);
    a_readers_token_as_the_server_has_it: fails(READERS.with(Wrong::AnyToken), [TOKEN_ORDER]);
}
