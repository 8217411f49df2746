//! A read-write lock, in the short form.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::rw::case::Use::{Both, Reads, Writes};
use leasehold_model::rw::case::{Case, Wrong};
use leasehold_model::rw::protocol::{
    BY_LETTER, CONFIRMING, DOWNGRADED, EXCLUSION, FIRST_KNOWS, LATER, LEFT_BEHIND, LEFTOVER,
    MISLED, NOTICED, ORDER, Protocol, REOPENED, REPLACED, SHUT, TAKEN, TOGETHER, TOKENS, TOOK_OVER,
};

const SAFE: &[&str] = &[EXCLUSION, ORDER, SHUT, LEFTOVER, TAKEN, FIRST_KNOWS, TOKENS, NOTICED];

/// Two clients that read and write.
const PAIR: Case<2> = Case::plain([Both, Both]);
/// Two that read, and one that writes.
const MIXED: Case<3> = Case::plain([Reads, Reads, Writes]);
/// Readers in each client, and a writer between them.
const JOINS: Case<2> = Case { joins: 1, ..Case::plain([Reads, Both]) };
/// Two wait in a client at once.
const CROWD: Case<2> = Case { crowd: 2, ..PAIR };
/// A client reads, the lock is unlocked by force, and another one writes.
const FORCED: Case<2> =
    Case { asks: 2, joins: 1, repeats: 1, forces: 1, ..Case::plain([Reads, Writes]) };
/// A client may end.
const CRASH: Case<3> = Case { crashes: 1, ..MIXED };
/// A writer becomes a reader.
const DOWNGRADE: Case<2> = Case { downgrades: 1, ..PAIR };
/// What is given back may stay for a while.
const KEEPS: Case<3> = Case { keeps: 1, ..MIXED };
/// Redisson's client comes between ours.
const JAVA: Case<2> = Case { java_asks: 2, asks: 2, ..PAIR };
/// One of a version that does not renew the ends of its readers.
const OLD_JAVA: Case<2> = Case { java_leaves_ends: true, ..JAVA };

/// Somebody listens on the lock's channel.
const SHUTS: Case<3> = Case { shuts: 1, ..MIXED };

// That the model moves at all.
checks! {
    readers_share_and_writers_become_readers:
        happens(Case { downgrades: 1, ..JOINS }, [TOGETHER, BY_LETTER, REOPENED, DOWNGRADED, TOOK_OVER]);
    readers_come_after_a_forced_unlock: happens(FORCED, [REPLACED]);
    the_first_may_ask_later_than_a_lease_ends: happens(CRASH, [LATER]);
    the_first_may_believe_a_letter_that_is_older_than_an_answer: happens(JAVA, [MISLED]);
    readers_leave_asks_behind_and_confirm_letters: happens(JOINS, [LEFT_BEHIND, CONFIRMING]);
}

// With the rules.
checks! {
    readers_and_writers_keep_the_rules: holds(MIXED, SAFE);
    #[cfg(feature = "long")]
    readers_and_writers_keep_the_rules_when_one_asks_again: holds(Case { polls: 1, ..PAIR }, SAFE);
    #[cfg(feature = "long")]
    readers_and_writers_keep_the_rules_with_renewals: holds(Case { renewals: 2, ..PAIR }, SAFE);
    readers_and_writers_keep_the_rules_when_others_join: holds(JOINS, SAFE);
    readers_and_writers_keep_the_rules_when_two_wait_in_a_client: holds(CROWD, SAFE);
    readers_and_writers_keep_the_rules_with_a_downgrade: holds(DOWNGRADE, SAFE);
    readers_and_writers_keep_the_rules_with_a_shortest_hold: holds(KEEPS, SAFE);
    readers_and_writers_keep_the_rules_with_a_shortest_hold_beside_others_who_join:
        holds(Case { keeps: 1, asks: 2, ..JOINS }, SAFE);
    readers_and_writers_keep_the_rules_with_a_shortest_hold_and_when_a_request_runs_twice:
        holds(Case { keeps: 1, doubles: 1, asks: 2, ..PAIR }, SAFE);
    readers_and_writers_keep_the_rules_with_a_shortest_hold_beside_java:
        holds(Case { keeps: 1, java_asks: 1, ..JAVA }, SAFE);
    readers_and_writers_keep_the_rules_when_a_request_runs_twice:
        holds(Case { doubles: 1, asks: 2, ..PAIR }, SAFE);
    readers_and_writers_keep_the_rules_when_a_letter_is_lost:
        holds(Case { lost_letters: 1, polls: 1, asks: 2, ..PAIR }, SAFE);
    readers_and_writers_keep_the_rules_when_a_client_ends: holds(Case { crashes: 1, ..PAIR }, SAFE);
    readers_and_writers_keep_the_rules_beside_java: holds(Case { java_asks: 1, ..JAVA }, SAFE);
    readers_and_writers_keep_the_rules_beside_java_that_renews_no_ends:
        holds(Case { java_asks: 1, ..OLD_JAVA }, SAFE);
    readers_and_writers_keep_the_rules_when_one_is_unlocked_by_force:
        holds(Case { asks: 3, ..FORCED }, SAFE);
    #[cfg(feature = "long")]
    readers_and_writers_keep_the_rules_in_a_shut_window_when_others_join:
        holds(Case { joins: 1, asks: 2, shuts: 1, ..JOINS }, SAFE);
    #[cfg(feature = "long")]
    readers_and_writers_keep_the_rules_beside_java_with_a_downgrade_and_an_end:
        holds(Case { java_asks: 1, downgrades: 1, crashes: 1, ..JAVA }, SAFE);
    #[cfg(feature = "long")]
    readers_and_writers_keep_the_rules_beside_java_that_renews_no_ends_and_ends_itself:
        holds(Case { java_asks: 1, crashes: 1, ..OLD_JAVA }, SAFE);
    #[cfg(feature = "long")]
    readers_and_writers_keep_the_rules_in_a_shut_window_beside_java:
        holds(Case { java_asks: 1, shuts: 1, ..JAVA }, SAFE);
    #[cfg(feature = "long")]
    readers_and_writers_keep_the_rules_with_a_longer_ttl: holds(Case { ttl: 3, renewals: 1, ..PAIR }, SAFE);
}

// The rules, each broken once.
checks! {
    a_reader_that_passes_a_writer: fails(MIXED.with(Wrong::ReaderPassesWriter), [ORDER]);
    a_readers_end_judged_early: fails(PAIR.with(Wrong::EndsEarly), [EXCLUSION]);
    a_reader_of_java_whose_end_is_believed: fails(OLD_JAVA.with(Wrong::EndsJava), [EXCLUSION]);
    a_release_that_looks_at_nobody_else: fails(MIXED.with(Wrong::LooksAtNobody), [EXCLUSION]);
    a_renewal_that_leaves_the_hash:
        fails(Case { renewals: 1, ..PAIR.with(Wrong::RenewalLeavesHash) }, [EXCLUSION]);
    a_renewal_that_leaves_the_readers_end:
        fails(Case { renewals: 1, ..PAIR.with(Wrong::RenewalLeavesOwnEnd) }, [EXCLUSION]);
    a_reader_that_leaves_the_hash: fails(MIXED.with(Wrong::JoinLeavesHash), [EXCLUSION]);
    a_kept_part_that_ends_the_hash: fails(KEEPS.with(Wrong::KeptPartEndsHash), [EXCLUSION]);
    a_downgrade_without_an_end: fails(DOWNGRADE.with(Wrong::DowngradeWithoutEnd), [EXCLUSION]);
    a_downgrade_of_nobody: fails(DOWNGRADE.with(Wrong::DowngradeOfNobody), [EXCLUSION]);
    readers_let_in_one_by_one: fails(MIXED.with(Wrong::PumpsOne), [TAKEN]);
    a_writer_that_gives_up_and_lets_nobody_in: fails(MIXED.with(Wrong::LeaverPumpsNobody), [TAKEN]);
    a_first_that_is_not_told: fails(MIXED.with(Wrong::FirstNotTold), [FIRST_KNOWS]);
    readers_that_join_in_a_shut_window: fails(SHUTS.with(Wrong::JoinsThoughShut), [SHUT]);
    a_window_that_opens_unseen: fails(SHUTS.with(Wrong::OpensUnseen), [TAKEN]);
    a_first_that_hears_nothing_of_java: fails(JAVA.with(Wrong::DeafToJava), [TAKEN]);
    a_reader_that_leaves_silently: fails(PAIR.with(Wrong::SilentLeaver), [LEFTOVER]);
    a_reader_held_from_the_receipt: fails(PAIR.with(Wrong::DeadlineFromReceipt), [EXCLUSION]);
    a_writer_without_a_token: fails(PAIR.with(Wrong::WriterTakesNoToken), [TOKENS]);
    a_reader_that_joins_what_was_not_looked_for: fails(FORCED.with(Wrong::JoinsUnseen), [EXCLUSION]);
    a_reader_that_joins_what_was_looked_for_before:
        fails(FORCED.with(Wrong::LooksBeforeAsk), [EXCLUSION]);
    a_reader_that_joins_since_it_got_a_letter:
        fails(Case { asks: 3, ..FORCED.with(Wrong::JoinsByLetter) }, [EXCLUSION]);
    a_letter_that_is_older_than_its_lease: fails(Case { asks: 3, ..FORCED }.with(Wrong::BelievedUnanswered), [TOKENS]);
    a_letter_of_before_a_forced_unlock:
        fails(FORCED.with(Wrong::BelievesOlderLetters), [FIRST_KNOWS]);
    a_readers_token_from_before_a_forced_unlock: fails(FORCED.with(Wrong::JoinsUnseen), [TOKENS]);
    a_writer_that_believes_what_it_was_told_of_an_older_grant:
        fails(Case { polls: 1, ..PAIR.with(Wrong::KeepsWhatItWasTold) }, [NOTICED]);
}
