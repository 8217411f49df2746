//! The handle to a latch.

use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::subject::{Answer, Look, Sort, Subject};
use crate::clock::Timestamp;
use crate::config::drift;
use crate::engine::gate::Engine;
use crate::error::{Error, LossReason};
use crate::key::{self, LockKind};
use crate::node::Source;
use crate::script::{self, Arg, Call, Reply, Script, ttl_ms};
use crate::text::rounded;

/// A handle to a latch, which is shut until a number of counts were made: then all who wait for it, in all processes, go on.
/// The handle itself holds nothing, and making one costs no I/O.
///
/// Somebody says how many counts there are, with [`try_set_count`](Self::try_set_count). A latch that nobody has set is open,
/// so that comes before anybody waits. Each participant calls [`count_down`](Self::count_down) once, and the last count deletes
/// the latch: a process that sets it after that, such as a participant that was started again, shuts the next one. Use a new name
/// for each time, with a number in it for example: one who is late cannot tell the next latch of a name from the one before.
///
/// A waiter hears of the last count by a message. If the message is lost, the wait ends 4 s later at most.
///
/// **A participant that dies never counts**, and the latch stays shut until its end, if it has one. Where that matters, let the
/// participants hold the permits of a [`Semaphore`](crate::Semaphore), and wait until all have
/// [returned](crate::Semaphore::returned): those of a process that crashed come back.
///
/// # When it opens
///
/// By the last count, and by [`delete`](Self::delete). A latch that its server loses does not open for those who saw it shut: a
/// handle, with all its clones, remembers that it saw the latch shut, or set it, and fails with [`Error::Lost`] if the latch is
/// gone and
///
/// * its end has come ([`LossReason::Ended`]), or
/// * another server has taken over, or the server has restarted, or in a cluster the name has moved to another master
///   ([`LossReason::Failover`]).
///
/// If the last count was made just then, it fails, too: nobody can tell. Until the handle sees the latch shut again, it keeps
/// failing. A handle that never saw the latch shut cannot know that it was lost, and finds it open. So does every handle if
/// somebody deletes the key by hand, the server evicts it, or the server's clock is set forward beyond its end.
///
/// # Redisson
///
/// It is Redisson's `RCountDownLatch` of the same name: each side sets it, counts, and waits for the counts of the other. Java's
/// latches have no end, and their waiters have no timer for a message that is lost. A Redisson waiter does not hear of
/// Redisson's own `delete()`, but of ours it does.
///
/// It is on one server, or on a master of a cluster. With [several independent masters](crate::ClientBuilder::nodes) every call
/// fails with [`Error::SingleServerOnly`]. On a cluster the name must have no braces: the channel would be in another slot.
///
/// # Examples
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn warm_up() {}
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// let ready = client.latch("deploy:42:ready");
/// ready.try_set_count(3, Duration::from_secs(3600)).await?; // whoever comes first
/// warm_up().await;
/// ready.count_down().await?;
/// ready.wait_with_timeout(Duration::from_secs(60)).await?; // until all three are ready
/// # Ok(()) }
/// ```
#[doc(alias = "RCountDownLatch")]
#[derive(Clone)]
pub struct Latch {
    subject: Subject,
    memory: Arc<Mutex<Memory>>,
}

// The memory's mutex is never held while the caller's code runs, so a panic of the caller's leaves nothing half done.
impl UnwindSafe for Latch {}
impl RefUnwindSafe for Latch {}

impl Latch {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let channel = key::latch_channel(&name);
        Self { subject: Subject::new(engine, name, channel, LATCH), memory: Arc::default() }
    }

    /// Returns the latch's name, which is its key on the server.
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    /// Shuts the latch until `count` counts were made, 1 to 999,999,999,999,999, if it is open. Returns false if it is shut
    /// already: then nothing changes.
    ///
    /// After `ttl`, 10 ms to 366 days, the latch is deleted, and those who wait for it fail. [`Duration::MAX`] means that it
    /// has no end.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: it may have been set nevertheless; [`Error::InvalidArgument`] if `count` or `ttl` is out of
    /// range; [`Error::SingleServerOnly`], [`Error::InvalidName`], [`Error::WrongType`], [`Error::Denied`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may do it or not.
    pub async fn try_set_count(&self, count: u64, ttl: Duration) -> Result<bool, Error> {
        if count == 0 {
            return Err(Error::argument("a latch's count is 0; such a latch is open"));
        }
        if count > MOST_COUNTS {
            return Err(Error::argument(format!(
                "a latch's count is {count}; it must be at most {MOST_COUNTS}"
            )));
        }
        let endless = ttl == Duration::MAX;
        if !endless && !(SHORTEST..=LONGEST).contains(&ttl) {
            return Err(Error::argument(format!(
                "a latch's ttl is {:?}; it must be from {SHORTEST:?} to 366 days, or Duration::MAX",
                rounded(&ttl)
            )));
        }
        let ttl_ms = if endless { 0 } else { ttl_ms(ttl) };
        let mut args = vec![Arg::Number(count), Arg::Number(ttl_ms)];
        args.extend(self.subject.publish());
        Ok(self.change(&script::LATCH_SET, args).await?.done)
    }

    /// Makes one of the counts, and returns how many are left. The last one opens the latch. It returns 0 if the latch is open
    /// already.
    ///
    /// It is sent once, and is not repeated: without an answer it may have counted or not.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if this handle saw the latch shut, and the server has lost it: see [above](Self#when-it-opens);
    /// [`Error::Unavailable`]: it may have counted nevertheless; [`Error::SingleServerOnly`], [`Error::InvalidName`],
    /// [`Error::WrongType`], [`Error::Denied`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it may count or not.
    pub async fn count_down(&self) -> Result<u64, Error> {
        let args = self.subject.publish().into();
        self.change(&script::LATCH_COUNT_DOWN, args).await.map(|seen| seen.left)
    }

    /// Asks the server how many counts are left; zero if the latch is open.
    ///
    /// # Errors
    ///
    /// The same as [`count_down`](Self::count_down). It changes nothing.
    pub async fn count(&self) -> Result<u64, Error> {
        self.change(&script::LATCH_STATUS, Vec::new()).await.map(|seen| seen.left)
    }

    /// Waits until the latch is open.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the server has lost the latch: see [above](Self#when-it-opens); [`Error::Unavailable`] once the server
    /// has not answered for [`unavailable_after`](crate::ClientBuilder::unavailable_after): call it again on the same handle to
    /// go on; [`Error::SingleServerOnly`], [`Error::InvalidName`], [`Error::WrongType`], [`Error::Denied`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind. What the handle has seen of the latch, it remembers.
    #[doc(alias = "await")]
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.wait_with_timeout(Duration::MAX)
    }

    /// Waits until the latch is open, for at most `timeout`. Zero means one look, and [`Duration::MAX`] no limit.
    ///
    /// # Errors
    ///
    /// [`Error::StillWaiting`], with the number of counts that are left; otherwise the same as [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// The same as [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (latch, caller) = (self.clone(), Location::caller());
        async move {
            let look = |answer: Answer| {
                let seen = latch.take_in(answer)?;
                Ok(match seen.left {
                    0 => Look::Over(()),
                    1 => Look::Wait(seen.ends_in, "1 count is left".to_owned()),
                    left => Look::Wait(seen.ends_in, format!("{left} counts are left")),
                })
            };
            let call = latch.call(&script::LATCH_STATUS, Vec::new());
            latch.subject.wait(timeout, caller, call, look).await
        }
    }

    /// Deletes the latch, which opens it for all who wait. Returns false if it was open already.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: it may have been deleted nevertheless; [`Error::SingleServerOnly`], [`Error::InvalidName`],
    /// [`Error::WrongType`], [`Error::Denied`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may do it or not.
    pub async fn delete(&self) -> Result<bool, Error> {
        let answer =
            self.subject.ask(self.call(&script::LATCH_DELETE, self.subject.publish().into()));
        let answer = answer.await?;
        let seen =
            Seen::read(&answer.reply).ok_or_else(|| self.subject.unexpected(&answer.reply))?;
        // A deletion means that it is to be open, whether it was there or not.
        self.memory.lock().take_in(&answer, &Seen { done: true, ..seen });
        Ok(seen.done)
    }

    async fn change(&self, script: &'static Script, args: Vec<Arg>) -> Result<Seen, Error> {
        self.take_in(self.subject.ask(self.call(script, args)).await?)
    }

    fn call(&self, script: &'static Script, args: Vec<Arg>) -> Call {
        Call { script, keys: vec![self.subject.name.clone()], args }
    }

    fn take_in(&self, answer: Answer) -> Result<Seen, Error> {
        let seen =
            Seen::read(&answer.reply).ok_or_else(|| self.subject.unexpected(&answer.reply))?;
        match self.memory.lock().take_in(&answer, &seen) {
            Some(reason) => Err(Error::lost(&self.subject.name, reason)),
            None => Ok(seen),
        }
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// What a script says of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The call changed it.
    done: bool,
    left: u64,
    /// `None`: it has no end, or is open.
    ends_in: Option<Duration>,
}

impl Seen {
    fn read(reply: &Reply) -> Option<Self> {
        let [done, left, pttl] = reply.list()? else { return None };
        let ends_in = u64::try_from(pttl.number()?).ok().map(Duration::from_millis);
        Some(Self { done: done.number()? == 1, left: left.number()?.try_into().ok()?, ends_in })
    }
}

/// What a handle and its clones have seen of a latch.
#[derive(Default)]
struct Memory {
    /// When the newest answer was asked for.
    asked_at: Timestamp,
    /// It was shut, and was not seen to open.
    shut: Option<Shut>,
}

struct Shut {
    source: Source,
    /// It does not end by itself before.
    ends_at: Timestamp,
}

impl Memory {
    /// Returns why the latch is lost, if it is.
    fn take_in(&mut self, answer: &Answer, seen: &Seen) -> Option<LossReason> {
        // Answers to several who wait may be taken in late: an older one says nothing new.
        let is_new = answer.sent_at >= self.asked_at;
        self.asked_at = self.asked_at.max(answer.sent_at);
        if seen.left > 0 {
            if is_new {
                let ends_at = seen.ends_in.map_or(Timestamp::NEVER, |ends_in| {
                    answer.sent_at.plus(ends_in.saturating_sub(drift(ends_in)))
                });
                self.shut = Some(Shut { source: answer.source, ends_at });
            }
            return None;
        }
        // What this call opened is open.
        let shut = if seen.done { None } else { self.shut.as_ref() };
        match shut {
            Some(shut) if shut.source != answer.source => Some(LossReason::Failover),
            Some(shut) if shut.ends_at <= answer.answered_at => Some(LossReason::Ended),
            _ => {
                if is_new {
                    self.shut = None;
                }
                None
            }
        }
    }
}

const LATCH: Sort = Sort {
    kind: LockKind::Latch,
    why_one_server: "the servers' counts would differ after a failure, and nobody could tell which is right",
};
/// The scripts read 15 digits, which fit a number of Lua's without gaps.
const MOST_COUNTS: u64 = 999_999_999_999_999;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[cfg(test)]
mod tests;
