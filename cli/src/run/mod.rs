//! `leasehold run`: a command under locks.

mod child;
mod held;
mod loss;
mod say;
mod signals;

use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use leasehold::{Client, Error, Guard, Lost, MultiGuard, MultiLock, Mutex};
use nix::sys::signal::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::child::{Child, Ended};
use self::held::Held;
use self::loss::Loss;
use self::say::{Event, Say};
use self::signals::Signals;
use crate::args::{Exec, OnLost, Run, Servers};
use crate::exit::{self, Failure};

/// Runs the command, and returns the exit code.
pub async fn run(run: Run, mut servers: Servers) -> Result<u8, Failure> {
    let say = Say::new(&servers);
    let result = match servers.read_settings() {
        Ok(()) => take_and_run(run, &servers, &say).await,
        Err(failure) => Err(failure),
    };
    let result = match result {
        Err(failure) if servers.json => {
            say.event(&Event::Failed(&failure));
            Ok(failure.code)
        }
        result => result,
    };
    say.finish();
    result
}

/// Becomes the command of a `run`. It returns only if that fails, which it says as `run` would.
pub fn exec(exec: &Exec, json: bool) -> Result<u8, Failure> {
    let failure = child::become_command(exec);
    if json {
        tell!("{}", Event::Failed(&failure).json());
        return Ok(failure.code);
    }
    Err(failure)
}

async fn take_and_run(run: Run, servers: &Servers, say: &Say) -> Result<u8, Failure> {
    let program = child::find(&run.command[0])?;
    // From here on a signal ends the wait, and not this process in the middle of something.
    let mut signals = Signals::new().map_err(exit::no_signals)?;
    child::keep_going_in_the_background().map_err(|error| exit::no_signals(error.into()))?;
    let held = Held::inherited();
    let on = servers.addresses()?;
    let is_held = |name: &String| held.has(&on, &servers.whole_name(name));
    let (lent, mut names): (Vec<_>, Vec<_>) = run.names.iter().cloned().partition(is_held);
    let mut lent: Vec<_> = lent.iter().map(|name| servers.whole_name(name)).collect();
    for all in [&mut lent, &mut names] {
        all.sort_unstable();
        all.dedup();
    }
    if run.min_hold.is_some() && !lent.is_empty() {
        say.event(&Event::NoMinHold { lent: &lent });
    }

    let asked = Instant::now();
    let mut client = None;
    let taken = match names.is_empty() {
        true => Ok(Vec::new()),
        false => tokio::select! {
            taken = async {
                let client = client.insert(servers.connect(run.ttl).await?);
                take(client, &names, &run).await
            } => taken.map_err(Err),
            signal = signals.next_that_ends() => Err(Ok(exit::of_signal(signal as i32))),
            lock = held.end_of(&on, &lent) => Err(Err(lost(&run, &lock, Loss::OuterEnded))),
        },
    };
    let guards = match (taken, client.as_ref()) {
        (Ok(guards), _) => guards,
        (Err(end), None) => return end,
        (Err(end), Some(client)) => {
            // Those that it had while it waited for others are on their way back.
            tokio::select! {
                () = client.shutdown() => {}
                _ = signals.next_that_ends() => {}
            }
            return end;
        }
    };
    say.event(&Event::Taken { locks: &guards, lent: &lent, waited: asked.elapsed() });

    let ttl = run.ttl.or(servers.file.ttl).unwrap_or(DEFAULT_TTL);
    signals.hear_suspensions().map_err(exit::no_signals)?;
    let environment = held.environment(&on, client.as_ref(), &guards, &lent, ttl);
    // What a script leaves in its background is started like that, and in the script's own process group.
    let in_background = signals.ignores(Signal::SIGINT);
    let outer_runs = held.outer_runs();
    let child = Child::start(&program, &run, environment, outer_runs, in_background, servers.json);
    let ended = match child {
        Ok(child) => {
            let grace = run.grace.min(ttl / 3);
            let watched = Watched { run: &run, say, guards: &guards, lent: &lent, grace };
            Ok(watched.until_the_end(child, &mut signals, held.end_of(&on, &lent)).await)
        }
        Err(failure) => Err(failure),
    };
    let told = ended.as_ref().ok().and_then(|ended| ended.lost.as_deref());
    let released = release(guards, client.as_ref(), say, told, &mut signals).await;
    let ended = ended?;
    Ok(match released {
        _ if ended.lost.is_some() => run.lost_exit_code,
        Released::Lost => run.lost_exit_code,
        Released::Unconfirmed if run.strict && ended.code == 0 => exit::NOT_RELEASED,
        Released::Unconfirmed | Released::All => ended.code,
    })
}

/// The library's TTL if none is set.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// Takes all locks, or none. Their shortest and longest holds count from when all are held.
async fn take(client: &Client, names: &[String], run: &Run) -> Result<Vec<Guard>, Failure> {
    let mutexes = names.iter().map(|name| {
        let mut mutex = if run.fair { client.fair_mutex(name) } else { client.mutex(name) };
        if let Some(max_hold) = run.max_hold {
            mutex = mutex.with_max_hold(max_hold);
        }
        if let Some(min_hold) = run.min_hold {
            mutex = mutex.with_min_hold(min_hold);
        }
        mutex
    });
    let mutexes: Vec<Mutex> = mutexes.collect();
    let locks = MultiLock::of(mutexes.iter().cloned());
    let wait = if run.no_wait { Some(Duration::ZERO) } else { run.wait };
    let taken = match wait {
        Some(Duration::ZERO) => match locks.try_lock().await {
            Ok(None) => Err(busy(&mutexes).await),
            Ok(Some(guard)) => Ok(guard),
            Err(error) => Err(not_taken(error)),
        },
        Some(wait) => locks.lock_with_timeout(wait).await.map_err(not_taken),
        None => locks.lock().await.map_err(not_taken),
    };
    taken.map(MultiGuard::into_guards).map_err(|failure| match failure.code {
        exit::BUSY => Failure { code: run.conflict_exit_code, ..failure },
        _ => failure,
    })
}

fn not_taken(error: Error) -> Failure {
    match error {
        // The library advises to delete what nobody uses. This may be a semaphore or a read-write lock in use.
        Error::WrongType { lock, .. } => Failure::new(
            exit::DATA,
            format!(
                "run takes mutexes only, and {lock:?} is none: leasehold list shows what it is, if it is a lock"
            ),
        ),
        error => error.into(),
    }
}

/// Says which of the locks is held by whom.
async fn busy(mutexes: &[Mutex]) -> Failure {
    for mutex in mutexes {
        if let Ok(Some(holder)) = mutex.holder().await {
            let problem = format!("lock {:?} is busy: held by {holder}", mutex.name());
            return Failure::new(exit::BUSY, problem);
        }
    }
    let names: Vec<String> = mutexes.iter().map(|mutex| format!("{:?}", mutex.name())).collect();
    Failure::new(exit::BUSY, format!("lock {} is busy: others come first", names.join(" or ")))
}

fn lost(run: &Run, name: &str, loss: impl Display) -> Failure {
    Failure::new(run.lost_exit_code, format!("lost lock {name:?}: {loss}"))
}

/// What came of the releases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Released {
    All,
    Unconfirmed,
    /// A lock had been lost before.
    Lost,
}

/// Releases all locks at once, and closes the client. Soon after a signal it waits for the servers no more. Of one lock it is told
/// already that it is lost.
async fn release(
    guards: Vec<Guard>,
    client: Option<&Client>,
    say: &Say,
    told: Option<&str>,
    signals: &mut Signals,
) -> Released {
    let mut left: Vec<String> = guards.iter().map(|guard| guard.name().to_owned()).collect();
    let mut releases = JoinSet::new();
    for guard in guards {
        releases.spawn(async move { (guard.name().to_owned(), guard.unlock().await) });
    }
    let mut is_over = pin!(async {
        signals.next_that_ends().await;
        sleep(PATIENCE).await;
    });
    let mut worst = Released::All;
    let mut not_released = |name: &str, error: Option<&Error>| {
        if told != Some(name) {
            say.event(&Event::NotReleased { lock: name, error });
        }
        let is_lost = error.is_some_and(Error::is_lost);
        worst = worst.max(if is_lost { Released::Lost } else { Released::Unconfirmed });
    };
    while !left.is_empty() {
        let (name, released) = tokio::select! {
            biased;
            Some(released) = releases.join_next() => released.expect("no release panics"),
            () = &mut is_over => break,
        };
        left.retain(|other| *other != name);
        if let Err(error) = released {
            not_released(&name, Some(&error));
        }
    }
    left.iter().for_each(|name| not_released(name, None));
    if let Some(client) = client.filter(|_| left.is_empty()) {
        tokio::select! {
            () = client.shutdown() => {}
            () = &mut is_over => {}
        }
    }
    worst
}

/// How long servers may still take to confirm releases when a signal comes. It may be one for the command, which has just ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// A command that runs, and the locks that it runs under.
struct Watched<'a> {
    run: &'a Run,
    say: &'a Say,
    guards: &'a [Guard],
    /// The locks that an outer `run` holds.
    lent: &'a [String],
    grace: Duration,
}

/// How it ended.
struct Outcome {
    code: u8,
    /// The lock that was lost before, the first of them.
    lost: Option<String>,
}

impl Watched<'_> {
    /// Passes signals on, and ends the command if a lock is lost, until the command has ended. An outer `run` may hold a lock no
    /// more.
    async fn until_the_end(
        &self,
        mut child: Child,
        signals: &mut Signals,
        outer_ended: impl Future<Output = String>,
    ) -> Outcome {
        let mut outer_ended = pin!(outer_ended);
        let mut losses: Vec<_> = self.guards.iter().map(Guard::lost).collect();
        let mut lost: Option<String> = None;
        let mut longest = Duration::ZERO;
        let mut kill_at: Option<Instant> = None;
        let mut told_to_end: Option<Instant> = None;
        let over_at = self.run.max_hold.and_then(|longest| Instant::now().checked_add(longest));
        loop {
            let looking = lost.is_none();
            // What a release hands to the next in the queue is short until its first renewal, which follows at once.
            longest = longest.max(self.soonest().map_or(Duration::ZERO, Guard::remaining));
            let grace = match self.guards {
                [] => self.grace,
                _ => self.grace.min(longest / 3),
            };
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::SIGCHLD => {
                        if let Some(ended) = child.look(self.say) {
                            if let Some(at) = kill_at {
                                child.rest_ends(at).await;
                            }
                            return Outcome { code: code_of(ended), lost };
                        }
                    }
                    Signal::SIGTSTP => child.not_suspended(self.say),
                    signal => {
                        let ends = matches!(signal, Signal::SIGINT | Signal::SIGTERM);
                        let again = ends && told_to_end.is_some_and(|at| at.elapsed() <= self.grace);
                        if ends {
                            told_to_end = Some(Instant::now());
                        }
                        child.signal(if again { Signal::SIGKILL } else { signal });
                    }
                },
                (index, loss) = first(&mut losses), if looking => {
                    let name = self.guards[index].name();
                    lost = Some(name.to_owned());
                    kill_at = self.on_loss(&child, name, loss, Instant::now() + self.grace);
                }
                () = until(self.deadline().map(|deadline| deadline - grace)), if looking && self.acts_on_losses() => {
                    // A renewal may have moved it on.
                    let Some(deadline) = self.deadline() else { continue };
                    if deadline.saturating_duration_since(Instant::now()) <= grace {
                        let name = self.soonest().map_or("", Guard::name);
                        lost = Some(name.to_owned());
                        kill_at = self.on_loss(&child, name, Loss::ExpiresSoon, deadline);
                    }
                }
                lock = &mut outer_ended, if looking => {
                    kill_at = self.on_loss(&child, &lock, Loss::OuterEnded, Instant::now() + self.grace);
                    lost = Some(lock);
                }
                () = until(over_at), if looking && over_at.is_some() => {
                    let name = self.soonest().map_or_else(|| &*self.lent[0], Guard::name);
                    lost = Some(name.to_owned());
                    kill_at = self.on_loss(&child, name, Loss::MaxHold, Instant::now() + grace);
                }
                () = child.wants_terminal() => child.offer_terminal(),
                () = until(kill_at), if kill_at.is_some() => {
                    kill_at = None;
                    child.signal(Signal::SIGKILL);
                }
            }
        }
    }

    /// Returns true if a loss ends the command, which needs time for that before the lease ends.
    fn acts_on_losses(&self) -> bool {
        self.run.on_lost_run.is_some() || self.run.on_lost != OnLost::Continue
    }

    /// Returns the lock that ends first if nothing renews it.
    fn soonest(&self) -> Option<&Guard> {
        self.guards.iter().min_by_key(|guard| guard.remaining())
    }

    fn deadline(&self) -> Option<Instant> {
        self.soonest().map(|guard| Instant::now() + guard.remaining())
    }

    /// Does what is to be done about a loss, and returns when the command is to be killed.
    fn on_loss(&self, child: &Child, lock: &str, loss: Loss, kill_at: Instant) -> Option<Instant> {
        self.say.event(&Event::Lost { lock, loss, run: self.run });
        match (&self.run.on_lost_run, self.run.on_lost) {
            (Some(command), _) => {
                let held = self.guards.iter().find(|guard| guard.name() == lock);
                child.instead(command, lock, held.map(Guard::token), loss, self.say);
            }
            (None, OnLost::Term) => child.signal(Signal::SIGTERM),
            (None, OnLost::Kill) => child.signal(Signal::SIGKILL),
            (None, OnLost::Continue) => return None,
        }
        Some(kill_at)
    }
}

fn code_of(ended: Ended) -> u8 {
    match ended {
        Ended::Exited(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Ended::Signalled(signal) => exit::of_signal(signal),
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// Waits for the first of some losses.
async fn first(losses: &mut [Lost]) -> (usize, Loss) {
    poll_fn(|context| {
        for (index, lost) in losses.iter_mut().enumerate() {
            if let Poll::Ready(reason) = Pin::new(lost).poll(context) {
                return Poll::Ready((index, reason.into()));
            }
        }
        Poll::Pending
    })
    .await
}
