//! What servers run, as they tell it: good runs, and bad ones for S4 and W1.

use leasehold_faults::{
    checker::DRIVER,
    event::What,
    monitor::{Reader, text},
};

use crate::made::Made;

/// How many keys a script has, and its name.
const ACQUIRE: (&str, &str) = ("2", "lock_acquire");
const RENEW: (&str, &str) = ("1", "lock_renew");
const RELEASE: (&str, &str) = ("1", "lock_release");
const PROCLAIM: (&str, &str) = ("2", "leader_proclaim");
const RECLAIM: (&str, &str) = ("2", "lock_reclaim");
const RW_RELEASE: (&str, &str) = ("3", "rw_release");
const READ_RENEW: (&str, &str) = ("1", "read_renew");
const PERMIT_RELEASE: (&str, &str) = ("3", "permit_release");
const PERMIT_RENEW: (&str, &str) = ("1", "permit_renew");

/// A server that is watched, and what it tells.
struct Told {
    made: Made,
    reader: Reader,
}

impl Told {
    fn new() -> Self {
        let made = Made::default().add(DRIVER, 0, What::Watched { node: 0 });
        Self { made, reader: Reader::new(0) }
    }

    fn line(mut self, line: &str) -> Self {
        for what in self.reader.read(line) {
            self.made = self.made.add(DRIVER, 1, what);
        }
        self
    }

    /// A script that a client sends, by its hash.
    fn script(self, (keys, name): (&str, &str), id: &str) -> Self {
        let hash = redis::Script::new(text(name)).get_hash().to_owned();
        self.sent("EVALSHA", &hash, keys, id)
    }

    fn sent(self, command: &str, what: &str, keys: &str, id: &str) -> Self {
        let names = "\"n\" ".repeat(keys.parse().expect("a number"));
        self.line(&format!(
            r#"+1700000000.000001 [0 127.0.0.1:4711] "{command}" "{what}" "{keys}" {names}"{id}" "1" "900""#
        ))
    }

    /// A command of the script that runs.
    fn runs(self, command: &str) -> Self {
        let words: Vec<_> = command.split(' ').map(|word| format!("\"{word}\"")).collect();
        self.line(&format!("+1700000000.000002 [0 lua] {}", words.join(" ")))
    }

    fn acquires(self, id: &str) -> Self {
        let told = self.script(ACQUIRE, id).runs("PTTL n").runs("SET leasehold_token:{n} 7 GET");
        told.runs(&format!("HSET n {id} 1")).runs("PEXPIRE n 900")
    }

    fn releases(self, id: &str) -> Self {
        self.script(RELEASE, id).runs(&format!("HDEL n {id}"))
    }

    fn watched_anew(mut self) -> Self {
        self.made = self.made.add(DRIVER, 2, What::Watched { node: 0 });
        self
    }
}

#[test]
fn one_lease_after_the_other_passes() {
    let a = Told::new().acquires("a:1").script(RENEW, "a:1").runs("PEXPIRE n 900");
    let a = a.releases("a:1").runs("PUBLISH c 0");
    // It comes twice, and finds nothing.
    a.releases("a:1").acquires("b:1").releases("b:1").made.passes(&["S4", "W1"]);
}

/// Leases of `n` and `m`, which are renewed in one call.
#[test]
fn of_those_renewed_together_each_is_renewed_by_itself() {
    let together = |n: &str, m: &str| {
        let hash = redis::Script::new(text("locks_renew")).get_hash().to_owned();
        let call = format!(
            r#"+1700000000.000001 [0 127.0.0.1:4711] "EVALSHA" "{hash}" "2" "n" "m" "1" "3" "{n}" "1" "900" "{m}" "1" "900""#
        );
        let other = Told::new().acquires("a:1").script(ACQUIRE, "a:2");
        other.runs("HSET m a:2 1").runs("PEXPIRE m 900").line(&call)
    };
    let renewed = || together("a:1", "a:2").runs("PEXPIRE n 900").runs("PEXPIRE m 900");
    renewed().runs("HSET m a:2 2").made.passes(&["S4", "W1"]);
    together("b:1", "a:2").runs("PEXPIRE n 900").made.breaks("S4");
    together("a:1", "b:2").runs("PEXPIRE m 900").made.breaks("S4");
    together("a:1", "b:2").runs("PEXPIRE n 900").made.passes(&["S4"]);
}

#[test]
fn a_release_that_grants_the_lock_to_the_next_lease_passes() {
    let granted = || {
        let freed = Told::new().acquires("a:1").releases("a:1");
        freed.runs("ZPOPMIN q").runs("HSET n b:1 1").runs("PEXPIRE n 900").runs("PUBLISH m grant")
    };
    granted().script(RENEW, "b:1").runs("PEXPIRE n 900").releases("b:1").made.passes(&["S4", "W1"]);
    // The lock is b's now.
    granted().script(RENEW, "c:1").runs("PEXPIRE n 900").made.breaks("S4");
}

#[test]
fn a_release_that_takes_back_what_it_granted_passes_in_the_same_run_only() {
    let granted = || Told::new().acquires("a:1").releases("a:1").runs("HSET n b:1 1");
    let taken_back = || granted().runs("PEXPIRE n 900").runs("DEL n");
    taken_back().runs("HSET n c:1 1").runs("PEXPIRE n 900").made.passes(&["S4"]);
    taken_back().acquires("c:1").releases("c:1").made.passes(&["S4"]);
    granted().script(RELEASE, "a:1").runs("DEL n").made.breaks("S4");
    granted().script(RELEASE, "c:1").runs("DEL n").made.breaks("S4");
}

#[test]
fn a_lock_that_is_put_back_has_that_lease() {
    let put_back = || {
        let freed = Told::new().acquires("a:1").releases("a:1");
        freed.script(RECLAIM, "b:1").runs("HSET n b:1 1").runs("PEXPIRE n 900")
    };
    put_back()
        .script(RENEW, "b:1")
        .runs("PEXPIRE n 900")
        .releases("b:1")
        .made
        .passes(&["S4", "W1"]);
    put_back().script(RENEW, "a:2").runs("PEXPIRE n 900").made.breaks("S4");
}

#[test]
fn what_a_master_tells_its_replica_makes_unknown_who_has_the_lock() {
    let told = |line| Told::new().acquires("a:1").line(line).script(RENEW, "b:1");
    let replicated = r#"+1700000000.000003 [0 127.0.0.1:4711] "HSET" "n" "b:1" "1""#;
    assert_eq!(told(replicated).runs("PEXPIRE n 900").made.report().violations, []);
    let other = r#"+1700000000.000003 [0 127.0.0.1:4711] "PING""#;
    told(other).runs("PEXPIRE n 900").made.breaks("S4");
}

#[test]
fn s4_a_release_that_grants_what_another_has() {
    let told = Told::new().acquires("a:1").releases("b:1");
    told.runs("HSET n c:1 1").runs("PEXPIRE n 900").made.breaks("S4");
}

#[test]
fn s4_a_release_that_frees_the_lock_of_another() {
    let told = Told::new().acquires("a:1").releases("b:1").runs("DEL n");
    assert!(
        told.made.report().violations[0].what.contains("DEL of n of a:1 by lock_release of b:1")
    );
    told.made.breaks("S4");
}

#[test]
fn s4_a_renewal_of_what_another_has_or_nobody() {
    let renews = |told: Told, command| told.script(RENEW, "a:1").runs(command).made;
    for command in ["PEXPIRE n 900", "HSET n a:1 2"] {
        let lost = || Told::new().acquires("a:1").acquires("b:1");
        renews(lost(), command).breaks("S4");
        let freed = || Told::new().acquires("a:1").acquires("b:1").releases("b:1");
        renews(freed(), command).breaks("S4");
    }
}

#[test]
fn s4_a_release_that_deletes_what_another_leader_said() {
    let says = |told: Told, id: &str| {
        let told = told.script(PROCLAIM, id).runs("GET leasehold_leader:{n}");
        let value = format!("{id} 7 1 here");
        let line = format!(
            r#"+1700000000.000002 [0 lua] "SET" "leasehold_leader:{{n}}" "{value}" "PX" "9""#
        );
        told.line(&line)
    };
    let goes = |told: Told, id: &str| told.releases(id).runs("DEL leasehold_leader:{n}");
    // Nobody knows who said what was there before.
    let first = || says(goes(Told::new().acquires("a:1"), "a:1").acquires("b:1"), "b:1");
    first().made.passes(&[]);
    let second = || goes(first(), "b:1").acquires("c:1");
    let unsaid = |told: Told| told.made.passes(&["S4"]);
    unsaid(goes(says(second(), "c:1"), "c:1"));
    unsaid(goes(says(second(), "c:1").watched_anew(), "d:1").acquires("a:1").releases("a:1"));
    let other = says(second(), "c:1").script(RELEASE, "b:1").runs("DEL leasehold_leader:{n}");
    assert!(
        other.made.report().violations[0].what.contains("of c:1 by lock_release of b:1"),
        "{:?}",
        other.made.report()
    );
    other.made.breaks("S4");
}

#[test]
fn s4_what_was_missed_says_nothing() {
    let missed = || Told::new().acquires("a:1").watched_anew().releases("b:1").runs("DEL n");
    let report = missed().made.report();
    assert!(report.violations.is_empty() && !report.checked.contains_key("S4"), "{report:?}");
    // From then on it is known again.
    missed().script(RENEW, "c:1").runs("PEXPIRE n 900").made.breaks("S4");
}

#[test]
fn s4_what_is_no_script_of_ours_is_passed_over() {
    let hash = redis::Script::new("return redis.call('DEL', KEYS[1])").get_hash().to_owned();
    let told = Told::new().acquires("a:1").sent("EVALSHA", &hash, "1", "b:1");
    let told = told.runs("DEL n").line(r#"+1700000000.000003 [0 127.0.0.1:1] "DEL" "n""#);
    told.made.passes(&[]);
}

#[test]
fn w1_a_renewal_after_the_release() {
    let renews_first = Told::new().acquires("a:1").script(RENEW, "a:1").runs("PEXPIRE n 900");
    renews_first.releases("a:1").made.passes(&["W1"]);
    let releases_first = || Told::new().acquires("a:1").releases("a:1");
    releases_first().script(RENEW, "a:1").made.breaks("W1");
    releases_first().watched_anew().script(RENEW, "a:1").made.breaks("W1");
    releases_first().script(RENEW, "a:2").made.passes(&["W1"]);
}

#[test]
fn w1_a_renewal_after_the_release_of_other_kinds() {
    for (release, renew, field) in [
        (RW_RELEASE, READ_RENEW, "a:1"),
        (RW_RELEASE, RENEW, "a:1:write"),
        (PERMIT_RELEASE, PERMIT_RENEW, "a:1"),
    ] {
        Told::new().script(renew, field).script(release, "a:1").made.passes(&["W1"]);
        Told::new().script(release, "a:1").script(renew, field).made.breaks("W1");
    }
}

#[test]
fn s4_is_not_about_read_write_locks() {
    let writes = |id: &str| Told::new().acquires("b:1").script(RENEW, id).runs("PEXPIRE n 900");
    writes("a:1:write").made.passes(&[]);
    writes("a:1").made.breaks("S4");
}

#[test]
fn a_script_that_is_sent_whole_is_known_too() {
    let (keys, name) = RENEW;
    let body = text(name).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let released = Told::new().acquires("a:1").releases("a:1");
    released.sent("EVAL", &body, keys, "a:1").made.breaks("W1");
}
