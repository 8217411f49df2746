//! One deployment whose master changes, in the full form: three clients, more acquires and faults. Runs only when it is
//! named.

use leasehold_model::failover::case::Case;
use leasehold_model::failover::protocol::{EXCLUSION, Protocol, RECLAIM_IN_TIME, RECLAIM_OF_FREE};
use leasehold_model::report;

const SAFE: &[&str] = &[EXCLUSION, RECLAIM_IN_TIME, RECLAIM_OF_FREE];

const FENCED: Case = Case::PLAIN;
const BACK: Case = Case { promotions: 2, ..FENCED };

/// As in `failover.rs`, with the number of clients.
macro_rules! checks {
    ($($name:ident: $check:ident::<$c:literal>($case:expr, $properties:expr);)*) => {$(
        #[test]
        fn $name() {
            let properties: &[&'static str] = &$properties[..];
            report::$check(stringify!($name), stringify!($c), Protocol::<$c>::new($case, properties));
        }
    )*};
}

checks! {
    three_clients_and_a_promotion: holds::<3>(Case { asks: 3, ..FENCED }, SAFE);
    three_acquires_and_two_promotions: holds::<2>(Case { asks: 3, ..BACK }, SAFE);
    two_promotions_and_a_restart: holds::<2>(Case { restarts: 1, ..BACK }, SAFE);
    two_promotions_and_a_lost_mark: holds::<2>(Case { lost_marks: 1, ..BACK }, SAFE);
    a_grace_longer_than_the_ttl: holds::<2>(Case { grace: 3, ..BACK }, SAFE);
}
