//! The short form, for the continuous integration: three servers, two clients.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::case::{Case, Force, Wrong};
use leasehold_model::model::{
    BOTH_HOLD, EXCLUSION, FORCED_ENDS, HEAL, NO_LEFTOVER, Protocol, RENEWAL, TOKEN_ORDER,
};
use leasehold_model::report;

const SAFE: &[&str] = &[EXCLUSION, NO_LEFTOVER];

/// A server restarts without its data; its grants do not count for a ttl.
const CRASH: Case = Case { restarts: 1, quarantine: Case::PLAIN.ttl, ..Case::PLAIN };
/// A server follows another that is empty, and is a master again in the same run.
const DEMOTION: Case = Case { asks: 2, demotions: 1, quarantine: Case::PLAIN.ttl, ..Case::PLAIN };
/// A clock goes wrong by one tick of three, which is what is taken off for drift.
const DRIFT: Case = Case { ttl: 3, drift: 1, skew: 1, ..Case::PLAIN };
/// A connection breaks.
const BREAK: Case = Case { breaks: 1, ..Case::PLAIN };
/// A connection breaks and cannot be killed: what was sent on it may still run later.
const STRAY: Case = Case { kills: false, ..BREAK };
const RENEWALS: Case = Case { asks: 2, renewals: 1, ..Case::PLAIN };
const HEALS: Case = Case { heals: true, ..RENEWALS };
const HEALS_AND_CRASH: Case = Case { restarts: 1, quarantine: Case::PLAIN.ttl, ..HEALS };
/// One lease with renewals, which an operator breaks.
const FORCED: Case = Case { asks: 1, renewals: 2, force: Force::OneByOne, ..HEALS };
const FORCED_EARLY: Case = Case { renewals: 1, force_early: true, ..FORCED };
const FORCED_AND_CRASH: Case =
    Case { renewals: 1, restarts: 1, quarantine: Case::PLAIN.ttl, force: Force::AtOnce, ..FORCED };
const TOKENS: Case = Case { asks: 2, ..Case::TOKENS };

/// Tests named like the cases of the table: each gives its name to the row.
macro_rules! checks {
    ($($(#[$attribute:meta])* $name:ident: $check:ident($case:expr, $properties:expr);)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            let properties: &[&'static str] = &$properties[..];
            report::$check(stringify!($name), "3 × 2", Protocol::<3, 2>::new($case, properties));
        }
    )*};
}

// That the model moves at all.
checks! {
    both_clients_get_the_lock_one_after_the_other: happens(Case::PLAIN, [BOTH_HOLD]);
    after_a_restart_both_clients_get_the_lock: happens(CRASH, [BOTH_HOLD]);
    a_renewal_and_a_heal_happen: happens(HEALS_AND_CRASH, [RENEWAL, HEAL]);
    both_clients_get_tokens: happens(TOKENS, [BOTH_HOLD]);
}

// Late and lost messages, broken connections, clocks.
checks! {
    no_double_grant_while_no_server_forgets: holds(Case::PLAIN, SAFE);
    no_double_grant_with_a_request_run_twice: holds(Case { asks: 2, doubles: 1, ..Case::PLAIN }, SAFE);
    no_double_grant_when_a_connection_breaks: holds(BREAK, SAFE);
    no_double_grant_when_a_broken_connection_cannot_be_killed: holds(Case { asks: 2, ..STRAY }, [EXCLUSION]);
    no_double_grant_while_clocks_differ_by_the_allowance: holds(DRIFT, SAFE);
    clocks_that_differ_by_more_than_the_allowance_give_a_double_grant:
        fails(Case { skew: 2, ..DRIFT }, [EXCLUSION]);
}

// Restarts.
checks! {
    a_restart_without_data_gives_a_double_grant: fails(Case { quarantine: 0, ..CRASH }, [EXCLUSION]);
    a_quarantine_shorter_than_the_ttl_gives_a_double_grant:
        fails(Case { quarantine: 1, ..CRASH }, [EXCLUSION]);
    no_double_grant_with_a_quarantine_of_a_ttl: holds(CRASH, SAFE);
    a_server_that_keeps_its_data_needs_no_quarantine:
        holds(Case { keeps_data: true, quarantine: 0, ..CRASH }, SAFE);
}

// Servers that forget and do not look it.
checks! {
    no_double_grant_with_a_demotion: holds(DEMOTION, SAFE);
    a_late_acquire_and_a_renewal_after_a_demotion_give_a_double_grant:
        fails(Case { demotions: 1, restarts: 0, heals: false, ..HEALS_AND_CRASH }, [EXCLUSION]);
    no_double_grant_with_a_demotion_and_a_restart:
        holds(Case { restarts: 1, ..DEMOTION }, SAFE);
    a_file_trusted_at_a_first_meeting: fails(CRASH.with(Wrong::FileTrustedAtFirst), [EXCLUSION]);
    a_file_trusted_after_a_restart: fails(CRASH.with(Wrong::FileTrustedAgain), [EXCLUSION]);
    a_server_that_followed_another_taken_for_the_same:
        fails(Case { asks: 3, ..DEMOTION }.with(Wrong::HistoryIgnored), [EXCLUSION]);
    a_server_that_followed_another_trusted_for_its_uptime:
        fails(DEMOTION.with(Wrong::FollowerTrustedAtFirst), [EXCLUSION]);
}

// Renewals and heals.
checks! {
    no_double_grant_with_renewals: holds(RENEWALS, SAFE);
    no_double_grant_with_renewals_and_heals: holds(HEALS, SAFE);
    no_double_grant_with_renewals_and_a_restart: holds(Case { heals: false, ..HEALS_AND_CRASH }, SAFE);
    #[cfg(feature = "long")]
    no_double_grant_with_heals_and_a_restart: holds(HEALS_AND_CRASH, SAFE);
    renewals_without_quarantine_give_a_double_grant:
        fails(Case { quarantine: 0, ..HEALS_AND_CRASH }, [EXCLUSION]);
}

// Force-unlock beside heals.
checks! {
    a_force_unlock_is_not_undone_by_heals: holds(FORCED, [FORCED_ENDS]);
    a_force_unlock_before_the_acquire_ran_everywhere_is_not_undone_by_one_renewal:
        holds(FORCED_EARLY, [FORCED_ENDS]);
    a_force_unlock_is_not_undone_after_a_restart: holds(FORCED_AND_CRASH, [FORCED_ENDS]);
    a_force_unlock_before_the_acquire_ran_everywhere_can_be_undone_by_two_renewals:
        fails(Case { renewals: 2, ..FORCED_EARLY }, [FORCED_ENDS]);
    a_force_unlock_before_the_acquire_ran_everywhere_can_be_undone_after_a_restart:
        fails(Case { force_early: true, ..FORCED_AND_CRASH }, [FORCED_ENDS]);
    a_force_unlock_can_be_undone_after_a_restart_and_two_renewals:
        fails(Case { renewals: 2, ..FORCED_AND_CRASH }, [FORCED_ENDS]);
}

// The rules, each broken once.
checks! {
    validity_counted_from_the_reply: fails(Case::PLAIN.with(Wrong::ValidityFromReply), [EXCLUSION]);
    drift_not_subtracted: fails(Case { drift: 0, ..DRIFT }, [EXCLUSION]);
    a_release_of_anybodys_lease: fails(Case::PLAIN.with(Wrong::ReleaseOfAnybody), [EXCLUSION]);
    a_lease_id_used_again_and_a_late_release: fails(STRAY.with(Wrong::LeaseIdReused), [EXCLUSION]);
    an_answer_to_an_earlier_acquire_that_counts:
        fails(Case::PLAIN.with(Wrong::OldGrantCounts), [EXCLUSION]);
    a_release_only_where_it_was_granted:
        fails(Case::PLAIN.with(Wrong::ReleaseOnlyWhereGranted), [NO_LEFTOVER]);
    an_acquire_sent_again_without_its_release_behind_it:
        fails(BREAK.with(Wrong::AcquireCrossesConnections), [NO_LEFTOVER]);
    a_grant_of_a_quarantined_server_that_counts:
        fails(CRASH.with(Wrong::QuarantineIgnored), [EXCLUSION]);
    an_answer_to_an_earlier_renewal_that_counts:
        fails(Case { renewals: 2, ..RENEWALS }.with(Wrong::OldRenewalCounts), [EXCLUSION]);
    a_heal_after_the_release: fails(HEALS.with(Wrong::HealAfterRelease), [NO_LEFTOVER]);
    a_heal_after_the_deadline: fails(HEALS.with(Wrong::HealAfterDeadline), [NO_LEFTOVER]);
    a_heal_without_a_majority:
        fails(FORCED_AND_CRASH.with(Wrong::HealWithoutMajority), [FORCED_ENDS]);
    a_heal_of_a_server_that_was_cleared_on_purpose:
        fails(FORCED.with(Wrong::HealOfCleared), [FORCED_ENDS]);
    a_confirmation_that_ages_while_the_answer_is_awaited:
        fails(FORCED_EARLY.with(Wrong::ConfirmationAgesWhileWaiting), [FORCED_ENDS]);
}

// Tokens. Holds end on servers at any time, whatever the client believes, so nothing rests on clocks.
checks! {
    tokens_increase_while_no_server_forgets: holds(TOKENS, [TOKEN_ORDER, NO_LEFTOVER]);
    tokens_increase_while_coarse_clocks_differ: holds(Case { steps: 1, ..TOKENS }, [TOKEN_ORDER]);
    tokens_increase_with_blocks_of_different_sizes: holds(Case { block: 2, ..TOKENS }, [TOKEN_ORDER]);
    tokens_increase_when_a_connection_breaks: holds(Case { breaks: 1, ..TOKENS }, [TOKEN_ORDER]);
    tokens_increase_with_a_request_run_twice:
        holds(Case { doubles: 1, doubles_acquires: false, ..TOKENS }, [TOKEN_ORDER]);
    tokens_increase_when_a_server_restarts_with_its_data:
        holds(Case { restarts: 1, keeps_data: true, ..TOKENS }, [TOKEN_ORDER]);
    tokens_increase_with_clocks_and_deadlines:
        holds(Case { tokens: true, asks: 2, ..Case::PLAIN }, [TOKEN_ORDER, EXCLUSION, NO_LEFTOVER]);
    tokens_of_the_plain_maximum_repeat: fails(TOKENS.with(Wrong::NoRaise), [TOKEN_ORDER]);
    tokens_repeat_where_the_raise_counts_stragglers:
        fails(TOKENS.with(Wrong::RaiseCountsStragglers), [TOKEN_ORDER]);
    tokens_repeat_where_the_raise_needs_no_lease:
        fails(Case { steps: 1, ..TOKENS }.with(Wrong::RaiseWithoutLease), [TOKEN_ORDER]);
    tokens_repeat_where_an_acquire_runs_again_after_its_lease:
        fails(Case { doubles: 1, ..TOKENS }, [TOKEN_ORDER]);
    tokens_fall_back_when_a_server_forgets: fails(Case { restarts: 1, ..TOKENS }, [TOKEN_ORDER]);
    tokens_fall_back_when_a_server_forgets_in_spite_of_quarantine:
        fails(Case { tokens: true, asks: 2, ..CRASH }, [TOKEN_ORDER]);
}
