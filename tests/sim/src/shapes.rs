//! The scenarios there are.

use crate::checker::Rule;
use crate::nemesis::Fault;
use crate::scenario::Scenario;

/// What locks must survive: no promise is broken.
pub fn covered() -> Vec<Scenario> {
    vec![
        one_server(),
        Scenario { name: "quiet", faults: &[], ..one_server() },
        Scenario { name: "three-servers-in-quiet", faults: &[], kinds: 400, ..three_servers() },
        Scenario { name: "cluster-in-quiet", faults: &[], ..kinds_in_a_cluster() },
        Scenario { name: "one-lock", locks: 1, hosts: 5, workers: 2, ..one_server() },
        Scenario {
            name: "stopped-hosts",
            locks: 1,
            faults: &[(Fault::StopHost, 1)],
            every_ms: 300,
            ..one_server()
        },
        // A lease lasts longer then, which breaks nothing.
        Scenario { name: "clock-set-back", faults: SET_BACK, ..one_server() },
        three_servers(),
        Scenario {
            name: "three-durable-servers",
            durable: true,
            quarantine_ms: Some(3000),
            faults: NETWORK_AND_CRASHES,
            expected: &[],
            ..three_servers()
        },
        long_quarantine(),
        Scenario { name: "five-servers", nodes: 5, ..long_quarantine() },
        forgetful_servers(),
        failovers(),
        resharding(),
        kinds(),
        Scenario { name: "kinds-in-quiet", faults: &[], ..kinds() },
        Scenario { name: "kinds-with-long-leases", kinds: 800, ..long_leases() },
        Scenario { name: "kinds-over-failovers", kinds: 800, ..failovers() },
        Scenario { name: "kinds-on-three-servers", kinds: 600, ..three_servers() },
        Scenario { name: "kinds-on-forgetful-servers", kinds: 900, ..forgetful_servers() },
        kinds_in_a_cluster(),
        coordination(),
        Scenario { name: "coordination-in-quiet", faults: &[], ..coordination() },
        Scenario { name: "coordination-clock-set-back", faults: SET_BACK, ..coordination() },
        Scenario {
            name: "stopped-workers",
            faults: &[(Fault::StopHost, 8), (Fault::KillHost, 2), (Fault::EndClient, 1)],
            every_ms: 300,
            ..coordination()
        },
        coordination_over_failovers(),
        coordination_in_a_cluster(),
        deadlocks(),
        Scenario { name: "deadlocks-in-quiet", faults: &[], ..deadlocks() },
        Scenario {
            name: "deadlocks-on-three-servers",
            locks: 5,
            tangles: 900,
            keepers: 0,
            ..three_servers()
        },
        Scenario {
            name: "deadlocks-in-a-cluster",
            locks: 5,
            tangles: 900,
            keepers: 0,
            ..resharding()
        },
        Scenario {
            name: "deadlocks-over-failovers",
            locks: 5,
            tangles: 900,
            keepers: 0,
            ..failovers()
        },
        deadlocks_of_permits(),
        Scenario { name: "deadlocks-of-permits-in-quiet", faults: &[], ..deadlocks_of_permits() },
        long_leases(),
        Scenario { name: "three-long-leases", nodes: 3, ..long_leases() },
        Scenario {
            name: "one-of-three-cleared",
            durable: true,
            faults: &[(Fault::ClearSpare, 1)],
            every_ms: 300,
            expected: &[],
            ..three_servers()
        },
    ]
}

/// What breaks a lock, and is said to: two may hold it, and who has lost it is told.
pub fn excluded() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "one-server-restarts-empty",
            durable: false,
            faults: EMPTY_RESTARTS,
            expected: &[Rule::Exclusion],
            ..one_server()
        },
        Scenario {
            name: "no-quarantine",
            quarantine_ms: Some(0),
            expected: &[Rule::Exclusion, Rule::TokenOrder],
            ..three_servers()
        },
        Scenario {
            name: "failovers-without-grace",
            quarantine_ms: Some(0),
            expected: &[Rule::Exclusion, Rule::TokenOrder],
            ..failovers()
        },
        // A permit that moves with its slot keeps its end, which is a time of the other master's clock: there it has come already.
        Scenario {
            name: "kinds-between-clocks",
            apart_ms: 1000,
            expected: &[Rule::Permits, Rule::Cause],
            ..kinds_in_a_cluster()
        },
        Scenario {
            name: "old-master-lives-on",
            faults: UNFENCED,
            expected: &[Rule::Exclusion, Rule::TokenOrder],
            ..failovers()
        },
        Scenario {
            // Until the holder's process learns of it, its tasks hand the lease on, with the tokens of its block.
            name: "force-unlock",
            force_unlocks: 50,
            expected: &[Rule::Exclusion, Rule::TokenOrder],
            ..one_server()
        },
        Scenario {
            name: "clock-set-forward",
            faults: SET_FORWARD,
            expected: &[Rule::Exclusion, Rule::Deadline],
            ..one_server()
        },
        cleared_by_hand(),
        Scenario { name: "three-cleared-by-hand", nodes: 3, ttl_ms: 2000, ..cleared_by_hand() },
    ]
}

pub fn named(name: &str) -> Option<Scenario> {
    covered().into_iter().chain(excluded()).find(|scenario| scenario.name == name)
}

pub fn one_server() -> Scenario {
    Scenario {
        name: "one-server",
        nodes: 1,
        hosts: 4,
        workers: 3,
        locks: 2,
        ttl_ms: 2000,
        quarantine_ms: None,
        replicated: false,
        cluster: false,
        one_clock: false,
        apart_ms: 0,
        durable: true,
        faults: NETWORK_AND_CRASHES,
        every_ms: 500,
        force_unlocks: 0,
        keepers: 50,
        longer: 1,
        kinds: 0,
        coordination: 0,
        tangles: 0,
        tangled_permits: false,
        expected: &[],
    }
}

/// Locks that are taken one under the other, in any order.
fn deadlocks() -> Scenario {
    Scenario { name: "deadlocks", locks: 5, tangles: 900, keepers: 0, ..one_server() }
}

/// With permits, too: those through permits are found in one process only.
fn deadlocks_of_permits() -> Scenario {
    Scenario {
        name: "deadlocks-of-permits",
        hosts: 1,
        workers: 8,
        locks: 3,
        tangled_permits: true,
        ..deadlocks()
    }
}

/// Only who has lost its lock to that may hold it beside another. The leases are long: who waits behind one that was
/// deleted must not wait for its end. (Of three servers they are short, so that more losses are noticed.)
fn cleared_by_hand() -> Scenario {
    Scenario {
        name: "cleared-by-hand",
        ttl_ms: 12_000,
        faults: CLEARED,
        keepers: 300,
        ..one_server()
    }
}

/// Leases are made longer by extensions and nested locks, clients end, and hosts are suspended. The leases are long, so that
/// a look that is planned for the next renewal comes late after a suspend.
fn long_leases() -> Scenario {
    Scenario {
        name: "long-leases",
        ttl_ms: 6000,
        longer: 4,
        faults: LONG_LEASES,
        every_ms: 400,
        ..one_server()
    }
}

/// They may restart empty. Tokens rise in spite of it: the time that they are is in steps of half a quarantine.
pub fn three_servers() -> Scenario {
    Scenario {
        name: "three-servers",
        nodes: 3,
        quarantine_ms: Some(3000),
        durable: false,
        faults: EMPTY_RESTARTS,
        expected: &[],
        ..one_server()
    }
}

/// They forget in every way there is, and processes that know nothing of it come anew all the time.
fn forgetful_servers() -> Scenario {
    Scenario { name: "forgetful-servers", faults: FORGETFUL, every_ms: 700, ..three_servers() }
}

/// A master whose replica takes over, in spite of what it has not got.
fn failovers() -> Scenario {
    Scenario {
        name: "failovers",
        replicated: true,
        quarantine_ms: Some(2500),
        faults: FAILOVERS,
        ..one_server()
    }
}

/// The masters of a cluster, between which the slots of locks move.
fn resharding() -> Scenario {
    Scenario {
        name: "resharding",
        nodes: 3,
        cluster: true,
        locks: 4,
        faults: RESHARDING,
        every_ms: 300,
        ..one_server()
    }
}

/// The same of all kinds, with all their keys. Permits need clocks that agree.
fn kinds_in_a_cluster() -> Scenario {
    Scenario { name: "kinds-in-a-cluster", kinds: 700, one_clock: true, ..resharding() }
}

/// Read-write locks, semaphores, elections and several locks at once, beside mutexes.
pub fn kinds() -> Scenario {
    Scenario { name: "kinds", workers: 4, kinds: 800, faults: KINDS, ..one_server() }
}

/// A queue of items, latches and signals, beside mutexes.
pub fn coordination() -> Scenario {
    Scenario {
        name: "coordination",
        workers: 4,
        coordination: 950,
        faults: COORDINATION,
        ..one_server()
    }
}

/// The replica that takes over lacks the last pushes, acks, counts and signals.
fn coordination_over_failovers() -> Scenario {
    Scenario {
        name: "coordination-over-failovers",
        workers: 4,
        coordination: 950,
        faults: COORDINATION_FAILOVERS,
        ..failovers()
    }
}

/// The same while the slots of all of them move. A delivery, as a permit, ends by the clock of its master.
fn coordination_in_a_cluster() -> Scenario {
    Scenario {
        name: "coordination-in-a-cluster",
        nodes: 3,
        cluster: true,
        one_clock: true,
        locks: 1,
        faults: COORDINATION_MOVES,
        every_ms: 300,
        ..coordination()
    }
}

fn long_quarantine() -> Scenario {
    Scenario {
        name: "long-quarantine",
        quarantine_ms: Some(12_000),
        faults: RARE_EMPTY_RESTARTS,
        expected: &[],
        ..three_servers()
    }
}

/// What happens everywhere: to connections, networks and processes.
macro_rules! faults {
    ($($more:expr),* $(,)?) => {
        &[
            (Fault::LoseRequests, 10),
            (Fault::LoseReplies, 10),
            (Fault::HalfClose, 5),
            (Fault::Swallow, 5),
            (Fault::Straggle, 10),
            (Fault::Kill, 10),
            (Fault::Partition, 10),
            (Fault::Slow, 10),
            (Fault::StopNode, 5),
            (Fault::FlushScripts, 5),
            (Fault::StopHost, 10),
            (Fault::KillHost, 2),
            $($more),*
        ]
    };
}

const NETWORK_AND_CRASHES: &[(Fault, u64)] = faults![(Fault::Crash, 5), (Fault::ClearSpare, 5)];
const KINDS: &[(Fault, u64)] = faults![(Fault::Crash, 5)];
const COORDINATION: &[(Fault, u64)] = faults![(Fault::Crash, 5), (Fault::EndClient, 5)];
const SET_BACK: &[(Fault, u64)] = faults![(Fault::Crash, 5), (Fault::StepBack, 20)];
const SET_FORWARD: &[(Fault, u64)] =
    faults![(Fault::Crash, 5), (Fault::StepBack, 20), (Fault::StepForward, 20)];
const LONG_LEASES: &[(Fault, u64)] =
    faults![(Fault::Crash, 5), (Fault::SuspendHost, 25), (Fault::EndClient, 25)];
const EMPTY_RESTARTS: &[(Fault, u64)] =
    faults![(Fault::Crash, 5), (Fault::CrashEmpty, 5), (Fault::ClearSpare, 5)];
const RARE_EMPTY_RESTARTS: &[(Fault, u64)] =
    faults![(Fault::Crash, 1), (Fault::CrashEmpty, 2), (Fault::Demote, 1), (Fault::ClearSpare, 5)];
const FORGETFUL: &[(Fault, u64)] = &[
    (Fault::Partition, 20),
    (Fault::Slow, 10),
    (Fault::LoseRequests, 5),
    (Fault::StopHost, 5),
    (Fault::KillHost, 10),
    (Fault::CrashEmpty, 5),
    (Fault::Demote, 5),
];
const FAILOVERS: &[(Fault, u64)] =
    faults![(Fault::Lag, 20), (Fault::FailOver, 10), (Fault::CrashEmpty, 2)];
const RESHARDING: &[(Fault, u64)] = faults![(Fault::Crash, 3), (Fault::MoveSlot, 40)];
const COORDINATION_FAILOVERS: &[(Fault, u64)] =
    faults![(Fault::Lag, 20), (Fault::FailOver, 10), (Fault::EndClient, 5)];
const COORDINATION_MOVES: &[(Fault, u64)] =
    faults![(Fault::Crash, 3), (Fault::EndClient, 5), (Fault::MoveSlot, 40)];
const UNFENCED: &[(Fault, u64)] = faults![(Fault::Lag, 20), (Fault::FailOverUnfenced, 10)];
const CLEARED: &[(Fault, u64)] =
    faults![(Fault::Crash, 5), (Fault::ClearOne, 20), (Fault::ClearAll, 10)];
