//! What goes wrong, and how often.

use crate::rng::Rng;
use crate::server::LinkId;
use crate::world::World;

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
    /// A server crashes, and comes back empty.
    CrashEmpty,
    /// A server forgets its scripts.
    FlushScripts,
    /// A client's process is stopped for a while.
    StopHost,
    /// A client's process crashes; another begins in its place.
    KillHost,
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::LoseRequests => "fault_lose_requests",
            Self::LoseReplies => "fault_lose_replies",
            Self::HalfClose => "fault_half_close",
            Self::Swallow => "fault_swallow",
            Self::Kill => "fault_kill_connection",
            Self::Partition => "fault_partition",
            Self::Slow => "fault_slow",
            Self::StopNode => "fault_stop_node",
            Self::Crash => "fault_crash",
            Self::CrashEmpty => "fault_crash_empty",
            Self::FlushScripts => "fault_flush_scripts",
            Self::StopHost => "fault_stop_host",
            Self::KillHost => "fault_kill_host",
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
    next_at: u64,
}

impl Nemesis {
    pub fn new(faults: &[(Fault, u64)], every_ms: u64, rng: Rng) -> Self {
        Self { faults: faults.to_vec(), every_ms, rng, next_at: 0 }
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

    fn inflict(&mut self, fault: Fault, world: &mut World) -> Option<usize> {
        let rng = &mut self.rng;
        let node = rng.below(world.nodes.len() as u64) as usize;
        let host = rng.below(world.hosts.len() as u64) as usize;
        let link = any_link(rng, world);
        let now = world.now;
        let mut history = world.history.lock();
        history.count(fault.name(), 1);
        history.note(format_args!("{fault:?} n{node} h{host} {link:?}"));
        drop(history);
        match fault {
            Fault::LoseRequests => world.cut(link?, false),
            Fault::LoseReplies => world.cut(link?, true),
            Fault::HalfClose => world.end(link?),
            Fault::Swallow => world.links.get_mut(&link?)?.swallowed = true,
            Fault::Kill => {
                let link = link?;
                let node = world.links[&link].node;
                world.nodes[node].server.forget(link);
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
            Fault::Crash | Fault::CrashEmpty if world.nodes[node].down => {}
            Fault::Crash | Fault::CrashEmpty => {
                let down = 1 + rng.skewed(3000);
                let tells = rng.chance(700);
                world.crash(node, down, fault == Fault::Crash, tells);
            }
            Fault::FlushScripts => world.nodes[node].server.flush_scripts(),
            Fault::StopHost => world.hosts[host].stop_until(now + rng.skewed(5000)),
            Fault::KillHost => {
                world.kill(host);
                return Some(host);
            }
        }
        None
    }
}

fn any_link(rng: &mut Rng, world: &World) -> Option<LinkId> {
    let at = rng.below(world.links.len() as u64) as usize;
    world.links.keys().nth(at).copied()
}
