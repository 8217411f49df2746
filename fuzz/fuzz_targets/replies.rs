//! Hostile replies: one server or three answer acquire, renew, release, status, force-unlock and the rest with
//! whatever the input says: raw bytes, values of any type, errors, silence, closed connections, late answers.
//!
//! Checked, by a reading of what was sent that owes nothing to the library's:
//! * A guard exists only if a majority of the servers answered *this* lease's acquire with exactly the end of a token block,
//!   and did not say behind it that other masters are in use,
//!   and a majority has reached the end of the token block that its token lies in.
//! * `is_held` is true only within a TTL of a request that a majority confirmed.
//! * `unlock`, `status`, `force_unlock` say yes only on answers of their shape by a majority.
//! * Every call ends in its time, nothing panics, and the client can be shut down and is empty then.
//!
//! What follows raw bytes that are not exactly one value on the same connection is not judged: which answer
//! belongs to which request is open then.
//!
//! A finding again: `scripts/fuzz replies FILE`, with the file that libFuzzer wrote.
#![no_main]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use arbitrary::Arbitrary;
use leasehold::{Client, Error, Guard, Mutex};
use leasehold_fuzz::brain::{well, willing};
use leasehold_fuzz::{Ask, Brain, Frame, Script, World, bounded, run};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Clone, Debug)]
enum Answer {
    Well,
    /// The right answer with another number in it.
    End(i64),
    Held {
        pttl: i32,
        subscribers: i64,
    },
    Gone,
    NoScript,
    Refused(Refusal),
    Value(Frame),
    /// Nearly right: the right answer and one more, or one less, or one of another type.
    Longer(Frame),
    Shorter,
    Other {
        at: u8,
        with: Frame,
    },
    Raw(Vec<u8>),
    Silence,
    Close,
    Late(u16),
    /// A push of RESP3 that is no reply, and then the right answer.
    Push(Vec<Frame>),
    /// Held, by a server with a queue.
    Queued {
        pttl: i32,
        place: i64,
        server_us: i64,
        waiting: Vec<(Frame, i64)>,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Refusal {
    WrongType,
    NoPermission,
    OutOfMemory,
    ReadOnly,
    Loading,
    Busy,
    Moved,
    NoLogin,
}

impl Refusal {
    fn text(self) -> &'static str {
        match self {
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NoPermission => "NOPERM User lk has no permissions to run the 'pexpire' command",
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::ReadOnly => "READONLY You can't write against a read only replica.",
            Self::Loading => "LOADING Redis is loading the dataset in memory",
            Self::Busy => "BUSY Redis is busy running a script.",
            Self::Moved => "MOVED 3999 127.0.0.1:6381",
            Self::NoLogin => "NOAUTH Authentication required.",
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    TryLock,
    LockFor(u16),
    Status,
    Force,
    Check,
    Sleep(u16),
    Reenter,
    Extend(u16),
    Unlock,
    Drop,
}

#[derive(Arbitrary, Debug)]
struct Plan {
    three: bool,
    seed: u64,
    fixed: Option<u8>,
    steps: Vec<Step>,
    /// What is answered in turn, by all nodes together. At their end: the right answers.
    acquires: Vec<Answer>,
    renewals: Vec<Answer>,
    releases: Vec<Answer>,
    others: Vec<Answer>,
    /// To `INFO`, `CONFIG` and `TIME`, each time.
    questions: [Option<Answer>; 3],
    /// To what reads or writes the list of the masters, in turn.
    lists: Vec<Answer>,
}

/// One request, and the answer that it gets: the next on its connection that none before it takes.
struct Run {
    node: usize,
    connection: usize,
    /// `None`: a question about the server.
    script: Option<Script>,
    /// What it asks is the list of the masters.
    reads_list: bool,
    id: String,
    at: Duration,
    end: u64,
    reply: Option<Frame>,
    /// What was sent cannot be told apart any more: it may have been anything.
    unclear: bool,
}

type Queue = std::vec::IntoIter<Answer>;

struct Hostile {
    acquires: Queue,
    renewals: Queue,
    releases: Queue,
    others: Queue,
    questions: [Option<Answer>; 3],
    lists: Queue,
    /// Such an answer was given.
    lists_differ: bool,
    runs: Vec<Run>,
    /// By connection: what has no answer yet.
    waiting: BTreeMap<usize, VecDeque<usize>>,
    /// Connections on which answers cannot be told apart any more.
    unclear: BTreeSet<usize>,
}

impl Brain for Hostile {
    fn script(&mut self, ask: Ask<'_>, script: Script) {
        let request = ask.request;
        let id = match script {
            Script::Status | Script::Force => String::new(),
            _ => request.argv(0),
        };
        let end =
            if script == Script::Raise { request.argv(1).parse().expect("an end") } else { 0 };
        let run = Run {
            node: ask.node,
            connection: ask.connection,
            script: Some(script),
            reads_list: false,
            id,
            at: ask.at,
            end,
            reply: None,
            unclear: false,
        };
        self.answer(&ask, run, willing(script));
    }

    fn question(&mut self, ask: Ask<'_>) {
        let (id, well) = (String::new(), well(ask.node, ask.request));
        let run = Run {
            node: ask.node,
            connection: ask.connection,
            script: None,
            reads_list: ask.request.is("GET"),
            id,
            at: ask.at,
            end: 0,
            reply: None,
            unclear: false,
        };
        self.answer(&ask, run, well);
    }
}

impl Hostile {
    fn answer(&mut self, ask: &Ask<'_>, run: Run, well: Frame) {
        let script = run.script;
        self.waiting.entry(ask.connection).or_default().push_back(self.runs.len());
        self.runs.push(run);
        let answer = match script {
            Some(Script::Acquire) => self.acquires.next(),
            Some(Script::Renew) => self.renewals.next(),
            Some(Script::Release) => self.releases.next(),
            Some(_) => self.others.next(),
            None if ask.request.is("INFO") => self.questions[0].clone(),
            None if ask.request.is("CONFIG") => self.questions[1].clone(),
            None if ask.request.is("GET") || ask.request.is("SET") => {
                let answer = self.lists.next();
                self.lists_differ |= answer.is_some();
                answer
            }
            None => self.questions[2].clone(),
        };
        let answer = answer.unwrap_or(Answer::Well);
        let reply = self.reply(ask, script, well, answer);
        let unclear = self.unclear.contains(&ask.connection);
        let waiting = self.waiting.entry(ask.connection).or_default();
        if unclear {
            waiting.iter().for_each(|run| self.runs[*run].unclear = true);
        } else if let Some(reply) = reply {
            let run = waiting.pop_front().expect("a request for each answer");
            self.runs[run].reply = Some(reply);
        }
    }

    fn reply(
        &mut self,
        ask: &Ask<'_>,
        script: Option<Script>,
        well: Frame,
        answer: Answer,
    ) -> Option<Frame> {
        let text = Frame::text;
        let frame = match answer {
            Answer::Well => well,
            Answer::End(end) => match script {
                None => Frame::Array(vec![Frame::Digits(end), Frame::Digits(end)]),
                _ => Frame::Int(end),
            },
            Answer::Held { pttl, subscribers } => match script {
                Some(Script::Status) => Frame::Array(vec![
                    Frame::Int(pttl.into()),
                    text("other:1"),
                    text("1"),
                    text("77"),
                    Frame::Int(subscribers),
                ]),
                _ => Frame::Array(vec![
                    Frame::Int(0),
                    Frame::Int(pttl.into()),
                    text("other:1"),
                    Frame::Int(subscribers),
                ]),
            },
            Answer::Queued { pttl, place, server_us, waiting } => {
                let entries = waiting.into_iter().flat_map(|(entry, at)| [entry, Frame::Int(at)]);
                let queue = [Frame::Int(server_us), Frame::Array(entries.collect())];
                let (pttl, holder) = (Frame::Int(pttl.into()), text(OTHER));
                let none = Frame::Int(0);
                let held = match script {
                    Some(Script::Status) => vec![pttl, holder, text("1"), text("77"), none],
                    _ => vec![none.clone(), pttl, holder, none, Frame::Int(place)],
                };
                Frame::Array([&held[..], &queue].concat())
            }
            Answer::Gone => Frame::Int(0),
            Answer::NoScript => Frame::Error("NOSCRIPT No matching script.".to_owned()),
            Answer::Refused(refusal) => Frame::Error(refusal.text().to_owned()),
            Answer::Value(frame) => frame,
            Answer::Longer(frame) => match well {
                Frame::Array(items) => Frame::Array([items, vec![frame]].concat()),
                one => Frame::Array(vec![one, frame]),
            },
            Answer::Shorter => match well {
                Frame::Array(mut items) => {
                    items.pop();
                    Frame::Array(items)
                }
                _ => Frame::Nil,
            },
            Answer::Other { at, with } => match well {
                Frame::Array(mut items) => {
                    let at = usize::from(at) % items.len();
                    items[at] = with;
                    Frame::Array(items)
                }
                _ => with,
            },
            Answer::Raw(bytes) => {
                ask.outlet.send(&bytes);
                let frame = Frame::parse(&bytes);
                if frame.is_none() {
                    self.unclear.insert(ask.connection);
                }
                return frame;
            }
            // The next answer on this connection is taken for the one to this.
            Answer::Silence => return None,
            Answer::Close => {
                ask.outlet.close();
                return None;
            }
            Answer::Late(ms) => {
                ask.outlet.wait(Duration::from_millis(ms.into()));
                well
            }
            Answer::Push(items) => {
                let items: Vec<u8> = items.iter().flat_map(Frame::encode).collect();
                // One element by its kind, whatever the rest is.
                ask.outlet.send(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n");
                if Frame::parse(&items).is_some() {
                    ask.outlet.send(&[b">2\r\n+message\r\n", &items[..]].concat());
                }
                well
            }
        };
        ask.outlet.send(&frame.encode());
        Some(frame)
    }

    /// What was answered about a lease.
    fn told(&self, id: &str) -> String {
        let runs = self.runs.iter().filter(|run| run.id == id);
        let told = runs.map(|run| format!("{:?} on {}: {:?}", run.script, run.node, run.reply));
        told.collect::<Vec<_>>().join("; ")
    }

    /// Whether the server told, in the first answer behind that run, of masters that are not ours.
    fn told_of_others(&self, run: usize) -> bool {
        let Run { connection, .. } = self.runs[run];
        let later = self.runs[run..].iter().filter(|run| run.connection == connection);
        later.filter(|run| run.reads_list).map(Run::tells_of_others).next() == Some(true)
    }

    /// How many nodes ran something for which `is` holds.
    fn nodes(&self, is: impl Fn(&Run) -> bool) -> usize {
        self.runs.iter().filter(|run| is(run)).map(|run| run.node).collect::<BTreeSet<_>>().len()
    }
}

impl Run {
    /// Whether the server said that it is used with masters that are not ours.
    fn tells_of_others(&self) -> bool {
        let said = self.reply.as_ref().filter(|_| self.reads_list).and_then(Frame::said);
        said.is_some_and(|said| !said.contains("node:1"))
    }
}

fn reads(run: &Run, right: impl Fn(&Frame) -> bool) -> bool {
    run.unclear || run.reply.as_ref().is_some_and(right)
}

struct Case {
    world: World<Hostile>,
    client: Client,
    mutex: Mutex,
    majority: usize,
    held: Option<Guard>,
}

/// Who holds the lock otherwise.
const OTHER: &str = "other:01234567-89ab-4def-8123-456789abcdef";
const TTL: Duration = Duration::from_millis(900);
const ANSWER: Duration = Duration::from_millis(200);

impl Case {
    /// What a new guard stands on.
    fn check_grant(&self, guard: &Guard) {
        let holder = guard.holder();
        let id = holder.as_str();
        let brain = self.world.brain();
        let is_asked = |run: &Run| run.script == Some(Script::Acquire) && run.id == id;
        let granted = |(at, run): (usize, &Run)| {
            let counts = is_asked(run) && reads(run, |reply| reply.granted().is_some());
            (counts && !brain.told_of_others(at)).then_some(run.node)
        };
        let nodes =
            brain.runs.iter().enumerate().filter_map(granted).collect::<BTreeSet<_>>().len();
        assert!(
            nodes >= self.majority,
            "a guard by the grants of {nodes} nodes: {}",
            brain.told(id)
        );
        if brain.runs.iter().any(|run| run.unclear) {
            return;
        }
        let mut ends = BTreeMap::<u64, BTreeSet<usize>>::new();
        for run in brain.runs.iter().filter(|run| run.id == id) {
            let end = match (run.script, &run.reply) {
                (Some(Script::Acquire), Some(reply)) => reply.granted(),
                (Some(Script::Raise), Some(reply)) if reply.is_one() => Some(run.end),
                _ => None,
            };
            if let Some(end) = end {
                ends.entry(end).or_default().insert(run.node);
            }
        }
        let settled = |(end, nodes): (&u64, &BTreeSet<usize>)| {
            // Nobody waits, so that the block is one token long.
            guard.token() == *end && nodes.len() >= self.majority
        };
        assert!(ends.iter().any(settled), "token {} of {ends:?}", guard.token());
    }

    /// Whether what is held was confirmed within its time.
    fn check_held(&self) {
        let Some(guard) = self.held.as_ref().filter(|guard| guard.is_held()) else { return };
        let holder = guard.holder();
        let now = self.world.now();
        let brain = self.world.brain();
        let confirmed = |run: &Run| {
            let right = match run.script {
                Some(Script::Acquire) => reads(run, |reply| reply.granted().is_some()),
                Some(Script::Renew) => reads(run, Frame::is_one),
                _ => false,
            };
            right && run.id == holder.as_str() && run.at + TTL > now
        };
        let nodes = brain.nodes(confirmed);
        assert!(nodes >= self.majority, "held at {now:?} by the word of {nodes} nodes");
    }

    async fn step(&mut self, step: Step) {
        self.check_held();
        match step {
            Step::TryLock => {
                let (taken, _) = bounded("try_lock", ANSWER, self.mutex.try_lock()).await;
                if let Ok(Some(guard)) = taken {
                    self.take(guard);
                }
            }
            Step::LockFor(ms) => {
                let limit = Duration::from_millis(u64::from(ms) % 4000);
                // A wait of zero is one attempt.
                let most = if limit.is_zero() { ANSWER } else { limit };
                let wait = self.mutex.lock_with_timeout(limit);
                match bounded("lock_with_timeout", most, wait).await {
                    (Ok(guard), _) => self.take(guard),
                    (Err(Error::Timeout { .. }), took) => {
                        assert!(took >= limit, "timed out after {took:?} of {limit:?}");
                    }
                    (Err(_), _) => {}
                }
            }
            Step::Status => {
                let from = self.mark();
                let (status, _) = bounded("status", ANSWER, self.mutex.status()).await;
                if let Ok(status) = status {
                    self.check_status(from, status.holder.as_ref().map(|holder| holder.as_str()));
                }
            }
            Step::Force => {
                let from = self.mark();
                if let (Ok(true), _) =
                    bounded("force_unlock", ANSWER, self.mutex.force_unlock()).await
                {
                    self.expect(from, Script::Force, Frame::is_one);
                }
            }
            Step::Check => {
                // It waits for a connection, and then has a limit of its own for all answers.
                let most = ANSWER + Duration::from_secs(5);
                let (_, _) = bounded("check", most, self.client.check()).await;
            }
            Step::Sleep(ms) => {
                tokio::time::sleep(Duration::from_millis(u64::from(ms) % 2000)).await;
            }
            Step::Reenter => {
                if let Some(guard) = &self.held {
                    drop(guard.reenter());
                }
            }
            Step::Extend(ms) => {
                if let Some(guard) = &self.held {
                    let longer = Duration::from_millis(10 + u64::from(ms) % 880);
                    let (_, _) = bounded("extend", ANSWER, guard.extend(longer)).await;
                }
            }
            Step::Unlock => {
                if let Some(guard) = self.held.take() {
                    let holder = guard.holder();
                    if let (Ok(()), _) = bounded("unlock", ANSWER, guard.unlock()).await {
                        self.check_release(holder.as_str());
                    }
                }
            }
            Step::Drop => self.held = None,
        }
        self.check_held();
    }

    fn take(&mut self, guard: Guard) {
        if self.held.is_none() {
            self.check_grant(&guard);
            self.held = Some(guard);
        }
    }

    fn mark(&self) -> usize {
        self.world.brain().runs.len()
    }

    /// A majority answered `script` rightly since `from`.
    fn expect(&self, from: usize, script: Script, right: impl Fn(&Frame) -> bool) {
        let mut brain = self.world.brain();
        let later = brain.runs.split_off(from);
        let yes = later.iter().filter(|run| run.script == Some(script) && reads(run, &right));
        let nodes = yes.map(|run| run.node).collect::<BTreeSet<_>>().len();
        brain.runs.extend(later);
        assert!(nodes >= self.majority, "{script:?} by the word of {nodes} nodes");
    }

    fn check_status(&self, from: usize, holder: Option<&str>) {
        self.expect(from, Script::Status, |reply| {
            reply.list().is_some_and(|items| matches!(items.len(), 5 | 7))
        });
        if let Some(holder) = holder {
            let named = |reply: &Frame| match reply.list() {
                Some([_, Frame::Bulk(name), ..]) => String::from_utf8_lossy(name) == *holder,
                Some([_, Frame::Simple(name) | Frame::Verbatim(name), ..]) => *name == *holder,
                Some([_, Frame::Digits(name), ..]) => name.to_string() == *holder,
                _ => false,
            };
            self.expect(from, Script::Status, named);
        }
    }

    /// The lock is free on a majority: freed there, or never asked for, or not there where nothing says that it was.
    /// Sent more than once, any release may have been the one that freed it.
    fn check_release(&self, id: &str) {
        let brain = self.world.brain();
        let of = |script, node| {
            let runs = brain.runs.iter();
            runs.filter(move |run| run.script == Some(script) && run.id == id && run.node == node)
        };
        let answered = |node, held: fn(bool) -> bool| {
            of(Script::Release, node).count() > 1
                || of(Script::Release, node)
                    .any(|run| reads(run, |reply| reply.released().is_some_and(held)))
        };
        let freed = |node: &usize| answered(*node, |held| held);
        let free =
            |node: &usize| of(Script::Acquire, *node).next().is_none() || answered(*node, |_| true);
        let nodes = 0..self.majority * 2 - 1;
        let (freed, free) = (nodes.clone().filter(freed).count(), nodes.filter(free).count());
        assert!(
            freed > 0 && free >= self.majority,
            "unlocked, freed on {freed} nodes and free on {free}: {}",
            brain.told(id)
        );
    }
}

async fn play(plan: Plan) {
    let nodes = if plan.three { 3 } else { 1 };
    let brain = Hostile {
        acquires: plan.acquires.into_iter(),
        renewals: plan.renewals.into_iter(),
        releases: plan.releases.into_iter(),
        others: plan.others.into_iter(),
        questions: plan.questions,
        lists: plan.lists.into_iter(),
        lists_differ: false,
        runs: Vec::new(),
        waiting: BTreeMap::new(),
        unclear: BTreeSet::new(),
    };
    let world = World::new(nodes, plan.seed, brain);
    let settings = world.client().ttl(TTL).response_timeout(ANSWER).handoff_window(Duration::ZERO);
    let client = match settings.restart_quarantine(Duration::ZERO).connect().await {
        Ok(client) => client,
        Err(error) => return assert!(world.brain().lists_differ, "no client: {error}"),
    };
    let mutex = match plan.fixed {
        Some(ms) => client.mutex("m").with_lease(Duration::from_millis(100 + 3 * u64::from(ms))),
        None => client.mutex("m"),
    };
    let majority = nodes / 2 + 1;
    let mut case = Case { world, client, mutex, majority, held: None };
    for step in plan.steps.into_iter().take(12) {
        case.step(step).await;
    }
    bounded("shutdown", ANSWER, case.client.shutdown()).await;
    if let Some(guard) = &case.held {
        assert!(!guard.is_held(), "held after the shutdown");
    }
    drop(case.held.take());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(case.client.stats().locks, 0, "a gate after the shutdown");
    assert!(matches!(case.mutex.try_lock().await, Err(Error::Closed { .. })));
}

fuzz_target!(|plan: Plan| run(|| play(plan)));
