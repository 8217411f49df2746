//! The queue on one server, in the full form: more waits, more faults at once, four waiters, two clients of Redisson. Runs
//! only when it is named.

use leasehold_model::checks;
use leasehold_model::queue::case::Case;
use leasehold_model::queue::protocol::{
    ARRIVAL_ORDER, EXCLUSION, FREE_FOR_WHO_ASKS, HEAD_KNOWS, JAVA_TURN, LIVENESS, NO_LEFTOVER,
    Protocol, TOKEN_ORDER,
};

const SAFE: &[&str] = &[EXCLUSION, NO_LEFTOVER, TOKEN_ORDER];
const SOUND: &[&str] = &[EXCLUSION, NO_LEFTOVER, LIVENESS, HEAD_KNOWS];

const THREE: Case = Case::PLAIN;
const TWO: Case = Case { homes: &[0, 1], ..Case::PLAIN };
const JAVA: Case = Case { homes: &[0, 1], javas: 1, java_asks: 1, ..Case::PLAIN };
const TIMED: Case = Case { polls: 1, renewals: 1, cancels: 1, ..Case::TIMED };

checks! {
    five_waits_of_three: holds(Case { asks: 5, cancels: 1, polls: 1, ..THREE }, SOUND);
    order_of_arrival_of_five_waits: holds(Case { asks: 5, cancels: 1, ..THREE }, [ARRIVAL_ORDER]);
    four_waiters_in_two_processes: holds(Case { homes: &[0, 0, 1, 1], asks: 4, cancels: 1, ..THREE }, SOUND);
    two_processes_that_end_and_one_that_stops: holds(Case { asks: 4, crashes: 2, stops: 1, ..THREE }, SOUND);
    subscriptions_of_three_that_break: holds(Case { resets: 1, half_open: true, polls: 1, cancels: 1, ..THREE }, SOUND);
    two_subscriptions_that_break: holds(Case { asks: 4, resets: 2, half_open: true, cancels: 1, ..TWO }, SOUND);
    two_connections_that_cannot_be_killed: holds(Case { asks: 4, breaks: 2, kills: false, cancels: 1, ..TWO }, SOUND);
    a_shared_subscription_that_breaks: holds(Case { homes: &[0, 0, 1], resets: 1, breaks: 1, late: 1, ..THREE }, SOUND);
    grants_to_four_waits_that_are_late: holds(Case { asks: 4, late: 2, polls: 1, cancels: 1, ..TWO }, SOUND);
    tokens_of_four_waits_that_are_late: holds(Case { asks: 4, late: 2, polls: 1, ..TWO }, [TOKEN_ORDER]);
    three_beside_java: holds(Case { homes: &[0, 1, 2], asks: 4, polls: 1, cancels: 1, ..JAVA }, SOUND);
    two_beside_java: holds(Case { polls: 1, cancels: 1, ..JAVA }, SOUND);
    more_of_the_dead_than_a_run_passes_over_beside_java:
        holds(Case { homes: &[0, 1, 2], asks: 2, crashes: 2, tries: 1, passes: 1, ..JAVA }, [EXCLUSION, NO_LEFTOVER, LIVENESS, FREE_FOR_WHO_ASKS]);
    two_of_java: holds(Case { javas: 2, java_asks: 2, cancels: 1, ..JAVA }, SOUND);
    three_take_turns_with_java:
        holds(Case { homes: &[0, 1, 2], asks: 7, subscribed: true, java_prompt: true, ..JAVA }, [JAVA_TURN]);
    deadlines_of_three_waiters: holds(Case { homes: &[0, 1, 2], cancels: 0, ..TIMED }, SAFE);
    deadlines_of_four_waits: holds(Case { asks: 4, ..TIMED }, SAFE);
    deadlines_while_connections_break: holds(Case { breaks: 1, kills: false, resets: 1, ..TIMED }, SAFE);
}
