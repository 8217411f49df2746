//! The library's machine in the model: its times, and the letters that it reads.
//!
//! The machine's clock stands still. A time in it says what it is waited for: a moment, the end of a holder's lease, or a poll.
//! Which of them comes first is the model's choice, as [`due`] and [`ended`] say.

use std::time::Duration;

use leasehold::seam::Timestamp;
use leasehold::seam::machine::{Epoch, HeldBy, Machine, Mail, News, Now, Seeker};

use super::case::Bug;
use super::server::Rules;
use super::state::{Holder, Id, Lock};
use super::wire::{Grant, Message};

/// The requests of one process, as the library keeps them.
pub type Requests = Machine<Message>;

/// The machine's time.
pub const NOW: Timestamp = Timestamp::from_origin(Duration::from_secs(1));
/// A moment.
pub const SOON: Duration = Duration::from_millis(1);
/// The time until a poll, and longer than any other.
const POLL: Duration = Duration::from_secs(10);
/// When a request polls.
pub const LATER: Timestamp = Timestamp::from_origin(Duration::from_secs(11));

/// What is left of a lease where the model does not say it.
pub const UNKNOWN: i8 = i8::MAX;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A moment, or a lease that has ended.
    Moment,
    /// The end of this holder's lease.
    End(Holder),
    /// A poll.
    Poll,
}

impl Rules<'_> {
    /// What the machine of a process is told of the time.
    pub fn now(&self, process: usize) -> Now {
        let open = !self.case.is(Bug::ResetNotAsked);
        let epoch = epoch(self.state.processes[process].epoch).filter(|_| open);
        Now { at: NOW, poll: POLL, moment: SOON, epoch }
    }
}

/// The subscription of this number.
pub fn epoch(number: u8) -> Option<Epoch> {
    (number > 0).then(|| Epoch::numbered(number.into()))
}

/// The lock's holder, as the machine is told of it.
pub fn held_by(lock: Option<Lock>) -> HeldBy {
    let remaining = match lock {
        Some(Lock { left: UNKNOWN, .. }) => None,
        Some(Lock { holder, left: 1.. }) => Some(Duration::from_millis(number(holder))),
        _ => Some(Duration::ZERO),
    };
    let foreign = lock.is_some_and(|lock| matches!(lock.holder, Holder::Java(_)));
    HeldBy { remaining, foreign }
}

/// A number for each holder: how long its lease lasts, for the machine.
fn number(holder: Holder) -> u64 {
    match holder {
        Holder::Ours(id) => 1 + u64::from(id.waiter) * 256 + u64::from(id.number),
        Holder::Java(java) => 2048 + u64::from(java),
    }
}

fn holder(number: u64) -> Holder {
    match number {
        2048.. => Holder::Java((number - 2048) as u8),
        _ => Holder::Ours(Id {
            waiter: ((number - 1) / 256) as u8,
            number: ((number - 1) % 256) as u8,
        }),
    }
}

/// The end of a holder's lease. The machine adds a millisecond.
fn end(of: Holder) -> Timestamp {
    NOW.plus(SOON).plus(Duration::from_millis(number(of)))
}

/// What a request waits for that asks at this time.
pub fn waits_for(at: Timestamp) -> WaitsFor {
    match at.since(NOW) {
        left if left >= POLL => WaitsFor::Poll,
        left if left > SOON => WaitsFor::End(holder((left - SOON).as_millis() as u64)),
        _ => WaitsFor::Moment,
    }
}

/// What the seeker's request waits for; `None` if it asks, or there is none.
pub fn waits(machine: &Requests, seeker: Seeker) -> Option<WaitsFor> {
    let (_, at) = machine.standings().find(|(other, _)| *other == seeker)?;
    at.map(waits_for)
}

/// The time of the seeker's request has come.
pub fn due(machine: &mut Requests, seeker: Seeker) {
    let time = |of, at| if of == Some(seeker) { Timestamp::default() } else { at };
    machine.rename(time, |_| {});
}

/// The pause is over.
pub fn unpause(machine: &mut Requests) {
    machine.rename(|of, at| if of.is_none() { Timestamp::default() } else { at }, |_| {});
}

/// The machine's pause is not over.
pub fn is_paused(machine: &Requests) -> bool {
    machine.pauses_until() > NOW
}

/// The lease of this holder has ended: whoever waits for that asks soon.
pub fn ended(machine: &mut Requests, of: Holder, letter: impl Fn(&mut Message)) {
    let time = |_, at| if at == end(of) { NOW.plus(SOON) } else { at };
    machine.rename(time, letter);
}

/// Other names for the holders.
pub fn renamed(machine: &mut Requests, name: impl Fn(&mut Holder), letter: impl Fn(&mut Message)) {
    let time = |_, at| match waits_for(at) {
        WaitsFor::End(mut of) => {
            name(&mut of);
            end(of)
        }
        _ => at,
    };
    machine.rename(time, letter);
}

impl Mail for Message {
    type Grant = Grant;
    type Holder = Holder;

    fn read(self) -> News<Grant, Holder> {
        match self {
            Message::Grant(grant) => News::Granted(grant),
            Message::Next(_, lock) => {
                News::Next { held_by: held_by(Some(lock)), holder: lock.holder }
            }
            Message::Free(_) => News::Free,
            Message::MailboxOn => News::Subscribed,
            Message::Released | Message::ChannelOn => unreachable!("it is no letter"),
        }
    }
}
