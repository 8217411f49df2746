//! Sorted sets, as far as the queue of a lock needs them.

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

    pub(super) fn zadd(&mut self, args: &[Vec<u8>]) -> Answer {
        let only_new = args[1].eq_ignore_ascii_case(b"nx");
        let pairs = &args[if only_new { 2 } else { 1 }..];
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(SYNTAX.to_owned());
        }
        let scored = pairs.chunks(2).map(|pair| Ok((pair[1].clone(), score(&pair[0])?)));
        let scored = scored.collect::<Result<Vec<_>, String>>()?;
        let members = self.members_or_new(&args[0])?;
        let mut added = 0;
        for (member, score) in scored {
            if !members.contains_key(&member) {
                added += 1;
            } else if only_new {
                continue;
            }
            members.insert(member, score);
        }
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
        let Some((member, score)) = self.in_order(&args[0])?.into_iter().next() else {
            return Ok(Value::Array(Vec::new()));
        };
        if let Some(members) = self.members(&args[0])? {
            members.remove(&member);
        }
        self.drop_if_empty(&args[0]);
        Ok(Value::Array(vec![Value::Bulk(member), Value::bulk(score.to_string())]))
    }

    pub(super) fn zrank(&mut self, args: &[Vec<u8>]) -> Answer {
        let place = self.in_order(&args[0])?.iter().position(|(member, _)| *member == args[1]);
        Ok(place.map_or(Value::Nil, |place| Value::Int(place as i64)))
    }

    pub(super) fn zrange(&mut self, args: &[Vec<u8>]) -> Answer {
        let with_scores = match args.get(3) {
            None => false,
            Some(word) if word.eq_ignore_ascii_case(b"withscores") => true,
            Some(_) => return Err(SYNTAX.to_owned()),
        };
        let (first, last) = (integer(&args[1])?, integer(&args[2])?);
        let all = self.in_order(&args[0])?;
        let count = all.len() as i64;
        let from_start = |index: i64| if index < 0 { index.saturating_add(count) } else { index };
        let (first, last) = (from_start(first).max(0), from_start(last));
        let chosen = all.into_iter().enumerate().filter(|(place, _)| {
            let place = *place as i64;
            first <= place && place <= last
        });
        let shown = chosen.flat_map(|(_, (member, score))| {
            let score = with_scores.then(|| Value::bulk(score.to_string()));
            std::iter::once(Value::Bulk(member)).chain(score)
        });
        Ok(Value::Array(shown.collect()))
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

fn score(text: &[u8]) -> Result<f64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| "ERR value is not a valid float".to_owned())
}
