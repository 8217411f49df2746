//! Other processes that use locks: this test binary, run again.
//!
//! A worker reads one command per line and answers with lines that begin with `@`; everything else that
//! the test harness prints is passed over. It ends when its standard input does.
//!
//! What it does is said by a test of the binary, `a_worker_answers`, whatever its module, with [`both_sides`].

use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::signals::{pause, resume};

/// A process of ours that was started for a test; killed when dropped.
pub struct Worker {
    process: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts one.
    pub fn start() -> Self {
        Self::in_environment(&[])
    }

    /// Starts one with variables of its environment besides those of this process.
    pub fn in_environment(environment: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env::current_exe().expect("this binary"))
            .envs(environment.iter().copied())
            .args([TEST, "--nocapture"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let commands = process.stdin.take().expect("piped");
        let answers = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self { process, commands, answers }
    }

    /// Gives a command, and does not wait.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the worker runs");
    }

    /// The next line of its answer, in words.
    pub fn answer(&mut self) -> Vec<String> {
        loop {
            let line = self.answers.next().expect("the worker runs").expect("text");
            // The harness may have begun a line of its own.
            if let Some((_, answer)) = line.split_once('@') {
                return answer.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    /// All lines of its answer up to `@end`.
    pub fn answers(&mut self) -> Vec<Vec<String>> {
        let mut answers = Vec::new();
        loop {
            match self.answer() {
                end if end == ["end"] => return answers,
                answer => answers.push(answer),
            }
        }
    }

    /// Kills it. Returns all lines that it had answered and nobody has read.
    pub fn last_words(mut self) -> Vec<Vec<String>> {
        self.kill();
        let lines = self.answers.by_ref().map(|line| line.expect("text"));
        let answers = lines.filter_map(|line| Some(line.split_once('@')?.1.to_owned()));
        answers.map(|answer| answer.split_whitespace().map(str::to_owned).collect()).collect()
    }

    /// SIGKILL; gone when this returns.
    pub fn kill(&mut self) {
        self.process.kill().expect("it was ours");
        self.process.wait().expect("it was ours");
    }

    /// Stops the process as a frozen machine does: its connections stay, and it does nothing.
    pub fn pause(&self) {
        pause(self.process.id());
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        resume(self.process.id());
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) {
        self.process.wait().expect("it was ours");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both sides of it, for the test `a_worker_answers`. In a worker it has `serve` do what the worker is told, line by line; run by the
/// harness, it starts a worker, and checks that it answers what it is to say.
pub fn both_sides(serve: impl FnOnce(&mut dyn Iterator<Item = String>)) {
    if env::var_os(ROLE).is_some() {
        return serve(&mut std::io::stdin().lines().map(|line| line.expect("text")));
    }
    let mut worker = Worker::start();
    worker.tell("say hello");
    assert_eq!(worker.answer(), ["hello"]);
    worker.kill();
}

/// The harness runs the tests that have this in their names.
const TEST: &str = "a_worker_answers";
/// Set in a worker's environment.
const ROLE: &str = "LEASEHOLD_TEST_WORKER";
