//! What the servers know about the leader of an election, and what a leader says of itself.

use std::sync::Arc;
use std::time::Duration;

use super::handle::Handle;
use crate::error::{Error, Fault};
use crate::guard::Guard;
use crate::key::{self, Holder};
use crate::script::{self, Arg, Call, Reply};

/// The leader of an election; see [`Election::leader`](crate::Election::leader).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Leader {
    /// The holder of the election's lock; [`Holder::client`] is the name of the leader's client.
    pub holder: Holder,
    /// The leader's term, which is higher than that of every leader before.
    pub term: u64,
    /// What the leader proclaimed last; empty if it has said nothing.
    pub value: Arc<str>,
    /// How many times it has spoken in this term.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) number: u64,
}

impl Leader {
    /// Returns what tells an earlier saying from a later one.
    pub(super) fn age(&self) -> (u64, u64) {
        (self.term, self.number)
    }

    fn parse(said: &str) -> Option<Self> {
        let mut parts = said.splitn(4, ' ');
        let holder = Holder::new(parts.next()?);
        let (term, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { holder, term, number, value: parts.next()?.into() })
    }
}

/// Who leads an election, or why nobody can be named; see [`Election::state`](crate::Election::state).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "state", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum ElectionState {
    /// This one leads.
    Led(Leader),
    /// Nobody holds the election's lock, so nobody leads.
    Vacant,
    /// This one holds the election's lock, and has said nothing that the servers know. It is a leader that has only just begun;
    /// or one whose words were lost with a server, until it speaks again; or no candidate at all: a mutex of the election's
    /// name, here or in Redisson, keeps all candidates from leading.
    #[non_exhaustive]
    Silent {
        /// The holder of the election's lock.
        holder: Holder,
    },
    /// Several servers were asked, and no majority of them agrees on who holds the election's lock, or that nobody does.
    Undecided,
}

impl ElectionState {
    /// Returns the leader, if one is known.
    pub fn into_leader(self) -> Option<Leader> {
        match self {
            Self::Led(leader) => Some(leader),
            Self::Vacant | Self::Silent { .. } | Self::Undecided => None,
        }
    }
}

/// The place on the servers where an election's leader says who it is. Clones are the same.
#[derive(Clone)]
pub(super) struct Pulpit {
    pub(super) handle: Handle,
    key: Arc<str>,
    channel: Arc<str>,
}

/// What one server knows.
struct Known {
    holder: Option<Holder>,
    remaining: Option<Duration>,
    said: Option<Leader>,
}

impl Pulpit {
    pub(super) fn new(handle: Handle) -> Self {
        let (key, channel) = (key::leader_key(handle.name()), key::leader_channel(handle.name()));
        Self { handle, key, channel }
    }

    pub(super) fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// Asks the servers who leads, and for how long if nothing changes that.
    pub(super) async fn look(&self) -> Result<(ElectionState, Option<Duration>), Error> {
        let majority = self.handle.quorum().majority();
        let call = Call { script: &script::LEADER_STATUS, keys: self.keys(), args: Vec::new() };
        let agree = |replies: &[&Reply]| {
            let known: Vec<_> = replies.iter().filter_map(|reply| Known::read(reply)).collect();
            known.len() >= majority && holder_of(&known, majority).is_some()
        };
        let mut known = Vec::new();
        for reply in &self.handle.ask(call, agree).await?.replies {
            known.push(Known::read(reply).ok_or_else(|| self.handle.unexpected(reply))?);
        }
        let holder = match holder_of(&known, majority) {
            Some(Some(holder)) => holder,
            Some(None) => return Ok((ElectionState::Vacant, None)),
            None => return Ok((ElectionState::Undecided, None)),
        };
        let of_holder = || known.iter().filter(|known| known.holder.as_ref() == Some(&holder));
        let remaining = of_holder().filter_map(|known| known.remaining).max();
        // What a majority has heard is known to one of these at least; what fewer have heard may be newer.
        let said = known.iter().filter_map(|known| known.said.as_ref());
        let newest = said.filter(|said| said.holder == holder).max_by_key(|said| said.age());
        let leader = newest.cloned();
        Ok((leader.map_or(ElectionState::Silent { holder }, ElectionState::Led), remaining))
    }

    /// Returns what says `value`.
    pub(super) fn call(&self, guard: &Guard, number: u64, value: &str) -> Call {
        let args = vec![
            Arg::Text(guard.holder().text().clone()),
            Arg::Number(guard.token()),
            Arg::Number(number),
            Arg::Word(self.handle.publish()),
            Arg::Text(self.channel.clone()),
            Arg::Number(RETENTION.as_millis() as u64),
            Arg::Text(value.into()),
        ];
        Call { script: &script::LEADER_PROCLAIM, keys: self.keys(), args }
    }

    /// Says something, and returns whether a majority has heard it from the leader.
    pub(super) async fn say(&self, call: Call) -> Result<bool, Error> {
        let majority = self.handle.quorum().majority();
        let heard = |replies: &[&Reply]| {
            replies.iter().filter(|reply| reply.number() == Some(1)).count() >= majority
        };
        let answers = self.handle.ask(call, heard).await?;
        Ok(heard(&answers.replies.iter().collect::<Vec<_>>()))
    }

    /// Returns the error for what was said, but was not heard by a majority.
    pub(super) fn unheard(&self) -> Error {
        let quorum = self.handle.quorum();
        let within = self.handle.config().response_timeout;
        quorum.error(Some(self.handle.name()), Fault::NoAnswer(within))
    }

    fn keys(&self) -> Vec<Arc<str>> {
        vec![self.handle.name().clone(), self.key.clone()]
    }
}

impl Known {
    fn read(reply: &Reply) -> Option<Self> {
        let [pttl, holder, said] = reply.list()? else { return None };
        let holder = match holder {
            Reply::Nil => None,
            holder => Some(Holder::new(holder.text()?)),
        };
        let said = match said {
            Reply::Nil => None,
            said => Some(Leader::parse(said.text()?)?),
        };
        let remaining = u64::try_from(pttl.number()?).ok().map(Duration::from_millis);
        Some(Self { holder, remaining, said })
    }
}

/// Returns the holder, or its absence, that a majority names.
fn holder_of(known: &[Known], majority: usize) -> Option<Option<Holder>> {
    let names_the_same =
        |one: &&Known| known.iter().filter(|other| other.holder == one.holder).count() >= majority;
    known.iter().find(names_the_same).map(|known| known.holder.clone())
}

/// How long a saying is kept that nothing replaces: a leader may be silent for long.
const RETENTION: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn known(holder: Option<&str>) -> Known {
        Known { holder: holder.map(Holder::new), remaining: None, said: None }
    }

    #[test]
    fn a_saying_is_read_with_all_the_spaces_of_its_value() {
        let said = Leader::parse("a:1 17 3 http://a b ").expect("it is whole");
        assert_eq!(
            (said.holder.as_str(), said.age(), &*said.value),
            ("a:1", (17, 3), "http://a b ")
        );
        assert_eq!(&*Leader::parse("a:1 17 1 ").expect("it is whole").value, "");
        for broken in ["", "a:1", "a:1 17", "a:1 17 1", "a:1 x 1 v", "a:1 17 -1 v"] {
            assert!(Leader::parse(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn the_leader_is_the_one_that_a_majority_names() {
        let all = [known(Some("a")), known(None), known(Some("a"))];
        assert_eq!(holder_of(&all, 2), Some(Some(Holder::new("a"))));
        assert_eq!(holder_of(&all[..2], 2), None, "that is not known yet");
        let split = [known(Some("a")), known(Some("b")), known(None)];
        assert_eq!(holder_of(&split, 2), None);
        assert_eq!(holder_of(&[known(None), known(None)], 2), Some(None));
    }
}
