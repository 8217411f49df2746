//! Settings of the servers that can break a lock's guarantees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::overlap;
use crate::node::NamedMasters;
use crate::text::{Printable, shortened};

/// A property of a server that can break a lock's guarantees; see [`Client::check`](crate::Client::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The server's address, without credentials.
    pub node: Arc<str>,
    /// The kind of problem.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub kind: FindingKind,
}

/// The kind of problem that a [`Finding`] reports.
///
/// Match a variant without fields as `FindingKind::MarkRefused { .. }` if it allows that: it may get fields in a later version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum FindingKind {
    /// The server may evict locks when it runs out of memory.
    #[non_exhaustive]
    Eviction {
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// A restart loses every lock: two holders may have one until the first notices, at its next renewal.
    NotPersistent,
    /// A crash may lose the latest locks: the append-only file is not synced at every command.
    #[non_exhaustive]
    NotWrittenThrough,
    /// A failover may lose the latest locks: replicas receive writes later than the master.
    #[non_exhaustive]
    Replicas {
        /// How many replicas the server has.
        replicas: u64,
    },
    /// The server's clock differs from this host's.
    #[non_exhaustive]
    ClockAhead {
        /// By how many milliseconds it is ahead. If it is behind, the number is negative.
        ahead_ms: i64,
    },
    /// The server is older than this library supports.
    #[non_exhaustive]
    OldVersion {
        /// Its version, as the server says it.
        version: String,
    },
    /// The server is a Redis Cluster of one shard: if another shard is added, the server refuses some of the locks.
    OneShard,
    /// A master that has lost its replicas goes on granting locks, beside the one that has replaced it: its
    /// `min-replicas-to-write` or its `min-replicas-max-lag` is 0, which turns both off. Only clients of
    /// [Sentinels](crate::ClientBuilder::sentinel) report this.
    Unfenced,
    /// A master that has lost its replicas may go on granting locks beside the one that has replaced it, because it stops up to two
    /// seconds after `min-replicas-max-lag`. This is reported if that is not shorter than the Sentinels' `down-after-milliseconds`;
    /// if the Sentinels and the [`restart_quarantine`](crate::ClientBuilder::restart_quarantine) together do not wait long enough;
    /// or if a lease of this client's TTL may end there before that, while its holder renews it on the new master.
    #[non_exhaustive]
    FencedLate {
        /// The server's `min-replicas-max-lag`, in seconds.
        max_lag: u64,
        /// The Sentinels' `down-after-milliseconds`.
        down_after_ms: u64,
    },
    /// A master that is cut off together with some of its replicas may go on granting locks beside the one that has replaced
    /// it: its `min-replicas-to-write` is less than half of the replicas, so there may be enough of them on both sides.
    /// Only clients of [Sentinels](crate::ClientBuilder::sentinel) report this.
    #[non_exhaustive]
    FencedByFew {
        /// The server's `min-replicas-to-write`.
        min_replicas: u64,
        /// How many replicas it has.
        replicas: u64,
    },
    /// A master of the cluster that is cut off may go on granting locks beside the one that has replaced it, for longer than
    /// the [`restart_quarantine`](crate::ClientBuilder::restart_quarantine) is than the TTL.
    #[non_exhaustive]
    QuarantineTooShort {
        /// The node's `cluster-node-timeout`, in milliseconds.
        node_timeout_ms: u64,
        /// What the `restart_quarantine` must be at least with this client's TTL, in milliseconds.
        needed_ms: u64,
    },
    /// A lease may end on a master of the cluster that is cut off before that master stops, while its holder renews it on the one
    /// that has replaced it: whoever was cut off together with the old one may then have the lock, too.
    #[non_exhaustive]
    TtlTooShort {
        /// The node's `cluster-node-timeout`, in milliseconds.
        node_timeout_ms: u64,
        /// What the TTL must be at least, in milliseconds.
        needed_ms: u64,
    },
    /// The server did not answer, so nothing is known of it.
    #[non_exhaustive]
    NoAnswer {
        /// What went wrong.
        why: String,
    },
    /// The replicas differ in their `replica-priority`: the Sentinels promote the one with the lowest number, even if another
    /// one has more of the latest locks.
    #[non_exhaustive]
    ReplicaPriority {
        /// The priority of each replica that can be promoted.
        priorities: Vec<u64>,
    },
    /// Sentinels that answer have named different masters for 10 s or longer, so clients may use different servers, and two of
    /// them hold one lock: one of the Sentinels watches another deployment by the same name, or is cut off from the others.
    #[non_exhaustive]
    SentinelsDisagree {
        /// Each Sentinel that answers, and the address of the master that it names.
        #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::named"))]
        named: Vec<(Arc<str>, String)>,
    },
    /// The server does not report whether it is a master, so an old master is recognised only when it refuses a write.
    RoleUnknown,
    /// The user may not end connections (`CLIENT ID` and `CLIENT KILL`), so a request that is still on its way to a server may
    /// run after the client has left that server and come back.
    #[non_exhaustive]
    KillRefused,
    /// The user may not write the key `leasehold_mark`, as was seen when the client connected: each client that meets the
    /// server for the first time waits for a whole [`restart_quarantine`](crate::ClientBuilder::restart_quarantine).
    #[non_exhaustive]
    MarkRefused,
    /// The user may not read and write the key `leasehold_masters` (with a `name_prefix`, `leasehold_masters:{..}`), as was seen
    /// when the client connected: nobody notices if clients name different [masters](crate::ClientBuilder::nodes), and then two
    /// of them may hold one lock.
    #[non_exhaustive]
    MastersRefused,
    /// The user may not use the keys `leasehold_wait:..`, as was seen for a lock that this client holds, or otherwise when the
    /// client last tried to note a wait: [deadlocks](crate::ClientBuilder::deadlocks) over several processes are not found.
    #[non_exhaustive]
    NotesRefused,
    /// The server is used with other [masters](crate::ClientBuilder::nodes) than this client names, so this client takes no
    /// locks.
    #[non_exhaustive]
    OtherMasters {
        /// Which masters it is used with, and what to do.
        why: String,
    },
    /// While one master of the cluster is down, all others refuse locks, too, and do not renew them: its
    /// `cluster-require-full-coverage` is on.
    FullCoverage,
    /// Somebody waits for a lock on a channel of the kind that this client does not use, so neither hears of the other's
    /// releases; see [`ClientBuilder::pubsub`](crate::ClientBuilder::pubsub). It is seen only while somebody waits.
    #[non_exhaustive]
    OtherChannels {
        /// One such channel.
        channel: String,
        /// It is a sharded one, and this client uses plain ones.
        sharded: bool,
    },
    /// The user lacks the rights to read a setting, so nothing is known of it.
    #[non_exhaustive]
    Unknown {
        /// The setting, such as `"the eviction policy"`.
        setting: &'static str,
    },
}

impl FindingKind {
    pub(super) fn unknown(setting: &'static str) -> Self {
        Self::Unknown { setting }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        match &self.kind {
            FindingKind::Eviction { policy } => write!(
                f,
                "maxmemory-policy is {policy}: when memory runs out, the server may evict held locks; set noeviction"
            ),
            FindingKind::NotPersistent => f.write_str(
                "appendonly is off: a restart loses every lock; set appendonly yes and appendfsync always",
            ),
            FindingKind::NotWrittenThrough => f.write_str(
                "appendfsync is not set to `always`: a power failure may lose the latest locks; set appendfsync always",
            ),
            FindingKind::Replicas { replicas } => write!(
                f,
                "it has {replicas} replica{}: a failover may lose the latest locks; let the resource check tokens",
                if *replicas == 1 { "" } else { "s" }
            ),
            FindingKind::ClockAhead { ahead_ms } => write!(
                f,
                "its clock is {} ms {} this host's: correcting it shortens or lengthens every lock; correct it slowly, as NTP does",
                ahead_ms.unsigned_abs(),
                if *ahead_ms < 0 { "behind" } else { "ahead of" }
            ),
            FindingKind::OldVersion { version } => {
                write!(f, "it is version {version}; the oldest supported are Redis 6.2 and Valkey 8")
            }
            FindingKind::OneShard => f.write_str(
                "it is a Redis Cluster of one shard: if a shard is added, it refuses the locks in that shard's slots (MOVED)",
            ),
            FindingKind::Unfenced => f.write_str(
                "min-replicas-to-write or min-replicas-max-lag is 0: a master that is cut off from its replicas goes on granting \
                 locks beside the new one; set the first to at least half of the replicas, and the second to 1 or more, on all \
                 servers",
            ),
            FindingKind::FencedLate { max_lag, down_after_ms } => {
                let stops = max_lag + LATE.as_secs();
                write!(
                    f,
                    "min-replicas-max-lag is {max_lag} s, so a master may stop {stops} s after it has lost its replicas, and the \
                     Sentinels replace it after {down_after_ms} ms: both may grant locks meanwhile; lower min-replicas-max-lag, \
                     or raise down-after-milliseconds"
                )?;
                match max_lag * 1000 < *down_after_ms {
                    true => write!(f, ", or a TTL that is below {} s", (stops * 3).div_ceil(2)),
                    false => Ok(()),
                }
            }
            FindingKind::FencedByFew { min_replicas, replicas } => write!(
                f,
                "min-replicas-to-write is {min_replicas}, and it has {replicas} replicas: a master that is cut off together with \
                 {min_replicas} of them goes on granting locks beside the new one; set it to at least half of the replicas on \
                 all servers"
            ),
            FindingKind::QuarantineTooShort { node_timeout_ms, needed_ms } => write!(
                f,
                "cluster-node-timeout is {node_timeout_ms} ms, so a master that is cut off may grant locks for {} ms beside the \
                 one that has replaced it: set restart_quarantine to {needed_ms} ms or more in all clients, or lower \
                 cluster-node-timeout, or set min-replicas-to-write",
                overlap(Duration::from_millis(*node_timeout_ms)).as_millis()
            ),
            FindingKind::TtlTooShort { node_timeout_ms, needed_ms } => write!(
                f,
                "cluster-node-timeout is {node_timeout_ms} ms, so a lease may end on a master that is cut off before that master \
                 stops, while its holder has it on the one that has replaced it: set a TTL of {needed_ms} ms or more, or lower \
                 cluster-node-timeout, or set min-replicas-to-write"
            ),
            FindingKind::NoAnswer { why } => write!(f, "it could not be asked: {why}"),
            FindingKind::ReplicaPriority { priorities } => write!(
                f,
                "the replicas' replica-priority differs ({priorities:?}): a failover may promote one that lacks the latest \
                 locks; set the same on all"
            ),
            FindingKind::SentinelsDisagree { named } => write!(
                f,
                "the Sentinels name different masters ({}): other clients may use another one, and hold the same locks; leave \
                 out a Sentinel that watches another deployment by this name, and connect one that is cut off",
                NamedMasters(named)
            ),
            FindingKind::RoleUnknown => f.write_str(
                "it does not report its role: an old master is recognised only when it refuses a write; allow INFO",
            ),
            FindingKind::KillRefused => f.write_str(
                "this user may not end connections: what is late on an old one may run after a failover; allow CLIENT ID and \
                 CLIENT KILL",
            ),
            FindingKind::MarkRefused => f.write_str(
                "it refused the key leasehold_mark: each client that connects waits for a whole restart_quarantine; let this \
                 user write that key",
            ),
            FindingKind::MastersRefused => f.write_str(
                "it refused the key leasehold_masters: if clients name different masters, nobody notices it, and two of them may \
                 hold one lock; let this user read and write that key",
            ),
            FindingKind::NotesRefused => f.write_str(
                "it refused the keys leasehold_wait:..: deadlocks over several processes are not found; let this user read and \
                 write them",
            ),
            FindingKind::OtherMasters { why } => f.write_str(why),
            FindingKind::FullCoverage => f.write_str(
                "cluster-require-full-coverage is yes: while one master is down, the locks of all others are neither granted \
                 nor renewed; set it to no",
            ),
            FindingKind::OtherChannels { channel, sharded } => {
                let [theirs, ours] = match sharded {
                    true => ["sharded", "plain"],
                    false => ["plain", "sharded"],
                };
                write!(
                    f,
                    "somebody listens for releases on the {theirs} channel {}, and this client uses {ours} ones: neither wakes \
                     the other; use the same kind in all programs (`pubsub`)",
                    Printable(&shortened(channel))
                )
            }
            FindingKind::Unknown { setting } => write!(f, "{setting} cannot be read: allow CONFIG GET and INFO, or look in the service's console"),
        }
    }
}

/// How long after `min-replicas-max-lag` a master may stop: it counts in whole seconds, and looks once a second.
pub(super) const LATE: Duration = Duration::from_secs(2);
