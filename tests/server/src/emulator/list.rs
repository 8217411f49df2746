//! Lists, as far as queues of items need them.

use std::collections::VecDeque;

use super::keyspace::{Answer, Keyspace, integer};
use super::resp::Value;
use super::sorted::POSITIVE;

/// The elements, from the first to the last.
pub(super) type Elements = VecDeque<Vec<u8>>;
type Pop = fn(&mut Elements) -> Option<Vec<u8>>;

impl Keyspace {
    /// The elements of a list.
    pub fn listed(&mut self, key: &[u8]) -> Vec<Vec<u8>> {
        let elements = self.elements(key).ok().flatten();
        elements.map(|elements| elements.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn llen(&mut self, args: &[Vec<u8>]) -> Answer {
        Ok(Value::Int(self.elements(&args[0])?.map_or(0, |elements| elements.len() as i64)))
    }

    pub(super) fn lindex(&mut self, args: &[Vec<u8>]) -> Answer {
        let Some(elements) = self.elements(&args[0])? else {
            return Ok(Value::Nil);
        };
        let at = from_start(integer(&args[1])?, elements.len());
        let element = usize::try_from(at).ok().and_then(|at| elements.get(at));
        Ok(element.map_or(Value::Nil, Value::bulk))
    }

    pub(super) fn lrange(&mut self, args: &[Vec<u8>]) -> Answer {
        let (first, last) = (integer(&args[1])?, integer(&args[2])?);
        let Some(elements) = self.elements(&args[0])? else {
            return Ok(Value::Array(Vec::new()));
        };
        let (first, last) = (from_start(first, elements.len()), from_start(last, elements.len()));
        let inside = |(at, _): &(usize, _)| (first..=last).contains(&(*at as i64));
        let chosen = elements.iter().enumerate().filter(inside);
        Ok(Value::Array(chosen.map(|(_, element)| Value::bulk(element)).collect()))
    }

    pub(super) fn rpush(&mut self, args: &[Vec<u8>]) -> Answer {
        let elements = self.elements_or_new(&args[0])?;
        elements.extend(args[1..].iter().cloned());
        Ok(Value::Int(elements.len() as i64))
    }

    pub(super) fn lpop(&mut self, args: &[Vec<u8>]) -> Answer {
        self.pop(args, Elements::pop_front)
    }

    pub(super) fn rpop(&mut self, args: &[Vec<u8>]) -> Answer {
        self.pop(args, Elements::pop_back)
    }

    /// With a count, at most as many as there are.
    fn pop(&mut self, args: &[Vec<u8>], pop: Pop) -> Answer {
        let Some(count) = args.get(1) else { return self.popped(&args[0], pop) };
        let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or(POSITIVE)?;
        let Some(elements) = self.elements(&args[0])? else {
            return Ok(Value::Nil);
        };
        let popped = (0..count.min(elements.len())).map(|_| self.popped(&args[0], pop));
        Ok(Value::Array(popped.collect::<Result<Vec<_>, _>>()?))
    }

    fn popped(&mut self, key: &[u8], pop: Pop) -> Answer {
        let Some(elements) = self.elements(key)? else {
            return Ok(Value::Nil);
        };
        let popped = pop(elements).map_or(Value::Nil, Value::Bulk);
        // A list without elements is no key.
        if elements.is_empty() {
            self.run("del", &[key.to_vec()]);
        }
        Ok(popped)
    }
}

/// An index may count from the end.
fn from_start(index: i64, length: usize) -> i64 {
    if index < 0 { index.saturating_add(length as i64) } else { index }
}
