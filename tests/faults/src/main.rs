//! `run [--minutes N] [--seed S] [--nodes N,N.. | --deployment D] [--workload deadlocks] [--only FAULT]`: the driver. `D` is `lists`, `sentinel`, `unfenced`,
//! `cluster`, or with a `cluster-node-timeout` in seconds `cluster-15s` and `short-grace-15s`.
//! `judge <layout> <dir>`: checks the journals of an earlier run again; the layout is a number of nodes or a `D`.
//! `measure stopped|down [--entries N] [--clients N] [--locks N] [--ttl S]`: what two situations cost, at full size by default.
//! `show <name>`: one arrangement of what locks do not survive. `contend <orders>`: one of the driver's contenders.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use leasehold_faults::{
    contender::{self, Workload},
    deployment::Layout,
    excluded::show,
    measure::{Size, measure, wait_in_line},
    run::{Plan, judge, run},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["contend", orders] => {
            contender::contend(serde_json::from_str(orders).expect("the driver's orders"));
            ExitCode::SUCCESS
        }
        ["run", ref options @ ..] => drive(options),
        ["judge", layout, dir] => {
            let nodes = layout.parse().map(Layout::Independent).ok();
            let Some(layout) = nodes.or_else(|| layout.parse().ok()) else {
                return usage(&format!("not understood: {layout}"));
            };
            match judge(layout, Workload::Mixed, Path::new(dir)) {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        }
        ["show", name] => match runtime().block_on(show(name)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                println!("{name}: not as documented: {problem}");
                ExitCode::FAILURE
            }
        },
        ["measure", what, ref options @ ..] => match size(options) {
            Some(size) => match measure(what, size, &program()) {
                Some(true) => ExitCode::SUCCESS,
                Some(false) => ExitCode::FAILURE,
                None => usage(&format!("not understood: {what}")),
            },
            None => usage(&format!("not understood: {options:?}")),
        },
        ["wait-in-line", url, entries] => {
            wait_in_line(url, entries.parse().expect("a number"));
            ExitCode::SUCCESS
        }
        _ => usage("say what to do"),
    }
}

fn drive(options: &[&str]) -> ExitCode {
    let program = program();
    let layouts = NODES.map(Layout::Independent).to_vec();
    let workload = Workload::Mixed;
    let mut plan = Plan { program, seed: 1, minutes: 0.0, layouts, workload, only: None };
    if options.chunks(2).any(|option| option == ["--workload", "deadlocks"]) {
        plan.workload = Workload::Deadlocks;
        plan.layouts = NODES_OF_DEADLOCKS.map(Layout::Independent).to_vec();
    }
    for option in options.chunks(2) {
        let parsed = match *option {
            ["--minutes", minutes] => minutes.parse().map(|minutes| plan.minutes = minutes).is_ok(),
            ["--seed", seed] => seed.parse().map(|seed| plan.seed = seed).is_ok(),
            ["--nodes", nodes] => {
                let counts: Result<Vec<usize>, _> = nodes.split(',').map(str::parse).collect();
                let layouts = counts.map(|counts| counts.into_iter().map(Layout::Independent));
                layouts.map(|layouts| plan.layouts = layouts.collect()).is_ok()
            }
            ["--deployment", name] => {
                name.parse().map(|layout| plan.layouts = vec![layout]).is_ok()
            }
            ["--workload", "deadlocks"] => true,
            ["--only", name] => {
                plan.only = Some(name.to_owned());
                true
            }
            _ => false,
        };
        if !parsed {
            return usage(&format!("not understood: {option:?}"));
        }
    }
    let summary = runtime().block_on(run(&plan));
    println!("{}", serde_json::to_string(&summary).expect("plain data"));
    if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn program() -> PathBuf {
    std::env::current_exe().expect("this program's path")
}

fn size(options: &[&str]) -> Option<Size> {
    let mut size = Size::FULL;
    for option in options.chunks(2) {
        let [name, number] = *option else { return None };
        let number: usize = number.parse().ok().filter(|number| *number > 0)?;
        match name {
            "--entries" => size.entries = number,
            "--clients" => size.clients = number,
            "--locks" => size.locks = number,
            "--ttl" => size.ttl = Duration::from_secs(number as u64),
            _ => return None,
        }
    }
    Some(size)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

fn usage(problem: &str) -> ExitCode {
    eprintln!(
        "{problem}\nusage: leasehold-faults run [--minutes N] [--seed S] [--nodes N,N.. | --deployment D] [--workload deadlocks] [--only F]"
    );
    ExitCode::from(2)
}

/// Alone, and as a quorum.
const NODES: [usize; 3] = [1, 3, 5];
const NODES_OF_DEADLOCKS: [usize; 2] = [1, 3];
