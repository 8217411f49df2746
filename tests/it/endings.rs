//! What a process leaves behind when it ends, by how it ends (E1).

mod farewell;
mod process;

use std::{fmt::Write, time::Duration};

use redis::Value;

use crate::support::{Server, Watch};

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Error,
    GuardDropped,
    Panic,
    GuardInTask,
    GuardOutlivesRuntime,
    ManyGuards,
    CutAcquisition,
    CutUnlock,
    Test,
    Exit,
    Kill,
}

/// What runs a process's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Face {
    CurrentThread,
    MultiThread,
    Blocking,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Error,
        Self::GuardDropped,
        Self::Panic,
        Self::GuardInTask,
        Self::GuardOutlivesRuntime,
        Self::ManyGuards,
        Self::CutAcquisition,
        Self::CutUnlock,
        Self::Test,
        Self::Exit,
        Self::Kill,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::GuardDropped => "guard-dropped",
            Self::Panic => "panic",
            Self::GuardInTask => "guard-in-task",
            Self::GuardOutlivesRuntime => "guard-outlives-runtime",
            Self::ManyGuards => "many-guards",
            Self::CutAcquisition => "cut-acquisition",
            Self::CutUnlock => "cut-unlock",
            Self::Test => "test",
            Self::Exit => "exit",
            Self::Kill => "kill",
        }
    }

    fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|kind| kind.name() == name).expect("a kind of ending")
    }

    /// How the process ends; `None`: by a signal.
    fn code(self) -> Option<i32> {
        match self {
            Self::Error => Some(1),
            Self::Panic => Some(101),
            Self::Kill => None,
            _ => Some(0),
        }
    }

    /// How often each is tried. Taking many locks takes long on a busy machine.
    fn runs(self) -> u64 {
        if self == Self::ManyGuards { 3 } else { 20 }
    }

    /// Whether nobody can give the locks back.
    fn is_abrupt(self) -> bool {
        matches!(self, Self::Exit | Self::Kill)
    }

    /// Whether a process with that face can end so.
    fn is_for(self, face: Face) -> bool {
        let of_tasks = matches!(
            self,
            Self::GuardInTask
                | Self::GuardOutlivesRuntime
                | Self::CutAcquisition
                | Self::CutUnlock
                | Self::Test
        );
        face != Face::Blocking || !of_tasks
    }
}

impl Face {
    const ALL: [Self; 3] = [Self::CurrentThread, Self::MultiThread, Self::Blocking];

    fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current_thread",
            Self::MultiThread => "multi_thread",
            Self::Blocking => "blocking",
        }
    }

    fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|face| face.name() == name).expect("a face")
    }
}

/// In how many runs something was left at the moment when the process was gone.
///
/// A process waits for so long only. Those do not count that took all of that time on a machine that kept threads waiting.
async fn left(server: &Server, kind: Kind, face: Face) -> u64 {
    let (mut left, mut cut_off) = (0, 0);
    for run in 0..kind.runs() {
        let name = format!("{}-{}-{run}", kind.name(), face.name());
        let watch = Watch::begin();
        let ran = tokio::task::block_in_place(|| process::run(kind, face, &server.url(), &name));
        assert_eq!(ran.status.code(), kind.code(), "{name}: {}", ran.status);
        let tokens = keys(server, &format!("leasehold_token:{{{name}*")).await;
        assert!(tokens > 0, "{name}: it held no lock");
        if keys(server, &format!("{name}*")).await > 0 {
            let waited = ran.end_took.is_some_and(|took| took >= PATIENCE);
            match waited && watch.longest_stall() >= BUSY {
                true => cut_off += 1,
                false => left += 1,
            }
        }
    }
    if cut_off > 0 {
        println!("{} {}: {cut_off} runs had too little of the machine", kind.name(), face.name());
    }
    left
}

async fn keys(server: &Server, pattern: &str) -> usize {
    match server.command(&["KEYS", pattern]).await {
        Value::Array(keys) => keys.len(),
        other => panic!("not keys: {other:?}"),
    }
}

/// One row of the table: the last line that it prints is the row as JSON, for the page.
async fn row(kind: Kind) {
    let server = Server::start().await;
    let mut row = String::new();
    let mut as_promised = true;
    for face in Face::ALL.into_iter().filter(|face| kind.is_for(*face)) {
        let left = left(&server, kind, face).await;
        write!(row, ", \"{}\": {left}", face.name()).expect("a string takes everything");
        as_promised &= left == if kind.is_abrupt() { kind.runs() } else { 0 };
    }
    println!("{{\"ending\": \"{}\", \"runs\": {}{row}}}", kind.name(), kind.runs());
    assert!(as_promised, "left behind by {} of {} runs{row}", kind.name(), kind.runs());
}

macro_rules! endings {
    ($($test:ident: $kind:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
        async fn $test() {
            row(Kind::$kind).await;
        })*
    };
}

endings! {
    nothing_is_left_when_main_ends_with_an_error_while_a_guard_lives: Error,
    nothing_is_left_when_the_last_thing_done_is_to_drop_a_guard: GuardDropped,
    nothing_is_left_when_main_panics_while_a_guard_lives: Panic,
    nothing_is_left_when_main_ends_while_a_task_holds_a_guard: GuardInTask,
    nothing_is_left_when_a_guard_is_dropped_after_its_runtime: GuardOutlivesRuntime,
    nothing_is_left_when_a_thousand_guards_are_dropped_at_the_end: ManyGuards,
    nothing_is_left_when_an_acquisition_is_cut_off_at_the_end: CutAcquisition,
    nothing_is_left_when_an_unlock_is_cut_off_at_the_end: CutUnlock,
    nothing_is_left_when_a_test_ends_with_guards: Test,
    the_lock_is_left_for_its_ttl_by_a_process_that_exits_abruptly: Exit,
    the_lock_is_left_for_its_ttl_by_a_process_that_is_killed: Kill,
}

/// For how long a process waits at its end.
const PATIENCE: Duration = Duration::from_millis(250);
/// A machine that keeps a thread waiting for this long is busy.
const BUSY: Duration = Duration::from_millis(10);
/// How many guards are many.
const MANY: usize = 1000;
