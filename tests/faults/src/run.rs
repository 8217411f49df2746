//! Rounds of faults on contending processes, and what came of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use leasehold_testkit::{Server, Watch};
use serde::Serialize;
use tokio::time::sleep;

use crate::{
    checker::{Deadlocks, INVARIANTS, OF_DEADLOCKS, OF_LISTS, Report, Setting, Violation, check},
    clock::{Chance, now},
    contender::Workload,
    deployment::Layout,
    excluded,
    history::History,
    lists::{self, Operator},
    nemesis::Kind,
    replicated,
    scene::{self, Scene},
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// This program, which the contenders run.
    pub program: PathBuf,
    pub seed: u64,
    /// Rounds begin until then; the first one always.
    pub minutes: f64,
    /// A round for each, over and over.
    pub layouts: Vec<Layout>,
    pub workload: Workload,
    /// The only fault, some times over; otherwise each of them once.
    pub only: Option<String>,
}

/// What a run did and found: one line, for reports.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    pub seed: u64,
    /// The seeds of all rounds.
    pub seeds: Vec<u64>,
    pub server: String,
    pub seconds: u64,
    /// Numbers of servers, or kinds of deployments.
    pub nodes: Vec<String>,
    /// How many histories were checked, and of how many events.
    pub histories: u64,
    pub events: u64,
    pub calls: u64,
    pub holds: u64,
    /// How often each invariant had something to say.
    pub checked: BTreeMap<String, u64>,
    /// How often each kind of fault was there, that locks must survive.
    pub faults: BTreeMap<String, u64>,
    /// Of a run of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlocks: Option<Deadlocks>,
    /// How often each kind was shown to break a lock, of those that they do not survive.
    pub not_survived: BTreeMap<String, u64>,
    /// For how long the machine kept something waiting: the more, the less the limits in time say.
    pub stalled_seconds: f64,
    pub violations: u64,
    pub failures: u64,
}

impl Summary {
    pub fn is_good(&self) -> bool {
        self.violations == 0 && self.failures == 0
    }
}

/// Runs rounds, tells of each on standard output, and gives the sum of them.
pub async fn run(plan: &Plan) -> Summary {
    // With timeouts as outside of tests, the servers of one round run for minutes.
    Watch::allow(LONGEST_ROUND);
    let began_at = Instant::now();
    let ends_at = began_at + Duration::from_secs_f64(plan.minutes * 60.0);
    let mut summary = Summary {
        seed: plan.seed,
        server: version().await,
        nodes: plan.layouts.iter().map(Layout::to_string).collect(),
        deadlocks: (plan.workload == Workload::Deadlocks).then(Deadlocks::default),
        ..Summary::default()
    };
    for pass in 0.. {
        let seed = plan.seed.wrapping_add(pass);
        for layout in &plan.layouts {
            if pass > 0 && Instant::now() > ends_at {
                break;
            }
            if summary.seeds.last() != Some(&seed) {
                summary.seeds.push(seed);
            }
            match layout {
                Layout::Independent(_) => {
                    if plan.only.is_none() && plan.workload == Workload::Mixed {
                        show_what_is_not_survived(&mut summary).await;
                    }
                    round(plan, *layout, &[], seed, &mut summary).await;
                }
                Layout::Lists => round(plan, *layout, &lists::NAMES, seed, &mut summary).await,
                Layout::Unfenced | Layout::ShortGrace(_) => {
                    show_overlaps(plan, *layout, seed, &mut summary).await;
                }
                _ => {
                    let names = match plan.workload {
                        Workload::Mixed => replicated::names(*layout),
                        Workload::Deadlocks => &[],
                    };
                    round(plan, *layout, names, seed, &mut summary).await;
                }
            }
        }
        if Instant::now() > ends_at {
            break;
        }
    }
    // A single round may miss one, and where a failover is part of each fault, what is checked between them is little.
    let all = plan.layouts.iter().all(|layout| layout.is_independent());
    let must_be_tested: &[&str] = match plan.workload {
        Workload::Deadlocks => &OF_DEADLOCKS,
        Workload::Mixed if plan.layouts == [Layout::Lists] => &OF_LISTS,
        Workload::Mixed if all && plan.only.is_none() && summary.histories >= 3 => &INVARIANTS,
        Workload::Mixed => &[],
    };
    for invariant in must_be_tested {
        if summary.checked.get(*invariant).is_none_or(|times| *times == 0) {
            println!("{invariant} was never put to the test");
            summary.failures += 1;
        }
    }
    summary.seconds = began_at.elapsed().as_secs();
    summary
}

async fn version() -> String {
    let server = Server::start().await;
    let info = server.command(&["INFO", "server"]).await;
    let info: redis::InfoDict = redis::from_redis_value(info).expect("what INFO gives");
    let version = |key| info.get::<String>(key);
    match version("valkey_version") {
        Some(valkey) => format!("valkey {valkey}"),
        None => format!("redis {}", version("redis_version").unwrap_or_default()),
    }
}

async fn show_what_is_not_survived(summary: &mut Summary) {
    // Some at once: they mostly wait.
    for names in excluded::NAMES.chunks(6) {
        let shown = join_all(names.iter().map(|name| excluded::show(name))).await;
        for (name, shown) in names.iter().zip(shown) {
            match shown {
                Ok(()) => *summary.not_survived.entry((*name).to_owned()).or_default() += 1,
                Err(problem) => {
                    println!("{name}: not as documented: {problem}");
                    println!("to repeat: scripts/faults show {name}");
                    summary.failures += 1;
                }
            }
        }
    }
}

/// What the settings of the documentation are for, and a check of the checker: an old master that is not fenced, and no
/// grace. It must find that two held a lock, after some of the faults at least: whether a client is about to ask just then is
/// chance. With a grace that is too short, it finds that after some of the cuts, if they last.
async fn show_overlaps(plan: &Plan, layout: Layout, seed: u64, summary: &mut Summary) {
    for name in replicated::names(layout) {
        let (dir, scene, mut chance) = begin(plan, layout, seed).await;
        let (mut faults, mut begins) = (BTreeMap::new(), Vec::new());
        for _ in 0..TIMES_SHOWN {
            begins.push(now());
            replicated::strike(name, &scene, &mut chance, &mut faults).await;
        }
        let ttl = scene.ttl;
        let (history, report, failed) = end(scene, &dir, layout, ttl).await;
        let overlaps: Vec<u64> = report
            .violations
            .iter()
            .filter(|found| found.invariant == "S1")
            .map(|found| found.at)
            .collect();
        // The number of the fault that led to each.
        let led = overlaps.iter().map(|at| begins.partition_point(|begin| begin <= at));
        let led = led.collect::<BTreeSet<_>>().len() as u64;
        println!(
            "{name}, {layout}: {} holds, {} at the same time as others, after {led} of {TIMES_SHOWN} faults",
            report.holds,
            overlaps.len()
        );
        add(summary, &history, &report, faults);
        std::fs::remove_dir_all(&dir).expect("the journals can be removed");
        *summary.not_survived.entry((*name).to_owned()).or_default() += led;
        // How long an old master goes on that is cut off depends on chance.
        let must_be_found = layout == Layout::Unfenced;
        if led == 0 && must_be_found || !failed.is_empty() {
            println!("{name}: not as documented: nobody held a lock twice; {failed:?}");
            summary.failures += 1;
        }
    }
}

/// Every kind of fault once, on one deployment.
async fn round(
    plan: &Plan,
    layout: Layout,
    names: &[&'static str],
    seed: u64,
    summary: &mut Summary,
) {
    let (dir, scene, mut chance) = begin(plan, layout, seed).await;
    let (ttl, mut faults) = (scene.ttl, BTreeMap::new());
    let is_asked_for = |name: &&&str| plan.only.as_deref().is_none_or(|only| only == **name);
    let mut names: Vec<&str> = names.iter().filter(is_asked_for).copied().collect();
    if let Some(only) = &plan.only {
        let is_kind = Kind::ALL.iter().any(|kind| kind.name() == *only);
        let is_of_all = layout.is_independent() || plan.workload == Workload::Deadlocks;
        let is_there = !names.is_empty() || is_kind && is_of_all;
        assert!(is_there, "{layout}: there is no fault {only}");
        names = names.repeat(TIMES);
    }
    chance.shuffle(&mut names);
    let mut operator = (layout == Layout::Lists).then(|| Operator::new(&scene));
    for (step, name) in names.into_iter().enumerate() {
        let began_at = Instant::now();
        match &mut operator {
            Some(operator) => operator.strike(name, &mut chance, &mut faults).await,
            None => replicated::strike(name, &scene, &mut chance, &mut faults).await,
        }
        scene.note_servers();
        println!("  {name} took {:.1} s", began_at.elapsed().as_secs_f64());
        sleep(if step % 4 == 3 { SETTLING + ttl } else { chance.ms(100, 700) }).await;
    }
    let kinds = kinds(plan, layout, &mut chance);
    let calm = plan.calm(ttl);
    for (step, kind) in kinds.iter().copied().enumerate() {
        strike(&scene, kind, &mut chance, &mut faults).await;
        scene.note_servers();
        if step + 1 == kinds.len() {
            // What follows is quiet.
            break;
        }
        // Now and then all is quiet for so long that what waits must have its turn.
        let quiet = step % 4 == 3 || kind == Kind::ContenderKilled;
        sleep(if quiet { calm } else { chance.ms(100, 700) }).await;
    }
    sleep(calm + ttl).await;
    let (history, report, failed) = end(scene, &dir, layout, ttl).await;
    let found = report.violations.len() + failed.len();
    println!(
        "{layout} node(s), seed {seed}: {} faults, {} calls, {} holds, {found} violations",
        faults.values().sum::<u64>(),
        report.calls,
        report.holds,
    );
    if found == 0 {
        std::fs::remove_dir_all(&dir).expect("the journals can be removed");
    } else {
        tell(&report.violations, &failed, &history, &dir);
        let option = if layout.is_independent() { "nodes" } else { "deployment" };
        let workload = match plan.workload {
            Workload::Mixed => "",
            Workload::Deadlocks => " --workload deadlocks",
        };
        println!("to repeat: scripts/faults --seed {seed} --{option} {layout}{workload}");
    }
    summary.violations += found as u64;
    add(summary, &history, &report, faults);
}

impl Plan {
    /// For how long all is quiet now and then.
    fn calm(&self, ttl: Duration) -> Duration {
        match self.workload {
            Workload::Mixed => SETTLING + ttl,
            Workload::Deadlocks => TOLD,
        }
    }
}

/// What happens to independent servers and their clients, in some order. In a long run, what needs several servers happens twice where there are
/// some, so that it happens as often as all else.
fn kinds(plan: &Plan, layout: Layout, chance: &mut Chance) -> Vec<Kind> {
    let again = Kind::ALL.into_iter().filter(|kind| plan.minutes > 0.0 && kind.needs_several());
    let mut kinds: Vec<Kind> = match plan.workload {
        Workload::Mixed if !layout.is_independent() => return Vec::new(),
        Workload::Mixed => Kind::ALL.into_iter().chain(again).collect(),
        Workload::Deadlocks => Kind::OF_DEADLOCKS.to_vec(),
    };
    kinds.retain(|kind| layout.votes() > 1 || !kind.needs_several());
    if let Some(only) = &plan.only {
        kinds.retain(|kind| kind.name() == *only);
        kinds.dedup();
        kinds = kinds.repeat(TIMES);
    }
    chance.shuffle(&mut kinds);
    kinds
}

/// The journals' directory, the servers with the contenders, and a source of chance.
async fn begin(plan: &Plan, layout: Layout, seed: u64) -> (PathBuf, Scene, Chance) {
    let dir = std::env::temp_dir().join(format!(
        "leasehold-faults-{}-{layout}-{seed}-{}",
        std::process::id(),
        now()
    ));
    std::fs::create_dir_all(&dir).expect("a directory for the journals");
    let votes = layout.votes() as u64;
    let chance = Chance::new(seed ^ votes << 40);
    let (program, workload) = (plan.program.clone(), plan.workload);
    let scene = Scene::set(program, dir.clone(), layout, workload, seed).await;
    sleep(SETTLING).await;
    (dir, scene, chance)
}

/// What is known and wrong, when all have ended, and which contenders did not end well.
async fn end(
    scene: Scene,
    dir: &Path,
    layout: Layout,
    ttl: Duration,
) -> (History, Report, Vec<String>) {
    let quarantine = scene.quarantine;
    let failed = scene.end_contenders().await;
    scene.note_what_is_left().await;
    drop(scene);
    let history = History::read(dir).expect("journals that were written whole");
    let report = check(&history, &setting(layout, ttl, quarantine));
    (history, report, failed)
}

fn setting(layout: Layout, ttl: Duration, quarantine: Duration) -> Setting {
    Setting {
        nodes: layout.votes(),
        fails_over: layout.is_replicated(),
        slack: SLACK,
        ttl,
        response_timeout: ttl / 3,
        quarantine,
    }
}

/// Checks the journals of an earlier run again, and tells what it finds. Returns how much that is.
pub fn judge(layout: Layout, workload: Workload, dir: &Path) -> usize {
    let history = History::read(dir).expect("journals that were written whole");
    let (ttl, quarantine) = (scene::ttl(layout, workload), scene::quarantine(layout));
    let report = check(&history, &setting(layout, ttl, quarantine));
    println!("{layout}: {} violations", report.violations.len());
    tell(&report.violations, &[], &history, dir);
    report.violations.len()
}

fn add(summary: &mut Summary, history: &History, report: &Report, faults: BTreeMap<String, u64>) {
    summary.histories += 1;
    summary.events += history.events().count() as u64;
    summary.calls += report.calls as u64;
    summary.holds += report.holds as u64;
    summary.stalled_seconds += report.stalled as f64 / 1e9;
    for (kind, count) in faults {
        *summary.faults.entry(kind).or_default() += count;
    }
    if let Some(deadlocks) = &mut summary.deadlocks {
        deadlocks.add(&report.deadlocks);
    }
    for (invariant, count) in &report.checked {
        *summary.checked.entry((*invariant).to_owned()).or_default() += count;
    }
}

/// One fault; now and then another one beside it.
async fn strike(
    scene: &Scene,
    kind: Kind,
    chance: &mut Chance,
    faults: &mut BTreeMap<String, u64>,
) {
    *faults.entry(kind.name()).or_default() += 1;
    let beside = chance.one_in(3).then(|| *chance.pick(&Kind::BESIDE_OTHERS));
    let Some(beside) = beside.filter(|beside| *beside != kind && !kind.uses_the_same(*beside))
    else {
        return kind.strike(scene, chance).await;
    };
    *faults.entry(beside.name()).or_default() += 1;
    let mut others = Chance::new(chance.draw());
    tokio::join!(kind.strike(scene, chance), beside.strike(scene, &mut others));
}

/// The violations, and what was going on around the first of them.
fn tell(violations: &[Violation], failed: &[String], history: &History, dir: &Path) {
    for failure in failed {
        println!("  {failure}: its last words are in {}", dir.display());
    }
    for violation in violations.iter().take(SHOWN) {
        println!("  {violation}");
    }
    if violations.len() > SHOWN {
        println!("  and {} more", violations.len() - SHOWN);
    }
    let Some(first) = violations.first() else { return };
    println!("  around the first of them (all of it is in {}):", dir.display());
    let mut events: Vec<_> = history.events().collect();
    events.sort_by_key(|(_, event)| event.at);
    let at = events.partition_point(|(_, event)| event.at <= first.at);
    for (process, event) in &events[at.saturating_sub(SHOWN)..(at + SHOWN / 4).min(events.len())] {
        println!("    {:.6} {process} {:?}", event.at as f64 / 1e9, event.what);
    }
}

const SETTLING: Duration = Duration::from_millis(1500);
/// What a limit in time allows besides, as in the library's own tests.
const SLACK: Duration = Duration::from_millis(50);
/// So long that a deadlock that is there must be told.
const TOLD: Duration = Duration::from_secs(14);
const SHOWN: usize = 40;
const LONGEST_ROUND: Duration = Duration::from_secs(1800);
/// How often happens what an old master does not survive.
const TIMES_SHOWN: usize = 5;
/// How often a round has a fault that alone is asked for.
const TIMES: usize = 8;
