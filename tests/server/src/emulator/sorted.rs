//! Sorted sets, as far as queues, permits and groups of signals need them.

use std::collections::BTreeMap;

use super::keyspace::{Answer, Keyspace, SYNTAX, integer};
use super::resp::Value;

/// Each member with its score.
pub(super) type Members = BTreeMap<Vec<u8>, f64>;

impl Keyspace {
    /// The members of a sorted set, in order.
    pub fn ranked(&mut self, key: &[u8]) -> Vec<Vec<u8>> {
        let members = self.in_order(key).unwrap_or_default();
        members.into_iter().map(|(member, _)| member).collect()
    }

    /// The members of a sorted set with their scores, in order.
    pub fn scored(&mut self, key: &[u8]) -> Vec<(Vec<u8>, f64)> {
        self.in_order(key).unwrap_or_default()
    }

    pub(super) fn zadd(&mut self, args: &[Vec<u8>]) -> Answer {
        let is_option = |word: &&Vec<u8>| {
            [&b"nx"[..], b"xx", b"gt", b"lt"].contains(&&*word.to_ascii_lowercase())
        };
        let options = args[1..].iter().take_while(is_option).count();
        let has = |option: &[u8]| args[1..=options].iter().any(|o| o.eq_ignore_ascii_case(option));
        let [only_new, only_old, only_up, only_down] = [&b"nx"[..], b"xx", b"gt", b"lt"].map(has);
        let pairs = &args[1 + options..];
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(SYNTAX.to_owned());
        }
        if (only_new && (only_old || only_up || only_down)) || (only_up && only_down) {
            return Err(match only_new && only_old {
                true => "ERR XX and NX options at the same time are not compatible",
                false => "ERR GT, LT, and/or NX options at the same time are not compatible",
            }
            .to_owned());
        }
        let scored = pairs.chunks(2).map(|pair| Ok((pair[1].clone(), score(&pair[0])?)));
        let scored = scored.collect::<Result<Vec<_>, String>>()?;
        let members = self.members_or_new(&args[0])?;
        let mut added = 0;
        for (member, score) in scored {
            let changes = match members.get(&member) {
                None if only_old => false,
                None => {
                    added += 1;
                    true
                }
                Some(_) if only_new => false,
                Some(old) => !(only_up && score <= *old || only_down && score >= *old),
            };
            if changes {
                members.insert(member, score);
            }
        }
        self.drop_if_empty(&args[0]);
        Ok(Value::Int(added))
    }

    pub(super) fn zrem(&mut self, args: &[Vec<u8>]) -> Answer {
        let Some(members) = self.members(&args[0])? else { return Ok(Value::Int(0)) };
        let mut removed = 0;
        for member in &args[1..] {
            removed += i64::from(members.remove(member).is_some());
        }
        self.drop_if_empty(&args[0]);
        Ok(Value::Int(removed))
    }

    pub(super) fn zpopmin(&mut self, args: &[Vec<u8>]) -> Answer {
        let count = args.get(1).map_or(Ok(1), |count| integer(count).map_err(|_| POSITIVE))?;
        let count = usize::try_from(count).map_err(|_| POSITIVE)?;
        let lowest: Vec<_> = self.in_order(&args[0])?.into_iter().take(count).collect();
        if let Some(members) = self.members(&args[0])? {
            members.retain(|member, _| lowest.iter().all(|(gone, _)| gone != member));
        }
        self.drop_if_empty(&args[0]);
        Ok(shown(lowest.into_iter(), true))
    }

    pub(super) fn zrank(&mut self, args: &[Vec<u8>]) -> Answer {
        let place = self.in_order(&args[0])?.iter().position(|(member, _)| *member == args[1]);
        Ok(place.map_or(Value::Nil, |place| Value::Int(place as i64)))
    }

    /// `ZRANGE key min max BYSCORE [LIMIT offset count] [WITHSCORES]`, in this order.
    fn zrange_by_score(&mut self, args: &[Vec<u8>]) -> Answer {
        let is_limit = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"limit");
        let ((offset, count), rest) = match &args[4..] {
            [word, offset, count, rest @ ..] if is_limit(word) => {
                ((integer(offset)?, integer(count)?), rest)
            }
            rest => ((0, -1), rest),
        };
        let with_scores = match rest {
            [] => false,
            [word] if word.eq_ignore_ascii_case(b"withscores") => true,
            _ => return Err(SYNTAX.to_owned()),
        };
        let (low, high) = (bound(&args[1])?, bound(&args[2])?);
        let all = self.in_order(&args[0])?.into_iter();
        let inside = all.filter(|(_, score)| {
            let (above, below) = (*score > low.0, *score < high.0);
            (above || (!low.1 && *score == low.0)) && (below || (!high.1 && *score == high.0))
        });
        let most = usize::try_from(count).unwrap_or(usize::MAX);
        let chosen = inside.skip(usize::try_from(offset).unwrap_or(usize::MAX)).take(most);
        Ok(shown(chosen, with_scores))
    }

    pub(super) fn zrange(&mut self, args: &[Vec<u8>]) -> Answer {
        if args.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"byscore")) {
            return self.zrange_by_score(args);
        }
        let with_scores = match args.get(3) {
            None => false,
            Some(word) if word.eq_ignore_ascii_case(b"withscores") => true,
            Some(_) => return Err(SYNTAX.to_owned()),
        };
        if args.len() > 4 {
            return Err(SYNTAX.to_owned());
        }
        let (first, last) = (integer(&args[1])?, integer(&args[2])?);
        let all = self.in_order(&args[0])?;
        let count = all.len() as i64;
        let from_start = |index: i64| if index < 0 { index.saturating_add(count) } else { index };
        let (first, last) = (from_start(first).max(0), from_start(last));
        let chosen = all.into_iter().enumerate().filter(|(place, _)| {
            let place = *place as i64;
            first <= place && place <= last
        });
        Ok(shown(chosen.map(|(_, scored)| scored), with_scores))
    }

    pub(super) fn zcard(&mut self, args: &[Vec<u8>]) -> Answer {
        Ok(Value::Int(self.members(&args[0])?.map_or(0, |members| members.len() as i64)))
    }

    fn in_order(&mut self, key: &[u8]) -> Result<Vec<(Vec<u8>, f64)>, String> {
        let members = self.members(key)?.cloned().unwrap_or_default();
        let mut members: Vec<_> = members.into_iter().collect();
        // Members of one score stay in their own order.
        members.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        Ok(members)
    }
}

fn shown(chosen: impl Iterator<Item = (Vec<u8>, f64)>, with_scores: bool) -> Value {
    let items = chosen.flat_map(|(member, score)| {
        let score = with_scores.then(|| Value::bulk(score.to_string()));
        std::iter::once(Value::Bulk(member)).chain(score)
    });
    Value::Array(items.collect())
}

/// A limit of scores, and whether it is outside of them itself.
fn bound(text: &[u8]) -> Result<(f64, bool), String> {
    let open = text.strip_prefix(b"(");
    let number = std::str::from_utf8(open.unwrap_or(text)).ok().and_then(|text| text.parse().ok());
    let number = number.ok_or("ERR min or max is not a float")?;
    Ok((number, open.is_some()))
}

pub(super) const POSITIVE: &str = "ERR value is out of range, must be positive";

fn score(text: &[u8]) -> Result<f64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| "ERR value is not a valid float".to_owned())
}
