//! The same seed is the same run, to the last line of its trace.

use std::process::Command;

use leasehold_sim::shapes;

const MINUTES: u64 = 1;

#[test]
fn the_same_seed_gives_the_same_trace_in_this_process_and_in_another() {
    for name in ["one-server", "three-servers", "kinds", "kinds-in-a-cluster"] {
        let scenario = shapes::named(name).expect("there is one");
        let first = scenario.run(5, MINUTES);
        first.expect_no_surprise();
        let second = scenario.run(5, MINUTES);
        assert_eq!(first.line(), second.line(), "in this process");
        let elsewhere = Command::new(env!("CARGO_BIN_EXE_sim"))
            .args(["--only", name, "--seed", "5", "--minutes", &MINUTES.to_string()])
            .output()
            .expect("it runs");
        let lines = String::from_utf8_lossy(&elsewhere.stdout);
        assert!(lines.lines().any(|line| line == first.line()), "{}\n{lines}", first.line());
    }
}

#[test]
fn another_seed_gives_another_trace() {
    let scenario = shapes::one_server();
    assert_ne!(scenario.run(1, 1).trace_hash, scenario.run(2, 1).trace_hash);
}
