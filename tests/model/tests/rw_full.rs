//! A read-write lock, in the full form: three clients, and more that goes wrong. Runs only when it is named.

use leasehold_model::checks;
use leasehold_model::rw::case::Case;
use leasehold_model::rw::case::Use::{Both, Reads, Writes};
use leasehold_model::rw::protocol::{
    EXCLUSION, FIRST_KNOWS, LEFTOVER, NOTICED, ORDER, Protocol, SHUT, TAKEN, TOKENS,
};

const SAFE: &[&str] = &[EXCLUSION, ORDER, SHUT, LEFTOVER, TAKEN, FIRST_KNOWS, TOKENS, NOTICED];

const PAIR: Case<2> = Case::plain([Both, Both]);
const MIXED: Case<3> = Case::plain([Reads, Reads, Writes]);
const JOINS: Case<2> = Case { joins: 1, ..Case::plain([Reads, Both]) };
const JAVA: Case<2> = Case { java_asks: 2, asks: 2, ..PAIR };
const SHUTS: Case<3> = Case { shuts: 1, ..MIXED };

checks! {
    three_clients_that_read_and_write: holds(Case::plain([Both, Both, Both]), SAFE);
    shortest_holds_beside_others_who_join: holds(Case { keeps: 2, ..JOINS }, SAFE);
    a_shortest_hold_and_a_request_that_runs_twice: holds(Case { keeps: 1, doubles: 1, ..PAIR }, SAFE);
    a_shortest_hold_beside_java: holds(Case { keeps: 1, ..JAVA }, SAFE);
    a_request_that_runs_twice: holds(Case { doubles: 1, ..PAIR }, SAFE);
    a_letter_that_is_lost: holds(Case { lost_letters: 1, polls: 1, ..MIXED }, SAFE);
    a_client_of_three_that_ends: holds(Case { crashes: 1, ..MIXED }, SAFE);
    java_twice: holds(JAVA, SAFE);
    java_twice_that_renews_no_ends: holds(Case { java_leaves_ends: true, ..JAVA }, SAFE);
    a_shut_window: holds(SHUTS, SAFE);
    a_shut_window_and_a_client_that_ends: holds(Case { crashes: 1, ..SHUTS }, SAFE);
}
