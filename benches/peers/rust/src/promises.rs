//! What each lock promises beside its figures. Read in the sources of the versions that are named here; a
//! test sees to it that these are the ones that run.

use crate::peer::Peer;

const LEASEHOLD: &str = "0.1.0";
const REDISSON: &str = "4.7.0";
const RSLOCK: &str = "0.10.0";
const RLOCK: &str = "0.2.0";
const RUEIDISLOCK: &str = "1.0.79";
const REDSYNC: &str = "4.18.1";

/// What is asked of each lock, and its answers.
const QUESTIONS: [&str; 8] = [
    "only the owner releases it",
    "watchdog",
    "re-entry",
    "fencing token",
    "told of a loss",
    "order of waiters",
    "how waiters wake",
    "used here",
];

pub(crate) fn text() -> String {
    let mut text =
        format!("| lock | {} |\n|{}\n", QUESTIONS.join(" | "), "---|".repeat(1 + QUESTIONS.len()));
    for peer in Peer::ALL {
        text += &format!("| {peer} {} | {} |\n", version(peer), answers(peer).join(" | "));
    }
    text
}

fn version(peer: Peer) -> &'static str {
    match peer {
        Peer::Leasehold => LEASEHOLD,
        Peer::RLock | Peer::RFairLock | Peer::RFencedLock => REDISSON,
        Peer::Rslock => RSLOCK,
        Peer::Rlock => RLOCK,
        Peer::Rueidislock => RUEIDISLOCK,
        Peer::Redsync => REDSYNC,
    }
}

fn answers(peer: Peer) -> [&'static str; QUESTIONS.len()] {
    match peer {
        Peer::Leasehold => [
            "yes, by an id of the acquisition",
            "every 10 s, for 30 s",
            "yes, without a round trip",
            "on every hold",
            "at the next renewal, and at its end by the local clock where the server does not answer; `lost()`, `run` is cancelled, `unlock` fails",
            "first come, first served among processes, and among the tasks of each; a stopped process delays those behind it by 2 s",
            "by a message that grants the lock to the first, with the lock's remaining time and a poll every 2 to 4 s behind it",
            "`lock().await`, `unlock().await`, default settings",
        ],
        Peer::RLock => [
            "yes, by client and thread",
            "every 10 s, for 30 s",
            "yes, with the round trips of a first lock",
            "no",
            "not before `unlock`, which throws; a watchdog that finds the lock gone stops without a word",
            "none: who comes at the right moment, the last holder too",
            "by message, one thread of each process, with the lock's remaining time behind it",
            "`lock()`, `unlock()`, default settings",
        ],
        Peer::RFairLock => [
            "yes, by client and thread",
            "every 10 s, for 30 s",
            "yes, with the round trips of a first lock",
            "no",
            "as RLock, but `unlock` throws only if another holds it by then",
            "first come, first served among all threads of all processes; one that died holds up those behind it for up to 5 minutes",
            "by message, to the first of the queue only",
            "`lock()`, `unlock()`, default settings",
        ],
        Peer::RFencedLock => [
            "yes, by client and thread",
            "every 10 s, for 30 s",
            "yes, with the round trips of a first lock, and a token of its own",
            "on every hold, from a counter that never expires",
            "as RLock",
            "none, as RLock",
            "as RLock",
            "`lockAndGetToken()`, `unlock()`, default settings",
        ],
        Peer::Rslock => [
            "yes, by 20 random bytes of the acquisition",
            "none with `acquire`; `using` renews while its routine runs",
            "no",
            "no",
            "no with `acquire`, whose `release` tells nothing; `using` drops its routine and gives an error when a renewal fails",
            "none",
            "by polling: after a random 0 to 200 ms, every third time at once; each refused attempt sends a release too",
            "`acquire` with a TTL of 30 s (it has no default), `release().await`, default retries; dropping its guard releases nothing",
        ],
        Peer::Rlock => [
            "yes, by an id of the acquisition",
            "every 5 s, for 10 s",
            "no",
            "no",
            "at the next renewal, and at its end by the local clock; `lease_state()`, `wait_until_inactive()`; `release` of a lost lock gives `Ok`",
            "none",
            "by polling: every 100 ms",
            "`acquire_mutex`, `release().await`, default options",
        ],
        Peer::Rueidislock => [
            "yes, by 24 random bytes of the acquisition",
            "every 2.5 s, for 5 s",
            "no",
            "no",
            "at once if its key is removed or changed, at the next renewal, and at its end by the local clock: the context is cancelled; the function that releases it tells nothing",
            "none",
            "by the server's message about the key to all processes that were refused, one goroutine of each; no timer behind it, so one that misses a message waits for the next",
            "`WithContext`, `cancel()`, `KeyMajority` of 1 and `NoLoopTracking` as documented for one server, `TryNextAfter` of 1 s instead of 20 ms",
        ],
        Peer::Redsync => [
            "yes, by 16 random bytes of the acquisition",
            "none: 8 s, which `Extend` lengthens",
            "no",
            "no",
            "no; `Unlock` gives an error",
            "none",
            "by polling: after a random 50 to 250 ms, 32 times, then it fails; each refused attempt sends a release too",
            "`Lock`, `Unlock`, default options, with go-redis",
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_that_were_read_are_those_that_run() {
        let locked = include_str!("../../../../Cargo.lock");
        for (name, version) in [("leasehold", LEASEHOLD), ("rslock", RSLOCK), ("rlock", RLOCK)] {
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(locked.contains(&entry), "{name} {version} is not what runs");
        }
        let go = include_str!("../../go/go.mod");
        let required = [("redis/rueidis", RUEIDISLOCK), ("go-redsync/redsync/v4", REDSYNC)];
        for (module, version) in required {
            let line = format!("\tgithub.com/{module} v{version}\n");
            assert!(go.contains(&line), "{module} {version} is not what runs");
        }
        let pom = include_str!("../../java/pom.xml");
        let property = format!("<redisson.version>{REDISSON}</redisson.version>");
        assert!(pom.contains(&property), "Redisson {REDISSON} is not what runs");
    }
}
