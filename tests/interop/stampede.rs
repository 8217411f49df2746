//! Many of both draw turns from one total, in a file that nothing but the lock protects.
//!
//! The file, as in `Stampede.java`: turns taken, 1 while somebody is inside, then one number for each turn; 64 bits
//! each, big-endian. A turn is a read and a write; two at a time lose turns, and see each other.

use std::{
    collections::HashMap,
    env,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Lines, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use leasehold::{Client, blocking};
use leasehold_testkit::{
    Server, eventually,
    java::{Java, Version, hex},
};

use crate::with_each_redisson;

/// All versions of Redisson at once: a process of each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_draw_from_one_total_and_nothing_is_lost() {
    const TOTAL: u64 = 20_000;
    const THREADS: usize = 4;
    let server = Server::start().await;
    let record = Record::in_folder(server.dir(), TOTAL);
    let mut java = Vec::new();
    for version in Version::ALL {
        java.push(Java::connect(version, &server.url(), TTL).await);
    }
    let crews = [(2 * THREADS, 0), (0, 2 * THREADS), (THREADS, THREADS)];
    let rust: Vec<_> = crews
        .iter()
        .map(|crew| Process::start(&server.url(), &record, *crew, Tokens::OfTheirOwn))
        .collect();

    let began_at = Instant::now();
    let asked: Vec<_> = java
        .iter()
        .zip(1..)
        .map(|(java, mark)| java.ask("a", &record.command("plain", 2 * THREADS, mark)))
        .collect();
    let told: Vec<_> =
        rust.into_iter().zip(4..).map(|(process, mark)| process.take_part(mark)).collect();
    let mut made = Vec::new();
    for answer in asked {
        made.push(Made::parse(&answer.await.value()));
    }
    for answer in told {
        made.push(answer.await.expect("no panic"));
    }
    println!("{TOTAL} turns in {:?}: {made:?}", began_at.elapsed());
    record.check(&made);
    let by_java: u64 = made[..3].iter().map(|made| made.turns).sum();
    println!("by Java {by_java}, by Rust {}; {}", TOTAL - by_java, record.describe_runs());
    assert!((TOTAL / 8..=TOTAL - TOTAL / 8).contains(&by_java), "Java made {by_java}");
}

with_each_redisson!(tokens_grow_from_turn_to_turn);

/// With FencedLock, whose tokens are written down as the turns are taken.
async fn tokens_grow_from_turn_to_turn(version: Version) {
    const TOTAL: u64 = 3_000;
    const OF_JAVA: u64 = 100;
    let server = Server::start().await;
    let record = Record::in_folder(server.dir(), TOTAL);
    let java = Java::connect(version, &server.url(), TTL).await;
    let rust = Process::start(&server.url(), &record, (3, 3), Tokens::OfJava);
    let asked = java.ask("a", &record.command("fenced", 6, 0));
    let under_way = async || record.taken() >= OF_JAVA;
    eventually(Duration::from_secs(60), "Java takes turns", under_way).await;
    let told = rust.take_part(0);
    let made = [Made::parse(&asked.await.value()), told.await.expect("no panic")];
    println!("{version:?}: {made:?}");
    record.check(&made);
    let tokens = record.turns();
    let disorder = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(disorder, None);
    assert!(made[0].turns >= OF_JAVA && made[1].turns > 0, "only one of them took part");
}

/// What one process has made of it.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) turns: u64,
    /// How often another was inside.
    overlaps: u64,
}

impl Made {
    pub(crate) fn parse(line: &str) -> Self {
        let (turns, overlaps) = line.split_once(' ').expect("two numbers");
        let number = |word: &str| word.parse().expect("a number");
        Self { turns: number(turns), overlaps: number(overlaps) }
    }

    /// Nobody else was inside.
    pub(crate) fn is_clean(&self) -> bool {
        self.overlaps == 0
    }
}

/// The file.
pub(crate) struct Record {
    path: PathBuf,
    total: u64,
}

impl Record {
    pub(crate) fn in_folder(folder: &Path, total: u64) -> Self {
        let path = folder.join("stampede");
        let length = 16 + 8 * total;
        File::create(&path).and_then(|file| file.set_len(length)).expect("a file can be made");
        Self { path, total }
    }

    /// What tells Java to take part.
    pub(crate) fn command(&self, kind: &str, threads: usize, mark: u64) -> String {
        let (name, path) = (hex(NAME), self.path.display());
        format!("stampede {kind} {name} {path} {} {threads} {mark}", self.total)
    }

    fn turns(&self) -> Vec<u64> {
        let bytes = std::fs::read(&self.path).expect("the file is there");
        let numbers = bytes.chunks_exact(8).map(|bytes| bytes.try_into().expect("eight"));
        numbers.map(u64::from_be_bytes).skip(2).collect()
    }

    fn taken(&self) -> u64 {
        read(&File::open(&self.path).expect("the file is there"), 0)
    }

    pub(crate) fn check(&self, made: &[Made]) {
        assert_eq!(self.taken(), self.total);
        assert_eq!(made.iter().map(|made| made.turns).sum::<u64>(), self.total);
        assert!(made.iter().all(Made::is_clean), "two were inside at once");
    }

    /// How often the lock went from one process to another, and how many turns each made in a row at most.
    pub(crate) fn describe_runs(&self) -> String {
        let mut longest = HashMap::new();
        let mut runs = 0;
        for run in self.turns().chunk_by(|one, next| one == next) {
            let longest = longest.entry(run[0]).or_insert(0);
            *longest = run.len().max(*longest);
            runs += 1;
        }
        let mut longest: Vec<_> = longest.into_iter().collect();
        longest.sort();
        format!("{runs} runs, the longest by process {longest:?}")
    }
}

fn read(record: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    record.read_exact_at(&mut bytes, at).expect("the record is long enough");
    u64::from_be_bytes(bytes)
}

fn write(record: &File, at: u64, value: u64) {
    record.write_all_at(&value.to_be_bytes(), at).expect("the record can be written");
}

/// What tokens our clients take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokens {
    OfTheirOwn,
    OfJava,
}

/// A process of ours: this test binary, run again.
pub(crate) struct Process {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Connected when this returns.
    pub(crate) fn start(url: &str, record: &Record, crew: (usize, usize), tokens: Tokens) -> Self {
        let redisson_fencing = tokens == Tokens::OfJava;
        let (tasks, threads) = crew;
        let task = format!("{} {tasks} {threads} {redisson_fencing}", record.total);
        let mut child = Command::new(env::current_exe().expect("this binary"))
            .args(["stampede::a_process_of_ours_takes_part", "--exact", "--nocapture"])
            .env(TASK, task)
            .env(SERVER, url)
            .env(RECORD, &record.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let commands = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut process = Self { child, commands, answers };
        assert_eq!(process.answer(), "ready");
        process
    }

    /// Lets it begin.
    pub(crate) fn take_part(mut self, mark: u64) -> tokio::task::JoinHandle<Made> {
        writeln!(self.commands, "{mark}").expect("the process runs");
        tokio::task::spawn_blocking(move || Made::parse(&self.answer()))
    }

    fn answer(&mut self) -> String {
        loop {
            let line = self.answers.next().expect("the process runs").expect("text");
            // The harness may have begun a line of its own.
            if let Some((_, answer)) = line.split_once('@') {
                return answer.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both sides of it: run by the harness it is a stampede of one process of ours alone; started by one it serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_ours_takes_part() {
    if let Ok(task) = env::var(TASK) {
        return serve(&task).await;
    }
    let server = Server::start().await;
    let record = Record::in_folder(server.dir(), 500);
    let process = Process::start(&server.url(), &record, (2, 2), Tokens::OfTheirOwn);
    let made = process.take_part(7).await.expect("no panic");
    record.check(&[made]);
    assert_eq!(record.turns(), [7; 500]);
}

async fn serve(task: &str) {
    let words: Vec<_> = task.split(' ').collect();
    let [total, tasks, threads, fencing] = words[..] else { panic!("not a task: {task}") };
    let url = env::var(SERVER).expect("told");
    let builder = || {
        let builder = Client::builder().nodes(url.split(',')).restart_quarantine(Duration::ZERO);
        builder.redisson_fencing(fencing == "true")
    };
    let client = builder().connect().await.expect("connected");
    let (for_threads, mark) = tokio::task::spawn_blocking({
        let builder = builder();
        move || {
            let client = builder.connect_blocking().expect("connected");
            println!("@ready");
            let mut mark = String::new();
            std::io::stdin().read_line(&mut mark).expect("text");
            (client, number(mark.trim()))
        }
    })
    .await
    .expect("no panic");

    let crew = Crew {
        path: env::var(RECORD).expect("told").into(),
        total: number(total),
        mark: (fencing != "true").then_some(mark),
        turns: AtomicU64::new(0),
        overlaps: AtomicU64::new(0),
    };
    let crew = &*Box::leak(Box::new(crew));
    let threads: Vec<_> = (0..number(threads))
        .map(|_| {
            let client = for_threads.clone();
            thread::spawn(move || crew.take_turns_on_a_thread(&client))
        })
        .collect();
    let tasks: Vec<_> = (0..number(tasks))
        .map(|_| tokio::spawn(crew.take_turns_in_a_task(client.clone())))
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let threads = threads.into_iter().map(|thread| thread.join().expect("no panic"));
    tokio::task::block_in_place(|| threads.for_each(drop));
    client.shutdown().await;
    println!("@{} {}", crew.turns.load(Ordering::Relaxed), crew.overlaps.load(Ordering::Relaxed));
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// Who takes part in a process of ours.
pub(crate) struct Crew {
    path: PathBuf,
    total: u64,
    /// Written for a turn; `None`: its token.
    mark: Option<u64>,
    turns: AtomicU64,
    overlaps: AtomicU64,
}

impl Crew {
    pub(crate) fn of(record: &Record, mark: u64) -> Self {
        Self {
            path: record.path.clone(),
            total: record.total,
            mark: Some(mark),
            turns: AtomicU64::new(0),
            overlaps: AtomicU64::new(0),
        }
    }

    pub(crate) fn made(&self) -> Made {
        let [turns, overlaps] = [&self.turns, &self.overlaps].map(|it| it.load(Ordering::Relaxed));
        Made { turns, overlaps }
    }

    async fn take_turns_in_a_task(&self, client: Client) {
        let (record, lock) = (self.open(), client.mutex(NAME));
        let mut more = true;
        while more {
            let guard = lock.lock().await.expect("held");
            more = self.take_turn(&record, guard.token());
            guard.unlock().await.expect("held until then");
        }
    }

    fn take_turns_on_a_thread(&self, client: &blocking::Client) {
        let (record, lock) = (self.open(), client.mutex(NAME));
        let mut more = true;
        while more {
            let guard = lock.lock().expect("held");
            more = self.take_turn(&record, guard.token());
            guard.unlock().expect("held until then");
        }
    }

    pub(crate) fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.path).expect("the file is there")
    }

    /// Takes no turn, but looks whether somebody takes one meanwhile.
    pub(crate) fn look(&self, record: &File) -> bool {
        let taken = read(record, 0);
        let was_alone = read(record, 8) == 0;
        thread::yield_now();
        if !was_alone || read(record, 8) != 0 || read(record, 0) != taken {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        self.turns.fetch_add(1, Ordering::Relaxed);
        taken < self.total
    }

    pub(crate) fn take_turn(&self, record: &File, token: u64) -> bool {
        let taken = read(record, 0);
        if taken >= self.total {
            return false;
        }
        if read(record, 8) != 0 {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        write(record, 8, 1);
        thread::yield_now();
        write(record, 16 + 8 * taken, self.mark.unwrap_or(token));
        write(record, 0, taken + 1);
        write(record, 8, 0);
        self.turns.fetch_add(1, Ordering::Relaxed);
        true
    }
}

pub(crate) const NAME: &str = "stampede";
const TTL: Duration = Duration::from_secs(30);
/// What a process of ours is told in its environment: the total, how many tasks and threads, its settings.
const TASK: &str = "LEASEHOLD_INTEROP_STAMPEDE";
const SERVER: &str = "LEASEHOLD_INTEROP_SERVER";
const RECORD: &str = "LEASEHOLD_INTEROP_RECORD";
