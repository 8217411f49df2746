//! Runs scenarios: sim [--hours H] [--seed S] [--only NAME]
use std::time::Instant;
use leasehold_sim::nemesis::Fault;
use leasehold_sim::scenario::Scenario;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seed: u64 = args.get(1).map_or(1, |s| s.parse().unwrap());
    let minutes: u64 = args.get(2).map_or(5, |s| s.parse().unwrap());
    let nodes: usize = args.get(3).map_or(1, |s| s.parse().unwrap());
    let calm = args.get(4).is_some_and(|s| s == "calm");
    static ALL: [(Fault, u64); 12] = [
        (Fault::LoseRequests, 10), (Fault::LoseReplies, 10), (Fault::HalfClose, 5), (Fault::Swallow, 5),
        (Fault::Kill, 10), (Fault::Partition, 10), (Fault::Slow, 10), (Fault::StopNode, 5), (Fault::Crash, 5),
        (Fault::FlushScripts, 5), (Fault::StopHost, 10), (Fault::KillHost, 2)];
    static EMPTY: [(Fault, u64); 13] = [
        (Fault::LoseRequests, 10), (Fault::LoseReplies, 10), (Fault::HalfClose, 5), (Fault::Swallow, 5),
        (Fault::Kill, 10), (Fault::Partition, 10), (Fault::Slow, 10), (Fault::StopNode, 5), (Fault::Crash, 5), (Fault::CrashEmpty, 10),
        (Fault::FlushScripts, 5), (Fault::StopHost, 10), (Fault::KillHost, 2)];
    let scenario = Scenario {
        name: "all", nodes, hosts: 4, workers: 3, locks: 2, ttl_ms: 2000,
        quarantine_ms: if nodes > 1 { Some(args.get(5).map_or(3000, |s| s.parse().unwrap())) } else { None }, durable: !args.get(4).is_some_and(|s| s == "empty"),
        faults: if calm { &[] } else if args.get(4).is_some_and(|s| s == "empty") { &EMPTY } else { &ALL }, every_ms: 500, force_unlocks: 0,
    };
    let began = Instant::now();
    let outcome = scenario.run(seed, minutes);
    println!("{}", outcome.violations.len());
    if !outcome.violations.is_empty() || std::env::var_os("SIM_TRACE").is_some() { println!("{}", outcome.tail); }
    for v in &outcome.violations { println!("{v}"); }
    println!("{:?} hash {:016x} {} ms in {:?}", outcome.counts, outcome.trace_hash, outcome.simulated_ms, began.elapsed());
}
