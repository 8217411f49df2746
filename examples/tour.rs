//! A tour in four acts: processes that take turns, a nested lock, a holder that is killed, and one that is
//! paused for too long. Prints a timeline, and fails if anything did not go as the library promises.
//!
//! The processes are this program itself, started again with a name and a lock. Their parent tells them
//! what to do on their standard input, one word a line, and hears of it on their standard output.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Guard, Mutex, Owner};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How long a lock outlives a killed holder at most.
const TTL: Duration = Duration::from_millis(1500);
/// How much later than it should something may happen, on a busy machine.
const SLACK: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(20);
const TURNS: usize = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &*arguments {
        [] => match tokio::time::timeout(LIMIT, tour(&url)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("the tour has not ended after {LIMIT:?}").into()),
        },
        [name, lock] => actor(&url, name, lock).await,
        _ => Err("usage: tour (without arguments; REDIS_URL says where the server is)".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tour: {error}");
            ExitCode::FAILURE
        }
    }
}

// The parent's side.

async fn tour(url: &str) -> Outcome<()> {
    let client = connect(url, "parent").await?;
    let lock = client.mutex(format!("leasehold-tour:{}", std::process::id()));
    println!("The lock is {:?} on {url_shown}.", lock.name(), url_shown = shown(url));
    println!("Times are in ms; a token is the number of a hold, and only grows.\n");

    let mut stage = Stage::new(&lock);
    for name in ["alice", "bob", "carol", "dave"] {
        stage.enter(name).await?;
    }
    let summary = [
        take_turns(&mut stage).await?,
        nest(&mut stage, &lock).await?,
        kill_the_holder(&mut stage, &lock).await?,
        pause_the_holder(&mut stage, &lock).await?,
        compare_tokens(&stage)?,
    ];
    println!("\nWhat was seen:");
    for line in summary {
        println!("  * {line}");
    }
    client.shutdown().await;
    Ok(())
}

async fn take_turns(stage: &mut Stage) -> Outcome<String> {
    stage.title(&format!("four processes want the lock {TURNS} times each, for 40 ms"));
    let names = ["alice", "bob", "carol", "dave"];
    for name in names {
        stage.tell(name, "turns").await?;
    }
    let from = stage.events.len();
    for _ in names {
        stage.until(|event| matches!(event.what, What::Done)).await?;
    }
    let act = &stage.events[from..];
    let mut free_at: Option<u64> = None;
    let mut handovers = Vec::new();
    for event in act {
        match event.what {
            What::Holds { waited_us, .. } => {
                let free_at = free_at.replace(u64::MAX).unwrap_or(0);
                check(event.at_us >= free_at, "two processes held the lock at the same time")?;
                // Who did not wait did not need to be woken.
                if free_at != 0 && waited_us > 1_000 {
                    handovers.push(event.at_us - free_at);
                }
            }
            What::Leaves => free_at = Some(event.at_us),
            _ => {}
        }
    }
    handovers.sort();
    let (Some(longest), count) = (handovers.last(), handovers.len()) else {
        return Err("nobody had to wait for the lock".into());
    };
    check(Duration::from_micros(*longest) < SLACK, "a release did not wake the next process")?;
    Ok(format!(
        "never two holders at once; {count} hand-overs took {} in the middle, {} at most",
        ms(handovers[count / 2]),
        ms(*longest)
    ))
}

async fn nest(stage: &mut Stage, lock: &Mutex) -> Outcome<String> {
    stage.title("alice takes the lock three times over; bob waits until she has left it as often");
    stage.tell("alice", "nest").await?;
    let outer = stage.until(|event| event.token().is_some()).await?;
    let inner = stage.until(|event| matches!(event.what, What::Nests { level: 3, .. })).await?;
    // The count is written behind the holder's back.
    let counted = async {
        while lock.status().await?.hold_count != 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, leasehold::Error>(())
    };
    tokio::time::timeout(SLACK, counted)
        .await
        .map_err(|_| "Redis does not count three holds")??;
    stage.say("the server counts 3 holds");
    stage.tell("bob", "hold").await?;
    stage.until(|event| event.by("bob") && matches!(event.what, What::Waits)).await?;
    stage.tell("alice", "leave").await?;
    let left = stage.until(|event| event.by("alice") && matches!(event.what, What::Leaves)).await?;
    let next = stage.until(|event| event.by("bob") && event.token().is_some()).await?;
    check(next.at_us >= left.at_us, "bob had the lock before alice had left it")?;
    stage.tell("bob", "leave").await?;
    stage.until(|event| event.by("bob") && matches!(event.what, What::Done)).await?;
    let same = matches!(inner.what, What::Nests { token, .. } if Some(token) == outer.token());
    check(same, "a nested hold had another token")?;
    Ok("a nested lock is the same hold: the same token, free when the last level is left"
        .to_owned())
}

async fn kill_the_holder(stage: &mut Stage, lock: &Mutex) -> Outcome<String> {
    stage.title(&format!("carol holds the lock, renewed every third of {TTL:?}, and is killed"));
    stage.tell("carol", "hold").await?;
    stage.until(|event| event.by("carol") && event.token().is_some()).await?;
    stage.tell("dave", "hold").await?;
    stage.until(|event| event.by("dave") && matches!(event.what, What::Waits)).await?;
    tokio::time::sleep(TTL + TTL / 3).await;
    let status = lock.status().await?;
    let victim = status.holder.as_ref().and_then(|holder| holder.client()).map(str::to_owned);
    check(victim.as_deref() == Some("carol"), "carol's lock was not renewed")?;
    stage.say("carol has held the lock for longer than its TTL: it was renewed");

    stage.kill("carol").await?;
    stage.say("carol is killed (SIGKILL)");
    let late = take_over(stage, lock, "dave").await?;
    Ok(format!(
        "a killed process's lock was taken over {late} after the end of its TTL, not before"
    ))
}

async fn pause_the_holder(stage: &mut Stage, lock: &Mutex) -> Outcome<String> {
    stage.title("dave holds the lock, and is paused for longer than the TTL");
    stage.tell("alice", "hold").await?;
    stage.until(|event| event.by("alice") && matches!(event.what, What::Waits)).await?;
    stage.signal("dave", "STOP")?;
    stage.say("dave is paused (SIGSTOP)");
    take_over(stage, lock, "alice").await?;
    stage.say("dave goes on (SIGCONT), and still has his guard");
    let goes_on_at = now_us();
    stage.signal("dave", "CONT")?;
    let told = stage.until(|event| event.by("dave") && matches!(event.what, What::Lost)).await?;
    let status = lock.status().await?;
    let holder = status.holder.as_ref().and_then(|holder| holder.client());
    check(holder == Some("alice"), "alice lost the lock to a process that had lost it before")?;
    stage.tell("alice", "leave").await?;
    stage.until(|event| event.by("alice") && matches!(event.what, What::Done)).await?;
    check(!lock.is_locked().await?, "the lock stayed behind")?;
    let told_after = ms(told.at_us.saturating_sub(goes_on_at));
    Ok(format!(
        "a process that was paused for too long was told of its loss {told_after} after it went on"
    ))
}

/// Waits until `heir` holds a lock that nobody renews any more; how much later than it could.
async fn take_over(stage: &mut Stage, lock: &Mutex, heir: &str) -> Outcome<String> {
    let asked_at = now_us();
    let left = lock.status().await?.remaining.ok_or("the lock went with its holder")?;
    let answered_at = now_us();
    let left_us = left.as_micros() as u64;
    stage.say(&format!("the server keeps the lock for {} still", ms(left_us)));
    let heir = stage.until(|event| event.by(heir) && event.token().is_some()).await?;
    // The server's answer is rounded to milliseconds.
    check(heir.at_us + 2_000 >= asked_at + left_us, "it was taken over before its TTL was over")?;
    let late_us = heir.at_us.saturating_sub(answered_at + left_us);
    check(Duration::from_micros(late_us) < SLACK, "it was taken over too late")?;
    Ok(ms(late_us))
}

fn compare_tokens(stage: &Stage) -> Outcome<String> {
    let tokens: Vec<u64> = stage.events.iter().filter_map(Event::token).collect();
    check(tokens.is_sorted_by(|earlier, later| earlier < later), "the tokens did not grow")?;
    Ok(format!("{} holds, each with a higher token than the one before", tokens.len()))
}

fn check(holds: bool, otherwise: &str) -> Outcome<()> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// The processes, and what has happened so far.
struct Stage {
    lock: String,
    began_at_us: u64,
    actors: BTreeMap<String, (Child, ChildStdin)>,
    heard: mpsc::UnboundedReceiver<Event>,
    reports: mpsc::UnboundedSender<Event>,
    /// In the order of their times.
    events: Vec<Event>,
    act: u32,
}

impl Stage {
    fn new(lock: &Mutex) -> Self {
        let (reports, heard) = mpsc::unbounded_channel();
        let (actors, events) = Default::default();
        let lock = lock.name().to_owned();
        Self { lock, began_at_us: now_us(), actors, heard, reports, events, act: 0 }
    }

    /// Starts a process and waits until it is connected.
    async fn enter(&mut self, name: &str) -> Outcome<()> {
        let mut child = tokio::process::Command::new(std::env::current_exe()?)
            .args([name, &self.lock])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let commands = child.stdin.take().ok_or("the process has no input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("it has no output")?).lines();
        let reports = self.reports.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(event) = Event::parse(&line) {
                    let _ = reports.send(event);
                }
            }
        });
        self.actors.insert(name.to_owned(), (child, commands));
        self.until(|event| event.by(name) && matches!(event.what, What::Done)).await?;
        Ok(())
    }

    async fn tell(&mut self, name: &str, command: &str) -> Outcome<()> {
        let (_, commands) = self.actors.get_mut(name).ok_or("no such process")?;
        Ok(commands.write_all(format!("{command}\n").as_bytes()).await?)
    }

    /// Hears and prints events until one is as wanted.
    async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Outcome<Event> {
        loop {
            let event = self.heard.recv().await.ok_or("nobody reports any more")?;
            if let What::Failed(message) = &event.what {
                return Err(format!("{}: {message}", event.process).into());
            }
            if !matches!(event.what, What::Done) {
                self.print(event.at_us, &event.process, &event.what.to_string());
            }
            let place = self.events.partition_point(|earlier| earlier.at_us <= event.at_us);
            self.events.insert(place, event.clone());
            if wanted(&event) {
                return Ok(event);
            }
        }
    }

    async fn kill(&mut self, name: &str) -> Outcome<()> {
        // Its input stays open until it is dead: closed, it would be told to leave.
        let (mut child, _commands) = self.actors.remove(name).ok_or("no such process")?;
        Ok(child.kill().await?)
    }

    fn signal(&self, name: &str, signal: &str) -> Outcome<()> {
        let (child, _) = self.actors.get(name).ok_or("no such process")?;
        let pid = child.id().ok_or("the process has ended")?;
        // The shell's own `kill`: there is one wherever there is a shell.
        let status = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status()?;
        check(status.success(), "the signal could not be sent")
    }

    fn title(&mut self, title: &str) {
        self.act += 1;
        println!("\n{}. {title}", self.act);
    }

    fn say(&self, text: &str) {
        self.print(now_us(), "", text);
    }

    fn print(&self, at_us: u64, process: &str, text: &str) {
        let at = at_us.saturating_sub(self.began_at_us) as f64 / 1000.0;
        println!("{at:>9.1}  {process:<6} {text}");
    }
}

/// Something that happened in a process.
#[derive(Clone)]
struct Event {
    at_us: u64,
    process: String,
    what: What,
}

#[derive(Clone)]
enum What {
    Waits,
    Holds {
        token: u64,
        waited_us: u64,
    },
    Nests {
        level: u32,
        token: u64,
    },
    Unnests {
        level: u32,
    },
    /// Told before the release is sent.
    Leaves,
    Lost,
    /// All was done that was asked for.
    Done,
    Failed(String),
}

impl Event {
    fn by(&self, name: &str) -> bool {
        self.process == name
    }

    /// The token of a hold that begins.
    fn token(&self) -> Option<u64> {
        match self.what {
            What::Holds { token, .. } => Some(token),
            _ => None,
        }
    }

    /// The line that a process reports it with.
    fn line(&self) -> String {
        let Self { at_us, process, what } = self;
        let what = match what {
            What::Waits => "waits".to_owned(),
            What::Holds { token, waited_us } => format!("holds {token} {waited_us}"),
            What::Nests { level, token } => format!("nests {level} {token}"),
            What::Unnests { level } => format!("unnests {level}"),
            What::Leaves => "leaves".to_owned(),
            What::Lost => "lost".to_owned(),
            What::Done => "done".to_owned(),
            What::Failed(message) => format!("failed {message}"),
        };
        format!("{at_us} {process} {what}")
    }

    fn parse(line: &str) -> Option<Self> {
        let (at_us, rest) = line.split_once(' ')?;
        let (process, rest) = rest.split_once(' ')?;
        let words: Vec<&str> = rest.split(' ').collect();
        let what = match &*words {
            ["waits"] => What::Waits,
            ["holds", token, waited] => {
                What::Holds { token: token.parse().ok()?, waited_us: waited.parse().ok()? }
            }
            ["nests", level, token] => {
                What::Nests { level: level.parse().ok()?, token: token.parse().ok()? }
            }
            ["unnests", level] => What::Unnests { level: level.parse().ok()? },
            ["leaves"] => What::Leaves,
            ["lost"] => What::Lost,
            ["done"] => What::Done,
            ["failed", ..] => What::Failed(rest["failed ".len()..].to_owned()),
            _ => return None,
        };
        Some(Self { at_us: at_us.parse().ok()?, process: process.to_owned(), what })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits => f.write_str("wants the lock"),
            Self::Holds { token, waited_us } => {
                write!(f, "HOLDS the lock, token {token}, waited {}", ms(*waited_us))
            }
            Self::Nests { level, token } => write!(f, "holds it at level {level}, token {token}"),
            Self::Unnests { level } => write!(f, "is back at level {level}"),
            Self::Leaves => f.write_str("gives it back"),
            Self::Lost => f.write_str("is told that the lock is lost, and stops"),
            Self::Done => f.write_str("is done"),
            Self::Failed(message) => f.write_str(message),
        }
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1000.0)
}

/// A URL without the password that may be in it.
fn shown(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

async fn connect(url: &str, name: &str) -> Result<Client, leasehold::Error> {
    let keep_tokens = Duration::from_secs(60);
    Client::builder().nodes([url]).name(name).ttl(TTL).token_retention(keep_tokens).connect().await
}

// The side of the other processes.

async fn actor(url: &str, name: &str, lock: &str) -> Outcome<()> {
    let actor = match connect(url, name).await {
        Ok(client) => Actor { name: name.to_owned(), lock: client.mutex(lock) },
        Err(error) => {
            report(name, What::Failed(error.to_string()));
            return Ok(());
        }
    };
    actor.report(What::Done);
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    // Ends with its parent, which closes the input.
    while let Some(command) = commands.next_line().await? {
        let done = match &*command {
            "turns" => actor.turns().await,
            "nest" => actor.nest(&mut commands).await,
            "hold" => actor.hold(&mut commands).await,
            _ => Err(format!("what is {command:?}?").into()),
        };
        actor.report(match done {
            Ok(()) => What::Done,
            Err(error) => What::Failed(error.to_string()),
        });
    }
    Ok(())
}

struct Actor {
    name: String,
    lock: Mutex,
}

impl Actor {
    async fn turns(&self) -> Outcome<()> {
        for _ in 0..TURNS {
            let guard = self.take(&self.lock).await?;
            tokio::time::sleep(Duration::from_millis(40)).await;
            self.leave(guard).await?;
        }
        Ok(())
    }

    /// Holds the lock until it is told to leave it, or the lock is lost.
    async fn hold(&self, commands: &mut Lines<BufReader<Stdin>>) -> Outcome<()> {
        self.report(What::Waits);
        let guard = self.take(&self.lock).await?;
        tokio::select! {
            _ = commands.next_line() => self.leave(guard).await,
            _ = guard.lost() => {
                check(!guard.is_held(), "lost, and held")?;
                self.report(What::Lost);
                Ok(())
            }
        }
    }

    /// Takes the lock again and again: by handle, in a scope, and by `run`.
    async fn nest(&self, commands: &mut Lines<BufReader<Stdin>>) -> Outcome<()> {
        let me = Owner::named("order-17");
        let outer = self.take(&self.lock.owned_by(&me)).await?;
        let inside = async {
            let second = self.lock.lock().await?;
            self.report(What::Nests { level: second.hold_count(), token: second.token() });
            let third = async |third: &Guard| {
                self.report(What::Nests { level: third.hold_count(), token: third.token() });
                let _ = commands.next_line().await;
            };
            self.lock.run(third).await?;
            self.report(What::Unnests { level: second.hold_count() });
            second.unlock().await
        };
        me.scope(inside).await?;
        self.report(What::Unnests { level: outer.hold_count() });
        self.leave(outer).await
    }

    async fn take(&self, lock: &Mutex) -> Outcome<Guard> {
        let from = now_us();
        let guard = lock.lock().await?;
        self.report(What::Holds { token: guard.token(), waited_us: now_us() - from });
        Ok(guard)
    }

    async fn leave(&self, guard: Guard) -> Outcome<()> {
        self.report(What::Leaves);
        Ok(guard.unlock().await?)
    }

    fn report(&self, what: What) {
        report(&self.name, what);
    }
}

fn report(name: &str, what: What) {
    println!("{}", Event { at_us: now_us(), process: name.to_owned(), what }.line());
}
