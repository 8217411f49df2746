//! The cases that take longest. They keep all rules, which the other cases break one by one. Runs only when it is named.
//!
//! A test that `holds` has gone through every state.

mod queue {
    use leasehold_model::checks;
    use leasehold_model::queue::case::Case;
    use leasehold_model::queue::protocol::{EXCLUSION, NO_LEFTOVER, Protocol};

    checks! {
        no_double_grant_when_connections_break:
            holds(Case { resets: 1, breaks: 1, repeats: 1, ..Case::TIMED }, [EXCLUSION, NO_LEFTOVER]);
    }
}

mod permits {
    use leasehold_model::checks;
    use leasehold_model::permits::case::Case;
    use leasehold_model::permits::protocol::{
        CONSERVATION, EXCLUSION, LEFTOVER, ORDER, Protocol, TAKEN,
    };

    checks! {
        permits_keep_the_rules_when_a_request_runs_twice:
            holds(Case::<3> { doubles: 1, ..Case::plain([1, 2, 1]) }, [EXCLUSION, CONSERVATION, ORDER, LEFTOVER, TAKEN]);
    }
}

mod items {
    use leasehold_model::checks;
    use leasehold_model::items::case::Case;
    use leasehold_model::items::protocol::{
        CONSERVATION, DONE, FIRST_KNOWS, LEFTOVER, LENT, ORDER, Protocol, TAKEN,
    };

    const SAFE: &[&str] = &[LENT, DONE, CONSERVATION, ORDER, LEFTOVER, TAKEN, FIRST_KNOWS];

    /// Two workers and two items, of which the second is too long for a letter.
    const LONG: Case<2> = Case { long_from: 1, polls: 0, ..Case::plain() };

    checks! {
        items_keep_the_rules_when_one_polls: holds(Case::<2> { polls: 1, ..Case::plain() }, SAFE);
        items_keep_the_rules_with_renewals: holds(Case { renewals: 1, ..LONG }, SAFE);
        items_keep_the_rules_when_a_request_runs_twice: holds(Case { doubles: 1, ..LONG }, SAFE);
    }
}

mod rw {
    use leasehold_model::checks;
    use leasehold_model::rw::case::Case;
    use leasehold_model::rw::case::Use::Both;
    use leasehold_model::rw::protocol::{
        EXCLUSION, FIRST_KNOWS, LEFTOVER, NOTICED, ORDER, Protocol, SHUT, TAKEN, TOKENS,
    };

    const SAFE: &[&str] = &[EXCLUSION, ORDER, SHUT, LEFTOVER, TAKEN, FIRST_KNOWS, TOKENS, NOTICED];

    /// Redisson's client comes between two of ours that read and write.
    const JAVA: Case<2> = Case { java_asks: 1, asks: 2, ..Case::plain([Both, Both]) };

    checks! {
        readers_and_writers_keep_the_rules_beside_java_with_a_downgrade_and_an_end:
            holds(Case { downgrades: 1, crashes: 1, ..JAVA }, SAFE);
        readers_and_writers_keep_the_rules_beside_java_that_renews_no_ends_and_ends_itself:
            holds(Case { crashes: 1, java_leaves_ends: true, ..JAVA }, SAFE);
        readers_and_writers_keep_the_rules_in_a_shut_window_beside_java: holds(Case { shuts: 1, ..JAVA }, SAFE);
    }
}
