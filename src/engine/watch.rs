//! Waiting for a change of what the servers know under some key.
//!
//! Whoever waits reads, and reads again when its channel speaks, when the channel was subscribed again, when what it read ends
//! by itself, and after 2 to 4 s in any case. So a message only makes it faster.

use std::sync::Arc;
use std::time::Duration;

use super::quorum::{ChannelListener, Quorum};
use crate::clock::{Clock, Timestamp};
use crate::config::Config;

/// Wakes one who waits for a change. It listens until it is dropped.
pub(crate) struct Watch {
    quorum: Arc<Quorum>,
    channel: Arc<str>,
    clock: Clock,
    /// The channel, and the member of a cluster on which it is.
    listener: Option<(ChannelListener, u32)>,
    failures: u32,
}

impl Watch {
    pub(crate) fn new(quorum: Arc<Quorum>, channel: Arc<str>, clock: Clock) -> Self {
        Self { quorum, channel, clock, listener: None, failures: 0 }
    }

    /// Waits until what was just read may have changed; by itself it does so after `lasts`.
    ///
    /// # Cancel safety
    ///
    /// After a drop of the future, read again.
    pub(crate) async fn may_have_changed(&mut self, lasts: Option<Duration>) {
        self.failures = 0;
        let member = self.quorum.queue().map_or(0, |node| node.number());
        if self.listener.as_ref().is_none_or(|(_, on)| *on != member) {
            // Its first word is that it listens: what was said before is read then.
            self.listener = Some((self.quorum.listen_on(&self.channel), member));
        }
        let pause = self.clock.jitter(POLL, POLL * 2);
        let pause = lasts.map_or(pause, |lasts| pause.min(lasts.max(SHORTEST)));
        let until = self.clock.now().plus(pause);
        let Some((listener, _)) = &self.listener else { return };
        let changes = async {
            tokio::select! {
                _ = listener.next() => {}
                () = self.quorum.queue_moved_from(member) => {}
            }
        };
        self.clock.until(until, changes).await;
    }

    /// Waits until the servers, which gave no usable answer, may be asked again.
    pub(crate) async fn may_answer(&mut self) {
        let pause = self.clock.back_off(self.failures, LONGEST_FAILURE_PAUSE);
        self.failures += 1;
        self.clock.sleep(pause).await;
    }
}

/// Since when the servers have given no usable answer to one who waits.
#[derive(Default)]
pub(crate) struct Unanswered(Option<Timestamp>);

impl Unanswered {
    /// There was no usable answer to what was asked at `asked_at`. Returns true if that has been so for `unavailable_after`.
    pub(crate) fn is_long(&mut self, asked_at: Timestamp, now: Timestamp, config: &Config) -> bool {
        // If it took longer than an answer may, nobody polled it.
        let asked_at = asked_at.max(now.minus(config.response_timeout));
        now.since(*self.0.get_or_insert(asked_at)) >= config.unavailable_after
    }
}

const POLL: Duration = Duration::from_secs(2);
const LONGEST_FAILURE_PAUSE: Duration = Duration::from_millis(500);
/// What ends by itself may be there for a moment longer than the server said.
const SHORTEST: Duration = Duration::from_millis(5);
