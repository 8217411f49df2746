//! The queue on one server, in the short form.
//!
//! A test that `holds` has gone through every state; one that `fails` found the violation that its name speaks of.

use leasehold_model::checks;
use leasehold_model::queue::case::{Bug, Case};
use leasehold_model::queue::protocol::{
    ALTERNATED, ARRIVAL_ORDER, ATTEMPT_ANSWERED, CONFIRMED, DOUBTED, EXCLUSION, FREE_FOR_WHO_ASKS,
    GRANTED, HEAD_KNOWS, HEARS_JAVA, JAVA_TURN, LEASE_TOKEN, LIVENESS, NO_LEFTOVER, Protocol,
    RENEWED, TOKEN_ORDER,
};

const SAFE: &[&str] = &[EXCLUSION, NO_LEFTOVER];
const SOUND: &[&str] = &[EXCLUSION, NO_LEFTOVER, LIVENESS, HEAD_KNOWS];
const ORDER: &[&str] = &[ARRIVAL_ORDER, TOKEN_ORDER];
const ATTEMPTS: &[&str] = &[EXCLUSION, NO_LEFTOVER, LIVENESS, HEAD_KNOWS, ATTEMPT_ANSWERED];

/// Three waiters, each in a process of its own.
const THREE: Case = Case::PLAIN;
/// Two waiters.
const TWO: Case = Case { homes: &[0, 1], ..Case::PLAIN };
/// A process with two waiters, as of a fair handle, beside one with one.
const FAIR: Case = Case { homes: &[0, 0, 1], ..Case::PLAIN };
/// Four waiters, of which three end.
const FOUR: Case = Case { homes: &[0, 1, 2, 3], asks: 4, crashes: 3, ..Case::PLAIN };
/// Processes end beside Java, and others come and do not wait.
const DEAD: Case = Case { homes: &[0, 1, 2], asks: 2, crashes: 2, tries: 1, ..JAVA };
/// Two waiters beside Java.
const JAVA: Case = Case { homes: &[0, 1], javas: 1, java_asks: 1, ..Case::PLAIN };
/// Java is as near to the server as our clients, which have waited before.
const PROMPT_JAVA: Case = Case { asks: 7, subscribed: true, java_prompt: true, ..JAVA };
/// The same for two waiters of one process, which hears the answers to its releases.
const ANSWERED: Case = Case { homes: &[0, 0], asks: 7, answers: true, ..PROMPT_JAVA };
/// A lease of a tick less if granted by message. Nothing goes wrong but that all is late.
const TIMED: Case = Case { polls: 1, ..Case::TIMED };
/// A lock is unlocked by force while an ask is under way, whose answer may come too late.
const UNANSWERED: Case = Case { forces: 1, repeats: 1, ..TIMED };
/// Clocks drift as much as is allowed for: by a tick in the time from a sample to a grant, and by one in a lease.
const DRIFT: Case = Case {
    ttl: 5,
    short: 4,
    drift: 1,
    slack: 1,
    skew: 2,
    calm: 5,
    delay: Some(2),
    repeats: 1,
    ..Case::TIMED
};
/// The server's clock steps forward, and nothing is under way for long.
const STEP: Case = Case { steps: 1, step: 3, delay: Some(1), ..TIMED };
/// The server's clock steps back, and nothing is under way for as long as a lease.
const BACK: Case = Case { ttl: 5, short: 4, step: -4, ..STEP };
/// The server restarts empty, with another clock.
const RESTART: Case =
    Case { restarts: 1, asks: 2, restart_step: 1, quarantine: 3, delay: Some(2), ..Case::TIMED };

// That the model moves at all.
checks! {
    a_grant_by_message_and_a_confirmation_happen: happens(Case { polls: 1, ..THREE }, [GRANTED, CONFIRMED]);
    a_renewal_of_a_grant_happens: happens(Case { renewals: 1, ..TIMED }, [GRANTED, RENEWED]);
    a_grant_in_a_quarantine_happens: happens(RESTART, [DOUBTED]);
    java_has_a_turn_between_two_of_ours: happens(JAVA, [ALTERNATED]);
}

// Nothing fails.
checks! {
    nobody_is_forgotten: holds(Case { asks: 4, cancels: 1, polls: 1, ..THREE }, SOUND);
    #[cfg(feature = "long")]
    grants_follow_the_order_of_arrival: holds(Case { asks: 4, cancels: 1, polls: 1, ..THREE }, ORDER);
    nobody_is_forgotten_of_two_waiters_in_one_process: holds(Case { cancels: 1, polls: 1, ..FAIR }, SOUND);
    grants_follow_the_order_of_arrival_in_one_process: holds(Case { asks: 4, polls: 1, ..FAIR }, ORDER);
    an_attempt_without_waiting_does_not_barge: holds(Case { tries: 1, polls: 1, ..THREE }, [EXCLUSION, NO_LEFTOVER, LIVENESS, HEAD_KNOWS, ARRIVAL_ORDER]);
    #[cfg(feature = "long")]
    an_attempt_beside_those_who_wait_is_answered: holds(Case { tries: 2, cancels: 1, ..FAIR }, ATTEMPTS);
    an_attempt_is_answered_where_connections_break: holds(Case { asks: 2, tries: 1, breaks: 1, resets: 1, ..FAIR }, ATTEMPTS);
    a_forced_unlock_hands_on: holds(Case { forces: 1, cancels: 1, ..THREE }, SOUND);
    who_was_unlocked_by_force_and_is_granted_anew_has_the_new_token: holds(UNANSWERED, [LEASE_TOKEN]);
}

// The queue moves to another server: no poll is needed.
checks! {
    nobody_is_forgotten_where_the_queue_moves: holds(Case { moves: 1, polls: 1, cancels: 1, ..TWO }, SOUND);
    nobody_of_three_is_forgotten_where_the_queue_moves: holds(Case { moves: 1, ..THREE }, SOUND);
    nobody_of_one_process_is_forgotten_where_the_queue_moves: holds(Case { moves: 1, ..FAIR }, SOUND);
}

// Processes end or stop, and the queue is lost: then a poll helps.
checks! {
    a_poll_helps_where_processes_end: holds(Case { crashes: 2, polls: 1, cancels: 1, ..THREE }, SOUND);
    a_poll_helps_where_a_process_stops: holds(Case { stops: 1, crashes: 1, polls: 1, ..THREE }, SOUND);
    a_poll_helps_where_a_process_with_two_waiters_stops: holds(Case { stops: 1, polls: 2, ..FAIR }, SOUND);
    nobody_of_one_process_is_forgotten_when_grants_are_late: holds(Case { late: 1, polls: 1, ..FAIR }, SOUND);
    a_poll_helps_where_the_queue_is_lost: holds(Case { forgets: 1, crashes: 1, polls: 1, ..THREE }, SOUND);
}

// Processes end, more than a run passes over, also beside Java.
checks! {
    nobody_waits_for_the_dead: holds(Case { crashes: 2, tries: 1, ..THREE }, [EXCLUSION, NO_LEFTOVER, FREE_FOR_WHO_ASKS]);
    #[cfg(feature = "long")]
    nobody_waits_for_the_dead_beside_java: holds(DEAD, [EXCLUSION, NO_LEFTOVER, LIVENESS, FREE_FOR_WHO_ASKS]);
    #[cfg(feature = "long")]
    more_of_the_dead_than_a_run_passes_over: holds(Case { passes: 1, ..FOUR }, [EXCLUSION, NO_LEFTOVER, LIVENESS, FREE_FOR_WHO_ASKS]);
}

// Connections break, messages are lost or late: no poll is needed.
checks! {
    nobody_is_forgotten_when_subscriptions_break: holds(Case { asks: 4, resets: 1, half_open: true, polls: 1, cancels: 1, ..TWO }, SOUND);
    nobody_is_forgotten_when_subscriptions_of_three_break: holds(Case { resets: 1, ..THREE }, SOUND);
    nobody_is_forgotten_when_a_connection_breaks: holds(Case { asks: 4, breaks: 1, doubles: 1, polls: 1, cancels: 1, ..TWO }, SOUND);
    nobody_is_forgotten_when_a_broken_connection_cannot_be_killed: holds(Case { breaks: 1, kills: false, polls: 1, cancels: 1, ..TWO }, SOUND);
    nobody_is_forgotten_when_grants_are_late: holds(Case { late: 2, polls: 1, cancels: 1, ..TWO }, SOUND);
    nobody_is_forgotten_when_all_this_happens: holds(Case { late: 1, resets: 1, breaks: 1, ..TWO }, SOUND);
    nobody_is_forgotten_where_letters_are_read_behind_a_failure: holds(Case { breaks: 1, late: 1, cancels: 1, ..TWO }, SOUND);
    tokens_increase_when_requests_stray: holds(Case { breaks: 1, kills: false, polls: 1, late: 1, ..TWO }, [TOKEN_ORDER]);
    tokens_increase_when_grants_are_late: holds(Case { late: 2, polls: 1, ..TWO }, [TOKEN_ORDER]);
}

// Beside Java.
checks! {
    nobody_is_forgotten_beside_java: holds(Case { cancels: 1, ..JAVA }, SOUND);
    nobody_is_forgotten_beside_java_when_one_polls: holds(Case { polls: 1, asks: 2, ..JAVA }, SOUND);
    nobody_of_three_is_forgotten_beside_java: holds(Case { homes: THREE.homes, ..JAVA }, SOUND);
    nobody_is_forgotten_beside_java_twice: holds(Case { asks: 2, java_asks: 2, cancels: 1, ..JAVA }, SOUND);
    who_polls_behind_java_finds_who_listens: holds(Case { crashes: 1, asks: 2, ..JAVA }, [HEARS_JAVA]);
    a_poll_helps_where_java_ends: holds(Case { crashes: 1, ..JAVA }, SOUND);
    nobody_is_forgotten_beside_java_when_subscriptions_break: holds(Case { asks: 2, resets: 1, half_open: true, ..JAVA }, SOUND);
    #[cfg(feature = "long")]
    nobody_is_forgotten_beside_java_when_grants_are_late: holds(Case { late: 1, ..JAVA }, SOUND);
    a_forced_unlock_hands_on_beside_java: holds(Case { forces: 1, ..JAVA }, SOUND);
    java_is_passed_over_twice_at_most: holds(PROMPT_JAVA, [JAVA_TURN]);
    java_is_passed_over_twice_at_most_where_grants_are_confirmed:
        holds(Case { confirms: true, ..PROMPT_JAVA }, [JAVA_TURN]);
    java_is_passed_over_twice_at_most_by_two_in_one_process: holds(ANSWERED, [JAVA_TURN]);
    #[cfg(feature = "long")]
    nobody_is_forgotten_behind_a_release_that_others_hear:
        holds(Case { homes: &[0, 0, 1], answers: true, ..JAVA }, SOUND);
}

// Deadlines of grants by message.
checks! {
    #[cfg(feature = "long")]
    no_double_grant_with_deadlines: holds(Case { renewals: 1, ..TIMED }, SAFE);
    #[cfg(feature = "long")]
    no_double_grant_when_connections_break:
        holds(Case { resets: 1, breaks: 1, repeats: 1, ..Case::TIMED }, SAFE);
    no_double_grant_when_requests_stray: holds(Case { breaks: 1, kills: false, ..Case::TIMED }, SAFE);
    no_double_grant_while_clocks_drift_as_allowed: holds(DRIFT, SAFE);
    clocks_that_drift_by_more_than_is_allowed_give_a_double_grant: fails(Case { calm: 0, ..DRIFT }, [EXCLUSION]);
    no_double_grant_when_a_clock_steps_forward: holds(STEP, SAFE);
    no_double_grant_when_a_clock_steps_back: holds(BACK, SAFE);
    a_step_forward_and_a_late_message_give_a_double_grant: fails(Case { step: 1, delay: None, ..STEP }, [EXCLUSION]);
    a_step_back_and_a_late_message_give_a_double_grant: fails(Case { delay: None, ..BACK }, [EXCLUSION]);
    #[cfg(feature = "long")]
    no_double_grant_with_a_restart_and_another_clock: holds(RESTART, SAFE);
    a_quarantine_shorter_than_a_lease_gives_a_double_grant: fails(Case { quarantine: 2, ..RESTART }, [EXCLUSION]);
}

// The rules, each broken once.
checks! {
    a_request_that_stays_where_the_queue_was: fails(Case { moves: 1, ..TWO }.with(Bug::StaysWhereItWas), [LIVENESS]);
    an_ask_behind_a_release_that_does_not_stand_back: fails(ANSWERED.with(Bug::DoesNotStandBack), [JAVA_TURN]);
    who_listens_forgotten_by_a_release_that_grants: fails(ANSWERED.with(Bug::ForgetsWhoListens), [JAVA_TURN]);
    an_attempt_forgotten: fails(Case { tries: 1, ..FAIR }.with(Bug::AttemptForgotten), [ATTEMPT_ANSWERED]);
    the_next_head_not_told: fails(THREE.with(Bug::NextLeftOut), [HEAD_KNOWS]);
    the_next_head_not_told_beside_java: fails(JAVA.with(Bug::NextLeftOut), [LIVENESS]);
    a_leaving_heads_successor_not_told: fails(Case { cancels: 1, ..THREE }.with(Bug::LeaveNotTold), [HEAD_KNOWS]);
    a_leaving_heads_successor_not_told_beside_java:
        fails(Case { homes: THREE.homes, cancels: 1, ..JAVA }.with(Bug::LeaveNotTold), [LIVENESS]);
    a_dead_head_not_passed_over: fails(Case { crashes: 2, ..THREE }.with(Bug::DeadNotPassedOver), [LIVENESS]);
    a_dead_head_kept_behind_java: fails(Case { crashes: 1, asks: 2, ..JAVA }.with(Bug::DeadHeadKept), [HEARS_JAVA]);
    a_newcomer_that_waits_for_the_dead: fails(DEAD.with(Bug::WaitsForTheDead), [FREE_FOR_WHO_ASKS]);
    an_ask_that_waits_behind_the_rest_of_the_dead: fails(Case { passes: 1, ..FOUR }.with(Bug::WaitsBehindTheRest), [LIVENESS]);
    no_poll_behind_a_dead_head: fails(Case { crashes: 2, ..THREE }.with(Bug::NoPoll), [LIVENESS]);
    a_grant_for_nobody_kept: fails(Case { cancels: 1, ..THREE }.with(Bug::GrantForNobodyKept), [NO_LEFTOVER]);
    an_entry_enqueued_twice: fails(Case { polls: 1, ..THREE }.with(Bug::EnqueuedTwice), [NO_LEFTOVER]);
    a_message_for_an_old_id_accepted: fails(Case { asks: 4, cancels: 1, ..TWO }.with(Bug::OldIdAccepted), [EXCLUSION]);
    a_lock_taken_before_those_who_wait: fails(Case { late: 1, ..THREE }.with(Bug::Barging), [ARRIVAL_ORDER]);
    a_poll_that_loses_its_place: fails(Case { polls: 1, ..THREE }.with(Bug::PollLosesPlace), [ARRIVAL_ORDER]);
    nobody_asks_behind_a_subscription: fails(TWO.with(Bug::ResetNotAsked), [HEAD_KNOWS]);
    a_head_that_does_not_listen_for_java: fails(JAVA.with(Bug::HeadDoesNotListen), [LIVENESS]);
    a_token_of_a_message_that_was_late:
        fails(Case { asks: 4, late: 2, polls: 1, ..TWO }.with(Bug::TokenOfMessage), [TOKEN_ORDER]);
    a_grant_believed_although_an_ask_has_no_answer: fails(UNANSWERED.with(Bug::BelievedUnanswered), [LEASE_TOKEN]);
    a_confirmed_grant_taken_for_one_by_an_answer:
        fails(Case { confirms: true, ..PROMPT_JAVA }.with(Bug::ConfirmedIsNoMessage), [JAVA_TURN]);
    a_release_that_hands_on_although_java_waits: fails(PROMPT_JAVA.with(Bug::PumpAlways), [JAVA_TURN]);
    a_newcomer_that_hands_on_although_java_waits:
        fails(Case { homes: THREE.homes, asks: 6, ..PROMPT_JAVA }.with(Bug::FirstAskPumps), [JAVA_TURN]);
    an_ask_right_behind_a_release_that_java_heard:
        fails(Case { homes: &[0], ..PROMPT_JAVA }.with(Bug::AsksBehindItsRelease), [JAVA_TURN]);
    a_deadline_from_the_receipt: fails(TIMED.with(Bug::DeadlineFromReceipt), [EXCLUSION]);
    a_deadline_of_the_full_length: fails(TIMED.with(Bug::FullLengthBelieved), [EXCLUSION]);
    a_step_that_shows_and_is_not_looked_at: fails(STEP.with(Bug::StepNotSeen), [EXCLUSION]);
    an_old_sample_believed_to_the_tick: fails(Case { slack: 0, ..DRIFT }, [EXCLUSION]);
}
