//! What locks must survive, and what they do not: shortly, since `scripts/sim` runs all of it for hours.

use leasehold_sim::checker::Rule;
use leasehold_sim::outcome::Outcome;
use leasehold_sim::shapes;

/// Runs a scenario with so many seeds, one after the other, each without a surprise.
fn runs(name: &str, seeds: u64, minutes: u64) -> impl Iterator<Item = Outcome> {
    let scenario = shapes::named(name).expect("there is one");
    (1..=seeds).map(move |seed| {
        let outcome = scenario.run(seed, minutes);
        outcome.expect_no_surprise();
        println!("{}", outcome.line());
        outcome
    })
}

/// Until `enough`, for that many seeds at most.
fn over_seeds(name: &str, seeds: u64, enough: impl Fn(&Outcome) -> bool) -> bool {
    runs(name, seeds, 3).any(|outcome| enough(&outcome))
}

fn were_checked(rules: &[Rule], outcome: &Outcome) {
    for rule in rules {
        assert!(outcome.checks[rule] > 500, "{rule:?}: {}", outcome.line());
    }
}

/// Two may hold the lock of a server that restarts empty; who has lost it is told within a TTL.
#[test]
fn a_server_that_restarts_empty_lets_two_in_and_the_loser_is_told() {
    let told = over_seeds("one-server-restarts-empty", 5, |outcome| {
        assert!(outcome.longest_overlap_ms <= TTL_MS, "{}", outcome.line());
        outcome.overlaps > 0 && outcome.overlaps_told > 0
    });
    assert!(told);
}

#[test]
fn a_force_unlock_lets_two_in_and_the_loser_is_told() {
    let told = over_seeds("force-unlock", 5, |outcome| {
        assert!(outcome.longest_overlap_ms <= TTL_MS, "{}", outcome.line());
        outcome.overlaps > 0 && outcome.overlaps_told > 0
    });
    assert!(told);
}

/// A lock whose key somebody deletes, on its server or on one too many of three.
#[test]
fn a_key_deleted_by_hand_lets_two_in_and_the_loser_is_told() {
    for name in ["cleared-by-hand", "three-cleared-by-hand"] {
        let told = over_seeds(name, 5, |outcome| {
            assert!(outcome.longest_overlap_ms <= LONG_TTL_MS, "{}", outcome.line());
            outcome.overlaps > 0 && outcome.overlaps_told > 0
        });
        assert!(told, "{name}");
    }
}

/// The classic: one of three forgets what it granted. The quarantine makes the difference, on the same seeds.
#[test]
fn without_the_quarantine_an_empty_restart_lets_two_in_and_with_it_none() {
    let seeds =
        runs("no-quarantine", 10, 3).take_while(|outcome| outcome.overlaps == 0).count() + 1;
    assert!(seeds <= 10, "it takes more seeds");
    assert!(!over_seeds("three-servers", seeds as u64, |outcome| outcome.overlaps > 0));
}

/// Demoted and promoted, restarted on another disk, met by processes that know nothing of that.
#[test]
fn servers_that_forget_unseen_let_nobody_in_beside_the_holder() {
    let mut demoted = 0;
    for outcome in runs("forgetful-servers", 6, 5) {
        demoted += outcome.counts["fault_demote"];
    }
    assert!(demoted > 20, "{demoted} demotions");
}

/// A replica that lacks the last writes takes over. The grace makes the difference, if the old master is fenced.
#[test]
fn failovers_that_lose_writes_let_nobody_in_beside_the_holder() {
    let (mut failovers, mut reclaims) = (0, 0);
    for outcome in runs("failovers", 4, 4) {
        failovers += outcome.counts["fault_fail_over"];
        reclaims += outcome.counts.get("reclaims").copied().unwrap_or(0);
    }
    assert!(failovers > 100 && reclaims > 10, "{failovers} failovers, {reclaims} put back");
}

/// Held, free and waited for, in a network that fails.
#[test]
fn slots_that_move_let_nobody_in_beside_the_holder_and_lose_no_release() {
    let (mut moves, mut redirects) = (0, 0);
    for outcome in runs("resharding", 3, 4) {
        assert!(outcome.counts["holds"] > 100, "{}", outcome.line());
        moves += outcome.counts["fault_move_slot"];
        redirects += outcome.counts["redirects"];
    }
    assert!(moves > 100 && redirects > 500, "{moves} moves, {redirects} redirects");
}

/// Readers and writers, permits, several locks at once, and leaders, in a network that fails.
#[test]
fn locks_of_other_kinds_keep_theirs() {
    for outcome in runs("kinds", 3, 3) {
        assert!(outcome.counts["downgrades"] > 50, "{}", outcome.line());
        were_checked(&[Rule::Exclusion, Rule::Permits, Rule::TokenOrder, Rule::Order], &outcome);
    }
}

/// Items are lent and lost, latches open and signals are given, in a network that fails and with processes that end.
#[test]
fn items_latches_and_signals_keep_theirs() {
    for outcome in runs("coordination", 3, 3).chain(runs("stopped-workers", 3, 3)) {
        were_checked(&[Rule::Exclusion, Rule::Items, Rule::Latch, Rule::Signal], &outcome);
        let counted = |what: &str| outcome.counts.get(what).copied().unwrap_or(0);
        for what in
            ["acks", "delivered_again", "redriven", "losses", "latches", "notices", "changes"]
        {
            assert!(counted(what) > 30, "{what}: {}", outcome.line());
        }
    }
}

/// The slots of the queue, of latches and of signals move from master to master, key by key.
#[test]
fn items_latches_and_signals_keep_theirs_while_their_slots_move() {
    let (mut moves, mut redirects) = (0, 0);
    for outcome in runs("coordination-in-a-cluster", 3, 3) {
        were_checked(&[Rule::Exclusion, Rule::Items, Rule::Latch, Rule::Signal], &outcome);
        moves += outcome.counts["fault_move_slot"];
        redirects += outcome.counts["redirects"];
    }
    assert!(moves > 100 && redirects > 500, "{moves} moves, {redirects} redirects");
}

/// The next master lacks the last pushes, acks, counts and signals. Only what was answered before it took over may be undone.
#[test]
fn items_latches_and_signals_keep_what_a_failover_does_not_lose() {
    let mut failovers = 0;
    for outcome in runs("coordination-over-failovers", 3, 3) {
        were_checked(&[Rule::Exclusion, Rule::Items, Rule::Latch, Rule::Signal], &outcome);
        failovers += outcome.counts["fault_fail_over"];
    }
    assert!(failovers > 30, "{failovers} failovers");
}

/// Readers and writers need a majority each, and keep it while servers forget.
#[test]
fn readers_and_writers_of_several_servers_keep_theirs() {
    let mut unchanged = 0;
    for outcome in runs("kinds-on-three-servers", 3, 4) {
        assert!(outcome.counts["downgrades"] > 50, "{}", outcome.line());
        were_checked(&[Rule::Exclusion, Rule::TokenOrder], &outcome);
        unchanged += outcome.counts.get("unchanged").copied().unwrap_or(0);
    }
    assert!(
        unchanged > 20,
        "{unchanged} writers were told that nobody had written since they read"
    );
}

/// While the slots of all of them move, key by key.
#[test]
fn locks_of_other_kinds_keep_theirs_in_a_cluster() {
    for outcome in runs("kinds-in-a-cluster", 3, 4) {
        assert!(outcome.counts["fault_move_slot"] > 50, "{}", outcome.line());
        assert!(outcome.counts["redirects"] > 200, "{}", outcome.line());
        were_checked(&[Rule::Exclusion, Rule::Permits, Rule::TokenOrder], &outcome);
    }
}

/// Permits end by a server's clock, and move with that end to a server whose clock is ahead.
#[test]
fn clocks_of_masters_that_differ_let_too_many_have_permits() {
    assert!(over_seeds("kinds-between-clocks", 10, |outcome| outcome.overlaps > 0));
}

#[test]
fn without_the_grace_or_a_fence_a_failover_lets_two_in() {
    for name in ["failovers-without-grace", "old-master-lives-on"] {
        assert!(over_seeds(name, 20, |outcome| outcome.overlaps > 0), "{name}");
    }
}

const TTL_MS: u64 = 2000;
const LONG_TTL_MS: u64 = 12_000;
