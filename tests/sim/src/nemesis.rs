//! What goes wrong, and how often.

use leasehold_test::emulator::{LinkId, Rng};

use crate::causes::{Cause, What};
use crate::coordination::latch_name;
use crate::world::{Fate, World};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A connection breaks and what was under way is lost.
    LoseRequests,
    /// A connection breaks behind the requests: they run, and nobody hears the answers.
    LoseReplies,
    /// A connection ends for the client; what it sent still runs.
    HalfClose,
    /// A connection swallows what the client sends, without a word.
    Swallow,
    /// What a client sends on a connection arrives late, and runs, though the client has given the connection up.
    Straggle,
    /// A server kills a connection.
    Kill,
    /// Nothing passes between a host and a node for a while, one way or both.
    Partition,
    /// Messages take long between a host and a node.
    Slow,
    /// A server's process is stopped for a while; what was sent to it runs late.
    StopNode,
    /// A server crashes, and comes back with its data.
    Crash,
    /// A server crashes, and comes back empty. Whatever it says of its disk is as after any crash: it may be true or not.
    CrashEmpty,
    /// A server is made a replica of an empty one, and a master again once it has that one's data: in the same run.
    Demote,
    /// A server's replica gets nothing for a while.
    Lag,
    /// A server's replica takes over; the server is dead or accepts no more writes before.
    FailOver,
    /// A server's replica takes over, while the server lives on for clients that are connected to it.
    FailOverUnfenced,
    /// The slot of a lock goes to another server, while the lock is held, free or waited for.
    MoveSlot,
    /// A server forgets its scripts.
    FlushScripts,
    /// A server's clock is set back.
    StepBack,
    /// A server's clock is set forward: leases end early there.
    StepForward,
    /// A client's process is stopped for a while.
    StopHost,
    /// A client's host is suspended for a while: its clock goes on, its timers do not.
    SuspendHost,
    /// A process ends its client in the middle of everything, and makes another one.
    EndClient,
    /// A client's process crashes; another begins in its place.
    KillHost,
    /// A lock's key is deleted by hand on one server, where a majority without it has the lease for as long.
    ClearSpare,
    /// The same on any server.
    ClearOne,
    /// The same on all servers at once.
    ClearAll,
}

impl Fault {
    /// Whom it disturbs, and where: host and node, of which `None` is all. `ends` are those of its connection.
    fn about(
        self,
        host: usize,
        node: usize,
        ends: Option<(usize, usize)>,
    ) -> (Option<usize>, Option<usize>) {
        match self {
            Self::LoseRequests
            | Self::LoseReplies
            | Self::HalfClose
            | Self::Swallow
            | Self::Straggle
            | Self::Kill => (ends.map(|(host, _)| host), ends.map(|(_, node)| node)),
            Self::Partition | Self::Slow => (Some(host), Some(node)),
            Self::StopHost | Self::SuspendHost | Self::EndClient | Self::KillHost => {
                (Some(host), None)
            }
            Self::MoveSlot | Self::ClearAll => (None, None),
            Self::StopNode
            | Self::Crash
            | Self::CrashEmpty
            | Self::Demote
            | Self::Lag
            | Self::FailOver
            | Self::FailOverUnfenced
            | Self::FlushScripts
            | Self::StepBack
            | Self::StepForward
            | Self::ClearSpare
            | Self::ClearOne => (None, Some(node)),
        }
    }

    /// What it is the cause of.
    fn what(self) -> What {
        match self {
            Self::CrashEmpty
            | Self::Demote
            | Self::FailOver
            | Self::FailOverUnfenced
            | Self::StepForward
            | Self::ClearSpare
            | Self::ClearOne
            | Self::ClearAll => What::Forgets,
            _ => What::Disturbs,
        }
    }

    /// How long it lasts at most, until nobody meets it any more that has not met it.
    fn longest_ms(self) -> u64 {
        match self {
            Self::LoseRequests
            | Self::LoseReplies
            | Self::HalfClose
            | Self::Kill
            | Self::FlushScripts
            | Self::StepBack
            | Self::StepForward
            | Self::KillHost
            | Self::EndClient => 0,
            // Until the client looks whether its connections still live.
            Self::Swallow => 6000,
            Self::Straggle => 4000,
            Self::Demote => 1000,
            Self::Partition | Self::Slow | Self::StopNode | Self::Crash | Self::CrashEmpty => 3000,
            Self::Lag | Self::ClearSpare | Self::ClearOne | Self::ClearAll => 3000,
            Self::FailOver | Self::FailOverUnfenced => 4000,
            Self::StopHost => 5000,
            Self::SuspendHost => 9000,
            // Key by key, at its own pace, and others learn of it later.
            Self::MoveSlot => 10_000,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::LoseRequests => "fault_lose_requests",
            Self::LoseReplies => "fault_lose_replies",
            Self::HalfClose => "fault_half_close",
            Self::Swallow => "fault_swallow",
            Self::Straggle => "fault_straggle",
            Self::Kill => "fault_kill_connection",
            Self::Partition => "fault_partition",
            Self::Slow => "fault_slow",
            Self::StopNode => "fault_stop_node",
            Self::Crash => "fault_crash",
            Self::CrashEmpty => "fault_crash_empty",
            Self::Demote => "fault_demote",
            Self::Lag => "fault_lag",
            Self::FailOver => "fault_fail_over",
            Self::FailOverUnfenced => "fault_fail_over_unfenced",
            Self::MoveSlot => "fault_move_slot",
            Self::FlushScripts => "fault_flush_scripts",
            Self::StepBack => "fault_step_back",
            Self::StepForward => "fault_step_forward",
            Self::StopHost => "fault_stop_host",
            Self::SuspendHost => "fault_suspend_host",
            Self::EndClient => "fault_end_client",
            Self::KillHost => "fault_kill_host",
            Self::ClearSpare => "fault_clear_spare",
            Self::ClearOne => "fault_clear_one",
            Self::ClearAll => "fault_clear_all",
        }
    }
}

/// The faults of a run, each with its weight.
#[derive(Clone)]
pub struct Nemesis {
    pub faults: Vec<(Fault, u64)>,
    /// The mean time from one to the next.
    pub every_ms: u64,
    pub rng: Rng,
    /// The names whose slots move. [`LATCHES`] is the latch that is used.
    names: Vec<String>,
    next_at: u64,
}

impl Nemesis {
    pub fn new(faults: &[(Fault, u64)], every_ms: u64, names: Vec<String>, rng: Rng) -> Self {
        Self { faults: faults.to_vec(), every_ms, rng, names, next_at: 0 }
    }

    /// Does what is due. The host to be begun anew, if one was killed.
    pub fn act(&mut self, world: &mut World) -> Option<usize> {
        if self.faults.is_empty() || world.now < self.next_at {
            return None;
        }
        self.next_at = world.now + self.rng.between(1, 2 * self.every_ms);
        let fault = self.rng.weighted(&self.faults);
        self.inflict(fault, world)
    }

    /// The last of a storm: what nobody is told of is found out in the calm.
    pub fn end(&mut self, world: &mut World) {
        if self.faults.iter().any(|(fault, _)| *fault == Fault::ClearAll) {
            self.inflict(Fault::ClearAll, world);
        }
    }

    fn inflict(&mut self, fault: Fault, world: &mut World) -> Option<usize> {
        let node = self.rng.below(world.nodes.len() as u64) as usize;
        let host = self.rng.below(world.hosts.len() as u64) as usize;
        let link = any_link(&mut self.rng, world);
        let ends = link.map(|link| (world.links[&link].host, world.links[&link].node));
        self.strike(fault, world, node, host, link)?;
        world.history.count(fault.name());
        let (host_is, node_is) = fault.about(host, node, ends);
        let (from, to) = (world.now, world.now + fault.longest_ms());
        let cause = Cause { from, to, host: host_is, node: node_is, what: fault.what() };
        world.history.lock().causes.add(cause);
        (fault == Fault::KillHost).then_some(host)
    }

    /// `None` if there is nothing that it could happen to.
    fn strike(
        &mut self,
        fault: Fault,
        world: &mut World,
        node: usize,
        host: usize,
        link: Option<LinkId>,
    ) -> Option<()> {
        let rng = &mut self.rng;
        let now = world.now;
        world.history.lock().note(format_args!("{fault:?} n{node} h{host} {link:?}"));
        match fault {
            Fault::LoseRequests => world.cut(link?, false),
            Fault::LoseReplies => world.cut(link?, true),
            Fault::HalfClose => world.end(link?),
            Fault::Swallow => world.links.get_mut(&link?)?.swallowed = true,
            Fault::Straggle => {
                let link = link?;
                world.links.get_mut(&link)?.late_until = now + rng.skewed(4000);
                // Told at once, or left to find out by itself.
                if rng.chance(500) {
                    world.end(link);
                }
            }
            Fault::Kill => {
                let link = link?;
                let node = world.links[&link].node;
                world.nodes[node].forget(link);
                world.end(link);
            }
            Fault::Partition => {
                let until = now + rng.skewed(3000);
                let way = rng.below(3);
                let path = world.paths.entry((host, node)).or_default();
                if way != 0 {
                    path.up_blocked_until = until;
                }
                if way != 1 {
                    path.down_blocked_until = until;
                }
            }
            Fault::Slow => {
                let until = now + rng.skewed(3000);
                world.paths.entry((host, node)).or_default().slow_until = until;
            }
            Fault::StopNode => world.nodes[node].stopped_until = now + rng.skewed(3000),
            Fault::Crash | Fault::CrashEmpty if world.nodes[node].down => return None,
            Fault::Crash | Fault::CrashEmpty => {
                let down = 1 + rng.skewed(3000);
                let tells = rng.chance(700);
                world.crash(node, down, fault == Fault::Crash, tells);
            }
            Fault::Demote if world.nodes[node].down || world.nodes[node].server.is_replica() => {
                return None;
            }
            // So short at times that nobody sees it.
            Fault::Demote => world.demote(node, 1 + rng.skewed(1000)),
            Fault::Lag => world.nodes[node].lags_until = now + rng.skewed(3000),
            Fault::FailOver | Fault::FailOverUnfenced if !world.may_fail_over(node) => return None,
            Fault::FailOver => {
                let down = 1 + rng.skewed(2000);
                let fate = match rng.below(3) {
                    0 => Fate::Fenced,
                    told => Fate::Dead { tells: told == 1 },
                };
                world.fail_over(node, down, fate);
            }
            Fault::FailOverUnfenced => {
                world.fail_over(node, 0, Fate::LivesOn { ms: 1 + rng.skewed(4000) });
            }
            Fault::MoveSlot => {
                let mut name = self.names[rng.below(self.names.len() as u64) as usize].clone();
                let pace = 1 + rng.skewed(500);
                if name == LATCHES {
                    name = latch_name(world.history.lock().books.latches.current?);
                }
                world.begin_move(name.as_bytes(), node, pace)?;
            }
            Fault::FlushScripts => world.nodes[node].server.flush_scripts(),
            Fault::StepBack => {
                let by = rng.skewed(MOST_STEPPED_US);
                world.nodes[node].step_us -= by as i64;
                world.history.lock().checker.set_back(node, by * 1000);
            }
            Fault::StepForward => {
                world.nodes[node].step_us += rng.skewed(MOST_STEPPED_US) as i64;
            }
            Fault::StopHost => world.hosts[host].stop_until(now + rng.skewed(5000)),
            Fault::SuspendHost => world.hosts[host].suspend_until(now + rng.skewed(9000)),
            Fault::EndClient => {
                let process = &world.hosts[host].process;
                process.client()?;
                process.ending.notify_waiters();
            }
            Fault::KillHost => world.kill(host),
            Fault::ClearSpare | Fault::ClearOne => {
                let lock = any_lock(rng, world, node)?;
                if fault == Fault::ClearSpare && !is_spare(world, node, &lock) {
                    return None;
                }
                clear(world, &[node], &lock)?;
            }
            Fault::ClearAll => {
                let lock = any_lock(rng, world, node)?;
                let nodes: Vec<usize> = (0..world.nodes.len()).collect();
                clear(world, &nodes, &lock)?;
            }
        }
        Some(())
    }
}

fn any_lock(rng: &mut Rng, world: &World, node: usize) -> Option<Vec<u8>> {
    let names = world.nodes[node].server.keys(world.node_us(node), |keys| keys.hashes());
    names.get(rng.below(names.len() as u64) as usize).cloned()
}

/// Whether the vote of a node for who has a lock there is not needed: enough others have given theirs for as long.
fn is_spare(world: &World, node: usize, lock: &[u8]) -> bool {
    let Some(lease) = world.lease_at(node, lock) else { return false };
    let history = world.history.lock();
    let until = |node| history.checker.support(&lease, node);
    let others = (0..world.nodes.len()).filter(|other| {
        *other != node
            && !world.nodes[*other].down
            && until(*other) >= until(node)
            && world.lease_at(*other, lock).as_ref() == Some(&lease)
    });
    others.count() >= history.checker.majority
}

/// `None` if nobody had it.
fn clear(world: &mut World, nodes: &[usize], lock: &[u8]) -> Option<()> {
    let spare = nodes.len() == 1 && is_spare(world, nodes[0], lock);
    let up: Vec<usize> = nodes.iter().copied().filter(|node| !world.nodes[*node].down).collect();
    let leases: Vec<String> = up.iter().filter_map(|node| world.clear(*node, lock)).collect();
    if !spare {
        let mut history = world.history.lock();
        leases.iter().for_each(|lease| history.checker.taken_away(lease));
    }
    leases.first().map(|_| ())
}

fn any_link(rng: &mut Rng, world: &World) -> Option<LinkId> {
    let at = rng.below(world.links.len() as u64) as usize;
    world.links.keys().nth(at).copied()
}

/// Stands for the name of whatever latch is used.
pub const LATCHES: &str = "latches";
/// How far a server's clock is set at once at most.
const MOST_STEPPED_US: u64 = 3_000_000;
