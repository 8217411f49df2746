//! Observing who leads.

use std::fmt;
use std::time::Duration;

use super::leader::{Leader, Pulpit};
use crate::clock::Timestamp;
use crate::engine::watch::{Unanswered, Watch};
use crate::error::{Error, Fault};
use crate::key::LockKind;

/// Reports who leads now, and then the latest state whenever that changes; see [`Election::observe`](crate::Election::observe).
///
/// It may skip states that do not last. That nobody leads is a state, too. It never goes back to an
/// earlier term, nor to an earlier value of a leader.
pub struct Observer {
    pulpit: Pulpit,
    watch: Watch,
    /// What was shown last; `None`: nothing yet.
    shown: Option<Option<Leader>>,
    /// The newest that was shown.
    newest: (u64, u64),
}

impl Observer {
    pub(super) fn new(pulpit: Pulpit) -> Self {
        let watch = Watch::new(
            pulpit.handle.quorum(),
            pulpit.channel().clone(),
            pulpit.handle.clock().clone(),
        );
        Self { pulpit, watch, shown: None, newest: (0, 0) }
    }

    /// Waits for the next change (another leader, no leader, or a new value), and returns the leader. The first call returns
    /// the present state at once.
    ///
    /// A change is known at once if it comes with a message: a leader that begins, proclaims something, resigns, is dropped with
    /// its runtime or its client, or is unlocked by force. If a leader's process was killed, that is known when its lock ends. If a
    /// message is lost, the change is known 4 s later at most.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server, or no majority of servers, has answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after): call it again to go on. [`Error::Closed`] when the client
    /// is shut down. Otherwise the same as [`Election::leader`](crate::Election::leader).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call returns what is new. Only the time for which the servers have been away
    /// counts anew.
    pub async fn changed(&mut self) -> Result<Option<Leader>, Error> {
        self.changed_with_timeout(Duration::MAX).await
    }

    /// Waits for a change like [`changed`](Self::changed), for at most `timeout`. Zero means one look, and [`Duration::MAX`] no
    /// limit.
    ///
    /// # Errors
    ///
    /// [`Error::StillWaiting`] if nothing has changed: it says who led according to what was shown last. [`Error::Unavailable`]
    /// also if the servers did not answer at the end, or in the one look. Otherwise the same as [`changed`](Self::changed).
    ///
    /// # Cancel safety
    ///
    /// The same as [`changed`](Self::changed). Nor is anything lost at the timeout.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let mut observer = client.election("scheduler").observe();
    /// loop {
    ///     match observer.changed_with_timeout(Duration::from_secs(60)).await {
    ///         Ok(Some(leader)) => println!("{} leads now", leader.holder),
    ///         Ok(None) => println!("nobody leads now"),
    ///         Err(error) if error.is_timeout() => println!("nothing has changed for a minute"),
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn changed_with_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Leader>, Error> {
        let handle = self.pulpit.handle.clone();
        handle.until_closed(self.next_change_within(timeout)).await?
    }

    async fn next_change_within(&mut self, timeout: Duration) -> Result<Option<Leader>, Error> {
        let clock = self.pulpit.handle.clock().clone();
        let began_at = clock.now();
        // Whether the last question was answered.
        let mut answered = false;
        let one_look = timeout.is_zero();
        // One look has the time of an answer.
        let until = if one_look { Timestamp::NEVER } else { began_at.plus(timeout) };
        let change = clock.until(until, self.next_change(one_look, &mut answered)).await;
        if let Some(leader) = change.transpose()?.flatten() {
            return Ok(leader);
        }
        if clock.is_stopped() {
            return Err(Error::closed(&clock));
        }
        let (name, waited) = (self.pulpit.handle.name(), clock.now().since(began_at));
        if !answered {
            let fault = Fault::NoAnswer(waited);
            return Err(self.pulpit.handle.quorum().error(Some(name), fault));
        }
        let state = match self.shown.as_ref().and_then(Option::as_ref) {
            Some(leader) => format!("{} leads in term {}", leader.holder, leader.term),
            None => "nobody leads".to_owned(),
        };
        let (name, state) = (name.clone(), state.into());
        Err(Error::StillWaiting { kind: LockKind::Election, name, state, waited })
    }

    /// Returns what is new; `None` if nothing is, and `one_look` was wanted.
    async fn next_change(
        &mut self,
        one_look: bool,
        answered: &mut bool,
    ) -> Result<Option<Option<Leader>>, Error> {
        // What an earlier call met may have passed since.
        let mut unanswered = Unanswered::default();
        loop {
            let looked_at = self.pulpit.handle.clock().now();
            match self.pulpit.look().await {
                Ok((state, lasts)) => {
                    let leader = state.into_leader();
                    unanswered = Unanswered::default();
                    if self.is_news(leader.as_ref()) {
                        self.newest = leader.as_ref().map_or(self.newest, Leader::age);
                        self.shown = Some(leader.clone());
                        return Ok(Some(leader));
                    }
                    *answered = true;
                    if one_look {
                        return Ok(None);
                    }
                    self.watch.may_have_changed(lasts).await;
                }
                Err(error @ Error::Unavailable { .. }) if !one_look => {
                    *answered = false;
                    let config = self.pulpit.handle.config();
                    let now = self.pulpit.handle.clock().now();
                    if unanswered.is_long(looked_at, now, config) {
                        return Err(error);
                    }
                    self.watch.may_answer().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn is_news(&self, leader: Option<&Leader>) -> bool {
        let Some(shown) = &self.shown else { return true };
        match leader {
            None => shown.is_some(),
            // A server that was behind may answer again after one that was not.
            Some(leader) if leader.age() < self.newest => false,
            leader => leader != shown.as_ref(),
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("election", self.pulpit.handle.name())
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}
