//! `run [--minutes N] [--seed S] [--nodes N,N..]`: the driver. `contend <orders>`: one of its contenders.

use std::process::ExitCode;

use leasehold_faults::{
    contender,
    run::{Plan, run},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["contend", orders] => {
            contender::contend(serde_json::from_str(orders).expect("the driver's orders"));
            ExitCode::SUCCESS
        }
        ["run", ref options @ ..] => drive(options),
        _ => usage("say what to do"),
    }
}

fn drive(options: &[&str]) -> ExitCode {
    let program = std::env::current_exe().expect("this program's path");
    let mut plan = Plan { program, seed: 1, minutes: 0.0, nodes: NODES.to_vec() };
    for option in options.chunks(2) {
        let parsed = match *option {
            ["--minutes", minutes] => minutes.parse().map(|minutes| plan.minutes = minutes).is_ok(),
            ["--seed", seed] => seed.parse().map(|seed| plan.seed = seed).is_ok(),
            ["--nodes", nodes] => {
                let counts: Result<Vec<_>, _> = nodes.split(',').map(str::parse).collect();
                counts.map(|counts| plan.nodes = counts).is_ok()
            }
            _ => false,
        };
        if !parsed {
            return usage(&format!("not understood: {option:?}"));
        }
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let summary = runtime.block_on(run(&plan));
    println!("{}", serde_json::to_string(&summary).expect("plain data"));
    if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}\nusage: leasehold-faults run [--minutes N] [--seed S] [--nodes N,N..]");
    ExitCode::from(2)
}

const NODES: [usize; 1] = [1];
