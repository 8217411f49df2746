//! The full form: more acquires, two faults at once, three clients, five servers. Runs only when it is named.

use leasehold_model::case::{Case, Wrong};
use leasehold_model::model::{EXCLUSION, NO_LEFTOVER, Protocol, TOKEN_ORDER};
use leasehold_model::report;

const SAFE: &[&str] = &[EXCLUSION, NO_LEFTOVER];

const CRASH: Case = Case { restarts: 1, quarantine: Case::PLAIN.ttl, ..Case::PLAIN };
/// A ttl of three ticks, one of them for the drift of clocks, and a clock that goes wrong by that much.
const DRIFT: Case = Case { ttl: 3, drift: 1, skew: 1, ..Case::PLAIN };
const HEALS: Case = Case { asks: 2, renewals: 1, heals: true, ..Case::PLAIN };
const STRAY: Case = Case { breaks: 1, kills: false, ..Case::PLAIN };
const TOKENS: Case = Case { asks: 2, ..Case::TOKENS };
const TIMED_TOKENS: Case = Case { tokens: true, timeless: false, asks: 3, ..TOKENS };

/// As in `checks.rs`, with the number of servers and of clients.
macro_rules! checks {
    ($($name:ident: $check:ident::<$n:literal, $c:literal>($case:expr, $properties:expr);)*) => {$(
        #[test]
        fn $name() {
            let properties: &[&'static str] = &$properties[..];
            let size = concat!($n, " × ", $c);
            report::$check(stringify!($name), size, Protocol::<$n, $c>::new($case, properties));
        }
    )*};
}

// Exclusion.
checks! {
    four_acquires: holds::<3, 2>(Case { asks: 4, ..Case::PLAIN }, SAFE);
    three_acquires_and_a_request_run_twice: holds::<3, 2>(Case { doubles: 1, ..Case::PLAIN }, SAFE);
    three_acquires_and_a_connection_that_cannot_be_killed: holds::<3, 2>(STRAY, [EXCLUSION]);
    three_clients: holds::<3, 3>(Case::PLAIN, SAFE);
    two_restarts: holds::<3, 2>(Case { asks: 2, restarts: 2, ..CRASH }, SAFE);
    a_restart_and_a_broken_connection: holds::<3, 2>(Case { asks: 2, breaks: 1, ..CRASH }, SAFE);
    a_restart_while_clocks_differ: holds::<3, 2>(Case { restarts: 1, quarantine: 3, ..DRIFT }, SAFE);
    a_restart_while_clocks_differ_by_more_than_the_allowance:
        fails::<3, 2>(Case { restarts: 1, quarantine: 3, skew: 2, ..DRIFT }, [EXCLUSION]);
    two_renewals_and_heals: holds::<3, 2>(Case { renewals: 2, ..HEALS }, SAFE);
    a_renewal_heals_and_two_restarts: holds::<3, 2>(Case { restarts: 2, quarantine: 2, ..HEALS }, SAFE);
    five_servers: holds::<5, 2>(Case { asks: 2, ..Case::PLAIN }, SAFE);
    five_servers_and_a_restart: holds::<5, 2>(Case { asks: 2, ..CRASH }, SAFE);
}

// Tokens.
checks! {
    tokens_of_three_acquires: holds::<3, 2>(Case { asks: 3, ..TOKENS }, [TOKEN_ORDER]);
    tokens_of_two_acquires_and_two_steps_of_clocks: holds::<3, 2>(Case { steps: 2, ..TOKENS }, [TOKEN_ORDER]);
    tokens_of_three_acquires_with_clocks_and_deadlines: holds::<3, 2>(TIMED_TOKENS, [TOKEN_ORDER, EXCLUSION, NO_LEFTOVER]);
    tokens_of_three_clients: holds::<3, 3>(Case { asks: 3, ..TOKENS }, [TOKEN_ORDER]);
    tokens_of_five_servers: holds::<5, 2>(TOKENS, [TOKEN_ORDER]);
    tokens_of_five_servers_of_the_plain_maximum: fails::<5, 2>(TOKENS.with(Wrong::NoRaise), [TOKEN_ORDER]);
}
